// Coefficients: numbers in [0, 1], or arrays of them whose axes are those of rewards, each of full length or of length
// 1.
#pragma once

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "arguments.hpp"
#include "bits.hpp"
#include "recycled.hpp"
#include "threads.hpp"

namespace fastgae {

// The axes of rewards that are time and envs; one axis stands for both where rewards has only one.
struct Axes {
    Index rank, time;
    bool env_major;
};

// Numbers of a loop whose length compilers know, so that they make vectors of it.
constexpr Index kBlock = 16;

// Call visit(i) for all i < count.
template <class Visit>
void in_blocks(Index count, const Visit& visit) {
    Index i = 0;
    for (; i + kBlock <= count; i += kBlock)
        for (Index k = 0; k < kBlock; ++k) visit(i + k);
    for (; i < count; ++i) visit(i);
}

// Return bits whose highest one says that a number is not in [0, 1]. Read as integers, the bits of those numbers are
// between the bits of 0 and 1, and so are those of -0.0 + 0. Compilers make vectors of this, but not of comparisons.
template <class Number>
BitsOf<Number> is_outside(Number number) {
    const BitsOf<Number> bits = bits_of(number + 0);
    return bits | (bits_of(Number(1)) - bits);
}

template <class Number>
BitsOf<Number> any_outside(const char* from, Index count, Index stride) {
    const auto* const numbers = reinterpret_cast<const Number*>(from);
    BitsOf<Number> outside = 0;
    Index i = 0;
    if (stride == sizeof(Number))
        for (; i + kBlock <= count; i += kBlock)
            for (Index k = 0; k < kBlock; ++k) outside |= is_outside(numbers[i + k]);
    for (; i < count; ++i) outside |= is_outside(*reinterpret_cast<const Number*>(from + i * stride));
    return outside;
}

// One coefficient along the outer and the inner axis of the rollout's memory. An axis along which it is broadcast has
// length 1 and stride 0.
class Coefficient {
public:
    struct Axis {
        Index length = 1, stride = 0;  // in bytes
    };

    Coefficient(const Operand& given, const Axes& axes) {
        if (given.is_number()) {
            data_ = reinterpret_cast<const char*>(&given.number);
            return;
        }
        data_ = given.data;
        type_ = given.type;
        const Index inner_axis = axes.rank < 2 ? 0 : axes.env_major ? axes.time : 1 - axes.time;
        inner = axis_of(given, inner_axis);
        if (axes.rank == 2) outer = axis_of(given, 1 - inner_axis);
    }

    // Return whether kernels for Real can read the numbers in place.
    template <class Real>
    bool in_place() const {
        constexpr Index size = sizeof(Real);
        return type_ == type_of<Real> && (inner.length == 1 || inner.stride == size);
    }

    template <class Real>
    const Real* in_memory() const {
        return reinterpret_cast<const Real*>(data_);
    }

    // Return whether all numbers of these rows are in [0, 1].
    bool in_unit_interval(Index first, Index last) const {
        return type_ == Type::f32 ? in_unit_interval<float>(first, last) : in_unit_interval<double>(first, last);
    }

    // Copy `count` numbers of a row, from a column on.
    void copy(Index row, Index column, Index count, double* to) const {
        const char* const from = data_ + row * outer.stride + column * inner.stride;
        type_ == Type::f32 ? copy<float>(from, count, to) : copy<double>(from, count, to);
    }

    Axis outer, inner;

private:
    static Axis axis_of(const Operand& given, Index axis) {
        return {given.shape[axis], given.shape[axis] == 1 ? 0 : given.strides[axis]};
    }

    template <class Number>
    bool in_unit_interval(Index first, Index last) const {
        BitsOf<Number> outside = 0;
        for (Index row = first; row < last; ++row)
            outside |= any_outside<Number>(data_ + row * outer.stride, inner.length, inner.stride);
        return !(outside >> (8 * sizeof outside - 1));
    }

