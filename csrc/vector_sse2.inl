// Vectors of the baseline target on x86-64, which always has SSE2.

#if defined(_MSC_VER) && !defined(__clang__)  // GCC and Clang have these operators
FASTGAE_INLINE __m128 operator+(__m128 a, __m128 b) { return _mm_add_ps(a, b); }
FASTGAE_INLINE __m128 operator-(__m128 a, __m128 b) { return _mm_sub_ps(a, b); }
FASTGAE_INLINE __m128 operator*(__m128 a, __m128 b) { return _mm_mul_ps(a, b); }
FASTGAE_INLINE __m128 operator/(__m128 a, __m128 b) { return _mm_div_ps(a, b); }
FASTGAE_INLINE __m128d operator+(__m128d a, __m128d b) { return _mm_add_pd(a, b); }
FASTGAE_INLINE __m128d operator-(__m128d a, __m128d b) { return _mm_sub_pd(a, b); }
FASTGAE_INLINE __m128d operator*(__m128d a, __m128d b) { return _mm_mul_pd(a, b); }
FASTGAE_INLINE __m128d operator/(__m128d a, __m128d b) { return _mm_div_pd(a, b); }
#endif

template <>
struct Vector<float> : VectorOf<float, 4> {
    using Type = __m128;
    using Mask = __m128;  // all bits of a lane are set, or none

    static Type load(const float* from) { return _mm_loadu_ps(from); }
    static void store(float* to, Type x) { _mm_storeu_ps(to, x); }
    static void stream(float* to, Type x) { _mm_stream_ps(to, x); }
    static Type all(float x) { return _mm_set1_ps(x); }
    static Type smaller(Type a, Type b) { return _mm_min_ps(a, b); }  // returns b if either is NaN
    static Mask at_least(Type a, Type b) { return _mm_cmpge_ps(a, b); }

    static Mask zero_flags(const std::uint8_t* flags) {
        std::int32_t four;
        std::memcpy(&four, flags, sizeof four);
        const __m128i zero = _mm_cmpeq_epi8(_mm_cvtsi32_si128(four), _mm_setzero_si128());
        const __m128i twice = _mm_unpacklo_epi8(zero, zero);
        return _mm_castsi128_ps(_mm_unpacklo_epi16(twice, twice));
    }
    static Mask both(Mask a, Mask b) { return _mm_and_ps(a, b); }
    static Bits bits(Mask mask) { return _mm_movemask_ps(mask); }
    static Type select(Mask mask, Type x, Type otherwise) {
        return _mm_or_ps(_mm_and_ps(mask, x), _mm_andnot_ps(mask, otherwise));
    }
    static __m128i load_bits(const Bits* from) { return _mm_load_si128(reinterpret_cast<const __m128i*>(from)); }
    static Mask bit(__m128i bits, int k) { return _mm_castsi128_ps(_mm_srai_epi32(_mm_slli_epi32(bits, 31 - k), 31)); }

    static FASTGAE_INLINE void transpose(Type (&x)[4]) { _MM_TRANSPOSE4_PS(x[0], x[1], x[2], x[3]); }
};

template <>
struct Vector<double> : VectorOf<double, 2> {
    using Type = __m128d;
    using Mask = __m128d;

    static Type load(const double* from) { return _mm_loadu_pd(from); }
    static Type load(const float* from) {
        return _mm_cvtps_pd(_mm_castsi128_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
    }
    static void store(double* to, Type x) { _mm_storeu_pd(to, x); }
    static void store(float* to, Type x) { _mm_storel_pi(reinterpret_cast<__m64*>(to), _mm_cvtpd_ps(x)); }
    static void stream(double* to, Type x) { _mm_stream_pd(to, x); }
    static Type all(double x) { return _mm_set1_pd(x); }
    static Type smaller(Type a, Type b) { return _mm_min_pd(a, b); }
    static Mask at_least(Type a, Type b) { return _mm_cmpge_pd(a, b); }

    static Mask zero_flags(const std::uint8_t* flags) {
        std::uint16_t two;
        std::memcpy(&two, flags, sizeof two);
        const __m128i zero = _mm_cmpeq_epi8(_mm_cvtsi32_si128(two), _mm_setzero_si128());
        const __m128i twice = _mm_unpacklo_epi8(zero, zero);
        const __m128i fourfold = _mm_unpacklo_epi16(twice, twice);
        return _mm_castsi128_pd(_mm_unpacklo_epi32(fourfold, fourfold));
    }
    static Mask both(Mask a, Mask b) { return _mm_and_pd(a, b); }
    static Bits bits(Mask mask) { return _mm_movemask_pd(mask); }
    static Type select(Mask mask, Type x, Type otherwise) {
        return _mm_or_pd(_mm_and_pd(mask, x), _mm_andnot_pd(mask, otherwise));
    }
    static __m128i load_bits(const Bits* from) { return _mm_load_si128(reinterpret_cast<const __m128i*>(from)); }
    // SSE2 cannot shift signed 64-bit numbers. All bits are in the lower half of each number, so shift two copies of
    // that half.
    static Mask bit(__m128i bits, int k) {
        const __m128i low = _mm_shuffle_epi32(bits, _MM_SHUFFLE(2, 2, 0, 0));
        return _mm_castsi128_pd(_mm_srai_epi32(_mm_slli_epi32(low, 31 - k), 31));
    }

    static FASTGAE_INLINE void transpose(Type (&x)[2]) {
        const Type low = _mm_unpacklo_pd(x[0], x[1]);
        x[1] = _mm_unpackhi_pd(x[0], x[1]);
        x[0] = low;
    }
};
