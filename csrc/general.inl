// Rollouts with options, in blocks whose scratch stays in cache.
//
// A block is a set of runs that are contiguous in memory: rows (time-major), or some steps of each of several lanes
// (env-major). All that does not look at other steps is computed along the runs, the same way for both; what knows where
// time goes is the scan, y = x + decay y_next, and where V' passes skipped steps.

// Elements [first, last) from (t, env) on, and the rest of the block's, which there is not.
struct Run {
    Index t, env, first, last;
};

// Calls body(vector, i) for all elements, downwards.
template <class Real, class Body>
FASTGAE_INLINE void each(Index first, Index last, const Body& body) {
    using V = Vector<Real>;
    constexpr int vectors = kLine<Real> / V::width;
    Index n = last;
    while (n - first >= kLine<Real>) {
        n -= kLine<Real>;
        unrolled<vectors>([&](auto k) FASTGAE_INLINE_LAMBDA { body(V(), n + k * V::width); });
    }
    while (n - first >= V::width) body(V(), n -= V::width);
    while (n > first) body(Single<Real>(), --n);
}

// Coefficients along a run: one for all of it, or one for each element.
template <class Real, bool varies>
struct Coefficients {
    static constexpr bool varying = varies;
    const Real* at;
    template <class V>
    FASTGAE_INLINE typename V::Type get(Index i) const {
        if constexpr (varies) return V::load(at + i);
        return V::all(*at);
    }
};

// Calls work with the coefficients of a view from (t, env) on.
template <class Real, class Work>
void with_coefficients(const General<Real>& rollout, const View<const Real>& view, Index t, Index env, const Work& work) {
    if (rollout.env_major ? view.step : view.env)
        work(Coefficients<Real, true>{view.at(t, env)});
    else
        work(Coefficients<Real, false>{view.at(t, env)});
}

// The flags of a run.
struct Flags {
    const std::uint8_t *terminated, *truncated, *mask;  // the latter two are optional
};

template <class Real>
Flags flags_of(const General<Real>& rollout, Index t, Index env) {
    return {rollout.terminated.at(t, env), rollout.truncated ? rollout.truncated.at(t, env) : nullptr,
            rollout.mask ? rollout.mask.at(t, env) : nullptr};
}

template <class V, bool truncated>
FASTGAE_INLINE typename V::Mask trace_gate(const Flags& flags, Index i) {
    auto open = V::zero_flags(flags.terminated + i);
    if constexpr (truncated) open = V::both(open, V::zero_flags(flags.truncated + i));
    return open;
}

// Calls work with whether there are truncations, and whether there is a mask, as types.
template <class Work>
FASTGAE_INLINE void with_flags(const Flags& flags, const Work& work) {
    using Yes = std::true_type;
    using No = std::false_type;
    if (flags.mask)
        flags.truncated ? work(Yes(), Yes()) : work(No(), Yes());
    else
        flags.truncated ? work(Yes(), No()) : work(No(), No());
}

// --- along a run -----------------------------------------------------------------------------------------------------

template <class In, class Factor, class Real>
void delta_run(const Pointers<Real>& at, Factor gamma, Index first, Index last, Real* to) {
    each<Real>(first, last, [&](auto v, Index i) FASTGAE_INLINE_LAMBDA {
        using V = decltype(v);
        V::store(to + i, deltas<V, In>(at, i, gamma.template get<V>(i)).delta);
    });
}

template <class V>
FASTGAE_INLINE typename V::Type clipped(typename V::Real clip, const typename V::Real* ratios) {
    return V::smaller(V::all(clip), V::load(ratios));  // NaN stays
}

// V-trace: rho delta, and the decay gamma lambda c.
template <class Factor, class Real>
void weigh(const Clips<Real>& clips, const Real* ratios, Factor gamma_lambda, const Run& run, const Real* deltas, Real* terms,
           Real* decay) {
    each<Real>(run.first, run.last, [&](auto v, Index i) FASTGAE_INLINE_LAMBDA {
        using V = decltype(v);
        V::store(terms + i, clipped<V>(clips.deltas, ratios + i) * V::load(deltas + i));
        V::store(decay + i, clipped<V>(clips.traces, ratios + i) * gamma_lambda.template get<V>(i));
    });
}

