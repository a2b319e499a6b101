// Env-major with options: lanes that run side by side, tile by tile, as in lanes.inl.

// Some steps of some lanes. Deltas are computed, and results written, along time, where memory is contiguous. In
// between, blocks are transposed in registers, so that each step is computed for all lanes side by side.
template <class Real>
class OptionsTile {
    using V = Vector<Real>;
    using Type = typename V::Type;
    static constexpr Index kLanes = 2 * Vector<Real>::width;

public:
    static constexpr Index kSteps = kOptionsTileBytes / Index(sizeof(Real)) / kLanes;
    static_assert(kSteps >= kBlockSteps && kSteps % kBlockSteps == 0, "rollouts are cut between blocks");

    // Take the steps [s, s + steps) of each lane. `steps` is a multiple of the vector width, and kSteps at most.
    OptionsTile(const RolloutWithOptions<Real>& rollout, const Lane* lanes, Index count, Index s, Index steps,
                Real* states, Real* scratch)
        : rollout(rollout), count(count), steps(steps), states(states), numbers(scratch),
          returns_minus_values(numbers + kLanes * kPitch), passed_values(returns_minus_values + kLanes * kPitch) {
        for (Index r = 0; r < kLanes; ++r) {
            spans[r] = {0, 0, steps, steps};
            if (r >= count) continue;
            const Index t = lanes[r].origin + s, last = std::max<Index>(0, std::min(steps, rollout.steps - t));
            spans[r] = {t, lanes[r].env, std::min(last, std::max<Index>(0, -t)), last};
        }
    }

    void compute(Store store) {
        for (Index lane = 0; rollout.mask && rollout.mask_passes_values && lane < count; lane += V::width)
            pass_values(lane);
        with_inputs(rollout, [&](auto in) { fill_deltas<decltype(in)>(); });
        with_options(rollout, [&](auto options) {
            const auto scan_all = [&](auto varies) {
                for (Index lane = 0; lane < count; lane += V::width) scan<varies.value>(options, lane);
            };
            if constexpr (!decltype(options)::more_factors)
                if (rollout.gamma_lambdas.step == 0) return scan_all(std::false_type());
            scan_all(std::true_type());
        });
        if (store != Store::nothing) write(store == Store::streamed);
    }

private:
    static constexpr Index kPitch = kSteps + kTilePadding / Index(sizeof(Real));

    // The steps of one lane. Element 0 is step t of env; only the elements [first, last) belong to the rollout.
    struct Span {
        Index t, env, first, last;
    };

    // Write V' of every step, which is V of the next step that exists, to passed_values, for as many lanes as a vector
    // has.
    void pass_values(Index lane) {
        Span at[V::width];  // without the last step of the rollout, whose V' lies in last_values
        const Real* from[V::width];
        const std::uint8_t* mask_after[V::width];
        Real* const passed = states + kNextValue * kMaxLanes + lane;
        Index low = 0, high = steps;  // all lanes have elements in [low, high)
        for (Index r = 0; r < V::width; ++r) {
            at[r] = spans[lane + r];
            from[r] = rollout.next_values.at(at[r].t, at[r].env);
            mask_after[r] = rollout.mask.at(at[r].t + 1, at[r].env);
            if (at[r].first < at[r].last && at[r].t + at[r].last == rollout.steps) {
                passed[r] = *rollout.last_values.at(0, at[r].env);
                --at[r].last;
            }
            if (lane + r < count) low = std::max(low, at[r].first), high = std::min(high, at[r].last);
        }
        if (lane + V::width > count) low = steps;
        Type carry = V::load(passed);
        for (Index k = steps - V::width; k >= 0; k -= V::width) {
            const bool whole = k >= low && k + V::width <= high;
            alignas(64) typename V::Bits exists[V::width];
            Type values[V::width];
            unrolled<V::width>([&](auto r) FASTGAE_INLINE_LAMBDA {
                values[r] = load_at(from[r], k, at[r], whole);
                exists[r] = inside(k, at[r], whole) & ~zero_bits_at(mask_after[r], k, at[r], whole);
            });
            V::transpose(values);
            const auto exists_bits = V::load_bits(exists);
            unrolled<V::width>([&](auto r) FASTGAE_INLINE_LAMBDA {
                constexpr int i = V::width - 1 - r;
                values[i] = carry = V::select(V::bit(exists_bits, i), values[i], carry);
            });
            V::transpose(values);
            unrolled<V::width>(
                [&](auto r) FASTGAE_INLINE_LAMBDA { V::store(passed_values + (lane + r) * kPitch + k, values[r]); });
        }
        V::store(passed, carry);
    }

