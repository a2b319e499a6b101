// The choice of a way to prefetch, with times that are made up: the fastest way if it gains enough, whatever interrupts
// a few turns, and a new look later. Any number of threads may sweep at once.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include "../../csrc/prefetching.hpp"

using namespace fastgae;

namespace {

std::mt19937_64 generator(20261127);
double number() { return static_cast<double>(generator() % 1000) / 1000; }

void demand(bool right, const char* what, Index round) {
    if (right) return;
    std::printf("wrong in round %td: %s\n", round, what);
    std::exit(1);
}

constexpr Index kMost = PrefetchChoice::kMost;

void check_choice(Index round) {
    PrefetchChoice choice = {kMost - round % 2};
    double seconds[kMost];
    for (double& one : seconds) one = 1 + number();
    Index met[kMost] = {}, interrupted[kMost] = {};
    for (Index turn = 0; turn < choice.enough(); ++turn) {
        const Index way = choice.next_way();
        ++met[way];
        const bool slow = interrupted[way] < kPrefetchTurns / 2 && number() < 0.5;
        interrupted[way] += slow;
        choice.keep(slow ? 100 : seconds[way]);
    }
    for (Index way = 0; way < choice.ways; ++way) demand(met[way] == kPrefetchTurns, "turns of a way", round);
    const Index best = std::min_element(seconds, seconds + choice.ways) - seconds;
    const double gain = seconds[0] / seconds[best];
    if (gain > kPrefetchGain * 1.001) demand(choice.way == best, "the fastest way", round);
    if (gain < kPrefetchGain * 0.999) demand(choice.way == 0 && choice.gain == 1, "no gain", round);
}

// Sweep as kernels do, with rows of `bytes`; return the ways that the rows got.
std::vector<bool> sweep(PrefetchChoice& choice, Store store, Index rows, Index bytes, Index steps = 2) {
    std::vector<bool> ways(kMost);
    Prefetching prefetching(choice, store, steps);
    for (Index row = 0; row < rows; ++row) ways[prefetching.next(bytes)] = true;
    return ways;
}

void check_sweeps(Index round) {
    PrefetchChoice choice;
    const Index bytes = 1 + static_cast<Index>(generator() % (2 * kPrefetchTurnBytes));
    const Index rows = 1 + 2 * kPrefetchTurnBytes / bytes;
    sweep(choice, Store::cached, rows, bytes);
    for (Index i = 0; i < kPrefetchWarmUp; ++i) sweep(choice, Store::streamed, rows, bytes);
    demand(choice.turns == 0, "sweeps that are not timed", round);
    while (!choice.known()) {
        const Index before = choice.turns;
        sweep(choice, Store::streamed, rows, bytes);
        demand(choice.turns > before && !choice.measuring, "a sweep without a turn", round);
    }
    while (choice.sweeps % kPrefetchSweeps != kPrefetchWarmUp) {
        const std::vector<bool> ways = sweep(choice, Store::streamed, rows, bytes);
        for (Index i = 0; i < kMost; ++i) demand(ways[i] == (i == choice.way), "the chosen way", round);
    }
    choice.turns = choice.enough();
    sweep(choice, Store::streamed, 1, kPrefetchTurnBytes);
    demand(choice.turns == 1, "a new look", round);
    sweep(choice, Store::streamed, 1, 1);
    demand(choice.turns == 1, "a turn too short to time", round);

    choice.turns = choice.enough();
    const Index way = choice.way;
    for (Index steps : {3, 5, 6, 13, 12}) {  // the count begins anew with 6, which is more than twice 2
        const Index before = choice.sweeps;
        demand(sweep(choice, Store::streamed, rows, bytes, steps)[way], "the way so far", round);
        demand(choice.sweeps == (steps == 6 ? 1 : before + 1), "the count of sweeps", round);
        if (kPrefetchWarmUp == 1) break;  // the next sweep measures
    }
    while (choice.sweeps % kPrefetchSweeps != kPrefetchWarmUp) sweep(choice, Store::streamed, 1, 1);
    sweep(choice, Store::streamed, 1, kPrefetchTurnBytes);
    demand(choice.turns == 1, "a look at a larger rollout", round);

    choice.take(1);
    demand(sweep(choice, Store::streamed, rows, bytes, PTRDIFF_MAX)[1] && choice.known(), "a way taken", round);

    // A thread that is about to measure may be overtaken by one that takes the last turn.
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
        threads.emplace_back([&] {
            for (Index j = 0; j < 40 * kPrefetchSweeps; ++j) {
                if (j % kPrefetchSweeps == 1) choice.take(j % kMost);
                sweep(choice, Store::streamed, 2, kPrefetchTurnBytes);
                demand(choice.turns <= choice.enough(), "turns past the last", round);
            }
        });
    for (std::thread& thread : threads) thread.join();
    demand(!choice.measuring, "threads that measure", round);
}

}  // namespace

int main(int, char** arguments) {
    const Index rounds = std::atol(arguments[1]);
    for (Index round = 0; round < rounds; ++round) check_choice(round), check_sweeps(round);
    std::printf("right\n");
}
