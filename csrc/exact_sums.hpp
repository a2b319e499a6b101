// Exact sums of numbers and of their squares: sums of integers, which are the same in every order of additions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "bits.hpp"
#include "flags.hpp"
#include "kernels.hpp"
#include "tuning.hpp"

namespace fastgae {

// A finite number is an integer times a power of two, which its exponent gives. The integer and its square are cut into
// digits of this many bits, and each digit is added up in a bin of 64 bits, one for each exponent and sign. A bin has
// room for the digits of 2^37 numbers, and 2^36 numbers fit into the signed bins that write() makes.
constexpr int kDigitBits = 27;
constexpr std::uint64_t kDigit = (std::uint64_t(1) << kDigitBits) - 1;

// How the numbers of a type are stored, and how many digits they have. The digits of the number come before the digits
// of its square, the lowest first.
template <class Real>
struct ExactFormat;

template <>
struct ExactFormat<float> {
    static constexpr int fraction_bits = 23, number_digits = 1, digits = 3;
    // Numbers take turns between two tables, because an addition to a bin waits for the one before. Zen 5, a million
    // numbers of one exponent: 3.1 ns each with one table, 1.9 with two, 1.7 with four.
    static constexpr int tables = 2;

    static void add(std::uint64_t integer, std::uint64_t* bin) {
        const std::uint64_t square = integer * integer;  // of 48 bits
        bin[0] += integer;
        bin[1] += square & kDigit;
        bin[2] += square >> kDigitBits;
    }
};

template <>
struct ExactFormat<double> {
    static constexpr int fraction_bits = 52, number_digits = 2, digits = 6;
    static constexpr int tables = 1;  // six additions take longer than the wait for the last one: 2.4 ns in all

    static void add(std::uint64_t integer, std::uint64_t* bin) {
        const std::uint64_t low = integer & kDigit, high = integer >> kDigitBits;
        const std::uint64_t square0 = low * low;
        const std::uint64_t square1 = 2 * low * high + (square0 >> kDigitBits);  // less than 2^55
        const std::uint64_t square2 = high * high + (square1 >> kDigitBits);     // less than 2^53
        bin[0] += low;
        bin[1] += high;
        bin[2] += square0 & kDigit;
        bin[3] += square1 & kDigit;
        bin[4] += square2 & kDigit;
        bin[5] += square2 >> kDigitBits;
    }
};

// Adds up the numbers of matrices. The constructor allocates all memory.
template <class Real>
class ExactSums {
public:
    using Format = ExactFormat<Real>;
    static constexpr Index exponents = Index(1) << (8 * sizeof(Real) - 1 - Format::fraction_bits);

    Index count = 0, nans = 0, infinities[2] = {};  // of all steps that exist; positive infinities before negative ones

    ExactSums() : bins_(Format::tables * 2 * exponents * Format::digits) {}

    // Add the steps that exist.
    void add(const MaskedMatrix<Real>& of) {
        Index rows = of.env_major ? of.envs : of.steps, length = of.env_major ? of.steps : of.envs;
        const Index stride = of.env_major ? of.matrix.env : of.matrix.step;
        const Index mask_stride = of.env_major ? of.mask.env : of.mask.step;
        if (stride == length && (!of.mask || mask_stride == length)) {  // without gaps, all rows are one
            length *= rows;
            rows = 1;
        }
        for (Index row = 0; row < rows; ++row)
            for (Index first = 0; first < length; first += kExactRun) {
                const Real* const x = of.matrix.data + row * stride + first;
                const std::uint8_t* const mask = of.mask ? of.mask.data + row * mask_stride + first : nullptr;
                add_run(x, mask, std::min(kExactRun, length - first));
            }
    }

    // Write (exponents, digits): for each exponent the digits of the sum, and the digits of the sum of squares.
    void write(std::int64_t* to) const {
        for (Index exponent = 0; exponent < exponents; ++exponent)
            for (Index digit = 0; digit < Format::digits; ++digit) {
                std::int64_t signs[2] = {};
                for (Index i = 0; i < 2 * Format::tables; ++i)
                    signs[i % 2] += static_cast<std::int64_t>(bin(i, exponent)[digit]);
                *to++ = digit < Format::number_digits ? signs[0] - signs[1] : signs[0] + signs[1];
            }
    }

private:
    using Bits = BitsOf<Real>;

    // Table i / 2 has the bins of positive numbers if i is even, and the bins of negative numbers if i is odd.
    Index place(Index i, Index exponent) const { return (i * exponents + exponent) * Format::digits; }
    const std::uint64_t* bin(Index i, Index exponent) const { return bins_.data() + place(i, exponent); }

    void add_run(const Real* x, const std::uint8_t* mask, Index length) {
        mask ? add_to_bins<true>(x, mask, length) : add_to_bins<false>(x, mask, length);
        count += mask ? count_trues(mask, length) : length;
        if (!forget_last_exponent()) return;
        for (Index i = 0; i < length; ++i) {
            if (mask && !mask[i]) continue;
            nans += std::isnan(x[i]);
            if (std::isinf(x[i])) ++infinities[x[i] < 0];
        }
    }

    template <bool masked>
    void add_to_bins(const Real* x, const std::uint8_t* mask, Index length) {
        // The first bit of every number that is not subnormal.
        constexpr Bits hidden = Bits(1) << Format::fraction_bits;
        for (Index i = 0; i < length; ++i) {
            Bits bits = bits_of(x[i]);
            if constexpr (masked) bits &= -Bits(mask[i] != 0);    // a step that does not exist adds 0
            const Bits exponent = bits >> Format::fraction_bits;  // and the sign
            const Bits integer = (bits & (hidden - 1)) | (exponent % exponents ? hidden : 0);
            Format::add(integer, bins_.data() + place(i % Format::tables * 2, static_cast<Index>(exponent)));
        }
    }

    // NaN and infinity have the last exponent. Empty its bins, and return whether they held any number. Only runs with
    // such numbers are searched, because they are rare.
    bool forget_last_exponent() {
        std::uint64_t found = 0;
        for (Index i = 0; i < 2 * Format::tables; ++i)
            for (Index digit = 0; digit < Format::digits; ++digit)
                found |= std::exchange(bins_[place(i, exponents - 1) + digit], 0);
        return found != 0;
    }

    std::vector<std::uint64_t> bins_;  // of each table, sign, exponent and digit
};

}  // namespace fastgae
