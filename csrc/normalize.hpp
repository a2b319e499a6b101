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

// Count the steps that exist: those of each env, or one number for all envs.
template <class Real>
std::vector<double> existing_steps(const CanonicalRollout<Real>& rollout, bool per_env) {
    const Index rows = rollout.env_major ? rollout.envs : rollout.steps;
    const Index width = rollout.env_major ? rollout.steps : rollout.envs;
    const Index groups = per_env ? rollout.envs : 1;
    std::vector<double> counts(groups, static_cast<double>(rollout.steps * rollout.envs / groups));
    if (!rollout.mask) return counts;
    const auto row = [&](Index i) { return rollout.env_major ? rollout.mask.at(0, i) : rollout.mask.at(i, 0); };
    if (!per_env) {
        Index total = 0;
        for (Index i = 0; i < rows; ++i) total += count_trues(row(i), width);
        counts[0] = static_cast<double>(total);
    } else if (rollout.env_major) {
        for (Index i = 0; i < rows; ++i) counts[i] = static_cast<double>(count_trues(row(i), width));
    } else {
        counts.assign(rollout.envs, 0.0);
        for (Index i = 0; i < rows; ++i)
            for (Index n = 0; n < width; ++n) counts[n] += row(i)[n] != 0;
    }
    return counts;
}

// Sets x = (x - mean) / (std + eps) for the advantages, or for the rewards if there is no recursion, with the mean and
// std of all steps that exist, or of each env. The constructor allocates all memory, because nothing may fail once the
// advantages are written.
template <class Real>
class Normalization {
public:
    Normalization(const CanonicalRollout<Real>& rollout, bool per_env)
        : rollout_(rollout), per_env_(per_env), blocks_((rollout.steps + kMomentSteps - 1) / kMomentSteps),
          counts_(existing_steps(rollout, per_env)), sums_(blocks_ * rollout.envs),
          center_(per_env ? rollout.envs : kMaxLanes), scale_(center_.size()) {}

    void run(const Target& target, double ddof, double eps, Index num_threads) {
        mean(target, num_threads, 0, nullptr);
        set(center_, [](double mean) { return mean; });
        mean(target, num_threads, ddof, center_.data());
        set(scale_, [eps](double variance) { return 1.0 / (std::sqrt(variance) + eps); });
        rescale(target, moments(center_.data(), scale_.data()), num_threads);
    }

private:
    MaskedMatrix<Real> moments(const double* center, const double* scale) const {
        const View<Real>& to = rollout_.advantages;
        const bool no_recursion = rollout_.recursion == Recursion::none;
        const View<const Real> from = no_recursion ? rollout_.rewards : View<const Real>{to.data, to.step, to.env};
        return {rollout_.steps, rollout_.envs, rollout_.env_major, from, rollout_.mask,
                center,         scale,         -Index(per_env_),   to};
    }

    // Write sum / (count - ddof), of each env or of all, over the sums, or NaN if there are too few steps.
    void mean(const Target& target, Index num_threads, double ddof, const double* center) {
        block_sums(target, moments(center, nullptr), num_threads, sums_.data());
        add_rows(sums_.data(), blocks_, rollout_.envs);
        if (!per_env_) add_rows(sums_.data(), rollout_.envs, 1);
        for (std::size_t i = 0; i < counts_.size(); ++i)
            sums_[i] /= counts_[i] > ddof ? counts_[i] - ddof : std::numeric_limits<double>::quiet_NaN();
    }

    // Write the number that is computed from the mean, of each env or of all.
    template <class Number>
    void set(std::vector<double>& numbers, const Number& number) {
        for (std::size_t i = 0; i < counts_.size(); ++i) numbers[i] = number(sums_[i]);
        if (!per_env_) std::fill(numbers.begin() + 1, numbers.end(), numbers[0]);
    }

    const CanonicalRollout<Real>& rollout_;
    bool per_env_;
    Index blocks_;
    std::vector<double> counts_, sums_, center_, scale_;
};

}  // namespace fastgae
