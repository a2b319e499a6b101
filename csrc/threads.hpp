// Threads of one call: the spans of work that they take, and their scratch memory.
#pragma once

#include <algorithm>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "kernels.hpp"
#include "tuning.hpp"

namespace fastgae {

constexpr Index rounded_up(Index n, Index multiple) { return (n + multiple - 1) / multiple * multiple; }

// [0, count) cut into spans, one for each thread. All spans but the last have the same length, a multiple of `grain`.
struct Spans {
    Index count, length, number;
    Spans(Index count, Index grain, Index num_threads)
        : count(count), length(rounded_up((count + num_threads - 1) / num_threads, grain)),
          number(count ? (count + length - 1) / length : 0) {}
};

// Call call(work, i, first, last) on every span i. The calling thread computes the last span, and all spans for which
// the system gives no thread. Threads are spawned and joined in every call, so that fork stays safe and nothing
// outlives the call. An exception cannot leave a thread, so `work` must neither throw nor allocate.
inline void spread(const Spans& spans, void (*call)(const void* work, Index i, Index first, Index last),
                   const void* work) {
    std::vector<std::thread> threads;
    Index i = 0;
    try {
        for (; i + 1 < spans.number; ++i) threads.emplace_back(call, work, i, i * spans.length, (i + 1) * spans.length);
    } catch (const std::exception&) {
        // The system has no more threads, or no memory for one.
    }
    call(work, i, i * spans.length, spans.count);
    for (std::thread& thread : threads) thread.join();
}

// Call work(i, first, last) on every span i. The threads know nothing of its type, so that what starts and joins them
// is compiled once.
template <class Work>
void spread(const Spans& spans, const Work& work) {
    const auto call = [](const void* any, Index i, Index first, Index last) {
        (*static_cast<const Work*>(any))(i, first, last);
    };
    spread(spans, call, &work);
}

// Uninitialised memory of `count` numbers for each thread. Every thread's part begins at a cache line.
template <class Real>
class Scratch {
public:
    Scratch(Index count, Index threads)
        : stride_(rounded_up(count, kLine)), block_(new Real[threads * stride_ + kLine]),
          memory_(block_.get() + to_line(block_.get())) {}
    Real* of(Index thread) const { return memory_ + thread * stride_; }

private:
    static constexpr Index kLine = 64 / sizeof(Real);
    Index stride_;
    std::unique_ptr<Real[]> block_;
    Real* memory_;
};

// Return how many of the threads have enough work to pay for themselves.
inline Index useful_threads(Index num_threads, Index steps, Index envs) {
    return std::max<Index>(1, std::min(num_threads, steps * envs / kStepsPerThread));
}

// Return whether more than one thread can be useful.
inline bool worth_threads(Index steps) { return steps >= 2 * kStepsPerThread; }

}  // namespace fastgae
