// Time-major: whole rows, from the last step to the first. Each row goes from its right end to its left, so that the
// sweep walks memory strictly downwards, which the CPU prefetches best. A_{t+1} waits in `carry`; V_{t+1} is
// still in a cache.

// The inputs of one row, from the first env of a sweep on. Without options, `at` is all.
template <class Real>
struct Row {
    Pointers<Real> at;
    const std::uint8_t *mask, *mask_after;  // mask_after says whether V' of an env is V of the row after
    const Real* ratios;
    const Real* coefficients[kRatio];
    Index varies[kRatio];  // -1: the coefficient varies along the row; 0: it is repeated for one cache line
};

// Where a row is written.
template <class Real>
struct Results {
    Real *advantages, *returns;
};

// Compute the vector of one row that lies `offset` envs after env n, where the first vector of a block lies.
template <class V, class In, class Known, class Real>
FASTGAE_INLINE void row_vector(const Row<Real>& row, const Known& options, const Numbers<Real>& numbers,
                               const States<Real>& states, Index n, Index offset, typename V::Type& advantages,
                               typename V::Type& returns) {
    const Index at = n + offset;
    const auto factor = [&](Factor which) FASTGAE_INLINE_LAMBDA {
        if (which == kRatio) return V::load(row.ratios + at);
        if constexpr (Known::arrays) return V::load(row.coefficients[which] + (n & row.varies[which]) + offset);
        return V::all(which == kGamma ? numbers.gamma : numbers.gamma_lambda);
    };
    const auto to_next_values = [&](auto next) FASTGAE_INLINE_LAMBDA {
        if (!options.mask) return next;
        Real* const passed = states.of(kNextValue) + at;
        const auto value = V::select(V::zero_flags(row.mask_after + at), V::load(passed), next);
        V::store(passed, value);
        return value;
    };
    const Deltas<V> d = deltas<V, In>(row.at, at, factor(kGamma), to_next_values);
    typename V::Mask skipped{};
    if (options.mask) skipped = V::zero_flags(row.mask + at);
    Carry<V> carry = load_carry<V>(options, states, at);
    StepResults<V> results = step<V>(options, numbers.constants, d.delta, d.trace_open, skipped, factor, carry);
    store_carry(options, carry, states, at);
    if (options.blanks()) {  // a step that does not exist gets A = 0 and R = V
        results.advantages = V::select(skipped, V::all(0), results.advantages);
        results.returns_minus_values = V::select(skipped, V::all(Real(-0.0)), results.returns_minus_values);
    }
    advantages = results.advantages;
    returns = results.returns_minus_values + d.values;
}

// Compute `count` vectors of one row, from env n on.
template <class V, class In, class Out, int count, class Known, class Real>
FASTGAE_INLINE void row_vectors(const Row<Real>& row, const Results<Real>& to, const Known& options,
                                const Numbers<Real>& numbers, const States<Real>& states, Index n) {
    typename V::Type a[count], r[count];
    unrolled<count>([&](int k) FASTGAE_INLINE_LAMBDA {
        row_vector<V, In>(row, options, numbers, states, n, k * V::width, a[k], r[k]);
    });
    store<V, Out>(to.advantages, to.returns, n, a, r);
}

// Which inputs of a row to prefetch. `values` leaves out next_values: they are the values of the row after, which are
// still in a cache.
enum class Prefetch { nothing, values, values_and_next };

// How to prefetch, and where. `gap` is the distance to the row before.
struct Ahead {
    int way = 0;
    Index gap = 0;
};

