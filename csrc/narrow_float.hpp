// 16-bit floats, and their conversion to float32, which represents each of them exactly, so nothing is rounded.
#pragma once

#include <cstdint>
#include <type_traits>

#include "bits.hpp"

namespace fastgae {

// Both hold bytes, because these numbers may be unaligned.
struct BFloat16 {  // the upper half of a float32
    unsigned char bytes[2];
};
struct Float16 {  // binary16 of IEEE 754
    unsigned char bytes[2];
};
template <class Number>
constexpr bool is_narrow_float = std::is_same_v<Number, BFloat16> || std::is_same_v<Number, Float16>;

// The float32 for a float16: sign | (size < kLeastNormal ? small : large), where
//     size   all bits but the sign
//     small  size times kLeastFloat16, which is not a subnormal float32, so no mode of the CPU makes it 0
//     large  (size << 13) + kRebias, and kRebias once more for infinity and NaN, from kInfinity on
constexpr int kLeastNormal = 0x400, kInfinity = 0x7c00, kRebias = (127 - 15) << 23;
constexpr float kLeastFloat16 = 1.0f / (1 << 24);

inline float widened(BFloat16 number) {
    return with_bits_of<float>(std::uint32_t(with_bits_of<std::uint16_t>(number)) << 16);
}

inline float widened(Float16 number) {
    const std::int32_t bits = with_bits_of<std::uint16_t>(number), size = bits & 0x7fff;
    const std::int32_t small = with_bits_of<std::int32_t>(static_cast<float>(size) * kLeastFloat16);
    // All bits or none, because compilers make vectors of these and not of branches.
    const std::int32_t special = -std::int32_t(size >= kInfinity), normal = -std::int32_t(size >= kLeastNormal);
    const std::int32_t large = (size << 13) + kRebias + (special & kRebias);
    const std::uint32_t sign = std::uint32_t(bits & 0x8000) << 16;
    return with_bits_of<float>(sign | std::uint32_t((normal & large) | (~normal & small)));
}

}  // namespace fastgae
