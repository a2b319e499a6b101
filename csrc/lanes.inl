// Env-major: lanes (envs, or pieces of envs) that run side by side, tile by tile.
//
// A tile holds some hundred steps of all lanes. Its deltas are computed along time, where memory is contiguous. Then
// blocks of width x width deltas are transposed in registers, so that one vector holds the same step of `width` lanes;
// the chain of steps runs over them, and the advantages are transposed back. Finally the results are written along
// time. The gates need not be transposed, because the gates of one lane in one block are the bits of one number.

// Return the first env before whose steps a whole vector may be read, because enough elements of other envs lie there.
template <class Real>
Index first_preceded_env(const CanonicalRollout<Real>& rollout) {
    Index distance = PTRDIFF_MAX;  // the least from one env to the next
    const auto limit = [&](const auto& view) { distance = view ? std::min(distance, view.env) : distance; };
    limit(rollout.rewards), limit(rollout.values), limit(rollout.next_values), limit(rollout.final_values);
    limit(rollout.terminated), limit(rollout.truncated), limit(rollout.mask);
    if (rollout.gammas.step) limit(rollout.gammas);
    if (rollout.steps < 2 || distance < 1) return rollout.envs;  // one step has no next values
    return (Vector<Real>::width + distance - 1) / distance;
}

// The steps of some lanes, and their memory in the scratch memory of a thread.
template <class Real>
struct Tile {
    using V = Vector<Real>;
    using Bits = typename V::Bits;
    static constexpr Index lanes = std::min<Index>(2 * V::width, kMaxLanes);
    static constexpr Index chains = lanes / V::width;  // vectors of lanes
    static constexpr Index most_steps = kTileBytes / (lanes * sizeof(Real));
    static_assert(most_steps >= kBlockSteps && most_steps % kBlockSteps == 0, "rollouts are cut between blocks");
    static constexpr Index before = kTilePadding / sizeof(Real), pitch = before + most_steps;
    static_assert(before >= kLine<Real>, "the last line of one row fits before the next row");

    // Arrays of (lanes, pitch) numbers. Each row has room for `before` numbers before its first step.
    enum Array {
        kAdvantages,   // deltas, then advantages
        kReturns,      // ratios, then R - V where that is not A
        kCoefficients  // from here on those that vary, in the order of Factor
    };
    static constexpr Index array = lanes * pitch, bits = most_steps / V::width * lanes;
    static constexpr Index arrays = kCoefficients + kRatio - kGammaLambda;
    static_assert(sizeof(Bits) == sizeof(Real), "scratch memory is counted in Reals");
    static constexpr Index scratch(Index arrays) { return 2 * bits + arrays * array; }

    const CanonicalRollout<Real>& rollout;
    const Index first_preceded = first_preceded_env(rollout);
    const Lane* lane;
    Index count, s, steps;  // the steps [s, s + steps) of `count` lanes
    Index first[lanes];     // the first element of each lane that is a step of the rollout: `steps` if none is
    Bits* gates;            // (blocks, lanes): bit j is the trace gate of step j of a block of V::width steps
    Bits* skipped;          // the same with a mask: bit j is set if step j does not exist
    double traces[lanes];   // c of Retrace, of the first step after the tile that exists
    Real* numbers;

    Tile(const CanonicalRollout<Real>& rollout, Real* scratch)
        : rollout(rollout), gates(reinterpret_cast<Bits*>(scratch)), skipped(gates + bits),
          numbers(scratch + 2 * bits) {}

    Real* row(Index i, Index which = kAdvantages) const { return numbers + which * array + i * pitch + before; }
    static Index array_of(Factor which) { return which == kRatio ? kReturns : kCoefficients + which - kGammaLambda; }

    Index env(Index i) const { return lane[i].env; }
    Index first_step(Index i) const { return lane[i].origin + s; }

    // Go to the steps [begin, end).
    void go(Index begin, Index end) {
        s = begin, steps = end - begin;
        for (Index i = 0; i < count; ++i)
            first[i] = first_step(i) < rollout.steps ? std::clamp<Index>(-first_step(i), 0, steps) : steps;
        std::fill(first + count, first + lanes, steps);
    }
};

// The address of a step of an env: steps of an env-major rollout are contiguous.
template <class Element>
FASTGAE_INLINE Element* in_env(const View<Element>& matrix, Index t, Index env) {
    return matrix.data + t + env * matrix.env;
}

