// One step of a rollout with options, on one vector:
//
//     plain                A = delta + gl A_next;  R = A + V
//     tail-normalized      A = G / D;  D = 1 + lambda D_next;  G = D delta + gl G_next;  R = A + V
//     V-trace              A = rho (delta + gl S_next);  S = rho' delta + (c gl) S_next;  R = S + V
//     lambda for returns   A as in the plain step;  S = delta + gl' S_next;  R = S + V
//
// rho, rho' and c are the importance ratio, clipped to the constants kAdvantageClip, kRhoClip and kCClip, and mixed
// with the ratio itself where kLeaky is not 0. Terms are gated as in recursion.inl. A step that does not exist passes
// on the numbers that it gets from the next step.

// The numbers of one step that multiply: its coefficients and its importance ratio.
enum Factor { kGamma, kGammaLambda, kReturnsGammaLambda, kTailLambda, kRatio, kFactors };

template <class Real>
const View<const Real>& factor_of(const RolloutWithOptions<Real>& rollout, Factor which) {
    switch (which) {
        case kGamma: return rollout.gammas;
        case kGammaLambda: return rollout.gamma_lambdas;
        case kReturnsGammaLambda: return rollout.returns_gamma_lambdas;
        case kTailLambda: return rollout.tail_lambdas;
        default: return rollout.ratios;
    }
}

// Which options a rollout has, beyond factors that vary. The compiler knows the options of the most common cases, a
// mask and V-trace; AllOptions are looked up at every step. With more_factors, a step reads other factors than gamma
// and gamma lambda. `blanks` says whether a step that does not exist gets A = 0 and R = V.
template <bool has_mask, bool carry_over = false>
struct MaskOnly {
    static constexpr bool mask = has_mask, returns_recursion = false, tail_normalized = false, ratios = false;
    static constexpr bool leaky = false, more_factors = false;
    static constexpr bool blanks() { return mask && !carry_over; }
};
template <bool has_leaky>
struct Ratios {
    static constexpr bool returns_recursion = false, tail_normalized = false, ratios = true;
    static constexpr bool leaky = has_leaky, more_factors = true;
    bool mask;
    bool blanks() const { return mask; }
};
struct AllOptions {
    bool mask, carry_over, returns_recursion, tail_normalized, ratios, leaky;
    static constexpr bool more_factors = true;
    bool blanks() const { return mask && !carry_over; }
};

// Call run with the options of the rollout.
template <class Real, class Run>
void with_options(const RolloutWithOptions<Real>& rollout, const Run& run) {
    const bool mask(rollout.mask), returns_recursion(rollout.returns_gamma_lambdas);
    const bool tail_normalized(rollout.tail_lambdas), ratios(rollout.ratios);
    const bool leaky = ratios && rollout.constants[kLeaky] != 0;
    if (returns_recursion || tail_normalized)
        return run(AllOptions{mask, rollout.carry_over, returns_recursion, tail_normalized, ratios, leaky});
    if (ratios) return leaky ? run(Ratios<true>{mask}) : run(Ratios<false>{mask});
    if (mask && rollout.carry_over) return run(MaskOnly<true, true>());
    mask ? run(MaskOnly<true>()) : run(MaskOnly<false>());
}

// The numbers that one step passes to the step before it: see State in kernels.hpp.
template <class V>
struct Carry {
    typename V::Type trace, steps_left, returns_trace;
};

template <class V>
struct StepResults {
    typename V::Type advantages, returns_minus_values;
};

template <class V>
FASTGAE_INLINE typename V::Type clipped(typename V::Real clip, typename V::Type ratio) {
    return V::smaller(V::all(clip), ratio);  // a NaN stays a NaN
}

// Compute one step, and update `carry` from the next step's to this step's. factor(which) loads a factor of this step;
// it is called only for factors that the options need.
template <class V, class Options, class LoadFactor>
FASTGAE_INLINE StepResults<V> step(const Options& options, const typename V::Real* constants, typename V::Type delta,
                                   typename V::Mask trace_open, typename V::Mask skipped, const LoadFactor& factor,
                                   Carry<V>& carry) {
    const auto unless_skipped = [&](auto here, auto next) FASTGAE_INLINE_LAMBDA {
        return options.mask ? V::select(skipped, next, here) : here;
    };
    const auto gamma_lambda = factor(kGammaLambda);
    StepResults<V> results;
    if (options.tail_normalized) {
        const auto left = advantage<V>(V::all(1), trace_open, factor(kTailLambda), carry.steps_left);
        carry.trace = unless_skipped(advantage<V>(left * delta, trace_open, gamma_lambda, carry.trace), carry.trace);
        carry.steps_left = unless_skipped(left, carry.steps_left);
        results.advantages = results.returns_minus_values = carry.trace / carry.steps_left;
    } else if (options.ratios) {
        const auto ratio = factor(kRatio);
        auto advantage_weight = clipped<V>(constants[kAdvantageClip], ratio);
        auto delta_weight = clipped<V>(constants[kRhoClip], ratio);
        auto trace_weight = clipped<V>(constants[kCClip], ratio);
        if (options.leaky) {
            const auto kept = V::all(1 - constants[kLeaky]), leaked = V::all(constants[kLeaky]) * ratio;
            advantage_weight = kept * advantage_weight + leaked;
            delta_weight = kept * delta_weight + leaked;
            trace_weight = kept * trace_weight + leaked;
        }
        results.advantages = advantage<V>(delta, trace_open, gamma_lambda, carry.trace) * advantage_weight;
        const auto trace = advantage<V>(delta_weight * delta, trace_open, trace_weight * gamma_lambda, carry.trace);
        carry.trace = unless_skipped(trace, carry.trace);
        results.returns_minus_values = carry.trace;
    } else {
        carry.trace = unless_skipped(advantage<V>(delta, trace_open, gamma_lambda, carry.trace), carry.trace);
        results.advantages = results.returns_minus_values = carry.trace;
    }
    if (options.returns_recursion) {
        const auto trace = advantage<V>(delta, trace_open, factor(kReturnsGammaLambda), carry.returns_trace);
        results.returns_minus_values = carry.returns_trace = unless_skipped(trace, carry.returns_trace);
    }
    return results;
}

// Store the wanted results of one vector at element i. If it blanks, a step that does not exist gets A = 0 and R = V;
// if not, it keeps the numbers that it passed on from the next step that exists.
template <class V>
FASTGAE_INLINE void store_results(bool blanks, typename V::Mask skipped, StepResults<V> results,
                                  typename V::Type values, Index i, typename V::Real* advantages,
                                  typename V::Real* returns) {
    if (blanks) {
        results.advantages = V::select(skipped, V::all(0), results.advantages);
        // Adding -0.0 changes no value, so R = V.
        results.returns_minus_values = V::select(skipped, V::all(typename V::Real(-0.0)), results.returns_minus_values);
    }
    if (advantages) V::store(advantages + i, results.advantages);
    if (returns) V::store(returns + i, results.returns_minus_values + values);
}
