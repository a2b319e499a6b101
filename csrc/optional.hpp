// The short cut for calls with options, on the same terms as that for plain ones: whatever is out of the ordinary is
// declined, and _canonical takes it from there.
#pragma once

#include <algorithm>
#include <vector>

#include "flags.hpp"
#include "plain.hpp"

namespace fastgae {

// A number in [0, 1], or an array of them that broadcasts to rewards.
struct Coefficient {
    Array array;
    double number = 1;  // NaN where it is no number

    double at(Index byte) const {
        if (array.type == Type::f32) return *reinterpret_cast<const float*>(array.data + byte);
        return *reinterpret_cast<const double*>(array.data + byte);
    }
};

struct OptionalArguments {
    PlainArguments plain;  // but its gamma and gae_lambda, which are these
    Coefficient gamma, gae_lambda, returns_lambda;
    Array mask, prev_done, last_advantages, ratios;
    double constants[kConstants];
    bool next_step, tail_normalized;
    bool second;      // there is a returns_lambda
    bool normalized;  // the advantages will be
};

template <class Real>
class OptionalRollout : public PlainRollout<Real, RolloutWithOptions<Real>> {
    using Base = PlainRollout<Real, RolloutWithOptions<Real>>;

public:
    // All arguments but the outputs; false: declined.
    bool take(const OptionalArguments& given) {
        this->given_ = given.plain;
        optional_ = given;
        return this->take_rewards(given.plain) && this->take_values(given.plain) &&
               this->take_flags(given.plain, given.next_step) && take_mask(given) && take_coefficients(given) &&
               take_last_advantages(given) && take_ratios(given) && (this->is_plain() || !this->sparse_finals);
    }

    bool take_outputs(const Array& advantages, const Array& returns) {
        const auto apart = [&](const Array& output) {
            return Base::apart(output, {&optional_.mask, &optional_.last_advantages, &optional_.ratios});
        };
        return (advantages.given || !optional_.normalized) && Base::take_outputs(advantages, returns) &&
               apart(advantages) && apart(returns);
    }

private:
    bool take_mask(const OptionalArguments& given) {
        if (given.next_step) return !given.mask.given && take_reset_rows(given.prev_done);
        if (given.prev_done.given) return false;
        if (!given.mask.given) return true;
        this->mask_passes_values = !given.plain.next_values.given;
        return this->take_like_rewards(given.mask, Type::flag, this->mask);
    }

    // The step after one that ended an episode is a reset row, and does not exist.
    bool take_reset_rows(const Array& prev_done) {
        View<const std::uint8_t> before;
        if (prev_done.given && !this->take_row(prev_done, Type::flag, before)) return false;
        const Index steps = this->steps, envs = this->envs;
        exists_.resize(steps * envs);
        const View<std::uint8_t> exists = {exists_.data(), this->env_major ? 1 : envs, this->env_major ? steps : 1};
        const auto fill = [&](Index t, Index n, Index count) {
            const std::uint8_t* const truncated = this->truncated ? this->truncated.at(t - 1, n) : nullptr;
            neither(this->terminated.at(t - 1, n), truncated, count, exists.at(t, n));
        };
        for (Index n = 0; n < envs; ++n) *exists.at(0, n) = !(before && *before.at(0, n));
        if (this->env_major)
            for (Index n = 0; n < envs; ++n) fill(1, n, steps - 1);
        else
            for (Index t = 1; t < steps; ++t) fill(t, 0, envs);
        this->mask = {exists.data, exists.step, exists.env};
        return true;
    }

    bool take_coefficients(const OptionalArguments& given) {
        if (!is_coefficient(given.gamma) || !is_coefficient(given.gae_lambda) || !is_coefficient(given.returns_lambda))
            return false;
        if (given.second && given.tail_normalized) return false;
        const Coefficient one;
        this->gammas = product(given.gamma, one);
        this->gamma_lambdas = product(given.gamma, given.gae_lambda);
        if (given.second) this->returns_gamma_lambdas = product(given.gamma, given.returns_lambda);
        if (given.tail_normalized) this->tail_lambdas = product(given.gae_lambda, one);
        if (this->is_plain()) this->gamma = *this->gammas.data, this->gamma_lambda = *this->gamma_lambdas.data;
        return true;
    }

