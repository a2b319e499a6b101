// Every threshold of the compiled kernels, and what it gains. No threshold changes a result.
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

// Bytes of one tile of the env-major kernel, which stays in L2. Runs along each env must be long: 1.3 times as fast as
// with 16 KiB from memory.
constexpr Index kTileBytes = tuned(64 * 1024, 2048);
// Lanes whose tiles follow each other. All but the first tile are prefetched during the recursion before them: 1.4
// times as fast from memory.
constexpr Index kBatchLanes = tuned(256, 32);
// Steps of the shortest runs that are prefetched. The CPU itself follows shorter ones: 0.75 times as fast at 16 steps.
constexpr Index kPrefetchedSteps = tuned(32, 1);
// Bytes between the rows of a tile. Without them the rows, a power of two long, would all fall into one cache set.
constexpr Index kTilePadding = 64;
// Rollouts of at least this many bytes, or of half the last-level cache, get streaming stores: 1.5 times as fast at
// 8 MiB and 2.2 at 16 if another rollout lies in the caches, as in training, and as fast if this one does. On AArch64,
// which has none, the streamed sweep would only take more instructions.
constexpr Index kStreamBytes = tuned(kHasStreamingStores ? Index(8) << 20 : PTRDIFF_MAX, 2048);
// The same for the flat kernel, whose ordinary stores go to many places at once: 2 times as fast, and as fast at 2 MiB.
constexpr Index kFlatStreamBytes = tuned(kHasStreamingStores ? Index(4) << 20 : PTRDIFF_MAX, 256);
// Bytes of the smallest rollout of few envs that waits for memory. There the flat kernel, which streams, is 1.3 to 1.8
// times as fast as rows of one vector; on half as many bytes, 0.5 times.
constexpr Index kFlatRowsBytes = Index(8) << 20;
// Steps of the shortest masked envs that are computed as one array in the caches: as fast as in lanes, on twice as many
// 0.8 of the time and on an eighth 1.3 times. From memory it takes 0.7 to 0.9 of the time for 128 steps, too.
constexpr Index kFlatMaskedSteps = tuned(1024, 1);
// Numbers of one result that are streamed before as many of the other. With turns of half a cache line the two can meet
// in one bank of the memory: up to 8 times as slow, depending on where the results lie.
constexpr Index kStreamRun = tuned(128, 16);
// Bytes of a short run. On a Zen 4, plain rows from memory are 1.1 to 1.6 times as fast with it, most where all arrays
// begin at the same place of a cache line, and rows with a mask 0.95 times.
constexpr Index kShortRunBytes = tuned(256, 64);
// How many bytes ahead along a row a time-major sweep prefetches: 1.15 times as fast as 2 KiB into L2, and 1.05 as 6.
constexpr Index kPrefetchBytes = 4096;
// How many bytes further each input is prefetched than the one before. Inputs of 128 MiB that lie next to each other
// would meet in one bank of the memory: 1.6 times as fast on a Zen 4. 128 bytes gain less, and with 1 KiB arrays of
// 16 MiB take 1.1 times as long.
constexpr Index kPrefetchApart = 256;
// Inputs and results that a streaming sweep computes in one way, to time it: some 400 us. A Zen 4 takes some 100 us
// until the second level gains, and then gains only in huge pages, so a turn must be longer than both.
constexpr Index kPrefetchTurnBytes = tuned(Index(8) << 20, 512);
// How many times each way is timed, and how much faster than no prefetch it must be.
constexpr Index kPrefetchTurns = tuned(5, 1);
constexpr double kPrefetchGain = 1.05;
// The first sweeps of a process, which are not timed: the first write to new memory takes longer than all prefetches.
constexpr Index kPrefetchWarmUp = tuned(4, 1);
// The streaming sweeps after which the ways are timed again.
constexpr Index kPrefetchSweeps = tuned(1024, 4);
// How many bytes ahead the flat kernel prefetches each run into a level of the caches when it streams: 1.7 times as
// fast as without. In cache it would be slower. On a Zen 4 the second level takes 0.87 of the time of the first for
// float64 and with next_values, and 0.97 otherwise.
constexpr Index kFlatPrefetchBytes[] = {0, 256, 1024};
// How many bytes further it prefetches each input than the one before, for the reason of kPrefetchApart. On a Zen 4, a
// mask takes 0.9 of the time, both results with next_values 0.8, and advantages of a plain rollout as long as before.
constexpr Index kFlatPrefetchApart = 64;
// Lines of the shortest runs of the flat kernel that begin a multiple of 1 KiB and one line apart: 0.7 to 0.95 of the
// time of one line less, from memory. The warm-up of all runs then takes up to 15 lines of each, 1.5 % of them.
constexpr Index kFlatSpreadLines = tuned(8192, 4);
// The share of L2 for one row of the carry, and as much for one row of values: a time-major sweep takes as many columns
// at once. 1.9 times as fast as whole rows of a million envs.
constexpr Index kSweepShare = tuned(8, PTRDIFF_MAX);
// The longest vectors of what waits for memory or L3. NumPy's arrays begin 16 bytes after the start of a cache line, so
// every vector of 64 bytes lies in two lines: rows take 1.2 to 1.5 times as long, and the flat kernel, whose 16 lanes
// lie on twice as many pages as 8, takes 1.1 to 2.6 times as long.
constexpr Index kWaitingVectorBytes = 32;
// How many quarters of L2 the rollout fills that waits for neither, at most.
constexpr Index kL2Quarters = 3;
// The least columns of a sweep, also where the CPU does not report its L2.
constexpr Index kSweepColumns = tuned(16384, 32);
// The shortest contiguous rows that are swept as one array, if they are not streamed: 1.2 to 2 times as fast as row by
// row in a cache. On shorter ones a CPU reads A of the next step while it is still being written: 0.6 times as fast.
constexpr Index kArrayRowBytes = 128;
// Rows of few envs whose results are kept before they are written together: 1.3 times as fast as 256.
constexpr Index kShortRows = tuned(16, 2);
// The most envs of which n-step returns become longer in all rows at once: for 4 envs 12 times as fast as row by row,
// for 32 1.3 times. Large rollouts of more envs would be read from memory n times.
constexpr Index kJoinedEnvs = tuned(32, 3);
// The most envs of which n-step returns under a mask become longer together. 1024x1024: 512 take a third of the time of
// 64, whose rows lie on many pages.
constexpr Index kMaskedEnvs = tuned(512, 3);
// Rows of a time-major matrix that are summed or rescaled at once. The sums, centers and scales, which fill L2 where
// rows are long, are read once for all of them: 3 to 4 times as fast as one row at a time.
constexpr int kMomentRows = 8;
// Columns that are gathered at once: 1 to 1.9 times as fast as whole rows of 4,096 for flags, the same for numbers.
constexpr Index kCopiedColumns = tuned(64, 3);
// Numbers that are added up exactly before a look for NaN and infinity. They lie in L1 if they must be searched.
constexpr Index kExactRun = tuned(4096, 8);
// Steps of the shortest trajectory that is cut where the ends of its episodes allow it, and not its decays: a search
// for the ends takes longer than a shorter one.
constexpr Index kSearchedSteps = tuned(4096, 64);
// Steps of work that make a thread worth its cost, about 16 us to spawn and join.
constexpr Index kStepsPerThread = tuned(128 * 1024, 64);
// Nodes of trees that make a thread worth its cost. A node takes as long as some 20 steps.
constexpr Index kNodesPerThread = tuned(16 * 1024, 16);
// The fewest bytes of a result whose memory is recycled. glibc maps each larger block separately: 4 times as slow.
constexpr std::size_t kLeastRecycled = tuned(128 * 1024, 64);
// Steps of the largest rollout that is computed with the GIL: 30 us at most, in which no other thread of Python runs.
// To drop the GIL takes 5 % of the smallest calls.
constexpr Index kSmallSteps = tuned(32 * 1024, 256);

static_assert(kShortRunBytes >= 64, "a run must reach the next cache line, where it is cut");
static_assert(kStreamRun >= kShortRunBytes / Index(sizeof(float)), "a turn has room for runs of both lengths");
static_assert(kBatchLanes % kMaxLanes == 0, "every batch but the last fills its tiles");
static_assert(kSweepColumns >= kMaxLanes, "short_rows takes rows of fewer than two vectors whole");

}  // namespace fastgae
