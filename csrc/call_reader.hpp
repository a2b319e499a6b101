// Turns the arguments of a call into a rollout, in less time than Python takes to look at one of them.
//
// Of an unchecked call it never says what is wrong. It declines a dtype that it does not know, a wrong shape or a
// missing bootstrap. Then Python's _canonical, the only validator of meaning, converts the arguments or raises the
// error.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <vector>

#include "arguments.hpp"
#include "coefficients.hpp"
#include "conversion.hpp"
#include "derived.hpp"
#include "kernels.hpp"
#include "tuning.hpp"

namespace fastgae {

template <class Real>
class CallReader {
public:
    CallReader(const Call& call, Index num_threads, RecycledMemory& memory)
        : call_(call), rewards_(call[kRewards]), threads_(num_threads), memory_(memory), copies_(num_threads, memory) {}

    CallReader(const CallReader&) = delete;  // views point into it

    // Read where time, envs and the axis of unit stride are, which is enough to make results; false: declined.
    bool read_layout() {
        const Index rank = rewards_.rank;
        if (rank < 1 || (rewards_.type != kReal && is_broadcast())) return false;
        const double time_axis = call_.time_axis < 0 ? call_.time_axis + rank : call_.time_axis;
        if (!(time_axis >= 0 && time_axis < rank)) return false;
        time_axis_ = static_cast<Index>(time_axis);
        rollout_.steps = rewards_.shape[time_axis_];
        rollout_.envs = 1;
        for (Index axis = 0; axis < rank; ++axis)
            if (axis != time_axis_) rollout_.envs *= rewards_.shape[axis];
        Index step, env;
        if (rollout_.steps == 0 || rollout_.envs == 0 || !find_strides(rewards_, step, env)) return false;
        // Without unit stride, copies have the order of the rewards' memory, as in Layout of Python's _canonical.
        const Index size = rewards_.size;
        rollout_.env_major = rollout_.envs == 1 ||
                             (rollout_.steps > 1 && env != size && (step == size || std::abs(step) < std::abs(env)));
        return true;
    }

    // Read all arguments but the outputs, and copy those that kernels cannot read; false: declined.
    bool read() {
        rollout_.recursion = call_.recursion;
        if (!read_steps(rewards_, rollout_.steps, rollout_.rewards)) return false;
        if (call_.recursion == Recursion::tree) return read_nodes() && read_mask() && read_coefficients();
        if (call_.recursion == Recursion::none) return call_.normalize != Normalize::nothing && read_mask();
        return read_values() && read_flags() && read_mask() && read_coefficients() && read_last_advantages() &&
               read_ratios();
    }

    // Read the arrays to fill; false: declined, and nothing is written.
    bool read_outputs(const Operand& advantages, const Operand& returns) {
        if (!advantages.given && (!returns.given || call_.normalize != Normalize::nothing)) return false;
        return read_output(advantages, rollout_.advantages) && read_output(returns, rollout_.returns) &&
               (call_.checked || overlap_nothing(advantages.bytes(), returns.bytes(), is_in_place(advantages)));
    }

