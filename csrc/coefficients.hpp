// Coefficients: numbers in [0, 1], or arrays of them whose axes are those of rewards, each of full length or of length
// 1.
#pragma once

#include <algorithm>
#include <atomic>
#include <optional>
#include <type_traits>
#include <utility>

#include "arguments.hpp"
#include "bits.hpp"
#include "conversion.hpp"
#include "recycled.hpp"
#include "threads.hpp"

namespace fastgae {

// The axes of rewards that are time and envs; one axis stands for both where rewards has only one.
struct Axes {
    Index rank, time;
    bool env_major;
};

// Rows of numbers along the inner axis of the rollout's memory, in an array of the caller's or in a copy. Along an axis
// of length 1 they are broadcast.
class Coefficient {
public:
    Coefficient() : data_(&kOne) {}
    Coefficient(const Operand& given, const Axes& axes, Copies& copies) : data_(&given.number) {
        if (given.is_number()) return;
        const Index axis = axes.rank < 2 ? 0 : axes.env_major ? axes.time : 1 - axes.time;
        Grid grid = {1, 0, given.shape[axis], given.strides[axis]};
        if (axes.rank == 2) grid.outer = given.shape[1 - axis], grid.outer_stride = given.strides[1 - axis];
        is_f32_ = given.type == Type::f32;
        is_f32_ ? read<float>(given, grid, copies) : read<double>(given, grid, copies);
    }

    // Return the numbers if kernels for Real can read them in place, or null.
    template <class Real>
    const Real* in_place() const {
        return is_f32_ == std::is_same_v<Real, float> ? static_cast<const Real*>(data_) : nullptr;
    }

    // Return the same numbers from a row and a column on.
    Coefficient from(Index row, Index column) const {
        const Index at = row * outer + column * inner;
        Coefficient moved = *this;
        moved.data_ = static_cast<const char*>(data_) + at * Index(is_f32_ ? sizeof(float) : sizeof(double));
        return moved;
    }

    // Call visit with a pointer to the first number.
    template <class Visit>
    auto with_numbers(const Visit& visit) const {
        return is_f32_ ? visit(static_cast<const float*>(data_)) : visit(static_cast<const double*>(data_));
    }

    double number() const {
        return with_numbers([](const auto* first) { return double(*first); });
    }

    bool is_number() const { return rows * columns == 1; }

    Index rows = 1, columns = 1;
    Index outer = 0, inner = 0;  // from one row to the next, and from one column to the next: 0 or 1

private:
    template <class Number>
    void read(const Operand& given, Grid grid, Copies& copies) {
        constexpr Index size = sizeof(Number);
        rows = grid.outer, columns = grid.inner;
        const bool dense = columns > 1 ? grid.inner_stride == size : rows == 1 || grid.outer_stride == size;
        data_ = dense ? reinterpret_cast<const Number*>(given.data) : copies.of<Number>(given, grid);
        inner = columns > 1;
        outer = rows == 1 ? 0 : dense ? grid.outer_stride / size : columns;
    }

