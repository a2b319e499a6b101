// Rollouts with options: the equation of one step, and how rows (time-major) and lanes (env-major) are swept with it.
//
//     plain             A = delta + gl A_next
//     V-trace           A = rho delta + (c gl) A_next, for returns;  advantages: rho (delta + gl A_next)
//     tail-normalized   A = G / D;  D = 1 + lambda D_next;  G = D delta + gl G_next
//
// A second recursion for returns is plain. Where a step is skipped, what follows it is passed on.

// What a step takes besides flags and its delta.
enum Weight { kGamma, kDecay, kReturnsDecay, kTailDecay, kRatio, kWeights };

template <class Real>
const View<const Real>& weights_of(const General<Real>& rollout, Weight which) {
    switch (which) {
        case kGamma: return rollout.gammas;
        case kDecay: return rollout.gamma_lambdas;
        case kReturnsDecay: return rollout.returns_gamma_lambdas;
        case kTailDecay: return rollout.tail_lambdas;
        default: return rollout.ratios;
    }
}

// Which options there are: the most common known to the compiler, or all of them looked up at every step.
template <bool has_mask>
struct Simple {
    static constexpr bool masked = has_mask, second = false, tail = false, clipped = false;
};
struct Any {
    bool masked, second, tail, clipped;
};

template <class Real, class Run>
void with_options(const General<Real>& rollout, const Run& run) {
    const Any any = {bool(rollout.mask), bool(rollout.returns_gamma_lambdas), bool(rollout.tail_lambdas),
                     bool(rollout.ratios)};
    if (any.second || any.tail || any.clipped) return run(any);
    any.masked ? run(Simple<true>()) : run(Simple<false>());
}

template <class V>
struct Traces {
    typename V::Type trace, steps_left, second;
};

template <class V>
struct Step {
    typename V::Type advantages, traced;  // returns are traced + V
};

template <class V>
FASTGAE_INLINE typename V::Type clipped(typename V::Real clip, typename V::Type ratio) {
    return V::smaller(V::all(clip), ratio);  // NaN stays
}

// One step. Weights are asked for by name, where they are needed.
template <class V, class Options, class Weights>
FASTGAE_INLINE Step<V> step(const Options& options, const typename V::Real* constants, typename V::Type delta,
                            typename V::Mask open, typename V::Mask skipped, const Weights& weight, Traces<V>& following) {
    const auto unless_skipped = [&](auto y, auto next) FASTGAE_INLINE_LAMBDA {
        return options.masked ? V::select(skipped, next, y) : y;
    };
    const auto decay = weight(kDecay);
    Step<V> results;
    if (options.tail) {
        const auto left = advantage<V>(V::all(1), open, weight(kTailDecay), following.steps_left);
        following.trace = unless_skipped(advantage<V>(left * delta, open, decay, following.trace), following.trace);
        following.steps_left = unless_skipped(left, following.steps_left);
        results.advantages = results.traced = following.trace / following.steps_left;
    } else if (options.clipped) {
        const auto ratio = weight(kRatio);
        results.advantages = advantage<V>(delta, open, decay, following.trace) * clipped<V>(constants[kAdvantageClip], ratio);
        const auto weighted = clipped<V>(constants[kRhoClip], ratio) * delta;
        const auto traced = advantage<V>(weighted, open, clipped<V>(constants[kCClip], ratio) * decay, following.trace);
        results.traced = following.trace = unless_skipped(traced, following.trace);
    } else {
        following.trace = unless_skipped(advantage<V>(delta, open, decay, following.trace), following.trace);
        results.advantages = results.traced = following.trace;
    }
    if (options.second) {
        const auto traced = advantage<V>(delta, open, weight(kReturnsDecay), following.second);
        results.traced = following.second = unless_skipped(traced, following.second);
    }
    return results;
}

