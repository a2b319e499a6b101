// One step of the recursion, with its options, on one vector:
//
//     plain                A = delta + gl A_next;  R = A + V
//     tail-normalized      A = G / D;  D = 1 + lambda D_next;  G = D delta + gl G_next;  R = A + V
//     V-trace              A = rho (delta + gl S_next);  S = rho' delta + (c gl) S_next;  R = S + V
//     lambda for returns   A as in the plain step;  S = delta + gl' S_next;  R = S + V
//     Retrace              as the plain step, but gl = gamma c_next, where c = lambda min(ratio, 1) in float64
//     upgo                 as the plain step, but the second term is left out unless delta_next >= 0
//
// rho, rho' and c are the importance ratio, clipped to the constants kAdvantageClip, kRhoClip and kCClip, and mixed
// with the ratio itself where kLeaky is not 0. Terms are gated as in recursion.inl. A step that does not exist passes
// on the numbers that it gets from the next step.

// The numbers of one step that multiply: its coefficients and its importance ratio.
enum Factor { kGamma, kGammaLambda, kReturnsGammaLambda, kTailLambda, kRatio, kFactors };
static_assert(kRatio == kFactors - 1, "rows and lanes keep the factors before kRatio in arrays");

template <class Real>
const View<const Real>& factor_of(const CanonicalRollout<Real>& rollout, Factor which) {
    using Rollout = CanonicalRollout<Real>;
    constexpr View<const Real> Rollout::* factors[] = {&Rollout::gammas, &Rollout::gamma_lambdas,
                                                       &Rollout::returns_gamma_lambdas, &Rollout::tail_lambdas,
                                                       &Rollout::ratios};
    static_assert(sizeof factors / sizeof *factors == kFactors, "one view for each factor");
    return rollout.*factors[which];
}

// Which options a rollout has. A kernel looks up those that its type leaves open, and reads coefficients from arrays,
// even where they do not vary.
struct Options {
    static constexpr bool plain = false, common = false, arrays = true;
    bool mask, carry_over, retrace, upgo, ratios, leaky, numbers, returns_recursion, tail_normalized;

    template <class Real>
    explicit Options(const CanonicalRollout<Real>& rollout)
        : mask(rollout.mask), carry_over(rollout.carry_over), retrace(rollout.recursion == Recursion::retrace),
          upgo(rollout.recursion == Recursion::upgo), ratios(rollout.is_vtrace()),
          leaky(ratios && rollout.constants[kLeaky] != 0), numbers(rollout.has_numbers() && !retrace),
          returns_recursion(rollout.returns_gamma_lambdas), tail_normalized(rollout.tail_lambdas) {}

    // Return whether A = 0 and R = V where a step does not exist.
    bool blanks() const { return mask && !carry_over; }
    // Return whether R - V is another number than A, also where a step exists.
    bool separate() const { return ratios || returns_recursion; }
};

// Options of which the compiler knows all. `arrays`: gamma or gamma lambda varies. With the common ones, it also knows
// the inputs of a row.
enum class Masked { no, blanks, carries_over };
template <Masked masked, bool has_ratios, bool has_arrays>
struct KnownOptions : Options {
    static constexpr bool plain = masked == Masked::no && !has_ratios && !has_arrays;
    static constexpr bool common = (masked == Masked::blanks) + has_ratios + has_arrays == 1;
    static constexpr bool mask = masked != Masked::no, ratios = has_ratios, leaky = false, arrays = has_arrays;
    static constexpr bool returns_recursion = false, tail_normalized = false, upgo = false;
    static constexpr bool blanks() { return masked == Masked::blanks; }
    static constexpr bool separate() { return ratios; }
};
using NoOptions = KnownOptions<Masked::no, false, false>;
// Half of the time that a step takes if it looks that up.
struct OnlyUpgo : NoOptions {
    static constexpr bool plain = false, upgo = true;
};

// All other options. A step looks up those that every estimator may have.
template <bool has_ratios, bool is_tail_normalized>
struct OptionsOf : Options {
    static constexpr bool ratios = has_ratios, tail_normalized = is_tail_normalized;
};

