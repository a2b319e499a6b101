// Normalize advantages to mean 0 and standard deviation 1. Every backend adds up in the same order.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "flags.hpp"
#include "parallel.hpp"

namespace fastgae {

// Add up `count` rows of `width` numbers in a tree of halves. The sum replaces the first row.
inline void add_rows(double* rows, Index count, Index width) {
    for (; count > 1; count = (count + 1) / 2) {
        const Index half = count / 2 * width, odd = count % 2 * width;
        for (Index i = 0; i < half; ++i) rows[i] += rows[half + i];
        std::copy_n(rows + 2 * half, odd, rows + half);
    }
}

// Count the steps that exist, for every env: the steps of the env itself, or of all envs together.
template <class Real>
std::vector<double> existing_steps(const CanonicalRollout<Real>& rollout, bool per_env) {
    const Index rows = rollout.env_major ? rollout.envs : rollout.steps;
    const Index width = rollout.env_major ? rollout.steps : rollout.envs;
    const Index all = per_env ? rollout.steps : rollout.steps * rollout.envs;
    std::vector<double> counts(rollout.envs, static_cast<double>(all));
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

// Sets x = (x - mean) / (std + eps) for the advantages, with the mean and std of all steps that exist, or of each env.
// The constructor allocates all memory, because nothing may fail once the advantages are written.
template <class Real>
class Normalization {
public:
    Normalization(const CanonicalRollout<Real>& rollout, bool per_env)
        : rollout_(rollout), per_env_(per_env), blocks_((rollout.steps + kMomentSteps - 1) / kMomentSteps),
          counts_(existing_steps(rollout, per_env)), sums_(blocks_ * rollout.envs), center_(rollout.envs),
          scale_(rollout.envs) {}

    void run(const Target& target, double ddof, double eps, Index num_threads) {
        mean(target, num_threads, 0, nullptr, center_);
        mean(target, num_threads, ddof, center_.data(), scale_);
        for (double& number : scale_) number = 1.0 / (std::sqrt(number) + eps);
        rescale(target, moments(center_.data(), scale_.data()), num_threads);
    }

private:
    MaskedMatrix<Real> moments(const double* center, const double* scale) const {
        return {rollout_.steps, rollout_.envs, rollout_.env_major, rollout_.advantages, rollout_.mask, center, scale};
    }

    // Write sum / (count - ddof), or NaN if there are too few steps.
    void mean(const Target& target, Index num_threads, double ddof, const double* center, std::vector<double>& means) {
        block_sums(target, moments(center, nullptr), num_threads, sums_.data());
        add_rows(sums_.data(), blocks_, rollout_.envs);
        if (!per_env_) add_rows(sums_.data(), rollout_.envs, 1);
        for (Index n = 0; n < rollout_.envs; ++n) {
            const double divisor = counts_[n] > ddof ? counts_[n] - ddof : std::numeric_limits<double>::quiet_NaN();
            means[n] = sums_[per_env_ ? n : 0] / divisor;
        }
    }

    const CanonicalRollout<Real>& rollout_;
    bool per_env_;
    Index blocks_;
    std::vector<double> counts_, sums_, center_, scale_;
};

}  // namespace fastgae
