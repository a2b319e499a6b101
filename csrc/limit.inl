// The limit that benchmarks compare kernels with: an addition does nothing but move memory. Streaming stores write a
// line without reading it first, so it moves 12 bytes per float32.

// Set to[i] = a[i] + b[i]. It prefetches nothing, because the hardware prefetches three plain streams itself: 50 GB/s
// without on a Zen 5, 40 to 46 with prefetches 1 or 4 KiB ahead.
template <class Real>
void streaming_add(const Real* a, const Real* b, Real* to, Index count) {
    using V = Vector<Real>;
    Index i = 0;
    for (const Index line = std::min(to_line(to), count); i < line; ++i) to[i] = a[i] + b[i];
    for (; i + kLine<Real> <= count; i += kLine<Real>)
        unrolled<kLine<Real> / V::width>([&](auto k) FASTGAE_INLINE_LAMBDA {
            const Index at = i + k * V::width;
            V::stream(to + at, V::load(a + at) + V::load(b + at));
        });
    for (; i < count; ++i) to[i] = a[i] + b[i];
    V::fence();
}
