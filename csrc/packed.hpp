// Sequences end to end, as the rollout of one env whose episodes end with them. fastgae.gae_packed does the same.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "arguments.hpp"
#include "conversion.hpp"

namespace fastgae {

// Turns a call with cu_seqlens into one without, and owns the arrays that it makes.
class Packed {
public:
    explicit Packed(Call& call) : call_(call) {}
    Packed(const Packed&) = delete;  // the call points into it

    // Replace the arguments that mean something else in a rollout; false: declined.
    bool unpack() {
        const Operand& rewards = call_[kRewards];
        if (rewards.rank != 1 || call_.normalize == Normalize::per_env || !read_boundaries(rewards.shape[0]))
            return false;
        const std::uint8_t *exists = nullptr, *terminated = nullptr;
        if (!read_flags(kMask, exists) || !read_flags(kTerminated, terminated)) return false;
        find_ends(exists);
        for (const Argument place : {kGamma, kGaeLambda, kReturnsLambda})
            if (!repeat(call_.operands[place])) return false;
        const Operand last_values = call_[kLastValues];
        Operand& zero = call_.operands[kLastValues] = Operand();
        zero.given = zero.weak = true;
        zero.number = 0;  // never read, because the last sequence ends with a flag too
        if (last_values.given) {
            call_.operands[kTruncated] = array_of(ends_, Stored::boolean);
            never_.resize(terminated ? 0 : steps_);
            if (!terminated) call_.operands[kTerminated] = array_of(never_, Stored::boolean);
            return take_last_values(last_values);
        }
        for (Index t = 0; t < steps_ && terminated; ++t) ends_[t] |= terminated[t];
        call_.operands[kTerminated] = array_of(ends_, Stored::boolean);
        return true;
    }

private:
    bool read_boundaries(Index steps) {
        const Operand& given = call_[kCuSeqlens];
        if (given.stored < Stored::i8 || given.stored > Stored::u64 || given.rank != 1 || given.shape[0] == 0)
            return false;
        steps_ = steps;
        starts_.resize(given.shape[0]);
        convert(given, {1, 0, given.shape[0], given.strides[0]}, starts_.data());
        return starts_[0] == 0 && starts_.back() == steps && std::is_sorted(starts_.begin(), starts_.end());
    }

    // Point at the flags of every step, or at nothing if there are none; false: declined.
    bool read_flags(Argument place, const std::uint8_t*& flags) {
        const Operand& given = call_[place];
        if (!given.given) return true;
        if (given.rank != 1 || given.shape[0] != steps_) return false;
        flags = copies_.of<std::uint8_t>(given, {1, 0, steps_, given.strides[0]});
        return flags != nullptr;
    }

    // Flag the end of every sequence. It must be a step in the mask, because other flags are ignored.
    void find_ends(const std::uint8_t* exists) {
        ends_.resize(steps_);
        for (Index i = 0; i + 1 < Index(starts_.size()); ++i) {
            Index end = starts_[i + 1] - 1;
            while (exists && end >= starts_[i] && !exists[end]) --end;
            if (end < starts_[i]) continue;
            ends_[end] = 1;
            ended_.push_back(i);
        }
    }

    bool is_per_sequence(const Operand& given) const {
        return given.rank == 1 && given.shape[0] + 1 == Index(starts_.size());
    }

    // Repeat a coefficient of every sequence for its steps. Any other coefficient stays as it is.
    bool repeat(Operand& given) {
        if (!given.data || !is_per_sequence(given)) return true;
        const Index count = given.shape[0];
        const double* const numbers = copies_.of<double>(given, {1, 0, count, given.strides[0]});
        if (!numbers || !std::all_of(numbers, numbers + count, in_unit_interval)) return false;
        std::vector<double>& repeated = repeated_[repeated_count_++];
        repeated.reserve(steps_);
        for (Index i = 0; i < count; ++i) repeated.insert(repeated.end(), starts_[i + 1] - starts_[i], numbers[i]);
        given = array_of(repeated, Stored::f64);
        return true;
    }

    // Make the last values of those sequences that end the final values of truncated steps.
    bool take_last_values(const Operand& given) {
        if (!given.data || !is_per_sequence(given)) return false;
        last_values_.resize(ended_.size() * given.size);
        for (std::size_t i = 0; i < ended_.size(); ++i)
            std::memcpy(&last_values_[i * given.size], given.data + ended_[i] * given.strides[0], given.size);
        Operand& finals = call_.operands[kFinalValues] = array_of(last_values_, given.stored);
        finals.swapped = given.swapped;
        if (finals.swapped) finals.type = Type::other;
        return true;
    }

    template <class Element>
    Operand array_of(std::vector<Element>& elements, Stored stored) {
        Operand result;
        result.given = true;
        result.stored = stored;
        result.type = type_of_stored(stored);
        result.size = bytes_of(stored);
        result.rank = 1;
        result.data = reinterpret_cast<char*>(elements.data());
        Index* const axis = axes_[axes_count_++];
        axis[0] = Index(elements.size() * sizeof(Element)) / std::max<Index>(result.size, 1);
        axis[1] = result.size;
        result.shape = axis;
        result.strides = axis + 1;
        return result;
    }

    Call& call_;
    Index steps_ = 0;
    std::vector<Index> starts_, ended_;  // the boundaries, and which sequences have a step that exists
    std::vector<std::uint8_t> ends_, never_;
    std::vector<double> repeated_[3];
    std::vector<char> last_values_;
    Index axes_[6][2], axes_count_ = 0, repeated_count_ = 0;  // the shapes and strides of the arrays made here
    Copies copies_;
};

}  // namespace fastgae