// V-trace's advantages, in place of the deltas: rho (delta + gamma lambda A_next).
template <bool truncated, class Factor, class Real>
void weigh_advantages(Real clip, const Real* ratios, Factor gamma_lambda, const Flags& flags, const Run& run,
                      const Real* following, Real* deltas) {
    each<Real>(run.first, run.last, [&](auto v, Index i) FASTGAE_INLINE_LAMBDA {
        using V = decltype(v);
        const auto open = trace_gate<V, truncated>(flags, i);
        const auto a = advantage<V>(V::load(deltas + i), open, gamma_lambda.template get<V>(i), V::load(following + i));
        V::store(deltas + i, a * clipped<V>(clip, ratios + i));
    });
}

template <class Real, class Operation>
FASTGAE_INLINE void combine(const Run& run, const Real* a, const Real* b, Real* to, const Operation& operation) {
    each<Real>(run.first, run.last, [&](auto v, Index i) FASTGAE_INLINE_LAMBDA {
        using V = decltype(v);
        V::store(to + i, operation(V::load(a + i), V::load(b + i)));
    });
}

// The results of a run to where they belong: A = 0 and R = V where a step is skipped.
template <class Out, bool masked, class Real>
void write_run(const std::uint8_t* mask, const Real* values, const Run& run, const Real* a, const Real* traced, Real* advantages,
               Real* returns) {
    each<Real>(run.first, run.last, [&](auto v, Index i) FASTGAE_INLINE_LAMBDA {
        using V = decltype(v);
        typename V::Type x = V::load(a + i), y = V::load(traced + i);
        if constexpr (masked) {
            const auto skipped = V::zero_flags(mask + i);
            x = V::select(skipped, V::all(0), x);
            y = V::select(skipped, V::all(typename V::Real(-0.0)), y);  // adding it changes nothing
        }
        if constexpr (Out::advantages) V::store(advantages + i, x);
        if constexpr (Out::returns) V::store(returns + i, y + V::load(values + i));
    });
}

// The same past the caches, each result in turn.
template <class Out, class Real>
void stream_run(const Real* values, const Run& run, const Real* a, const Real* traced, Real* advantages, Real* returns) {
    for (Index end = run.last; end > run.first;) {
        Index begin = end - run.first > kStreamRun ? end - kStreamRun : run.first;
        if (begin > run.first) begin += to_line((Out::advantages ? advantages : returns) + begin);
        if constexpr (Out::advantages) stream<false>(advantages, a, values, begin, end);
        if constexpr (Out::returns) stream<true>(returns, traced, values, begin, end);
        end = begin;
    }
}

// --- rows: time-major ------------------------------------------------------------------------------------------------

template <class Real>
struct Rows {
    const General<Real>& rollout;
    Index bottom, top, env, width;  // rows [bottom, top), from env on
    Real* states;                   // of env, and of the next one beside it
    bool merged;                    // rows follow each other in memory: they are one run

    Index pitch() const { return width; }
    Index runs() const { return merged ? 1 : top - bottom; }
    Run run(Index r) const { return {bottom + r, env, 0, merged ? (top - bottom) * width : width}; }
    Real* state(State state) const { return states + state * rollout.envs; }

    // The A that follows the block, to where that of its last row would be.
    void keep_following(Real* x) const { std::memcpy(x + (top - bottom) * width, state(kTrace), width * sizeof(Real)); }
    Index to_following() const { return width; }

