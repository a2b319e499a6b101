// Time-major: whole rows, from the last step to the first and, for the sake of the memory, each from its right end to its
// left, so that the sweep walks strictly down. A_{t+1} waits in carry; V_{t+1} is still in a cache.

// `count` vectors of one row from env n on.
template <class V, class In, class Out, int count, class Real>
FASTGAE_INLINE void row_at(const Pointers<Real>& row, Real* advantages, Real* returns, Index n, Real* carry, Real gamma,
                           Real gamma_lambda) {
    typename V::Type a[count], values[count];
    unrolled<count>([&](auto k) {
        const Index at = n + k * V::width;
        const Deltas<V> d = deltas<V, In>(row, at, V::all(gamma));
        values[k] = d.values;
        a[k] = advantage<V>(d.delta, d.trace, V::all(gamma_lambda), V::load(carry + at));
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

template <class In, class Out, bool streamed, class Real>
void rows_of(const Rollout<Real>& rollout, Index first, Index last, Real* carry) {
    const Index width = last - first, final_step = rollout.steps - 1;
    const Real gamma = rollout.gamma, gamma_lambda = rollout.gamma_lambda;
    for (Index n = 0; n < width; ++n) carry[n] = 0;

    for (Index t = final_step; t >= 0; --t) {
        const Pointers<Real> row = {rollout.rewards.at(t, first),
                                    rollout.values.at(t, first),
                                    t == final_step ? rollout.last_values.at(0, first) : rollout.next_values.at(t, first),
                                    In::final_values ? rollout.final_values.at(t, first) : nullptr,
                                    rollout.terminated.at(t, first),
                                    In::truncated ? rollout.truncated.at(t, first) : nullptr};
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
