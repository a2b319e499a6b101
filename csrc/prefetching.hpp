// How a streaming sweep prefetches. CPUs differ by a factor of 1.6 in which way is the fastest, and no way changes a
// bit, so the first large calls of a process try each way on some of their own rows, and later ones take the fastest.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iterator>

#include "tuning.hpp"

namespace fastgae {

// Which cache the lines are asked for, and how many bytes ahead along a row. Env-major tiles have their own distance.
struct PrefetchWay {
    int level;
    Index bytes;
};
constexpr PrefetchWay kPrefetchWays[] = {{1, 4096}, {2, 4096}, {2, 1024}};

// The sweeps that may differ in their fastest way, for each dtype.
enum class Sweep { short_rows, long_rows, env_major };
constexpr const char* kSweepNames[] = {"short rows", "long rows", "env-major"};

// What this process knows of one kind of sweep. Only the thread that has set `measuring` writes the rest.
struct PrefetchChoice {
    static constexpr Index kWays = std::size(kPrefetchWays), kEnough = kWays * kPrefetchTurns;

    std::atomic<Index> way{0}, turns{0}, sweeps{0};
    std::atomic<bool> measuring{false};
    std::atomic<double> gain{1};            // how often as fast the way is as the first one
    double seconds[kWays][kPrefetchTurns];  // per byte

    // Keep the time of a turn, and choose after the last one. The median leaves out turns that were interrupted.
    void keep(double per_byte) {
        seconds[turns % kWays][turns / kWays] = per_byte;
        if (++turns < kEnough) return;
        double medians[kWays];
        for (Index i = 0; i < kWays; ++i) {
            double* const middle = seconds[i] + kPrefetchTurns / 2;
            std::nth_element(seconds[i], middle, seconds[i] + kPrefetchTurns);
            medians[i] = *middle;
        }
        const Index best = std::min_element(medians, medians + kWays) - medians;
        way = medians[0] > kPrefetchGain * medians[best] ? best : 0;
        gain = medians[0] / medians[way];
    }
};

template <class Real>
inline PrefetchChoice prefetch_choices[std::size(kSweepNames)];

// How one thread's sweep prefetches. It measures if it is time to look and no other thread does.
class Prefetching {
public:
    Prefetching(PrefetchChoice& choice, Store store) : choice_(choice) {
        if (store != Store::streamed) return;
        way_ = choice.way;
        const bool known = choice.turns == PrefetchChoice::kEnough;
        const Index sweep = choice.sweeps++;
        if (sweep < kPrefetchWarmUp || (known && sweep % kPrefetchSweeps != 0)) return;
        measures_ = !choice.measuring.exchange(true);
        if (measures_ && known) choice.turns = 0;
    }
    ~Prefetching() {
        if (measures_) choice_.measuring = false;
    }
    Prefetching(const Prefetching&) = delete;
    Prefetching& operator=(const Prefetching&) = delete;

    // Return the way for the next `bytes` of inputs and results.
    PrefetchWay next(Index bytes) {
        if (measures_ && (left_ -= bytes) <= 0) turn();
        return kPrefetchWays[way_];
    }

private:
    using Clock = std::chrono::steady_clock;

    void turn() {
        const Clock::time_point now = Clock::now();
        if (begun_)
            choice_.keep(std::chrono::duration<double>(now - began_).count() / double(kPrefetchTurnBytes - left_));
        way_ = choice_.turns % PrefetchChoice::kWays;
        began_ = now, left_ = kPrefetchTurnBytes, begun_ = true;
        if (choice_.turns < PrefetchChoice::kEnough) return;
        way_ = choice_.way;
        choice_.measuring = measures_ = false;
    }

    PrefetchChoice& choice_;
    Index way_ = 0, left_ = 0;
    bool measures_ = false, begun_ = false;
    Clock::time_point began_;
};

}  // namespace fastgae