    // Multiply the coefficients; false: declined, because one is not in [0, 1].
    bool make_coefficients() {
        const Axes axes = {rewards_.rank, time_axis_, rollout_.env_major};
        const auto read = [&](const Operand& given) { return Coefficient(given, axes, copies_); };
        const auto inside = [&](const Coefficient& given) { return is_in_unit_interval(given, threads_); };
        const Coefficient one, gamma = read(call_[kGamma]), gae_lambda = read(call_[kGaeLambda]);
        const bool any_numbers = has_decays() && call_[kGaeLambda].type == kReal;
        if (!call_.checked && !(inside(gamma) && (any_numbers || inside(gae_lambda)))) return false;
        const auto multiply = [&](auto& product, const Coefficient& a, const Coefficient& b) {
            return product(a, b, axes.env_major, threads_, memory_);
        };
        rollout_.gammas = multiply(gammas_, gamma, one);
        if (call_[kValues].absent) make_next_values();
        rollout_.gamma_lambdas = multiply(gamma_lambdas_, gamma, gae_lambda);
        if (call_[kReturnsLambda].given) {
            const Coefficient returns_lambda = read(call_[kReturnsLambda]);
            if (!call_.checked && !inside(returns_lambda)) return false;
            rollout_.returns_gamma_lambdas = multiply(returns_gamma_lambdas_, gamma, returns_lambda);
        }
        if (call_.tail_normalized) rollout_.tail_lambdas = multiply(tail_lambdas_, gae_lambda, one);
        if (call_.recursion == Recursion::retrace) {
            rollout_.wide_gammas = multiply(wide_gamma_, gamma, one);
            rollout_.wide_lambdas = multiply(wide_lambda_, gae_lambda, one);
        }
        return true;
    }

    // Write sparse final values to a matrix; false: declined, because they are not as many as the truncated steps.
    bool make_finals_dense() {
        if (!sparse_finals_) return true;
        const Index count = sparse_finals_->shape[0], stride = sparse_finals_->strides[0];
        if (count > rollout_.steps * rollout_.envs) return false;
        const Real* const finals = copies_.template of<Real>(*sparse_finals_, {1, 0, count, stride});
        const auto length = [&](Index first, Index last) {
            return std::accumulate(rewards_.shape + first, rewards_.shape + last, Index(1), std::multiplies<Index>());
        };
        const bool steps_first = length(0, time_axis_) == 1, envs_first = length(time_axis_ + 1, rewards_.rank) == 1;
        if (!finals || !(steps_first || envs_first)) return false;
        Real* const matrix = new_finals();
        return write_finals(rollout_, finals, count, rollout_.env_major ? envs_first : steps_first, matrix);
    }

    const CanonicalRollout<Real>& rollout() const { return rollout_; }

    // Return whether rewards are repeated along an axis.
    bool is_broadcast() const {
        for (Index axis = 0; axis < rewards_.rank; ++axis)
            if (rewards_.strides[axis] == 0 && rewards_.shape[axis] > 1) return true;
        return false;
    }

    // Return whether new results have Fortran's memory order, as numpy.empty_like gives it to rewards that are not
    // broadcast.
    bool fortran_ordered() const {
        if (rollout_.steps == 1 || rollout_.envs == 1) return false;
        Index other = -1;  // the one axis but time
        for (Index axis = 0; axis < rewards_.rank; ++axis) {
            if (axis == time_axis_ || rewards_.shape[axis] == 1) continue;
            if (other >= 0) return false;
            other = axis;
        }
        const Index step = rewards_.strides[time_axis_], env = rewards_.strides[other];
        if (time_axis_ < other) return rollout_.env_major && step != -env;  // equally far apart: C's order
        return std::abs(env) < std::abs(step);
    }

private:
    static constexpr Type kReal = type_of<Real>;
    static constexpr Real kOne = 1;

    // Find the stride, in bytes, of all axes but one, as if they were one axis in C order; false: they are none.
    static bool merge(const Operand& array, Index but, Index& stride) {
        stride = array.size;
        Index length = 1;
        for (Index axis = array.rank - 1; axis >= 0; --axis) {
            if (axis == but || array.shape[axis] == 1) continue;
            if (length == 1) stride = array.strides[axis];
            if (array.strides[axis] != stride * length) return false;
            length *= array.shape[axis];
        }
        return true;
    }

    // Find the strides of steps and envs, in bytes; false: the axes other than time do not merge into one.
    bool find_strides(const Operand& array, Index& step, Index& env) const {
        step = array.strides[time_axis_];
        if (array.rank != 2) return merge(array, time_axis_, env);
        env = array.strides[1 - time_axis_];
        return true;
    }

