// Which vectors every CPU of this architecture has: SSE2, NEON, or none. It refuses options that change results.
#pragma once

#if !defined(FASTGAE_PORTABLE)
#if defined(__x86_64__) || defined(_M_X64)
#define FASTGAE_X86 1
// In a big-endian system, the first number in memory is not in the lowest bits of a vector, as the NEON file expects.
#elif defined(__aarch64__) && !defined(__AARCH64EB__) || defined(_M_ARM64)
#define FASTGAE_NEON 1
#endif
#endif

// The x87 unit rounds to more digits than float and double have. 16 stands for a CPU that also computes with float16.
#if defined(__FAST_MATH__) || defined(_M_FP_FAST) || (__FLT_EVAL_METHOD__ != 0 && __FLT_EVAL_METHOD__ != 16)
#error "fastgae computes as IEEE 754 says: take what asks for other arithmetic out of CFLAGS and CXXFLAGS"
#endif

// Before Visual Studio 2022, /fp:precise may fuse a product and a sum, which are then rounded once and not twice.
#if defined(_MSC_VER) && !defined(__clang__)
#pragma fp_contract(off)
#endif

static_assert(sizeof(void*) == 8, "fastgae is compiled for 64-bit systems only; on others, NumPy computes");

namespace fastgae {

#if FASTGAE_X86
constexpr bool kHasStreamingStores = true;
#else
constexpr bool kHasStreamingStores = false;
#endif

}  // namespace fastgae

// What `fastgae info` says of the baseline target.
#if FASTGAE_NEON
#define FASTGAE_VECTORS ", NEON"
#else
#define FASTGAE_VECTORS ""
#endif
