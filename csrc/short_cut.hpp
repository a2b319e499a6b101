// The short cut turns the arguments of a call into a rollout in less time than Python takes to look at one of them.
//
// It only ever declines: another dtype, several layouts, a wrong shape, a missing bootstrap. Python's _canonical, the
// one validator of meaning, then converts the arguments or says what is wrong with them.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <vector>

#include "arguments.hpp"
#include "coefficients.hpp"
#include "flags.hpp"
#include "kernels.hpp"

namespace fastgae {

template <class Real>
class ShortCut {
public:
    explicit ShortCut(const Call& call) : call_(call), rewards_(call[kRewards]) {}

    ShortCut(const ShortCut&) = delete;  // views point into it

    // Read all arguments but the outputs; false: declined.
    bool read() {
        return read_rewards() && read_values() && read_flags() && read_mask() && read_coefficients() &&
               read_last_advantages() && read_ratios() && (is_plain() || !rollout_.sparse_finals);
    }

    // Read the arrays to fill; false: declined, and nothing is written.
    bool read_outputs(const Operand& advantages, const Operand& returns) {
        if (!advantages.given && (!returns.given || call_.normalize != Normalize::nothing)) return false;
        return read_output(advantages, rollout_.advantages) && read_output(returns, rollout_.returns) &&
               overlap_nothing(advantages.bytes(), returns.bytes());
    }

    RolloutWithOptions<Real>& rollout() { return rollout_; }
    bool is_plain() const { return rollout_.is_plain(); }

    // Return whether rewards are repeated along an axis.
    bool is_broadcast() const {
        for (Index axis = 0; axis < rewards_.rank; ++axis)
            if (rewards_.strides[axis] == 0 && rewards_.shape[axis] > 1) return true;
        return false;
    }

    // Return whether new results have Fortran's memory order. If time is the last axis, numpy.empty_like gives the same
    // order. Broadcast rewards may ask for another order than the rollout's, which read_outputs declines.
    bool fortran_ordered() const {
        if (rewards_.rank != 2 || rollout_.steps == 1 || rollout_.envs == 1) return false;
        return time_axis_ == 0 ? rollout_.env_major : std::abs(rewards_.strides[0]) < std::abs(rewards_.strides[1]);
    }

private:
    static constexpr Type kReal = type_of<Real>;

    static bool c_ordered(const Operand& array) {
        Index stride = bytes_of(array.type);
        for (Index axis = array.rank - 1; axis >= 0; --axis) {
            if (array.shape[axis] != 1 && array.strides[axis] != stride) return false;
            stride *= array.shape[axis];
        }
        return true;
    }

    // Find the strides of steps and envs, in elements; false: the axes other than time do not merge into one.
    bool find_strides(const Operand& array, Index& step, Index& env) const {
        const Index size = bytes_of(array.type);
        step = array.rank > 2 ? rollout_.envs : array.strides[time_axis_] / size;
        env = array.rank == 2 ? array.strides[1 - time_axis_] / size : 1;
        return array.rank <= 2 || (time_axis_ == 0 && c_ordered(array));
    }

    bool same_shape(const Operand& array, bool longer = false) const {
        if (array.rank != rewards_.rank) return false;
        for (Index axis = 0; axis < array.rank; ++axis)
            if (array.shape[axis] != rewards_.shape[axis] + (longer && axis == time_axis_)) return false;
        return true;
    }

    // Return whether the array has the layout of the rollout, and set its view if so.
    template <class Element>
    bool fit(const Operand& array, View<Element>& view) const {
        Index step, env;
        if (!find_strides(array, step, env)) return false;
        if (rollout_.env_major ? rollout_.steps > 1 && step != 1 : env != 1) return false;
        // No kernel uses the stride of a single step, so it may be any number.
        view = {reinterpret_cast<Element*>(array.data), rollout_.env_major ? 1 : step, env};
        return true;
    }

    template <class Element>
    bool read_like_rewards(const Operand& array, Type type, View<Element>& view) const {
        return array.type == type && same_shape(array) && fit(array, view);
    }

    // Read an array without time.
    template <class Element>
    bool read_row(const Operand& array, Type type, View<Element>& row) const {
        if (array.type != type || array.rank != rewards_.rank - 1 || !c_ordered(array)) return false;
        for (Index axis = 0, other = 0; axis < rewards_.rank; ++axis)
            if (axis != time_axis_ && array.shape[other++] != rewards_.shape[axis]) return false;
        row = {reinterpret_cast<Element*>(array.data), 0, 1};
        return true;
    }

