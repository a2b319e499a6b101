// Env-major: lanes (envs, or pieces of envs) that run side by side, tile by tile.
//
// A tile holds some hundred steps of all lanes. Its deltas are computed along time, where memory is contiguous. Then
// blocks of width x width deltas are transposed in registers, so that one vector holds the same step of `width` lanes;
// the chain of steps runs over them, and the advantages are transposed back. At last the results are written along
// time. The trace gates need no transposing, because the gates of one lane in one block are the bits of one number.

template <class Real, Index tile_lanes>
struct Tile {
    using V = Vector<Real>;
    using Bits = typename V::Bits;
    static constexpr Index lanes = tile_lanes;
    static constexpr Index steps = kTileBytes / (lanes * sizeof(Real));
    static_assert(steps >= kBlockSteps && steps % kBlockSteps == 0, "rollouts are cut between blocks");
    static constexpr Index pitch = steps + kTilePadding / sizeof(Real);
    static constexpr Index blocks = steps / V::width;

    alignas(64) Real numbers[lanes * pitch];  // (lanes, pitch): deltas, then advantages
    alignas(64) Bits gates[blocks * lanes];   // (blocks, lanes): bit k is the trace gate of step k of the block
    Real finals[steps];                       // the sparse final values of one lane
};

// Two vectors of lanes: each of the two chains runs while the other waits.
template <class Real>
using CachedTile = Tile<Real, 2 * Vector<Real>::width>;
// From memory, fewer lanes leave room for longer runs along each env.
template <class Real>
using StreamedTile = Tile<Real, std::min<Index>(2 * Vector<Real>::width, kStreamedLanes)>;

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

// Do what fill_edge does, from a padded copy, for rows that no other row follows in memory.
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

