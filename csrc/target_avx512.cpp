// The kernels for AVX-512.
#include "target.hpp"

#if FASTGAE_AVX512
namespace fastgae {
FASTGAE_TARGET("avx512f,avx512bw,avx512vl,avx512dq")
namespace {
namespace avx512 {

#include "unrolled.inl"
#include "vector_avx512.inl"
#include "kernels.inl"

}  // namespace avx512
}  // namespace
FASTGAE_TARGET_END
namespace {

bool has_avx512() {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

}  // namespace

const Target kAvx512 = {"avx512", has_avx512, avx512::kernels<float>, avx512::kernels<double>, &kAvx2};

}  // namespace fastgae
#endif
