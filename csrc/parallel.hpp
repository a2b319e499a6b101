// The functions that bindings.cpp and the tests call: the recursion and the moments, on a CPU target and with threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "caches.hpp"
#include "pieces.hpp"
#include "threads.hpp"

namespace fastgae {

// Results of a rollout with at least this many bytes would not stay in the caches: not together with its inputs in the
// last-level cache, nor in the share of a larger cache that kStreamBytes expects.
inline const Index stream_bytes =
    kHasStreamingStores && cache_sizes.l3 ? std::min(kStreamBytes, cache_sizes.l3 / 2) : kStreamBytes;

// Return how many columns a time-major sweep takes at once.
template <class Real>
Index sweep_columns() {
    return std::max(kSweepColumns, cache_sizes.l2 / kSweepShare / Index(sizeof(Real)));
}

// Use streaming stores when the results would not stay in the caches: when the arrays have `least` bytes.
template <class Real>
Store store_of(const Rollout<Real>& rollout, Index least) {
    const Index arrays = 2 + bool(rollout.final_values) + bool(rollout.advantages) + bool(rollout.returns);
    const Index bytes = rollout.steps * rollout.envs * arrays * Index(sizeof(Real));
    return bytes < least ? Store::cached : Store::streamed;
}

// Return the kernels of the first target whose vectors suit the rows: this target, or one with shorter vectors.
template <class Real, class Suits>
const Kernels<Real>& kernels_of_rows(const Target& target, const Suits& suits) {
    for (const Target* any = &target; any; any = any->narrower)
        if (suits(kernels(*any, Real()).vector)) return kernels(*any, Real());
    return kernels(target, Real());
}

template <class Real>
void gae_time_major(const Kernels<Real>& kernel, const Rollout<Real>& rollout, Index num_threads, Store store) {
    // Streaming writes whole cache lines of the results from the carry, so the carry gets the same offset within its
    // lines.
    const auto results =
        reinterpret_cast<std::uintptr_t>(rollout.advantages ? rollout.advantages.data : rollout.returns.data);
    const Index shift = store == Store::streamed ? results % 64 / sizeof(Real) : 0;
    const Spans spans(rollout.envs, 64, num_threads);
    const Index columns = std::min(spans.length, sweep_columns<Real>());
    const Index carried = columns + 64 / Index(sizeof(Real));  // and what waits for the row before
    // All sweeps of a thread use the same carry, so that it stays in a cache. A thread may take more than one span.
    const Scratch<Real> scratch(shift + carried + (rollout.sparse_finals ? columns : 0), spans.number);
    spread(spans, [&](Index thread, Index first, Index last) {
        Real* const carry = scratch.of(thread) + shift;
        for (Index n = first; n < last; n += columns) {
            const Index end = std::min(n + columns, last);
            std::fill_n(carry, end - n, Real(0));
            kernel.rows(rollout, n, end, carry, carry + carried, store);
        }
        kernel.finish(store);
    });
}

template <class Real>
void gae_time_major_with_options(const Kernels<Real>& kernel, const RolloutWithOptions<Real>& rollout,
                                 Index num_threads, Store store) {
    const Spans spans(rollout.envs, 64, num_threads);
    const Index columns = sweep_columns<Real>();
    const Scratch<Real> states(kStates * rollout.envs), scratch(kernel.options_scratch, spans.number);
    for (Index n = 0; n < rollout.envs; ++n) begin_states(rollout, n, states.of(0) + n, rollout.envs);
    spread(spans, [&](Index thread, Index first, Index last) {
        for (Index n = first; n < last; n += columns)
            kernel.rows_with_options(rollout, n, std::min(n + columns, last), states.of(0) + n, scratch.of(thread),
                                     store);
        kernel.finish(store);
    });
}

// Compute an env-major rollout. Return how many steps had to be computed again.
template <class Real>
Index gae_env_major(const Kernels<Real>& kernel, const Rollout<Real>& rollout, const Cut& cut, Index num_threads,
                    Store store) {
    const Index count = rollout.envs * cut.pieces;
    const Spans spans(count, kernel.width, num_threads);
    const Scratch<Real> scratch(kernel.lanes_scratch, spans.number);
    std::vector<Real> carries(cut.pieces > 1 ? 2 * count : 0);
    Real *started = carries.data(), *ended = started + count;

    spread(spans, [&](Index thread, Index first, Index last) {
        Real* const tile = scratch.of(thread);
        Lane lane = {first / cut.pieces, first % cut.pieces * cut.steps};
        for (; first < last; first += kBatchLanes) {
            const Index number = std::min(kBatchLanes, last - first);
            Lane lanes[kBatchLanes];
            alignas(64) Real carry[kBatchLanes] = {};
            for (Index i = 0; i < number; ++i) {
                lanes[i] = lane;
                lane.origin += cut.steps;
                if (lane.origin == cut.pieces * cut.steps) lane = {lane.env + 1, 0};
            }
            if (cut.warm_up)
                kernel.lanes(rollout, lanes, number, cut.steps, cut.steps + cut.warm_up, carry, tile, Store::nothing);
            if (cut.pieces > 1) std::copy_n(carry, number, started + first);
            kernel.lanes(rollout, lanes, number, 0, cut.steps, carry, tile, store);
            if (cut.pieces > 1) std::copy_n(carry, number, ended + first);
        }
        kernel.finish(store);
    });
    Index redone = 0;
    for (Index env = 0; env < rollout.envs && cut.pieces > 1; ++env)
        redone += settle(rollout, env, cut, 0, started + env * cut.pieces, ended + env * cut.pieces);
    return redone;
}

// Compute a rollout with a cut from flat_cut. Return how many steps had to be computed again.
template <class Real>
Index gae_flat(const Kernels<Real>& kernel, const Rollout<Real>& rollout, const Cut& cut, Index num_threads,
               Store store) {
    const Index distance = flat_distance(rollout), arrays = rollout.env_major ? rollout.envs : 1;
    const Index lanes = kernel.flat_lanes, batches = cut.pieces / lanes;
    const auto begin_of = [&](Index env) {
        return to_line(rollout.advantages ? rollout.advantages.at(0, env) : rollout.returns.at(0, env));
    };
    std::vector<Real> states(2 * arrays * cut.pieces * distance);
    Real *const started = states.data(), *const ended = started + states.size() / 2;

    spread({arrays * batches, 1, num_threads}, [&](Index, Index batch, Index end) {
        for (; batch < end; ++batch) {
            const Index env = batch / batches, piece = batch % batches * lanes;
            const Index first = begin_of(env) + piece * cut.steps;
            alignas(64) Real carry[kFlatDistance * kMaxLanes] = {};
            // The kernel orders the advantages of a lane by element, the driver by env.
            const auto of_lane = [&](Index lane, Index k, Real* by_env, const auto& copy) {
                for (Index j = 0; j < distance; ++j)
                    copy(carry[j * lanes + lane], by_env[(first + lane * cut.steps + k + j) % distance]);
            };
            const auto keep = [&](Index k, Real* kept) {
                for (Index lane = 0; lane < lanes; ++lane)
                    of_lane(lane, k, kept + (batch * lanes + lane) * distance, [](Real from, Real& to) { to = from; });
            };
            // The last piece needs no warm-up: in that time it computes the end of the array, and its results are kept.
            // The other lanes write beyond their pieces, and the lanes of those pieces later overwrite these results.
            const bool is_last = piece + lanes == cut.pieces;
            if (is_last) {
                Real following[kFlatDistance] = {};
                const Index top = cut.steps + cut.warm_up;
                in_sequence(rollout, env, first + (lanes - 1) * cut.steps + top, rollout.steps * distance, following,
                            false);
                of_lane(lanes - 1, top, following, [](Real& to, Real from) { to = from; });
            }
            kernel.flat(rollout, env, first, cut.steps, cut.steps, cut.steps + cut.warm_up, carry,
                        is_last ? store : Store::nothing);
            keep(cut.steps, started);
            kernel.flat(rollout, env, first, cut.steps, 0, cut.steps, carry, store);
            keep(0, ended);
        }
        kernel.finish(store);
    });

    Index redone = 0;
    for (Index env = 0; env < arrays; ++env) {
        const Index at = env * cut.pieces * distance;
        redone += settle(rollout, env, cut, begin_of(env), started + at, ended + at);
        in_sequence(rollout, env, 0, begin_of(env), ended + at, false);
    }
    return redone;
}

// Compute an env-major rollout with options. Pieces are counted from the end of an env. A piece is computed again as a
// whole if the state with which it began differs from the state with which the piece after it ended. Return how many
// steps that took.
template <class Real>
Index gae_env_major_with_options(const Kernels<Real>& kernel, const RolloutWithOptions<Real>& rollout,
                                 Index num_threads, Store store) {
    const bool few = rollout.envs < 2 * kernel.width * num_threads;
    const Cut cut = best_cut(kernel, rollout, few ? warm_up_steps(rollout) : rollout.steps, num_threads);
    const Index count = rollout.envs * cut.pieces;
    struct States {
        Real numbers[kStates];
    };
    const Spans spans(count, kernel.width, num_threads);
    const Scratch<Real> scratch(kernel.options_scratch, spans.number);
    std::vector<States> started(cut.pieces > 1 ? count : 0), ended(started.size());
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
                if (lanes[i].origin + cut.steps == rollout.steps)
                    begin_states(rollout, lanes[i].env, states + i, kMaxLanes);
            const auto copy_states = [&](States* to) {
                for (Index i = 0; i < width && cut.pieces > 1; ++i)
                    for (Index state = 0; state < kStates; ++state)
                        to[first + i].numbers[state] = states[state * kMaxLanes + i];
            };
            copy_states(started.data());
            kernel.lanes_with_options(rollout, lanes, width, 0, cut.steps, states, scratch.of(thread), store);
            copy_states(ended.data());
        }
        kernel.finish(store);
    });

    Index redone = 0;
    for (Index i = count - 2; i >= 0 && cut.pieces > 1; --i) {
        if ((i + 1) % cut.pieces == 0) continue;  // the last piece of an env has none after it
        if (std::memcmp(&started[i], &ended[i + 1], sizeof(States)) == 0) continue;
        const Lane lane = lane_at(i);
        alignas(64) Real states[kStates * kMaxLanes] = {};
        for (Index state = 0; state < kStates; ++state) states[state * kMaxLanes] = ended[i + 1].numbers[state];
        kernel.lanes_with_options(rollout, &lane, 1, 0, cut.steps, states, scratch.of(0), Store::cached);
        for (Index state = 0; state < kStates; ++state) ended[i].numbers[state] = states[state * kMaxLanes];
        redone += cut.steps;
    }
    return redone;
}

