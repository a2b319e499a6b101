// Env-major: lanes (envs, or pieces of envs) that run side by side, tile by tile.
//
// A tile holds some hundred steps of all lanes. Its deltas are computed along time, where memory is contiguous; blocks of
// width x width are transposed in registers, so that the chain runs with lanes side by side, and transposed back; then the
// results are written along time. The trace gates need no transposing: a lane's gates of one block are bits of one number.

template <class Real>
struct Tile {
    using V = Vector<Real>;
    using Bits = typename V::Bits;
    static constexpr Index lanes = 2 * V::width;  // two chains hide each other's latency
    static constexpr Index steps = kTileBytes / (lanes * sizeof(Real));
    static constexpr Index pitch = steps + kTilePadding / sizeof(Real);
    static constexpr Index blocks = steps / V::width;

    alignas(64) Real numbers[lanes * pitch];  // (lanes, pitch): deltas, then advantages
    alignas(64) Bits gates[blocks * lanes];   // (blocks, lanes): bit k is the trace gate of step k of the block
};

template <class Real>
Pointers<Real> pointers(const Rollout<Real>& rollout, Index t, Index env) {
    return {rollout.rewards.at(t, env),
            rollout.values.at(t, env),
            t < rollout.steps - 1 ? rollout.next_values.at(t, env) : rollout.last_values.at(0, env),
            rollout.final_values ? rollout.final_values.at(t, env) : nullptr,
            rollout.terminated.at(t, env),
            rollout.truncated ? rollout.truncated.at(t, env) : nullptr};
}

// Deltas and gates of `steps` steps of one lane from step t on. Steps past the end get what makes A = 0 there.
template <class In, class Real>
void fill(const Rollout<Real>& rollout, Index env, Index t, Index steps, Real* numbers, typename Tile<Real>::Bits* gates) {
    using V = Vector<Real>;
    using S = Single<Real>;
    const Index real = rollout.steps - t;
    // Only the last step of a rollout may have its next value elsewhere.
    const bool apart = rollout.last_values.at(0, env) != rollout.next_values.at(rollout.steps - 1, env);
    const Index vectored = real - apart;

    Index s = 0;
    if (vectored >= V::width) {
        const Pointers<Real> at = pointers(rollout, t, env);
        const auto gamma = V::all(rollout.gamma);
        for (; s < steps && s + V::width <= vectored; s += V::width) {
            const Deltas<V> d = deltas<V, In>(at, s, gamma);
            V::store(numbers + s, d.delta);
            gates[s / V::width * Tile<Real>::lanes] = V::bits(d.trace);
        }
    }
    for (; s < steps; s += V::width) {
        typename V::Bits bits = 0;
        for (int k = 0; k < V::width; ++k) {
            numbers[s + k] = 0;
            if (s + k >= real) continue;
            const Deltas<S> d = deltas<S, In>(pointers(rollout, t + s + k, env), 0, rollout.gamma);
            numbers[s + k] = d.delta;
            bits |= static_cast<typename V::Bits>(d.trace) << k;
        }
        gates[s / V::width * Tile<Real>::lanes] = bits;
    }
}

// A lane that there is not.
template <class Real>
void fill_nothing(Index steps, Real* numbers, typename Tile<Real>::Bits* gates) {
    for (Index s = 0; s < steps; ++s) numbers[s] = 0;
    for (Index block = 0; block < steps / Vector<Real>::width; ++block) gates[block * Tile<Real>::lanes] = 0;
}

// Deltas -> advantages, in place, for `width` lanes and one block of steps.
template <class Real>
FASTGAE_INLINE typename Vector<Real>::Type chain(Real* numbers, const typename Tile<Real>::Bits* gates,
                                         typename Vector<Real>::Type gamma_lambda, typename Vector<Real>::Type carry) {
    using V = Vector<Real>;
    typename V::Type x[V::width];
    unrolled<V::width>([&](auto i) { x[i] = V::load(numbers + i * Tile<Real>::pitch); });
    V::transpose(x);
    const auto bits = V::load_bits(gates);
    unrolled<V::width>([&](auto i) {
        constexpr int k = V::width - 1 - i;
        x[k] = carry = advantage<V>(x[k], V::bit(bits, k), gamma_lambda, carry);
    });
    V::transpose(x);
    unrolled<V::width>([&](auto i) { V::store(numbers + i * Tile<Real>::pitch, x[i]); });
    return carry;
}

template <class Out, class Real>
void write(const Rollout<Real>& rollout, Index env, Index t, Index steps, const Real* numbers) {
    using V = Vector<Real>;
    using S = Single<Real>;
    const Real* values = rollout.values.at(t, env);
    Real* advantages = Out::advantages ? rollout.advantages.at(t, env) : nullptr;
    Real* returns = Out::returns ? rollout.returns.at(t, env) : nullptr;
    Index s = 0;
    if constexpr (Out::streamed) {
        const Real* streamed = Out::advantages ? advantages : returns;
        for (; s < steps && !at_line(streamed + s); ++s) put_results<S, Out>(advantages, returns, s, numbers[s], values[s]);
    }
    for (; s + V::width <= steps; s += V::width)
        put_results<V, Out>(advantages, returns, s, V::load(numbers + s), V::load(values + s));
    for (; s < steps; ++s) put_results<S, Out>(advantages, returns, s, numbers[s], values[s]);
}

template <class Real>
using Fill = void (*)(const Rollout<Real>&, Index env, Index t, Index steps, Real* numbers, typename Tile<Real>::Bits* gates);
template <class Real>
using Write = void (*)(const Rollout<Real>&, Index env, Index t, Index steps, const Real* numbers);

template <class Real>
void run_lanes(const Rollout<Real>& rollout, const Lane* lanes, Index count, Index bottom, Index top, Real* carry,
               Fill<Real> fill, Write<Real> write) {
    using V = Vector<Real>;
    using T = Tile<Real>;
    T tile;
    const auto gamma_lambda = V::all(rollout.gamma_lambda);
    auto low = V::load(carry), high = V::load(carry + V::width);

    while (top > bottom) {
        const Index s = top - bottom > T::steps ? top - T::steps : bottom;
        const Index steps = top - s;
        for (Index i = 0; i < count; ++i)
            fill(rollout, lanes[i].env, lanes[i].origin + s, steps, tile.numbers + i * T::pitch, tile.gates + i);
        for (Index i = count; i < T::lanes; ++i) fill_nothing(steps, tile.numbers + i * T::pitch, tile.gates + i);
        for (Index b = steps / V::width - 1; b >= 0; --b) {
            low = chain(tile.numbers + b * V::width, tile.gates + b * T::lanes, gamma_lambda, low);
            high = chain(tile.numbers + b * V::width + V::width * T::pitch, tile.gates + b * T::lanes + V::width,
                         gamma_lambda, high);
        }
        for (Index i = 0; write && i < count; ++i) {
            const Index t = lanes[i].origin + s, real = rollout.steps - t;
            write(rollout, lanes[i].env, t, real < steps ? real : steps, tile.numbers + i * T::pitch);
        }
        top = s;
    }
    V::store(carry, low);
    V::store(carry + V::width, high);
}