    // V' of every step: V' of what follows a skipped step waits in its state.
    void pass_values(Real* next_values) const {
        Real* carry = state(kNextValue);
        for (Index t = top - 1; t >= bottom; --t) {
            Real* to = next_values + (t - bottom) * width;
            if (t == rollout.steps - 1) {
                const Real* last = rollout.last_values.at(0, env);
                for (Index n = 0; n < width; ++n) carry[n] = last[n];
                std::memcpy(to, carry, width * sizeof(Real));
                continue;
            }
            const Real* from = rollout.next_values.at(t, env);
            const std::uint8_t* mask = rollout.mask.at(t + 1, env);
            each<Real>(0, width, [&](auto v, Index i) FASTGAE_INLINE_LAMBDA {
                using V = decltype(v);
                const auto next = V::select(V::zero_flags(mask + i), V::load(carry + i), V::load(from + i));
                V::store(carry + i, next);
                V::store(to + i, next);
            });
        }
    }

    template <class Decay>
    void scan(Real* x, const Decay& decay, State which) const {
        Real* carry = state(which);
        for (Index t = top - 1; t >= bottom; --t) {
            Real* row = x + (t - bottom) * width;
            const Flags flags = flags_of(rollout, t, env);
            decay(t, t - bottom, env, [&](auto factor) {
                with_flags(flags, [&](auto truncated, auto masked) {
                    each<Real>(0, width, [&](auto v, Index i) FASTGAE_INLINE_LAMBDA {
                        using V = decltype(v);
                        const auto following = V::load(carry + i);
                        auto a = advantage<V>(V::load(row + i), trace_gate<V, truncated.value>(flags, i),
                                              factor.template get<V>(i), following);
                        if constexpr (masked.value) a = V::select(V::zero_flags(flags.mask + i), following, a);
                        V::store(row + i, a);
                        V::store(carry + i, a);
                    });
                });
            });
        }
    }
};

// --- lanes: env-major ------------------------------------------------------------------------------------------------

template <class Real>
struct Lanes {
    using V = Vector<Real>;
    static constexpr Index kLanes = Tile<Real>::lanes;
    static constexpr Index kPitch = kGeneralBytes / Index(sizeof(Real)) / kLanes + kTilePadding / Index(sizeof(Real));
    static constexpr Index kSteps = kPitch - kTilePadding / Index(sizeof(Real));

    const General<Real>& rollout;
    const Lane* lanes;
    Index count, s, steps;  // steps [s, s + steps) of each lane; a multiple of a vector
    Real* states;

    Index pitch() const { return kPitch; }
    Index runs() const { return count; }
    Run run(Index r) const {
        if (r >= count) return {0, 0, steps, steps};
        const Index t = lanes[r].origin + s;
        const Index last = std::max<Index>(0, std::min(steps, rollout.steps - t));
        return {t, lanes[r].env, std::min(last, std::max<Index>(0, -t)), last};
    }
    Real* state(State state) const { return states + state * kMaxLanes; }

    void keep_following(Real* x) const {
        for (Index r = 0; r < count; ++r) x[r * kPitch + steps] = state(kTrace)[r];
    }
    Index to_following() const { return 1; }

    void pass_values(Real* next_values) const {
        for (Index r = 0; r < count; ++r) {
            const Run at = run(r);
            const Real* from = rollout.next_values.at(at.t, at.env);
            const std::uint8_t* mask = rollout.mask.at(at.t + 1, at.env);
            Real* to = next_values + r * kPitch;
            Real carry = state(kNextValue)[r];
            Index i = at.last;
            if (i > at.first && at.t + i == rollout.steps) to[--i] = carry = *rollout.last_values.at(0, at.env);
            while (i > at.first) {
                std::uint64_t eight = 0;
                if (i - at.first >= 8) std::memcpy(&eight, mask + i - 8, sizeof eight);
                if (eight == 0x0101010101010101) {  // most often all of them exist
                    i -= 8;
                    std::memcpy(to + i, from + i, 8 * sizeof(Real));
                    carry = to[i];
                } else {
                    --i;
                    to[i] = carry = mask[i] ? from[i] : carry;
                }
            }
            state(kNextValue)[r] = carry;
        }
    }

