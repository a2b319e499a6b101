// Work on eight flags at a time. Every byte but 0 is true, because a program can write bytes other than 1 to a bool
// array.
#pragma once

#include <algorithm>
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

// Set to[i] to whether a step is in the mask and follows no end, which after_end[i] says, and after_end[i] to whether
// the next step in the mask follows one. An end is in a, or in b where that is given.
inline void unless_after_end(const std::uint8_t* mask, const std::uint8_t* a, const std::uint8_t* b, Index count,
                             std::uint8_t* after_end, std::uint8_t* to) {
    Index i = 0;
    for (; i + 8 <= count; i += 8) {
        const std::uint64_t in_mask = trues(eight_flags(mask + i)), before = eight_flags(after_end + i);
        const std::uint64_t ends = trues(eight_flags(a + i) | (b ? eight_flags(b + i) : 0));
        const std::uint64_t exists = in_mask & ~before, after = (in_mask & ends) | (before & ~in_mask);
        std::memcpy(to + i, &exists, sizeof exists);
        std::memcpy(after_end + i, &after, sizeof after);
    }
    for (; i < count; ++i) {
        const int in_mask = mask[i] != 0, ends = (a[i] | (b ? b[i] : 0)) != 0, before = after_end[i];
        to[i] = static_cast<std::uint8_t>(in_mask & ~before);
        after_end[i] = static_cast<std::uint8_t>((in_mask & ends) | (before & ~in_mask));
    }
}

// Return flags with the first of them in the lowest byte.
inline std::uint64_t first_lowest(std::uint64_t eight) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return __builtin_bswap64(eight);
#else
    return eight;
#endif
}

// Call visit(i) for every flag that is true, in their order. Eights of flags with a true one are listed before they are
// searched, because no CPU could predict which they are.
template <class Visit>
void for_each_true(const std::uint8_t* flags, Index count, const Visit& visit) {
    constexpr Index most = 512;
    const Index whole = count / 8 * 8;
    for (Index begin = 0; begin < whole; begin += most) {
        Index places[most / 8], found = 0;
        for (Index i = begin; i < std::min(whole, begin + most); i += 8) {
            places[found] = i;
            found += eight_flags(flags + i) != 0;
        }
        for (Index k = 0; k < found; ++k) {
            for (std::uint64_t left = trues(first_lowest(eight_flags(flags + places[k]))); left; left &= left - 1)
                visit(places[k] + Index((((left & -left) - 1) & kOnes) * kOnes >> 56));
        }
    }
    for (Index i = whole; i < count; ++i)
        if (flags[i]) visit(i);
}

inline Index count_trues(const std::uint8_t* flags, Index count) {
    Index i = 0, found = 0;
    for (; i + 8 <= count; i += 8) found += trues(eight_flags(flags + i)) * kOnes >> 56;
    for (; i < count; ++i) found += flags[i] != 0;
    return found;
}

}  // namespace fastgae
