// Estimators whose recursion is that of gae with other inputs. fastgae/estimators/retrace.py and upgo.py do the same.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels.hpp"

namespace fastgae {

// The arrays that take the place of inputs.
template <class Real>
struct Reduced {
    std::vector<Real> numbers;
    std::vector<std::uint8_t> flags;
};

// Return the view of new memory that lies as the rollout does.
template <class Element, class Real>
View<Element> like_rollout(std::vector<Element>& memory, const CanonicalRollout<Real>& rollout) {
    memory.resize(rollout.steps * rollout.envs);
    return {memory.data(), rollout.env_major ? 1 : rollout.envs, rollout.env_major ? rollout.steps : 1};
}

template <class Element>
View<const Element> read_only(const View<Element>& view) {
    return {view.data, view.step, view.env};
}

// Call visit(t, n, carry) for every step, from the last one of each env to the first, with one carry per env.
template <class Real, class Carry, class Visit>
void backwards(const CanonicalRollout<Real>& rollout, Carry begin, const Visit& visit) {
    const Index steps = rollout.steps, envs = rollout.envs;
    std::vector<Carry> carries(rollout.env_major ? 1 : envs, begin);
    if (rollout.env_major)
        for (Index n = 0; n < envs; ++n) {
            Carry carry = begin;
            for (Index t = steps - 1; t >= 0; --t) visit(t, n, carry);
        }
    else
        for (Index t = steps - 1; t >= 0; --t)
            for (Index n = 0; n < envs; ++n) visit(t, n, carries[n]);
}

// Retrace: the decay of step t is gamma_t c_{t+1} with c = lambda min(ratio, 1), in float64 and rounded once.
template <class Real>
void reduce_retrace(CanonicalRollout<Real>& rollout, const View<const double>& gammas,
                    const View<const double>& lambdas, Reduced<Real>& reduced) {
    const View<Real> decays = like_rollout(reduced.numbers, rollout);
    const View<const Real> ratios = rollout.ratios;
    const View<const std::uint8_t> mask = rollout.mask;
    backwards(rollout, 0.0, [&](Index t, Index n, double& following) {
        *decays.at(t, n) = static_cast<Real>(*gammas.at(t, n) * following);
        if (mask && !*mask.at(t, n)) return;
        const double ratio = *ratios.at(t, n);
        following = *lambdas.at(t, n) * (ratio > 1 ? 1.0 : ratio);  // NaN stays
    });
    rollout.gamma_lambdas = read_only(decays);
    rollout.ratios = {};
}

// Upgo: a step is cut, as if it were truncated, if delta of the next step is below 0 or NaN, or if there is none.
template <class Real>
void reduce_upgo(CanonicalRollout<Real>& rollout, Reduced<Real>& reduced) {
    const View<Real> next_values = like_rollout(reduced.numbers, rollout);
    const View<std::uint8_t> stops = like_rollout(reduced.flags, rollout);
    struct Following {
        Real value{};
        bool stops = true;
    };
    backwards(rollout, Following(), [&](Index t, Index n, Following& following) {
        const bool last = t == rollout.steps - 1, exists = !rollout.mask || *rollout.mask.at(t, n);
        const bool skips = !last && rollout.mask_passes_values && !*rollout.mask.at(t + 1, n);
        if (last) following.value = *rollout.last_values.at(0, n);
        if (!last && !skips) following.value = *rollout.next_values.at(t, n);
        const bool cut = rollout.truncated && *rollout.truncated.at(t, n);
        const Real next = cut && rollout.final_values ? *rollout.final_values.at(t, n) : following.value;
        *next_values.at(t, n) = next;
        *stops.at(t, n) = following.stops || cut;
        if (!exists) return;
        const Real reward = *rollout.rewards.at(t, n);
        const Real target = *rollout.terminated.at(t, n) ? reward : reward + *rollout.gammas.at(t, n) * next;
        following.stops = !(target - *rollout.values.at(t, n) >= 0);
    });
    rollout.next_values = read_only(next_values);
    rollout.last_values = {next_values.at(rollout.steps - 1, 0), 0, next_values.env};
    rollout.truncated = read_only(stops);
    rollout.final_values = {};
    rollout.mask_passes_values = false;
}

}  // namespace fastgae