    bool read_rewards() {
        const Index rank = rewards_.rank;
        if (rewards_.type != kReal || rank < 1) return false;
        const double time_axis = call_.time_axis < 0 ? call_.time_axis + rank : call_.time_axis;
        if (!(time_axis == 0 || (time_axis == 1 && rank == 2))) return false;
        time_axis_ = static_cast<Index>(time_axis);
        rollout_.steps = rewards_.shape[time_axis_];
        rollout_.envs = 1;
        for (Index axis = 0; axis < rank; ++axis)
            if (axis != time_axis_) rollout_.envs *= rewards_.shape[axis];
        Index step, env;
        if (rollout_.steps == 0 || rollout_.envs == 0 || !find_strides(rewards_, step, env)) return false;
        rollout_.env_major = rollout_.envs == 1 || (rollout_.steps > 1 && step == 1 && env != 1);
        return fit(rewards_, rollout_.rewards);
    }

    bool read_values() {
        const Operand &values = call_[kValues], &next_values = call_[kNextValues], &last_values = call_[kLastValues];
        if (values.type != kReal || values.rank != rewards_.rank) return false;
        const bool longer = values.shape[time_axis_] == rollout_.steps + 1;
        if (longer + last_values.given + next_values.given != 1) return false;
        if (!same_shape(values, longer) || !fit(values, rollout_.values)) return false;
        rollout_.next_values = {rollout_.values.at(1, 0), rollout_.values.step, rollout_.values.env};
        if (longer) {
            Index step, env;
            find_strides(values, step, env);
            rollout_.last_values = {rollout_.values.data + rollout_.steps * step, 0, rollout_.values.env};
            return true;
        }
        if (next_values.given) {
            if (!read_like_rewards(next_values, kReal, rollout_.next_values)) return false;
            rollout_.last_values = {rollout_.next_values.at(rollout_.steps - 1, 0), 0, rollout_.next_values.env};
            return true;
        }
        if (last_values.type == kReal) return read_row(last_values, kReal, rollout_.last_values);
        last_value_ = static_cast<Real>(last_values.number);
        rollout_.last_values = {&last_value_, 0, 1};
        return rewards_.rank == 1 && last_values.is_number();
    }

    bool read_flags() {
        const Operand &truncated = call_[kTruncated], &final_values = call_[kFinalValues];
        if (!read_like_rewards(call_[kTerminated], Type::flag, rollout_.terminated)) return false;
        if (!truncated.given) return !final_values.given;
        if (!read_like_rewards(truncated, Type::flag, rollout_.truncated)) return false;
        // V' of a truncated step stands in the next row, or in exactly one of these two arrays.
        const bool next_values = call_[kNextValues].given;
        if (call_.next_step ? final_values.given : next_values == final_values.given) return false;
        if (!final_values.given) return true;
        if (same_shape(final_values)) return read_like_rewards(final_values, kReal, rollout_.final_values);
        return read_sparse_finals(final_values);
    }

    // Read one final value per truncated step. Declined: there are fewer or more of them, or a flag is neither 0 nor 1,
    // which bool arrays can be made to hold.
    bool read_sparse_finals(const Operand& given) {
        if (given.type != kReal || given.rank != 1) return false;
        const Index count = given.shape[0], stride = given.strides[0] / Index(sizeof(Real));
        const Real* from = reinterpret_cast<const Real*>(given.data);
        if (!find_truncated(count)) return false;
        finals_.resize(count);
        if (rollout_.steps == 1 || rollout_.envs == 1 || rollout_.env_major == (time_axis_ == 1)) {
            for (Index i = 0; i < count; ++i) finals_[i] = from[i * stride];
        } else {
            // They come column by column: find where the next one of each column is.
            std::vector<Index> next((rollout_.env_major ? rollout_.steps : rollout_.envs) + 1);
            for (const Index column : columns_) ++next[column + 1];
            std::partial_sum(next.begin(), next.end(), next.begin());
            for (Index i = 0; i < count; ++i) finals_[i] = from[next[columns_[i]]++ * stride];
        }
        rollout_.sparse_finals = {starts_.data(), columns_.data(), finals_.data()};
        return true;
    }

    // Find the truncated steps in the order of memory.
    bool find_truncated(Index count) {
        const bool env_major = rollout_.env_major;
        const Index rows = env_major ? rollout_.envs : rollout_.steps;
        const Index width = env_major ? rollout_.steps : rollout_.envs;
        starts_.reserve(rows + 1);
        columns_.reserve(count);
        starts_.push_back(0);
        std::uint64_t seen = 0;
        for (Index row = 0; row < rows; ++row) {
            const std::uint8_t* const flags = rollout_.truncated.at(env_major ? 0 : row, env_major ? row : 0);
            const auto find = [&](Index first, Index last) {
                for (Index i = first; i < last; ++i)
                    if (flags[i]) columns_.push_back(i);
            };
            Index i = 0;
            for (; i + 32 <= width; i += 32) {  // truncation is rare: most groups are all 0
                std::uint64_t group[4];
                std::memcpy(group, flags + i, sizeof group);
                const std::uint64_t any = group[0] | group[1] | group[2] | group[3];
                if (!any) continue;
                seen |= any;
                for (Index k = 0; k < 4; ++k)
                    if (group[k]) find(i + 8 * k, i + 8 * k + 8);
            }
            find(i, width);
            for (; i < width; ++i) seen |= flags[i];
            starts_.push_back(columns_.size());
            if (starts_.back() > count) return false;
        }
        return starts_.back() == count && !(seen & ~kOnes);
    }

