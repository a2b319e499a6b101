// One loop body, compiled once per CPU target, and the table from which one is chosen at run time.
#include <cstdint>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

#include "kernels.hpp"
#include "tuning.hpp"

#if (defined(__x86_64__) || defined(_M_X64)) && !defined(FASTGAE_PORTABLE)
#define FASTGAE_X86 1
#include <immintrin.h>
#endif

#if defined(__clang__)
#define FASTGAE_PRAGMA(text) _Pragma(#text)
#define FASTGAE_TARGET(isa) FASTGAE_PRAGMA(clang attribute push(__attribute__((target(isa))), apply_to = function))
#define FASTGAE_TARGET_END _Pragma("clang attribute pop")
#elif defined(__GNUC__)
#define FASTGAE_PRAGMA(text) _Pragma(#text)
#define FASTGAE_TARGET(isa) _Pragma("GCC push_options") FASTGAE_PRAGMA(GCC target(isa))
#define FASTGAE_TARGET_END _Pragma("GCC pop_options")
#endif

#if defined(__GNUC__)
#define FASTGAE_INLINE __attribute__((always_inline)) inline
#define FASTGAE_INLINE_LAMBDA __attribute__((always_inline))
#else
#define FASTGAE_INLINE __forceinline
#define FASTGAE_INLINE_LAMBDA
#endif

// GCC's own AVX-512 intrinsics start from a deliberately undefined register, and GCC warns of it.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

namespace fastgae {
namespace {

#include "vector_single.inl"

namespace baseline {
#include "unrolled.inl"
#if FASTGAE_X86
template <class Real>
struct Vector;
#include "vector_sse2.inl"
#else
template <class Real>
using Vector = Single<Real>;
#endif
#include "kernels.inl"
}  // namespace baseline

#if FASTGAE_X86 && defined(FASTGAE_TARGET)
FASTGAE_TARGET("avx2")
namespace avx2 {
#include "unrolled.inl"
template <class Real>
struct Vector;
#include "vector_avx2.inl"
#include "kernels.inl"
}  // namespace avx2
FASTGAE_TARGET_END

// Left out where only what this CPU can run is to be compiled.
#if !defined(FASTGAE_WITHOUT_AVX512)
FASTGAE_TARGET("avx512f,avx512bw,avx512vl,avx512dq")
namespace avx512 {
#include "unrolled.inl"
template <class Real>
struct Vector;
#include "vector_avx512.inl"
#include "kernels.inl"
}  // namespace avx512
FASTGAE_TARGET_END
#endif
#endif

}  // namespace

const Target targets[] = {
#if FASTGAE_X86 && defined(FASTGAE_TARGET)
#if !defined(FASTGAE_WITHOUT_AVX512)
    {"avx512",
     [] {
         return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
     },
     avx512::kernels<float>, avx512::kernels<double>},
#endif
    {"avx2", [] { return __builtin_cpu_supports("avx2") != 0; }, avx2::kernels<float>, avx2::kernels<double>},
#endif
    {"baseline", [] { return true; }, baseline::kernels<float>, baseline::kernels<double>},
    {},
};

}  // namespace fastgae
