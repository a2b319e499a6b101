// Env-major: lanes (envs, or pieces of envs) that run side by side, tile by tile.
//
// A tile holds some hundred steps of all lanes. Its deltas are computed along time, where memory is contiguous. Then
// blocks of width x width deltas are transposed in registers, so that one vector holds the same step of `width` lanes;
// the chain of steps runs over them, and the advantages are transposed back. Finally the results are written along
// time. The trace gates need not be transposed, because the gates of one lane in one block are the bits of one number.

template <class Real>
struct Tile {
    using V = Vector<Real>;
    using Bits = typename V::Bits;
    static constexpr Index lanes = std::min<Index>(2 * V::width, kTileLanes);
    static constexpr Index steps = kTileBytes / (lanes * sizeof(Real));
    static_assert(steps >= kBlockSteps && steps % kBlockSteps == 0, "rollouts are cut between blocks");
    static constexpr Index before = kTilePadding / sizeof(Real), pitch = before + steps;
    static constexpr Index blocks = steps / V::width;
    static_assert(before >= kLine<Real>, "the last line of one row fits before the next row");

    // (lanes, pitch): deltas, then advantages. Each row has room for `before` numbers before its first step.
    alignas(64) Real numbers[lanes * pitch];
    alignas(64) Bits gates[blocks * lanes];  // (blocks, lanes): bit k is the trace gate of step k of the block
    Real finals[steps];                      // the sparse final values of one lane

    Real* row(Index lane) { return numbers + lane * pitch + before; }
};

// Flags that mark the end of a rollout within a block. Loaded from element width - i on, `other` is 0 at step i only,
// and `past` is 0 at the steps before i only.
template <int width>
struct EdgeFlags {
    std::uint8_t other[2 * width], past[2 * width];
};
template <int width>
constexpr EdgeFlags<width> kEdgeFlags = [] {
    EdgeFlags<width> flags = {};
    for (int i = 0; i < 2 * width; ++i) {
        flags.other[i] = i != width;
        flags.past[i] = i >= width;
    }
    return flags;
}();

// Compute the deltas of one block with the end of a rollout in it, and return its gates. The first `real` steps belong
// to the rollout; V' of the last of them is *last_value. Steps past the end get a delta of 0, so that A = 0 there.
// Reads whole vectors, also past the end of the row.
template <class In, class Real>
FASTGAE_INLINE typename Vector<Real>::Bits fill_edge(const Pointers<Real>& at, Index k, Index real,
                                                     const Real* last_value, typename Vector<Real>::Type gamma,
                                                     Real* numbers) {
    using V = Vector<Real>;
    constexpr const EdgeFlags<V::width>& flags = kEdgeFlags<V::width>;
    const auto last = V::zero_flags(flags.other + V::width - (real - 1));
    const auto inside = V::zero_flags(flags.past + V::width - real);
    const auto to_next_values = [&](auto next) { return V::select(last, V::all(*last_value), next); };
    const auto d = deltas<V, In>(at, k, gamma, to_next_values);
    V::store(numbers, V::select(inside, d.delta, V::all(0)));
    return V::bits(d.trace_open);
}

// Do the same as fill_edge, but from a padded copy, for rows that no other row follows in memory.
template <class In, class Real>
typename Vector<Real>::Bits fill_last_edge(const Pointers<Real>& at, Index k, Index real, const Real* last_value,
                                           typename Vector<Real>::Type gamma, Real* numbers) {
    using V = Vector<Real>;
    Real rewards[V::width] = {}, values[V::width] = {}, next_values[V::width] = {}, final_values[V::width] = {};
    std::uint8_t terminated[V::width] = {}, truncated[V::width] = {};
    for (Index i = 0; i < V::width && i < real; ++i) {
        rewards[i] = at.rewards[k + i];
        values[i] = at.values[k + i];
        if (i + 1 < real) next_values[i] = at.next_values[k + i];
        terminated[i] = at.terminated[k + i];
        if constexpr (In::truncated) truncated[i] = at.truncated[k + i];
        if constexpr (In::final_values) final_values[i] = at.final_values[k + i];
    }
    const Pointers<Real> copies = {rewards, values, next_values, final_values, terminated, truncated};
    return fill_edge<In>(copies, 0, real, last_value, gamma, numbers);
}

// Return the address of step t of an env. Steps of an env-major rollout are contiguous.
template <class Element>
FASTGAE_INLINE Element* in_env(const View<Element>& matrix, Index t, Index env) {
    return matrix.data + t + env * matrix.env;
}

