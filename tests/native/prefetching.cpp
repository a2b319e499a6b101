// The choice of a level for prefetches, with times that are made up: the fastest level if it gains enough, whatever
// interrupts a few turns, and a new look later. Any number of threads may sweep at once.
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

constexpr Index kLevels = PrefetchChoice::kLevels;

void check_choice(Index round) {
    PrefetchChoice choice;
    double seconds[kLevels];
    for (double& one : seconds) one = 1 + number();
    Index met[kLevels] = {}, interrupted[kLevels] = {};
    for (Index turn = 0; turn < PrefetchChoice::kEnough; ++turn) {
        const Index level = choice.next_level();
        ++met[level];
        const bool slow = interrupted[level] < kPrefetchTurns / 2 && number() < 0.5;
        interrupted[level] += slow;
        choice.keep(slow ? 100 : seconds[level]);
    }
    for (Index level = 0; level < kLevels; ++level) demand(met[level] == kPrefetchTurns, "turns of a level", round);
    Index best = 0;
    for (Index level = 1; level < kLevels; ++level)
        if (seconds[level] < seconds[best]) best = level;
    const double gain = seconds[0] / seconds[best];
    if (gain > kPrefetchGain * 1.001) demand(choice.level == best, "the fastest level", round);
    if (gain < kPrefetchGain * 0.999) demand(choice.level == 0 && choice.gain == 1, "no gain", round);
}

// Sweep as kernels do, with rows of `bytes`; return the levels that the rows got.
std::vector<bool> sweep(PrefetchChoice& choice, Store store, Index rows, Index bytes) {
    std::vector<bool> levels(kLevels);
    Prefetching prefetching(choice, store);
    for (Index row = 0; row < rows; ++row) levels[prefetching.next(bytes)] = true;
    return levels;
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
    while (choice.sweeps % kPrefetchSweeps) {
        const std::vector<bool> levels = sweep(choice, Store::streamed, rows, bytes);
        for (Index i = 0; i < kLevels; ++i) demand(levels[i] == (i == choice.level), "the chosen level", round);
    }
    choice.turns = PrefetchChoice::kEnough;
    sweep(choice, Store::streamed, 1, kPrefetchTurnBytes);
    demand(choice.turns == 1, "a new look", round);
    sweep(choice, Store::streamed, 1, 1);
    demand(choice.turns == 1, "a turn too short to time", round);

    choice.take(1);
    demand(sweep(choice, Store::streamed, rows, bytes)[1] && choice.known(), "a level taken", round);

    // A thread that is about to measure may be overtaken by one that takes the last turn.
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
        threads.emplace_back([&] {
            for (Index j = 0; j < 40 * kPrefetchSweeps; ++j) {
                if (j % kPrefetchSweeps == 1) choice.take(j % kLevels);
                sweep(choice, Store::streamed, 2, kPrefetchTurnBytes);
                demand(choice.turns <= PrefetchChoice::kEnough, "turns past the last", round);
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