    // The elements from k on, as many as a vector; what is not of the run is anything.
    static typename V::Type load_at(const Real* from, Index k, const Run& run) {
        if (k >= run.first && k + V::width <= run.last) return V::load(from + k);
        Real padded[V::width] = {};
        for (Index i = std::max(k, run.first); i < std::min(k + V::width, run.last); ++i) padded[i - k] = from[i];
        return V::load(padded);
    }

    // Bit i is what `flag(vector, k + i)` says of one element; 0 outside of the run.
    template <class Flag>
    FASTGAE_INLINE static typename V::Bits bits_at(Index k, const Run& run, const Flag& flag) {
        if (k >= run.first && k + V::width <= run.last) return V::bits(flag(V(), k));
        typename V::Bits bits = 0;
        for (Index i = std::max(k, run.first); i < std::min(k + V::width, run.last); ++i)
            bits |= typename V::Bits(flag(Single<Real>(), i)) << (i - k);
        return bits;
    }

    // `width` lanes side by side: blocks are transposed in registers, and back.
    template <bool truncated, bool masked, bool varies>
    void scan_lanes(Real* x, const Run* runs, const Flags* flags, const Real* const* decay, Real* carries) const {
        Real numbers[V::width];
        for (Index r = 0; r < V::width; ++r) numbers[r] = varies || runs[r].first == runs[r].last ? 0 : *decay[r];
        const auto number = V::load(numbers);
        auto carry = V::load(carries);
        for (Index k = steps - V::width; k >= 0; k -= V::width) {
            alignas(64) typename V::Bits open[V::width], skipped[V::width];
            typename V::Type y[V::width], factor[V::width];
            for (Index r = 0; r < V::width; ++r) {
                open[r] = bits_at(k, runs[r], [&](auto v, Index i) FASTGAE_INLINE_LAMBDA {
                    return trace_gate<decltype(v), truncated>(flags[r], i);
                });
                if constexpr (masked)
                    skipped[r] = bits_at(k, runs[r], [&](auto v, Index i) FASTGAE_INLINE_LAMBDA {
                        return decltype(v)::zero_flags(flags[r].mask + i);
                    });
            }
            unrolled<V::width>([&](auto r) FASTGAE_INLINE_LAMBDA { y[r] = V::load(x + r * kPitch + k); });
            V::transpose(y);
            if constexpr (varies) {
                unrolled<V::width>([&](auto r) FASTGAE_INLINE_LAMBDA { factor[r] = load_at(decay[r], k, runs[r]); });
                V::transpose(factor);
            }
            const auto open_bits = V::load_bits(open);
            unrolled<V::width>([&](auto r) FASTGAE_INLINE_LAMBDA {
                constexpr int i = V::width - 1 - r;
                y[i] = advantage<V>(y[i], V::bit(open_bits, i), varies ? factor[i] : number, carry);
                if constexpr (masked) y[i] = V::select(V::bit(V::load_bits(skipped), i), carry, y[i]);
                carry = y[i];
            });
            V::transpose(y);
            unrolled<V::width>([&](auto r) FASTGAE_INLINE_LAMBDA { V::store(x + r * kPitch + k, y[r]); });
        }
        V::store(carries, carry);
    }

    template <class Decay>
    void scan(Real* x, const Decay& decay, State which) const {
        for (Index lane = 0; lane < count; lane += V::width) {
            Run at[V::width];
            Flags flags[V::width];
            const Real* factors[V::width];
            bool varies = false;
            for (Index r = 0; r < V::width; ++r) {
                at[r] = run(lane + r);
                flags[r] = flags_of(rollout, at[r].t, at[r].env);
                decay(at[r].t, lane + r, at[r].env, [&](auto factor) {
                    factors[r] = factor.at;
                    varies = factor.varying;
                });
            }
            Real *block = x + lane * kPitch, *carries = state(which) + lane;
            with_flags(flags[0], [&](auto truncated, auto masked) {
                varies ? scan_lanes<truncated.value, masked.value, true>(block, at, flags, factors, carries)
                       : scan_lanes<truncated.value, masked.value, false>(block, at, flags, factors, carries);
            });
        }
    }
};