// Compute the envs [first, last) of one row, a cache line at a time.
template <class In, class Out, Prefetch prefetch, class Known, class Real>
FASTGAE_INLINE void row_run(const Row<Real>& row, const Results<Real>& to, const Known& options,
                            const Numbers<Real>& numbers, const States<Real>& states, Index first, Index last,
                            const Ahead& ahead = {}) {
    using V = Vector<Real>;
    // At the left end of a sweep, the memory that comes next is the right end of the row before.
    const auto distance = [&](Index size) {
        return kPrefetchBytes + (first * size < kPrefetchBytes ? ahead.gap * size : 0);
    };
    const Index numbers_ahead = distance(sizeof(Real)), flags_ahead = distance(1);
    constexpr Index line = kLine<Real>;
    Index n = last;
    while (n - first >= line) {
        n -= line;
        if constexpr (prefetch != Prefetch::nothing)
            with_level(ahead.way, [&](auto into) FASTGAE_INLINE_LAMBDA {
                Index apart = 0;
                const auto numbers = [&](const Real* at) {
                    prefetch_below<into>(at + n, numbers_ahead + apart);
                    apart += kPrefetchApart;
                };
                const auto flags = [&](const std::uint8_t* at) { prefetch_below<into>(at + n, flags_ahead); };
                numbers(row.at.rewards);
                numbers(row.at.values);
                if constexpr (prefetch == Prefetch::values_and_next) numbers(row.at.next_values);
                if (In::final_values && (!In::optional || row.at.final_values)) numbers(row.at.final_values);
                if (options.ratios) numbers(row.ratios);
                for (int which = 0; Known::arrays && which < kRatio; ++which)
                    if (row.varies[which]) numbers(row.coefficients[which]);
                if (n / line % 4 != 0) return;  // one line of flags belongs to at least four lines of numbers
                flags(row.at.terminated);
                if constexpr (In::truncated) flags(row.at.truncated);
                if (options.mask) flags(row.mask);
            });
        row_vectors<V, In, Out, line / V::width>(row, to, options, numbers, states, n);
    }
    if constexpr (V::width < line)
        while (n - first >= V::width) row_vectors<V, In, Out, 1>(row, to, options, numbers, states, n -= V::width);
    while (n > first) row_vectors<Single<Real>, In, Out, 1>(row, to, options, numbers, states, --n);
}

// The coefficients of a row. Those that do not vary along the row are repeated, so that a step always reads a vector.
template <class Real>
struct RowCoefficients {
    alignas(64) Real repeated[kRatio][kLine<Real>];

    void point(const CanonicalRollout<Real>& rollout, Index t, Index first, Row<Real>& row) {
        const bool last = t == rollout.steps - 1;
        unrolled<kRatio>([&](int which) FASTGAE_INLINE_LAMBDA {
            const View<const Real>& factor = factor_of(rollout, Factor(which));
            if (!factor || !(last || factor.step)) return;
            row.varies[which] = -Index(factor.env != 0);
            row.coefficients[which] = factor.env ? factor.at(t, first) : repeated[which];
            if (!factor.env) std::fill_n(repeated[which], kLine<Real>, *factor.at(t, first));
        });
    }
};

// Memory of a sweep for one row of numbers each.
template <class Real>
struct RowScratch {
    Real* decays;
    double* traces;
    std::uint8_t* all;  // flags that are all true: every step after the last one exists
};

