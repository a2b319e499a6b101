// The CPU targets of this build; target_*.cpp compiles the kernels of each. The order of preference is in Python.
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
