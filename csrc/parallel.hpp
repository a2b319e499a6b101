// The functions that bindings.cpp and the tests call: the recursion and the moments, on a CPU target and with threads.
#pragma once

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "caches.hpp"
#include "pieces.hpp"
#include "prefetching.hpp"
#include "threads.hpp"

#if FASTGAE_X86
#include <xmmintrin.h>
#endif

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
Store store_of(const CanonicalRollout<Real>& rollout, Index least) {
    const Index arrays = 2 + bool(rollout.final_values) + bool(rollout.advantages) + bool(rollout.returns);
    const Index bytes = rollout.steps * rollout.envs * arrays * Index(sizeof(Real));
    return bytes < least ? Store::cached : Store::streamed;
}

// Make streamed results visible to all threads. Each thread calls this after its last kernel.
inline void finish([[maybe_unused]] Store store) {
#if FASTGAE_X86
    if (store == Store::streamed) _mm_sfence();
#endif
}

// Return the kernels of the first target whose vectors suit the rows: this target, or one with shorter vectors.
template <class Real, class Suits>
const Kernels<Real>& kernels_of_rows(const Target& target, const Suits& suits) {
    for (const Target* any = &target; any; any = any->shorter)
        if (suits(kernels(*any, Real()).vector)) return kernels(*any, Real());
    return kernels(target, Real());
}

// Return whether the carry and the values of the row after do not stay in L1, so that a row waits for L2.
template <class Real>
bool waits_for_l2(Index envs) {
    return 2 * envs * Index(sizeof(Real)) > cache_sizes.l1d;
}

// Return the kind of a time-major sweep that streams. Half of L1 goes to the inputs and the results.
template <class Real>
Sweep sweep_of(const CanonicalRollout<Real>& rollout, Index envs) {
    if (rollout.has_options()) return Sweep::options;
    if (has_own_next_values(rollout)) return Sweep::next_values;
    return waits_for_l2<Real>(2 * envs) ? Sweep::long_rows : Sweep::short_rows;
}

// Compute a time-major rollout. All sweeps of a thread use the same states, so that they stay in a cache. Streaming may
// write whole cache lines of the results from there, so they get the results' offset within a line.
template <class Real>
void gae_time_major(const Kernels<Real>& kernel, const CanonicalRollout<Real>& rollout, Index num_threads,
                    Store store) {
    constexpr Index line = 64 / sizeof(Real);
    const Spans spans(rollout.envs, 64, num_threads);
    const Index columns = std::min(spans.length, sweep_columns<Real>()), stride = columns + line;
    const Index state_rows = states_of(rollout), rows = state_rows + (rollout.has_options() ? kScratchRows : 0);
    const Real* const result = rollout.advantages ? rollout.advantages.data : rollout.returns.data;
    const Index shift = store == Store::streamed ? (line - to_line(result)) % line : 0;
    const Scratch<Real> memory(shift + stride * rows, spans.number);
    spread(spans, [&](Index thread, Index first, Index last) {
        Real *const states = memory.of(thread) + shift, *const scratch = states + state_rows * stride;
        const Sweep sweep = store == Store::streamed ? sweep_of(rollout, last - first) : Sweep();
        Prefetching prefetching(prefetch_choices<Real>[int(sweep)], store, rollout.steps * rollout.envs);
        for (Index end; first < last; first = end) {
            end = std::min(first + columns, last);
            begin_states(rollout, first, end - first, states, stride);
            kernel.rows(rollout, first, end, states, stride, scratch, store, prefetching);
        }
        finish(store);
    });
}

