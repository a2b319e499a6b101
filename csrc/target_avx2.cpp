// The kernels for AVX2.
#include "target.hpp"

#if FASTGAE_AVX2
namespace fastgae {
FASTGAE_TARGET("avx2")
namespace {
namespace avx2 {

#include "unrolled.inl"
#include "vector_avx2.inl"
#include "kernels.inl"

}  // namespace avx2
}  // namespace
FASTGAE_TARGET_END

const Target kAvx2 = {"avx2", [] { return __builtin_cpu_supports("avx2") != 0; }, avx2::kernels<float>,
                      avx2::kernels<double>, &kBaseline};

}  // namespace fastgae
#endif