// The results of a vector of steps, where they are wanted: A = 0 and R = V where a step is skipped.
template <class V>
FASTGAE_INLINE void put(bool masked, typename V::Mask skipped, Step<V> step, typename V::Type values, Index i,
                        typename V::Real* advantages, typename V::Real* returns) {
    if (masked) {
        step.advantages = V::select(skipped, V::all(0), step.advantages);
        step.traced = V::select(skipped, V::all(typename V::Real(-0.0)), step.traced);  // adding it changes nothing
    }
    if (advantages) V::store(advantages + i, step.advantages);
    if (returns) V::store(returns + i, step.traced + values);
}

// Calls body(vector, i) for all elements, downwards.
template <class Real, class Body>
FASTGAE_INLINE void each(Index first, Index last, const Body& body) {
    using V = Vector<Real>;
    Index n = last;
    while (n - first >= kLine<Real>) {
        n -= kLine<Real>;
        unrolled<kLine<Real> / V::width>([&](auto k) FASTGAE_INLINE_LAMBDA { body(V(), n + k * V::width); });
    }
    while (n - first >= V::width) body(V(), n -= V::width);
    while (n > first) body(Single<Real>(), --n);
}

// Weights along contiguous memory: one for all of it, or one for each element.
template <class Real, bool varies>
struct Weighed {
    const Real* at;
    template <class V>
    FASTGAE_INLINE typename V::Type get(Index i) const {
        if constexpr (varies) return V::load(at + i);
        return V::all(*at);
    }
};

template <class V, bool truncated>
FASTGAE_INLINE typename V::Mask trace_gate(const std::uint8_t* terminated_at, const std::uint8_t* truncated_at, Index i) {
    auto open = V::zero_flags(terminated_at + i);
    if constexpr (truncated) open = V::both(open, V::zero_flags(truncated_at + i));
    return open;
}

// Numbers of the scratch: of the env-major kernel, deltas that become advantages, traces of returns, and V' that is passed
// on; of the time-major one, rows for weights and results.
template <class Real>
constexpr Index kScratch = std::max(3 * (kGeneralBytes / Index(sizeof(Real)) + kMaxLanes * kTilePadding),
                                    (kWeights + 2) * kGeneralNumbers);

// --- rows: time-major ------------------------------------------------------------------------------------------------

