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

// Which results are wanted, and whether they are streamed past the caches.
template <bool has_advantages, bool has_returns, bool is_streamed>
struct Outputs {
    static constexpr bool advantages = has_advantages, returns = has_returns, streamed = is_streamed;
};

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

template <class V, class In>
FASTGAE_INLINE Deltas<V> deltas(const Pointers<typename V::Real>& at, Index i, typename V::Type gamma) {
    const auto bootstrap = V::zero_flags(at.terminated + i);
    auto trace = bootstrap;
    auto next = V::load(at.next_values + i);
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

template <class V>
FASTGAE_INLINE typename V::Type advantage(typename V::Type delta, typename V::Mask trace, typename V::Type gamma_lambda,
                                  typename V::Type following) {
    return delta + gated<V>(trace, gamma_lambda * following);
}

template <class V, class Out>
FASTGAE_INLINE void put(typename V::Real* to, typename V::Type x) {
    if constexpr (Out::streamed) V::stream(to, x);
    else V::store(to, x);
}

template <class V, class Out>
FASTGAE_INLINE void put_results(typename V::Real* advantages, typename V::Real* returns, Index i, typename V::Type advantage,
                        typename V::Type value) {
    if constexpr (Out::advantages) put<V, Out>(advantages + i, advantage);
    if constexpr (Out::returns) put<V, Out>(returns + i, advantage + value);
}

template <class Real>
constexpr Index kLine = 64 / sizeof(Real);  // elements of a cache line

template <class Real>
FASTGAE_INLINE bool at_line(const Real* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer) % 64 == 0;
}

// The line that lies `bytes` below a pointer, whether or not it is mapped.
FASTGAE_INLINE void prefetch_below(const void* pointer, Index bytes) {
#if defined(__GNUC__)
    __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(pointer) - bytes));
#else
    (void)pointer, (void)bytes;
#endif
}
