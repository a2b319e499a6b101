// Preloaded into a process, makes one allocation, or the creation of one thread, fail: which one is counted from arm()
// on. Counted are operator new of any size, and the C library's allocations of a page and more, which are those of
// array data. Of the latter, refuse_from() makes all fail that are large enough.
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <new>

extern "C" void* __libc_malloc(std::size_t);
extern "C" void* __libc_calloc(std::size_t, std::size_t);
extern "C" void* __libc_memalign(std::size_t, std::size_t);

namespace {

constexpr std::size_t kPage = 4096;
std::atomic<long> allocations_left{0}, threads_left{0}, failed{0};
std::atomic<std::size_t> refused_from{~std::size_t{0}};

// Whether this is the one that fails. Zero left: not armed.
bool fails(std::atomic<long>& left) {
    if (left.load(std::memory_order_relaxed) <= 0 || left.fetch_sub(1) != 1) return false;
    ++failed;
    return true;
}

void* allocated(std::size_t size, std::size_t alignment = 0) {
    if (fails(allocations_left)) return nullptr;
    return alignment ? __libc_memalign(alignment, size) : __libc_malloc(size ? size : 1);
}

void* or_throw(void* memory) {
    if (!memory) throw std::bad_alloc();
    return memory;
}

}  // namespace

extern "C" {

// The allocation and the thread that fail, counted from 1; 0: none.
void arm(long allocation, long thread) {
    failed = 0;
    allocations_left = allocation;
    threads_left = thread;
}

// How many have failed since.
long disarm() {
    allocations_left = threads_left = 0;
    return failed;
}

// From now on, no memory of so many bytes and more.
void refuse_from(std::size_t bytes) { refused_from = bytes; }

void* malloc(std::size_t size) {
    if (size >= refused_from || (size >= kPage && fails(allocations_left))) return errno = ENOMEM, nullptr;
    return __libc_malloc(size);
}

void* calloc(std::size_t count, std::size_t size) {
    if (size && count >= kPage / size && fails(allocations_left)) return errno = ENOMEM, nullptr;
    return __libc_calloc(count, size);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*), void* argument) {
    static const auto create = reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
    return fails(threads_left) ? EAGAIN : create(thread, attributes, run, argument);
}

}  // extern "C"

void* operator new(std::size_t size) { return or_throw(allocated(size)); }
void* operator new[](std::size_t size) { return or_throw(allocated(size)); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return allocated(size); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return allocated(size); }
void* operator new(std::size_t size, std::align_val_t alignment) {
    return or_throw(allocated(size, std::size_t(alignment)));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
    return or_throw(allocated(size, std::size_t(alignment)));
}
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
    return allocated(size, std::size_t(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
    return allocated(size, std::size_t(alignment));
}