    // Whether all numbers are in [0, 1], and as many as there are steps, envs or both.
    bool is_coefficient(const Coefficient& given) const {
        const Array &array = given.array, &rewards = this->given_.rewards;
        if (!array.given) return in_unit_interval(given.number);
        if ((array.type != Type::f32 && array.type != Type::f64) || rewards.rank > 2) return false;
        if (array.rank < 1 || array.rank > rewards.rank) return false;
        for (Index axis = 0; axis < array.rank; ++axis)
            if (array.shape[axis] != 1 && array.shape[axis] != rewards.shape[axis + rewards.rank - array.rank]) return false;
        const Along outer = along(array, 0), inner = array.rank == 2 ? along(array, 1) : Along{1, 0};
        bool inside = true;
        for (Index i = 0; i < outer.count; ++i)
            for (Index k = 0; k < inner.count; ++k) inside &= in_unit_interval(given.at(i * outer.apart + k * inner.apart));
        return inside;
    }

    // An axis of an array: its length, and the bytes from one element to the next.
    struct Along {
        Index count = 1, apart = 0;
    };

    static Along along(const Array& array, Index axis) {
        return {array.shape[axis], array.shape[axis] == 1 ? 0 : array.strides[axis]};
    }

    // The same of an axis of rewards, along which the coefficient may be broadcast.
    Along along_rewards(const Coefficient& given, Index axis) const {
        axis -= this->given_.rewards.rank - given.array.rank;
        return given.array.given && axis >= 0 ? along(given.array, axis) : Along{};
    }

    // Multiplied as doubles, and rounded once.
    View<const Real> product(const Coefficient& a, const Coefficient& b) {
        std::vector<Real>& numbers = coefficients_[used_++];
        const bool matrix = this->given_.rewards.rank == 2;
        const Index inner_axis = this->env_major ? this->time_axis_ : 1 - this->time_axis_;
        const Along inner_a = matrix ? along_rewards(a, inner_axis) : along_rewards(a, 0);
        const Along inner_b = matrix ? along_rewards(b, inner_axis) : along_rewards(b, 0);
        const Along outer_a = matrix ? along_rewards(a, 1 - inner_axis) : Along{};
        const Along outer_b = matrix ? along_rewards(b, 1 - inner_axis) : Along{};
        const Index outer = std::max(outer_a.count, outer_b.count), inner = std::max(inner_a.count, inner_b.count);
        numbers.resize(outer * inner);
        for (Index i = 0; i < outer; ++i)
            for (Index k = 0; k < inner; ++k) {
                const double x = a.array.given ? a.at(i * outer_a.apart + k * inner_a.apart) : a.number;
                const double y = b.array.given ? b.at(i * outer_b.apart + k * inner_b.apart) : b.number;
                numbers[i * inner + k] = static_cast<Real>(x * y);
            }
        const Index along_inner = inner > 1, along_outer = outer > 1 ? inner : 0;
        return {numbers.data(), this->env_major ? along_inner : along_outer, this->env_major ? along_outer : along_inner};
    }

    bool take_last_advantages(const OptionalArguments& given) {
        if (!given.last_advantages.given) return true;
        return !given.second && !given.tail_normalized &&
               this->take_row(given.last_advantages, Base::kReal, this->last_advantages);
    }

    bool take_ratios(const OptionalArguments& given) {
        if (!given.ratios.given) return true;
        bool positive = true;
        for (Index i = 0; i < kConstants; ++i) {
            this->constants[i] = static_cast<Real>(given.constants[i]);
            positive = positive && given.constants[i] >= 0;
        }
        return positive && this->take_like_rewards(given.ratios, Base::kReal, this->ratios);
    }

    OptionalArguments optional_;
    std::vector<std::uint8_t> exists_;
    std::vector<Real> coefficients_[4];
    Index used_ = 0;
};

}  // namespace fastgae