template <class In, class Options, class Real>
void general_rows_of(const General<Real>& rollout, const Options options, Index first, Index last, Real* states,
                     Real* scratch, bool streamed) {
    const bool passes = rollout.mask && rollout.mask_passes_values;
    // Weights that do not vary along a row become a row.
    View<const Real> views[kWeights];
    for (Index which = 0; which < kWeights; ++which) views[which] = weights_of(rollout, Weight(which));
    const auto fill_weights = [&](Index t) {
        for (Index which = 0; which < kWeights; ++which) {
            const View<const Real>& view = views[which];
            if (!view || view.env != 0 || (view.step == 0 && t + 1 < rollout.steps)) continue;
            Real* const row = scratch + which * kGeneralNumbers;
            each<Real>(0, std::min(last - first, kGeneralNumbers), [&](auto v, Index i) FASTGAE_INLINE_LAMBDA {
                using V = decltype(v);
                V::store(row + i, V::all(*view.at(t, first)));
            });
        }
    };
    Real* const results = scratch + kWeights * kGeneralNumbers;
    const Index envs = rollout.envs;
    Real *next_value = states + kNextValue * envs, *trace = states + kTrace * envs;
    Real *steps_left = states + kStepsLeft * envs, *second = states + kReturnsTrace * envs;

    for (Index t = rollout.steps - 1; t >= 0; --t) {
        const Pointers<Real> row = row_pointers<In>(rollout, t, first);
        const std::uint8_t* const mask = options.masked ? rollout.mask.at(t, first) : row.terminated;
        const std::uint8_t* const mask_after = t + 1 < rollout.steps ? mask + rollout.mask.step : nullptr;
        Real* const advantages = rollout.advantages ? rollout.advantages.at(t, first) : nullptr;
        Real* const returns = rollout.returns ? rollout.returns.at(t, first) : nullptr;
        fill_weights(t);
        for (Index end = last - first, begin; end > 0; end = begin) {
            begin = std::max<Index>(0, end - (streamed ? kStreamRun : kGeneralNumbers));
            if (streamed && begin > 0) begin += to_line((advantages ? advantages : returns) + begin);
            const Real* weights[kWeights] = {};
            for (Index which = 0; which < kWeights; ++which)
                if (const View<const Real>& view = views[which])
                    weights[which] = view.env ? view.at(t, first) : scratch + which * kGeneralNumbers - begin;
            Real* to_advantages = advantages;
            Real* to_returns = returns;
            if (streamed) {
                if (advantages) to_advantages = results - begin;
                if (returns) to_returns = results + kGeneralNumbers - begin;
                const auto ahead = [&](const auto* from, const auto& view) {
                    if (!view) return;
                    for (Index i = begin; i < end; i += 64 / Index(sizeof(*from))) prefetch_below(from + i, kPrefetchBytes);
                };
                ahead(row.rewards, rollout.rewards);
                ahead(row.values, rollout.values);
                ahead(row.terminated, rollout.terminated);
                ahead(row.truncated, rollout.truncated);
                ahead(mask, rollout.mask);
                for (Index which = 0; which < kWeights; ++which)
                    if (views[which].env) ahead(weights[which], views[which]);
            }
            each<Real>(begin, end, [&](auto v, Index i) FASTGAE_INLINE_LAMBDA {
                using V = decltype(v);
                const auto weight = [&](Weight which) FASTGAE_INLINE_LAMBDA { return V::load(weights[which] + i); };
                const auto following = [&](auto next) FASTGAE_INLINE_LAMBDA {
                    if (!passes) return next;
                    if (mask_after) next = V::select(V::zero_flags(mask_after + i), V::load(next_value + i), next);
                    V::store(next_value + i, next);
                    return next;
                };
                const Deltas<V> d = deltas<V, In>(row, i, weight(kGamma), following);
                const auto skipped = V::zero_flags(mask + i);
                Traces<V> traces = {V::load(trace + i), options.tail ? V::load(steps_left + i) : V::all(0),
                                    options.second ? V::load(second + i) : V::all(0)};
                const Step<V> results = step<V>(options, rollout.constants, d.delta, d.trace, skipped, weight, traces);
                V::store(trace + i, traces.trace);
                if (options.tail) V::store(steps_left + i, traces.steps_left);
                if (options.second) V::store(second + i, traces.second);
                put<V>(options.masked, skipped, results, d.values, i, to_advantages, to_returns);
            });
            if (streamed && advantages) stream<false>(advantages, to_advantages, row.values, begin, end);
            if (streamed && returns) stream<false>(returns, to_returns, row.values, begin, end);
        }
    }
}

template <class Real>
void general_rows(const General<Real>& rollout, Index first, Index last, Real* states, Real* scratch, Store store) {
    with_inputs(rollout, [&](auto in) {
        with_options(rollout, [&](auto options) {
            general_rows_of<decltype(in)>(rollout, options, first, last, states, scratch, store == Store::streamed);
        });
    });
}

// --- lanes: env-major ------------------------------------------------------------------------------------------------

// Some steps of some lanes. Deltas are computed along time, where memory is contiguous, and so is what is done with the
// results; in between, blocks are transposed in registers, so that the steps run with lanes side by side.
template <class Real>
class LanesTile {
    using V = Vector<Real>;
    using Type = typename V::Type;
    static constexpr Index kLanes = Tile<Real>::lanes;

public:
    static constexpr Index kSteps = kGeneralBytes / Index(sizeof(Real)) / kLanes;
    static_assert(kSteps >= kBlockSteps && kSteps % kBlockSteps == 0, "rollouts are cut between blocks");

