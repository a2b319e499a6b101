// The recursion on one vector, of envs or of steps:
//
//     delta = (r + gamma V') - V     without the second term where terminated
//     A     = delta + gl A_next      without the second term where terminated or truncated
//     R     = A + V
//
// A term is left out by adding -0.0 in its place. This is the one number that changes nothing, not even the sign of a
// zero. So a NaN behind a closed gate has no effect, and every step takes the same few instructions.

// Which optional inputs a rollout has. A rollout with final values has truncated, too. Only the flat kernel knows here
// whether there is a mask.
template <bool has_truncated, bool has_final_values>
struct Inputs {
    static constexpr bool truncated = has_truncated, final_values = has_final_values, optional = false, mask = false;
};
template <class In>
struct WithMask : In {
    static constexpr bool mask = true;
};
// Flags of truncation, and perhaps final values, which are looked up where a step needs one.
struct AnyInputs : Inputs<true, true> {
    static constexpr bool optional = true;
};

// Which results are wanted.
template <bool has_advantages, bool has_returns>
struct Outputs {
    static constexpr bool advantages = has_advantages, returns = has_returns;
};

// Call run with the type that says which inputs the rollout has.
template <class Real, class Run>
auto with_inputs(const CanonicalRollout<Real>& rollout, const Run& run) {
    if (!rollout.truncated) return run(Inputs<false, false>{});
    if (!rollout.final_values) return run(Inputs<true, false>{});
    return run(Inputs<true, true>{});
}

// Call run with the type that says which results are wanted.
template <class Real, class Run>
auto with_outputs(const CanonicalRollout<Real>& rollout, const Run& run) {
    if (!rollout.returns) return run(Outputs<true, false>{});
    if (!rollout.advantages) return run(Outputs<false, true>{});
    return run(Outputs<true, true>{});
}

// Where a run of steps, or of envs, begins in every input.
template <class Real>
struct Pointers {
    const Real *rewards, *values, *next_values, *final_values;
    const std::uint8_t *terminated, *truncated;
};

// Return the inputs of a rollout from step t of env n on; V' begins at `next_values`. Inputs that In excludes are null.
template <class In, class Real>
FASTGAE_INLINE Pointers<Real> pointers_at(const CanonicalRollout<Real>& rollout, Index t, Index n,
                                          const Real* next_values) {
    const Real* const final_values = In::final_values ? rollout.final_values.at(t, n) : nullptr;
    const std::uint8_t* const truncated = In::truncated ? rollout.truncated.at(t, n) : nullptr;
    const std::uint8_t* const terminated = rollout.terminated.at(t, n);
    return {rollout.rewards.at(t, n), rollout.values.at(t, n), next_values, final_values, terminated, truncated};
}

template <class V>
struct Deltas {
    typename V::Type one_step_return, values, delta;  // delta = one-step return - V
    typename V::Mask trace_open;                      // neither terminated nor truncated
};

template <class V>
FASTGAE_INLINE typename V::Type gated(typename V::Mask open, typename V::Type term) {
    return V::select(open, term, V::all(typename V::Real(-0.0)));
}

// Return the deltas of the vector at element i. `to_next_values` turns the vector loaded from next_values into V',
// for callers whose V' does not lie there.
template <class V, class In, class ToNextValues>
FASTGAE_INLINE Deltas<V> deltas(const Pointers<typename V::Real>& at, Index i, typename V::Type gamma,
                                const ToNextValues& to_next_values) {
    const auto bootstrap_open = V::zero_flags(at.terminated + i);
    auto trace_open = bootstrap_open;
    auto next = to_next_values(V::load(at.next_values + i));
    if constexpr (In::truncated) {
        const auto continues = V::zero_flags(at.truncated + i);
        trace_open = V::both(bootstrap_open, continues);
        if constexpr (In::final_values) {
            // Truncation is rare, so final values are read only where a step of the vector needs one.
            const bool needed = V::bits(continues) != V::all_bits && (!In::optional || at.final_values);
            if (needed) next = V::select(continues, next, V::load(at.final_values + i));
        }
    }
    const auto one_step_return = V::load(at.rewards + i) + gated<V>(bootstrap_open, gamma * next);
    const auto value = V::load(at.values + i);
    return {one_step_return, value, one_step_return - value, trace_open};
}

template <class V, class In>
FASTGAE_INLINE Deltas<V> deltas(const Pointers<typename V::Real>& at, Index i, typename V::Type gamma) {
    return deltas<V, In>(at, i, gamma, [](auto next) { return next; });
}

template <class V>
FASTGAE_INLINE typename V::Type advantage(typename V::Type delta, typename V::Mask trace_open,
                                          typename V::Type gamma_lambda, typename V::Type next_advantage) {
    return delta + gated<V>(trace_open, gamma_lambda * next_advantage);
}

// Turn the values of the next steps in `width` rows into V', which is V of the next step that exists. `skipped` holds
// a row of numbers for each vector of steps, whose bits say which of them do not exist; `exists`, whether the steps
// after them do. `carry` holds V' of those before the call, and V' of the first steps afterwards.
template <class V>
FASTGAE_INLINE void pass_down(typename V::Real* rows, Index pitch, Index steps, const typename V::Bits* skipped,
                              Index bits_pitch, const std::uint8_t* exists, typename V::Real* carry) {
    auto passed = V::load(carry);
    auto skip = V::zero_flags(exists);
    for (Index k = steps - V::width; k >= 0; k -= V::width) {
        typename V::Type x[V::width];
        unrolled<V::width>([&](int i) FASTGAE_INLINE_LAMBDA { x[i] = V::load(rows + i * pitch + k); });
        V::transpose(x);
        const auto bits = V::load_bits(skipped + k / V::width * bits_pitch);
        unrolled<V::width>([&](int i) FASTGAE_INLINE_LAMBDA {
            const int step = V::width - 1 - i;
            x[step] = passed = V::select(skip, passed, x[step]);
            skip = V::bit(bits, step);
        });
        V::transpose(x);
        unrolled<V::width>([&](int i) FASTGAE_INLINE_LAMBDA { V::store(rows + i * pitch + k, x[i]); });
    }
    V::store(carry, passed);
}

// Store the results of `count` vectors side by side, from element i on.
template <class V, class Out, int count>
FASTGAE_INLINE void store(typename V::Real* advantages, typename V::Real* returns, Index i,
                          const typename V::Type (&a)[count], const typename V::Type (&r)[count]) {
    if constexpr (Out::advantages)
        unrolled<count>([&](int k) FASTGAE_INLINE_LAMBDA { V::store(advantages + i + k * V::width, a[k]); });
    if constexpr (Out::returns)
        unrolled<count>([&](int k) FASTGAE_INLINE_LAMBDA { V::store(returns + i + k * V::width, r[k]); });
}
