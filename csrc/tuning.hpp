// Every threshold of the compiled kernels, each with the measurement that chose it. No threshold changes a result.
#pragma once

#include <cstdint>

#include "architecture.hpp"
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
// Advantages of 16384 x 1024 from memory: 0.7, 0.8, 0.95 G steps/s with 16, 32, 64 KiB. Zen 5, 512 x 256 in
// cache: 44.7, 40.2, 40.1 us with AVX-512 and 54.4, 48.5, 49.8 us with AVX2.
constexpr Index kTileBytes = tuned(64 * 1024, 2048);
// Lanes whose tiles follow each other, so that one can be prefetched while the recursion runs in the one before it: the
// first of every batch is not. Zen 5, advantages of 128 x 65536 and 64 x 200000 from memory, AVX-512: 7.6 and 15.2 ms
// without prefetches, 5.6 and 11.2 ms with them; AVX2: 9.0 and 15.5, 5.6 and 11.7 ms. In cache they gain nothing.
constexpr Index kBatchLanes = tuned(256, 32);
// Steps of the shortest runs that are prefetched, because the CPU itself follows shorter ones that lie side by side.
// Advantages of 16 x 1048576, 32 x 400000 and 48 x 270000 on Zen 5: 24.3, 11.4 and 13.2 ms without prefetches, 32.5,
// 11.8 and 10.7 ms with them; AVX2: 25.2, 12.9 and 14.1 ms, 27.1, 10.9 and 12.1 ms.
constexpr Index kPrefetchedSteps = tuned(32, 1);
// Bytes between the rows of a tile. Without them the rows, a power of two long, would all fall into one cache set.
constexpr Index kTilePadding = 64;
// Rollouts of at least this many bytes get streaming stores, or of half the last-level cache where that is less. Zen 3,
// 1024 x 16384: 1.4 G steps/s stored, 1.8 streamed. Zen 5 with 32 MiB of L3, rollouts of 8, 16, 32, 64 MiB: 103, 341,
// 1033, 2102 us stored; 138, 264, 762, 1667 us streamed. Nobody has measured yet how much of a larger L3, which many
// cores share, is left for one rollout. Only the vectors of x86-64 have such stores. On AArch64 the streamed sweep
// moves as much memory as the other one, and takes 10.0 instructions per step instead of 5.6.
constexpr Index kStreamBytes = tuned(kHasStreamingStores ? Index(32) << 20 : PTRDIFF_MAX, 256);
// The same as kStreamBytes for the flat kernel, whose ordinary stores go to many places at once. 1048576 x 1 on Zen 5,
// in microseconds: 800 to 1440 stored, 300 to 510 streamed; 65536 x 4: 104 and 71; 131072 x 1, half the bytes of that:
// 49 and 51.
constexpr Index kFlatStreamBytes = tuned(kHasStreamingStores ? Index(4) << 20 : PTRDIFF_MAX, 256);
// Numbers of one result that are streamed before as many of the other. Zen 3, 16384 x 1024: 0.2 to 1.7 G steps/s with
// turns of half a cache line, depending on where the arrays lie; 1.5, 1.5, 1.4, 1.1 at worst with 128, 256, 512, 1024.
// Zen 5, 1024 x 16384 and 128 x 65536: 5.4 and 3.0 ms with 128, 5.6 and 3.2 ms with 256.
constexpr Index kStreamRun = tuned(128, 16);
// How many bytes ahead a streaming sweep prefetches. Zen 5, 1024 x 16384 and 16384 x 1024: 7.5 and 8.1 ms with 1 KiB,
// 6.4 and 7.2 with 2 KiB, 6.4 and 6.6 with 4 KiB, 6.8 and 6.6 with 8 KiB; slower where only L2 is asked to prefetch.
constexpr Index kPrefetchBytes = 4096;
// How many bytes ahead the flat kernel prefetches each run when it streams. 1048576 x 1, advantages, in microseconds:
// 240 to 260 with and without on Zen 5, where a prefetch in cache costs 7 %; Zen 4 gained 25 %. It prefetches
// flags one cache line ahead. Both outputs through Python on Zen 5: 531 to 555 us without that, 413 to 433 with it
// (AVX-512); 605 to 640 and 530 to 565 (AVX2).
constexpr Index kFlatPrefetchBytes = 256;
// The share of L2 for one row of the carry, and as much for one row of values: a time-major sweep takes as many columns
// at once. Zen 3 with 512 KiB, 128 x 65536: 1.3, 1.6, 1.6 G steps/s with 4096, 16384, 32768 columns. Zen 5 with 1 MiB,
// 16 x 1048576: 9.2, 7.4, 7.1, 7.0 ms with 4096, 16384, 32768, 65536, and 13.7 ms with whole rows.
constexpr Index kSweepShare = tuned(8, PTRDIFF_MAX);
// The longest vectors of a streamed row that waits for memory. NumPy arrays begin 16 bytes after the start of a cache
// line, so every vector of 64 bytes lies in two lines. Zen 5, worst of 16 offsets between the results, times the speed
// of memory: 1024 x 16384 1.33 with 64 bytes and 1.13 with 32, 128 x 65536 1.40 and 1.19, 16 x 1048576 1.52 and 1.27.
// Rows that fit L1 are as fast with both: 16384 x 1024 1.07 and 1.15, at the worst offset 1.23 and 1.18.
constexpr Index kWaitingVectorBytes = 32;
// The least columns of a sweep, also where the CPU does not report its L2.
constexpr Index kSweepColumns = tuned(16384, 32);
// Rows of few envs whose results are kept before they are written together. 65536 x 4: 0.98, 0.92, 0.75 G steps/s with
// 16, 64, 256.
constexpr Index kNarrowRows = tuned(16, 2);
// Rows of a time-major matrix that are summed or rescaled at once, so that the sums, centers and scales, which fill L2
// where rows are long, are read once for all of them. 1024 x 16384 on a Zen 5: sums in 10.4 ms one row at a time, 2.6
// with 8; rescaled in 11.5 and 3.6.
constexpr int kMomentRows = 8;
// Numbers that are added up exactly before a look for NaN and infinity: few enough to lie in L1 if they must be
// searched.
constexpr Index kExactRun = tuned(4096, 8);
// Steps of work that make a thread worth its cost, about 16 us to spawn and join.
constexpr Index kStepsPerThread = tuned(128 * 1024, 64);
// The fewest bytes of a result whose memory is recycled, because glibc maps each block of this size separately until it
// adapts its threshold. Zen 5, loops that keep the last results, median time over that with out=: 1.09, 4.3, 4.3, 5.4
// and 2.0 times with results of 128 KiB, 256 KiB, 512 KiB, 2 MiB and 64 MiB; recycled, 1.09, 1.08, 0.99, 1.04 and 0.98.
constexpr std::size_t kLeastRecycled = tuned(128 * 1024, 64);
// Steps of the largest rollout whose arrays the short cut copies if kernels cannot read them. A copy of this many
// float32 takes 30 us or more. Compared with that, the 20 us of the long way, which lets other threads run, are few.
constexpr Index kConvertedSteps = tuned(32 * 1024, 64);