// Return the inputs of an env from step t on. Its sparse final values, if any, lie in the tile.
template <class In, class Real>
FASTGAE_INLINE Pointers<Real> pointers_in_env(const Rollout<Real>& rollout, Index t, Index env, Tile<Real>& tile) {
    Pointers<Real> at = {in_env(rollout.rewards, t, env),     in_env(rollout.values, t, env),
                         in_env(rollout.next_values, t, env), nullptr,
                         in_env(rollout.terminated, t, env),  nullptr};
    if constexpr (In::truncated) at.truncated = in_env(rollout.truncated, t, env);
    if constexpr (In::final_values)
        at.final_values = rollout.sparse_finals ? tile.finals : in_env(rollout.final_values, t, env);
    return at;
}

// Return the last env at whose end a whole vector may be read, because enough elements of later envs follow in memory.
template <class Real>
Index last_followed_env(const Rollout<Real>& rollout) {
    Index distance = PTRDIFF_MAX;  // the least from one env to the next
    const auto narrow = [&](const auto& view) { distance = view ? std::min(distance, view.env) : distance; };
    narrow(rollout.rewards), narrow(rollout.values), narrow(rollout.next_values), narrow(rollout.final_values);
    narrow(rollout.terminated), narrow(rollout.truncated);
    if (rollout.steps < 2 || distance < 1) return -1;
    return rollout.envs - 1 - (Vector<Real>::width + distance - 1) / distance;
}

// Compute the deltas and gates of the steps [s, s + steps) of every lane. Steps past the end get a delta of 0.
template <class In, class Real>
void fill_tile(const Rollout<Real>& rollout, const Lane* lanes, Index count, Index s, Index steps, Tile<Real>& tile) {
    using V = Vector<Real>;
    constexpr Index tile_lanes = Tile<Real>::lanes;
    const auto gamma = V::all(rollout.gamma);
    // Whether V' of the last step lies elsewhere than after the other next values.
    const bool last_elsewhere = rollout.last_values.data != rollout.next_values.at(rollout.steps - 1, 0) ||
                                (rollout.envs > 1 && rollout.last_values.env != rollout.next_values.env);
    const Index last_followed = last_followed_env(rollout);
    for (Index i = 0; i < count; ++i) {
        const Index env = lanes[i].env, t = lanes[i].origin + s;
        const Index real = rollout.steps - t, whole = std::min(steps, real - last_elsewhere);
        if constexpr (In::final_values)
            if (rollout.sparse_finals) rollout.sparse_finals.scatter(env, t, t + steps, tile.finals);
        const Pointers<Real> at = pointers_in_env<In>(rollout, t, env, tile);
        Real* const numbers = tile.row(i);
        auto* gates = tile.gates + i;
        Index k = 0;
        for (; k + V::width <= whole; k += V::width, gates += tile_lanes) {
            const Deltas<V> d = deltas<V, In>(at, k, gamma);
            V::store(numbers + k, d.delta);
            *gates = V::bits(d.trace_open);
        }
        if (k < steps && k < real) {
            const Real* const last_value = rollout.last_values.at(0, env);
            *gates = env <= last_followed ? fill_edge<In>(at, k, real - k, last_value, gamma, numbers + k)
                                          : fill_last_edge<In>(at, k, real - k, last_value, gamma, numbers + k);
            k += V::width, gates += tile_lanes;
        }
        for (; k < steps; k += V::width, gates += tile_lanes) {
            V::store(numbers + k, V::all(0));
            *gates = 0;
        }
    }
    for (Index i = count; i < tile_lanes; ++i) {  // lanes without an env
        for (Index k = 0; k < steps; ++k) tile.row(i)[k] = 0;
        for (Index block = 0; block < steps / V::width; ++block) tile.gates[block * tile_lanes + i] = 0;
    }
}

// Turn the deltas of `width` lanes and one block of steps into advantages, in place. Takes and returns A of each lane.
template <class V>
FASTGAE_INLINE typename V::Type chain(typename V::Real* numbers, Index pitch, const typename V::Bits* gates,
                                      typename V::Type gamma_lambda, typename V::Type carry) {
    typename V::Type x[V::width];
    unrolled<V::width>([&](auto i) { x[i] = V::load(numbers + i * pitch); });
    V::transpose(x);
    const auto bits = V::load_bits(gates);
    unrolled<V::width>([&](auto i) {
        constexpr int k = V::width - 1 - i;
        x[k] = carry = advantage<V>(x[k], V::bit(bits, k), gamma_lambda, carry);
    });
    V::transpose(x);
    unrolled<V::width>([&](auto i) { V::store(numbers + i * pitch, x[i]); });
    return carry;
}