    bool same_shape(const Operand& array, bool longer = false) const {
        if (array.rank != rewards_.rank) return false;
        for (Index axis = 0; axis < array.rank; ++axis)
            if (array.shape[axis] != rewards_.shape[axis] + (longer && axis == time_axis_)) return false;
        return true;
    }

    // Set the view of an array, which has `rows` steps, if kernels can read it where it lies.
    template <class Element>
    bool fit(const Operand& array, Index rows, View<Element>& view) const {
        constexpr Index size = sizeof(Element);
        Index step, env;
        if (array.type != type_of<std::remove_const_t<Element>> || !find_strides(array, step, env)) return false;
        if ((rollout_.env_major ? step : env) != size && (rollout_.env_major ? rows : rollout_.envs) > 1) return false;
        view = {reinterpret_cast<Element*>(array.data), rollout_.env_major ? 1 : step / size,
                rollout_.env_major ? env / size : 1};
        return true;
    }

    // Set the view of an array of `rows` steps, in its own memory or in a copy; false: declined.
    template <class Element>
    bool read_steps(const Operand& array, Index rows, View<const Element>& view) {
        if (fit(array, rows, view)) return true;
        Index step, env;
        const Index envs = rollout_.envs;
        if (!find_strides(array, step, env)) return false;
        const Grid grid = rollout_.env_major ? Grid{envs, env, rows, step} : Grid{rows, step, envs, env};
        const Element* const copy = copies_.template of<Element>(array, grid);
        view = {copy, rollout_.env_major ? 1 : envs, rollout_.env_major ? rows : 1};
        return copy != nullptr;
    }

    template <class Element>
    bool read_like_rewards(const Operand& array, View<const Element>& view) {
        return same_shape(array) && read_steps(array, rollout_.steps, view);
    }

    // Read an array without time, or with one step.
    template <class Element>
    bool read_row(const Operand& array, View<const Element>& row) {
        const Index missing = rewards_.rank - array.rank;  // axes
        if (!array.data || missing < 0 || missing > 1 || (missing == 0 && array.shape[time_axis_] != 1)) return false;
        for (Index axis = 0; axis < rewards_.rank; ++axis) {
            const Index at = axis > time_axis_ ? axis - missing : axis;
            if (axis != time_axis_ && array.shape[at] != rewards_.shape[axis]) return false;
        }
        Index stride;
        if (!merge(array, -1, stride)) return false;
        row = {reinterpret_cast<const Element*>(array.data), 0, 1};
        if (array.type != type_of<Element> || stride != array.size)
            row.data = copies_.template of<Element>(array, {1, 0, rollout_.envs, stride});
        return row.data != nullptr;
    }

    // Read numbers without time. One number stands for all envs; only time-major kernels need it once for each.
    bool read_numbers(const Operand& given, std::vector<Real>& number, View<const Real>& row) {
        if (!given.is_number()) return read_row(given, row);
        const bool env_major = rollout_.env_major;
        number.assign(env_major ? 1 : rollout_.envs, static_cast<Real>(given.number));
        row = {number.data(), 0, !env_major};
        return true;
    }

    // Return whether the lambdas are the decays of reverse_scan, which has no gates. Its arrays may hold any numbers.
    bool has_decays() const { return call_[kTerminated].absent; }

    bool read_values() {
        const Operand &values = call_[kValues], &next_values = call_[kNextValues], &last_values = call_[kLastValues];
        if (values.absent) return !last_values.given && !next_values.given && make_values();
        if (!values.data || values.rank != rewards_.rank) return false;
        const Index steps = rollout_.steps;
        const bool longer = values.shape[time_axis_] == steps + 1;
        if (longer + last_values.given + next_values.given != 1) return false;
        if (!same_shape(values, longer) || !read_steps(values, steps + longer, rollout_.values)) return false;
        if (next_values.given && !read_like_rewards(next_values, rollout_.next_values)) return false;
        // V' follows the values where it is not an array of its own, and V' of the last step follows V' of the others.
        View<const Real>& next = rollout_.next_values;
        if (!next_values.given) next = {rollout_.values.at(1, 0), rollout_.values.step, rollout_.values.env};
        if (last_values.given) return read_numbers(last_values, last_value_, rollout_.last_values);
        rollout_.last_values = {next.at(steps - 1, 0), 0, next.env};
        return true;
    }