// Compute the results with the kernel that takes the shortest time. store_from(bytes) says how to write them if results
// of that many bytes and more are worth streaming. Return how many steps of long trajectories, which are cut into
// pieces, had to be computed again.
template <class Real, class StoreFrom>
Index gae_with(const Target& target, const Rollout<Real>& rollout, Index num_threads, const StoreFrom& store_from) {
    const Kernels<Real>& kernel = kernels(target, Real());
    const Index threads = useful_threads(num_threads, rollout.steps, rollout.envs);
    const Cut flat = flat_cut(kernel, rollout, threads);
    Cut lanes = {};
    if (rollout.env_major) lanes = best_cut(kernel, rollout, warm_up_steps(rollout.gamma_lambda), threads);
    if (flat_pays(kernel, rollout, flat, lanes, threads))
        return gae_flat(kernel, rollout, flat, threads, store_from(kFlatStreamBytes));
    if (rollout.env_major) return gae_env_major(kernel, rollout, lanes, threads, store_from(stream_bytes));
    // In dense memory, vectors reach into the next row, and only rows of exactly one vector are faster with it. Other
    // rows that are shorter than a vector are computed one number at a time.
    const bool reaching = is_dense(rollout) && !rollout.sparse_finals;
    const Store store = store_from(stream_bytes);
    // The carry and the values of the row after do not stay in L1, so that the row waits for L2 and for memory.
    const bool waits = store == Store::streamed && 2 * rollout.envs * Index(sizeof(Real)) > cache_sizes.l1d;
    const auto suits = [&](Index vector) {
        if (waits) return vector * Index(sizeof(Real)) <= kWaitingVectorBytes;
        return reaching ? rollout.envs == vector : rollout.envs >= vector;
    };
    gae_time_major(kernels_of_rows<Real>(target, suits), rollout, threads, store);
    return 0;
}

