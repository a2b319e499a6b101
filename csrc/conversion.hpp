// Copies of arrays that no kernel can read in place: strided, unaligned, byte-swapped, or of another dtype.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "arguments.hpp"
#include "bits.hpp"
#include "narrow_float.hpp"
#include "recycled.hpp"
#include "threads.hpp"
#include "tuning.hpp"

namespace fastgae {

// Numbers of a loop whose length compilers know, so that they make vectors of it.
constexpr Index kBlock = 16;

// Elements along two axes: their number, and the bytes from one to the next.
struct Grid {
    Index outer, outer_stride, inner, inner_stride;
};

// Return the bytes of an integer in reverse order: neighbours change places, then pairs of them, then fours.
template <int shift = 8, class Bits>
Bits reversed(Bits bits) {
    if constexpr (shift < 8 * int(sizeof bits)) {
        constexpr Bits mask = Bits(Bits(~Bits(0)) / ((std::uint64_t(1) << shift) + 1));  // every other group of bits
        return reversed<2 * shift>(Bits((bits >> shift & mask) | (bits & mask) << shift));
    } else {
        return bits;
    }
}

// Return the number with these bits. A 16-bit number becomes a float.
template <class From>
auto number_of(BitsOf<From> bits) {
    if constexpr (std::is_same_v<From, bool>)
        return bits != 0;  // a bool array can be made to hold other bytes than 1
    else if constexpr (is_narrow_float<From>)
        return widened(with_bits_of<From>(bits));
    else
        return with_bits_of<From>(bits);
}

// Return a number as a flag, and set a bit of `others` if it is neither 0 nor 1. Of these, only 1 has the lowest bit of
// its integer, or of its exponent.
template <class Number>
std::uint8_t flag_of(Number number, BitsOf<Number>& others) {
    constexpr int place = std::is_floating_point_v<Number> ? std::numeric_limits<Number>::digits - 1 : 0;
    const BitsOf<Number> bits = bits_of<Number>(number + Number(0)), flag = bits >> place & 1;
    others |= bits ^ (-flag & bits_of(Number(1)));
    return std::uint8_t(flag);
}

// Put numbers side by side that lie apart, or are byte-swapped. They may be unaligned.
template <class Bits, bool swapped>
void gather(const char* from, Index stride, Index count, char* to) {
#if defined(__GNUC__)
#pragma GCC unroll 4
#endif
    for (Index i = 0; i < count; ++i) {
        Bits bits;
        std::memcpy(&bits, from + i * stride, sizeof bits);
        if constexpr (swapped) bits = reversed(bits);
        std::memcpy(to + i * sizeof bits, &bits, sizeof bits);
    }
}

// Copy some numbers that lie side by side, or flags; false: these are not 0 or 1. Compilers make vectors of it.
template <class From, Index count, class To>
bool copy_block(const char* from, To* to) {
    using Number = decltype(number_of<From>(0));
    Number numbers[count];
    BitsOf<Number> others = 0;
    for (Index i = 0; i < count; ++i) {
        BitsOf<From> bits;
        std::memcpy(&bits, from + i * sizeof bits, sizeof bits);
        numbers[i] = number_of<From>(bits);
    }
    for (Index i = 0; i < count; ++i)
        if constexpr (type_of<To> == Type::flag)
            to[i] = flag_of(numbers[i], others);
        else
            to[i] = static_cast<To>(numbers[i]);
    return !others;
}

// Copy any number of them.
template <class From, class To>
bool copy_dense(const char* from, Index count, To* to) {
    bool right = true;
    Index i = 0;
    for (; i + kBlock <= count; i += kBlock) right &= copy_block<From, kBlock>(from + i * sizeof(From), to + i);
    for (; i < count; ++i) right &= copy_block<From, 1>(from + i * sizeof(From), to + i);
    return right;
}

// Copy the columns [first, last) of a grid; false: these are flags other than 0 and 1. Numbers that have to be gathered
// are copied a strip of columns at a time, so that the cache lines of a transposed array are read once.
template <class From, class To>
bool copy_columns(const char* from, bool swapped, const Grid& grid, Index first, Index last, To* to) {
    const bool dense = grid.inner_stride == sizeof(From) && !swapped;
    const auto gathered = swapped ? gather<BitsOf<From>, true> : gather<BitsOf<From>, false>;
    bool right = true;
    for (Index begin = first, end; begin < last; begin = end) {
        end = dense ? last : std::min(begin + kCopiedColumns, last);
        for (Index i = 0; i < grid.outer; ++i) {
            const char* const at = from + i * grid.outer_stride + begin * grid.inner_stride;
            To* const copied = to + i * grid.inner + begin;
            char strip[kCopiedColumns * sizeof(From)];
            if (dense) {
                right &= copy_dense<From>(at, end - begin, copied);
            } else if constexpr (std::is_same_v<From, To> && type_of<To> != Type::flag) {
                gathered(at, grid.inner_stride, end - begin, reinterpret_cast<char*>(copied));
            } else {
                gathered(at, grid.inner_stride, end - begin, strip);
                right &= copy_dense<From>(strip, end - begin, copied);
            }
        }
    }
    return right;
}

// Return what copies the columns of arrays of a dtype, or null if it holds no numbers.
template <class To>
auto copier_of(Stored stored) {
    const auto from = [](auto any) { return &copy_columns<decltype(any), To>; };
    switch (stored) {
        case Stored::boolean: return from(bool());
        case Stored::i8: return from(std::int8_t());
        case Stored::u8: return from(std::uint8_t());
        case Stored::i16: return from(std::int16_t());
        case Stored::u16: return from(std::uint16_t());
        case Stored::i32: return from(std::int32_t());
        case Stored::u32: return from(std::uint32_t());
        case Stored::i64: return from(std::int64_t());
        case Stored::u64: return from(std::uint64_t());
        case Stored::f32: return from(float());
        case Stored::f64: return from(double());
        case Stored::bf16: return from(BFloat16());
        case Stored::f16: return from(Float16());
        default: return decltype(from(bool()))(nullptr);
    }
}

// Copy an array as numbers or flags; false: declined, because it holds no numbers, or flags other than 0 and 1.
template <class To>
bool convert(const Operand& given, const Grid& grid, Index num_threads, To* to) {
    const auto copy = copier_of<To>(given.stored);
    if (!copy) return false;
    std::atomic<bool> right{true};
    const Spans spans(grid.inner, 64, useful_threads(num_threads, grid.outer, grid.inner));
    spread(spans, [&](Index, Index first, Index last) {
        if (!copy(given.data, given.swapped, grid, first, last, to)) right = false;
    });
    return right;
}

// Arrays as kernels read them, and the memory of all copies of one call.
class Copies {
public:
    Copies(Index num_threads, RecycledMemory& memory) : num_threads_(num_threads), memory_(memory) {}

    // Return the elements side by side, where they lie or in a copy; null: the array is declined.
    template <class Element>
    const Element* of(const Operand& given, Grid grid) {
        if (grid.outer_stride == grid.inner * grid.inner_stride) grid.inner *= std::exchange(grid.outer, 1);
        if (given.type == type_of<Element> && grid.outer == 1 && grid.inner_stride == sizeof(Element))
            return reinterpret_cast<const Element*>(given.data);
        blocks_.push_back(std::make_unique<RecycledBlock>(memory_, grid.outer * grid.inner * sizeof(Element)));
        auto* const copy = static_cast<Element*>(blocks_.back()->data());
        return convert(given, grid, num_threads_, copy) ? copy : nullptr;
    }

private:
    Index num_threads_;
    RecycledMemory& memory_;
    std::vector<std::unique_ptr<RecycledBlock>> blocks_;
};

}  // namespace fastgae
