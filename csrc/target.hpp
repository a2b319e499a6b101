// Included first by every target_*.cpp. The same kernels are compiled once per CPU target, in one file each, so that
// the compiler can work on all files at a time. All files get the same flags; a pragma in each selects the CPU.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "architecture.hpp"
#include "kernels.hpp"
#include "prefetching.hpp"
#include "tuning.hpp"

#if FASTGAE_X86
#include <immintrin.h>
#elif FASTGAE_NEON
#include <arm_neon.h>
#endif

#if defined(FASTGAE_TARGET)  // tests simulate the instructions on any CPU
#elif defined(__clang__)
#define FASTGAE_PRAGMA(text) _Pragma(#text)
#define FASTGAE_TARGET(isa) FASTGAE_PRAGMA(clang attribute push(__attribute__((target(isa))), apply_to = function))
#define FASTGAE_TARGET_END _Pragma("clang attribute pop")
#elif defined(__GNUC__)
#define FASTGAE_PRAGMA(text) _Pragma(#text)
#define FASTGAE_TARGET(isa) _Pragma("GCC push_options") FASTGAE_PRAGMA(GCC target(isa))
#define FASTGAE_TARGET_END _Pragma("GCC pop_options")
#endif

// The targets of this build besides the baseline.
#if FASTGAE_X86 && defined(FASTGAE_TARGET)
#define FASTGAE_AVX2 1
#if !defined(FASTGAE_WITHOUT_AVX512)  // for builds that only have to run on a CPU without it
#define FASTGAE_AVX512 1
#endif
#endif

#if defined(__GNUC__) && !defined(__OPTIMIZE__)  // as for sanitizers, which instrument each function once
#define FASTGAE_INLINE inline
#define FASTGAE_NO_INLINE inline
#define FASTGAE_INLINE_LAMBDA
#elif defined(__GNUC__)
#define FASTGAE_INLINE __attribute__((always_inline)) inline
#define FASTGAE_NO_INLINE __attribute__((noinline)) inline
#define FASTGAE_INLINE_LAMBDA __attribute__((always_inline))
#else
#define FASTGAE_INLINE __forceinline
#define FASTGAE_NO_INLINE __declspec(noinline) inline
#define FASTGAE_INLINE_LAMBDA
#endif

// GCC warns of its own AVX-512 intrinsics, which begin with a register that is undefined on purpose.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

namespace fastgae {

// Each of these is defined in its own file, if this build has it.
extern const Target kAvx512, kAvx2, kBaseline;

namespace {
#include "vector_single.inl"
}  // namespace

}  // namespace fastgae
