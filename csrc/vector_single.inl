// A vector of one lane: what is left over at the edges, and all there is where no other file knows the CPU.

template <class Element>
struct Single {
    static constexpr int width = 1;
    using Real = Element;
    using Type = Real;
    using Mask = bool;
    using Bits = std::conditional_t<sizeof(Real) == sizeof(std::int32_t), std::int32_t, std::int64_t>;
    static constexpr Bits all_bits = 1;

    static Type load(const Real* from) { return *from; }
    static void store(Real* to, Type x) { *to = x; }
    static void stream(Real* to, Type x) { *to = x; }
    static void fence() {}
    static Type all(Real x) { return x; }

    static Mask zero_flags(const std::uint8_t* flags) { return *flags == 0; }
    static Mask both(Mask a, Mask b) { return a && b; }
    static Bits bits(Mask mask) { return mask; }
    static Type select(Mask mask, Type x, Type otherwise) { return mask ? x : otherwise; }
    static Bits load_bits(const Bits* from) { return *from; }
    static Mask bit(Bits bits, int k) { return bits >> k & 1; }

    static FASTGAE_INLINE void transpose(Type (&)[1]) {}
};