// Compute the results. They have the same bits for every target and every number of threads.
template <class Real>
Index gae(const Target& target, const Rollout<Real>& rollout, Index num_threads, Store store) {
    return gae_with(target, rollout, num_threads, [&](Index) { return store; });
}

template <class Real>
Index gae(const Target& target, const Rollout<Real>& rollout, Index num_threads) {
    return gae_with(target, rollout, num_threads, [&](Index least) { return store_of(rollout, least); });
}

// Compute the results of a rollout with options.
template <class Real>
Index gae(const Target& target, const RolloutWithOptions<Real>& rollout, Index num_threads, Store store) {
    const Index threads = useful_threads(num_threads, rollout.steps, rollout.envs);
    if (rollout.env_major) return gae_env_major_with_options(kernels(target, Real()), rollout, threads, store);
    // Rows shorter than a vector are computed one number at a time. 128 x 8 on Zen 5: discounted_returns take 4.2 us
    // with vectors of 16, and 3.3 us with vectors of 8.
    const auto suits = [&](Index vector) { return rollout.envs >= vector; };
    gae_time_major_with_options(kernels_of_rows<Real>(target, suits), rollout, threads, store);
    return 0;
}

template <class Real>
Index gae(const Target& target, const RolloutWithOptions<Real>& rollout, Index num_threads) {
    return gae(target, rollout, num_threads, store_of(rollout, stream_bytes));
}

// Call work(first, last) on spans of envs, or of blocks if the matrix is env-major.
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
