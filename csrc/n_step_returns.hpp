// n-step returns: a recursion of n steps from each step, instead of a recursion to the end of the episode.
//
//     G_t = r_t + gamma_t V'_t          after one step, the bootstrap only where not terminated
//     G_t = r_t + gamma_t G_{t+1}       after each further one, but G_t stays where an episode ends with step t
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels.hpp"

namespace fastgae {

// Fill the returns. Every pass goes from the first step on, so that it reads G_{t+1} before the pass changes it.
template <class Real>
void n_step_returns(const CanonicalRollout<Real>& rollout, Index n) {
    const Index last = rollout.steps - 1;
    const bool env_major = rollout.env_major;
    const View<Real>& result = rollout.returns;
    const View<const std::uint8_t>&terminated = rollout.terminated,
                     &truncated = rollout.truncated ? rollout.truncated : terminated;
    const Index gamma_stride = env_major ? rollout.gammas.step : rollout.gammas.env;

    for (Index env = 0; env < rollout.envs; ++env)
        for (Index t = 0; t < rollout.steps; ++t) {
            Real next = t < last ? *rollout.next_values.at(t, env) : *rollout.last_values.at(0, env);
            if (rollout.final_values && *truncated.at(t, env)) next = *rollout.final_values.at(t, env);
            const Real reward = *rollout.rewards.at(t, env);
            *result.at(t, env) = *terminated.at(t, env) ? reward : reward + *rollout.gammas.at(t, env) * next;
        }

    // Add one step to `count` contiguous returns.
    const auto one_more = [&](Index t, Index env, Index count) {
        const Real *const rewards = rollout.rewards.at(t, env), *const gammas = rollout.gammas.at(t, env);
        const std::uint8_t *const ends = terminated.at(t, env), *const cuts = truncated.at(t, env);
        Real *const here = result.at(t, env), *const following = result.at(t + 1, env);
        for (Index i = 0; i < count; ++i) {
            const Real longer = rewards[i] + gammas[i * gamma_stride] * following[i];
            here[i] = ends[i] | cuts[i] ? here[i] : longer;
        }
    };
    for (Index pass = 1; pass < std::min(n, rollout.steps); ++pass)
        for (Index i = 0; i < (env_major ? rollout.envs : last); ++i)
            env_major ? one_more(0, i, last) : one_more(i, 0, rollout.envs);
}

}  // namespace fastgae
