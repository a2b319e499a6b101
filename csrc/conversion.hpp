// Copies of arrays that no kernel can read in place: strided, unaligned, byte-swapped, or of another dtype.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

#include "arguments.hpp"
#include "narrow_float.hpp"

namespace fastgae {

// Elements along two axes: their number, and the bytes from one to the next.
struct Grid {
    Index outer, outer_stride, inner, inner_stride;
};

// Read one number, which may be unaligned and byte-swapped. A 16-bit number becomes a float.
template <class From, bool swapped>
auto load(const char* at) {
    if constexpr (std::is_same_v<From, bool>) return *at != 0;  // a bool array can be made to hold other bytes than 1
    char bytes[sizeof(From)];
    std::memcpy(bytes, at, sizeof bytes);
    if constexpr (swapped) std::reverse(std::begin(bytes), std::end(bytes));
    From number;
    std::memcpy(&number, bytes, sizeof number);
    if constexpr (is_narrow_float<From>)
        return widened(number);
    else
        return number;
}

template <class From, bool swapped, class To>
bool copy_grid(const char* from, const Grid& grid, To* to) {
    bool right = true;
    for (Index i = 0; i < grid.outer; ++i)
        for (Index k = 0; k < grid.inner; ++k, ++to) {
            const auto number = load<From, swapped>(from + i * grid.outer_stride + k * grid.inner_stride);
            using Number = std::remove_const_t<decltype(number)>;
            if constexpr (type_of<To> == Type::flag) right &= number == Number(0) || number == Number(1);
            *to = static_cast<To>(number);
        }
    return right;
}

// Copy an array as numbers or flags; false: declined, because it holds no numbers, or flags other than 0 and 1.
template <class To>
bool convert(const Operand& given, const Grid& grid, To* to) {
    const auto from = [&](auto any) {
        using From = decltype(any);
        return given.swapped ? copy_grid<From, true>(given.data, grid, to)
                             : copy_grid<From, false>(given.data, grid, to);
    };
    switch (given.stored) {
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
        default: return false;
    }
}

// The memory of all copies of one call.
class Copies {
public:
    // Return a contiguous copy, or null if the array is declined.
    template <class Element>
    const Element* of(const Operand& given, const Grid& grid) {
        const Index bytes = grid.outer * grid.inner * Index(sizeof(Element));
        memory_.emplace_back(new double[bytes / sizeof(double) + 1]);
        auto* const copy = reinterpret_cast<Element*>(memory_.back().get());
        return convert(given, grid, copy) ? copy : nullptr;
    }

private:
    std::vector<std::unique_ptr<double[]>> memory_;  // of double, so that every element is aligned
};

}  // namespace fastgae
