// Calls from compiled JAX programs: XLA calls the handler with pointers to its buffers, without Python and the GIL.
//
// The structs are the part of XLA's versioned C interface (xla/ffi/api/c_api.h) that the handler reads. Each begins
// with its size, so an older XLA is recognised. Nothing here uses Python, nor jaxlib's headers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

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
enum Code { kInvalidArgument = 3, kResourceExhausted = 8 };

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
