// Vectors of the AVX-512 target. Masks have registers of their own.

template <>
struct Vector<float> : VectorOf<float, 16> {
    using Type = __m512;
    using Mask = __mmask16;

    static Type load(const float* from) { return _mm512_loadu_ps(from); }
    static void store(float* to, Type x) { _mm512_storeu_ps(to, x); }
    static void stream(float* to, Type x) { _mm512_stream_ps(to, x); }
    static Type all(float x) { return _mm512_set1_ps(x); }
    static Type smaller(Type a, Type b) { return _mm512_min_ps(a, b); }  // returns b if either is NaN
    static Mask at_least(Type a, Type b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }

    static Mask zero_flags(const std::uint8_t* flags) {
        const __m128i sixteen = _mm_loadu_si128(reinterpret_cast<const __m128i*>(flags));
        return _mm_testn_epi8_mask(sixteen, sixteen);
    }
    static Mask both(Mask a, Mask b) { return static_cast<Mask>(a & b); }
    static Bits bits(Mask mask) { return mask; }
    static Type select(Mask mask, Type x, Type otherwise) { return _mm512_mask_mov_ps(otherwise, mask, x); }
    static __m512i load_bits(const Bits* from) { return _mm512_load_si512(from); }
    static Mask bit(__m512i bits, int k) { return _mm512_test_epi32_mask(bits, _mm512_set1_epi32(1 << k)); }

    static FASTGAE_INLINE void transpose(Type (&x)[16]) {
        Type y[16];
        unrolled<8>([&](auto n) {
            constexpr int i = 2 * n;
            y[i] = _mm512_unpacklo_ps(x[i], x[i + 1]);
            y[i + 1] = _mm512_unpackhi_ps(x[i], x[i + 1]);
        });
        unrolled<4>([&](auto n) {
            constexpr int i = 4 * n;
            x[i] = _mm512_shuffle_ps(y[i], y[i + 2], 0x44);
            x[i + 1] = _mm512_shuffle_ps(y[i], y[i + 2], 0xEE);
            x[i + 2] = _mm512_shuffle_ps(y[i + 1], y[i + 3], 0x44);
            x[i + 3] = _mm512_shuffle_ps(y[i + 1], y[i + 3], 0xEE);
        });
        // x[4 b + c] holds, in its quarter q, column 4 q + c of the rows 4 b .. 4 b + 3.
        unrolled<4>([&](auto c) {
            const Type even01 = _mm512_shuffle_f32x4(x[c], x[4 + c], 0x88);
            const Type odd01 = _mm512_shuffle_f32x4(x[c], x[4 + c], 0xDD);
            const Type even23 = _mm512_shuffle_f32x4(x[8 + c], x[12 + c], 0x88);
            const Type odd23 = _mm512_shuffle_f32x4(x[8 + c], x[12 + c], 0xDD);
            y[c] = _mm512_shuffle_f32x4(even01, even23, 0x88);
            y[4 + c] = _mm512_shuffle_f32x4(odd01, odd23, 0x88);
            y[8 + c] = _mm512_shuffle_f32x4(even01, even23, 0xDD);
            y[12 + c] = _mm512_shuffle_f32x4(odd01, odd23, 0xDD);
        });
        unrolled<16>([&](auto i) { x[i] = y[i]; });
    }
};

template <>
struct Vector<double> : VectorOf<double, 8> {
    using Type = __m512d;
    using Mask = __mmask8;

    static Type load(const double* from) { return _mm512_loadu_pd(from); }
    static Type load(const float* from) { return _mm512_cvtps_pd(_mm256_loadu_ps(from)); }
    static void store(double* to, Type x) { _mm512_storeu_pd(to, x); }
    static void store(float* to, Type x) { _mm256_storeu_ps(to, _mm512_cvtpd_ps(x)); }
    static void stream(double* to, Type x) { _mm512_stream_pd(to, x); }
    static Type all(double x) { return _mm512_set1_pd(x); }
    static Type smaller(Type a, Type b) { return _mm512_min_pd(a, b); }
    static Mask at_least(Type a, Type b) { return _mm512_cmp_pd_mask(a, b, _CMP_GE_OQ); }

    static Mask zero_flags(const std::uint8_t* flags) {
        const __m128i eight = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(flags));
        return static_cast<Mask>(_mm_testn_epi8_mask(eight, eight));
    }
    static Mask both(Mask a, Mask b) { return static_cast<Mask>(a & b); }
    static Bits bits(Mask mask) { return mask; }
    static Type select(Mask mask, Type x, Type otherwise) { return _mm512_mask_mov_pd(otherwise, mask, x); }
    static __m512i load_bits(const Bits* from) { return _mm512_load_si512(from); }
    static Mask bit(__m512i bits, int k) { return _mm512_test_epi64_mask(bits, _mm512_set1_epi64(1 << k)); }

    static FASTGAE_INLINE void transpose(Type (&x)[8]) {
        Type y[8];
        unrolled<4>([&](auto n) {
            constexpr int i = 2 * n;
            y[i] = _mm512_unpacklo_pd(x[i], x[i + 1]);
            y[i + 1] = _mm512_unpackhi_pd(x[i], x[i + 1]);
        });
        // y[2 b + c] holds, in its quarter q, column 2 q + c of the rows 2 b and 2 b + 1.
        unrolled<2>([&](auto c) {
            const Type even01 = _mm512_shuffle_f64x2(y[c], y[2 + c], 0x88);
            const Type odd01 = _mm512_shuffle_f64x2(y[c], y[2 + c], 0xDD);
            const Type even23 = _mm512_shuffle_f64x2(y[4 + c], y[6 + c], 0x88);
            const Type odd23 = _mm512_shuffle_f64x2(y[4 + c], y[6 + c], 0xDD);
            x[c] = _mm512_shuffle_f64x2(even01, even23, 0x88);
            x[2 + c] = _mm512_shuffle_f64x2(odd01, odd23, 0x88);
            x[4 + c] = _mm512_shuffle_f64x2(even01, even23, 0xDD);
            x[6 + c] = _mm512_shuffle_f64x2(odd01, odd23, 0xDD);
        });
    }
};