// Write the decays gamma c_next of Retrace for row t of the envs [first, last). `traces` holds c of the next step that
// exists, and then of this one; it is not needed where one number of each row and the ratios of the next row give c.
template <class Real>
void write_decays(const CanonicalRollout<Real>& rollout, Index t, Index first, Index last, double* traces,
                  Real* decays) {
    // Locals, because the stores could change what the rollout holds, as far as a compiler knows.
    const double *const gammas = rollout.wide_gammas.at(t, first), *const lambdas = rollout.wide_lambdas.at(t, first);
    const double gamma = *gammas, lambda = *lambdas;
    const bool gammas_vary = rollout.wide_gammas.env, lambdas_vary = rollout.wide_lambdas.env;
    const Real* const ratios = rollout.ratios.at(t, first);
    const std::uint8_t* const mask = rollout.mask ? rollout.mask.at(t, first) : nullptr;
    if (!mask && !gammas_vary && !lambdas_vary && t + 1 < rollout.steps) {  // c_next is that of the row after
        const double after = *rollout.wide_lambdas.at(t + 1, first);
        const Real* const following = ratios + rollout.ratios.step;
        return for_each_vector<double>(0, last - first, [=](auto v, Index n) FASTGAE_INLINE_LAMBDA {
            using V = decltype(v);
            V::store(decays + n, V::all(gamma) * trace_of<V>(V::all(after), following + n));
        });
    }
    for_each_vector<double>(0, last - first, [=](auto v, Index n) FASTGAE_INLINE_LAMBDA {
        using V = decltype(v);
        const auto following = V::load(traces + n);
        auto trace = trace_of<V>(lambdas_vary ? V::load(lambdas + n) : V::all(lambda), ratios + n);
        if (mask) trace = V::select(V::zero_flags(mask + n), following, trace);
        V::store(decays + n, (gammas_vary ? V::load(gammas + n) : V::all(gamma)) * following);
        V::store(traces + n, trace);
    });
}

// Call body(row, results) for the rows [bottom, T), from the last to the first. The pointers begin at env `first`. They
// move by strides, because computing them anew takes as long as a dozen envs.
template <class In, class Known, class Real, class Body>
FASTGAE_INLINE void for_each_row(const CanonicalRollout<Real>& rollout, const Known& options, Index bottom, Index first,
                                 Index last, const RowScratch<Real>& scratch, const Body& body) {
    const Index top = rollout.steps - 1;
    Row<Real> row = {};
    row.at = pointers_at<In>(rollout, top, first, rollout.last_values.at(0, first));
    Results<Real> to = {rollout.advantages.at(top, first), rollout.returns.at(top, first)};
    RowCoefficients<Real> coefficients;
    const bool passes_values = options.mask && rollout.mask_passes_values;
    if (options.mask) row.mask = rollout.mask.at(top, first), row.mask_after = scratch.all;
    if (options.ratios) row.ratios = rollout.ratios.at(top, first);
    for (Index t = top; t >= bottom; --t) {
        if constexpr (Known::arrays) coefficients.point(rollout, t, first, row);
        if (Known::arrays && options.retrace) {
            write_decays(rollout, t, first, last, scratch.traces, scratch.decays);
            row.coefficients[kGammaLambda] = scratch.decays;
            row.varies[kGammaLambda] = -1;
        }
        body(row, to);
        row.at.rewards -= rollout.rewards.step;
        row.at.values -= rollout.values.step;
        row.at.next_values = rollout.next_values.at(t - 1, first);
        row.at.terminated -= rollout.terminated.step;
        if constexpr (In::truncated) row.at.truncated -= rollout.truncated.step;
        if constexpr (In::final_values) row.at.final_values -= rollout.final_values.step;
        if (passes_values) row.mask_after = row.mask;
        if (options.mask) row.mask -= rollout.mask.step;
        if (options.ratios) row.ratios -= rollout.ratios.step;
        to.advantages -= rollout.advantages.step;
        to.returns -= rollout.returns.step;
    }
}

// Compute the rows [bottom, T) of the envs [first, last) with ordinary stores.
template <class In, class Out, class Known, class Real>
void rows_cached(const CanonicalRollout<Real>& rollout, Options given, Index bottom, Index first, Index last,
                 States<Real> states, const RowScratch<Real>& scratch) {
    const Known options{given};
    const Numbers<Real> numbers(rollout);
    for_each_row<In>(rollout, options, bottom, first, last, scratch,
                     [&](const Row<Real>& row, const Results<Real>& to) FASTGAE_INLINE_LAMBDA {
                         row_run<In, Out, Prefetch::nothing>(row, to, options, numbers, states, 0, last - first);
                     });
}