// Compute the deltas of the vector at element k of a lane, and return its gates. gamma(V(), k) is the vector of gamma.
template <class In, class Gamma, class Real>
FASTGAE_INLINE typename Vector<Real>::Bits fill_vector(const Pointers<Real>& at, const Gamma& gamma, Index k,
                                                       Real* numbers) {
    using V = Vector<Real>;
    const auto d = deltas<V, In>(at, k, gamma(V(), k));
    V::store(numbers, d.delta);
    return V::bits(d.trace_open);
}

// Do the same from a padded copy of the elements from `first` on, where the memory before or after them may belong to
// nobody. `last_value` is V' of the last element, or null if that is with the others.
template <class In, class Gamma, class Real>
FASTGAE_NO_INLINE typename Vector<Real>::Bits fill_edge(const Pointers<Real> at, const Gamma gamma, Index k,
                                                        Index first, const Real* last_value, Real* numbers) {
    using V = Vector<Real>;
    Real rewards[V::width] = {}, values[V::width] = {}, next_values[V::width] = {}, final_values[V::width] = {};
    Real gammas[V::width] = {};
    std::uint8_t terminated[V::width] = {}, truncated[V::width] = {};
    for (Index from = std::max(k, first); from < k + V::width; ++from) {
        const Index i = from - k;
        rewards[i] = at.rewards[from];
        values[i] = at.values[from];
        next_values[i] = last_value && i == V::width - 1 ? *last_value : at.next_values[from];
        terminated[i] = at.terminated[from];
        gammas[i] = gamma(Single<Real>(), from);
        if constexpr (In::truncated) truncated[i] = at.truncated[from];
        if constexpr (In::final_values) final_values[i] = at.final_values[from];
    }
    const Pointers<Real> copies = {rewards, values, next_values, final_values, terminated, truncated};
    return fill_vector<In>(copies, [&](auto, Index) FASTGAE_INLINE_LAMBDA { return V::load(gammas); }, 0, numbers);
}

// Compute the deltas and gates of every lane. Elements that are no step of the rollout get a closed gate and any delta.
template <class In, bool gamma_varies, class Real>
void fill_tile(const Tile<Real>& tile, bool passed) {
    using V = Vector<Real>;
    const CanonicalRollout<Real>& rollout = tile.rollout;
    // Whether V' of the last step lies elsewhere than after the other next values.
    const bool last_elsewhere = !passed && (rollout.last_values.data != rollout.next_values.at(rollout.steps - 1, 0) ||
                                            (rollout.envs > 1 && rollout.last_values.env != rollout.next_values.env));
    const Index last_begin = last_elsewhere ? rollout.steps - tile.steps : PTRDIFF_MIN;
    // How many envs have next values that others follow.
    const Index followed = rollout.steps > 1 && rollout.next_values.env > 0 ? rollout.envs - 1 : 0;
    for (Index i = 0; i < Tile<Real>::lanes; ++i) {
        const Index first = tile.first[i];
        Real* const numbers = tile.row(i);
        auto* const gates = tile.gates + i;
        Index k = 0;
        for (; k + V::width <= first; k += V::width) {
            V::store(numbers + k, V::all(0));
            gates[k * Tile<Real>::chains] = 0;
        }
        if (k == tile.steps) continue;
        const Index env = tile.env(i), t = tile.first_step(i);
        // V' is where pass_values has written it, or in the rollout.
        const Pointers<Real> at =
            pointers_at<In>(rollout, t, env, passed ? tile.row(i) : in_env(rollout.next_values, t, env));
        const Real* const gammas = in_env(rollout.gammas, t, env);
        const Real one_gamma = *in_env(rollout.gammas, 0, env);
        const auto gamma = [=](auto v, Index k) FASTGAE_INLINE_LAMBDA {
            return gamma_varies ? decltype(v)::load(gammas + k) : decltype(v)::all(one_gamma);
        };
        const bool ends = t == last_begin;
        const auto last_value = [&] { return in_env(rollout.last_values, 0, env); };
        const auto fill_copied = [&] {
            const bool with_last = ends && k + V::width == tile.steps;
            gates[k * Tile<Real>::chains] =
                fill_edge<In>(at, gamma, k, first, with_last ? last_value() : nullptr, numbers + k);
            k += V::width;
        };
        if (k < first && env < tile.first_preceded) fill_copied();
        const Index whole = ends && env >= followed ? tile.steps - V::width : tile.steps;
        for (; k < whole; k += V::width) gates[k * Tile<Real>::chains] = fill_vector<In>(at, gamma, k, numbers + k);
        if (k < tile.steps) fill_copied();
        if (!ends || env >= followed) continue;
        using One = Single<Real>;
        const auto to_last = [&](auto) { return *last_value(); };
        const Index last = tile.steps - 1;
        numbers[last] = deltas<One, In>(at, last, gamma(One(), last), to_last).delta;
    }
}

