// Convert 16-bit floats to float32.

template <class Narrow>
void widen(const void* from, Index count, float* to) {
    const auto* const narrow = static_cast<const Narrow*>(from);
    for_each_vector<float>(0, count,
                           [&](auto v, Index i) FASTGAE_INLINE_LAMBDA { v.store(to + i, v.load(narrow + i)); });
}
