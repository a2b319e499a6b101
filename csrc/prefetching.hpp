// How a streaming sweep waits for memory: into which level of the caches it prefetches, if at all, and how long the
// runs are that it streams. The fastest way depends on the CPU and the rollout, and a wrong one takes up to 1.8 times
// as long. No way changes a bit, so the first large calls of a process try each on some of their own rows, and later
// ones take the fastest.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iterator>
#include <numeric>
#include <thread>

#include "tuning.hpp"

namespace fastgae {

// The sweeps that may differ in their fastest way, for each dtype.
enum class Sweep { short_rows, long_rows, next_values, options, env_major, one_array };
constexpr const char* kSweepNames[] = {
    "short rows", "long rows", "rows with next_values", "rows with options", "env-major with options", "one array"};

// The ways are the levels 0 (nothing is prefetched), 1 and 2 with runs of kStreamRun numbers, and level 2 with short
// runs.
constexpr int kShortRuns = 3;

// What this process knows of one kind of sweep. Only the thread that has set `measuring` writes the rest.
struct PrefetchChoice {
    static constexpr Index kMost = kShortRuns + 1;

    Index ways = kMost;
    std::atomic<Index> way{0}, turns{0}, sweeps{0};
    std::atomic<Index> steps{0};  // of about the largest rollout that was looked at
    std::atomic<bool> measuring{false};
    std::atomic<double> gain{1};                 // how often as fast the way is as way 0
    double seconds[kMost][kPrefetchTurns] = {};  // per byte

    Index enough() const { return ways * kPrefetchTurns; }
    bool known() const { return turns == enough(); }

    // Take this way, or the last one there is, as if it had been chosen just now.
    void take(Index given) {
        while (measuring.exchange(true)) std::this_thread::yield();
        way = std::min(given, ways - 1), turns = enough(), sweeps = kPrefetchWarmUp + 1, steps = PTRDIFF_MAX;
        measuring = false;
    }

    // Return the way of the next turn. Every round has another order, because the sweeps of a program may alternate.
    Index next_way() const { return (turns + turns / ways) % ways; }

    // Keep the time of a turn, and choose after the last one. The slowest turns of each way, which may have been
    // interrupted, do not count.
    void keep(double per_byte) {
        seconds[next_way()][turns / ways] = per_byte;
        ++turns;
        if (!known()) return;
        double totals[kMost];
        for (Index i = 0; i < ways; ++i) {
            std::sort(seconds[i], seconds[i] + kPrefetchTurns);
            totals[i] = std::accumulate(seconds[i], seconds[i] + (kPrefetchTurns + 1) / 2, 0.0);
        }
        const Index best = std::min_element(totals, totals + ways) - totals;
        way = totals[0] > kPrefetchGain * totals[best] ? best : 0;
        gain = totals[0] / totals[way];
    }
};

// The choice of each sweep. The last two stream their results in runs of another length. On one array, no CPU is known
// to which nothing prefetched is best, so the first calls take the first level.
template <class Real>
inline PrefetchChoice prefetch_choices[] = {{}, {}, {}, {}, {kShortRuns}, {kShortRuns, 1}};
static_assert(std::size(kSweepNames) == std::size(prefetch_choices<float>), "each sweep has a choice");

// A forked process does not have the thread that measured.
inline void end_measuring() {
    for (PrefetchChoice& choice : prefetch_choices<float>) choice.measuring = false;
    for (PrefetchChoice& choice : prefetch_choices<double>) choice.measuring = false;
}

// How one thread's sweep of a rollout of so many steps prefetches. It measures if it is time to look and no other
// thread does. Other caches hold a much larger rollout, or none, so the count of sweeps begins anew with it.
class Prefetching {
public:
    Prefetching(PrefetchChoice& choice, Store store, Index steps) : choice_(choice) {
        if (store != Store::streamed) return;
        if (steps / 2 > choice.steps) choice.steps = steps, choice.sweeps = 0;
        way_ = int(choice.way);
        const Index sweep = choice.sweeps++;
        if (sweep < kPrefetchWarmUp || (choice.known() && sweep % kPrefetchSweeps != kPrefetchWarmUp)) return;
        measures_ = !choice.measuring.exchange(true);
        if (!measures_) return;
        if (choice.known()) choice.turns = 0;  // asked again: another thread may have taken the last turn just now
        begin_turn();
    }
    ~Prefetching() {
        if (measures_ && kPrefetchTurnBytes - left_ > kPrefetchTurnBytes / 8) end_turn();
        if (measures_) choice_.measuring = false;
    }
    Prefetching(const Prefetching&) = delete;
    Prefetching& operator=(const Prefetching&) = delete;

    // Return the way for the next `bytes` of inputs and results.
    int next(Index bytes) {
        if (measures_ && left_ <= 0) end_turn();
        left_ -= bytes;
        return way_;
    }

private:
    using Clock = std::chrono::steady_clock;

    void begin_turn() {
        way_ = int(choice_.next_way());
        left_ = kPrefetchTurnBytes;
        began_ = Clock::now();
    }

    void end_turn() {
        const std::chrono::duration<double> seconds = Clock::now() - began_;
        choice_.keep(seconds.count() / double(kPrefetchTurnBytes - left_));
        if (!choice_.known()) return begin_turn();
        way_ = int(choice_.way);
        choice_.measuring = measures_ = false;
    }

    PrefetchChoice& choice_;
    int way_ = 0;
    Index left_ = kPrefetchTurnBytes;
    bool measures_ = false;
    Clock::time_point began_;
};

}  // namespace fastgae