// Write which steps do not exist.
template <class Real>
void fill_skipped(const Tile<Real>& tile) {
    using V = Vector<Real>;
    for (Index i = 0; i < Tile<Real>::lanes; ++i) {
        const Index first = tile.first[i];
        auto* const skipped = tile.skipped + i;
        Index k = 0;
        for (; k + V::width <= first; k += V::width) skipped[k * Tile<Real>::chains] = 0;
        if (k == tile.steps) continue;
        const std::uint8_t* const mask = in_env(tile.rollout.mask, tile.first_step(i), tile.env(i));
        if (k < first && tile.env(i) < tile.first_preceded) {
            typename V::Bits bits = 0;
            for (Index at = first; at < k + V::width; ++at) bits |= typename V::Bits(mask[at] == 0) << (at - k);
            skipped[k * Tile<Real>::chains] = bits;
            k += V::width;
        }
        for (; k < tile.steps; k += V::width) skipped[k * Tile<Real>::chains] = V::bits(V::zero_flags(mask + k));
    }
}

// Write V' of every step, which is V of the next step that exists, to the rows of the deltas. `carry` holds V' of the
// first step of each lane that was computed before.
template <class Real>
void pass_values(const Tile<Real>& tile, Real* carries) {
    using V = Vector<Real>;
    const CanonicalRollout<Real>& rollout = tile.rollout;
    std::uint8_t exists[Tile<Real>::lanes];  // whether the step after the tile does
    for (Index i = 0; i < Tile<Real>::lanes; ++i) {
        const Index first = tile.first[i];
        exists[i] = 1;
        if (first == tile.steps) continue;
        const Index t = tile.first_step(i), end = t + tile.steps, env = tile.env(i);
        const bool ends = end == rollout.steps;
        std::copy_n(in_env(rollout.next_values, t + first, env), tile.steps - first - ends, tile.row(i) + first);
        if (ends)
            tile.row(i)[tile.steps - 1] = *rollout.last_values.at(0, env);
        else
            exists[i] = *in_env(rollout.mask, end, env) != 0;
    }
    for (Index i = 0; i < Tile<Real>::lanes; i += V::width)
        pass_down<V>(tile.row(i), tile.pitch, tile.steps, tile.skipped + i, Tile<Real>::lanes, exists + i, carries + i);
}

// Return c of Retrace of the first step from t on that exists; 0 if there is none.
template <class Real>
double next_trace(const CanonicalRollout<Real>& rollout, Index t, Index env) {
    while (rollout.mask && t < rollout.steps && !*rollout.mask.at(t, env)) ++t;
    if (t >= rollout.steps) return 0;
    return trace_of<Single<double>>(*rollout.wide_lambdas.at(t, env), rollout.ratios.at(t, env));
}

// Write the decays gamma c_next of Retrace for lane i.
template <class Real>
void fill_decays(Tile<Real>& tile, Index i, Real* decays) {
    const CanonicalRollout<Real>& rollout = tile.rollout;
    const Index t = tile.first_step(i), env = tile.env(i), first = tile.first[i], steps = tile.steps;
    const Real* const ratios = in_env(rollout.ratios, t, env);
    const std::uint8_t* const mask = rollout.mask ? in_env(rollout.mask, t, env) : nullptr;
    const View<const double> gammas = rollout.wide_gammas, lambdas = rollout.wide_lambdas;  // copies: see write_decays
    const auto number = [t, env](auto v, const View<const double>& of, Index k) FASTGAE_INLINE_LAMBDA {
        using V = decltype(v);
        const double* const at = of.at(t + k, env);
        return of.step ? V::load(at) : V::all(*at);
    };
    double traces[Tile<Real>::most_steps + 1];
    for_each_vector<double>(first, steps, [&](auto v, Index k) FASTGAE_INLINE_LAMBDA {
        using V = decltype(v);
        V::store(traces + k, trace_of<V>(number(v, lambdas, k), ratios + k));
    });
    traces[steps] = tile.traces[i];
    for (Index k = steps - 1, next = steps; mask && k >= first; --k) {
        next += (k - next) & -Index(mask[k] != 0);  // without a branch, which no CPU could predict
        traces[k] = traces[next];
    }
    for_each_vector<double>(first, steps, [&](auto v, Index k) FASTGAE_INLINE_LAMBDA {
        using V = decltype(v);
        V::store(decays + k, number(v, gammas, k) * V::load(traces + k + 1));
    });
    tile.traces[i] = traces[first];
}

