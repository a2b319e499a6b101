// The store of recycled memory without Python: threads take, fill and give back; what is alive never changes.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "../../csrc/recycled.hpp"

using namespace fastgae;

namespace {

std::atomic<long> allocated{0}, allocations{0};
std::atomic<bool> failing{false};

void* allocate(std::size_t bytes) {
    if (failing) return nullptr;
    ++allocated;
    ++allocations;
    return std::malloc(bytes);
}

void release(void* memory) {
    --allocated;
    std::free(memory);
}

RecycledMemory& memory = *new RecycledMemory({allocate, release});

void demand(bool right, const char* what) {
    if (right) return;
    std::printf("wrong: %s\n", what);
    std::exit(1);
}

// One array: every byte of it holds its own number.
struct Alive {
    unsigned char* data;
    std::size_t bytes;
    unsigned char number;

    bool is_intact() const {
        for (std::size_t i = 0; i < bytes; ++i)
            if (data[i] != number) return false;
        return true;
    }
};

void play(unsigned seed, int rounds) {
    std::mt19937 random(seed);
    const auto up_to = [&](std::size_t most) { return static_cast<std::size_t>(random()) % most; };
    std::vector<Alive> alive;
    for (int i = 0; i < rounds; ++i) {
        const std::size_t bytes = up_to(2) ? up_to(3 * kLeastRecycled) : kLeastRecycled + up_to(64);
        auto* const data = static_cast<unsigned char*>(memory.take(bytes));
        demand(data && reinterpret_cast<std::uintptr_t>(data) % 64 == 0, "memory at the beginning of a cache line");
        alive.push_back({data, bytes, static_cast<unsigned char>(random())});
        std::memset(data, alive.back().number, bytes);
        while (alive.size() > 6 || up_to(3) == 0) {
            if (alive.empty()) break;
            Alive& one = alive[up_to(alive.size())];
            demand(one.is_intact(), "the bytes of an array that was alive");
            memory.give_back(one.data);
            one = alive.back();
            alive.pop_back();
        }
    }
    for (const Alive& one : alive) {
        demand(one.is_intact(), "the bytes of an array at the end");
        memory.give_back(one.data);
    }
}

void sizes() {
    for (std::size_t bytes = 0; bytes < 100'000; ++bytes) {
        const std::size_t size = size_class(bytes);
        demand(size >= bytes && size - bytes <= std::max<std::size_t>(bytes / 8, 63), "a size that is little larger");
        demand(size_class(size) == size, "a size that is its own class");
    }
    for (int power = 9; power < 48; ++power)
        demand(size_class(std::size_t(1) << power) == std::size_t(1) << power, "a power of two, without waste");
}

void limits() {
    memory.set_limit(4 * kLeastRecycled);
    void* blocks[6];
    for (void*& block : blocks) block = memory.take(kLeastRecycled);
    for (void* block : blocks) memory.give_back(block);
    demand(memory.counts().held == 4 * kLeastRecycled, "the limit");
    demand(memory.take(kLeastRecycled) == blocks[5], "the newest block, which is the likeliest to be in the caches");
    memory.give_back(blocks[5]);
    memory.give_back(memory.take(2 * kLeastRecycled));
    demand(memory.counts().held == 4 * kLeastRecycled, "the limit with two sizes");
    for (int i = 5; i > 3; --i) demand(memory.take(kLeastRecycled) == blocks[i], "the oldest went first");
    for (int i = 5; i > 3; --i) memory.give_back(blocks[i]);
    memory.give_back(nullptr);

    memory.set_limit(1000 * kLeastRecycled);
    std::vector<void*> many(100);
    for (void*& block : many) block = memory.take(kLeastRecycled);
    for (void* block : many) memory.give_back(block);
    demand(memory.counts().held == 64 * kLeastRecycled, "few blocks, because each is looked at");

    failing = true;
    demand(!memory.take(7 * kLeastRecycled), "no memory");
    void* const kept = memory.take(kLeastRecycled);
    demand(kept, "kept memory where there is no other");
    failing = false;
    memory.give_back(kept);
    memory.set_limit(0);
    demand(memory.counts().held == 0 && allocated == 0, "an empty store");
}

void forks() {
    memory.set_limit(4 * kLeastRecycled);
    void* const alive = memory.take(kLeastRecycled);
    memory.give_back(memory.take(2 * kLeastRecycled));
    memory.lock_for_fork();
    memory.unlock_in_parent();
    demand(memory.counts().held == 2 * kLeastRecycled, "the parent's store");
    memory.lock_for_fork();
    memory.unlock_in_child();
    const RecycledMemory::Counts counts = memory.counts();
    demand(counts.held + counts.hits + counts.misses == 0 && counts.limit, "the child's store");
    memory.give_back(alive);
    demand(memory.counts().held == kLeastRecycled, "what the child drops");
    memory.set_limit(0);
}

}  // namespace

int main(int, char** arguments) {
    sizes();
    limits();
    forks();
    const int rounds = std::atoi(arguments[1]);
    memory.set_limit(20 * kLeastRecycled);
    std::vector<std::thread> threads;
    for (unsigned seed = 0; seed < 4; ++seed) threads.emplace_back(play, seed, rounds);
    threads.emplace_back([&] {
        for (int i = 0; i < rounds; ++i) memory.set_limit(i % 5 * 5 * kLeastRecycled);
        memory.set_limit(20 * kLeastRecycled);
    });
    for (std::thread& thread : threads) thread.join();
    const RecycledMemory::Counts counts = memory.counts();
    demand(counts.hits > 0 && counts.misses > 0, "hits and misses");
    memory.set_limit(0);
    demand(allocated == 0, "everything given back");
    std::printf("%ld allocations, %zu hits: right\n", allocations.load(), counts.hits);
}
