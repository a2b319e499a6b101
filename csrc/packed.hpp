// Turns a small call with packed sequences into the call of one env whose episodes end with them. Calls that are
// declined here go the same way in packed.py of Python's _canonical, which knows every case and takes 3 us more.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "arguments.hpp"
#include "conversion.hpp"
#include "tuning.hpp"

namespace fastgae {

class OneEnv {
public:
    // Replace cu_seqlens, the flags and the last values of a call; false: declined.
    bool replace(Call& call) {
        Operand* const given = call.operands;
        const Operand boundaries = given[kCuSeqlens], last_values = given[kLastValues], mask = given[kMask];
        const bool known = boundaries.stored == Stored::i32 || boundaries.stored == Stored::i64;
        if (given[kRewards].rank != 1 || call.normalize == Normalize::per_env) return false;
        if (!known || boundaries.swapped || boundaries.rank != 1 || boundaries.shape[0] < 2) return false;
        total_ = given[kRewards].shape[0];
        const Index sequences = boundaries.shape[0] - 1;
        if (std::max(total_, sequences) > kSmallSteps) return false;
        if (last_values.given && (last_values.rank != 1 || last_values.shape[0] != sequences)) return false;
        if ((given[kTerminated].given && !has_flags(given[kTerminated])) || (mask.given && !has_flags(mask)))
            return false;

        const auto boundary = [&](Index i) -> std::int64_t {
            const auto load = [&](auto number) -> std::int64_t {
                std::memcpy(&number, boundaries.data + i * boundaries.strides[0], sizeof number);
                return number;
            };
            return boundaries.stored == Stored::i32 ? load(std::int32_t()) : load(std::int64_t());
        };
        const char* const flags = given[kTerminated].data;
        terminated_.assign(total_, 0);
        if (flags) std::copy_n(flags, total_, terminated_.begin());
        if (last_values.given) truncated_.assign(total_, 0);
        std::vector<std::uint8_t>& ends = last_values.given ? truncated_ : terminated_;
        std::int64_t begin = boundary(0);
        if (begin != 0) return false;
        for (Index i = 1; i <= sequences; ++i) {
            const std::int64_t end = boundary(i);
            if (end < begin || end > total_) return false;
            std::int64_t last = end - 1;  // flags of other steps than those in the mask are ignored
            while (last >= begin && mask.given && !mask.data[last]) --last;
            if (last >= begin)
                ends[last] = 1;
            else if (last_values.given)
                return false;  // each of the others belongs to a step
            begin = end;
        }
        if (begin != total_) return false;

        given[kCuSeqlens] = Operand();
        given[kTerminated] = as_operand(terminated_);
        given[kLastValues] = Operand();  // never read, because sequences end with a flag
        given[kLastValues].given = given[kLastValues].weak = true;
        given[kLastValues].number = 0;
        if (!last_values.given) return true;
        given[kTruncated] = as_operand(truncated_);
        given[kFinalValues] = last_values;
        return true;
    }

private:
    bool has_flags(const Operand& given) const {
        return given.type == Type::flag && given.rank == 1 && given.shape[0] == total_ && given.strides[0] == 1;
    }

    Operand as_operand(std::vector<std::uint8_t>& flags) const {
        Operand result;
        result.given = true;
        result.data = reinterpret_cast<char*>(flags.data());
        result.shape = &total_;
        result.strides = &kStride;
        result.rank = 1;
        result.size = 1;
        result.stored = Stored::boolean;
        result.type = Type::flag;
        return result;
    }

    static constexpr Index kStride = 1;
    Index total_ = 0;
    std::vector<std::uint8_t> terminated_, truncated_;
};

}  // namespace fastgae