// Write a factor that varies along time. Where there is no step, it is 0: what lay in the memory before may be
// subnormal numbers, with which the chain takes several times as long.
template <class Real>
void fill_factor(Tile<Real>& tile, Factor which) {
    for (Index i = 0; i < Tile<Real>::lanes; ++i) {
        const Index first = tile.first[i];
        Real* const to = tile.row(i, Tile<Real>::array_of(which));
        std::fill_n(to, first, Real(0));
        if (first == tile.steps) continue;
        if (which == kGammaLambda && tile.rollout.recursion == Recursion::retrace)
            fill_decays(tile, i, to);
        else
            std::copy_n(factor_of(tile.rollout, which).at(tile.first_step(i) + first, tile.env(i)), tile.steps - first,
                        to + first);
    }
}

// Return whether a factor varies along time.
template <class Real>
bool along_time(const CanonicalRollout<Real>& rollout, Factor which) {
    return factor_of(rollout, which).step || (which == kGammaLambda && rollout.recursion == Recursion::retrace);
}

// Transpose the block of `width` lanes and steps that begins at `numbers`, in place.
template <class V>
FASTGAE_INLINE void transpose_block(typename V::Real* numbers, Index pitch) {
    typename V::Type x[V::width];
    unrolled<V::width>([&](int i) FASTGAE_INLINE_LAMBDA { x[i] = V::load(numbers + i * pitch); });
    V::transpose(x);
    unrolled<V::width>([&](int i) FASTGAE_INLINE_LAMBDA { V::store(numbers + i * pitch, x[i]); });
}

// The factors of `width` lanes. Those that vary along time lie in the tile; of the others there is one vector.
template <class V>
struct LaneFactors {
    using Real = typename V::Real;
    alignas(64) Real constant[kFactors][V::width];
    Real* rows[kFactors];
    Index pitch[kFactors];  // 0: the factor is constant

    void point(const Tile<Real>& tile, Index lane) {
        for (int which = kGammaLambda; which < kFactors; ++which) {
            const View<const Real>& factor = factor_of(tile.rollout, Factor(which));
            const bool varies = along_time(tile.rollout, Factor(which));
            pitch[which] = varies ? tile.pitch : 0;
            rows[which] = varies ? tile.row(lane, tile.array_of(Factor(which))) : constant[which];
            for (Index i = 0; i < V::width && factor && !varies; ++i)
                constant[which][i] = lane + i < tile.count ? *factor.at(0, tile.env(lane + i)) : Real(0);
        }
    }

    // Turn the factors of the block at element k, so that one vector holds the same step of all lanes.
    FASTGAE_INLINE void transpose(Index k) const {
        for (int which = kGammaLambda; which < kFactors; ++which)
            if (pitch[which]) transpose_block<V>(rows[which] + k, pitch[which]);
    }

    FASTGAE_INLINE typename V::Type get(Factor which, Index k, Index step) const {
        return V::load(rows[which] + (pitch[which] ? k : 0) + step * pitch[which]);
    }
};

