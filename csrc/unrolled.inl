// The vectors of a target, of which another file has those for float and double.
template <class Real>
struct Vector;

// Unrolled loops over arrays of vectors. The indices are constants, so the arrays stay in registers even at -O2.

// Call body(0), body(1), … body(count - 1), each with its own std::integral_constant. A body that takes an int gets the
// same constants once it is inlined; one that takes `auto` is compiled anew for each of them.
template <class Body, int... i>
FASTGAE_INLINE void unrolled(std::integer_sequence<int, i...>, const Body& body) {
    (body(std::integral_constant<int, i>()), ...);
}
template <int count, class Body>
FASTGAE_INLINE void unrolled(const Body& body) {
    unrolled(std::make_integer_sequence<int, count>(), body);
}
