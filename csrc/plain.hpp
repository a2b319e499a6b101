// The short cut: plain arrays become a Rollout here in less time than Python takes to look at one of them.
//
// Whatever is not plain (another dtype, several layouts, a wrong shape, a missing bootstrap) it only declines; _canonical,
// the one validator of meaning, then converts it or says what is wrong. Nothing here knows Python.
#pragma once

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>

#include "kernels.hpp"

namespace fastgae {

enum class Type { other, f32, f64, flag };

// A caller's array; strides in bytes.
struct Array {
    bool given = false, writeable = false;
    Type type = Type::other;
    Index rank = 0;
    char* data = nullptr;
    const Index *shape = nullptr, *strides = nullptr;

    // [first, last) of the bytes it may touch.
    const char* first() const { return data + extent(-1); }
    const char* last(Index size) const { return data + extent(1) + size; }

private:
    Index extent(int sign) const {
        Index bytes = 0;
        for (Index axis = 0; axis < rank; ++axis)
            if (strides[axis] * sign > 0) bytes += (shape[axis] - 1) * strides[axis];
        return bytes;
    }
};

struct PlainArguments {
    Array rewards, values, terminated, truncated, last_values, next_values, final_values;
    double last_value, gamma, gae_lambda, time_axis;  // NaN where they are no numbers
};

inline bool in_unit_interval(double x) { return x >= 0.0 && x <= 1.0; }

template <class Real>
class PlainRollout : public Rollout<Real> {
public:
    // All arguments but the outputs; false: declined.
    bool take(const PlainArguments& given) {
        given_ = given;
        return take_rewards(given) && take_values(given) && take_flags(given) && take_discounts(given);
    }

    // Arrays to write to; false: declined, and nothing is written.
    bool take_outputs(const Array& advantages, const Array& returns) {
        const bool fit = (advantages.given || returns.given) && take_output(advantages, this->advantages) &&
                         take_output(returns, this->returns) && !overlap(advantages, returns) && apart(advantages) &&
                         apart(returns);
        if (fit && sparse_) scatter();
        return fit;
    }

    const Array& rewards_array() const { return rewards_; }

    // Whether results in the memory order of rewards are in Fortran's.
    bool fortran_ordered() const { return rewards_.rank == 2 && this->env_major == (time_axis_ == 0) && this->envs > 1; }

private:
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
        if (array.rank != rewards_.rank) return false;
        for (Index axis = 0; axis < array.rank; ++axis)
            if (array.shape[axis] != rewards_.shape[axis] + (longer && axis == time_axis_)) return false;
        return true;
    }

    // A view in the layout of the rollout.
    template <class Element>
    bool fit(const Array& array, View<Element>& view) const {
        Strides apart;
        if (!strides_of(array, apart)) return false;
        if (this->env_major ? this->steps > 1 && apart.step != 1 : apart.env != 1) return false;
        view = {reinterpret_cast<Element*>(array.data), apart.step, apart.env};
        return true;
    }

    template <class Element>
    bool take_like_rewards(const Array& array, Type type, View<Element>& view) const {
        return array.type == type && same_shape(array) && fit(array, view);
    }

    bool take_rewards(const PlainArguments& given) {
        rewards_ = given.rewards;
        const Index rank = rewards_.rank;
        if (rewards_.type != kReal || rank < 1) return false;
        const double time_axis = given.time_axis < 0 ? given.time_axis + rank : given.time_axis;
        if (!(time_axis == 0 || (time_axis == 1 && rank == 2))) return false;
        time_axis_ = static_cast<Index>(time_axis);
        this->steps = rewards_.shape[time_axis_];
        this->envs = 1;
        for (Index axis = 0; axis < rank; ++axis)
            if (axis != time_axis_) this->envs *= rewards_.shape[axis];
        Strides apart;
        if (this->steps == 0 || this->envs == 0 || !strides_of(rewards_, apart)) return false;
        this->env_major = this->envs == 1 || (this->steps > 1 && apart.step == 1 && apart.env != 1);
        return fit(rewards_, this->rewards);
    }

    bool take_values(const PlainArguments& given) {
        const Array& values = given.values;
        if (values.type != kReal || values.rank != rewards_.rank) return false;
        const bool longer = values.shape[time_axis_] == this->steps + 1;
        if (longer + given.last_values.given + given.next_values.given != 1) return false;
        if (!same_shape(values, longer) || !fit(values, this->values)) return false;
        this->next_values = {this->values.at(1, 0), this->values.step, this->values.env};
        if (longer) {
            this->last_values = {this->values.at(this->steps, 0), 0, this->values.env};
            return true;
        }
        if (given.next_values.given) {
            if (!take_like_rewards(given.next_values, kReal, this->next_values)) return false;
            this->last_values = {this->next_values.at(this->steps - 1, 0), 0, this->next_values.env};
            return true;
        }
        return take_last_values(given);
    }

    bool take_last_values(const PlainArguments& given) {
        const Array& last = given.last_values;
        if (last.type != kReal) {
            last_value_ = static_cast<Real>(given.last_value);
            this->last_values = {&last_value_, 0, 1};
            return rewards_.rank == 1 && given.last_value == given.last_value;
        }
        if (last.rank != rewards_.rank - 1 || !c_ordered(last)) return false;
        for (Index axis = 0, other = 0; axis < rewards_.rank; ++axis)
            if (axis != time_axis_ && last.shape[other++] != rewards_.shape[axis]) return false;
        this->last_values = {reinterpret_cast<const Real*>(last.data), 0, 1};
        return true;
    }