    template <class In>
    void fill_deltas() {
        const bool passes_values = rollout.mask && rollout.mask_passes_values;
        for (Index r = 0; r < count; ++r) {
            const Index t = spans[r].t, n = spans[r].env, first = spans[r].first, last = spans[r].last;
            if (first == last) continue;
            Pointers<Real> at = pointers_at<In>(
                rollout, t, n, passes_values ? passed_values + r * kPitch : rollout.next_values.at(t, n));
            const auto fill = [&](Index from, Index to, auto gamma) {
                for_each_vector<Real>(from, to, [&](auto v, Index i) FASTGAE_INLINE_LAMBDA {
                    using W = decltype(v);
                    W::store(numbers + r * kPitch + i, deltas<W, In>(at, i, gamma.template get<W>(i)).delta);
                });
            };
            const auto fill_all = [&](auto gamma) {
                // V' of the last step of the rollout lies in last_values.
                const Index whole = passes_values || t + last < rollout.steps ? last : last - 1;
                fill(first, whole, gamma);
                if (whole == last) return;
                at.next_values = rollout.last_values.at(0, n) - whole;
                fill(whole, last, gamma);
            };
            const Real* const gamma = rollout.gammas.at(t, n);
            rollout.gammas.step ? fill_all(ConstantOrRun<Real, true>{gamma})
                                : fill_all(ConstantOrRun<Real, false>{gamma});
        }
    }

    // Load the vector at element k. Elements outside the span get 0, which no result depends on.
    static FASTGAE_INLINE Type load_at(const Real* from, Index k, const Span& span, bool whole) {
        if (whole) return V::load(from + k);
        Real padded[V::width] = {};
        for (Index i = std::max(k, span.first); i < std::min(k + V::width, span.last); ++i) padded[i - k] = from[i];
        return V::load(padded);
    }

    // Return which elements of the vector at element k are in the span: bit i belongs to element k + i.
    static FASTGAE_INLINE typename V::Bits inside(Index k, const Span& span, bool whole) {
        const auto below = [&](Index end) {
            return (typename V::Bits(1) << std::clamp<Index>(end - k, 0, V::width)) - 1;
        };
        return whole ? V::all_bits : below(span.last) & ~below(span.first);
    }

    // Return which flags of the vector at element k are 0: bit i belongs to element k + i. Outside the span it is 0.
    static FASTGAE_INLINE typename V::Bits zero_bits_at(const std::uint8_t* flags, Index k, const Span& span,
                                                        bool whole) {
        if (whole) return V::bits(V::zero_flags(flags + k));
        typename V::Bits bits = 0;
        for (Index i = std::max(k, span.first); i < std::min(k + V::width, span.last); ++i)
            bits |= typename V::Bits(flags[i] == 0) << (i - k);
        return bits;
    }

