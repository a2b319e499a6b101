// The short cut: plain arrays become a Rollout here in less time than Python takes to look at one of them.
//
// Whatever is not plain (another dtype, several layouts, a wrong shape, a missing bootstrap) it only declines; _canonical,
// the one validator of meaning, then converts it or says what is wrong. Nothing here knows Python.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <numeric>
#include <vector>

#include "kernels.hpp"

namespace fastgae {

enum class Type { other, f32, f64, flag };

// [first, last) of memory.
struct Bytes {
    const char *first = nullptr, *last = nullptr;
    bool overlap(const Bytes& other) const { return first < other.last && other.first < last; }
};

// A caller's array; strides in bytes.
struct Array {
    bool given = false, writeable = false;
    Type type = Type::other;
    Index rank = 0;
    char* data = nullptr;
    const Index *shape = nullptr, *strides = nullptr;

    // What it may touch; its elements have that many bytes.
    Bytes bytes(Index size) const {
        if (!data) return {};
        Index below = 0, above = size;
        for (Index axis = 0; axis < rank; ++axis)
            (strides[axis] < 0 ? below : above) += (shape[axis] - 1) * strides[axis];
        return {data + below, data + above};
    }
};

struct PlainArguments {
    Array rewards, values, terminated, truncated, last_values, next_values, final_values;
    double last_value, gamma, gae_lambda, time_axis;  // NaN where they are no numbers
};

inline bool in_unit_interval(double x) { return x >= 0.0 && x <= 1.0; }

// Base: what the arguments become, a Rollout or one with options.
template <class Real, class Base = Rollout<Real>>
class PlainRollout : public Base {
public:
    // All arguments but the outputs; false: declined.
    bool take(const PlainArguments& given) {
        given_ = given;
        return take_rewards(given) && take_values(given) && take_flags(given) && take_discounts(given);
    }

    // Arrays to write to; false: declined, and nothing is written.
    bool take_outputs(const Array& advantages, const Array& returns) {
        return (advantages.given || returns.given) && take_output(advantages, this->advantages) &&
               take_output(returns, this->returns) && apart(advantages, {&returns}) && apart_from_inputs(advantages) &&
               apart_from_inputs(returns);
    }

    const Array& rewards_array() const { return given_.rewards; }

    // Whether results in the memory order of rewards are in Fortran's. Where time is the last axis, this is the order
    // of numpy.empty_like. For broadcast rewards it may not be the rollout's, and then the outputs are declined.
    bool fortran_ordered() const {
        if (given_.rewards.rank != 2 || this->steps == 1 || this->envs == 1) return false;
        const Index* const strides = given_.rewards.strides;
        return time_axis_ == 0 ? this->env_major : std::abs(strides[0]) < std::abs(strides[1]);
    }

protected:
    static constexpr Type kReal = sizeof(Real) == sizeof(float) ? Type::f32 : Type::f64;

    struct Strides {
        Index step, env;
    };

    bool c_ordered(const Array& array) const {
        Index stride = sizeof_element(array);
        for (Index axis = array.rank - 1; axis >= 0; --axis) {
            if (array.shape[axis] != 1 && array.strides[axis] != stride) return false;
            stride *= array.shape[axis];
        }
        return true;
    }

    static Index sizeof_element(const Array& array) { return array.type == Type::flag ? 1 : sizeof(Real); }

    // In elements. Axes other than time merge only where the memory is one block in C order.
    bool strides_of(const Array& array, Strides& apart) const {
        const Index size = sizeof_element(array);
        if (array.rank > 2) {
            apart = {this->envs, 1};
            return time_axis_ == 0 && c_ordered(array);
        }
        apart = {array.strides[time_axis_] / size, array.rank == 1 ? 1 : array.strides[1 - time_axis_] / size};
        return true;
    }

    bool same_shape(const Array& array, bool longer = false) const {
        if (array.rank != given_.rewards.rank) return false;
        for (Index axis = 0; axis < array.rank; ++axis)
            if (array.shape[axis] != given_.rewards.shape[axis] + (longer && axis == time_axis_)) return false;
        return true;
    }

    // A view in the layout of the rollout.
    template <class Element>
    bool fit(const Array& array, View<Element>& view) const {
        Strides apart;
        if (!strides_of(array, apart)) return false;
        if (this->env_major ? this->steps > 1 && apart.step != 1 : apart.env != 1) return false;
        // What a single step has for a stride leads nowhere.
        view = {reinterpret_cast<Element*>(array.data), this->env_major ? 1 : apart.step, apart.env};
        return true;
    }

    template <class Element>
    bool take_like_rewards(const Array& array, Type type, View<Element>& view) const {
        return array.type == type && same_shape(array) && fit(array, view);
    }

    bool take_rewards(const PlainArguments& given) {
        const Index rank = given.rewards.rank;
        if (given_.rewards.type != kReal || rank < 1) return false;
        const double time_axis = given.time_axis < 0 ? given.time_axis + rank : given.time_axis;
        if (!(time_axis == 0 || (time_axis == 1 && rank == 2))) return false;
        time_axis_ = static_cast<Index>(time_axis);
        this->steps = given_.rewards.shape[time_axis_];
        this->envs = 1;
        for (Index axis = 0; axis < rank; ++axis)
            if (axis != time_axis_) this->envs *= given_.rewards.shape[axis];
        Strides apart;
        if (this->steps == 0 || this->envs == 0 || !strides_of(given_.rewards, apart)) return false;
        this->env_major = this->envs == 1 || (this->steps > 1 && apart.step == 1 && apart.env != 1);
        return fit(given_.rewards, this->rewards);
    }

