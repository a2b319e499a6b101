// Time-major with options: whole rows, from the last step to the first, and each from its right end to its left.

// Compute all steps of the envs [first, last). `states` points at the state of env `first`.
template <class In, class Options, class Real>
void rows_with_options_of(const RolloutWithOptions<Real>& rollout, const Options options, Index first, Index last,
                          Real* states, Real* scratch, bool streamed) {
    const bool passes_values = rollout.mask && rollout.mask_passes_values;
    View<const Real> factors[kFactors];
    for (Index which = 0; which < kFactors; ++which) factors[which] = factor_of(rollout, Factor(which));
    // The step reads a vector of every factor. A factor that does not vary along a row is repeated in a row of
    // `scratch`.
    const Index columns = std::min(last - first, kOptionsColumns);
    const auto repeat_factors = [&](Index t) {
        for (Index which = 0; which < kFactors; ++which) {
            const View<const Real>& factor = factors[which];
            if (!factor || factor.env != 0 || (factor.step == 0 && t + 1 < rollout.steps)) continue;
            Real* const row = scratch + which * kOptionsColumns;
            for_each_vector<Real>(0, columns, [&](auto v, Index i) FASTGAE_INLINE_LAMBDA {
                using V = decltype(v);
                V::store(row + i, V::all(*factor.at(t, first)));
            });
        }
    };
    Real* const results = scratch + kFactors * kOptionsColumns;  // of a streamed run, before it is written
    const Index envs = rollout.envs;
    Real *next_value = states + kNextValue * envs, *trace = states + kTrace * envs;
    Real *steps_left = states + kStepsLeft * envs, *returns_trace = states + kReturnsTrace * envs;

    for (Index t = rollout.steps - 1; t >= 0; --t) {
        const Pointers<Real> row = row_pointers<In>(rollout, t, first);
        const std::uint8_t* const mask = options.mask ? rollout.mask.at(t, first) : row.terminated;
        const std::uint8_t* const mask_after = t + 1 < rollout.steps ? mask + rollout.mask.step : nullptr;
        Real* const advantages = rollout.advantages ? rollout.advantages.at(t, first) : nullptr;
        Real* const returns = rollout.returns ? rollout.returns.at(t, first) : nullptr;
        repeat_factors(t);
        for (Index end = last - first, begin; end > 0; end = begin) {
            begin = std::max<Index>(0, end - (streamed ? kStreamRun : kOptionsColumns));
            if (streamed && begin > 0) begin += to_line((advantages ? advantages : returns) + begin);
            const Real* runs[kFactors] = {};
            for (Index which = 0; which < kFactors; ++which)
                if (const View<const Real>& factor = factors[which])
                    runs[which] = factor.env ? factor.at(t, first) : scratch + which * kOptionsColumns - begin;
            Real* to_advantages = advantages;
            Real* to_returns = returns;
            if (streamed) {
                if (advantages) to_advantages = results - begin;
                if (returns) to_returns = results + kOptionsColumns - begin;
                const auto prefetch = [&](const auto* from, const auto& view) {
                    if (!view) return;
                    for (Index i = begin; i < end; i += 64 / Index(sizeof(*from)))
                        prefetch_below(from + i, kPrefetchBytes);
                };
                prefetch(row.rewards, rollout.rewards);
                prefetch(row.values, rollout.values);
                prefetch(row.terminated, rollout.terminated);
                prefetch(row.truncated, rollout.truncated);
                prefetch(mask, rollout.mask);
                for (Index which = 0; which < kFactors; ++which)
                    if (factors[which].env) prefetch(runs[which], factors[which]);
            }
            for_each_vector<Real>(begin, end, [&](auto v, Index i) FASTGAE_INLINE_LAMBDA {
                using V = decltype(v);
                const auto factor = [&](Factor which) FASTGAE_INLINE_LAMBDA { return V::load(runs[which] + i); };
                const auto to_next_values = [&](auto next) FASTGAE_INLINE_LAMBDA {
                    if (!passes_values) return next;
                    if (mask_after) next = V::select(V::zero_flags(mask_after + i), V::load(next_value + i), next);
                    V::store(next_value + i, next);
                    return next;
                };
                const Deltas<V> d = deltas<V, In>(row, i, factor(kGamma), to_next_values);
                const auto skipped = V::zero_flags(mask + i);
                Carry<V> carry = {V::load(trace + i), options.tail_normalized ? V::load(steps_left + i) : V::all(0),
                                  options.returns_recursion ? V::load(returns_trace + i) : V::all(0)};
                const StepResults<V> results =
                    step<V>(options, rollout.constants, d.delta, d.trace_open, skipped, factor, carry);
                V::store(trace + i, carry.trace);
                if (options.tail_normalized) V::store(steps_left + i, carry.steps_left);
                if (options.returns_recursion) V::store(returns_trace + i, carry.returns_trace);
                store_results<V>(options.mask, skipped, results, d.values, i, to_advantages, to_returns);
            });
            if (streamed && advantages) stream<false>(advantages, to_advantages, row.values, begin, end);
            if (streamed && returns) stream<false>(returns, to_returns, row.values, begin, end);
        }
    }
}

template <class Real>
void rows_with_options(const RolloutWithOptions<Real>& rollout, Index first, Index last, Real* states, Real* scratch,
                       Store store) {
    with_inputs(rollout, [&](auto in) {
        with_options(rollout, [&](auto options) {
            rows_with_options_of<decltype(in)>(rollout, options, first, last, states, scratch,
                                               store == Store::streamed);
        });
    });
}
