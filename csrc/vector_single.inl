// What is alike in all vectors.
template <class Element, int count>
struct VectorOf {
    using Real = Element;
    static constexpr int width = count;
    using Bits = std::conditional_t<sizeof(Real) == sizeof(std::int32_t), std::int32_t, std::int64_t>;
    static constexpr Bits all_bits = (1 << width) - 1;
};

// A vector of one number, for the ends of rows, and for CPUs without their own vector file.
template <class Element>
struct Single : VectorOf<Element, 1> {
    using typename VectorOf<Element, 1>::Real;
    using typename VectorOf<Element, 1>::Bits;
    using Type = Real;
    using Mask = bool;

    template <class Stored>
    static Type load(const Stored* from) {
        return *from;
    }
    template <class Stored>
    static void store(Stored* to, Type x) {
        *to = static_cast<Stored>(x);
    }
    static void stream(Real* to, Type x) { *to = x; }
    static Type all(Real x) { return x; }
    static Type smaller(Type a, Type b) { return a < b ? a : b; }
    static Mask at_least(Type a, Type b) { return a >= b; }

    static Mask zero_flags(const std::uint8_t* flags) { return *flags == 0; }
    static Mask both(Mask a, Mask b) { return a && b; }
    static Bits bits(Mask mask) { return mask; }
    static Type select(Mask mask, Type x, Type otherwise) { return mask ? x : otherwise; }
    static Bits load_bits(const Bits* from) { return *from; }
    static Mask bit(Bits bits, int k) { return bits >> k & 1; }

    static FASTGAE_INLINE void transpose(Type (&)[1]) {}
};
