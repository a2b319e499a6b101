// Calls that the short cut has accepted once, and that compiled programs make again with other arrays, without Python.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arguments.hpp"
#include "call_reader.hpp"
#include "fill.hpp"
#include "threads.hpp"
#include "xla.hpp"

namespace fastgae::xla {

// A call that the short cut has accepted once, without its arrays: what every execution of a program has in common.
struct Recorded {
    Call call;
    std::vector<std::pair<Argument, Index>> inputs;  // the argument that each buffer is, and its rank in one call
    Index outputs[2] = {-1, -1};                     // the buffers of advantages and returns; -1: none
    Index threads = 1, large_threads = 1;            // of small and of large rollouts
    const Target* target = nullptr;
};

// The recorded calls by their keys. A recorded call is never changed or removed.
class Records {
public:
    const Recorded* find(std::string_view key) const {
        const std::shared_lock<std::shared_mutex> locked(mutex_);
        const auto found = records_.find(key);
        return found == records_.end() ? nullptr : &found->second;
    }
    void add(const std::string& key, const Recorded& call) {
        const std::unique_lock<std::shared_mutex> locked(mutex_);
        if (records_.size() < kMost) records_.emplace(key, call);
    }

private:
    static constexpr std::size_t kMost = 10000;  // programs that are never alike must not fill the memory
    mutable std::shared_mutex mutex_;
    std::map<std::string, Recorded, std::less<>> records_;
};

constexpr Index kMostAxes = 8;  // of one call
using Strides = Index[kMostAxes];

// Finds the arrays of each call of a batch: the batch axes of a buffer come before the axes that it has in one call,
// and have length 1 where all calls share it.
class Batch {
public:
    Batch(const Frame& frame, const Recorded& recorded)
        : arguments_(frame.arguments), inputs_(recorded.inputs), shape_(frame.results.items[0]->shape) {
        rank_ = frame.results.items[0]->rank - inputs_[0].second;
    }

    // Return whether the buffers have the ranks of the recorded call, or all have the same batch axes.
    bool fits() const {
        for (std::int64_t i = 0; i < arguments_.size; ++i)
            if (inputs_[i].second > kMostAxes || arguments_.items[i]->rank != inputs_[i].second + rank_) return false;
        return rank_ >= 0;
    }

    Index calls() const {
        Index count = 1;
        for (Index axis = 0; axis < rank_; ++axis) count *= shape_[axis];
        return count;
    }

    // Return an argument of one call. Its strides, those of C order, are written to `strides`.
    Operand argument(std::int64_t number, Index call, Strides& strides) const {
        const Buffer& buffer = *arguments_.items[number];
        Index index = 0, stride = 1;
        for (Index axis = rank_ - 1; axis >= 0; --axis) {
            if (buffer.shape[axis] != 1) index += call % shape_[axis] * stride;
            stride *= buffer.shape[axis];
            call /= shape_[axis];
        }
        return one(buffer, index, strides);
    }

    // Return a result of one call.
    Operand result(const Buffer& buffer, Index call, Strides& strides) const {
        Operand operand = one(buffer, call, strides);
        operand.writeable = true;
        return operand;
    }

private:
    Operand one(const Buffer& buffer, Index index, Strides& strides) const {
        Operand operand;
        operand.given = true;
        operand.stored = stored_as(buffer.dtype);
        operand.type = type_of_stored(operand.stored);
        operand.size = bytes_of(operand.stored);
        operand.rank = static_cast<std::int16_t>(buffer.rank - rank_);
        operand.shape = reinterpret_cast<const Index*>(buffer.shape) + rank_;
        Index stride = operand.size;
        for (Index axis = operand.rank - 1; axis >= 0; --axis) {
            strides[axis] = stride;
            stride *= operand.shape[axis];
        }
        operand.strides = strides;
        operand.data = static_cast<char*>(buffer.data) + index * stride;
        return operand;
    }

    const Buffers& arguments_;
    const std::vector<std::pair<Argument, Index>>& inputs_;
    const std::int64_t* shape_;
    Index rank_;
};

// Compute one call; false: declined.
template <class Real>
bool compute_one(const Call& call, const Operand& advantages, const Operand& returns, const How& how) {
    CallReader<Real> reader(call, how.threads, how.memory);
    return reader.read_layout() && fill(call, reader, advantages, returns, how);
}

// Compute all calls of a batch by their record; false: declined.
inline bool compute(const Frame& frame, const Recorded& recorded, RecycledMemory& memory) {
    const Batch batch(frame, recorded);
    if (!batch.fits()) return false;
    Strides strides[kArguments + 2];
    const Index calls = batch.calls();
    for (Index number = 0; number < calls; ++number) {
        Call call = recorded.call;
        Operand results[2];
        for (std::size_t i = 0; i < recorded.inputs.size(); ++i) {
            const Argument place = recorded.inputs[i].first;
            call.operands[place] = batch.argument(i, number, strides[i]);
            read_number(call.operands[place]);
        }
        for (int i = 0; i < 2; ++i)
            if (const Index place = recorded.outputs[i]; place >= 0)
                results[i] = batch.result(*frame.results.items[place], number, strides[recorded.inputs.size() + i]);
        const Index threads = worth_threads(call[kRewards].elements()) ? recorded.large_threads : recorded.threads;
        const Type type = working_type(call);
        if (type == Type::other ||
            !(type == Type::f32 ? compute_one<float> : compute_one<double>)(call, results[0], results[1],
                                                                            {*recorded.target, threads, memory}))
            return false;
    }
    return true;
}

}  // namespace fastgae::xla