    template <class Number>
    void copy(const char* from, Index count, double* to) const {
        const auto* const numbers = reinterpret_cast<const Number*>(from);
        if (inner.stride == sizeof(Number))
            in_blocks(count, [&](Index k) { to[k] = numbers[k]; });
        else if (const double number = *numbers; inner.stride == 0)
            in_blocks(count, [&](Index k) { to[k] = number; });
        else
            for (Index k = 0; k < count; ++k) to[k] = *reinterpret_cast<const Number*>(from + k * inner.stride);
    }

    const char* data_;
    Type type_ = Type::f64;
};

// Return whether an array broadcasts to rewards. If rewards have more than two axes, arrays are declined.
inline bool broadcasts(const Operand& given, const Operand& rewards) {
    if (given.type != Type::f32 && given.type != Type::f64) return false;
    if (rewards.rank > 2 || given.rank != rewards.rank) return false;
    for (Index axis = 0; axis < given.rank; ++axis)
        if (given.shape[axis] != 1 && given.shape[axis] != rewards.shape[axis]) return false;
    return true;
}

// Return whether all numbers of a coefficient are in [0, 1].
inline bool is_in_unit_interval(const Operand& given, const Axes& axes, Index threads) {
    if (given.is_number()) return in_unit_interval(given.number);
    const Coefficient numbers(given, axes);
    const Index rows = numbers.outer.length;
    const Spans spans(rows, 1, useful_threads(threads, rows, numbers.inner.length));
    std::atomic<bool> inside{true};
    spread(spans, [&](Index, Index first, Index last) {
        if (!numbers.in_unit_interval(first, last)) inside = false;
    });
    return inside;
}

// The product of two coefficients as a view for the kernels, and its memory.
template <class Real>
class Product {
public:
    // Multiply in float64 and round once.
    View<const Real> operator()(const Operand& a, const Operand& b, const Axes& axes, Index threads,
                                RecycledMemory& memory) {
        if (a.is_number() && b.is_number()) {
            number_ = static_cast<Real>(a.number * b.number);
            return {&number_, 0, 0};
        }
        const Coefficient first(a, axes), second(b, axes);
        const auto view = [&](const Real* numbers, Index outer, Index inner) {
            return axes.env_major ? View<const Real>{numbers, inner, outer} : View<const Real>{numbers, outer, inner};
        };
        for (const Coefficient* one : {a.number == 1 ? &second : nullptr, b.number == 1 ? &first : nullptr})
            if (one && one->in_place<Real>())
                return view(one->in_memory<Real>(), one->outer.stride / Index(sizeof(Real)), one->inner.length > 1);
        const Index outer = std::max(first.outer.length, second.outer.length);
        const Index inner = std::max(first.inner.length, second.inner.length);
        memory_.emplace(memory, outer * inner * sizeof(Real));
        auto* const numbers = static_cast<Real*>(memory_->data());
        multiply(first, second, outer, inner, threads, numbers);
        return view(numbers, outer > 1 ? inner : 0, inner > 1);
    }

private:
    static void multiply(Coefficient a, Coefficient b, Index rows, Index columns, Index threads, Real* to) {
        if (columns == 1) {
            std::swap(a.outer, a.inner), std::swap(b.outer, b.inner);
            std::swap(rows, columns);
        }
        const auto joins = [&](const Coefficient& one) { return one.outer.stride == columns * one.inner.stride; };
        if (joins(a) && joins(b)) columns *= std::exchange(rows, 1);
        constexpr Index most = 256;  // their float64 stay in L1
        const Spans spans(rows * columns, most, useful_threads(threads, rows, columns));
        spread(spans, [&](Index, Index first, Index last) {
            double from_a[most], from_b[most];
            Index before = -1;
            for (Index count; first < last; first += count) {
                const Index row = first / columns, column = first % columns;
                count = std::min({most, columns - column, last - first});
                for (const auto& [one, numbers] : {std::pair(&a, from_a), std::pair(&b, from_b)})
                    if (one->inner.stride != 0 || row != before)
                        one->copy(row, column, one->inner.stride != 0 ? count : most, numbers);
                before = row;
                in_blocks(count, [&](Index k) { to[first + k] = static_cast<Real>(from_a[k] * from_b[k]); });
            }
        });
    }

    Real number_{};
    std::optional<RecycledBlock> memory_;
};

}  // namespace fastgae