// Turn the deltas of `width` lanes and one block of steps into advantages, in place, and compute R - V where that is
// not A. Takes and returns the states of each lane.
template <class V, class Known>
FASTGAE_INLINE Carry<V> chain(const Known& options, const Numbers<typename V::Real>& numbers,
                              const LaneFactors<V>& factors, Index k, typename V::Real* at,
                              const typename V::Bits* gates, Carry<V> carry) {
    using T = Tile<typename V::Real>;
    auto* const returns_at = at + T::kReturns * T::array;
    typename V::Type x[V::width];
    unrolled<V::width>([&](int i) FASTGAE_INLINE_LAMBDA { x[i] = V::load(at + i * T::pitch); });
    V::transpose(x);
    if constexpr (Known::arrays)
        factors.transpose(k);
    else if (options.ratios)
        transpose_block<V>(returns_at, T::pitch);
    const auto open = V::load_bits(gates), skipped = V::load_bits(gates + T::bits);  // see Tile::skipped
    unrolled<V::width>([&](int i) FASTGAE_INLINE_LAMBDA {
        const int s = V::width - 1 - i;
        const auto factor = [&](Factor which) FASTGAE_INLINE_LAMBDA {
            if constexpr (Known::arrays) return factors.get(which, k, s);
            return which == kRatio ? V::load(returns_at + s * T::pitch) : V::all(numbers.gamma_lambda);
        };
        const StepResults<V> results =
            step<V>(options, numbers.constants, x[s], V::bit(open, s), V::bit(skipped, s), factor, carry);
        x[s] = results.advantages;
        if (options.separate()) V::store(returns_at + s * T::pitch, results.returns_minus_values);
    });
    V::transpose(x);
    unrolled<V::width>([&](int i) FASTGAE_INLINE_LAMBDA { V::store(at + i * T::pitch, x[i]); });
    if (options.separate()) transpose_block<V>(returns_at, T::pitch);
    return carry;
}

// Write the results of `count` vectors of one lane, from element k on. If it blanks, A = 0 and R = V where the step
// does not exist.
template <class V, class Out, bool blanks, int count, class Real>
FASTGAE_INLINE void write_vectors(const Real* numbers, const Real* values, const std::uint8_t* mask, Real* advantages,
                                  Real* returns, Index k) {
    typename V::Type a[count], r[count];
    unrolled<count>([&](int i) FASTGAE_INLINE_LAMBDA {
        const Index at = k + i * V::width;
        r[i] = V::load(values + at);
        a[i] = V::load(numbers + at);
        if constexpr (!blanks) return;
        const auto skipped = V::zero_flags(mask + at);
        r[i] = V::select(skipped, r[i], a[i] + r[i]);
        a[i] = V::select(skipped, V::all(0), a[i]);
    });
    store<V, Outputs<Out::advantages, false>>(advantages, returns, k, a, r);
    // Before that store, compilers load the advantages a second time in place of keeping them (30 % slower in cache).
    if constexpr (!blanks) unrolled<count>([&](int i) FASTGAE_INLINE_LAMBDA { r[i] = a[i] + r[i]; });
    store<V, Outputs<false, Out::returns>>(advantages, returns, k, a, r);
}

// Write results of a tile: the advantages in an array, and those plus V as returns. If `in_tile`, write them to the
// tile.
template <class Out, bool blanks, class Real>
void write_tile(const Tile<Real>& tile, Index which, bool in_tile) {
    using V = Vector<Real>;
    constexpr Index line = kLine<Real>;
    const CanonicalRollout<Real>& rollout = tile.rollout;
    const Index steps = tile.steps;
    for (Index i = 0; i < tile.count; ++i) {
        Index k = tile.first[i];
        if (k == steps) continue;
        const Index env = tile.env(i), t = tile.first_step(i);
        const Real *const numbers = tile.row(i, which), *const values = in_env(rollout.values, t, env);
        const std::uint8_t* const mask = blanks ? in_env(rollout.mask, t, env) : nullptr;
        const auto place = [&](const View<Real>& result, Index array) {
            return in_tile ? tile.row(i, array) : in_env(result, t, env);
        };
        Real* const advantages = Out::advantages ? place(rollout.advantages, Tile<Real>::kAdvantages) : nullptr;
        Real* const returns = Out::returns ? place(rollout.returns, Tile<Real>::kReturns) : nullptr;
        for (; k % line != 0; ++k)
            write_vectors<Single<Real>, Out, blanks, 1>(numbers, values, mask, advantages, returns, k);
        for (; k < steps; k += line)
            write_vectors<V, Out, blanks, line / V::width>(numbers, values, mask, advantages, returns, k);
    }
}

