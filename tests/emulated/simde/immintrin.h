// AVX2 and AVX-512 in plain C++, by SIMDe. It stands in the place of the compiler's header of the same name, and adds
// what Debian's version of SIMDe lacks.
#pragma once

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>

#include <cstdint>
#include <cstring>

using __mmask8 = simde__mmask8;
using __mmask16 = simde__mmask16;

namespace simulated {

// Return the vector To whose numbers a function computes from the numbers of a vector and their indices.
template <class To, class Number, class Element, class From, class Function>
inline To numbers(From from, Function function) {
    Element given[sizeof(From) / sizeof(Element)];
    Number computed[sizeof(To) / sizeof(Number)];
    std::memcpy(given, &from, sizeof(from));
    for (int i = 0; i < static_cast<int>(sizeof(To) / sizeof(Number)); ++i) computed[i] = function(given, i);
    To result;
    std::memcpy(&result, computed, sizeof(result));
    return result;
}

// Two quarters of a, then two of b, chosen by two bits each.
template <class Vector>
inline Vector quarters(Vector a, Vector b, int chosen) {
    char from[2][sizeof(Vector)], to[sizeof(Vector)];
    std::memcpy(from[0], &a, sizeof(a));
    std::memcpy(from[1], &b, sizeof(b));
    for (int i = 0; i < 4; ++i) std::memcpy(to + 16 * i, from[i / 2] + 16 * (chosen >> (2 * i) & 3), 16);
    std::memcpy(&a, to, sizeof(a));
    return a;
}

}  // namespace simulated

inline __m512d _mm512_cvtps_pd(__m256 x) {
    return simulated::numbers<__m512d, double, float>(x, [](auto* from, int i) { return from[i]; });
}
inline __m256 _mm512_cvtpd_ps(__m512d x) {
    return simulated::numbers<__m256, float, double>(x, [](auto* from, int i) { return static_cast<float>(from[i]); });
}
inline __m512 _mm512_shuffle_f32x4(__m512 a, __m512 b, int chosen) { return simulated::quarters(a, b, chosen); }
inline __m512d _mm512_shuffle_f64x2(__m512d a, __m512d b, int chosen) { return simulated::quarters(a, b, chosen); }
inline void _mm512_stream_ps(float* to, __m512 x) { std::memcpy(to, &x, sizeof(x)); }
inline void _mm512_stream_pd(double* to, __m512d x) { std::memcpy(to, &x, sizeof(x)); }
inline __mmask16 _mm_testn_epi8_mask(__m128i a, __m128i b) {
    return static_cast<__mmask16>(_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_and_si128(a, b), _mm_setzero_si128())));
}