    bool take_flags(const PlainArguments& given) {
        if (!take_like_rewards(given.terminated, Type::flag, this->terminated)) return false;
        if (!given.truncated.given) return !given.final_values.given;
        if (!take_like_rewards(given.truncated, Type::flag, this->truncated)) return false;
        if (given.next_values.given == given.final_values.given) return false;
        if (!given.final_values.given) return true;
        if (same_shape(given.final_values)) return take_like_rewards(given.final_values, kReal, this->final_values);
        sparse_ = given.final_values.type == kReal && given.final_values.rank == 1 &&
                  given.final_values.shape[0] == count_truncated();
        return sparse_;
    }

    bool take_discounts(const PlainArguments& given) {
        this->gamma = static_cast<Real>(given.gamma);
        this->gamma_lambda = static_cast<Real>(given.gamma * given.gae_lambda);
        return in_unit_interval(given.gamma) && in_unit_interval(given.gae_lambda);
    }

    // row(flags, i) for every row i of truncated as the caller's array has them, in C order.
    template <class Row>
    void each_row(const Row& row) const {
        const bool by_env = time_axis_ == 1;
        const Index rows = by_env ? this->envs : this->steps;
        for (Index i = 0; i < rows; ++i) row(by_env ? this->truncated.at(0, i) : this->truncated.at(i, 0), i);
    }

    Index row_width() const { return time_axis_ == 1 ? this->steps : this->envs; }
    Index flags_apart() const { return time_axis_ == 1 ? this->truncated.step : this->truncated.env; }

    // How many steps are truncated; -1 where a flag is not 0 or 1, which bool arrays can be made to hold.
    Index count_truncated() const {
        const Index width = row_width(), apart = flags_apart();
        constexpr std::uint64_t ones = 0x0101010101010101;
        Index count = 0;
        std::uint64_t seen = 0;
        each_row([&](const std::uint8_t* flags, Index) {
            Index i = 0;
            while (apart == 1 && i + 8 <= width) {
                std::uint64_t sums = 0;  // of eight columns, which do not overflow within 255 groups
                for (int group = 0; group < 255 && i + 8 <= width; ++group, i += 8) {
                    std::uint64_t eight;
                    std::memcpy(&eight, flags + i, 8);
                    sums += eight;
                    seen |= eight;
                }
                for (; sums; sums >>= 8) count += sums & 0xff;
            }
            for (; i < width; ++i) {
                count += flags[i * apart];
                seen |= flags[i * apart];
            }
        });
        return seen & ~ones ? -1 : count;
    }

    // final_values to where their steps are. A time-major sweep reads them just before it writes its results there, so an
    // output can hold them; pieces of long trajectories, which are env-major, may read them again later.
    void scatter() {
        View<Real> to = this->advantages ? this->advantages : this->returns;
        if (this->env_major) {
            final_values_.reset(new Real[this->steps * this->envs]);
            to = {final_values_.get(), 1, this->steps};
        }
        const Array& given = given_.final_values;
        const Real* from = reinterpret_cast<const Real*>(given.data);
        const Index apart = given.strides[0] / Index(sizeof(Real));
        const Index width = row_width(), flags_apart = this->flags_apart();
        const bool by_env = time_axis_ == 1;
        each_row([&](const std::uint8_t* flags, Index row) {
            Real* out = by_env ? to.at(0, row) : to.at(row, 0);
            const Index out_apart = by_env ? to.step : to.env;
            const auto take = [&](Index i) {
                if (!flags[i * flags_apart]) return;
                out[i * out_apart] = *from;
                from += apart;
            };
            Index i = 0;
            for (; flags_apart == 1 && i + 8 <= width; i += 8) {
                std::uint64_t eight;  // truncation is rare: most groups are all 0
                std::memcpy(&eight, flags + i, 8);
                for (Index k = 0; eight && k < 8; ++k) take(i + k);
            }
            for (; i < width; ++i) take(i);
        });
        this->final_values = {to.data, to.step, to.env};
    }

    bool take_output(const Array& array, View<Real>& view) const {
        if (!array.given) return true;
        if (!array.writeable || !take_like_rewards(array, kReal, view)) return false;
        return (this->steps == 1 || view.step != 0) && (this->envs == 1 || view.env != 0);
    }

    bool apart(const Array& output) const {
        const Array* const inputs[] = {&given_.rewards,     &given_.values,      &given_.terminated,  &given_.truncated,
                                       &given_.last_values, &given_.next_values, &given_.final_values};
        return std::none_of(std::begin(inputs), std::end(inputs), [&](const Array* input) { return overlap(output, *input); });
    }

    static bool overlap(const Array& a, const Array& b) {
        return a.given && b.given && a.data && b.data && a.first() < b.last(sizeof_element(b)) && b.first() < a.last(sizeof_element(a));
    }

    PlainArguments given_;
    Array rewards_;
    Index time_axis_ = 0;
    Real last_value_{};
    bool sparse_ = false;
    std::unique_ptr<Real[]> final_values_;
};

}  // namespace fastgae