    // Read what trees have in place of steps; class Trees reads the numbers of parents and weights.
    bool read_nodes() {
        const Operand &values = call_[kValues], &terminated = call_[kTerminated], &parents = call_[kParents];
        const Operand &weights = call_[kWeights], &last = call_[kLastValues];
        const Index nodes = rollout_.steps;
        const auto one_per_node = [&](const Operand& given) { return given.rank == 1 && given.shape[0] == nodes; };
        const bool integers = parents.stored >= Stored::i8 && parents.stored <= Stored::i64;
        const bool some_weights = weights.stored != Stored::other && one_per_node(weights);
        if (!(call_.checked || rewards_.rank == 1) || !integers || !one_per_node(parents) ||
            !(call_.names_weights || some_weights) || call_.normalize == Normalize::per_env)
            return false;
        if (values.weak && values.number == 0)  // there is no critic
            rollout_.values = {&zeros_.emplace_back(0), 0, 0};
        else if (!read_like_rewards(values, rollout_.values))
            return false;
        if (terminated.given && !read_like_rewards(terminated, rollout_.terminated)) return false;
        if (!last.data) return !last.given || read_numbers(last, last_value_, rollout_.last_values);
        if (last.rank != 1 || last.shape[0] < 1 || last.shape[0] > nodes) return false;
        rollout_.last_values = {copies_.template of<Real>(last, {1, 0, last.shape[0], last.strides[0]}), 1, 0};
        return bool(rollout_.last_values);
    }

    // Make the values of a recursion without values.
    bool make_values() {
        const bool env_major = rollout_.env_major;
        zeros_.assign(env_major ? rollout_.steps : rollout_.envs, Real(0));
        rollout_.values = {zeros_.data(), env_major, !env_major};
        return true;
    }

    // Make their V': where gamma V' is -0.0, r + gamma V' - 0 is r, bit for bit.
    void make_next_values() {
        const Index steps = rollout_.steps, envs = rollout_.envs;
        const bool env_major = rollout_.env_major;
        View<const Real>&gammas = rollout_.gammas, &next = rollout_.next_values;
        if (!call_[kFinalValues].given) gammas = {&kOne, 0, 0};  // it multiplies nothing else
        const bool one_row = !gammas.step && !gammas.env;
        const Index width = env_major ? steps : envs, rows = one_row ? 1 : env_major ? envs : steps;
        next_zeros_.resize(rows * width);
        Real* to = next_zeros_.data();
        next = one_row ? View<const Real>{to, env_major, !env_major} : in_rollout<const Real>(to);
        for (Index row = 0; row < rows; ++row) {
            const Real* const from = env_major ? gammas.at(0, row) : gammas.at(row, 0);
            const Index apart = env_major ? gammas.step : gammas.env;
            for (Index i = 0; i < width; ++i) *to++ = -std::copysign(Real(0), from[i * apart]);
        }
        rollout_.last_values = {next.at(steps - 1, 0), 0, next.env};
    }

    // Return whether terminated is left out and may be left out. If it may not, Python raises the error.
    bool is_one_sequence() const {
        const Operand& last = call_[call_[kValues].absent ? kLastAdvantages : kLastValues];
        return !call_[kTerminated].given && last.given && !call_[kTruncated].given && !call_.next_step;
    }

