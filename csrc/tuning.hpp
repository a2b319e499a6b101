// Every threshold of the compiled kernels, each with the measurement that chose it. None of them can change a result.
#pragma once

#include "kernels.hpp"

namespace fastgae {

// Bytes of one tile of the env-major kernel: enough for long runs along each env, little enough for L2 and for a thread's
// stack. Advantages of 16384 x 1024 from memory: 0.7, 0.8, 0.95 G steps/s with 16, 32, 64 KiB.
constexpr Index kTileBytes = 64 * 1024;
// Bytes added to the rows of a tile, so that a power of two does not put them all into one cache set.
constexpr Index kTilePadding = 64;
// From this many bytes moved, results are streamed past the caches.
constexpr Index kStreamBytes = Index(32) << 20;
// Columns that a time-major sweep takes at once: carry and values of a row stay in L2.
constexpr Index kSweepColumns = 16384;
// Bytes ahead that a streaming sweep prefetches.
constexpr Index kPrefetchBytes = 1024;
// A thread costs about 16 us to spawn and join.
constexpr Index kStepsPerThread = 128 * 1024;

}  // namespace fastgae
