// Long trajectories of env-major rollouts, cut into pieces that run side by side.
//
// A piece does not know the advantage that follows its last step. So the recursion begins some steps after the piece,
// with A = 0, and forgets this start by the time it reaches the piece. Afterwards the carry with which each piece began
// is compared with the carry with which the piece after it ended. Where the bits differ, the piece is computed again.
// The results are therefore the bits of the sequential recursion.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "threads.hpp"

namespace fastgae {

// Return after how many steps a recursion has forgotten with which number it began. Its advantages become bit for bit
// the true ones after about digits / log2(1 / gamma_lambda) steps, where digits is the length of the mantissa in bits
// (measured: 1.3 times as many at most).
template <class Real>
Index warm_up_steps(Real gamma_lambda) {
    const double forgotten = -std::log2(static_cast<double>(gamma_lambda));
    const double steps = 1.3 * (sizeof(Real) == 4 ? 24 : 53) / std::max(forgotten, 1e-9);
    return static_cast<Index>(steps) + 1;
}

// Return the largest absolute value of some decays, or 1 if one of them is larger or a NaN.
template <class Real>
Real largest(const View<const Real>& decays, Index steps, Index envs) {
    constexpr Index count = 16;  // independent maxima, so that no comparison waits for the one before it
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

// Return the warm-up steps of a rollout with options. An estimate is enough, because a warm-up that is too short costs
// time, not bits.
template <class Real>
Index warm_up_steps(const RolloutWithOptions<Real>& rollout) {
    const auto of = [&](const View<const Real>& decays, Real clip) {
        return decays ? warm_up_steps(std::min(Real(1), clip * largest(decays, rollout.steps, rollout.envs))) : 0;
    };
    const Index first = of(rollout.gamma_lambdas, rollout.ratios ? rollout.constants[kCClip] : 1);
    // G is computed from D, so it begins to forget only when D has forgotten.
    return std::max(first + of(rollout.tail_lambdas, 1), of(rollout.returns_gamma_lambdas, 1));
}

// Every env cut into `pieces` pieces of `steps` steps. All but the last piece of an env have a warm-up: the recursion
// begins `warm_up` steps after the end of the piece.
struct Cut {
    Index pieces, steps, warm_up;
};

// Return the cut with which a thread has to compute the fewest steps one after the other.
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

// Compute the steps below `top` of one env again, from A_top = carry on, until an advantage has the bits that are there
// already. Return how many steps that took.
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

// Compute again every piece that did not begin with the bits with which the piece after it ended. Return how many steps
// that took.
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

// Write the state with which the recursion of an env begins. The numbers of one state are `stride` apart.
template <class Real>
void begin_states(const RolloutWithOptions<Real>& rollout, Index env, Real* states, Index stride) {
    for (Index state = 0; state < kStates; ++state) states[state * stride] = 0;
    if (rollout.last_advantages && !rollout.tail_lambdas) states[kTrace * stride] = *rollout.last_advantages.at(0, env);
}

}  // namespace fastgae
