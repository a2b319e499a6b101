// Time-major with options: whole rows, from the last step to the first, and each from its right end to its left.

// The inputs of a row that come from memory, one line after the other.
template <class Real>
struct RowAhead {
    const Real* numbers[4 + kFactors];
    const std::uint8_t* flags[3];
    int number_count = 0, flag_count = 0;

    void add(const Real* from) { numbers[number_count++] = from; }
    void add(const std::uint8_t* from) { flags[flag_count++] = from; }

    FASTGAE_INLINE void prefetch(Index n) const {
        for (int i = 0; i < number_count; ++i) prefetch_below(numbers[i] + n, kPrefetchBytes);
        if (n / kLine<Real> % 4 != 0) return;  // one line of flags belongs to at least four lines of numbers
        for (int i = 0; i < flag_count; ++i) prefetch_below(flags[i] + n, kPrefetchBytes);
    }
};

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
    // Streamed results wait here, after the results of the next turn, until their whole cache line is computed.
    Real* const advantages_turn = scratch + kFactors * kOptionsColumns;
    Real* const returns_turn = advantages_turn + kOptionsColumns;
    const bool next_elsewhere = rollout.next_values.data != rollout.values.at(1, 0);
    const bool join = streamed && rows_join(rollout, first, last);
    Index advantages_end = 0, returns_end = 0;  // of the results that are computed and wait
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
        RowAhead<Real> ahead;
        if (streamed) {
            ahead.add(row.rewards);
            ahead.add(row.values);
            if (next_elsewhere) ahead.add(row.next_values);
            if (row.final_values) ahead.add(row.final_values);
            for (const View<const Real>& factor : factors)
                if (factor.env) ahead.add(factor.at(t, first));
            ahead.add(row.terminated);
            if (row.truncated) ahead.add(row.truncated);
            if (options.mask) ahead.add(mask);
        }
        if (advantages) advantages_end += last - first;
        if (returns) returns_end += last - first;
        for (Index end = last - first, begin; end > 0; end = begin) {
            begin = std::max<Index>(0, end - (streamed ? kStreamRun : kOptionsColumns));
            if (streamed && begin > 0) begin += to_line((advantages ? advantages : returns) + begin);
            prefetch_ahead(rollout.ahead, end - begin);
            const Real* runs[kFactors] = {};
            for (Index which = 0; which < kFactors; ++which)
                if (const View<const Real>& factor = factors[which])
                    runs[which] = factor.env ? factor.at(t, first) : scratch + which * kOptionsColumns - begin;
            Real* to_advantages = advantages;
            Real* to_returns = returns;
            if (streamed) {
                const auto make_room = [&](Real* turn, Index waiting) {
                    std::memmove(turn + (end - begin), turn, waiting * sizeof(Real));
                    return turn - begin;
                };
                if (advantages) to_advantages = make_room(advantages_turn, advantages_end - end);
                if (returns) to_returns = make_room(returns_turn, returns_end - end);
            }
            const auto body = [&](auto v, Index i) FASTGAE_INLINE_LAMBDA {
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
                store_results<V>(options.blanks(), skipped, results, d.values, i, to_advantages, to_returns);
            };
            if (!streamed) for_each_vector<Real>(begin, end, body);
            for (Index n = end, low; streamed && n > begin; n = low) {
                low = std::max(begin, n - kLine<Real>);
                ahead.prefetch(low);
                for_each_vector<Real>(low, n, body);
            }
            const bool more = begin > 0 || join;
            if (streamed && advantages)
                stream_down<false>(advantages, to_advantages, row.values, begin, advantages_end, more);
            if (streamed && returns) stream_down<false>(returns, to_returns, row.values, begin, returns_end, more);
        }
        if (!join) advantages_end = returns_end = 0;
    }
    if (join && rollout.advantages)
        stream<false>(rollout.advantages.at(0, first), advantages_turn, advantages_turn, 0, advantages_end);
    if (join && rollout.returns)
        stream<false>(rollout.returns.at(0, first), returns_turn, returns_turn, 0, returns_end);
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
