// Calls from compiled JAX programs: XLA calls the handler with pointers to its buffers, without Python and the GIL.
//
// The structs are the part of XLA's versioned C interface (xla/ffi/api/c_api.h) that the handler reads. Each begins
// with its size, so an older XLA is recognised. Nothing here uses Python, nor jaxlib's headers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arguments.hpp"

namespace fastgae::xla {

struct Extension {
    std::size_t struct_size;
    int type;
    Extension* next;
};
struct Version {
    std::size_t struct_size;
    Extension* extensions;
    int major, minor;
};
struct Metadata {
    std::size_t struct_size;
    Version version;
    std::uint32_t traits;
};
struct MetadataExtension {
    Extension base;
    Metadata* metadata;
};
struct NewError {
    std::size_t struct_size;
    Extension* extensions;
    const char* message;
    int code;
};
struct Api {
    std::size_t struct_size;
    Extension* extensions;
    Version version;
    const void* internal;
    void* (*create_error)(NewError*);
};
struct Buffer {
    std::size_t struct_size;
    Extension* extensions;
    int dtype;
    void* data;
    std::int64_t rank;
    std::int64_t* shape;
};
struct Buffers {
    std::size_t struct_size;
    Extension* extensions;
    std::int64_t size;
    int* types;
    Buffer** items;
};
struct Text {
    const char* begin;
    std::size_t size;
};
struct Attributes {
    std::size_t struct_size;
    Extension* extensions;
    std::int64_t size;
    int* types;
    Text** names;
    void** items;
};
struct Frame {
    std::size_t struct_size;
    Extension* extensions;
    const Api* api;
    void* context;
    int stage;
    Buffers arguments, results;
    Attributes attributes;
};

constexpr int kMetadataExtension = 1, kExecute = 3, kString = 4;
enum Code { kOk = 0, kInvalidArgument = 3, kResourceExhausted = 8 };

// How XLA's dtypes are stored, by their numbers.
inline constexpr Stored kStoredByXla[] = {
    Stored::other, Stored::boolean, Stored::i8,  Stored::i16, Stored::i32, Stored::i64, Stored::u8,
    Stored::u16,   Stored::u32,     Stored::u64, Stored::f16, Stored::f32, Stored::f64,
};

constexpr Stored stored_as(int dtype) {
    constexpr int bfloat16 = 16;
    if (dtype == bfloat16) return Stored::bf16;
    return dtype > 0 && dtype < static_cast<int>(std::size(kStoredByXla)) ? kStoredByXla[dtype] : Stored::other;
}

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
        static_assert(sizeof(Index) == sizeof(std::int64_t), "shapes are read in place");
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

// Return the text of the attribute `call`; none if there is no such attribute.
inline std::optional<std::string_view> key_of(const Frame& frame) {
    const Attributes& attributes = frame.attributes;
    for (std::int64_t i = 0; i < attributes.size; ++i) {
        const Text& name = *attributes.names[i];
        if (attributes.types[i] != kString || std::string_view(name.begin, name.size) != "call") continue;
        const Text& text = *static_cast<const Text*>(attributes.items[i]);
        return std::string_view(text.begin, text.size);
    }
    return std::nullopt;
}

// Answer the question for which version of the interface the handler was built; false: it is not that question.
inline bool say_version(Frame& frame, int minor) {
    for (Extension* extension = frame.extensions; extension; extension = extension->next)
        if (extension->type == kMetadataExtension) {
            Metadata& metadata = *reinterpret_cast<MetadataExtension*>(extension)->metadata;
            metadata.version.major = 0;
            metadata.version.minor = minor;
            metadata.traits = 0;
            return true;
        }
    return false;
}

inline void* error(const Frame& frame, const std::string& message, Code code) {
    NewError made{sizeof(NewError), nullptr, message.c_str(), code};
    return frame.api->create_error(&made);
}

}  // namespace fastgae::xla