// Return whether whole rows are swept, and the rows of every result, like the rows of the values, are contiguous.
template <class Real>
bool rows_join(const CanonicalRollout<Real>& rollout, Index first, Index last) {
    const auto dense = [&](const auto& view) { return !view || view.step == rollout.envs; };
    return last - first == rollout.envs && rollout.envs >= kLine<Real> && dense(rollout.values) &&
           dense(rollout.advantages) && dense(rollout.returns);
}

// Results that wait to be streamed: those of a turn of envs, and after them those whose cache line is not yet whole.
template <class Real>
struct Turn {
    alignas(64) Real results[kStreamRun + kLine<Real>];

    // Make room for the envs [begin, end) before those that wait; return where env 0 would be.
    Real* begin(Index begin, Index end, Index waiting) {
        std::memmove(results + (end - begin), results, waiting * sizeof(Real));
        return results - begin;
    }
};

// Compute the same rows with streaming stores, which write whole cache lines. The results of a turn of envs wait to be
// streamed; without options they are A in the states. Turns are cut where a line of the advantages begins. If the
// returns have another alignment, the few returns below their own line wait for the next turn. The first results of a
// row also wait if their line begins in the row before, where they become the envs after the last one.
template <class In, class Known, class Real, class Run>
FASTGAE_INLINE void rows_streamed(const CanonicalRollout<Real>& rollout, const Known& options, Index bottom,
                                  Index first, Index last, Real* trace, const RowScratch<Real>& scratch,
                                  Prefetching& prefetching, const Run& run) {
    constexpr bool plain = Known::plain;
    const Index envs = last - first;
    const bool join = rows_join(rollout, first, last);
    Turn<Real> advantages_turn, returns_turn;
    Index advantages_end = 0, returns_end = 0;      // of the results that are computed and wait
    const Index gap = rollout.rewards.step - envs;  // between rows; other inputs mostly have the same
    const auto stream_row = [&](const Row<Real>& row, const Results<Real>& to) FASTGAE_INLINE_LAMBDA {
        advantages_end += envs, returns_end += envs;
        const Ahead ahead = {prefetching.next(4 * envs * Index(sizeof(Real))), gap};
        const Index most = ahead.way == kShortRuns ? kShortRunBytes / Index(sizeof(Real)) : kStreamRun;
        for (Index end = envs, begin; end > 0; end = begin) {
            begin = end > most ? end - most : 0;
            if (begin > 0) begin += to_line((to.advantages ? to.advantages : to.returns) + begin);
            Results<Real> turn = {trace, trace};
            if (!plain) {
                turn.advantages = advantages_turn.begin(begin, end, to.advantages ? advantages_end - end : 0);
                turn.returns = returns_turn.begin(begin, end, to.returns ? returns_end - end : 0);
            }
            run(row, turn, begin, end, ahead);
            const bool more = begin > 0 || join;
            const Real* const values = row.at.values;
            if (to.advantages) stream_down<false>(to.advantages, turn.advantages, values, begin, advantages_end, more);
            if (to.returns) stream_down<plain>(to.returns, turn.returns, values, begin, returns_end, more);
        }
        if (!join) advantages_end = returns_end = 0;
        if (plain && join) std::copy_n(trace, kLine<Real>, trace + envs);
    };
    for_each_row<In>(rollout, options, bottom, first, last, scratch, stream_row);
    if (!join) return;
    const Real* const values = rollout.values.at(bottom, first);
    const Real *const a = plain ? trace : advantages_turn.results, *const r = plain ? trace : returns_turn.results;
    if (rollout.advantages) stream<false>(rollout.advantages.at(bottom, first), a, values, 0, advantages_end);
    if (rollout.returns) stream<plain>(rollout.returns.at(bottom, first), r, values, 0, returns_end);
}