    // Turn deltas into advantages, in place, and compute R - V, for as many lanes as a vector has.
    template <bool varies, class Options>
    void scan(const Options& options, Index lane) {
        const Span* const at = spans + lane;
        const std::uint8_t *terminated_at[V::width], *truncated_at[V::width], *mask_at[V::width];
        const Real* from[kFactors][V::width];
        Type factors[kFactors][V::width];
        bool given[kFactors];
        Index low = 0, high = steps;  // all lanes have elements in [low, high)
        for (Index r = 0; r < V::width; ++r) {
            terminated_at[r] = rollout.terminated.at(at[r].t, at[r].env);
            truncated_at[r] = rollout.truncated ? rollout.truncated.at(at[r].t, at[r].env) : nullptr;
            mask_at[r] = options.mask ? rollout.mask.at(at[r].t, at[r].env) : nullptr;
            if (lane + r < count) low = std::max(low, at[r].first), high = std::min(high, at[r].last);
        }
        if (lane + V::width > count) low = steps;
        for (Index which = kGammaLambda; which < kFactors; ++which) {
            const View<const Real>& view = factor_of(rollout, Factor(which));
            given[which] = view && view.step;
            if (!view) continue;
            Real numbers[V::width];
            for (Index r = 0; r < V::width; ++r) {
                from[which][r] = view.at(at[r].t, at[r].env);
                numbers[r] = given[which] ? 0 : *from[which][r];
            }
            for (Type& factor : factors[which]) factor = V::load(numbers);
        }
        Real *const x = numbers + lane * kPitch, *const y = returns_minus_values + lane * kPitch;
        Real* const state = states + lane;
        Carry<V> carry = {V::load(state + kTrace * kMaxLanes), V::load(state + kStepsLeft * kMaxLanes),
                          V::load(state + kReturnsTrace * kMaxLanes)};
        for (Index k = steps - V::width; k >= 0; k -= V::width) {
            prefetch_ahead(rollout.ahead, V::width * V::width);
            const bool whole = k >= low && k + V::width <= high;
            alignas(64) typename V::Bits open[V::width], skipped[V::width];
            Type a[V::width], b[V::width];
            unrolled<V::width>([&](auto r) FASTGAE_INLINE_LAMBDA {
                a[r] = V::load(x + r * kPitch + k);
                open[r] = zero_bits_at(terminated_at[r], k, at[r], whole);
                if (options.mask) skipped[r] = zero_bits_at(mask_at[r], k, at[r], whole);
            });
            for (Index r = 0; rollout.truncated && r < V::width; ++r)
                open[r] &= zero_bits_at(truncated_at[r], k, at[r], whole);
            V::transpose(a);
            for (Index which = kGammaLambda; varies && which < kFactors; ++which) {
                if (!given[which]) continue;
                unrolled<V::width>([&](auto r) FASTGAE_INLINE_LAMBDA {
                    factors[which][r] = load_at(from[which][r], k, at[r], whole);
                });
                V::transpose(factors[which]);
            }
            const auto open_bits = V::load_bits(open), skipped_bits = V::load_bits(options.mask ? skipped : open);
            unrolled<V::width>([&](auto r) FASTGAE_INLINE_LAMBDA {
                constexpr int i = V::width - 1 - r;
                const auto factor = [&](Factor which) FASTGAE_INLINE_LAMBDA { return factors[which][varies ? i : 0]; };
                const StepResults<V> results = step<V>(options, rollout.constants, a[i], V::bit(open_bits, i),
                                                       V::bit(skipped_bits, i), factor, carry);
                a[i] = results.advantages;
                b[i] = results.returns_minus_values;
            });
            V::transpose(a);
            unrolled<V::width>([&](auto r) FASTGAE_INLINE_LAMBDA { V::store(x + r * kPitch + k, a[r]); });
            if (!options.returns_recursion && !options.ratios) continue;
            V::transpose(b);
            unrolled<V::width>([&](auto r) FASTGAE_INLINE_LAMBDA { V::store(y + r * kPitch + k, b[r]); });
        }
        V::store(state + kTrace * kMaxLanes, carry.trace);
        V::store(state + kStepsLeft * kMaxLanes, carry.steps_left);
        V::store(state + kReturnsTrace * kMaxLanes, carry.returns_trace);
    }

    // Write the results of all lanes. Results to be streamed are first collected in the tile, so that each is written
    // in one long run.
    void write(bool streamed) {
        const Real* const returns_from =
            rollout.returns_gamma_lambdas || rollout.ratios ? returns_minus_values : numbers;
        for (Index r = 0; r < count; ++r) {
            const Index t = spans[r].t, n = spans[r].env, first = spans[r].first, last = spans[r].last;
            Real* const a = numbers + r * kPitch;
            const Real* const b = returns_from + r * kPitch;
            const Real* const values = rollout.values.at(t, n);
            const bool blanks = rollout.mask && !rollout.carry_over;
            const std::uint8_t* const mask = blanks ? rollout.mask.at(t, n) : nullptr;
            Real* const advantages = rollout.advantages ? rollout.advantages.at(t, n) : nullptr;
            Real* const returns = rollout.returns ? rollout.returns.at(t, n) : nullptr;
            Real* const to_advantages = streamed && advantages ? a : advantages;
            Real* const to_returns = streamed && returns ? passed_values : returns;
            const auto store_all = [&](auto blanking) {
                for_each_vector<Real>(first, last, [&](auto v, Index i) FASTGAE_INLINE_LAMBDA {
                    using W = decltype(v);
                    typename W::Mask skipped{};
                    if constexpr (blanking.value) skipped = W::zero_flags(mask + i);
                    store_results<W>(blanking.value, skipped, {W::load(a + i), W::load(b + i)}, W::load(values + i), i,
                                     to_advantages, to_returns);
                });
            };
            blanks ? store_all(std::true_type()) : store_all(std::false_type());
            if (streamed && advantages) stream<false>(advantages, to_advantages, values, first, last);
            if (streamed && returns) stream<false>(returns, to_returns, values, first, last);
        }
    }

    const RolloutWithOptions<Real>& rollout;
    Index count, steps;
    Real* states;
    // Three tiles of (kLanes, kPitch) numbers. `numbers` holds deltas, then advantages.
    Real *numbers, *returns_minus_values, *passed_values;
    Span spans[kLanes];
};

template <class Real>
void lanes_with_options(const RolloutWithOptions<Real>& rollout, const Lane* lanes, Index count, Index bottom,
                        Index top, Real* states, Real* scratch, Store store) {
    while (top > bottom) {
        const Index s = std::max(bottom, top - OptionsTile<Real>::kSteps);
        OptionsTile<Real>(rollout, lanes, count, s, top - s, states, scratch).compute(store);
        top = s;
    }
}
