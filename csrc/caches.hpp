// The sizes of this CPU's caches, as it reports them itself.
#pragma once

#include <algorithm>

#include "kernels.hpp"

#if defined(_M_X64)
#include <intrin.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#elif defined(__linux__)
#include <unistd.h>
#endif

namespace fastgae {

// Bytes of the caches for data; 0 if the CPU does not report them. A cache that cores share counts as a whole.
struct CacheSizes {
    Index l1d = 0, l2 = 0, l3 = 0;
};

#if defined(__x86_64__) || defined(_M_X64)
// The result of the instruction CPUID; all 0 if the CPU does not know the leaf.
struct CpuId {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    CpuId(unsigned leaf, unsigned subleaf) {
#if defined(_M_X64)
        int registers[4];
        __cpuid(registers, static_cast<int>(leaf & 0x80000000u));
        if (static_cast<unsigned>(registers[0]) < leaf) return;
        __cpuidex(registers, static_cast<int>(leaf), static_cast<int>(subleaf));
        eax = registers[0], ebx = registers[1], ecx = registers[2], edx = registers[3];
#else
        __get_cpuid_count(leaf, subleaf, &eax, &ebx, &ecx, &edx);
#endif
    }
};

// Intel describes one cache in every subleaf of leaf 4, and AMD does so in leaf 0x8000001D, in the same form.
inline CacheSizes reported_cache_sizes() {
    CacheSizes sizes;
    for (const unsigned leaf : {4u, 0x8000001Du}) {
        for (unsigned subleaf = 0; subleaf < 16; ++subleaf) {
            const CpuId cache(leaf, subleaf);
            const unsigned type = cache.eax & 31, level = cache.eax >> 5 & 7;
            if (type == 0) break;     // there are no more caches
            if (type == 2) continue;  // it holds instructions only
            const Index ways = (cache.ebx >> 22) + 1, partitions = (cache.ebx >> 12 & 1023) + 1;
            const Index line = (cache.ebx & 4095) + 1, sets = Index(cache.ecx) + 1;
            const Index bytes = ways * partitions * line * sets;
            if (level == 1) sizes.l1d = bytes;
            if (level == 2) sizes.l2 = bytes;
            if (level == 3) sizes.l3 = bytes;
        }
    }
    return sizes;
}
#elif defined(__linux__) && defined(_SC_LEVEL1_DCACHE_SIZE)
inline CacheSizes reported_cache_sizes() {
    const auto bytes = [](int name) { return std::max<Index>(0, sysconf(name)); };
    return {bytes(_SC_LEVEL1_DCACHE_SIZE), bytes(_SC_LEVEL2_CACHE_SIZE), bytes(_SC_LEVEL3_CACHE_SIZE)};
}
#else
inline CacheSizes reported_cache_sizes() { return {}; }
#endif

// Read once, when the module is loaded: under a hypervisor, every CPUID takes some microseconds.
inline const CacheSizes cache_sizes = reported_cache_sizes();

}  // namespace fastgae
