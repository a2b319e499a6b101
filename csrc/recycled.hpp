// Memory of results that the caller has dropped, kept for the next results of the same size. Fresh memory costs a page
// fault for every 4 KiB, which can take longer than the recursion itself.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>

#include "tuning.hpp"

namespace fastgae {

// Where memory comes from, and where it goes when it is not kept.
struct MemorySource {
    void* (*allocate)(std::size_t bytes);
    void (*free)(void* memory);
};

// Round up to one of eight sizes between two powers of two, so that packed sequences whose total changes a little from
// call to call find memory that fits. The bytes after the requested ones are never touched.
inline std::size_t size_class(std::size_t bytes) {
    std::size_t step = 64;
    while (bytes / step >= 16) step *= 2;
    return (bytes + step - 1) / step * step;
}

// The store. A block is in it or with one caller, never both. The lock is held for some instructions or some calls of
// free(), never while Python runs.
class RecycledMemory {
public:
    struct Counts {
        std::size_t limit, held, hits, misses;
    };

    explicit RecycledMemory(MemorySource source) : source_(source) {}

    // Return memory of this many bytes, at the beginning of a cache line; null if there is none.
    void* take(std::size_t bytes) {
        const std::size_t capacity = size_class(bytes);
        if (void* const kept = taken_from_store(capacity)) return kept;
        void* const start = source_.allocate(capacity + kOverhead);
        if (!start) return nullptr;
        const std::uintptr_t data = (reinterpret_cast<std::uintptr_t>(start) + kOverhead) / kLine * kLine;
        return new (reinterpret_cast<Header*>(data) - 1) Header{start, capacity} + 1;
    }

    // Keep memory that nobody uses any more. The memory that has waited longest makes room for it.
    void give_back(void* data) {
        if (!data) return;
        const std::size_t capacity = header_of(data)->capacity;
        const std::lock_guard<std::mutex> locked(mutex_);
        if (capacity < kLeastRecycled || capacity > counts_.limit) return release(data);
        while (number_ == kMost || counts_.held + capacity > counts_.limit) release_oldest();
        blocks_[number_++] = {data, capacity};
        counts_.held += capacity;
    }

    // Return whether dropped memory of this many bytes is worth keeping.
    bool keeps(std::size_t bytes) { return bytes >= kLeastRecycled && counts().limit > 0; }

    // Keep at most this many bytes from now on; 0 empties the store and keeps nothing.
    void set_limit(std::size_t bytes) {
        const std::lock_guard<std::mutex> locked(mutex_);
        counts_.limit = bytes;
        while (counts_.held > bytes) release_oldest();
    }

    Counts counts() {
        const std::lock_guard<std::mutex> locked(mutex_);
        return counts_;
    }

    // A fork waits for the lock, because the child could never take it if another thread held it. The child begins with
    // an empty store: to write to memory that it shares with its parent costs more than to get fresh memory.
    void lock_for_fork() { mutex_.lock(); }
    void unlock_in_parent() { mutex_.unlock(); }
    void unlock_in_child() {
        while (number_) release_oldest();
        counts_ = {counts_.limit, 0, 0, 0};
        mutex_.unlock();
    }

private:
    static constexpr std::size_t kLine = 64;
    // Stands before the data.
    struct Header {
        void* start;
        std::size_t capacity;
    };
    static constexpr std::size_t kOverhead = sizeof(Header) + kLine - 1;
    struct Block {
        void* data;
        std::size_t capacity;  // as in the header, which lies on a page that may have left the caches
    };
    static constexpr int kMost = 64;  // blocks, so that looking for one takes no time to speak of

    static Header* header_of(void* data) { return static_cast<Header*>(data) - 1; }

    // The newest block is the likeliest to be in the caches.
    void* taken_from_store(std::size_t capacity) {
        if (capacity < kLeastRecycled) return nullptr;
        const std::lock_guard<std::mutex> locked(mutex_);
        for (int i = number_ - 1; i >= 0; --i)
            if (blocks_[i].capacity == capacity) {
                ++counts_.hits;
                return removed(i);
            }
        ++counts_.misses;
        return nullptr;
    }

    void* removed(int i) {
        const Block block = blocks_[i];
        std::copy(blocks_ + i + 1, blocks_ + number_--, blocks_ + i);
        counts_.held -= block.capacity;
        return block.data;
    }

    void release_oldest() { release(removed(0)); }

    void release(void* data) { source_.free(header_of(data)->start); }

    const MemorySource source_;
    std::mutex mutex_;
    Block blocks_[kMost];  // the oldest first
    int number_ = 0;
    Counts counts_ = {0, 0, 0, 0};
};

// Some bytes of recycled memory for as long as this object lives.
class RecycledBlock {
public:
    RecycledBlock(RecycledMemory& memory, std::size_t bytes) : memory_(memory), data_(memory.take(bytes)) {
        if (!data_) throw std::bad_alloc();
    }
    RecycledBlock(const RecycledBlock&) = delete;
    ~RecycledBlock() { memory_.give_back(data_); }
    void* data() const { return data_; }

private:
    RecycledMemory& memory_;
    void* data_;
};

}  // namespace fastgae
