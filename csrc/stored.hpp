// How the elements of an array are stored: what kernels read, and what can be converted to it.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels.hpp"

namespace fastgae {

// The type of the elements of an array that kernels can read in place: aligned, and in the CPU's byte order.
enum class Type : std::uint8_t { other, f32, f64, flag, i64 };

template <class Element>
constexpr Type type_of = Type::other;
template <>
inline constexpr Type type_of<float> = Type::f32;
template <>
inline constexpr Type type_of<double> = Type::f64;
template <>
inline constexpr Type type_of<std::uint8_t> = Type::flag;
template <>
inline constexpr Type type_of<std::int64_t> = Type::i64;

// The numbers that can be converted.
enum class Stored : std::uint8_t { other, boolean, i8, u8, i16, u16, i32, u32, i64, u64, f32, f64, bf16, f16 };

template <class Element>
constexpr Stored stored_as() {
    constexpr bool is_signed = std::is_signed_v<Element>;
    if (std::is_same_v<Element, bool>) return Stored::boolean;
    if (std::is_floating_point_v<Element>) return sizeof(Element) == 4 ? Stored::f32 : Stored::f64;
    switch (sizeof(Element)) {
        case 1: return is_signed ? Stored::i8 : Stored::u8;
        case 2: return is_signed ? Stored::i16 : Stored::u16;
        case 4: return is_signed ? Stored::i32 : Stored::u32;
        default: return is_signed ? Stored::i64 : Stored::u64;
    }
}

// The numbers of C in the order in which NumPy counts its types.
inline constexpr Stored kStored[] = {
    stored_as<bool>(),           stored_as<signed char>(), stored_as<unsigned char>(),      stored_as<short>(),
    stored_as<unsigned short>(), stored_as<int>(),         stored_as<unsigned>(),           stored_as<long>(),
    stored_as<unsigned long>(),  stored_as<long long>(),   stored_as<unsigned long long>(), stored_as<float>(),
    stored_as<double>(),
};

constexpr Type type_of_stored(Stored stored) {
    return stored == Stored::f32       ? Type::f32
           : stored == Stored::f64     ? Type::f64
           : stored == Stored::boolean ? Type::flag
           : stored == Stored::i64     ? Type::i64
                                       : Type::other;
}

constexpr std::int8_t bytes_of(Stored stored) {
    constexpr std::int8_t bytes[] = {0, 1, 1, 1, 2, 2, 4, 4, 8, 8, 4, 8, 2, 2};
    return bytes[static_cast<int>(stored)];
}

// Return whether the numbers are 16-bit floats, which are widened to float32 before anything is computed.
constexpr bool is_narrow(Stored stored) { return stored == Stored::bf16 || stored == Stored::f16; }

}  // namespace fastgae
