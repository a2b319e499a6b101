// The bits of numbers as integers.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace fastgae {

template <class Number>
using BitsOf =
    std::conditional_t<sizeof(Number) == 8, std::uint64_t,
                       std::conditional_t<sizeof(Number) == 4, std::uint32_t,
                                          std::conditional_t<sizeof(Number) == 2, std::uint16_t, std::uint8_t>>>;

template <class To, class From>
To with_bits_of(const From& from) {
    static_assert(sizeof(To) == sizeof(From), "the bits of one are those of the other");
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}

template <class Number>
BitsOf<Number> bits_of(Number number) {
    return with_bits_of<BitsOf<Number>>(number);
}

}  // namespace fastgae