    // The steps [s, s + steps) of each lane: a multiple of a vector, and kSteps at most.
    LanesTile(const General<Real>& rollout, const Lane* lanes, Index count, Index s, Index steps, Real* states,
              Real* scratch)
        : rollout(rollout), count(count), steps(steps), states(states), numbers(scratch), traced(numbers + kLanes * kPitch),
          passed(traced + kLanes * kPitch) {
        for (Index r = 0; r < kLanes; ++r) {
            runs[r] = {0, 0, steps, steps};
            if (r >= count) continue;
            const Index t = lanes[r].origin + s, last = std::max<Index>(0, std::min(steps, rollout.steps - t));
            runs[r] = {t, lanes[r].env, std::min(last, std::max<Index>(0, -t)), last};
        }
    }

    void run(Store store) {
        if (rollout.mask && rollout.mask_passes_values) pass_values();
        with_inputs(rollout, [&](auto in) { fill_deltas<decltype(in)>(); });
        with_options(rollout, [&](auto options) {
            const auto scan_all = [&](auto truncated, auto varies) {
                for (Index lane = 0; lane < count; lane += V::width) scan<truncated.value, varies.value>(options, lane);
            };
            const auto scan_varying = [&](auto varies) {
                rollout.truncated ? scan_all(std::true_type(), varies) : scan_all(std::false_type(), varies);
            };
            if constexpr (!std::is_same_v<decltype(options), Any>)
                if (rollout.gamma_lambdas.step == 0) return scan_varying(std::false_type());
            scan_varying(std::true_type());
        });
        if (store != Store::nothing) write(store == Store::streamed);
    }

private:
    static constexpr Index kPitch = kSteps + kTilePadding / Index(sizeof(Real));

    // The elements [first, last) of a lane's, which begin at (t, env); there are no others.
    struct Run {
        Index t, env, first, last;
    };

    // V' of every step: V of the next that exists.
    void pass_values() {
        for (Index r = 0; r < count; ++r) {
            const Run& at = runs[r];
            const Real* from = rollout.next_values.at(at.t, at.env);
            const std::uint8_t* mask_after = rollout.mask.at(at.t + 1, at.env);
            Real *to = passed + r * kPitch, &carry = states[kNextValue * kMaxLanes + r];
            Index i = at.last;
            if (i > at.first && at.t + i == rollout.steps) to[--i] = carry = *rollout.last_values.at(0, at.env);
            while (i > at.first) {
                std::uint64_t eight = 0;
                if (i - at.first >= 8) std::memcpy(&eight, mask_after + i - 8, sizeof eight);
                if (eight == 0x0101010101010101) {  // most often all of them exist, or none
                    i -= 8;
                    std::memcpy(to + i, from + i, 8 * sizeof(Real));
                    carry = to[i];
                } else if (eight == 0 && i - at.first >= 8) {
                    i -= 8;
                    std::fill_n(to + i, 8, carry);
                } else {
                    --i;
                    to[i] = carry = mask_after[i] ? from[i] : carry;
                }
            }
        }
    }

    template <class In>
    void fill_deltas() {
        const bool passes = rollout.mask && rollout.mask_passes_values;
        for (Index r = 0; r < count; ++r) {
            const Index t = runs[r].t, n = runs[r].env, first = runs[r].first, last = runs[r].last;
            if (first == last) continue;
            Pointers<Real> at = {rollout.rewards.at(t, n),
                                 rollout.values.at(t, n),
                                 passes ? passed + r * kPitch : rollout.next_values.at(t, n),
                                 In::final_values ? rollout.final_values.at(t, n) : nullptr,
                                 rollout.terminated.at(t, n),
                                 In::truncated ? rollout.truncated.at(t, n) : nullptr};
            const auto fill = [&](Index from, Index to, auto gamma) {
                each<Real>(from, to, [&](auto v, Index i) FASTGAE_INLINE_LAMBDA {
                    using W = decltype(v);
                    W::store(numbers + r * kPitch + i, deltas<W, In>(at, i, gamma.template get<W>(i)).delta);
                });
            };
            const auto fill_all = [&](auto gamma) {
                // V' of the last step lies elsewhere.
                const Index whole = passes || t + last < rollout.steps ? last : last - 1;
                fill(first, whole, gamma);
                if (whole == last) return;
                at.next_values = rollout.last_values.at(0, n) - whole;
                fill(whole, last, gamma);
            };
            const Real* const gamma = rollout.gammas.at(t, n);
            rollout.gammas.step ? fill_all(Weighed<Real, true>{gamma}) : fill_all(Weighed<Real, false>{gamma});
        }
    }

