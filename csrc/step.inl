// One step of a rollout with options, on one vector:
//
//     plain                A = delta + gl A_next;  R = A + V
//     tail-normalized      A = G / D;  D = 1 + lambda D_next;  G = D delta + gl G_next;  R = A + V
//     V-trace              A = rho (delta + gl S_next);  S = rho' delta + (c gl) S_next;  R = S + V
//     lambda for returns   A as in the plain step;  S = delta + gl' S_next;  R = S + V
//
// rho, rho' and c are the importance ratio, clipped to the constants kAdvantageClip, kRhoClip and kCClip, and mixed
// with the ratio itself where kLeaky is not 0. Terms are gated as in recursion.inl. A step that does not exist passes
// on what it gets from the next step.

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

// Which options a rollout has, beyond factors that vary. The compiler knows the members of MaskOnly, the most common
// case; those of AllOptions are looked up at every step.
template <bool has_mask>
struct MaskOnly {
    static constexpr bool mask = has_mask, returns_recursion = false, tail_normalized = false, ratios = false;
    static constexpr bool leaky = false;
};
struct AllOptions {
    bool mask, returns_recursion, tail_normalized, ratios, leaky;
};

// Call run with the options of the rollout.
template <class Real, class Run>
void with_options(const RolloutWithOptions<Real>& rollout, const Run& run) {
    const AllOptions all = {bool(rollout.mask), bool(rollout.returns_gamma_lambdas), bool(rollout.tail_lambdas),
                            bool(rollout.ratios), rollout.constants[kLeaky] != 0};
    if (all.returns_recursion || all.tail_normalized || all.ratios) return run(all);
    all.mask ? run(MaskOnly<true>()) : run(MaskOnly<false>());
}

// What one step passes to the step before it: see State in kernels.hpp.
template <class V>
struct Carry {
    typename V::Type trace, steps_left, returns_trace;
};

template <class V>
struct StepResults {
    typename V::Type advantages, returns_minus_values;
};

// Return (1 - leaky) min(ratio, clip) + leaky ratio. A NaN stays a NaN.
template <class V>
FASTGAE_INLINE typename V::Type weight(bool is_leaky, const typename V::Real* constants, Constant clip,
                                       typename V::Type ratio) {
    const auto clipped = V::smaller(V::all(constants[clip]), ratio);
    if (!is_leaky) return clipped;
    const auto leaky = constants[kLeaky];
    return V::all(1 - leaky) * clipped + V::all(leaky) * ratio;
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
        results.advantages = advantage<V>(delta, trace_open, gamma_lambda, carry.trace) *
                             weight<V>(options.leaky, constants, kAdvantageClip, ratio);
        const auto weighted = weight<V>(options.leaky, constants, kRhoClip, ratio) * delta;
        const auto decay = weight<V>(options.leaky, constants, kCClip, ratio) * gamma_lambda;
        carry.trace = unless_skipped(advantage<V>(weighted, trace_open, decay, carry.trace), carry.trace);
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

// Store the wanted results of one vector at element i. A step that does not exist gets A = 0 and R = V.
template <class V>
FASTGAE_INLINE void store_results(bool has_mask, typename V::Mask skipped, StepResults<V> results,
                                  typename V::Type values, Index i, typename V::Real* advantages,
                                  typename V::Real* returns) {
    if (has_mask) {
        results.advantages = V::select(skipped, V::all(0), results.advantages);
        // Adding -0.0 changes no value, so R = V.
        results.returns_minus_values = V::select(skipped, V::all(typename V::Real(-0.0)), results.returns_minus_values);
    }
    if (advantages) V::store(advantages + i, results.advantages);
    if (returns) V::store(returns + i, results.returns_minus_values + values);
}