    bool read_mask() {
        const Operand &mask = call_[kMask], &prev_done = call_[kPrevDone];
        if (call_.next_step) return !mask.given && find_reset_rows(prev_done);
        if (prev_done.given) return false;
        if (!mask.given) return true;
        rollout_.mask_passes_values = !call_[kNextValues].given;
        return read_like_rewards(mask, Type::flag, rollout_.mask);
    }

    // Make the mask that leaves out reset rows: the step after the end of an episode does not exist.
    bool find_reset_rows(const Operand& prev_done) {
        View<const std::uint8_t> before;
        if (prev_done.given && !read_row(prev_done, Type::flag, before)) return false;
        const Index steps = rollout_.steps, envs = rollout_.envs;
        exists_.resize(steps * envs);
        const bool env_major = rollout_.env_major;
        const View<std::uint8_t> exists = {exists_.data(), env_major ? 1 : envs, env_major ? steps : 1};
        const auto fill = [&](Index t, Index n, Index count) {
            const std::uint8_t* const truncated = rollout_.truncated ? rollout_.truncated.at(t - 1, n) : nullptr;
            neither(rollout_.terminated.at(t - 1, n), truncated, count, exists.at(t, n));
        };
        for (Index n = 0; n < envs; ++n) *exists.at(0, n) = !(before && *before.at(0, n));
        if (env_major)
            for (Index n = 0; n < envs; ++n) fill(1, n, steps - 1);
        else
            for (Index t = 1; t < steps; ++t) fill(t, 0, envs);
        rollout_.mask = {exists.data, exists.step, exists.env};
        return true;
    }

    bool read_coefficients() {
        const Operand &gamma = call_[kGamma], &gae_lambda = call_[kGaeLambda], &returns_lambda = call_[kReturnsLambda];
        const auto valid = [&](const Operand& given) { return is_coefficient(given, rewards_); };
        if (!valid(gamma) || !valid(gae_lambda) || (returns_lambda.given && !valid(returns_lambda))) return false;
        if (returns_lambda.given && call_.tail_normalized) return false;
        const typename Product<Real>::Axes axes = {rewards_.rank, time_axis_, rollout_.env_major};
        Operand one;
        one.number = 1;
        rollout_.gammas = gammas_(gamma, one, axes);
        rollout_.gamma_lambdas = gamma_lambdas_(gamma, gae_lambda, axes);
        if (returns_lambda.given) rollout_.returns_gamma_lambdas = returns_gamma_lambdas_(gamma, returns_lambda, axes);
        if (call_.tail_normalized) rollout_.tail_lambdas = tail_lambdas_(gae_lambda, one, axes);
        return true;
    }

    bool read_last_advantages() {
        const Operand& given = call_[kLastAdvantages];
        if (!given.given) return true;
        if (call_[kReturnsLambda].given || call_.tail_normalized) return false;
        return read_row(given, kReal, rollout_.last_advantages);
    }

    // Read ratios and the constants of the step. One without the other is declined.
    bool read_ratios() {
        const Operand& ratios = call_[kRatios];
        for (Index i = 0; i < kConstants; ++i) {
            const Operand& constant = call_[Constant(i)];
            if (ratios.given ? !constant.is_number() : constant.given) return false;
            rollout_.constants[i] = static_cast<Real>(constant.number);
        }
        return !ratios.given || read_like_rewards(ratios, kReal, rollout_.ratios);
    }

    bool read_output(const Operand& array, View<Real>& view) const {
        if (!array.given) return true;
        if (!array.writeable || !read_like_rewards(array, kReal, view)) return false;
        // Rows, or columns if env-major, must not overlap one another.
        return rollout_.env_major ? rollout_.envs == 1 || std::abs(view.env) >= rollout_.steps
                                  : rollout_.steps == 1 || std::abs(view.step) >= rollout_.envs;
    }

    // Return whether the outputs overlap neither each other nor an input.
    bool overlap_nothing(const Bytes& advantages, const Bytes& returns) const {
        for (const Operand& input : call_.operands) {
            if (!input.data) continue;
            const Bytes read = input.bytes();
            if (read.overlap(advantages) || read.overlap(returns)) return false;
        }
        return !advantages.overlap(returns);
    }

    const Call& call_;
    const Operand& rewards_;
    RolloutWithOptions<Real> rollout_;
    Index time_axis_ = 0;
    Real last_value_{};
    std::vector<Index> starts_, columns_;  // of the sparse final values
    std::vector<Real> finals_;
    std::vector<std::uint8_t> exists_;  // the mask without reset rows
    Product<Real> gammas_, gamma_lambdas_, returns_gamma_lambdas_, tail_lambdas_;
};

}  // namespace fastgae
