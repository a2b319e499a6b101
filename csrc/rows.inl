// Time-major: whole rows, from the last step to the first. Each row goes from its right end to its left, so that the
// sweep walks memory strictly downwards, which the CPU prefetches best. A_{t+1} waits in `carry`; V_{t+1} is
// still in a cache.

// Compute `count` vectors of one row, from env n on.
template <class V, class In, class Out, int count, class Real>
FASTGAE_INLINE void row_vectors(const Pointers<Real>& row, Real* advantages, Real* returns, Index n, Real* carry,
                                Real gamma, Real gamma_lambda) {
    typename V::Type a[count], values[count];
    unrolled<count>([&](auto k) {
        const Index at = n + k * V::width;
        const Deltas<V> d = deltas<V, In>(row, at, V::all(gamma));
        values[k] = d.values;
        a[k] = advantage<V>(d.delta, d.trace_open, V::all(gamma_lambda), V::load(carry + at));
        V::store(carry + at, a[k]);
    });
    store<V, Out>(advantages, returns, n, a, values);
}

// Which inputs of a row to prefetch. `values` leaves out next_values: they are the values of the row after, which are
// still in a cache.
enum class Prefetch { nothing, values, values_and_next };

// Compute the envs [first, last) of one row, a cache line at a time.
template <class In, class Out, Prefetch prefetch, class Real>
FASTGAE_INLINE void row_run(const Pointers<Real>& row, Real* advantages, Real* returns, Index first, Index last,
                            Real* carry, Real gamma, Real gamma_lambda, Index gap = 0) {
    using V = Vector<Real>;
    // At the left end of a sweep, the memory that comes next is the right end of the row before.
    const auto ahead = [&](Index size) { return kPrefetchBytes + (first * size < kPrefetchBytes ? gap * size : 0); };
    const Index numbers_ahead = ahead(sizeof(Real)), flags_ahead = ahead(1);
    constexpr Index line = kLine<Real>;
    Index n = last;
    while (n - first >= line) {
        n -= line;
        if constexpr (prefetch != Prefetch::nothing) {
            prefetch_below(row.rewards + n, numbers_ahead);
            prefetch_below(row.values + n, numbers_ahead);
            if constexpr (prefetch == Prefetch::values_and_next) prefetch_below(row.next_values + n, numbers_ahead);
            if constexpr (In::final_values) prefetch_below(row.final_values + n, numbers_ahead);
            if (n / line % 4 == 0) {  // one line of flags belongs to at least four lines of numbers
                prefetch_below(row.terminated + n, flags_ahead);
                if constexpr (In::truncated) prefetch_below(row.truncated + n, flags_ahead);
            }
        }
        row_vectors<V, In, Out, line / V::width>(row, advantages, returns, n, carry, gamma, gamma_lambda);
    }
    if constexpr (V::width < line)
        while (n - first >= V::width)
            row_vectors<V, In, Out, 1>(row, advantages, returns, n -= V::width, carry, gamma, gamma_lambda);
    while (n > first) row_vectors<Single<Real>, In, Out, 1>(row, advantages, returns, --n, carry, gamma, gamma_lambda);
}

// Return the inputs of row t, from env `first` on.
template <class In, class Real>
Pointers<Real> row_pointers(const Rollout<Real>& rollout, Index t, Index first) {
    const bool last = t == rollout.steps - 1;
    return pointers_at<In>(rollout, t, first,
                           last ? rollout.last_values.at(0, first) : rollout.next_values.at(t, first));
}

// Call body(inputs, advantages, returns) for the rows [bottom, T), from the last to the first. The pointers begin at
// env `first`. Sparse final values are written to `finals`, each to its place in the row. Pointers move by strides,
// because computing them anew takes as long as a dozen envs.
template <class In, class Real, class Body>
FASTGAE_INLINE void for_each_row(const Rollout<Real>& rollout, Index bottom, Index first, Index last, Real* finals,
                                 const Body& body) {
    const Index top = rollout.steps - 1;
    Pointers<Real> row = pointers_at<In>(rollout, top, first, rollout.last_values.at(0, first));
    Real *advantages = rollout.advantages.at(top, first), *returns = rollout.returns.at(top, first);
    for (Index t = top; t >= bottom; --t) {
        if (In::final_values && rollout.sparse_finals) {
            rollout.sparse_finals.scatter(t, first, last, finals);
            row.final_values = finals;
        }
        body(row, advantages, returns);
        row.rewards -= rollout.rewards.step;
        row.values -= rollout.values.step;
        row.next_values = rollout.next_values.at(t - 1, first);
        row.terminated -= rollout.terminated.step;
        if constexpr (In::truncated) row.truncated -= rollout.truncated.step;
        if constexpr (In::final_values) row.final_values -= rollout.final_values.step;
        advantages -= rollout.advantages.step;
        returns -= rollout.returns.step;
    }
}