// --- a block ---------------------------------------------------------------------------------------------------------

// Numbers of one scratch array: a block, and the A that follows it.
constexpr Index kScratchArrays = 5;
template <class Real>
constexpr Index kBlockNumbers = std::max((Lanes<Real>::kPitch) * Lanes<Real>::kLanes, 2 * kGeneralNumbers);

// The deltas of a block.
template <class Real, class Block>
void fill_deltas(const General<Real>& rollout, const Block& block, const Real* next_values, Real* to) {
    with_inputs(rollout, [&](auto in) {
        using In = decltype(in);
        for (Index r = 0; r < block.runs(); ++r) {
            const Run run = block.run(r);
            const Index t = run.t, n = run.env;
            if (run.first == run.last) continue;
            Pointers<Real> at = {rollout.rewards.at(t, n),
                                 rollout.values.at(t, n),
                                 next_values ? next_values + r * block.pitch() : rollout.next_values.at(t, n),
                                 In::final_values ? rollout.final_values.at(t, n) : nullptr,
                                 rollout.terminated.at(t, n),
                                 In::truncated ? rollout.truncated.at(t, n) : nullptr};
            // V' of the last step lies elsewhere: of a row all of them, of a lane one.
            const Index whole = next_values || !rollout.env_major || t + run.last < rollout.steps ? run.last : run.last - 1;
            if (!next_values && !rollout.env_major && t == rollout.steps - 1) at.next_values = rollout.last_values.at(0, n);
            with_coefficients(rollout, rollout.gammas, t, n, [&](auto gamma) {
                delta_run<In>(at, gamma, run.first, whole, to + r * block.pitch());
                if (whole == run.last) return;
                at.next_values = rollout.last_values.at(0, n) - whole;
                delta_run<In>(at, gamma, whole, run.last, to + r * block.pitch());
            });
        }
    });
}

template <class Real, class Block>
void general_block(const General<Real>& rollout, const Block& block, Real* scratch, Store store) {
    Real *x = scratch, *y = x + kBlockNumbers<Real>, *z = y + kBlockNumbers<Real>, *second = z + kBlockNumbers<Real>,
         *next_values = second + kBlockNumbers<Real>;
    const Index pitch = block.pitch();
    const auto each_run = [&](const auto& work) {
        for (Index r = 0; r < block.runs(); ++r) {
            const Run run = block.run(r);
            if (run.first < run.last) work(run, r * pitch);
        }
    };
    // Coefficients of the caller's, and those in the scratch, for a scan.
    const auto decay_of = [&](const View<const Real>& view) {
        return [&](Index t, Index, Index env, const auto& work) { with_coefficients(rollout, view, t, env, work); };
    };
    const bool passes = rollout.mask && rollout.mask_passes_values;
    if (passes) block.pass_values(next_values);
    fill_deltas(rollout, block, passes ? next_values : nullptr, x);

    Real *advantages = x, *traced = x;
    if (rollout.returns_gamma_lambdas) {
        each_run([&](const Run& run, Index at) {
            std::memcpy(second + at + run.first, x + at + run.first, (run.last - run.first) * sizeof(Real));
        });
        traced = second;
        block.scan(traced, decay_of(rollout.returns_gamma_lambdas), kReturnsTrace);
    }
    if (rollout.tail_lambdas) {
        each_run([&](const Run& run, Index at) { std::fill(y + at + run.first, y + at + run.last, Real(1)); });
        block.scan(y, decay_of(rollout.tail_lambdas), kStepsLeft);
        each_run([&](const Run& run, Index at) {
            combine(run, y + at, x + at, x + at, [](auto a, auto b) FASTGAE_INLINE_LAMBDA { return a * b; });
        });
        block.scan(x, decay_of(rollout.gamma_lambdas), kTrace);
        each_run([&](const Run& run, Index at) {
            combine(run, x + at, y + at, x + at, [](auto a, auto b) FASTGAE_INLINE_LAMBDA { return a / b; });
        });
    } else if (rollout.ratios) {
        each_run([&](const Run& run, Index at) {
            with_coefficients(rollout, rollout.gamma_lambdas, run.t, run.env, [&](auto gamma_lambda) {
                weigh(rollout.clips, rollout.ratios.at(run.t, run.env), gamma_lambda, run, x + at, y + at, z + at);
            });
        });
        block.keep_following(y);
        block.scan(y, [&](Index, Index r, Index, const auto& work) { work(Coefficients<Real, true>{z + r * pitch}); }, kTrace);
        if (traced == x) traced = y;
        each_run([&](const Run& run, Index at) {
            with_coefficients(rollout, rollout.gamma_lambdas, run.t, run.env, [&](auto gamma_lambda) {
                const Flags flags = flags_of(rollout, run.t, run.env);
                const Real *ratios = rollout.ratios.at(run.t, run.env), *following = y + at + block.to_following();
                flags.truncated ? weigh_advantages<true>(rollout.clips.advantages, ratios, gamma_lambda, flags, run, following, x + at)
                                : weigh_advantages<false>(rollout.clips.advantages, ratios, gamma_lambda, flags, run, following, x + at);
            });
        });
    } else {
        block.scan(x, decay_of(rollout.gamma_lambdas), kTrace);
    }
    if (store == Store::nothing) return;

    with_outputs(rollout, [&](auto out) {
        using Out = decltype(out);
        each_run([&](const Run& run, Index at) {
            const Real *values = rollout.values.at(run.t, run.env), *a = advantages + at, *b = traced + at;
            Real* to_advantages = Out::advantages ? rollout.advantages.at(run.t, run.env) : nullptr;
            Real* to_returns = Out::returns ? rollout.returns.at(run.t, run.env) : nullptr;
            const std::uint8_t* mask = rollout.mask ? rollout.mask.at(run.t, run.env) : nullptr;
            if (store == Store::streamed && !mask) {
                stream_run<Out>(values, run, a, b, to_advantages, to_returns);
            } else {
                mask ? write_run<Out, true>(mask, values, run, a, b, to_advantages, to_returns)
                     : write_run<Out, false>(mask, values, run, a, b, to_advantages, to_returns);
            }
        });
    });
}