// Compute the rows [0, top) of a rollout with short rows. Such a row is too short to hide the latency from one row to
// the next, so the carry stays in registers. Vectors reach into the following rows, and their results there are
// useless. Results are therefore collected in padded rows and written upwards, so that each row overwrites the useless
// end of the row before.
template <class V, class In, class Out, int count, class Real>
void short_rows(const CanonicalRollout<Real>& rollout, Index top, const Real* carry) {
    constexpr Index padded = count * V::width;
    const Index envs = rollout.envs;
    const auto gamma = V::all(*rollout.gammas.data), gamma_lambda = V::all(*rollout.gamma_lambdas.data);
    const Pointers<Real> at = pointers_at<In>(rollout, 0, 0, rollout.next_values.data);
    alignas(64) Real advantages[kShortRows * padded] = {}, returns[kShortRows * padded];
    std::memcpy(advantages, carry, envs * sizeof(Real));
    typename V::Type a[count];
    unrolled<count>([&](int k) FASTGAE_INLINE_LAMBDA { a[k] = V::load(advantages + k * V::width); });

    for (Index bottom; top > 0; top = bottom) {
        bottom = top > kShortRows ? top - kShortRows : 0;
        for (Index t = top - 1; t >= bottom; --t) {
            unrolled<count>([&](int k) FASTGAE_INLINE_LAMBDA {
                const Index to = (t - bottom) * padded + k * V::width;
                const Deltas<V> d = deltas<V, In>(at, t * envs + k * V::width, gamma);
                a[k] = advantage<V>(d.delta, d.trace_open, gamma_lambda, a[k]);
                if constexpr (Out::advantages) V::store(advantages + to, a[k]);
                if constexpr (Out::returns) V::store(returns + to, a[k] + d.values);
            });
        }
        const auto write = [&](const Real* rows, const View<Real>& to) {
            Index t = bottom;
            for (; t * envs + padded <= top * envs; ++t, rows += padded)
                unrolled<count>([&](int k) FASTGAE_INLINE_LAMBDA {
                    V::store(to.at(t, k * V::width), V::load(rows + k * V::width));
                });
            for (; t < top; ++t, rows += padded)
                for (Index n = 0; n < envs; ++n) *to.at(t, n) = rows[n];
        };
        if constexpr (Out::advantages) write(advantages, rollout.advantages);
        if constexpr (Out::returns) write(returns, rollout.returns);
    }
}

// Compute the rows [0, top) of a rollout whose rows are one vector each and contiguous. No vector reaches into another
// row, so results need not be collected.
template <class V, class In, class Out, class Real>
void vector_rows(const CanonicalRollout<Real>& rollout, Index top, const Real* carry) {
    const auto gamma = V::all(*rollout.gammas.data), gamma_lambda = V::all(*rollout.gamma_lambdas.data);
    const Pointers<Real> at = pointers_at<In>(rollout, 0, 0, rollout.next_values.data);
    Real *const advantages = rollout.advantages.data, *const returns = rollout.returns.data;
    typename V::Type a[1] = {V::load(carry)};
    for (Index i = (top - 1) * V::width; i >= 0; i -= V::width) {
        const Deltas<V> d = deltas<V, In>(at, i, gamma);
        a[0] = advantage<V>(d.delta, d.trace_open, gamma_lambda, a[0]);
        const typename V::Type r[1] = {a[0] + d.values};
        store<V, Out>(advantages, returns, i, a, r);
    }
}

template <class Real>
constexpr Index kArrayEnvs = kArrayRowBytes / sizeof(Real);

