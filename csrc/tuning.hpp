// Every threshold of the compiled kernels, each with the measurement that chose it. None of them can change a result.
#pragma once

#include "kernels.hpp"

namespace fastgae {

// Steps of one tile of the env-major kernel.
constexpr Index kTileSteps = 256;
// Added to the rows of a tile, so that a power of two does not put them all into one cache set.
constexpr Index kTilePadding = 16;
// From this many bytes moved, results are streamed past the caches.
constexpr Index kStreamBytes = Index(32) << 20;
// Columns that a time-major sweep takes at once: carry and values of a row stay in L2.
constexpr Index kSweepColumns = 16384;
// Bytes ahead that a streaming sweep prefetches.
constexpr Index kPrefetchBytes = 1024;
// A thread costs about 16 us to spawn and join.
constexpr Index kStepsPerThread = 128 * 1024;

}  // namespace fastgae