    bool read_flags() {
        const Operand &terminated = call_[kTerminated], &truncated = call_[kTruncated];
        const Operand& final_values = call_[kFinalValues];
        if (terminated.absent || is_one_sequence()) {
            never_.assign(rollout_.env_major ? rollout_.steps : rollout_.envs, 0);
            rollout_.terminated = {never_.data(), rollout_.env_major, !rollout_.env_major};
        } else if (!read_like_rewards(terminated, rollout_.terminated)) {
            return false;
        }
        if (!truncated.given) return !final_values.given;
        if (!read_like_rewards(truncated, rollout_.truncated)) return false;
        // V' of a truncated step is in the next row, or in exactly one of these two arrays.
        const bool next_values = call_[kNextValues].given;
        if (call_.next_step ? final_values.given : next_values == final_values.given) return false;
        if (!final_values.given) return true;
        if (same_shape(final_values)) return read_like_rewards(final_values, rollout_.final_values);
        sparse_finals_ = &final_values;
        return final_values.data && final_values.rank == 1;
    }

    bool read_mask() {
        const Operand &mask = call_[kMask], &prev_done = call_[kPrevDone];
        if (call_.carry_over && (call_.tail_normalized || call_.normalize != Normalize::nothing)) return false;
        rollout_.carry_over = call_.carry_over;
        if (call_.next_step) return leave_out_reset_rows(mask, prev_done);
        if (prev_done.given) return false;
        return !mask.given || read_given_mask(mask);
    }

    bool read_given_mask(const Operand& mask) {
        rollout_.mask_passes_values = !call_[kNextValues].given && !call_[kValues].absent;
        return read_like_rewards(mask, rollout_.mask);
    }

    // Make the mask that leaves out reset rows. Inlined, it would make other calls slower.
    [[gnu::noinline]] bool leave_out_reset_rows(const Operand& mask, const Operand& prev_done) {
        View<const std::uint8_t> before;
        if (prev_done.given ? !read_row(prev_done, before) : may_begin_with_a_reset()) return false;
        if (mask.given && !read_given_mask(mask)) return false;
        exists_.resize(rollout_.steps * rollout_.envs);
        const View<std::uint8_t> exists = in_rollout(exists_.data());
        if (!rollout_.mask) {
            find_steps_but_resets(rollout_, before, exists);
        } else {
            find_masked_steps_but_resets(rollout_, before, exists);
            if (rollout_.truncated && rollout_.mask_passes_values) write_next_existing(rollout_, new_finals());
        }
        rollout_.mask = in_rollout<const std::uint8_t>(exists_.data());
        return true;
    }

    // Return a matrix in the order of the rollout.
    template <class Element>
    View<Element> in_rollout(Element* data) const {
        const bool env_major = rollout_.env_major;
        return {data, env_major ? 1 : rollout_.envs, env_major ? rollout_.steps : 1};
    }

    // Give the rollout new final values, and return where to write them.
    Real* new_finals() {
        finals_.emplace(memory_, rollout_.steps * rollout_.envs * sizeof(Real));
        auto* const data = static_cast<Real*>(finals_->data());
        rollout_.final_values = in_rollout<const Real>(data);
        return data;
    }

    // Whether row 0 has a reward of 0, as a reset row has, and no flag. Python then looks closer, and may warn.
    bool may_begin_with_a_reset() const {
        bool any = false;
        for (Index n = 0; n < rollout_.envs && !any; ++n)
            any = *rollout_.rewards.at(0, n) == 0 && !*rollout_.terminated.at(0, n) &&
                  !(rollout_.truncated && *rollout_.truncated.at(0, n));
        return any;
    }

    // Whether coefficients are in [0, 1] is seen later, without the GIL, by make_coefficients.
    bool read_coefficients() const {
        const Operand &gae_lambda = call_[kGaeLambda], &returns_lambda = call_[kReturnsLambda];
        const auto valid = [&](const Operand& given) { return given.is_number() || broadcasts(given, rewards_); };
        return valid(call_[kGamma]) && valid(gae_lambda) && (!returns_lambda.given || valid(returns_lambda)) &&
               !(returns_lambda.given && call_.tail_normalized);
    }