// Compute the rows [0, top) as one array, in which element i + envs is the step after element i. A of that step is read
// from the results: no carry is written, no row has ends of its own, and vectors begin where a line of the advantages
// does, wherever the rows begin.
template <class In, class Out, class Real>
void rows_as_array(const CanonicalRollout<Real>& rollout, Index top) {
    const Numbers<Real> numbers(rollout);
    const Pointers<Real> at = pointers_at<In>(rollout, 0, 0, rollout.next_values.data);
    Real *const advantages = rollout.advantages.data, *const returns = rollout.returns.data;
    const Real* const following = rollout.advantages.at(1, 0);
    const auto run = [&](auto v, Index i) FASTGAE_INLINE_LAMBDA {
        using V = decltype(v);
        const Deltas<V> d = deltas<V, In>(at, i, V::all(numbers.gamma));
        const auto next = V::load(following + i);
        const typename V::Type a[1] = {advantage<V>(d.delta, d.trace_open, V::all(numbers.gamma_lambda), next)};
        const typename V::Type r[1] = {a[0] + d.values};
        store<V, Out>(advantages, returns, i, a, r);
    };
    const Index count = top * rollout.envs, last_line = count - (count - to_line(advantages)) % kLine<Real>;
    for_each_vector<Real>(last_line, count, run);
    for_each_vector<Real>(0, last_line, run);
}

// Compute the rows [0, top) of a rollout without options whose rows are contiguous.
template <class In, class Out, class Real>
void dense_rows(const CanonicalRollout<Real>& rollout, Index top, const Real* carry) {
    using V = Vector<Real>;
    static_assert(kArrayEnvs<Real> >= 2 * V::width, "short rows are swept by themselves");
    if (rollout.envs >= kArrayEnvs<Real>) {
        if constexpr (Out::advantages) rows_as_array<In, Out>(rollout, top);
        return;
    }
    const auto run = rollout.envs == V::width  ? vector_rows<V, In, Out, Real>
                     : rollout.envs < V::width ? short_rows<V, In, Out, 1, Real>
                                               : short_rows<V, In, Out, 2, Real>;
    run(rollout, top, carry);
}

// Stream the rows [bottom, T) of a rollout without options.
template <class In, Prefetch prefetch, class Real>
void plain_rows_streamed(const CanonicalRollout<Real>& rollout, Index bottom, Index first, Index last,
                         const States<Real> states, const RowScratch<Real>& scratch, Prefetching& prefetching) {
    const NoOptions options{Options(rollout)};
    const Numbers<Real> numbers(rollout);
    const auto run = [&](const auto& row, const auto& to, Index begin, Index end,
                         const Ahead& ahead) FASTGAE_INLINE_LAMBDA {
        const auto with = [&](auto what) FASTGAE_INLINE_LAMBDA {
            row_run<In, Outputs<false, false>, what>(row, to, options, numbers, states, begin, end, ahead);
        };
        if (ahead.way)
            with(std::integral_constant<Prefetch, prefetch>());
        else
            with(std::integral_constant<Prefetch, Prefetch::nothing>());
    };
    rows_streamed<In>(rollout, options, bottom, first, last, states.of(kTrace), scratch, prefetching, run);
}

// Compute the rows of a rollout without options.
template <class In, class Real>
void plain_rows(const CanonicalRollout<Real>& rollout, Index first, Index last, States<Real> states, Store store,
                Prefetching& prefetching) {
    using V = Vector<Real>;
    const RowScratch<Real> scratch = {};
    const bool whole = is_dense(rollout) && last - first == rollout.envs, few = rollout.envs < 2 * V::width;
    const bool as_array = store == Store::cached && rollout.envs >= kArrayEnvs<Real> && rollout.advantages;
    // The vectors of short_rows must not reach past the last row, nor past the last row of next_values.
    const Index reach = few && rollout.envs != V::width ? 1 + (2 * V::width + rollout.envs - 1) / rollout.envs : 1;
    const Index top = whole && (few || as_array) ? std::max<Index>(0, rollout.steps - reach) : 0;
    if (store == Store::streamed) {
        const auto run = has_own_next_values(rollout) ? plain_rows_streamed<In, Prefetch::values_and_next, Real>
                                                      : plain_rows_streamed<In, Prefetch::values, Real>;
        run(rollout, top, first, last, states, scratch, prefetching);
        if (!top) return;
    }
    with_outputs(rollout, [&](auto out) {
        using Out = decltype(out);
        if (store == Store::cached)
            rows_cached<In, Out, NoOptions>(rollout, Options(rollout), top, first, last, states, scratch);
        if (top) dense_rows<In, Out>(rollout, top, states.of(kTrace));
    });
}

