// Coefficients: numbers in [0, 1], or arrays of them whose axes are those of rewards, each of full length or of length
// 1.
#pragma once

#include <algorithm>
#include <vector>

#include "arguments.hpp"

namespace fastgae {

// One axis of an array: its length, and the bytes from one element to the next.
struct Axis {
    Index length = 1, stride = 0;
};

// One coefficient along the one or two axes of rewards. An axis along which it is broadcast has length 1.
class Coefficient {
public:
    explicit Coefficient(const Operand& given) : given_(given) {}

    Axis axis(Index axis) const {
        if (given_.is_number()) return {};
        return {given_.shape[axis], given_.shape[axis] == 1 ? 0 : given_.strides[axis]};
    }

    double at(Index byte) const {
        if (given_.is_number()) return given_.number;
        if (given_.type == Type::f32) return *reinterpret_cast<const float*>(given_.data + byte);
        return *reinterpret_cast<const double*>(given_.data + byte);
    }

private:
    const Operand& given_;
};

// Return whether an array broadcasts to rewards. If rewards have more than two axes, arrays are declined.
inline bool broadcasts(const Operand& given, const Operand& rewards) {
    if (rewards.rank > 2 || given.rank != rewards.rank) return false;
    for (Index axis = 0; axis < given.rank; ++axis)
        if (given.shape[axis] != 1 && given.shape[axis] != rewards.shape[axis]) return false;
    return true;
}

// Return whether all numbers are in [0, 1], or checked before, and broadcast to rewards.
inline bool is_coefficient(const Operand& given, const Operand& rewards, bool checked) {
    if (given.type != Type::f32 && given.type != Type::f64) return in_unit_interval(given.number);
    if (!broadcasts(given, rewards)) return false;
    if (checked) return true;
    const Coefficient numbers(given);
    const Axis outer = numbers.axis(0), inner = given.rank == 2 ? numbers.axis(1) : Axis{};
    bool inside = true;
    for (Index i = 0; i < outer.length; ++i)
        for (Index k = 0; k < inner.length; ++k)
            inside &= in_unit_interval(numbers.at(i * outer.stride + k * inner.stride));
    return inside;
}

// The axes of rewards that are time and envs; one axis stands for both where rewards has only one.
struct Axes {
    Index rank, time;
    bool env_major;
};

// The product of two coefficients as a view for the kernels, and its memory.
template <class Real>
class Product {
public:
    // Multiply in float64 and round once.
    View<const Real> operator()(const Operand& a, const Operand& b, const Axes& axes) {
        if (a.is_number() && b.is_number()) {
            number_ = static_cast<Real>(a.number * b.number);
            return {&number_, 0, 0};
        }
        const Coefficient first(a), second(b);
        const bool matrix = axes.rank == 2;
        const Index inner_axis = !matrix ? 0 : axes.env_major ? axes.time : 1 - axes.time;
        const Axis inner_a = first.axis(inner_axis), inner_b = second.axis(inner_axis);
        const Axis outer_a = matrix ? first.axis(1 - inner_axis) : Axis{};
        const Axis outer_b = matrix ? second.axis(1 - inner_axis) : Axis{};
        const Index outer = std::max(outer_a.length, outer_b.length), inner = std::max(inner_a.length, inner_b.length);
        numbers_.resize(outer * inner);
        for (Index i = 0; i < outer; ++i)
            for (Index k = 0; k < inner; ++k)
                numbers_[i * inner + k] = static_cast<Real>(first.at(i * outer_a.stride + k * inner_a.stride) *
                                                            second.at(i * outer_b.stride + k * inner_b.stride));
        const Index inner_stride = inner > 1, outer_stride = outer > 1 ? inner : 0;
        if (axes.env_major) return {numbers_.data(), inner_stride, outer_stride};
        return {numbers_.data(), outer_stride, inner_stride};
    }

private:
    Real number_{};
    std::vector<Real> numbers_;
};

}  // namespace fastgae