// Compute the deltas and gates of the steps [s, s + steps) of every lane. Steps past the end get a delta of 0.
template <class In, class Real, class Tile>
void fill_tile(const Rollout<Real>& rollout, const Lane* lanes, Index count, Index s, Index steps, Tile& tile) {
    using V = Vector<Real>;
    const auto gamma = V::all(rollout.gamma);
    // Whether V' of the last step lies elsewhere than after the other next values.
    const bool last_elsewhere = rollout.last_values.data != rollout.next_values.at(rollout.steps - 1, 0) ||
                                (rollout.envs > 1 && rollout.last_values.env != rollout.next_values.env);
    // Whether later envs lie at higher addresses, so that a vector at the end of one env may reach into the next ones.
    const auto ascending = [](const auto& view) { return !view || view.env > 0; };
    const bool followed = rollout.steps > 1 && ascending(rollout.rewards) && ascending(rollout.values) &&
                          ascending(rollout.next_values) && ascending(rollout.final_values) &&
                          ascending(rollout.terminated) && ascending(rollout.truncated);
    for (Index i = 0; i < count; ++i) {
        const Index env = lanes[i].env, t = lanes[i].origin + s;
        const Index real = rollout.steps - t, whole = real - last_elsewhere;
        Pointers<Real> at = pointers_at<In>(rollout, t, env, rollout.next_values.at(t, env));
        if (rollout.sparse_finals) {
            rollout.sparse_finals.scatter(env, t, t + steps, tile.finals);
            at.final_values = tile.finals;
        }
        Real* numbers = tile.numbers + i * Tile::pitch;
        auto* gates = tile.gates + i;
        Index k = 0;
        for (; k < steps && k + V::width <= whole; k += V::width, gates += Tile::lanes) {
            const Deltas<V> d = deltas<V, In>(at, k, gamma);
            V::store(numbers + k, d.delta);
            *gates = V::bits(d.trace_open);
        }
        if (k < steps && k < real) {
            const Real* last_value = rollout.last_values.at(0, env);
            *gates = followed && env + V::width + 1 < rollout.envs
                         ? fill_edge<In>(at, k, real - k, last_value, gamma, numbers + k)
                         : fill_last_edge<In>(at, k, real - k, last_value, gamma, numbers + k);
            k += V::width, gates += Tile::lanes;
        }
        for (; k < steps; k += V::width, gates += Tile::lanes) {
            V::store(numbers + k, V::all(0));
            *gates = 0;
        }
    }
    for (Index i = count; i < Tile::lanes; ++i) {  // lanes without an env
        for (Index k = 0; k < steps; ++k) tile.numbers[i * Tile::pitch + k] = 0;
        for (Index block = 0; block < steps / V::width; ++block) tile.gates[block * Tile::lanes + i] = 0;
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
template <class Out, bool streamed, class Real, class Tile>
void write_tile(const Rollout<Real>& rollout, const Lane* lanes, Index count, Index s, Index steps, const Tile& tile) {
    using V = Vector<Real>;
    constexpr Index line = kLine<Real>;
    for (Index i = 0; i < count; ++i) {
        const Index env = lanes[i].env, t = lanes[i].origin + s;
        const Index end = std::min(steps, rollout.steps - t);
        const Real* const numbers = tile.numbers + i * Tile::pitch;
        const Real* const values = rollout.values.at(t, env);
        Real* const advantages = Out::advantages ? rollout.advantages.at(t, env) : nullptr;
        Real* const returns = Out::returns ? rollout.returns.at(t, env) : nullptr;
        if constexpr (streamed) {
            stream_results(advantages, returns, numbers, values, Index(0), end);
        } else {
            Index k = 0;
            for (; k + line <= end; k += line)
                write_vectors<V, Out, line / V::width>(numbers, values, advantages, returns, k);
            for (; k < end; ++k) write_vectors<Single<Real>, Out, 1>(numbers, values, advantages, returns, k);
        }
    }
}

template <class Real, class Tile>
using Fill = void (*)(const Rollout<Real>&, const Lane*, Index count, Index s, Index steps, Tile&);
template <class Real, class Tile>
using Write = void (*)(const Rollout<Real>&, const Lane*, Index count, Index s, Index steps, const Tile&);

template <class Real, class Tile>
void run_lanes(const Rollout<Real>& rollout, const Lane* lanes, Index count, Index bottom, Index top, Real* carry,
               Tile& tile, Fill<Real, Tile> fill, Write<Real, Tile> write) {
    using V = Vector<Real>;
    constexpr int chains = Tile::lanes / V::width;
    const auto gamma_lambda = V::all(rollout.gamma_lambda);
    typename V::Type carries[chains];
    unrolled<chains>([&](auto c) { carries[c] = V::load(carry + c * V::width); });

    while (top > bottom) {
        const Index s = top - bottom > Tile::steps ? top - Tile::steps : bottom;
        const Index steps = top - s;
        fill(rollout, lanes, count, s, steps, tile);
        for (Index k = steps - V::width; k >= 0; k -= V::width) {
            const auto* const gates = tile.gates + k / V::width * Tile::lanes;
            unrolled<chains>([&](auto c) FASTGAE_INLINE_LAMBDA {
                Real* const numbers = tile.numbers + c * V::width * Tile::pitch + k;
                carries[c] = chain<V>(numbers, Tile::pitch, gates + c * V::width, gamma_lambda, carries[c]);
            });
        }
        if (write) write(rollout, lanes, count, s, steps, tile);
        top = s;
    }
    unrolled<chains>([&](auto c) { V::store(carry + c * V::width, carries[c]); });
}

// Run some lanes tile by tile, as many side by side as a tile has.
template <class Tile, bool streamed, class Real>
void run_all_lanes(const Rollout<Real>& rollout, const Lane* lanes, Index count, Index bottom, Index top, Real* carry,
                   Real* scratch, bool writes) {
    const auto fill =
        with_inputs(rollout, [](auto in) -> Fill<Real, Tile> { return fill_tile<decltype(in), Real, Tile>; });
    const auto write = with_outputs(rollout, [&](auto out) -> Write<Real, Tile> {
        return writes ? write_tile<decltype(out), streamed, Real, Tile> : nullptr;
    });
    Tile& tile = *new (scratch) Tile;
    for (Index i = 0; i < count; i += Tile::lanes)
        run_lanes(rollout, lanes + i, std::min(Tile::lanes, count - i), bottom, top, carry + i, tile, fill, write);
}

template <class Real>
void lanes(const Rollout<Real>& rollout, const Lane* lanes, Index count, Index bottom, Index top, Real* carry,
           Real* scratch, Store store) {
    if (store == Store::streamed)
        run_all_lanes<StreamedTile<Real>, true>(rollout, lanes, count, bottom, top, carry, scratch, true);
    else
        run_all_lanes<CachedTile<Real>, false>(rollout, lanes, count, bottom, top, carry, scratch,
                                               store == Store::cached);
}
