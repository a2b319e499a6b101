// The recursion on one vector, of envs or of steps:
//
//     delta = (r + gamma V') - V     the bootstrap left out where terminated
//     A     = delta + gl A_next      the trace left out where terminated or truncated
//     R     = A + V
//
// A term is left out by adding -0.0, the one number that changes nothing, not even the sign of a zero. So what stands
// behind a closed gate has no effect, and every step is the same few instructions.

// Which optional arrays a rollout has. Final values come only with truncated.
template <bool has_truncated, bool has_final_values>
struct Inputs {
    static constexpr bool truncated = has_truncated, final_values = has_final_values;
};

// Which results are wanted.
template <bool has_advantages, bool has_returns>
struct Outputs {
    static constexpr bool advantages = has_advantages, returns = has_returns;
};

// Calls run with the type that says which inputs, or which outputs, there are.
template <class Real, class Run>
auto with_inputs(const Rollout<Real>& rollout, const Run& run) {
    if (!rollout.truncated) return run(Inputs<false, false>{});
    if (!rollout.final_values && !rollout.sparse_finals) return run(Inputs<true, false>{});
    return run(Inputs<true, true>{});
}

template <class Real, class Run>
auto with_outputs(const Rollout<Real>& rollout, const Run& run) {
    if (!rollout.returns) return run(Outputs<true, false>{});
    if (!rollout.advantages) return run(Outputs<false, true>{});
    return run(Outputs<true, true>{});
}

// Where a run of steps or envs begins in every array.
template <class Real>
struct Pointers {
    const Real *rewards, *values, *next_values, *final_values;
    const std::uint8_t *terminated, *truncated;
};

template <class V>
struct Deltas {
    typename V::Type delta, values;
    typename V::Mask trace;  // where the trace gate is open
};

template <class V>
FASTGAE_INLINE typename V::Type gated(typename V::Mask open, typename V::Type term) {
    return V::select(open, term, V::all(typename V::Real(-0.0)));
}

// `following` turns what lies at next_values into V', where that is not the same.
template <class V, class In, class Following>
FASTGAE_INLINE Deltas<V> deltas(const Pointers<typename V::Real>& at, Index i, typename V::Type gamma,
                                const Following& following) {
    const auto bootstrap = V::zero_flags(at.terminated + i);
    auto trace = bootstrap;
    auto next = following(V::load(at.next_values + i));
    if constexpr (In::truncated) {
        const auto continues = V::zero_flags(at.truncated + i);
        trace = V::both(bootstrap, continues);
        if constexpr (In::final_values) {
            // Truncation is rare: final values are touched only where one is needed.
            if (V::bits(continues) != V::all_bits) next = V::select(continues, next, V::load(at.final_values + i));
        }
    }
    const auto value = V::load(at.values + i);
    return {(V::load(at.rewards + i) + gated<V>(bootstrap, gamma * next)) - value, value, trace};
}

template <class V, class In>
FASTGAE_INLINE Deltas<V> deltas(const Pointers<typename V::Real>& at, Index i, typename V::Type gamma) {
    return deltas<V, In>(at, i, gamma, [](auto next) { return next; });
}

template <class V>
FASTGAE_INLINE typename V::Type advantage(typename V::Type delta, typename V::Mask trace, typename V::Type gamma_lambda,
                                  typename V::Type following) {
    return delta + gated<V>(trace, gamma_lambda * following);
}

// The results of `count` vectors side by side from i on.
template <class V, class Out, int count>
FASTGAE_INLINE void store(typename V::Real* advantages, typename V::Real* returns, Index i,
                          const typename V::Type (&a)[count], const typename V::Type (&values)[count]) {
    if constexpr (Out::advantages) unrolled<count>([&](auto k) { V::store(advantages + i + k * V::width, a[k]); });
    if constexpr (Out::returns)
        unrolled<count>([&](auto k) { V::store(returns + i + k * V::width, a[k] + values[k]); });
}

template <class Real>
constexpr Index kLine = 64 / sizeof(Real);  // elements of a cache line

// Elements from here to the next cache line.
template <class Real>
FASTGAE_INLINE Index to_line(const Real* pointer) {
    return -reinterpret_cast<std::uintptr_t>(pointer) % 64 / sizeof(Real);
}

// One array of results, past the caches: a, or a + values, of [first, last). One array at a time, in long runs: two
// streams by turns can meet in one bank of the memory, which then opens another page for every line (8 times slower).
template <bool add_values, class Real>
void stream(Real* to, const Real* a, const Real* values, Index first, Index last) {
    using V = Vector<Real>;
    const auto single = [&](Index i) { to[i] = add_values ? a[i] + values[i] : a[i]; };
    for (const Index line = first + to_line(to + first); first < last && first < line; ++first) single(first);
    for (; first + kLine<Real> <= last; first += kLine<Real>) {
        unrolled<kLine<Real> / V::width>([&](auto k) {
            const Index i = first + k * V::width;
            auto x = V::load(a + i);
            if constexpr (add_values) x = x + V::load(values + i);
            V::stream(to + i, x);
        });
    }
    for (; first < last; ++first) single(first);
}

template <class Out, class Real>
void stream(Real* advantages, Real* returns, const Real* a, const Real* values, Index first, Index last) {
    if constexpr (Out::advantages) stream<false>(advantages, a, values, first, last);
    if constexpr (Out::returns) stream<true>(returns, a, values, first, last);
}

// The line that lies `bytes` below a pointer, whether or not it is mapped.
FASTGAE_INLINE void prefetch_below(const void* pointer, Index bytes) {
#if defined(__GNUC__)
    __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(pointer) - bytes));
#else
    (void)pointer, (void)bytes;
#endif
}
