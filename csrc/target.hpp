// What every target_*.cpp begins with: one loop body is compiled once per CPU target, each in a file of its own, so that
// they compile side by side. The compiler's flags are the same for all; a pragma says for which CPU.
#pragma once

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

// Targets beside the baseline.
#if FASTGAE_X86 && defined(FASTGAE_TARGET)
#define FASTGAE_AVX2 1
#if !defined(FASTGAE_WITHOUT_AVX512)  // left out where only what this CPU can run is to be compiled
#define FASTGAE_AVX512 1
#endif
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

// Those that there are here, each in its file.
extern const Target kAvx512, kAvx2, kBaseline;

namespace {
#include "vector_single.inl"
}  // namespace

}  // namespace fastgae