    static constexpr double kOne = 1;
    const void* data_;
    bool is_f32_ = false;
};

// Broadcast two coefficients to each other, and call visit(x, y, count, i) for runs of numbers: `count` of them follow
// x and y, unless one is broadcast, and `i` numbers come before.
template <class Visit>
void in_runs(Coefficient a, Coefficient b, Index threads, const Visit& visit) {
    Index rows = std::max(a.rows, b.rows), columns = std::max(a.columns, b.columns);
    if (columns == 1) {
        std::swap(a.outer, a.inner), std::swap(b.outer, b.inner);
        std::swap(rows, columns);
    }
    if (a.outer == columns * a.inner && b.outer == columns * b.inner) columns *= std::exchange(rows, 1);
    spread({rows * columns, 256, useful_threads(threads, rows, columns)}, [&](Index, Index i, Index last) {
        for (Index count; i < last; i += count) {
            const Index row = i / columns, column = i % columns;
            count = std::min(columns - column, last - i);
            visit(a.from(row, column), b.from(row, column), count, i);
        }
    });
}

// Return whether an array broadcasts to rewards. If rewards have more than two axes, arrays are declined.
inline bool broadcasts(const Operand& given, const Operand& rewards) {
    if (given.type != Type::f32 && given.type != Type::f64) return false;
    if (rewards.rank > 2 || given.rank != rewards.rank) return false;
    for (Index axis = 0; axis < given.rank; ++axis)
        if (given.shape[axis] != 1 && given.shape[axis] != rewards.shape[axis]) return false;
    return true;
}

// Return bits whose highest one says that a number is not in [0, 1]. Read as integers, the bits of those numbers are
// between the bits of 0 and 1, and so are those of -0.0 + 0. Compilers make vectors of this, but not of comparisons.
template <class Number>
BitsOf<Number> is_outside(Number number) {
    const BitsOf<Number> bits = bits_of(number + 0);
    return bits | (bits_of(Number(1)) - bits);
}

template <class Number>
bool any_outside(const Number* numbers, Index count) {
    BitsOf<Number> outside = 0;
    Index i = 0;
    for (; i + kBlock <= count; i += kBlock)
        for (Index k = 0; k < kBlock; ++k) outside |= is_outside(numbers[i + k]);
    for (; i < count; ++i) outside |= is_outside(numbers[i]);
    return outside >> (8 * sizeof outside - 1);
}

// Return whether all numbers of a coefficient are in [0, 1].
inline bool is_in_unit_interval(const Coefficient& given, Index threads) {
    if (given.is_number()) return in_unit_interval(given.number());
    std::atomic<bool> inside{true};
    in_runs(given, {}, threads, [&](const Coefficient& run, const Coefficient&, Index count, Index) {
        if (run.with_numbers([&](const auto* numbers) { return any_outside(numbers, run.inner ? count : 1); }))
            inside = false;
    });
    return inside;
}

// Multiply a run of numbers by another or by one number, in float64, and round once. Compilers make vectors of the
// blocks.
template <bool varies, class A, class B, class Real>
void multiply(const A* a, const B* b, Index count, Real* to) {
    const auto product = [&](Index i) { return static_cast<Real>(double(a[i]) * b[varies ? i : 0]); };
    Index i = 0;
    for (; i + kBlock <= count; i += kBlock) {
        Real products[kBlock];
        for (Index k = 0; k < kBlock; ++k) products[k] = product(i + k);
        std::copy_n(products, kBlock, to + i);
    }
    for (; i < count; ++i) to[i] = product(i);
}

// The product of two coefficients as a view for the kernels, and its memory.
template <class Real>
class Product {
public:
    View<const Real> operator()(const Coefficient& a, const Coefficient& b, bool env_major, Index threads,
                                RecycledMemory& memory) {
        const auto view = [&](const Real* numbers, Index outer, Index inner) {
            return env_major ? View<const Real>{numbers, inner, outer} : View<const Real>{numbers, outer, inner};
        };
        if (a.is_number() && b.is_number()) {
            number_ = static_cast<Real>(a.number() * b.number());
            return view(&number_, 0, 0);
        }
        const auto is_one = [](const Coefficient& any) { return any.is_number() && any.number() == 1; };
        for (const Coefficient* other : {is_one(a) ? &b : nullptr, is_one(b) ? &a : nullptr})
            if (const Real* const numbers = other ? other->in_place<Real>() : nullptr)
                return view(numbers, other->outer, other->inner);
        const Index rows = std::max(a.rows, b.rows), columns = std::max(a.columns, b.columns);
        memory_.emplace(memory, rows * columns * sizeof(Real));
        auto* const numbers = static_cast<Real*>(memory_->data());
        in_runs(a, b, threads, [&](const Coefficient& x, const Coefficient& y, Index count, Index i) {
            const Coefficient &run = x.inner ? x : y, &other = x.inner ? y : x;
            run.with_numbers([&](const auto* from) {
                const double number = other.number();
                if (!other.inner) return multiply<false>(from, &number, count, numbers + i);
                other.with_numbers([&](const auto* by) { multiply<true>(from, by, count, numbers + i); });
            });
        });
        return view(numbers, rows > 1 ? columns : 0, columns > 1);
    }

private:
    Real number_{};
    std::optional<RecycledBlock> memory_;
};

}  // namespace fastgae
