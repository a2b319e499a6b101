// How one rollout is cut: into spans of envs or lanes for threads, and a few long trajectories into pieces.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "kernels.hpp"
#include "tuning.hpp"

namespace fastgae {

constexpr Index rounded_up(Index n, Index multiple) { return (n + multiple - 1) / multiple * multiple; }

// [0, count) in spans, all but the last of the same length, a multiple of `grain`: one for each thread.
struct Spans {
    Index count, length, number;
    Spans(Index count, Index grain, Index num_threads)
        : count(count), length(rounded_up((count + num_threads - 1) / num_threads, grain)),
          number(count ? (count + length - 1) / length : 0) {}
};

// Calls work(i, first, last) on every span i. The caller takes the last one, and those for which there is no thread.
// Threads are spawned and joined per call, so that fork stays safe and nothing outlives the call. An exception cannot
// leave a thread, so work must not throw, and must not allocate: its memory is there before.
template <class Work>
void spread(const Spans& spans, const Work& work) {
    std::vector<std::thread> threads;
    Index i = 0;
    try {
        for (; i + 1 < spans.number; ++i)
            threads.emplace_back(std::cref(work), i, i * spans.length, (i + 1) * spans.length);
    } catch (const std::exception&) {
        // The system has no thread, or no memory for one.
    }
    work(i, i * spans.length, spans.count);
    for (std::thread& thread : threads) thread.join();
}

// Memory for `count` numbers of each of some threads, from the start of a cache line on, left uninitialised.
template <class Real>
class Scratch {
public:
    explicit Scratch(Index count, Index threads = 1)
        : apart_(rounded_up(count, kLine)), block_(new Real[threads * apart_ + kLine]),
          memory_(block_.get() + -reinterpret_cast<std::uintptr_t>(block_.get()) % 64 / sizeof(Real)) {}
    Real* of(Index thread) const { return memory_ + thread * apart_; }

private:
    static constexpr Index kLine = 64 / sizeof(Real);
    Index apart_;
    std::unique_ptr<Real[]> block_;
    Real* memory_;
};

// Past the caches, where the results would not stay in them anyway.
template <class Real>
Store store_of(const Rollout<Real>& rollout) {
    const Index arrays = 2 + bool(rollout.final_values) + bool(rollout.advantages) + bool(rollout.returns);
    const Index bytes = rollout.steps * rollout.envs * arrays * Index(sizeof(Real));
    return bytes < kStreamBytes ? Store::cached : Store::streamed;
}

template <class Real>
void gae_time_major(const Kernels<Real>& kernel, const Rollout<Real>& rollout, Index num_threads, Store store) {
    // Streaming goes by the cache lines of the results, so the carry lies within its lines as they do within theirs.
    const auto results = reinterpret_cast<std::uintptr_t>(rollout.advantages ? rollout.advantages.data : rollout.returns.data);
    const Index shift = store == Store::streamed ? results % 64 / sizeof(Real) : 0;
    const Scratch<Real> scratch(shift + (rollout.sparse_finals ? 2 : 1) * rollout.envs);
    Real *carry = scratch.of(0) + shift, *finals = carry + rollout.envs;
    spread({rollout.envs, 64, num_threads}, [&](Index, Index first, Index last) {
        for (Index n = first; n < last; n += kSweepColumns)
            kernel.rows(rollout, n, std::min(n + kSweepColumns, last), carry + n, finals + n, store);
        kernel.finish(store);
    });
}

// Started from any number, the rounded recursion forgets it: after about digits / log2(1 / gamma_lambda) steps the
// advantages are, bit for bit, what they would have been (measured: after 1.3 times as many at most).
template <class Real>
Index warm_up_steps(Real gamma_lambda) {
    const double forgotten = -std::log2(static_cast<double>(gamma_lambda));
    const double steps = 1.3 * (sizeof(Real) == 4 ? 24 : 53) / std::max(forgotten, 1e-9);
    return static_cast<Index>(steps) + 1;
}

// Every env in `pieces` pieces of `steps` steps; all but its last begin `warm_up` steps early, from 0.
struct Cut {
    Index pieces, steps, warm_up;
};

// The cut that takes the fewest steps of the tile kernel one after the other.
template <class Real>
Cut best_cut(const Kernels<Real>& kernel, const Rollout<Real>& rollout, Index warm_up, Index num_threads) {
    warm_up = rounded_up(warm_up, kBlockSteps);
    const auto cost = [&](const Cut& cut) {
        const Index batches = rounded_up(rollout.envs * cut.pieces, kernel.width) / kernel.width;
        return rounded_up(batches, num_threads) / num_threads * (cut.steps + cut.warm_up);
    };
    Cut best = {1, rounded_up(rollout.steps, kBlockSteps), 0};
    if (rollout.envs >= 2 * kernel.width * num_threads || rollout.steps < 2 * warm_up) return best;
    for (Index pieces = 2; pieces <= kernel.width * num_threads; ++pieces) {
        const Index steps = rounded_up((rollout.steps + pieces - 1) / pieces, kBlockSteps);
        const Cut cut = {(rollout.steps + steps - 1) / steps, steps, warm_up};
        if (cut.steps >= warm_up && cost(cut) < cost(best)) best = cut;
    }
    return best;
}

// The recursion of one env, step by step, from A_top = carry down, until it meets the advantages that are there already.
// Returns how many steps that took.
template <class Real>
Index redo(const Rollout<Real>& rollout, Index env, Index bottom, Index top, Real& carry) {
    for (Index t = top - 1; t >= bottom; --t) {
        const bool ends = *rollout.terminated.at(t, env) != 0;
        const bool cuts = rollout.truncated && *rollout.truncated.at(t, env) != 0;
        const Real value = *rollout.values.at(t, env);
        Real delta = *rollout.rewards.at(t, env);
        if (!ends) {
            Real next = t + 1 < rollout.steps ? *rollout.next_values.at(t, env) : *rollout.last_values.at(0, env);
            if (cuts && rollout.final_values) next = *rollout.final_values.at(t, env);
            if (cuts && rollout.sparse_finals) rollout.sparse_finals.scatter(env, t, t + 1, &next);
            delta = delta + rollout.gamma * next;
        }
        delta = delta - value;
        carry = ends || cuts ? delta : delta + rollout.gamma_lambda * carry;
        if (rollout.returns) *rollout.returns.at(t, env) = carry + value;
        if (!rollout.advantages) continue;
        Real* there = rollout.advantages.at(t, env);
        if (std::memcmp(there, &carry, sizeof carry) == 0) return top - t;
        *there = carry;
    }
    return top - bottom;
}

// Every piece must have begun with the very bits that the piece above it ended with; where it did not, it is redone from
// there. Then all steps have been computed from their true successors: the result is the sequential one.
template <class Real>
Index settle(const Rollout<Real>& rollout, const Cut& cut, const Real* started, Real* ended) {
    Index redone = 0;
    for (Index env = 0; env < rollout.envs; ++env) {
        for (Index piece = cut.pieces - 2; piece >= 0; --piece) {
            const Index lane = env * cut.pieces + piece;
            if (std::memcmp(&started[lane], &ended[lane + 1], sizeof(Real)) == 0) continue;
            Real carry = ended[lane + 1];
            const Index steps = redo(rollout, env, piece * cut.steps, (piece + 1) * cut.steps, carry);
            if (steps == cut.steps) ended[lane] = carry;
            redone += steps;
        }
    }
    return redone;
}

template <class Real>
Index gae_env_major(const Kernels<Real>& kernel, const Rollout<Real>& rollout, Index num_threads, Store store) {
    const Cut cut = best_cut(kernel, rollout, warm_up_steps(rollout.gamma_lambda), num_threads);
    const Index count = rollout.envs * cut.pieces;
    const Spans spans(count, kernel.width, num_threads);
    const Scratch<Real> scratch(kernel.lanes_scratch, spans.number);
    std::vector<Real> carries(cut.pieces > 1 ? 2 * count : 0);
    Real *started = carries.data(), *ended = started + count;

    spread(spans, [&](Index thread, Index first, Index last) {
        Real* const tile = scratch.of(thread);
        Lane lane = {first / cut.pieces, first % cut.pieces * cut.steps};
        for (; first < last; first += kernel.width) {
            const Index width = std::min(kernel.width, last - first);
            Lane lanes[kMaxLanes];
            alignas(64) Real carry[kMaxLanes] = {};
            for (Index i = 0; i < width; ++i) {
                lanes[i] = lane;
                lane.origin += cut.steps;
                if (lane.origin == cut.pieces * cut.steps) lane = {lane.env + 1, 0};
            }
            if (cut.warm_up)
                kernel.lanes(rollout, lanes, width, cut.steps, cut.steps + cut.warm_up, carry, tile, Store::nothing);
            if (cut.pieces > 1) std::copy_n(carry, width, started + first);
            kernel.lanes(rollout, lanes, width, 0, cut.steps, carry, tile, store);
            if (cut.pieces > 1) std::copy_n(carry, width, ended + first);
        }
        kernel.finish(store);
    });
    return settle(rollout, cut, started, ended);
}

// The state before the last step of an env.
template <class Real>
void start(const RolloutWithOptions<Real>& rollout, Index env, Real* states, Index apart) {
    for (Index state = 0; state < kStates; ++state) states[state * apart] = 0;
    if (rollout.last_advantages && !rollout.tail_lambdas) states[kTrace * apart] = *rollout.last_advantages.at(0, env);
}

template <class Real>
void time_major_with_options(const Kernels<Real>& kernel, const RolloutWithOptions<Real>& rollout, Index num_threads, Store store) {
    const Spans spans(rollout.envs, 64, num_threads);
    const Scratch<Real> states(kStates * rollout.envs), scratch(kernel.options_scratch, spans.number);
    for (Index n = 0; n < rollout.envs; ++n) start(rollout, n, states.of(0) + n, rollout.envs);
    spread(spans, [&](Index thread, Index first, Index last) {
        for (Index n = first; n < last; n += kSweepColumns)
            kernel.rows_with_options(rollout, n, std::min(n + kSweepColumns, last), states.of(0) + n, scratch.of(thread),
                                store);
        kernel.finish(store);
    });
}

// The largest of some decays; 1 where they do not all decay.
template <class Real>
Real largest(const View<const Real>& decays, Index steps, Index envs) {
    constexpr Index count = 16;  // chains, so that none waits for itself
    Real most[count] = {};
    const auto take = [&](Index i, Real decay) {
        const Real size = std::abs(decay) < 1 ? std::abs(decay) : 1;  // NaN: 1
        most[i] = most[i] < size ? size : most[i];
    };
    if (decays.step == 0) steps = 1;
    for (Index n = 0; n < (decays.env ? envs : 1); ++n) {
        Index t = 0;
        for (; t + count <= steps; t += count)
            for (Index i = 0; i < count; ++i) take(i, *decays.at(t + i, n));
        for (; t < steps; ++t) take(0, *decays.at(t, n));
    }
    return *std::max_element(most, most + count);
}

template <class Real>
Index warm_up_steps(const RolloutWithOptions<Real>& rollout) {
    const auto of = [&](const View<const Real>& decays, Real clip) {
        return decays ? warm_up_steps(std::min(Real(1), clip * largest(decays, rollout.steps, rollout.envs))) : 0;
    };
    const Index first = of(rollout.gamma_lambdas, rollout.ratios ? rollout.constants[kCClip] : 1);
    // G is right some steps after D is.
    return std::max(first + of(rollout.tail_lambdas, 1), of(rollout.returns_gamma_lambdas, 1));
}

// As for plain rollouts, in pieces that are counted from the end, and redone whole where they began with another state.
template <class Real>
Index env_major_with_options(const Kernels<Real>& kernel, const RolloutWithOptions<Real>& rollout, Index num_threads, Store store) {
    const bool few = rollout.envs < 2 * kernel.width * num_threads;
    const Cut cut = best_cut(kernel, rollout, few ? warm_up_steps(rollout) : rollout.steps, num_threads);
    const Index count = rollout.envs * cut.pieces;
    struct Ends {
        Real started[kStates], ended[kStates];
    };
    const Spans spans(count, kernel.width, num_threads);
    const Scratch<Real> scratch(kernel.options_scratch, spans.number);
    std::vector<Ends> ends(cut.pieces > 1 ? count : 0);
    const auto lane_at = [&](Index i) {
        return Lane{i / cut.pieces, rollout.steps - (cut.pieces - i % cut.pieces) * cut.steps};
    };

    spread(spans, [&](Index thread, Index first, Index last) {
        for (; first < last; first += kernel.width) {
            const Index width = std::min(kernel.width, last - first);
            Lane lanes[kMaxLanes];
            alignas(64) Real states[kStates * kMaxLanes] = {};
            for (Index i = 0; i < width; ++i) lanes[i] = lane_at(first + i);
            if (cut.warm_up)
                kernel.lanes_with_options(rollout, lanes, width, cut.steps, cut.steps + cut.warm_up, states,
                                     scratch.of(thread), Store::nothing);
            for (Index i = 0; i < width; ++i)
                if (lanes[i].origin + cut.steps == rollout.steps) start(rollout, lanes[i].env, states + i, kMaxLanes);
            const auto keep = [&](Real (Ends::*which)[kStates]) {
                if (cut.pieces == 1) return;
                for (Index i = 0; i < width; ++i)
                    for (Index state = 0; state < kStates; ++state)
                        (ends[first + i].*which)[state] = states[state * kMaxLanes + i];
            };
            keep(&Ends::started);
            kernel.lanes_with_options(rollout, lanes, width, 0, cut.steps, states, scratch.of(thread), store);
            keep(&Ends::ended);
        }
        kernel.finish(store);
    });

    Index redone = 0;
    for (Index i = count - 2; i >= 0 && cut.pieces > 1; --i) {
        if ((i + 1) % cut.pieces == 0) continue;  // the last of its env
        if (std::memcmp(ends[i].started, ends[i + 1].ended, sizeof ends[i].started) == 0) continue;
        const Lane lane = lane_at(i);
        alignas(64) Real states[kStates * kMaxLanes] = {};
        for (Index state = 0; state < kStates; ++state) states[state * kMaxLanes] = ends[i + 1].ended[state];
        kernel.lanes_with_options(rollout, &lane, 1, 0, cut.steps, states, scratch.of(0), Store::cached);
        for (Index state = 0; state < kStates; ++state) ends[i].ended[state] = states[state * kMaxLanes];
        redone += cut.steps;
    }
    return redone;
}

inline Index useful_threads(Index num_threads, Index steps, Index envs) {
    return std::max<Index>(1, std::min(num_threads, steps * envs / kStepsPerThread));
}

inline bool worth_threads(Index steps) { return steps >= 2 * kStepsPerThread; }

// Fills the results; the same bits for every target and every number of threads. Returns how many steps of a trajectory
// that was cut into pieces had to be redone.
template <class Real>
Index gae(const Target& target, const Rollout<Real>& rollout, Index num_threads, Store store) {
    const Kernels<Real>& kernel = kernels(target, Real());
    const Index threads = useful_threads(num_threads, rollout.steps, rollout.envs);
    if (rollout.env_major) return gae_env_major(kernel, rollout, threads, store);
    gae_time_major(kernel, rollout, threads, store);
    return 0;
}

template <class Real>
Index gae(const Target& target, const Rollout<Real>& rollout, Index num_threads) {
    return gae(target, rollout, num_threads, store_of(rollout));
}

// The same with options.
template <class Real>
Index gae(const Target& target, const RolloutWithOptions<Real>& rollout, Index num_threads, Store store) {
    const Kernels<Real>& kernel = kernels(target, Real());
    const Index threads = useful_threads(num_threads, rollout.steps, rollout.envs);
    if (rollout.env_major) return env_major_with_options(kernel, rollout, threads, store);
    time_major_with_options(kernel, rollout, threads, store);
    return 0;
}

template <class Real>
Index gae(const Target& target, const RolloutWithOptions<Real>& rollout, Index num_threads) {
    return gae(target, rollout, num_threads, store_of(rollout));
}

// Calls work(first, last) on spans of what the kernels of moments count.
template <class Element, class Work>
void spread_moments(const Moments<Element>& moments, Index num_threads, const Work& work) {
    const Index threads = useful_threads(num_threads, moments.steps, moments.envs);
    const Index blocks = (moments.steps + kMomentSteps - 1) / kMomentSteps;
    const Spans spans(moments.env_major ? moments.envs * blocks : moments.envs, 64, threads);
    spread(spans, [&](Index, Index first, Index last) { work(first, last); });
}

template <class Real>
void block_sums(const Target& target, const Moments<const Real>& moments, Index num_threads, double* sums) {
    const auto run = kernels(target, Real()).block_sums;
    spread_moments(moments, num_threads, [&](Index first, Index last) { run(moments, first, last, sums); });
}

template <class Real>
void rescale(const Target& target, const Moments<Real>& moments, Index num_threads) {
    const auto run = kernels(target, Real()).rescale;
    spread_moments(moments, num_threads, [&](Index first, Index last) { run(moments, first, last); });
}

}  // namespace fastgae
