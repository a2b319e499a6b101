// Long trajectories, cut into pieces that run side by side.
//
// A piece does not know the advantage that follows its last step. So the recursion begins some steps after the piece,
// with A = 0, and forgets this start by the time it reaches the piece. Afterwards the carry with which each piece began
// is compared with the carry with which the piece after it ended. If the bits differ, the piece is computed again. The
// results are therefore the bits of the sequential recursion.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "flags.hpp"
#include "threads.hpp"

namespace fastgae {

// Return the number of steps after which a recursion has forgotten its first number. Its advantages equal the true
// ones, bit for bit, after about digits / log2(1 / gamma_lambda) steps, where digits is the length of the mantissa in
// bits (measured: 1.3 times as many at most).
template <class Real>
Index warm_up_steps(Real gamma_lambda) {
    const double forgotten = -std::log2(static_cast<double>(gamma_lambda));
    const double steps = 1.3 * (sizeof(Real) == 4 ? 24 : 53) / std::max(forgotten, 1e-9);
    return static_cast<Index>(steps) + 1;
}

// Return the largest absolute value of some decays, or 1 if one of them is larger or a NaN.
template <class Real>
Real largest(const View<const Real>& decays, Index steps, Index envs) {
    const auto size_of = [](Real decay) { return std::abs(decay) < 1 ? std::abs(decay) : Real(1); };  // NaN: 1
    if (!decays.step && !decays.env) return size_of(*decays.data);
    constexpr Index count = 16;  // independent maxima, so that no comparison waits for the one before it
    Real most[count] = {};
    const auto take = [&](Index i, Real decay) { most[i] = std::max(most[i], size_of(decay)); };
    if (decays.step == 0) steps = 1;
    for (Index n = 0; n < (decays.env ? envs : 1); ++n) {
        Index t = 0;
        for (; t + count <= steps; t += count)
            for (Index i = 0; i < count; ++i) take(i, *decays.at(t + i, n));
        for (; t < steps; ++t) take(0, *decays.at(t, n));
    }
    return *std::max_element(most, most + count);
}

// Return the warm-up steps of a rollout. An estimate is enough, because a warm-up that is too short costs time, not
// bits.
template <class Real>
Index warm_up_steps(const CanonicalRollout<Real>& rollout) {
    const auto of = [&](const View<const Real>& decays, Real clip) {
        return decays ? warm_up_steps(std::min(Real(1), clip * largest(decays, rollout.steps, rollout.envs))) : 0;
    };
    const Index first = of(rollout.gamma_lambdas, rollout.is_vtrace() ? rollout.constants[kCClip] : 1);
    // G is computed from D, so it begins to forget only when D has forgotten.
    return std::max(first + of(rollout.tail_lambdas, 1), of(rollout.returns_gamma_lambdas, 1));
}

// Every env, or a flat array, cut into `pieces` pieces of `steps` steps or elements. All but its last piece have a
// warm-up: the recursion begins `warm_up` steps after the end of the piece, and after the steps there that do not
// exist, which pass it on.
struct Cut {
    Index pieces, steps, warm_up;
    Index elements() const { return pieces * (steps + warm_up); }
};

// Return how many elements a thread computes in sequence, one batch of lanes after another.
template <class Real>
Index lanes_cost(const Kernels<Real>& kernel, const CanonicalRollout<Real>& rollout, const Cut& cut,
                 Index num_threads) {
    const Index batches = rounded_up(rollout.envs * cut.pieces, kernel.width) / kernel.width;
    return rounded_up(batches, num_threads) / num_threads * kernel.width * (cut.steps + cut.warm_up);
}

// The flags of a block of steps, a byte for each.
struct Block {
    std::uint64_t first, second;
};
static_assert(sizeof(Block) == kBlockSteps, "a block is read as a whole");

inline Block block_of(const View<const std::uint8_t>& flags, Index t, Index env, std::uint64_t otherwise) {
    Block block = {otherwise, otherwise};
    if (flags) std::memcpy(&block, flags.at(t, env), sizeof block);
    return block;
}

// Return how many steps from step t on do not exist, in whole blocks.
template <class Real>
Index skipped_from(const CanonicalRollout<Real>& rollout, Index t, Index env) {
    Index k = 0;
    for (; rollout.mask && t + k < rollout.steps; k += kBlockSteps) {
        const Block exists = block_of(rollout.mask, t + k, env, 0);
        if (exists.first | exists.second) break;
    }
    return k;
}

// Return how many of the steps from step t on a warm-up need not compute. They do not exist, nor does the block after
// them, which passes the same numbers on to step t.
template <class Real>
Index left_out_from(const CanonicalRollout<Real>& rollout, Index t, Index env) {
    return std::max(skipped_from(rollout, t, env) - kBlockSteps, Index(0));
}

// Return how many steps from step t on let a recursion forget its start, or more than `most`: it forgets at the end of
// an episode, and otherwise after `forgotten` steps that exist. There is nothing to forget where no more follow. A flag
// may be any byte; with another one than 1 the answer may be wrong, which costs time, but no bits.
template <class Real>
Index warm_up_from(const CanonicalRollout<Real>& rollout, Index t, Index env, Index forgotten, Index most) {
    const Index left = rollout.steps - t;
    Index last = 0;
    for (Index k = 0; k < std::min(most, left); k += kBlockSteps) {
        const Block exists = block_of(rollout.mask, t + k, env, kOnes);
        const Block terminated = block_of(rollout.terminated, t + k, env, 0);
        const Block truncated = block_of(rollout.truncated, t + k, env, 0);
        const Index existing = static_cast<Index>((exists.first + exists.second) * kOnes >> 56);
        forgotten -= existing;
        if (existing) last = k + kBlockSteps;
        if (forgotten <= 0 || ((terminated.first | truncated.first) & exists.first) ||
            ((terminated.second | truncated.second) & exists.second))
            return last;
    }
    return left <= most ? last : most + 1;
}

// Return the warm-up that every piece of a cut needs, or more steps than a piece has.
template <class Real>
Index searched_warm_up(const CanonicalRollout<Real>& rollout, const Cut& cut, Index forgotten) {
    Index longest = 0;
    for (Index i = 0; i < rollout.envs * (cut.pieces - 1) && longest <= cut.steps; ++i) {
        const Index env = i % rollout.envs, after = rollout.steps - (1 + i / rollout.envs) * cut.steps;
        const Index t = after + left_out_from(rollout, after, env);
        longest = std::max(longest, warm_up_from(rollout, t, env, forgotten, cut.steps));
    }
    return longest;
}

// Return the cut with which a thread has to compute the fewest steps one after the other.
template <class Real>
Cut best_cut(const Kernels<Real>& kernel, const CanonicalRollout<Real>& rollout, Index num_threads) {
    const auto cost = [&](const Cut& cut) { return lanes_cost(kernel, rollout, cut, num_threads); };
    const Cut whole = {1, rounded_up(rollout.steps, kBlockSteps), 0};
    if (rollout.envs >= 2 * kernel.width * num_threads) return whole;
    const Index forgotten = warm_up_steps(rollout), warm_up = rounded_up(forgotten, kBlockSteps);
    if (rollout.steps < std::min(2 * warm_up, kSearchedSteps)) return whole;
    for (Index most = kernel.width * num_threads; most > 1;) {
        Cut best = whole;
        for (Index pieces = 2; pieces <= most; ++pieces) {
            const Index steps = rounded_up((rollout.steps + pieces - 1) / pieces, kBlockSteps);
            // An episode may end sooner than the recursion forgets.
            const Cut cut = {(rollout.steps + steps - 1) / steps, steps, warm_up <= steps ? warm_up : 0};
            if (cost(cut) < cost(best)) best = cut;
        }
        if (best.pieces == 1 || (best.warm_up && !rollout.mask)) return best;
        best.warm_up = searched_warm_up(rollout, best, forgotten);
        if (best.warm_up <= best.steps && cost(best) < cost(whole)) return best;
        most = best.pieces * 3 / 4;  // much longer pieces, because each search takes time
    }
    return whole;
}

// Return whether terminated is one row of zeros, as where it is left out.
template <class Real>
bool never_terminated(const CanonicalRollout<Real>& rollout) {
    const Index length = rollout.env_major ? rollout.steps : rollout.envs;
    return repeats_terminated(rollout) && !count_trues(rollout.terminated.data, length);
}

// Return whether a rollout can be computed as one flat array: it is dense, has no option but a mask along time, and has
// a cache line for some lanes at least.
template <class Real>
bool is_flat(const CanonicalRollout<Real>& rollout) {
    return rollout.steps * rollout.envs * Index(sizeof(Real)) > 4 * 64 && flat_distance(rollout) <= kFlatDistance &&
           !rollout.has_options_but_mask() && (rollout.env_major || !rollout.mask) &&
           is_dense(rollout, never_terminated(rollout));
}

// Return the cut of a flat array, in elements, or no pieces if it is too short. The cut leaves out the last row or the
// last step, whose V' is stored elsewhere, and the elements before the first whole line of the results.
template <class Real>
Cut flat_cut(const Kernels<Real>& kernel, const CanonicalRollout<Real>& rollout, Index forgotten, Index num_threads) {
    constexpr Index line = 64 / sizeof(Real);
    const Index distance = flat_distance(rollout);
    const Index length = (rollout.steps * rollout.envs - distance - (line - 1)) / line * line;
    const Index pieces = kernel.flat_lanes * num_threads;
    if (length < pieces * line) return {};
    const Index warm_up = rounded_up(std::min(forgotten, rollout.steps) * distance, line);
    Index lines = (length - warm_up) / pieces / line;
    // Runs that begin some 4 KiB apart would share too few sets of a cache.
    if (lines > kFlatSpreadLines)
        lines -= (lines - 1) % 16;
    else if (lines % 4 == 0)
        --lines;
    if (lines < 1) return {};
    return {pieces, lines * line, length - pieces * lines * line};
}

// Return whether the flat kernel computes a rollout faster than the other kernels. Measured on Zen 5, a line of
// elements takes about 2 ns for each vector in it and 2 ns more, with AVX-512 and AVX2 alike. The kernel of lanes
// takes 1.2 times as long for a line, on an Intel Xeon 1.5 to 1.9 times and with a mask 1 to 1.2 times, and the kernel
// of short rows takes 3.2 ns for each vector of a row. A row of exactly one vector takes 2.2 ns, and less on other
// CPUs.
template <class Real>
bool flat_pays(const Kernels<Real>& kernel, const CanonicalRollout<Real>& rollout, const Cut& cut, const Cut& lanes_cut,
               bool vector_rows, Index num_threads) {
    const Index elements = cut.elements() / num_threads;
    if (rollout.env_major) {
        const Index of_lanes = lanes_cost(kernel, rollout, lanes_cut, num_threads);
        return rollout.mask ? 20 * elements <= 21 * of_lanes : 5 * elements <= 6 * of_lanes;
    }
    constexpr Index line = 64 / sizeof(Real);
    const Index row = vector_rows ? 19 : 32 * (rounded_up(rollout.envs, kernel.vector) / kernel.vector);
    return tuned(0, 1) || 20 * elements * (line / kernel.vector + 1) <= row * rollout.steps * line;
}

// What the recursion over a flat array does with its results: write them, drop them, or write them until those of every
// env have the bits that are already there.
enum class Results { written, dropped, settled };

// How many steps were computed, and whether that was before the last one.
struct Computed {
    Index steps;
    bool settled;
};

// Compute the elements [bottom, top) of a flat array one after the other. `following` holds an advantage for each env
// and the other states: before the call those that follow the elements, afterwards those of the first elements.
template <class Real>
Computed in_sequence(const CanonicalRollout<Real>& rollout, Index bottom, Index top, Real* following, Results results) {
    const Index distance = flat_distance(rollout), length = rollout.env_major ? rollout.steps : rollout.envs;
    const Real gamma = *rollout.gammas.data, gamma_lambda = *rollout.gamma_lambdas.data;
    Index row = (top - 1) / length, column = (top - 1) % length, same = 0, computed = 0;
    for (Index k = top - 1; k >= bottom; --k) {
        const Index t = rollout.env_major ? column : row, n = rollout.env_major ? row : column;
        if (column-- == 0) column = length - 1, --row;
        const bool is_last = t == rollout.steps - 1, exists = !rollout.mask || *rollout.mask.at(t, n);
        const Real value = *rollout.values.at(t, n);
        Real next = is_last ? *rollout.last_values.at(0, n) : *rollout.next_values.at(t, n);
        Real& carry = following[rollout.env_major ? 0 : n];
        if (is_last) carry = rollout.last_advantages ? *rollout.last_advantages.at(0, n) : Real(0);
        if (rollout.mask_passes_values) {
            if (!is_last && !*rollout.mask.at(t + 1, n)) next = following[1];
            following[1] = exists ? Real(0) : next;
        }
        if (exists) {
            const bool ends = *rollout.terminated.at(t, n) != 0;
            const bool cuts = rollout.truncated && *rollout.truncated.at(t, n) != 0;
            if (cuts && rollout.final_values) next = *rollout.final_values.at(t, n);
            Real delta = *rollout.rewards.at(t, n);
            if (!ends) delta = delta + gamma * next;
            delta = delta - value;
            carry = ends || cuts ? delta : delta + gamma_lambda * carry;
            ++computed;
        }
        if (results == Results::dropped) continue;
        const bool blank = !exists && !rollout.carry_over;
        if (rollout.returns) *rollout.returns.at(t, n) = blank ? value : carry + value;
        if (!rollout.advantages) continue;
        Real* const there = rollout.advantages.at(t, n);
        if (exists) same = std::memcmp(there, &carry, sizeof carry) == 0 ? same + 1 : 0;
        if (results == Results::settled && same == distance) return {computed, true};
        *there = blank ? Real(0) : carry;
    }
    return {computed, false};
}

// Return the first step from t on that exists, or T.
template <class Real>
Index first_existing(const CanonicalRollout<Real>& rollout, Index t, Index env) {
    const std::uint8_t* const exists = rollout.mask.at(0, env);
    while (t + 8 <= rollout.steps && !eight_flags(exists + t)) t += 8;
    while (t < rollout.steps && !exists[t]) ++t;
    return t;
}

// Write the states with which a run of a flat array begins: its piece ends before the element `end`, and its warm-up
// begins `warm_up` elements later. Where a mask leaves too few steps to forget zeros, the states are those of the
// steps from there on, of which only as many are computed as a warm-up needs.
template <class Real>
void begin_run(const CanonicalRollout<Real>& rollout, Index end, Index warm_up, Index forgotten, Real* following) {
    const Index steps = rollout.steps, env = end / steps, t = end % steps, begin = t + warm_up;
    std::fill_n(following, flat_states(rollout), Real(0));
    if (!rollout.mask || begin >= steps) return;
    // The steps from `begin` on that come before `next` do not exist: they pass on what the last of them gets.
    const Index next = first_existing(rollout, begin, env), bottom = std::max(begin, next - 1);
    Index top = next == steps ? steps : first_existing(rollout, t, env);
    top += (steps - top) % kBlockSteps;
    top = std::min(steps, top + warm_up_from(rollout, top, env, forgotten, steps));
    if (top > bottom) in_sequence(rollout, env * steps + bottom, env * steps + top, following, Results::dropped);
}

// Compute again every piece of a flat array that did not begin with the bits with which the piece after it ended.
// `started` and `ended` hold the states of each piece. Return how many steps that took.
template <class Real>
Index settle(const CanonicalRollout<Real>& rollout, const Cut& cut, Index begin, const Real* started, Real* ended) {
    const Index states = flat_states(rollout);
    Index redone = 0;
    for (Index piece = cut.pieces - 2; piece >= 0; --piece) {
        Real* const end = ended + piece * states;
        if (std::memcmp(started + piece * states, end + states, states * sizeof(Real)) == 0) continue;
        Real carry[kFlatDistance];
        std::copy_n(end + states, states, carry);
        const Index bottom = begin + piece * cut.steps;
        const Computed computed = in_sequence(rollout, bottom, bottom + cut.steps, carry, Results::settled);
        if (!computed.settled) std::copy_n(carry, states, end);
        redone += computed.steps;
    }
    return redone;
}

// Write the states with which the recursions of `count` envs begin, from env `first` on. The numbers of one state lie
// side by side, `stride` away from the next state's.
template <class Real>
void begin_states(const CanonicalRollout<Real>& rollout, Index first, Index count, Real* states, Index stride) {
    for (Index state = 0; state < states_of(rollout); ++state) std::fill_n(states + state * stride, count, Real(0));
    for (Index i = 0; i < count && rollout.last_advantages; ++i)
        states[kTrace * stride + i] = *rollout.last_advantages.at(0, first + i);
}

}  // namespace fastgae