// The kernels of rows with options, of which they know those in Known. They write both results. `cached` computes all
// rows, and `turn` the envs [begin, end) of one row.
template <class Real>
struct RowsWith {
    void (*cached)(const CanonicalRollout<Real>&, Options, Index bottom, Index first, Index last, States<Real>,
                   const RowScratch<Real>&);
    void (*turn)(const Row<Real>&, const Results<Real>&, const Options&, const Numbers<Real>&, const States<Real>&,
                 Index begin, Index end, const Ahead&);
};
template <class In, class Known, class Real>
void turn_with(const Row<Real>& row, const Results<Real>& to, const Options& options, const Numbers<Real>& numbers,
               const States<Real>& states, Index begin, Index end, const Ahead& ahead) {
    row_run<In, Outputs<true, true>, Prefetch::values_and_next>(row, to, Known{options}, numbers, states, begin, end,
                                                                ahead);
}
template <class In, class Known, class Real>
constexpr RowsWith<Real> rows_with = {rows_cached<In, Outputs<true, true>, Known, Real>, turn_with<In, Known, Real>};

// Return the kernels for the options of a rollout.
template <class Real>
RowsWith<Real> rows_kernels(const CanonicalRollout<Real>& rollout, const Options& options) {
    return with_options(options, [&](auto known) -> RowsWith<Real> {
        using Known = decltype(known);
        if constexpr (Known::common)
            return with_inputs(rollout, [&](auto in) { return rows_with<decltype(in), Known, Real>; });
        return rows_with<AnyInputs, Known, Real>;
    });
}

// Compute the rows of a rollout with options, or turns of each row if they are streamed. `memory` has kScratchRows
// rows.
template <class Real>
void rows_with_options(const CanonicalRollout<Real>& given, Index first, Index last, States<Real> states, Real* memory,
                       Store store, Prefetching& prefetching) {
    const Options options(given);
    const RowsWith<Real> kernels = rows_kernels(given, options);
    CanonicalRollout<Real> rollout = given;
    const auto row = [&](Index i) { return memory + i * states.stride; };
    Real *const unwanted = row(0), *const traces = row(3);
    const RowScratch<Real> scratch = {row(2), reinterpret_cast<double*>(traces + to_line(traces)),
                                      reinterpret_cast<std::uint8_t*>(row(1))};
    std::fill_n(scratch.traces, options.retrace ? last - first : 0, 0.0);
    if (options.mask) std::memset(scratch.all, 1, last - first);
    if (!rollout.truncated) rollout.truncated = rollout.terminated;  // cuts no trace more
    if (store == Store::streamed) {
        const Numbers<Real> numbers(rollout);
        const auto run =
            [&](const auto& row, const auto& to, Index begin, Index end, const Ahead& ahead)
                FASTGAE_INLINE_LAMBDA { kernels.turn(row, to, options, numbers, states, begin, end, ahead); };
        return rows_streamed<AnyInputs>(rollout, options, 0, first, last, states.of(kTrace), scratch, prefetching, run);
    }
    // A result that is not wanted is written all the same.
    for (View<Real>* const result : {&rollout.advantages, &rollout.returns})
        if (!*result) *result = {unwanted - first, 0, 1};
    kernels.cached(rollout, options, 0, first, last, states, scratch);
}

template <class Real>
void rows(const CanonicalRollout<Real>& rollout, Index first, Index last, Real* states, Index stride, Real* scratch,
          Store store, Prefetching& prefetching) {
    const States<Real> rows_of = {states, stride};
    if (rollout.has_options()) return rows_with_options(rollout, first, last, rows_of, scratch, store, prefetching);
    with_inputs(rollout, [&](auto in) { plain_rows<decltype(in)>(rollout, first, last, rows_of, store, prefetching); });
}
