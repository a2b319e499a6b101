// What compiled the kernels, and for which vectors, as `fastgae info` shows it.
#pragma once

#include "architecture.hpp"
#include "tuning.hpp"

namespace fastgae {

#if defined(__clang__)
inline constexpr const char* kCompiler = "clang " __clang_version__ FASTGAE_VECTORS FASTGAE_THRESHOLDS;
#elif defined(__GNUC__)
inline constexpr const char* kCompiler = "gcc " __VERSION__ FASTGAE_VECTORS FASTGAE_THRESHOLDS;
#else
inline constexpr const char* kCompiler = "msvc" FASTGAE_VECTORS FASTGAE_THRESHOLDS;
#endif

}  // namespace fastgae