// Compute an env-major rollout. Pieces are counted from the end of an env. A piece is computed again as a whole if the
// states with which it began differ from the states with which the piece after it ended. Return how many steps that
// took.
template <class Real>
Index gae_env_major(const Kernels<Real>& kernel, const CanonicalRollout<Real>& rollout, const Cut& cut,
                    Index num_threads, Store store) {
    const Index count = rollout.envs * cut.pieces;
    const Spans spans(count, kernel.width, num_threads);
    const Scratch<Real> scratch(rollout.has_options() ? kernel.options_scratch : kernel.lanes_scratch, spans.number);
    // The states with which each piece began and ended, side by side.
    const Index number_of_states = states_of(rollout);
    std::vector<Real> kept_states(cut.pieces > 1 ? 2 * count * number_of_states : 0);
    Real *const began = kept_states.data(), *const ended = began + kept_states.size() / 2;
    const auto keep = [&](Real* kept, Index first, Index number, const Real* states, Index stride) {
        for (Index state = 0; state < number_of_states && cut.pieces > 1; ++state)
            for (Index i = 0; i < number; ++i)
                kept[(first + i) * number_of_states + state] = states[state * stride + i];
    };
    const auto lane_at = [&](Index i) {
        return Lane{i / cut.pieces, rollout.steps - (cut.pieces - i % cut.pieces) * cut.steps};
    };

    spread(spans, [&](Index thread, Index first, Index last) {
        Lane lane = lane_at(first);
        Prefetching prefetching(prefetch_choices<Real>[int(Sweep::env_major)], store, rollout.steps * rollout.envs);
        for (; first < last; first += kBatchLanes) {
            const Index number = std::min(kBatchLanes, last - first), padded = rounded_up(number, kernel.width);
            Lane lanes[kBatchLanes];
            alignas(64) Real states[kStates * kBatchLanes];
            for (Index state = 0; state < number_of_states; ++state)
                std::fill_n(states + state * kBatchLanes, padded, Real(0));
            const auto run = [&](Index bottom, Index top, Store how) {
                kernel.lanes(rollout, lanes, number, bottom, top, states, kBatchLanes, scratch.of(thread), how,
                             prefetching);
            };
            for (Index i = 0; i < number; ++i) {
                lanes[i] = lane;
                lane.origin += cut.steps;
                if (lane.origin == rollout.steps) lane = {lane.env + 1, rollout.steps - cut.pieces * cut.steps};
            }
            for (Index i = 0; i < number && cut.warm_up; ++i) {
                const Index after = lanes[i].origin + cut.steps, env = lanes[i].env;
                const Index most = rollout.steps - after - cut.warm_up;
                if (most < 0) continue;  // no steps follow
                const Index left_out = std::min(left_out_from(rollout, after, env), most);
                lanes[i].origin += left_out;  // for the warm-up
                const Index top = after + left_out + cut.warm_up;
                if (top + skipped_from(rollout, top, env) < rollout.steps) continue;  // it begins with 0
                begin_states(rollout, env, 1, states + i, kBatchLanes);
                if (rollout.mask && rollout.mask_passes_values)
                    states[kNextValue * kBatchLanes + i] = *rollout.last_values.at(0, env);
            }
            if (cut.warm_up) run(cut.steps, cut.steps + cut.warm_up, Store::nothing);
            for (Index i = 0; i < number && cut.warm_up; ++i) lanes[i] = lane_at(first + i);
            for (Index i = 0; i < number && (cut.warm_up || rollout.last_advantages); ++i)
                if (lanes[i].origin + cut.steps == rollout.steps)
                    begin_states(rollout, lanes[i].env, 1, states + i, kBatchLanes);
            keep(began, first, number, states, kBatchLanes);
            run(0, cut.steps, store);
            keep(ended, first, number, states, kBatchLanes);
        }
        finish(store);
    });

    Index redone = 0;
    for (Index i = count - 2; i >= 0 && cut.pieces > 1; --i) {
        if ((i + 1) % cut.pieces == 0) continue;  // the last piece of an env has none after it
        const Real* const after = ended + (i + 1) * number_of_states;
        if (std::memcmp(began + i * number_of_states, after, number_of_states * sizeof(Real)) == 0) continue;
        const Lane lane = lane_at(i);
        alignas(64) Real states[kStates * kMaxLanes] = {};
        for (Index state = 0; state < number_of_states; ++state) states[state * kMaxLanes] = after[state];
        Prefetching none(prefetch_choices<Real>[0], Store::cached, 0);
        kernel.lanes(rollout, &lane, 1, 0, cut.steps, states, kMaxLanes, scratch.of(0), Store::cached, none);
        keep(ended, i, 1, states, kMaxLanes);
        redone += cut.steps;
    }
    return redone;
}

