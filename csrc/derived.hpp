// What a rollout gets that no argument holds in this form: final values in a matrix, and the steps that are no resets.
#pragma once

#include <numeric>
#include <vector>

#include "flags.hpp"
#include "kernels.hpp"

namespace fastgae {

// Call visit(row, column) for every truncated step. Rows are those of the rollout's memory.
template <class Real, class Visit>
void for_each_truncated(const CanonicalRollout<Real>& rollout, const Visit& visit) {
    const bool env_major = rollout.env_major;
    const Index rows = env_major ? rollout.envs : rollout.steps, columns = env_major ? rollout.steps : rollout.envs;
    for (Index row = 0; row < rows; ++row)
        for_each_true(rollout.truncated.at(env_major ? 0 : row, env_major ? row : 0), columns,
                      [&](Index column) { visit(row, column); });
}

// Write `count` sparse final values to a matrix, each to its place; other numbers of it are never read. They come row
// by row, or else column by column. false: there are fewer or more of them than truncated steps. Another thread may
// change the flags meanwhile, so each number of values is checked.
template <class Real>
bool write_finals(const CanonicalRollout<Real>& rollout, const Real* from, Index count, bool row_by_row, Real* to) {
    const Index width = rollout.env_major ? rollout.steps : rollout.envs;
    Index found = 0;
    if (row_by_row) {
        for_each_truncated(rollout, [&](Index row, Index column) {
            if (found < count) to[row * width + column] = from[found];
            ++found;
        });
        return found == count;
    }
    std::vector<Index> next(width + 1);  // where the next value of each column is
    for_each_truncated(rollout, [&](Index, Index column) { ++next[column + 1], ++found; });
    std::partial_sum(next.begin(), next.end(), next.begin());
    for_each_truncated(rollout, [&](Index row, Index column) {
        if (next[column] < count) to[row * width + column] = from[next[column]++];
    });
    return found == count;
}

// Write which steps are no resets: the step after the end of an episode is one. `before`: the ends before the first
// step, if known.
template <class Real>
void find_steps_but_resets(const CanonicalRollout<Real>& rollout, const View<const std::uint8_t>& before,
                           const View<std::uint8_t>& exists) {
    const Index steps = rollout.steps, envs = rollout.envs;
    const View<const std::uint8_t>&terminated = rollout.terminated, &truncated = rollout.truncated;
    const auto fill = [&](Index t, Index n, Index count) {
        neither(terminated.at(t - 1, n), truncated ? truncated.at(t - 1, n) : nullptr, count, exists.at(t, n));
    };
    for (Index n = 0; n < envs; ++n) *exists.at(0, n) = !(before && *before.at(0, n));
    if (rollout.env_major)
        for (Index n = 0; n < envs; ++n) fill(1, n, steps - 1);
    else if (terminated.step == envs && (!truncated || truncated.step == envs))
        fill(1, 0, (steps - 1) * envs);
    else
        for (Index t = 1; t < steps; ++t) fill(t, 0, envs);
}

// The same among the steps in the mask. The views are copies, which no write to a flag can change.
template <class Real>
void find_masked_steps_but_resets(const CanonicalRollout<Real>& rollout, const View<const std::uint8_t>& before,
                                  const View<std::uint8_t> exists) {
    const Index steps = rollout.steps, envs = rollout.envs;
    const View<const std::uint8_t> mask = rollout.mask, terminated = rollout.terminated, truncated = rollout.truncated;
    std::vector<std::uint8_t> after_end(envs);
    for (Index n = 0; before && n < envs; ++n) after_end[n] = *before.at(0, n) != 0;
    const auto fill = [&](Index t, Index n, Index count, std::uint8_t* follows_end) {
        unless_after_end(mask.at(t, n), terminated.at(t, n), truncated ? truncated.at(t, n) : nullptr, count,
                         follows_end, exists.at(t, n));
    };
    if (!rollout.env_major)
        for (Index t = 0; t < steps; ++t) fill(t, 0, envs, after_end.data());
    else
        for (Index n = 0; n < envs; ++n) {
            std::uint8_t follows_end = after_end[n];
            for (Index t = 0; t < steps; ++t) fill(t, n, 1, &follows_end);
        }
}

// Write V' of the truncated steps in the mask, which is V of the next step there, to a matrix: that step is a reset,
// and will not be in the mask any more.
template <class Real>
void write_next_existing(const CanonicalRollout<Real>& rollout, Real* to) {
    const Index steps = rollout.steps, width = rollout.env_major ? steps : rollout.envs;
    for_each_truncated(rollout, [&](Index row, Index column) {
        const Index t = rollout.env_major ? column : row, n = rollout.env_major ? row : column;
        if (!*rollout.mask.at(t, n)) return;
        Index next = t + 1;
        while (next < steps && !*rollout.mask.at(next, n)) ++next;
        to[row * width + column] = *(next < steps ? rollout.next_values.at(next - 1, n) : rollout.last_values.at(0, n));
    });
}

}  // namespace fastgae
