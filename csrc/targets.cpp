// The targets of this build, best first. target_*.cpp has the kernels of each.
#include "target.hpp"

namespace fastgae {

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
