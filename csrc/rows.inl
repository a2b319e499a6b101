// Time-major: whole rows, from the last step to the first and, for the sake of the memory, each from its right end to
// its left, so that the sweep walks strictly down. A_{t+1} waits in carry; V_{t+1} is still in a cache.

// `count` vectors of one row from env n on.
template <class V, class In, class Out, int count, class Real>
FASTGAE_INLINE void row_at(const Pointers<Real>& row, Real* advantages, Real* returns, Index n, Real* carry, Real gamma,
                           Real gamma_lambda) {
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

// The envs [first, last) of one row, a cache line at a time.
template <class In, class Out, bool ahead, class Real>
FASTGAE_INLINE void row_of(const Pointers<Real>& row, Real* advantages, Real* returns, Index first, Index last, Real* carry,
                           Real gamma, Real gamma_lambda) {
    using V = Vector<Real>;
    constexpr Index line = kLine<Real>;
    Index n = last;
    while (n - first >= line) {
        n -= line;
        if constexpr (ahead) {
            prefetch_below(row.rewards + n, kPrefetchBytes);
            prefetch_below(row.values + n, kPrefetchBytes);
            if (n / line % 4 == 0) {
                prefetch_below(row.terminated + n, kPrefetchBytes);
                if constexpr (In::truncated) prefetch_below(row.truncated + n, kPrefetchBytes);
            }
        }
        row_at<V, In, Out, line / V::width>(row, advantages, returns, n, carry, gamma, gamma_lambda);
    }
    while (n - first >= V::width)
        row_at<V, In, Out, 1>(row, advantages, returns, n -= V::width, carry, gamma, gamma_lambda);
    while (n > first) row_at<Single<Real>, In, Out, 1>(row, advantages, returns, --n, carry, gamma, gamma_lambda);
}

// The arrays of row t, from env `first` on.
template <class In, class Real>
Pointers<Real> row_pointers(const Rollout<Real>& rollout, Index t, Index first) {
    return {rollout.rewards.at(t, first),
            rollout.values.at(t, first),
            t == rollout.steps - 1 ? rollout.last_values.at(0, first) : rollout.next_values.at(t, first),
            In::final_values ? rollout.final_values.at(t, first) : nullptr,
            rollout.terminated.at(t, first),
            In::truncated ? rollout.truncated.at(t, first) : nullptr};
}

// Whether a row is less than `vectors` vectors, and each row follows the one before it in memory.
template <class V, int vectors, class Real>
bool narrow(const Rollout<Real>& rollout) {
    const auto dense = [&](const auto& view) { return !view || view.step == rollout.envs; };
    return rollout.envs < vectors * V::width && !rollout.sparse_finals && dense(rollout.rewards) && dense(rollout.values) &&
           dense(rollout.next_values) && dense(rollout.final_values) && dense(rollout.terminated) && dense(rollout.truncated) &&
           dense(rollout.advantages) && dense(rollout.returns);
}

// Rows of few envs, from row `top` - 1 down: their carry stays in registers, for what a wider row hides, the time from
// one row to the next, is all there is. Vectors reach into the rows above, whose lanes are computed in vain. Results
// wait in padded rows, and are then written upwards, so that what is in vain is overwritten.
template <class V, class In, class Out, int count, class Real>
void narrow_rows(const Rollout<Real>& rollout, Index top, Real* carry) {
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
                const Index here = (t - bottom) * padded + k * V::width;
                const Deltas<V> d = deltas<V, In>(at, t * envs + k * V::width, gamma);
                a[k] = advantage<V>(d.delta, d.trace_open, gamma_lambda, a[k]);
                if constexpr (Out::advantages) V::store(advantages + here, a[k]);
                if constexpr (Out::returns) V::store(returns + here, a[k] + d.values);
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

template <class In, class Out, bool streamed, class Real>
void rows_of(const Rollout<Real>& rollout, Index first, Index last, Real* carry, Real* finals) {
    using V = Vector<Real>;
    const Index width = last - first;
    const Real gamma = rollout.gamma, gamma_lambda = rollout.gamma_lambda;
    for (Index n = 0; n < width; ++n) carry[n] = 0;

    // Vectors must not reach past the last row, nor past that of the next values.
    const Index reach = 1 + (2 * V::width + rollout.envs - 1) / rollout.envs;
    const Index narrow_top = narrow<V, 2>(rollout) ? rollout.steps - reach : 0;
    for (Index t = rollout.steps - 1; t >= 0; --t) {
        if (t < narrow_top)
            return rollout.envs <= V::width ? narrow_rows<V, In, Out, 1>(rollout, t + 1, carry)
                                            : narrow_rows<V, In, Out, 2>(rollout, t + 1, carry);
        Pointers<Real> row = row_pointers<In>(rollout, t, first);
        if (rollout.sparse_finals) {
            rollout.sparse_finals.scatter(t, first, last, finals);
            row.final_values = finals;
        }
        Real* advantages = Out::advantages ? rollout.advantages.at(t, first) : nullptr;
        Real* returns = Out::returns ? rollout.returns.at(t, first) : nullptr;
        if constexpr (streamed) {
            for (Index end = width; end > 0;) {
                Index begin = end > kStreamRun ? end - kStreamRun : 0;
                if (begin > 0) begin += to_line(Out::advantages ? advantages + begin : returns + begin);
                row_of<In, Outputs<false, false>, true>(row, advantages, returns, begin, end, carry, gamma, gamma_lambda);
                stream<Out>(advantages, returns, carry, row.values, begin, end);
                end = begin;
            }
        } else {
            row_of<In, Out, false>(row, advantages, returns, 0, width, carry, gamma, gamma_lambda);
        }
    }
}

template <class Real>
void rows(const Rollout<Real>& rollout, Index first, Index last, Real* carry, Real* finals, Store store) {
    with_inputs(rollout, [&](auto in) {
        with_outputs(rollout, [&](auto out) {
            using In = decltype(in);
            using Out = decltype(out);
            store == Store::streamed ? rows_of<In, Out, true>(rollout, first, last, carry, finals)
                                     : rows_of<In, Out, false>(rollout, first, last, carry, finals);
        });
    });
}