    // The elements from k on, as many as a vector; where there is none, anything.
    static FASTGAE_INLINE Type load_at(const Real* from, Index k, const Run& run, bool whole) {
        if (whole) return V::load(from + k);
        Real padded[V::width] = {};
        for (Index i = std::max(k, run.first); i < std::min(k + V::width, run.last); ++i) padded[i - k] = from[i];
        return V::load(padded);
    }

    // Bit i is what flag(vector, k + i) says of one element; 0 where there is none.
    template <class Flag>
    static FASTGAE_INLINE typename V::Bits bits_at(Index k, const Run& run, bool whole, const Flag& flag) {
        if (whole) return V::bits(flag(V(), k));
        typename V::Bits bits = 0;
        for (Index i = std::max(k, run.first); i < std::min(k + V::width, run.last); ++i)
            bits |= typename V::Bits(flag(Single<Real>(), i)) << (i - k);
        return bits;
    }

    // Deltas -> advantages, in place, and what returns are made of, for as many lanes as a vector has.
    template <bool truncated, bool varies, class Options>
    void scan(const Options& options, Index lane) {
        const Run* const at = runs + lane;
        const std::uint8_t *terminated_at[V::width], *truncated_at[V::width], *mask_at[V::width];
        const Real* from[kWeights][V::width];
        Type weights[kWeights][V::width];
        bool given[kWeights];
        Index low = 0, high = steps;  // where all lanes have elements
        for (Index r = 0; r < V::width; ++r) {
            terminated_at[r] = rollout.terminated.at(at[r].t, at[r].env);
            truncated_at[r] = truncated ? rollout.truncated.at(at[r].t, at[r].env) : nullptr;
            mask_at[r] = options.masked ? rollout.mask.at(at[r].t, at[r].env) : nullptr;
            if (lane + r < count) low = std::max(low, at[r].first), high = std::min(high, at[r].last);
        }
        if (lane + V::width > count) low = steps;
        for (Index which = kDecay; which < kWeights; ++which) {
            const View<const Real>& view = weights_of(rollout, Weight(which));
            given[which] = view && view.step;
            if (!view) continue;
            Real numbers[V::width];
            for (Index r = 0; r < V::width; ++r) {
                from[which][r] = view.at(at[r].t, at[r].env);
                numbers[r] = given[which] ? 0 : *from[which][r];
            }
            for (Type& weight : weights[which]) weight = V::load(numbers);
        }
        Real *const x = numbers + lane * kPitch, *const y = traced + lane * kPitch, *const state = states + lane;
        Traces<V> traces = {V::load(state + kTrace * kMaxLanes), V::load(state + kStepsLeft * kMaxLanes),
                            V::load(state + kReturnsTrace * kMaxLanes)};
        for (Index k = steps - V::width; k >= 0; k -= V::width) {
            const bool whole = k >= low && k + V::width <= high;
            alignas(64) typename V::Bits open[V::width], skipped[V::width];
            Type a[V::width], b[V::width];
            unrolled<V::width>([&](auto r) FASTGAE_INLINE_LAMBDA {
                a[r] = V::load(x + r * kPitch + k);
                open[r] = bits_at(k, at[r], whole, [&](auto v, Index i) FASTGAE_INLINE_LAMBDA {
                    return trace_gate<decltype(v), truncated>(terminated_at[r], truncated_at[r], i);
                });
                if (options.masked)
                    skipped[r] = bits_at(k, at[r], whole, [&](auto v, Index i) FASTGAE_INLINE_LAMBDA {
                        return decltype(v)::zero_flags(mask_at[r] + i);
                    });
            });
            V::transpose(a);
            for (Index which = kDecay; varies && which < kWeights; ++which) {
                if (!given[which]) continue;
                unrolled<V::width>([&](auto r) FASTGAE_INLINE_LAMBDA {
                    weights[which][r] = load_at(from[which][r], k, at[r], whole);
                });
                V::transpose(weights[which]);
            }
            const auto open_bits = V::load_bits(open), skipped_bits = V::load_bits(options.masked ? skipped : open);
            unrolled<V::width>([&](auto r) FASTGAE_INLINE_LAMBDA {
                constexpr int i = V::width - 1 - r;
                const auto weight = [&](Weight which) FASTGAE_INLINE_LAMBDA { return weights[which][varies ? i : 0]; };
                const Step<V> results =
                    step<V>(options, rollout.constants, a[i], V::bit(open_bits, i), V::bit(skipped_bits, i), weight, traces);
                a[i] = results.advantages;
                b[i] = results.traced;
            });
            V::transpose(a);
            unrolled<V::width>([&](auto r) FASTGAE_INLINE_LAMBDA { V::store(x + r * kPitch + k, a[r]); });
            if (!options.second && !options.clipped) continue;
            V::transpose(b);
            unrolled<V::width>([&](auto r) FASTGAE_INLINE_LAMBDA { V::store(y + r * kPitch + k, b[r]); });
        }
        V::store(state + kTrace * kMaxLanes, traces.trace);
        V::store(state + kStepsLeft * kMaxLanes, traces.steps_left);
        V::store(state + kReturnsTrace * kMaxLanes, traces.second);
    }

