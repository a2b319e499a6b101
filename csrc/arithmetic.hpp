// The modes of the CPU's arithmetic in one thread: rounding, and whether denormal numbers are flushed to 0.
#pragma once

#include <cstdint>

#if defined(__SSE__) || defined(_M_X64)
#include <xmmintrin.h>
#elif !defined(__aarch64__)
#include <cfenv>
#endif

namespace fastgae {

// While it lives, its thread computes as IEEE 754 says: it rounds to nearest, and keeps denormal numbers. XLA's threads
// flush them, and a user's program may have set anything.
class IeeeArithmetic {
public:
    IeeeArithmetic() : modes_(modes()) { set(kDefault); }
    ~IeeeArithmetic() { set(modes_); }
    IeeeArithmetic(const IeeeArithmetic&) = delete;
    IeeeArithmetic& operator=(const IeeeArithmetic&) = delete;

private:
#if defined(__SSE__) || defined(_M_X64)
    using Modes = unsigned;
    static constexpr Modes kDefault = 0x1f80;  // no exception traps
    static Modes modes() { return _mm_getcsr(); }
    static void set(Modes modes) { _mm_setcsr(modes); }
#elif defined(__aarch64__)
    using Modes = std::uint64_t;
    static constexpr Modes kDefault = 0;
    static Modes modes() {
        Modes modes;
        __asm__ volatile("mrs %0, fpcr" : "=r"(modes));
        return modes;
    }
    static void set(Modes modes) { __asm__ volatile("msr fpcr, %0" : : "r"(modes)); }
#else
    using Modes = int;  // no other CPU that XLA runs on flushes denormal numbers
    static constexpr Modes kDefault = FE_TONEAREST;
    static Modes modes() { return std::fegetround(); }
    static void set(Modes modes) { std::fesetround(modes); }
#endif
    const Modes modes_;
};

}  // namespace fastgae
