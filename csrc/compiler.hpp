// What compiled the kernels, as `fastgae info` shows it.
#pragma once

#include "tuning.hpp"

namespace fastgae {

#if defined(__clang__)
inline constexpr const char* kCompiler = "clang " __clang_version__ FASTGAE_THRESHOLDS;
#elif defined(__GNUC__)
inline constexpr const char* kCompiler = "gcc " __VERSION__ FASTGAE_THRESHOLDS;
#else
inline constexpr const char* kCompiler = "msvc" FASTGAE_THRESHOLDS;
#endif

}  // namespace fastgae