    // The results to where they belong; past the caches from a copy, that of one array after that of the other.
    void write(bool streamed) {
        const bool apart = rollout.returns_gamma_lambdas || rollout.ratios;
        for (Index r = 0; r < count; ++r) {
            const Index t = runs[r].t, n = runs[r].env, first = runs[r].first, last = runs[r].last;
            Real *const a = numbers + r * kPitch, *const b = (apart ? traced : numbers) + r * kPitch;
            const Real* const values = rollout.values.at(t, n);
            const std::uint8_t* const mask = rollout.mask ? rollout.mask.at(t, n) : nullptr;
            Real* const advantages = rollout.advantages ? rollout.advantages.at(t, n) : nullptr;
            Real* const returns = rollout.returns ? rollout.returns.at(t, n) : nullptr;
            Real* const to_advantages = streamed && advantages ? a : advantages;
            Real* const to_returns = streamed && returns ? passed : returns;
            const auto put_all = [&](auto masked) {
                each<Real>(first, last, [&](auto v, Index i) FASTGAE_INLINE_LAMBDA {
                    using W = decltype(v);
                    typename W::Mask skipped{};
                    if constexpr (masked.value) skipped = W::zero_flags(mask + i);
                    put<W>(masked.value, skipped, {W::load(a + i), W::load(b + i)}, W::load(values + i), i, to_advantages,
                           to_returns);
                });
            };
            mask ? put_all(std::true_type()) : put_all(std::false_type());
            if (streamed && advantages) stream<false>(advantages, to_advantages, values, first, last);
            if (streamed && returns) stream<false>(returns, to_returns, values, first, last);
        }
    }

    const General<Real>& rollout;
    Index count, steps;
    Real *states, *numbers, *traced, *passed;  // (lanes, kPitch): deltas, then advantages; for returns; V' passed on
    Run runs[kLanes];
};

template <class Real>
void general_lanes(const General<Real>& rollout, const Lane* lanes, Index count, Index bottom, Index top, Real* states,
                   Real* scratch, Store store) {
    while (top > bottom) {
        const Index s = std::max(bottom, top - LanesTile<Real>::kSteps);
        LanesTile<Real>(rollout, lanes, count, s, top - s, states, scratch).run(store);
        top = s;
    }
}
