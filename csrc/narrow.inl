// Convert 16-bit floats to float32.

template <class Narrow>
void widen(const void* from, Index count, Index ahead, float* to) {
    using V = Vector<float>;
    const auto* const narrow = static_cast<const Narrow*>(from);
    constexpr Index line = kLine<Narrow>;
    Index n = count;
    while (n >= line) {
        n -= line;
        prefetch(reinterpret_cast<const char*>(narrow + n) + ahead);
        unrolled<line / V::width>(
            [&](auto k) FASTGAE_INLINE_LAMBDA { V::store(to + n + k * V::width, V::load(narrow + n + k * V::width)); });
    }
    for (; n > 0; --n) to[n - 1] = widened(narrow[n - 1]);
}