    bool take_values(const PlainArguments& given) {
        const Array& values = given.values;
        if (values.type != kReal || values.rank != given_.rewards.rank) return false;
        const bool longer = values.shape[time_axis_] == this->steps + 1;
        if (longer + given.last_values.given + given.next_values.given != 1) return false;
        if (!same_shape(values, longer) || !fit(values, this->values)) return false;
        if (longer) {
            Strides apart;
            strides_of(values, apart);
            this->last_values = {this->values.data + this->steps * apart.step, 0, this->values.env};
        }
        this->next_values = {this->values.at(1, 0), this->values.step, this->values.env};
        if (longer) return true;
        if (given.next_values.given) {
            if (!take_like_rewards(given.next_values, kReal, this->next_values)) return false;
            this->last_values = {this->next_values.at(this->steps - 1, 0), 0, this->next_values.env};
            return true;
        }
        return take_last_values(given);
    }

    bool take_last_values(const PlainArguments& given) {
        if (given.last_values.type == kReal) return take_row(given.last_values, kReal, this->last_values);
        last_value_ = static_cast<Real>(given.last_value);
        this->last_values = {&last_value_, 0, 1};
        return given_.rewards.rank == 1 && given.last_value == given.last_value;
    }

    // An array without time.
    template <class Element>
    bool take_row(const Array& array, Type type, View<Element>& row) const {
        if (array.type != type || array.rank != given_.rewards.rank - 1 || !c_ordered(array)) return false;
        for (Index axis = 0, other = 0; axis < given_.rewards.rank; ++axis)
            if (axis != time_axis_ && array.shape[other++] != given_.rewards.shape[axis]) return false;
        row = {reinterpret_cast<Element*>(array.data), 0, 1};
        return true;
    }

    bool take_flags(const PlainArguments& given, bool next_step = false) {
        if (!take_like_rewards(given.terminated, Type::flag, this->terminated)) return false;
        if (!given.truncated.given) return !given.final_values.given;
        if (!take_like_rewards(given.truncated, Type::flag, this->truncated)) return false;
        // V' where truncated: in one of these two, or in the next row.
        if (next_step ? given.final_values.given : given.next_values.given == given.final_values.given) return false;
        if (!given.final_values.given) return true;
        if (same_shape(given.final_values)) return take_like_rewards(given.final_values, kReal, this->final_values);
        return take_sparse(given.final_values);
    }

    bool take_discounts(const PlainArguments& given) {
        this->gamma = static_cast<Real>(given.gamma);
        this->gamma_lambda = static_cast<Real>(given.gamma * given.gae_lambda);
        return in_unit_interval(given.gamma) && in_unit_interval(given.gae_lambda);
    }

    // Final values one by one: where truncated says that they belong. False: there are fewer or more of them, or a flag is
    // not 0 or 1, which bool arrays can be made to hold.
    bool take_sparse(const Array& given) {
        if (given.type != kReal || given.rank != 1) return false;
        const Index count = given.shape[0], apart = given.strides[0] / Index(sizeof(Real));
        const Real* from = reinterpret_cast<const Real*>(given.data);
        if (!find_truncated(count)) return false;
        finals_.resize(count);
        if (this->steps == 1 || this->envs == 1 || this->env_major == (time_axis_ == 1)) {
            for (Index i = 0; i < count; ++i) finals_[i] = from[i * apart];
        } else {
            // They come column by column: where the next one of each column is.
            std::vector<Index> next((this->env_major ? this->steps : this->envs) + 1);
            for (const Index column : columns_) ++next[column + 1];
            std::partial_sum(next.begin(), next.end(), next.begin());
            for (Index i = 0; i < count; ++i) finals_[i] = from[next[columns_[i]]++ * apart];
        }
        this->sparse_finals = {starts_.data(), columns_.data(), finals_.data()};
        return true;
    }

    // The truncated steps in the order of memory.
    bool find_truncated(Index count) {
        const Index rows = this->env_major ? this->envs : this->steps, width = this->env_major ? this->steps : this->envs;
        starts_.reserve(rows + 1);
        columns_.reserve(count);
        starts_.push_back(0);
        std::uint64_t seen = 0;
        for (Index row = 0; row < rows; ++row) {
            const std::uint8_t* flags = this->env_major ? this->truncated.at(0, row) : this->truncated.at(row, 0);
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
        constexpr std::uint64_t ones = 0x0101010101010101;
        return starts_.back() == count && !(seen & ~ones);
    }

    bool take_output(const Array& array, View<Real>& view) const {
        if (!array.given) return true;
        if (!array.writeable || !take_like_rewards(array, kReal, view)) return false;
        // Rows, or columns where env-major, that do not overlap each other.
        return this->env_major ? this->envs == 1 || std::abs(view.env) >= this->steps
                               : this->steps == 1 || std::abs(view.step) >= this->envs;
    }

    bool apart_from_inputs(const Array& output) const {
        return apart(output, {&given_.rewards, &given_.values, &given_.terminated, &given_.truncated,
                              &given_.last_values, &given_.next_values, &given_.final_values});
    }

    static bool apart(const Array& output, std::initializer_list<const Array*> others) {
        const Bytes written = output.bytes(sizeof(Real));
        return std::none_of(others.begin(), others.end(),
                            [&](const Array* other) { return written.overlap(other->bytes(sizeof_element(*other))); });
    }

    PlainArguments given_;
    Index time_axis_ = 0;
    Real last_value_{};
    std::vector<Index> starts_, columns_;  // of sparse_finals
    std::vector<Real> finals_;
};

}  // namespace fastgae