// Stream one result of a tile. If the run of a lane follows the run of the lane before it in memory, the line that they
// share is written once, as a whole.
template <bool add_values, class Real>
void stream_result(const View<Real>& result, const Tile<Real>& tile, Index which) {
    using V = Vector<Real>;
    constexpr Index line = kLine<Real>;
    Index left = 0;  // how many numbers before a run are still to be written
    for (Index i = 0; i < tile.count; ++i) {
        const Index end = tile.steps, env = tile.env(i), t = tile.first_step(i), first = tile.first[i] - left;
        if (first >= end) continue;
        Real *const numbers = tile.row(i, which), *const to = in_env(result, t, env);
        const Index next_first = i + 1 < tile.count ? tile.first[i + 1] : end;
        const auto goes_on = [&](const auto& matrix) {
            return in_env(matrix, tile.first_step(i + 1) + next_first, tile.env(i + 1)) == in_env(matrix, t + end, env);
        };
        const bool continues = next_first < end && goes_on(result) && (!add_values || goes_on(tile.rollout.values));
        left = continues ? std::min((line - to_line(to + end)) % line, end - first) : 0;
        stream<add_values>(to, numbers, in_env(tile.rollout.values, t, env), first, end - left);
        Real* const next = tile.row(i + 1, which) + next_first - line;
        for (Index k = 0; k < line && left; k += V::width) V::store(next + k, V::load(numbers + end - line + k));
    }
}

// Write results of a tile from an array: advantages, or R - V, or both if they are the same numbers.
template <class Out, class Real>
void write_results(const Tile<Real>& tile, Index which, bool blanks, bool streamed) {
    if (blanks)
        write_tile<Out, true>(tile, which, streamed);
    else if (!streamed)
        write_tile<Out, false>(tile, which, false);
    if (!streamed) return;
    if constexpr (Out::advantages) stream_result<false>(tile.rollout.advantages, tile, which);
    if constexpr (!Out::returns) return;
    if (blanks)
        stream_result<false>(tile.rollout.returns, tile, Tile<Real>::kReturns);
    else
        stream_result<true>(tile.rollout.returns, tile, which);
}

// Prefetches the inputs of a tile, one run along an env after the other, some lines at a time.
template <class Real>
class TilePrefetch {
public:
    TilePrefetch(const CanonicalRollout<Real>& rollout, const Lane* lanes, Index count, Index s, Index steps, int level)
        : rollout_(rollout), lane_(lanes), end_(lanes + count), s_(s), steps_(steps), level_(level) {}

    FASTGAE_INLINE void operator()(Index lines) {
        if (lane_ < end_) fetch(lines);
    }

private:
    FASTGAE_NO_INLINE void fetch(Index lines) {
        while (lines > 0 && lane_ < end_) {
            if (k_ == 0) point();
            const Index end = std::min(steps_, k_ + lines * kLine<Real>);
            with_level(level_, [&](auto into) FASTGAE_INLINE_LAMBDA {
                for (int i = 0; i < number_count_; ++i)
                    for (Index k = k_; k < end; k += kLine<Real>) prefetch<into>(numbers_[i] + k);
                for (int i = 0; i < flag_count_; ++i)
                    for (Index k = (k_ + 63) / 64 * 64; k < end; k += 64) prefetch<into>(flags_[i] + k);
            });
            lines -= (end - k_) / kLine<Real>;
            k_ = end;
            if (k_ == steps_) ++lane_, k_ = 0;
        }
    }

    void point() {
        number_count_ = flag_count_ = 0;
        const auto add = [&](const auto& view, const auto** to, int& count) {
            if (view && view.step) to[count++] = in_env(view, lane_->origin + s_, lane_->env);
        };
        const auto numbers = [&](const View<const Real>& view) { add(view, numbers_, number_count_); };
        const auto flags = [&](const View<const std::uint8_t>& view) { add(view, flags_, flag_count_); };
        numbers(rollout_.rewards), numbers(rollout_.values);
        if (has_own_next_values(rollout_)) numbers(rollout_.next_values);
        unrolled<kFactors>([&](int which) FASTGAE_INLINE_LAMBDA { numbers(factor_of(rollout_, Factor(which))); });
        flags(rollout_.terminated), flags(rollout_.truncated), flags(rollout_.mask);
    }

    const CanonicalRollout<Real>& rollout_;
    const Real* numbers_[3 + kFactors];
    const std::uint8_t* flags_[3];
    int number_count_ = 0, flag_count_ = 0;
    const Lane *lane_, *end_;
    Index s_, steps_, k_ = 0;
    int level_;
};

template <class Real>
using Fill = void (*)(const Tile<Real>&, bool passed);

