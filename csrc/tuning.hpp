// Every threshold of the compiled kernels, each with the measurement that chose it. No threshold changes a result.
#pragma once

#include "kernels.hpp"

namespace fastgae {

// A build with -DFASTGAE_TINY uses the second number, about the smallest with which the kernels are right. Rollouts of
// some dozen steps then take the paths that otherwise need millions: streaming, threads, pieces and several tiles.
#if defined(FASTGAE_TINY)
#define FASTGAE_THRESHOLDS ", tiny thresholds"
constexpr Index tuned(Index, Index tiny) { return tiny; }
#else
#define FASTGAE_THRESHOLDS ""
constexpr Index tuned(Index number, Index) { return number; }
#endif

// Bytes of one tile of the env-major kernel: large enough for long runs along each env, small enough for L2.
// Advantages of 16384 x 1024 from memory: 0.7, 0.8, 0.95 G steps/s with 16, 32, 64 KiB.
constexpr Index kTileBytes = tuned(64 * 1024, 2048);
// Bytes between the rows of a tile. Without them the rows, a power of two long, would all fall into one cache set.
constexpr Index kTilePadding = 64;
// Rollouts of at least this many bytes get streaming stores, because their results would not stay in the caches. It is
// one core's share of a server's L3. 1024 x 16384: 1.4 G steps/s stored, 1.8 streamed; 128 x 1024 streamed: half the
// speed.
constexpr Index kStreamBytes = tuned(Index(32) << 20, 256);
// Numbers of one result that are streamed before as many of the other. 16384 x 1024: 0.2 to 1.7 G steps/s with turns of
// half a cache line, depending on where the arrays lie; 1.5, 1.5, 1.4, 1.1 at worst with 128, 256, 512, 1024.
constexpr Index kStreamRun = tuned(256, 16);
// How many bytes ahead a streaming sweep prefetches. 1024 x 16384: 1.4 G steps/s without, 1.6 with 1 KiB, 1.5 with 4
// KiB.
constexpr Index kPrefetchBytes = 1024;
// Columns that a time-major sweep takes at once, so that the carry and one row of values stay in L2. 128 x 65536: 1.3,
// 1.6, 1.6 G steps/s with 4096, 16384, 32768.
constexpr Index kSweepColumns = tuned(16384, 32);
// Rows of few envs whose results are kept before they are written together. 65536 x 4: 0.98, 0.92, 0.75 G steps/s with
// 16, 64, 256.
constexpr Index kNarrowRows = tuned(16, 2);
// Columns that a time-major sweep with options takes at once, so that a factor repeated along a row stays in L1.
constexpr Index kOptionsColumns = tuned(1024, 32);
// Bytes of each of the three tiles of the env-major sweep with options: half of kTileBytes, so that they fit into L2
// together.
constexpr Index kOptionsTileBytes = tuned(32 * 1024, 2048);
// Steps of work that make a thread worth its cost, about 16 us to spawn and join.
constexpr Index kStepsPerThread = tuned(128 * 1024, 64);
// Steps of the largest rollout whose arrays the short cut copies where kernels cannot read them. A copy of this many
// float32 takes 30 us or more, beside which the 20 us of the long way, which lets other threads run, are few.
constexpr Index kConvertedSteps = tuned(32 * 1024, 64);

static_assert(kStreamRun >= 64 / Index(sizeof(float)), "a run must reach the next cache line, where it is cut");
static_assert(kStreamRun <= kOptionsColumns,
              "the sweep with options keeps one streamed run in a row of this many numbers");
static_assert(kSweepColumns >= kMaxLanes, "narrow_rows takes rows of fewer than two vectors whole");

}  // namespace fastgae