// Compute a rollout with a cut from flat_cut. Return how many steps had to be computed again.
template <class Real>
Index gae_flat(const Kernels<Real>& kernel, const CanonicalRollout<Real>& rollout, const Cut& cut, Index num_threads,
               Store store) {
    const Index distance = flat_distance(rollout), states_of_run = flat_states(rollout), lanes = kernel.flat_lanes;
    const Index begin = to_line(rollout.advantages ? rollout.advantages.data : rollout.returns.data);
    const Index forgotten = rollout.mask ? warm_up_steps(rollout) : 0;
    std::vector<Real> states(2 * cut.pieces * states_of_run);
    Real *const started = states.data(), *const ended = started + states.size() / 2;

    spread({cut.pieces / lanes, 1, num_threads}, [&](Index, Index batch, Index end) {
        Prefetching prefetching(prefetch_choices<Real>[int(Sweep::one_array)], store, rollout.steps * rollout.envs);
        for (; batch < end; ++batch) {
            const Index piece = batch * lanes, first = begin + piece * cut.steps;
            alignas(64) Real carry[kFlatDistance * kMaxLanes] = {};
            // The kernel orders the advantages of a lane by element, the driver by env.
            const auto of_lane = [&](Index lane, Index k, Real* by_env, const auto& copy) {
                for (Index j = 0; j < states_of_run; ++j) {
                    const Index env = (first + lane * cut.steps + k + j) % distance;
                    copy(carry[j * lanes + lane], by_env[j < distance ? env : j]);
                }
            };
            const auto keep = [&](Index k, Real* kept) {
                for (Index lane = 0; lane < lanes; ++lane)
                    of_lane(lane, k, kept + (piece + lane) * states_of_run, [](Real from, Real& to) { to = from; });
            };
            const auto follow = [&](Index lane, Index k, Real* by_env) {
                of_lane(lane, k, by_env, [](Real& to, Real from) { to = from; });
            };
            // The last piece needs no warm-up: in that time it computes the end of the array, and its results are kept.
            // The other lanes write beyond their pieces, and the lanes of those pieces later overwrite these results.
            const bool is_last = piece + lanes == cut.pieces;
            const Index top = cut.steps + cut.warm_up;
            Real following[kFlatDistance] = {};
            for (Index lane = 0; lane < lanes && rollout.mask; ++lane) {
                begin_run(rollout, first + (lane + 1) * cut.steps, cut.warm_up, forgotten, following);
                follow(lane, top, following);
            }
            if (is_last) {
                std::fill_n(following, states_of_run, Real(0));
                in_sequence(rollout, first + (lanes - 1) * cut.steps + top, rollout.steps * rollout.envs, following,
                            Results::written);
                follow(lanes - 1, top, following);
            }
            kernel.flat(rollout, first, cut.steps, cut.steps, top, carry, is_last ? store : Store::nothing,
                        prefetching);
            keep(cut.steps, started);
            kernel.flat(rollout, first, cut.steps, 0, cut.steps, carry, store, prefetching);
            keep(0, ended);
        }
        finish(store);
    });

    const Index redone = settle(rollout, cut, begin, started, ended);
    in_sequence(rollout, 0, begin, ended, Results::written);
    return redone;
}

