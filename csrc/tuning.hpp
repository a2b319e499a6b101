// Every threshold of the compiled kernels, each with the measurement that chose it. None of them can change a result.
#pragma once

#include "kernels.hpp"

namespace fastgae {

// -DFASTGAE_TINY takes the second number, about the smallest that the kernels stand: rollouts of some dozen steps then
// stream, thread, are cut, and are swept tile by tile, which otherwise takes millions.
#if defined(FASTGAE_TINY)
#define FASTGAE_THRESHOLDS ", tiny thresholds"
constexpr Index tuned(Index, Index tiny) { return tiny; }
#else
#define FASTGAE_THRESHOLDS ""
constexpr Index tuned(Index number, Index) { return number; }
#endif

// Bytes of one tile of the env-major kernel: enough for long runs along each env, little enough for L2.
// Advantages of 16384 x 1024 from memory: 0.7, 0.8, 0.95 G steps/s with 16, 32, 64 KiB.
constexpr Index kTileBytes = tuned(64 * 1024, 2048);
// Bytes added to the rows of a tile, so that a power of two does not put them all into one cache set.
constexpr Index kTilePadding = 64;
// From this many bytes of numbers on, results are streamed past the caches, where they would not stay anyway; this much is
// the L3 of a server core's share. 1024 x 16384: 1.4 G steps/s stored, 1.8 streamed; 128 x 1024 streamed: half the speed.
constexpr Index kStreamBytes = tuned(Index(32) << 20, 256);
// Numbers of one result that are streamed before it is the turn of the other. 16384 x 1024: 0.2 to 1.7 G steps/s by turns
// of half a line, depending on where the arrays lie; 1.5, 1.5, 1.4, 1.1 at worst with 128, 256, 512, 1024.
constexpr Index kStreamRun = tuned(256, 16);
// Bytes ahead that a streaming sweep prefetches. 1024 x 16384: 1.4 G steps/s without, 1.6 with 1 KiB, 1.5 with 4 KiB.
constexpr Index kPrefetchBytes = 1024;
// Columns that a time-major sweep takes at once, so that the carry and the values of a row stay in L2. 128 x 65536: 1.3,
// 1.6, 1.6 G steps/s with 4096, 16384, 32768.
constexpr Index kSweepColumns = tuned(16384, 32);
// Rows of few envs whose results wait together. 65536 x 4: 0.98, 0.92, 0.75 G steps/s with 16, 64,
// 256.
constexpr Index kNarrowRows = tuned(16, 2);
// Numbers of a row that a time-major sweep with options takes at once, so that rows made of one weight stay in L1.
constexpr Index kGeneralNumbers = tuned(1024, 32);
// Bytes of each of the up to three tiles of the env-major sweep with options: half of a plain one's,
// to fit into L2 together.
constexpr Index kGeneralBytes = tuned(32 * 1024, 2048);
// Steps that pay for a thread, which takes about 16 us to spawn and join.
constexpr Index kStepsPerThread = tuned(128 * 1024, 64);

static_assert(kStreamRun >= 64 / Index(sizeof(float)), "a run ends at a cache line, which must not be where it began");
static_assert(kStreamRun <= kGeneralNumbers, "the sweep with options keeps a run in rows of so many numbers");
static_assert(kSweepColumns >= kMaxLanes, "rows of few envs, less than two vectors, are swept whole");

}  // namespace fastgae
