// Mean 0 and standard deviation 1: the sums of the kernels, added up as every backend does it.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "flags.hpp"
#include "parallel.hpp"

namespace fastgae {

// The rows of a matrix of `count` rows, added up in a tree of halves: into the first of them.
inline void add_rows(double* rows, Index count, Index width) {
    for (; count > 1; count = (count + 1) / 2) {
        const Index half = count / 2 * width, odd = count % 2 * width;
        for (Index i = 0; i < half; ++i) rows[i] += rows[half + i];
        std::copy_n(rows + 2 * half, odd, rows + half);
    }
}

// The steps that exist, of all envs, or of each.
template <class Real>
std::vector<double> existing_steps(const General<Real>& rollout, bool per_env) {
    const Index rows = rollout.env_major ? rollout.envs : rollout.steps, width = rollout.env_major ? rollout.steps : rollout.envs;
    std::vector<double> counts(rollout.envs, static_cast<double>(per_env ? rollout.steps : rollout.steps * rollout.envs));
    if (!rollout.mask) return counts;
    const auto row = [&](Index i) { return rollout.env_major ? rollout.mask.at(0, i) : rollout.mask.at(i, 0); };
    if (!per_env) {
        Index total = 0;
        for (Index i = 0; i < rows; ++i) total += count_trues(row(i), width);
        counts.assign(rollout.envs, static_cast<double>(total));
    } else if (rollout.env_major) {
        for (Index i = 0; i < rows; ++i) counts[i] = static_cast<double>(count_trues(row(i), width));
    } else {
        counts.assign(rollout.envs, 0.0);
        for (Index i = 0; i < rows; ++i)
            for (Index n = 0; n < width; ++n) counts[n] += row(i)[n] != 0;
    }
    return counts;
}

// x = (x - mean) / (std + eps) of the advantages, over all steps that exist, or those of each env.
template <class Real>
void normalize(const Target& target, const General<Real>& rollout, bool per_env, double eps, Index num_threads) {
    const Index envs = rollout.envs, blocks = (rollout.steps + kMomentSteps - 1) / kMomentSteps;
    const View<Real>& x = rollout.advantages;
    const std::vector<double> counts = existing_steps(rollout, per_env);
    std::vector<double> sums(blocks * envs), center(envs), scale(envs);
    const auto mean = [&](const double* around, std::vector<double>& means) {
        const Moments<const Real> moments = {rollout.steps,        envs,         rollout.env_major,
                                             {x.data, x.step, x.env}, rollout.mask, around};
        block_sums(target, moments, num_threads, sums.data());
        add_rows(sums.data(), blocks, envs);
        if (!per_env) add_rows(sums.data(), envs, 1);
        for (Index n = 0; n < envs; ++n) means[n] = sums[per_env ? n : 0] / counts[n];
    };
    mean(nullptr, center);
    mean(center.data(), scale);
    for (double& number : scale) number = 1.0 / (std::sqrt(number) + eps);
    rescale(target, Moments<Real>{rollout.steps, envs, rollout.env_major, x, rollout.mask, center.data(), scale.data()},
            num_threads);
}

}  // namespace fastgae
