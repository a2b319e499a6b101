// The kernels for every CPU of an architecture: SSE2 on x86-64, NEON on AArch64, and one number at a time elsewhere.
// And the list of all targets.
#include "target.hpp"

namespace fastgae {
namespace {
namespace baseline {

#include "unrolled.inl"
#if FASTGAE_X86
#include "vector_sse2.inl"
#elif FASTGAE_NEON
#include "vector_neon.inl"
#else
template <class Real>
struct Vector : Single<Real> {};
#endif
#include "kernels.inl"

}  // namespace baseline
}  // namespace

const Target kBaseline = {"baseline", [] { return true; }, baseline::kernels<float>, baseline::kernels<double>,
                          nullptr};

// The targets of this build. The order of preference is in Python.
const Target* const targets[] = {
#if FASTGAE_AVX512
    &kAvx512,
#endif
#if FASTGAE_AVX2
    &kAvx2,
#endif
    &kBaseline,
    nullptr,
};

}  // namespace fastgae
