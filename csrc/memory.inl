// How the kernels walk contiguous memory: vector by vector, by cache lines, with prefetches and streaming stores.

template <class Real>
constexpr Index kLine = 64 / sizeof(Real);  // elements of a cache line

// Prefetch the cache line of a pointer into a level of the caches. The address need not be mapped. GCC takes a function
// that only prefetches for one that does nothing, and drops its calls; the empty assembly keeps them.
template <int level = 1>
FASTGAE_INLINE void prefetch(const void* pointer) {
#if defined(__GNUC__)
    __builtin_prefetch(pointer, 0, level == 1 ? 3 : 2);
    __asm__ volatile("");
#else
    (void)pointer;
#endif
}

// Prefetch the cache line `bytes` below a pointer.
template <int level = 1>
FASTGAE_INLINE void prefetch_below(const void* pointer, Index bytes) {
    prefetch<level>(reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(pointer) - bytes));
}

// Call work with the level of the caches into which a way prefetches as a constant, if there is one.
template <class Work>
FASTGAE_INLINE void with_level(int way, const Work& work) {
    if (way == 1)
        work(std::integral_constant<int, 1>());
    else if (way >= 2)
        work(std::integral_constant<int, 2>());
}

// Call body(V(), i) for the elements [first, last), from the last to the first. V is the type of the vector that begins
// at element i: the target's vector, or Single where fewer elements are left.
template <class Real, class Body>
FASTGAE_INLINE void for_each_vector(Index first, Index last, const Body& body) {
    using V = Vector<Real>;
    Index n = last;
    while (n - first >= kLine<Real>) {
        n -= kLine<Real>;
        unrolled<kLine<Real> / V::width>([&](int k) FASTGAE_INLINE_LAMBDA { body(V(), n + k * V::width); });
    }
    if constexpr (V::width < kLine<Real>)
        while (n - first >= V::width) body(V(), n -= V::width);
    while (n > first) body(Single<Real>(), --n);
}

// Write a, or a + values, to the elements [first, last) of one result with streaming stores. Each call writes one
// result only, in a long run: stores that alternate between two results can meet in one bank of the memory, which then
// opens another page for every line (8 times slower).
template <bool add_values, class Real>
FASTGAE_INLINE void stream(Real* to, const Real* a, const Real* values, Index first, Index last) {
    using V = Vector<Real>;
    const auto single = [&](Index i) { to[i] = add_values ? a[i] + values[i] : a[i]; };
    for (const Index line = first + to_line(to + first); first < last && first < line; ++first) single(first);
    for (; first + kLine<Real> <= last; first += kLine<Real>) {
        unrolled<kLine<Real> / V::width>([&](int k) FASTGAE_INLINE_LAMBDA {
            const Index i = first + k * V::width;
            auto x = V::load(a + i);
            if constexpr (add_values) x = x + V::load(values + i);
            V::stream(to + i, x);
        });
    }
    for (; first < last; ++first) single(first);
}

// Stream the elements [begin, end), and move `end` down to where they begin. If more will follow below, the elements of
// the lowest cache line wait for the rest of that line.
template <bool add_values, class Real>
FASTGAE_INLINE void stream_down(Real* to, const Real* a, const Real* values, Index begin, Index& end, bool more) {
    if (more) begin += to_line(to + begin);
    if (begin >= end) return;
    stream<add_values>(to, a, values, begin, end);
    end = begin;
}