    bool read_last_advantages() {
        const Operand& given = call_[kLastAdvantages];
        // Without values these are the values after the last step, which are needed unless it ends every episode.
        if (!given.given)
            return call_.checked || !call_[kValues].absent || call_[kTerminated].absent || ends_every_episode();
        if (call_[kReturnsLambda].given || call_.tail_normalized) return false;
        return read_numbers(given, last_advantage_, rollout_.last_advantages);
    }

    bool ends_every_episode() const {
        const Index last = rollout_.steps - 1;
        bool all = !rollout_.mask;  // Python looks for the last steps in the mask.
        for (Index n = 0; n < rollout_.envs && all; ++n)
            all = *rollout_.terminated.at(last, n) || (rollout_.truncated && *rollout_.truncated.at(last, n));
        return all;
    }

    // Read ratios and the constants of the step. One without the other is declined, except for Retrace.
    bool read_ratios() {
        const Operand& ratios = call_[kRatios];
        if (call_.recursion == Recursion::retrace) return read_like_rewards(ratios, rollout_.ratios);
        for (Index i = 0; i < kConstants; ++i) {
            const Operand& constant = call_[Constant(i)];
            if (!ratios.given && constant.given) return false;
            if (!ratios.given) continue;
            const bool unclipped = !constant.given && i != kLeaky;
            const double number = unclipped ? std::numeric_limits<double>::infinity() : constant.number;
            if (!(i == kLeaky ? in_unit_interval(number) : number >= 0)) return false;
            rollout_.constants[i] = static_cast<Real>(number);
        }
        return !ratios.given || read_like_rewards(ratios, rollout_.ratios);
    }

    bool read_output(const Operand& array, View<Real>& view) const {
        if (!array.given) return true;
        if (!array.writeable || !same_shape(array) || !fit(array, rollout_.steps, view)) return false;
        // Rows, or columns if env-major, must not overlap one another.
        return rollout_.env_major ? rollout_.envs == 1 || std::abs(view.env) >= rollout_.steps
                                  : rollout_.steps == 1 || std::abs(view.step) >= rollout_.envs;
    }

    // Return whether numbers that are only normalized are to take the place of the given ones, which are copied first
    // if they have another dtype.
    bool is_in_place(const Operand& output) const {
        return call_.recursion == Recursion::none && output.data == rewards_.data &&
               std::equal(output.strides, output.strides + output.rank, rewards_.strides);
    }

    // Return whether the outputs overlap neither each other nor an input; `in_place`: but the rewards.
    bool overlap_nothing(const Bytes& advantages, const Bytes& returns, bool in_place) const {
        for (const Operand& input : call_.operands) {
            if (!input.data || (in_place && &input == &rewards_)) continue;
            const Bytes read = input.bytes();
            if (read.overlap(advantages) || read.overlap(returns)) return false;
        }
        return !advantages.overlap(returns);
    }

    const Call& call_;
    const Operand& rewards_;
    Index threads_;
    RecycledMemory& memory_;
    CanonicalRollout<Real> rollout_;
    Index time_axis_ = 0;
    Copies copies_;
    std::vector<Real> last_value_, last_advantage_;  // one number that stands for all envs
    std::vector<Real> zeros_, next_zeros_;           // the values of a recursion without values
    std::vector<std::uint8_t> never_;                // flags that are all 0: terminated is left out
    const Operand* sparse_finals_ = nullptr;         // one final value per truncated step
    std::optional<RecycledBlock> finals_;
    std::vector<std::uint8_t> exists_;  // the mask without reset rows
    Product<Real> gammas_, gamma_lambdas_, returns_gamma_lambdas_, tail_lambdas_;
    Product<double> wide_gamma_, wide_lambda_;  // of retrace, before any rounding
};

}  // namespace fastgae