template <class Real>
void general_rows(const General<Real>& rollout, Index first, Index last, Real* states, Real* scratch, Store store) {
    const Index width = std::min(last - first, kGeneralNumbers), rows = std::max<Index>(1, kGeneralNumbers / width);
    const auto dense = [&](const auto& view) { return !view || view.step == rollout.envs; };
    const auto dense_or_number = [&](const auto& view) { return dense(view) || (view.step == 0 && view.env == 0); };
    const bool merge = width == rollout.envs && rows > 1 && dense(rollout.rewards) && dense(rollout.values) &&
                       dense(rollout.next_values) && dense(rollout.final_values) && dense(rollout.terminated) &&
                       dense(rollout.truncated) && dense(rollout.advantages) && dense(rollout.returns) && dense(rollout.mask) &&
                       dense(rollout.ratios) && dense_or_number(rollout.gammas) && dense_or_number(rollout.gamma_lambdas);
    for (Index top = rollout.steps, bottom; top > 0; top = bottom) {
        // V' of the last row lies elsewhere.
        bottom = top < rollout.steps || !merge ? std::max<Index>(0, top - rows) : top - 1;
        for (Index end = last, begin; end > first; end = begin) {
            begin = end - first > width ? end - width : first;
            const Rows<Real> block = {rollout, bottom, top, begin, end - begin, states + begin - first, merge};
            general_block(rollout, block, scratch, store);
        }
    }
}

template <class Real>
void general_lanes(const General<Real>& rollout, const Lane* lanes, Index count, Index bottom, Index top, Real* states,
                   Real* scratch, Store store) {
    while (top > bottom) {
        const Index s = std::max(bottom, top - Lanes<Real>::kSteps);
        general_block(rollout, Lanes<Real>{rollout, lanes, count, s, top - s, states}, scratch, store);
        top = s;
    }
}
