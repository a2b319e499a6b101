// Loops that must not be loops, because their arrays are registers.

// body(0), body(1), … body(count - 1), each with its own constant.
template <class Body, int... i>
FASTGAE_INLINE void unrolled(std::integer_sequence<int, i...>, const Body& body) {
    (body(std::integral_constant<int, i>()), ...);
}
template <int count, class Body>
FASTGAE_INLINE void unrolled(const Body& body) {
    unrolled(std::make_integer_sequence<int, count>(), body);
}