// Call run with the type of the options.
template <class Run>
auto with_options(const Options& options, const Run& run) {
    const bool known = !(options.returns_recursion || options.tail_normalized || options.leaky || options.upgo);
    if (known && !options.ratios && options.numbers) {
        if (!options.mask) return run(NoOptions{options});
        if (options.blanks()) return run(KnownOptions<Masked::blanks, false, false>{options});
        return run(KnownOptions<Masked::carries_over, false, false>{options});
    }
    if (known && (options.numbers || !options.ratios) && !options.carry_over) {
        if (!options.mask && options.ratios) return run(KnownOptions<Masked::no, true, false>{options});
        if (!options.mask) return run(KnownOptions<Masked::no, false, true>{options});
        if (options.ratios) return run(KnownOptions<Masked::blanks, true, false>{options});
        return run(KnownOptions<Masked::blanks, false, true>{options});
    }
    if (options.upgo && options.numbers && !options.mask) return run(OnlyUpgo{options});
    if (options.tail_normalized) return run(OptionsOf<false, true>{options});
    return options.ratios ? run(OptionsOf<true, false>{options}) : run(OptionsOf<false, false>{options});
}

// The numbers of a whole call, in a copy that no store can change, so that they stay in registers.
template <class Real>
struct Numbers {
    Real gamma, gamma_lambda, constants[kConstants];
    explicit Numbers(const CanonicalRollout<Real>& rollout)
        : gamma(*rollout.gammas.data), gamma_lambda(*rollout.gamma_lambdas.data) {
        std::copy_n(rollout.constants, kConstants, constants);
    }
};

// The states of many lanes or envs: a row of numbers for each State.
template <class Real>
struct States {
    Real* data;
    Index stride;
    Real* of(State state) const { return data + state * stride; }
};

// The states that one step passes to the step before it, of one vector. V' is passed on elsewhere.
template <class V>
struct Carry {
    typename V::Type trace, steps_left, returns_trace, rises;
};

template <class V, class Known>
FASTGAE_INLINE Carry<V> load_carry(const Known& options, const States<typename V::Real>& states, Index i) {
    return {V::load(states.of(kTrace) + i), options.tail_normalized ? V::load(states.of(kStepsLeft) + i) : V::all(0),
            options.returns_recursion ? V::load(states.of(kReturnsTrace) + i) : V::all(0),
            options.upgo ? V::load(states.of(kRises) + i) : V::all(0)};
}

template <class V, class Known>
FASTGAE_INLINE void store_carry(const Known& options, const Carry<V>& carry, const States<typename V::Real>& states,
                                Index i) {
    V::store(states.of(kTrace) + i, carry.trace);
    if (options.tail_normalized) V::store(states.of(kStepsLeft) + i, carry.steps_left);
    if (options.returns_recursion) V::store(states.of(kReturnsTrace) + i, carry.returns_trace);
    if (options.upgo) V::store(states.of(kRises) + i, carry.rises);
}

template <class V>
struct StepResults {
    typename V::Type advantages, returns_minus_values;
};

template <class V>
FASTGAE_INLINE typename V::Type clipped(typename V::Real clip, typename V::Type ratio) {
    return V::smaller(V::all(clip), ratio);  // a NaN stays a NaN
}

// Return c of Retrace, in float64.
template <class V, class Real>
FASTGAE_INLINE typename V::Type trace_of(typename V::Type lambda, const Real* ratio) {
    return lambda * V::smaller(V::all(1), V::load(ratio));  // a NaN stays a NaN
}

// Compute one step, and update `carry` from the next step's to this step's. factor(which) loads a factor of this step;
// it is called only for factors that the options need.
template <class V, class Known, class LoadFactor>
FASTGAE_INLINE StepResults<V> step(const Known& options, const typename V::Real* constants, typename V::Type delta,
                                   typename V::Mask trace_open, typename V::Mask skipped, const LoadFactor& factor,
                                   Carry<V>& carry) {
    const auto unless_skipped = [&](auto here, auto next) FASTGAE_INLINE_LAMBDA {
        return options.mask ? V::select(skipped, next, here) : here;
    };
    const auto gamma_lambda = factor(kGammaLambda);
    StepResults<V> results;
    if (options.upgo) {
        trace_open = V::both(trace_open, V::at_least(carry.rises, V::all(1)));
        const auto rises = V::select(V::at_least(delta, V::all(0)), V::all(1), V::all(0));
        carry.rises = unless_skipped(rises, carry.rises);
    }
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