// Run the lanes of a tile side by side, from step `top` to step `bottom`. If `prefetches`, the inputs of each next tile
// are fetched from memory while the chain, which needs none, runs; `following` lanes come after these in the array.
template <class Known, class Real>
void run_lanes(const Known options, Tile<Real>& tile, Index following, Index bottom, Index top,
               const States<Real> states, Fill<Real> fill, Store store, bool prefetches, Prefetching& prefetching) {
    using V = Vector<Real>;
    using T = Tile<Real>;
    constexpr int chains = T::chains;
    const Index tiles = 1 + options.separate() + Known::arrays;  // or a few more
    const Index most_steps = std::max(kBlockSteps, T::most_steps / tiles / kBlockSteps * kBlockSteps);
    const CanonicalRollout<Real>& rollout = tile.rollout;
    const Numbers<Real> numbers(rollout);
    const bool passes_values = options.mask && rollout.mask_passes_values;
    const auto first_step = [&](Index end) { return std::max(bottom, end - most_steps); };
    Real* const row = tile.row(0);
    const auto* const gates = tile.gates;
    Carry<V> carries[chains];
    unrolled<chains>([&](int c) FASTGAE_INLINE_LAMBDA { carries[c] = load_carry<V>(options, states, c * V::width); });
    LaneFactors<V> factors[chains];
    for (int c = 0; Known::arrays && c < chains; ++c) factors[c].point(tile, c * V::width);

    for (Index i = 0; options.retrace && i < tile.count; ++i)
        tile.traces[i] = next_trace(rollout, tile.lane[i].origin + top, tile.env(i));
    for (Index end = top, s; end > bottom; end = s) {
        s = first_step(end);
        tile.go(s, end);
        if (options.mask) fill_skipped(tile);
        if (passes_values) pass_values(tile, states.of(kNextValue));
        fill(tile, passes_values);
        for (int which = kGammaLambda; !Known::plain && which < kFactors; ++which)
            if (along_time(rollout, Factor(which))) fill_factor(tile, Factor(which));
        const bool ends = s == bottom;  // so the next tile belongs to the lanes that follow
        const Index next_end = ends ? top : s, next = first_step(next_end), next_count = ends ? following : tile.count;
        const int level = prefetches ? prefetching.next(4 * tile.count * tile.steps * Index(sizeof(Real))) : 0;
        TilePrefetch<Real> fetch(rollout, ends ? tile.lane + tile.count : tile.lane, prefetches ? next_count : 0, next,
                                 next_end - next, level);
        for (Index k = tile.steps - V::width; k >= 0; k -= V::width) {
            fetch(T::lanes * V::width / kLine<Real>);
            const auto link = [&](int c) FASTGAE_INLINE_LAMBDA {
                carries[c] = chain(options, numbers, factors[c], k, row + c * V::width * T::pitch + k,
                                   gates + k * chains + c * V::width, carries[c]);
            };
            if constexpr (Known::plain)
                unrolled<chains>(link);
            else
                for (int c = 0; c < chains; ++c) link(c);
        }
        if (store == Store::nothing) continue;
        const bool streamed = store == Store::streamed;
        const auto write = [&](auto out, Index which) {
            write_results<decltype(out)>(tile, which, options.blanks(), streamed);
        };
        if (!options.separate()) with_outputs(rollout, [&](auto out) { write(out, T::kAdvantages); });
        if (options.separate() && rollout.returns) write(Outputs<false, true>(), T::kReturns);
        if (options.separate() && rollout.advantages) write(Outputs<true, false>(), T::kAdvantages);
    }
    unrolled<chains>([&](int c) FASTGAE_INLINE_LAMBDA { store_carry(options, carries[c], states, c * V::width); });
}

template <class Real>
void lanes(const CanonicalRollout<Real>& rollout, const Lane* lanes, Index count, Index bottom, Index top, Real* states,
           Index stride, Real* scratch, Store store, Prefetching& prefetching) {
    const auto fill = with_inputs(rollout, [&](auto in) -> Fill<Real> {
        return rollout.gammas.step ? fill_tile<decltype(in), true, Real> : fill_tile<decltype(in), false, Real>;
    });
    const bool prefetches = store == Store::streamed && top - bottom >= kPrefetchedSteps;
    Tile<Real> tile(rollout, scratch);
    with_options(Options(rollout), [&](auto options) {
        for (Index i = 0; i < count; i += tile.count) {
            tile.lane = lanes + i;
            tile.count = std::min(tile.lanes, count - i);
            const Index following = std::min(tile.lanes, count - i - tile.count);
            run_lanes(options, tile, following, bottom, top, States<Real>{states + i, stride}, fill, store, prefetches,
                      prefetching);
        }
    });
}