// Compute the rows [bottom, T) of the envs [first, last) with ordinary stores.
template <class In, class Out, class Real>
void rows_cached(const Rollout<Real>& rollout, Index bottom, Index first, Index last, Real* carry, Real* finals) {
    const Real gamma = rollout.gamma, gamma_lambda = rollout.gamma_lambda;
    for_each_row<In>(rollout, bottom, first, last, finals,
                     [&](const Pointers<Real>& row, Real* advantages, Real* returns) FASTGAE_INLINE_LAMBDA {
                         row_run<In, Out, Prefetch::nothing>(row, advantages, returns, 0, last - first, carry, gamma,
                                                             gamma_lambda);
                     });
}

// Return whether whole rows are swept, and the rows of every result, like the rows of the values, are contiguous.
template <class Real>
bool rows_join(const Rollout<Real>& rollout, Index first, Index last) {
    const auto dense = [&](const auto& view) { return !view || view.step == rollout.envs; };
    return last - first == rollout.envs && rollout.envs >= kLine<Real> && dense(rollout.values) &&
           dense(rollout.advantages) && dense(rollout.returns);
}

// Compute the same rows with streaming stores, which write whole cache lines. The advantages of a turn of envs wait in
// `carry`, from where they are streamed. Turns are cut where a line of the advantages begins. If the returns have
// another alignment, the few returns below their own line wait for the next turn. The first results of a row also wait
// if their line begins in the row before: a copy at the end of `carry` makes them the next envs of that row.
template <class In, Prefetch prefetch, class Real>
void rows_streamed(const Rollout<Real>& rollout, Index bottom, Index first, Index last, Real* carry, Real* finals) {
    const Real gamma = rollout.gamma, gamma_lambda = rollout.gamma_lambda;
    const Index envs = last - first;
    const bool join = rows_join(rollout, first, last);
    const Index gap = rollout.rewards.step - envs;  // between the rows of this sweep; other inputs mostly have the same
    Index advantages_waiting = 0, returns_waiting = 0;  // of the row after
    for_each_row<In>(rollout, bottom, first, last, finals, [&](const auto& row, Real* advantages, Real* returns) {
        Index advantages_end = envs + advantages_waiting, returns_end = envs + returns_waiting;
        for (Index end = envs, begin; end > 0; end = begin) {
            begin = end > kStreamRun ? end - kStreamRun : 0;
            if (begin > 0) begin += to_line((advantages ? advantages : returns) + begin);
            prefetch_ahead(rollout.ahead, end - begin);
            row_run<In, Outputs<false, false>, prefetch>(row, advantages, returns, begin, end, carry, gamma,
                                                         gamma_lambda, gap);
            const bool more = begin > 0 || join;
            if (advantages) stream_down<false>(advantages, carry, row.values, begin, advantages_end, more);
            if (returns) stream_down<true>(returns, carry, row.values, begin, returns_end, more);
        }
        if (join) {
            advantages_waiting = advantages_end;
            returns_waiting = returns_end;
            std::copy_n(carry, kLine<Real>, carry + envs);
        }
    });
    const Real* const values = rollout.values.at(bottom, first);
    if (join && rollout.advantages)
        stream<false>(rollout.advantages.at(bottom, first), carry, values, 0, advantages_waiting);
    if (join && rollout.returns) stream<true>(rollout.returns.at(bottom, first), carry, values, 0, returns_waiting);
}

