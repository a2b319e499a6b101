// Work on eight flags at a time. Every byte but 0 is true, because a program can write bytes other than 1 to a bool
// array.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels.hpp"

namespace fastgae {

constexpr std::uint64_t kOnes = 0x0101010101010101;

// Return 1 in every byte that is not 0.
inline std::uint64_t trues(std::uint64_t eight) {
    constexpr std::uint64_t low = 0x7f * kOnes;
    return ((((eight & low) + low) | eight) >> 7) & kOnes;
}

inline std::uint64_t eight_flags(const std::uint8_t* at) {
    std::uint64_t eight;
    std::memcpy(&eight, at, sizeof eight);
    return eight;
}

// Set to[i] to whether neither a[i] nor b[i] is true. Without b, only a counts.
inline void neither(const std::uint8_t* a, const std::uint8_t* b, Index count, std::uint8_t* to) {
    Index i = 0;
    for (; i + 8 <= count; i += 8) {
        const std::uint64_t eight = trues(eight_flags(a + i) | (b ? eight_flags(b + i) : 0)) ^ kOnes;
        std::memcpy(to + i, &eight, sizeof eight);
    }
    for (; i < count; ++i) to[i] = !(a[i] || (b && b[i]));
}

inline Index count_trues(const std::uint8_t* flags, Index count) {
    Index i = 0, found = 0;
    for (; i + 8 <= count; i += 8) found += trues(eight_flags(flags + i)) * kOnes >> 56;
    for (; i < count; ++i) found += flags[i] != 0;
    return found;
}

}  // namespace fastgae