// Write the results of `count` vectors of one lane, from element k on.
template <class V, class Out, int count, class Real>
FASTGAE_INLINE void write_vectors(const Real* numbers, const Real* values, Real* advantages, Real* returns, Index k) {
    typename V::Type a[count], v[count];
    unrolled<count>([&](auto i) {
        a[i] = V::load(numbers + k + i * V::width);
        v[i] = V::load(values + k + i * V::width);
    });
    store<V, Out>(advantages, returns, k, a, v);
}

// Write the results of a tile.
template <class Out, class Real>
void write_tile(const Rollout<Real>& rollout, const Lane* lanes, Index count, Index s, Index steps, Tile<Real>& tile) {
    using V = Vector<Real>;
    constexpr Index line = kLine<Real>;
    for (Index i = 0; i < count; ++i) {
        const Index env = lanes[i].env, t = lanes[i].origin + s;
        const Index end = std::min(steps, rollout.steps - t);
        const Real *const numbers = tile.row(i), *const values = in_env(rollout.values, t, env);
        Real* const advantages = Out::advantages ? in_env(rollout.advantages, t, env) : nullptr;
        Real* const returns = Out::returns ? in_env(rollout.returns, t, env) : nullptr;
        Index k = 0;
        for (; k + line <= end; k += line)
            write_vectors<V, Out, line / V::width>(numbers, values, advantages, returns, k);
        for (; k < end; ++k) write_vectors<Single<Real>, Out, 1>(numbers, values, advantages, returns, k);
    }
}

// Stream one result of a tile. If the run of a lane follows the run of the lane before it in memory, the line that they
// share is written once, as a whole.
template <bool add_values, class Real>
void stream_result(const View<Real>& result, const Rollout<Real>& rollout, const Lane* lanes, Index count, Index s,
                   Index steps, Tile<Real>& tile) {
    using V = Vector<Real>;
    constexpr Index line = kLine<Real>;
    Index left = 0;  // how many numbers before a run are still to be written
    for (Index i = 0; i < count; ++i) {
        const Index env = lanes[i].env, t = lanes[i].origin + s;
        const Index first = -left, end = std::min(steps, rollout.steps - t);
        Real *const numbers = tile.row(i), *const to = in_env(result, t, env);
        const auto goes_on = [&](const auto& matrix) {
            return in_env(matrix, lanes[i + 1].origin + s, lanes[i + 1].env) == in_env(matrix, t + end, env);
        };
        const bool continues = i + 1 < count && goes_on(result) && (!add_values || goes_on(rollout.values));
        left = continues ? std::min((line - to_line(to + end)) % line, end - first) : 0;
        stream<add_values>(to, numbers, in_env(rollout.values, t, env), first, end - left);
        for (Index k = 0; k < line && left; k += V::width)
            V::store(tile.row(i + 1) - line + k, V::load(numbers + end - line + k));
    }
}

// Write the results of a tile with streaming stores.
template <class Out, class Real>
void stream_tile(const Rollout<Real>& rollout, const Lane* lanes, Index count, Index s, Index steps, Tile<Real>& tile) {
    if constexpr (Out::advantages) stream_result<false>(rollout.advantages, rollout, lanes, count, s, steps, tile);
    if constexpr (Out::returns) stream_result<true>(rollout.returns, rollout, lanes, count, s, steps, tile);
}

// Prefetches the inputs of a tile, one run along an env after the other, some lines at a time.
template <class Real>
class TilePrefetch {
public:
    TilePrefetch(const Rollout<Real>& rollout, const Lane* lanes, Index count, Index s, Index steps)
        : rollout_(rollout), lane_(lanes), end_(lanes + count), s_(s), steps_(steps) {}