// Compute the results with the kernel that takes the shortest time. They have the same bits for every target, every
// number of threads, and every way to store them; where none is `given`, large ones are streamed. Return how many steps
// of long trajectories, which are cut into pieces, had to be computed again.
template <class Real>
Index gae(const Target& target, const CanonicalRollout<Real>& rollout, Index num_threads,
          std::optional<Store> given = {}) {
    const auto store_from = [&](Index least) { return given ? *given : store_of(rollout, least); };
    const Kernels<Real>& kernel = kernels(target, Real());
    const Index threads = useful_threads(num_threads, rollout.steps, rollout.envs);
    const auto waiting = [](Index vector) { return vector * Index(sizeof(Real)) <= kWaitingVectorBytes; };
    const bool in_l2 = store_of(rollout, kL2Quarters * cache_sizes.l2 / 4) == Store::cached;
    const Kernels<Real>* flat_kernel = &kernels_of_rows<Real>(target, waiting);
    Cut flat = {};
    const bool in_caches = store_of(rollout, stream_bytes) == Store::cached;
    if (is_flat(rollout) && !(rollout.mask && in_caches && rollout.steps < kFlatMaskedSteps)) {
        const Index forgotten = warm_up_steps(rollout);
        flat = flat_cut(*flat_kernel, rollout, forgotten, threads);
        const Cut wider = in_l2 && flat_kernel != &kernel ? flat_cut(kernel, rollout, forgotten, threads) : Cut{};
        // Half as many vectors take 0.9 of the time, but twice as many lanes begin with a warm-up.
        if (wider.pieces && 8 * wider.elements() < 9 * flat.elements()) flat_kernel = &kernel, flat = wider;
    }
    Cut lanes = {};
    if (rollout.env_major) lanes = best_cut(kernel, rollout, threads);
    const auto is_row = [&](Index vector) { return vector == rollout.envs; };
    const bool vector_rows = is_row(kernels_of_rows<Real>(target, is_row).vector) && is_dense(rollout);
    const bool in_memory = !rollout.env_major && store_of(rollout, kFlatRowsBytes) == Store::streamed;
    if (flat.pieces && (in_memory || flat_pays(kernel, rollout, flat, lanes, vector_rows, threads)))
        return gae_flat(*flat_kernel, rollout, flat, threads, store_from(kFlatStreamBytes));
    if (rollout.env_major) return gae_env_major(kernel, rollout, lanes, threads, store_from(stream_bytes));
    // In dense memory, vectors reach into the next row, and only rows of exactly one vector are faster with it. Other
    // rows that are shorter than a vector are computed one number at a time.
    const bool reaching = !rollout.has_options() && is_dense(rollout);
    const Store store = store_from(stream_bytes);
    const bool waits = store == Store::streamed ? waits_for_l2<Real>(rollout.envs) : !in_l2;
    const auto suits = [&](Index vector) {
        if (waits && rollout.envs >= 64 / Index(sizeof(Real))) return waiting(vector);
        return reaching ? rollout.envs == vector : rollout.envs >= vector;
    };
    gae_time_major(kernels_of_rows<Real>(target, suits), rollout, threads, store);
    return 0;
}

// Fill the returns with those of n steps. As many columns are computed at a time as keep n of their rows in a cache.
template <class Real>
void n_step_returns(const Target& target, const CanonicalRollout<Real>& rollout, Index n, Index num_threads) {
    n = std::min(n, rollout.steps);
    const Index columns = rounded_up(sweep_columns<Real>() / n + 1, 64);  // some, also where one row fills the cache
    const Spans spans(rollout.envs, 64, useful_threads(num_threads, rollout.steps, rollout.envs));
    spread(spans, [&](Index, Index first, Index last) {
        for (Index end; first < last; first = end) {
            end = std::min(first + columns, last);
            kernels(target, Real()).n_step_returns(rollout, n, first, end);
        }
    });
}

// Call work(first, last) on spans of envs, or of blocks if the matrix is env-major.
template <class Real, class Work>
void spread_moments(const MaskedMatrix<Real>& moments, Index num_threads, const Work& work) {
    const Index threads = useful_threads(num_threads, moments.steps, moments.envs);
    const Index blocks = (moments.steps + kMomentSteps - 1) / kMomentSteps;
    const Spans spans(moments.env_major ? moments.envs * blocks : moments.envs, 64, threads);
    spread(spans, [&](Index, Index first, Index last) { work(first, last); });
}

template <class Real>
void block_sums(const Target& target, const MaskedMatrix<Real>& moments, Index num_threads, double* sums) {
    const auto run = kernels(target, Real()).block_sums;
    spread_moments(moments, num_threads, [&](Index first, Index last) { run(moments, first, last, sums); });
}

template <class Real>
void rescale(const Target& target, const MaskedMatrix<Real>& moments, Index num_threads) {
    const auto run = kernels(target, Real()).rescale;
    spread_moments(moments, num_threads, [&](Index first, Index last) { run(moments, first, last); });
}

}  // namespace fastgae