// Steps of the smallest rollout of 16-bit numbers that is computed piece by piece. Smaller ones stay in L2 as float32.
constexpr Index kNarrowSteps = tuned(64 * 1024, 64);
// Steps of a piece of some lanes, which takes 16 KiB for each lane and each of two inputs. bfloat16 on Zen 5, 512 x
// 8192 env-major, in the time of float32: 1.0 to 1.1 with 256 steps, 1.0 with 512, 1.25 with 1024, 0.9 with 2048, 1.1
// with 4096.
constexpr Index kNarrowPieceSteps = tuned(2048, 16);
// Rows of a piece of a time-major rollout, and the most columns: the values of one row more are widened with each
// piece. 1024 x 4096 in the time of float32: 1.3 with 2 rows or with 4, 1.15 with 6, 1.6 with 8; 1.5 with 2048 columns.
constexpr Index kNarrowPieceRows = tuned(6, 2), kNarrowPieceColumns = tuned(4096, 64);

static_assert(kNarrowPieceSteps % kBlockSteps == 0, "pieces are cut between blocks");
static_assert(kStreamRun >= 64 / Index(sizeof(float)), "a run must reach the next cache line, where it is cut");
static_assert(kBatchLanes % kMaxLanes == 0, "every batch but the last fills its tiles");
static_assert(kSweepColumns >= kMaxLanes, "narrow_rows takes rows of fewer than two vectors whole");

}  // namespace fastgae
