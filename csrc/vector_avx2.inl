// Vectors of the AVX2 target.

template <>
struct Vector<float> : VectorOf<float, 8> {
    using Type = __m256;
    using Mask = __m256;  // all bits of a lane are set, or none

    static Type load(const float* from) { return _mm256_loadu_ps(from); }
    static void store(float* to, Type x) { _mm256_storeu_ps(to, x); }
    static void stream(float* to, Type x) { _mm256_stream_ps(to, x); }
    static Type all(float x) { return _mm256_set1_ps(x); }
    static Type smaller(Type a, Type b) { return _mm256_min_ps(a, b); }  // returns b if either is NaN
    static Mask at_least(Type a, Type b) { return _mm256_cmp_ps(a, b, _CMP_GE_OQ); }

    static Mask zero_flags(const std::uint8_t* flags) {
        const __m256i wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(flags)));
        return _mm256_castsi256_ps(_mm256_cmpeq_epi32(wide, _mm256_setzero_si256()));
    }
    static Mask both(Mask a, Mask b) { return _mm256_and_ps(a, b); }
    static Bits bits(Mask mask) { return _mm256_movemask_ps(mask); }
    static Type select(Mask mask, Type x, Type otherwise) { return _mm256_blendv_ps(otherwise, x, mask); }
    static __m256i load_bits(const Bits* from) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(from)); }
    // Only the sign bit of each lane is set right, because select looks at no other bit.
    static Mask bit(__m256i bits, int k) { return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 31 - k)); }

    static FASTGAE_INLINE void transpose(Type (&x)[8]) {
        Type y[8];
        unrolled<4>([&](auto n) {
            constexpr int i = 2 * n;
            y[i] = _mm256_unpacklo_ps(x[i], x[i + 1]);
            y[i + 1] = _mm256_unpackhi_ps(x[i], x[i + 1]);
        });
        unrolled<2>([&](auto n) {
            constexpr int i = 4 * n;
            x[i] = _mm256_shuffle_ps(y[i], y[i + 2], 0x44);
            x[i + 1] = _mm256_shuffle_ps(y[i], y[i + 2], 0xEE);
            x[i + 2] = _mm256_shuffle_ps(y[i + 1], y[i + 3], 0x44);
            x[i + 3] = _mm256_shuffle_ps(y[i + 1], y[i + 3], 0xEE);
        });
        unrolled<4>([&](auto i) {
            y[i] = _mm256_permute2f128_ps(x[i], x[i + 4], 0x20);
            y[i + 4] = _mm256_permute2f128_ps(x[i], x[i + 4], 0x31);
        });
        unrolled<8>([&](auto i) { x[i] = y[i]; });
    }
};

template <>
struct Vector<double> : VectorOf<double, 4> {
    using Type = __m256d;
    using Mask = __m256d;

    static Type load(const double* from) { return _mm256_loadu_pd(from); }
    static Type load(const float* from) { return _mm256_cvtps_pd(_mm_loadu_ps(from)); }
    static void store(double* to, Type x) { _mm256_storeu_pd(to, x); }
    static void store(float* to, Type x) { _mm_storeu_ps(to, _mm256_cvtpd_ps(x)); }
    static void stream(double* to, Type x) { _mm256_stream_pd(to, x); }
    static Type all(double x) { return _mm256_set1_pd(x); }
    static Type smaller(Type a, Type b) { return _mm256_min_pd(a, b); }
    static Mask at_least(Type a, Type b) { return _mm256_cmp_pd(a, b, _CMP_GE_OQ); }

    static Mask zero_flags(const std::uint8_t* flags) {
        std::int32_t four;
        std::memcpy(&four, flags, sizeof four);
        const __m256i wide = _mm256_cvtepu8_epi64(_mm_cvtsi32_si128(four));
        return _mm256_castsi256_pd(_mm256_cmpeq_epi64(wide, _mm256_setzero_si256()));
    }
    static Mask both(Mask a, Mask b) { return _mm256_and_pd(a, b); }
    static Bits bits(Mask mask) { return _mm256_movemask_pd(mask); }
    static Type select(Mask mask, Type x, Type otherwise) { return _mm256_blendv_pd(otherwise, x, mask); }
    static __m256i load_bits(const Bits* from) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(from)); }
    static Mask bit(__m256i bits, int k) { return _mm256_castsi256_pd(_mm256_slli_epi64(bits, 63 - k)); }

    static FASTGAE_INLINE void transpose(Type (&x)[4]) {
        const Type low01 = _mm256_unpacklo_pd(x[0], x[1]), high01 = _mm256_unpackhi_pd(x[0], x[1]);
        const Type low23 = _mm256_unpacklo_pd(x[2], x[3]), high23 = _mm256_unpackhi_pd(x[2], x[3]);
        x[0] = _mm256_permute2f128_pd(low01, low23, 0x20);
        x[1] = _mm256_permute2f128_pd(high01, high23, 0x20);
        x[2] = _mm256_permute2f128_pd(low01, low23, 0x31);
        x[3] = _mm256_permute2f128_pd(high01, high23, 0x31);
    }
};
