// Sequences end to end, as the rollout of one env in which an episode ends at the end of each sequence.
// fastgae.gae_packed does the same.
#pragma once

#include <algorithm>
#include <cstring>
#include <list>
#include <vector>

#include "arguments.hpp"
#include "conversion.hpp"
#include "recycled.hpp"

namespace fastgae {

// One flag for each step, all of them 0 at first. They are in recycled memory, because the page faults of fresh memory
// take longer than to fill it.
class StepFlags {
public:
    StepFlags(RecycledMemory& memory, Index steps) : block_(memory, steps) { std::memset(data(), 0, steps); }
    std::uint8_t* data() { return static_cast<std::uint8_t*>(block_.data()); }

private:
    RecycledBlock block_;
};

// Turns a call with cu_seqlens into a call without it, and owns the arrays that it creates.
class Packed {
public:
    Packed(Call& call, RecycledMemory& memory) : call_(call), memory_(memory) {}
    Packed(const Packed&) = delete;  // the call points into it

    // Replace the arguments that have another meaning in a rollout; false: declined.
    bool unpack() {
        const Operand& rewards = call_[kRewards];
        if (rewards.rank != 1 || call_.normalize == Normalize::per_env || !read_boundaries(rewards.shape[0]))
            return false;
        const std::uint8_t* exists = nullptr;
        if (!read_mask(exists)) return false;
        find_ends(exists);
        for (const Argument place : {kGamma, kGaeLambda, kReturnsLambda})
            if (!repeat(call_.operands[place])) return false;
        const Operand last_values =
            call_[kLastValues].is_number() ? repeated_number(call_[kLastValues].number) : call_[kLastValues];
        Operand &zero = call_.operands[kLastValues] = Operand(), &terminated = call_.operands[kTerminated];
        zero.given = zero.weak = true;
        zero.number = 0;  // never read, because the last sequence ends with a flag too
        StepFlags& ends = flags_.emplace_back(memory_, steps_);
        if (!last_values.given && terminated.given && !copy_flags(terminated, ends.data())) return false;
        for (const Index step : last_steps_) ends.data()[step] = 1;
        (last_values.given ? call_.operands[kTruncated] : terminated) = flags(ends);
        if (!last_values.given) return true;
        if (!terminated.given) terminated = flags(flags_.emplace_back(memory_, steps_));
        call_.truncated_steps = last_steps_.data();
        return take_last_values(last_values);
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

    // Copy the flags of every step; false: declined.
    bool copy_flags(const Operand& given, std::uint8_t* to) const {
        if (given.rank != 1 || given.shape[0] != steps_) return false;
        if (given.type != Type::flag || given.strides[0] != 1)
            return convert(given, {1, 0, steps_, given.strides[0]}, to);
        std::memcpy(to, given.data, steps_);
        return true;
    }

    // Point at the mask, or at nothing if there is none; false: declined.
    bool read_mask(const std::uint8_t*& exists) {
        const Operand& given = call_[kMask];
        if (!given.given) return true;
        StepFlags& copy = flags_.emplace_back(memory_, steps_);
        exists = copy.data();
        return copy_flags(given, copy.data());
    }

    // Find the last step of every sequence. It must be in the mask, because the flags of other steps are ignored.
    void find_ends(const std::uint8_t* exists) {
        ended_.reserve(starts_.size());
        last_steps_.reserve(starts_.size());
        for (Index i = 0; i + 1 < Index(starts_.size()); ++i) {
            Index end = starts_[i + 1] - 1;
            while (exists && end >= starts_[i] && !exists[end]) --end;
            if (end < starts_[i]) continue;
            last_steps_.push_back(end);
            ended_.push_back(i);
        }
    }

    bool has_one_for_each(const Operand& given) const { return given.shape[0] + 1 == Index(starts_.size()); }

    // Repeat a coefficient of shape (sequences, 1) for the steps of each. Any other coefficient stays as it is.
    bool repeat(Operand& given) {
        if (!given.data || given.rank != 2 || given.shape[1] != 1 || !has_one_for_each(given)) return true;
        const Index count = given.shape[0];
        const double* const numbers = copies_.of<double>(given, {1, 0, count, given.strides[0]});
        if (!numbers || !std::all_of(numbers, numbers + count, in_unit_interval)) return false;
        std::vector<double>& repeated = repeated_[repeated_count_++];
        repeated.reserve(steps_);
        for (Index i = 0; i < count; ++i) repeated.insert(repeated.end(), starts_[i + 1] - starts_[i], numbers[i]);
        given = array_of(repeated.data(), steps_, Stored::f64);
        return true;
    }

    // Return one number for every sequence, in the type of the results, on which a single number has no effect.
    Operand repeated_number(double number) {
        const bool single = working_type(call_) == Type::f32;
        single_ = static_cast<float>(number);
        wide_ = number;
        void* const data = single ? static_cast<void*>(&single_) : &wide_;
        Operand result = array_of(data, starts_.size() - 1, single ? Stored::f32 : Stored::f64);
        axes_[axes_count_ - 1][1] = 0;
        return result;
    }

    // Use the last values of sequences that have a step as the final values of truncated steps.
    bool take_last_values(const Operand& given) {
        if (!given.data || given.stored == Stored::other || given.rank != 1 || !has_one_for_each(given)) return false;
        last_values_.resize(ended_.size() * given.size);
        for (std::size_t i = 0; i < ended_.size(); ++i)
            std::memcpy(&last_values_[i * given.size], given.data + ended_[i] * given.strides[0], given.size);
        Operand& finals = call_.operands[kFinalValues] = array_of(last_values_.data(), ended_.size(), given.stored);
        finals.swapped = given.swapped;
        if (finals.swapped) finals.type = Type::other;
        return true;
    }

    Operand flags(StepFlags& flags) { return array_of(flags.data(), steps_, Stored::boolean); }

    Operand array_of(void* data, Index count, Stored stored) {
        Operand result;
        result.given = true;
        result.stored = stored;
        result.type = type_of_stored(stored);
        result.size = bytes_of(stored);
        result.rank = 1;
        result.data = static_cast<char*>(data);
        Index* const axis = axes_[axes_count_++];
        axis[0] = count;
        axis[1] = result.size;
        result.shape = axis;
        result.strides = axis + 1;
        return result;
    }

    Call& call_;
    RecycledMemory& memory_;
    Index steps_ = 0;
    // The boundaries, which sequences have a step that exists, and the last such step of each of them.
    std::vector<Index> starts_, ended_, last_steps_;
    std::list<StepFlags> flags_;
    std::vector<double> repeated_[3];
    std::vector<char> last_values_;
    float single_;  // one last value for every sequence, in both types of results
    double wide_;
    Index axes_[7][2], axes_count_ = 0, repeated_count_ = 0;  // the shapes and strides of the arrays made here
    Copies copies_;
};

}  // namespace fastgae