// Return whether a row is shorter than `count` vectors, and rows are contiguous in memory.
template <class V, int count, class Real>
bool is_narrow(const Rollout<Real>& rollout) {
    const auto dense = [&](const auto& view) { return !view || view.step == rollout.envs; };
    return rollout.envs < count * V::width && !rollout.sparse_finals && dense(rollout.rewards) &&
           dense(rollout.values) && dense(rollout.next_values) && dense(rollout.final_values) &&
           dense(rollout.terminated) && dense(rollout.truncated) && dense(rollout.advantages) && dense(rollout.returns);
}

// Compute the rows [0, top) of a narrow rollout. Such a row is too short to hide the latency from one row to the next,
// so the carry stays in registers. Vectors reach into the following rows, and their results there are useless. Results
// are therefore collected in padded rows and written upwards, so that each row overwrites the useless end of the row
// before.
template <class V, class In, class Out, int count, class Real>
void narrow_rows(const Rollout<Real>& rollout, Index top, const Real* carry) {
    constexpr Index padded = count * V::width;
    const Index envs = rollout.envs;
    const auto gamma = V::all(rollout.gamma), gamma_lambda = V::all(rollout.gamma_lambda);
    const Pointers<Real> at = row_pointers<In>(rollout, 0, 0);
    alignas(64) Real advantages[kNarrowRows * padded] = {}, returns[kNarrowRows * padded];
    std::memcpy(advantages, carry, envs * sizeof(Real));
    typename V::Type a[count];
    unrolled<count>([&](auto k) { a[k] = V::load(advantages + k * V::width); });

    for (Index bottom; top > 0; top = bottom) {
        bottom = top > kNarrowRows ? top - kNarrowRows : 0;
        for (Index t = top - 1; t >= bottom; --t) {
            unrolled<count>([&](auto k) {
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
                unrolled<count>([&](auto k) { V::store(to.at(t, k * V::width), V::load(rows + k * V::width)); });
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
void vector_rows(const Rollout<Real>& rollout, Index top, const Real* carry) {
    const auto gamma = V::all(rollout.gamma), gamma_lambda = V::all(rollout.gamma_lambda);
    const Pointers<Real> at = row_pointers<In>(rollout, 0, 0);
    Real *const advantages = rollout.advantages.data, *const returns = rollout.returns.data;
    typename V::Type a[1] = {V::load(carry)};
    for (Index i = (top - 1) * V::width; i >= 0; i -= V::width) {
        const Deltas<V> d = deltas<V, In>(at, i, gamma);
        const typename V::Type values[1] = {d.values};
        a[0] = advantage<V>(d.delta, d.trace_open, gamma_lambda, a[0]);
        store<V, Out>(advantages, returns, i, a, values);
    }
}

template <class Real>
void rows(const Rollout<Real>& rollout, Index first, Index last, Real* carry, Real* finals, Store store) {
    using V = Vector<Real>;
    // The vectors of narrow_rows must not reach past the last row, nor past the last row of next_values.
    const bool exact = rollout.envs == V::width;
    const Index reach = exact ? 1 : 1 + (2 * V::width + rollout.envs - 1) / rollout.envs;
    const Index narrow_top = is_narrow<V, 2>(rollout) ? std::max<Index>(0, rollout.steps - reach) : 0;
    with_inputs(rollout, [&](auto in) {
        using In = decltype(in);
        if (store == Store::streamed) {
            const bool next_elsewhere = rollout.next_values.data != rollout.values.at(1, 0);
            const auto run = next_elsewhere ? rows_streamed<In, Prefetch::values_and_next, Real>
                                            : rows_streamed<In, Prefetch::values, Real>;
            run(rollout, narrow_top, first, last, carry, finals);
        }
        if (store == Store::cached || narrow_top)
            with_outputs(rollout, [&](auto out) {
                using Out = decltype(out);
                if (store == Store::cached) rows_cached<In, Out>(rollout, narrow_top, first, last, carry, finals);
                if (narrow_top) {
                    const auto run = exact                     ? vector_rows<V, In, Out, Real>
                                     : rollout.envs < V::width ? narrow_rows<V, In, Out, 1, Real>
                                                               : narrow_rows<V, In, Out, 2, Real>;
                    run(rollout, narrow_top, carry);
                }
            });
    });
}
