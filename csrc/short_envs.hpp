// Short envs of an env-major rollout. To begin a lane costs as much as some twenty steps, and a lane computes whole
// blocks, so here a lane has many envs.
//
// Envs are joined to one trajectory, in which the last step of each is truncated, with the env's last value as final
// value. Lanes are runs of that trajectory. They need no warm-up, because each begins with the last step of an env.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>

#include "bits.hpp"
#include "tuning.hpp"

namespace fastgae {

// Return how many envs a lane has: less than two if they are long or too few, or if options or gaps between results
// need more than this. A lane has whole blocks where there are enough envs, so that no two share a cache line of the
// results.
template <class Real>
Index envs_of_lane(const Kernels<Real>& kernel, const CanonicalRollout<Real>& rollout, Index num_threads) {
    const Index steps = rollout.steps;
    const auto follow = [&](const View<Real>& results) { return !results || results.env == steps; };
    if (!rollout.env_major || steps < 2 || steps > kShortSteps || rollout.has_options() || rollout.last_advantages ||
        !std::isfinite(*rollout.gamma_lambdas.data) || !follow(rollout.advantages) || !follow(rollout.returns))
        return 1;
    const Index whole = kBlockSteps / std::gcd(kBlockSteps, steps);
    return std::min(std::max(kRunSteps / (steps * whole), Index(1)) * whole,
                    rollout.envs / (kernel.width * num_threads));
}

// Joins some envs at a time. Inputs whose envs do not follow each other in memory are copied.
template <class Real>
class JoinedEnvs {
public:
    // `scratch` has room for kArrays numbers for each of the `most` steps.
    static constexpr Index kArrays = 5;
    JoinedEnvs(const CanonicalRollout<Real>& rollout, Index most, Real* scratch)
        : rollout_(rollout), rewards_(scratch), values_(rewards_ + most), next_values_(values_ + most),
          final_values_(next_values_ + most), terminated_(reinterpret_cast<std::uint8_t*>(final_values_ + most)),
          truncated_(terminated_ + most) {
        std::fill_n(truncated_, most, 0);
    }

    // Return `count` envs from `first` on as one.
    CanonicalRollout<Real> join(Index first, Index count) const {
        const Index steps = rollout_.steps, all = count * steps;
        const auto copy = [&](const auto& from, auto* to, Index width) {
            if (from.env == steps) return void(std::copy_n(from.at(0, first), all - steps + width, to));
            for (Index n = first; n < first + count; ++n, to += steps) std::copy_n(from.at(0, n), width, to);
        };
        const auto joined = [&](auto from, auto* to, Index width) {
            if (from.env == steps) return decltype(from){from.at(0, first), 1, 0};
            copy(from, to, width);
            return decltype(from){to, 1, 0};
        };
        const auto result = [&](const View<Real>& to) { return to ? View<Real>{to.at(0, first), 1, 0} : to; };

        CanonicalRollout<Real> one = rollout_;
        one.steps = all, one.envs = 1;
        one.rewards = joined(rollout_.rewards, rewards_, steps);
        one.values = joined(rollout_.values, values_, steps);
        const View<const Real>&next = rollout_.next_values, &last_values = rollout_.last_values;
        const bool own_next = has_own_next_values(rollout_);
        // Whether V' of the last step lies behind the other next values, so that no final value is needed.
        const bool in_place = own_next && !rollout_.final_values && last_values.data == next.at(steps - 1, 0) &&
                              last_values.env == next.env;
        one.next_values =
            own_next ? joined(next, next_values_, steps - !in_place) : View<const Real>{one.values.at(1, 0), 1, 0};
        one.terminated = joined(rollout_.terminated, terminated_, steps);
        one.truncated = {truncated_, 1, 0};
        if (!in_place) one.final_values = {final_values_, 1, 0};
        one.last_values = {(in_place ? one.next_values : one.final_values).at(all - 1, 0), 0, 0};
        one.advantages = result(rollout_.advantages), one.returns = result(rollout_.returns);
        if (rollout_.truncated) copy(rollout_.truncated, truncated_, steps);
        if (rollout_.final_values)
            copy(rollout_.final_values, final_values_, steps);
        else if (rollout_.truncated && !in_place)
            copy(next, final_values_, steps - 1);
        for (Index n = first, last = steps - 1; last < all; ++n, last += steps) {
            if (!in_place && !(rollout_.final_values && truncated_[last])) final_values_[last] = *last_values.at(0, n);
            truncated_[last] = 1;
        }
        return one;
    }

    // Return whether joined envs have the bits of single ones: not where the last delta of one may be -0. To that, the
    // recursion adds gamma lambda 0, which makes it 0, and a closed gate leaves it.
    bool same_bits(const CanonicalRollout<Real>& one) const {
        bool same = true;
        for (Index last = rollout_.steps - 1; last < one.steps; last += rollout_.steps)
            same &= one.values.data[last] != 0 || bits_of(one.rewards.data[last]) != bits_of(Real(-0.0));
        return same;
    }

private:
    const CanonicalRollout<Real>& rollout_;
    Real *rewards_, *values_, *next_values_, *final_values_;
    std::uint8_t *terminated_, *truncated_;
};

}  // namespace fastgae
