// Time-major: whole rows, from the last step to the first and, for the sake of the memory, each from its right end to its
// left, so that the sweep walks strictly down. A_{t+1} waits in carry; V_{t+1} is still in a cache.

template <class V, class In, class Out, class Real>
FASTGAE_INLINE void row_at(const Pointers<Real>& row, Real* advantages, Real* returns, Index n, Real* carry, Real gamma,
                   Real gamma_lambda) {
    const Deltas<V> d = deltas<V, In>(row, n, V::all(gamma));
    const auto a = advantage<V>(d.delta, d.trace, V::all(gamma_lambda), V::load(carry + n));
    V::store(carry + n, a);
    put_results<V, Out>(advantages, returns, n, a, d.values);
}

template <class In, class Out, class Real>
void rows_of(const Rollout<Real>& rollout, Index first, Index last, Real* carry) {
    using V = Vector<Real>;
    constexpr Index line = kLine<Real>;
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

        Index n = width;
        if constexpr (Out::streamed) {
            const Real* streamed = Out::advantages ? advantages : returns;
            while (n > 0 && !at_line(streamed + n))
                row_at<Single<Real>, In, Out>(row, advantages, returns, --n, carry, gamma, gamma_lambda);
        }
        while (n >= line) {
            n -= line;
            if constexpr (Out::streamed) {
                prefetch_below(row.rewards + n, kPrefetchBytes);
                prefetch_below(row.values + n, kPrefetchBytes);
                if (n / line % 4 == 0) {
                    prefetch_below(row.terminated + n, kPrefetchBytes);
                    if constexpr (In::truncated) prefetch_below(row.truncated + n, kPrefetchBytes);
                }
            }
            unrolled<line / V::width>([&](auto k) {
                row_at<V, In, Out>(row, advantages, returns, n + line - (k + 1) * V::width, carry, gamma, gamma_lambda);
            });
        }
        while (n >= V::width)
            row_at<V, In, Out>(row, advantages, returns, n -= V::width, carry, gamma, gamma_lambda);
        while (n > 0) row_at<Single<Real>, In, Out>(row, advantages, returns, --n, carry, gamma, gamma_lambda);
    }
}
