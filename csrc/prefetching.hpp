// Into which level of the caches a streaming sweep prefetches, if at all. The fastest level depends on the CPU and the
// rollout, and a wrong one takes up to 1.6 times as long. No level changes a bit, so the first large calls of a process
// try each level on some of their own rows, and later ones take the fastest.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iterator>
#include <numeric>
#include <thread>

#include "tuning.hpp"

namespace fastgae {

// The sweeps that may differ in their fastest level, for each dtype.
enum class Sweep { short_rows, long_rows, next_values, env_major };
constexpr const char* kSweepNames[] = {"short rows", "long rows", "rows with next_values", "env-major with options"};

// What this process knows of one kind of sweep. Only the thread that has set `measuring` writes the rest.
struct PrefetchChoice {
    static constexpr Index kLevels = 3, kEnough = kLevels * kPrefetchTurns;

    std::atomic<Index> level{0}, turns{0}, sweeps{0};  // level 0: nothing is prefetched
    std::atomic<bool> measuring{false};
    std::atomic<double> gain{1};              // how often as fast the level is as level 0
    double seconds[kLevels][kPrefetchTurns];  // per byte

    // Take this level, as if it had been chosen just now.
    void take(Index given) {
        while (measuring.exchange(true)) std::this_thread::yield();
        level = given, turns = kEnough, sweeps = 1;
        measuring = false;
    }

    bool known() const { return turns == kEnough; }

    // Return the level of the next turn. Every round has another order, because the sweeps of a program may alternate.
    Index next_level() const { return (turns + turns / kLevels) % kLevels; }

    // Keep the time of a turn, and choose after the last one. The slowest turns of each level, which may have been
    // interrupted, do not count.
    void keep(double per_byte) {
        seconds[next_level()][turns / kLevels] = per_byte;
        ++turns;
        if (!known()) return;
        double totals[kLevels];
        for (Index i = 0; i < kLevels; ++i) {
            std::sort(seconds[i], seconds[i] + kPrefetchTurns);
            totals[i] = std::accumulate(seconds[i], seconds[i] + (kPrefetchTurns + 1) / 2, 0.0);
        }
        const Index best = std::min_element(totals, totals + kLevels) - totals;
        level = totals[0] > kPrefetchGain * totals[best] ? best : 0;
        gain = totals[0] / totals[level];
    }
};

template <class Real>
inline PrefetchChoice prefetch_choices[std::size(kSweepNames)];

// A forked process does not have the thread that measured.
inline void end_measuring() {
    for (PrefetchChoice& choice : prefetch_choices<float>) choice.measuring = false;
    for (PrefetchChoice& choice : prefetch_choices<double>) choice.measuring = false;
}

// How one thread's sweep prefetches. It measures if it is time to look and no other thread does.
class Prefetching {
public:
    Prefetching(PrefetchChoice& choice, Store store) : choice_(choice) {
        if (store != Store::streamed) return;
        level_ = int(choice.level);
        const Index sweep = choice.sweeps++;
        if (sweep < kPrefetchWarmUp || (choice.known() && sweep % kPrefetchSweeps != 0)) return;
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

    // Return the level for the next `bytes` of inputs and results.
    int next(Index bytes) {
        if (measures_ && left_ <= 0) end_turn();
        left_ -= bytes;
        return level_;
    }

private:
    using Clock = std::chrono::steady_clock;

    void begin_turn() {
        level_ = int(choice_.next_level());
        left_ = kPrefetchTurnBytes;
        began_ = Clock::now();
    }

    void end_turn() {
        const std::chrono::duration<double> seconds = Clock::now() - began_;
        choice_.keep(seconds.count() / double(kPrefetchTurnBytes - left_));
        if (!choice_.known()) return begin_turn();
        level_ = int(choice_.level);
        choice_.measuring = measures_ = false;
    }

    PrefetchChoice& choice_;
    int level_ = 0;
    Index left_ = kPrefetchTurnBytes;
    bool measures_ = false;
    Clock::time_point began_;
};

}  // namespace fastgae