    FASTGAE_INLINE void operator()(Index lines) {
        const bool separate = rollout_.next_values.data != rollout_.values.data + 1;
        while (lines > 0 && lane_ < end_) {
            const Index t = lane_->origin + s_, env = lane_->env;
            for (; lines > 0 && k_ < steps_; --lines, k_ += kLine<Real>) {
                prefetch(in_env(rollout_.rewards, t, env) + k_);
                prefetch(in_env(rollout_.values, t, env) + k_);
                if (separate) prefetch(in_env(rollout_.next_values, t, env) + k_);
                if (k_ % 64 != 0) continue;  // 64 flags share a line
                prefetch(in_env(rollout_.terminated, t, env) + k_);
                if (rollout_.truncated) prefetch(in_env(rollout_.truncated, t, env) + k_);
            }
            if (k_ >= steps_) ++lane_, k_ = 0;
        }
    }

private:
    const Rollout<Real>& rollout_;
    const Lane *lane_, *end_;
    Index s_, steps_, k_ = 0;
};

template <class Real>
using Fill = void (*)(const Rollout<Real>&, const Lane*, Index count, Index s, Index steps, Tile<Real>&);
template <class Real>
using Write = void (*)(const Rollout<Real>&, const Lane*, Index count, Index s, Index steps, Tile<Real>&);

// Run `count` lanes side by side, tile by tile. If `prefetches`, the inputs of each next tile are fetched from memory
// while the chain, which needs none, runs; `following` lanes come after these in the array.
template <class Real>
void run_lanes(const Rollout<Real>& rollout, const Lane* lanes, Index count, Index following, Index bottom, Index top,
               Real* carry, Tile<Real>& tile, Fill<Real> fill, Write<Real> write, bool prefetches) {
    using V = Vector<Real>;
    using T = Tile<Real>;
    constexpr int chains = T::lanes / V::width;
    const auto gamma_lambda = V::all(rollout.gamma_lambda);
    const auto first_step = [&](Index end) { return std::max(bottom, end - T::steps); };
    typename V::Type carries[chains];
    unrolled<chains>([&](auto c) { carries[c] = V::load(carry + c * V::width); });

    for (Index end = top, s; end > bottom; end = s) {
        s = first_step(end);
        const Index steps = end - s;
        fill(rollout, lanes, count, s, steps, tile);
        const bool ends = s == bottom;  // so the next tile belongs to the lanes that follow
        const Index next_end = ends ? top : s, next = first_step(next_end), next_count = ends ? following : count;
        TilePrefetch<Real> fetch(rollout, ends ? lanes + count : lanes, prefetches ? next_count : 0, next,
                                 next_end - next);
        for (Index k = steps - V::width; k >= 0; k -= V::width) {
            fetch(T::lanes * V::width / kLine<Real>);
            prefetch_ahead(rollout.ahead, T::lanes * V::width);
            const auto* const gates = tile.gates + k / V::width * T::lanes;
            unrolled<chains>([&](auto c) FASTGAE_INLINE_LAMBDA {
                Real* const numbers = tile.row(c * V::width) + k;
                carries[c] = chain<V>(numbers, T::pitch, gates + c * V::width, gamma_lambda, carries[c]);
            });
        }
        if (write) write(rollout, lanes, count, s, steps, tile);
    }
    unrolled<chains>([&](auto c) { V::store(carry + c * V::width, carries[c]); });
}

// Run any number of lanes, as many side by side as a tile has.
template <bool streamed, class Real>
void run_all_lanes(const Rollout<Real>& rollout, const Lane* lanes, Index count, Index bottom, Index top, Real* carry,
                   Real* scratch, bool writes) {
    const auto fill = with_inputs(rollout, [](auto in) -> Fill<Real> { return fill_tile<decltype(in), Real>; });
    const auto write = with_outputs(rollout, [&](auto out) -> Write<Real> {
        if (!writes) return nullptr;
        return streamed ? stream_tile<decltype(out), Real> : write_tile<decltype(out), Real>;
    });
    const bool prefetches = streamed && top - bottom >= kPrefetchedSteps;
    Tile<Real>& tile = *new (scratch) Tile<Real>;
    for (Index i = 0, taken; i < count; i += taken) {
        taken = std::min(Tile<Real>::lanes, count - i);
        const Index following = std::min(Tile<Real>::lanes, count - i - taken);
        run_lanes(rollout, lanes + i, taken, following, bottom, top, carry + i, tile, fill, write, prefetches);
    }
}

template <class Real>
void lanes(const Rollout<Real>& rollout, const Lane* lanes, Index count, Index bottom, Index top, Real* carry,
           Real* scratch, Store store) {
    if (store == Store::streamed)
        run_all_lanes<true>(rollout, lanes, count, bottom, top, carry, scratch, true);
    else
        run_all_lanes<false>(rollout, lanes, count, bottom, top, carry, scratch, store == Store::cached);
}
