// Flat: a dense rollout, env-major or of few envs. It is one array in which element k + distance is the step after
// element k, unless an env ends there. The driver cuts the array into runs of the same length, one for each lane, which
// are computed side by side.
//
// A block holds one cache line of every lane. Its deltas are computed along the array and transposed, so that one
// vector holds the same element of many lanes; the chain of steps runs over them; the advantages are transposed back
// and written. The deltas of the next block come before the chain of this one, so that the CPU has work to do while
// each step of the chain waits for the step before it.

template <class Real>
struct FlatBlock {
    using V = Vector<Real>;
    static constexpr Index steps = kLine<Real>;
    static constexpr Index parts = steps / V::width;  // vectors of one lane
    static constexpr Index lanes = std::max(V::width, 4);
    static constexpr Index groups = lanes / V::width;  // vectors of lanes that take turns

    alignas(64) Real numbers[(steps + kFlatDistance) * lanes];  // (elements, lanes): deltas, then advantages
    alignas(64) typename V::Bits gates[parts * lanes];          // (parts, lanes): bit k is the trace gate of element k
    Real* following() { return numbers + steps * lanes; }       // the advantages of the elements after the block
};

// The memory that the phases of a block read and write: run `lane` begins at element lane * stride of the inputs and
// results.
template <class Real>
struct FlatRuns {
    static constexpr Index lanes = FlatBlock<Real>::lanes;
    // Flags are copied for several blocks at a time. The runs of all arrays together lie on more pages than a CPU
    // translates at once, so most blocks do not touch the pages of the flags.
    static constexpr Index copied = 64;

    const CanonicalRollout<Real>& rollout;
    Pointers<Real> at;
    Real *advantages, *returns;
    Index stride;
    Index shift;  // streaming: the element of a block at which a line of the returns begins
    alignas(64) Real lines[lanes][2 * FlatBlock<Real>::steps];  // returns of a block, and of the one after it
    Index flags_begin;  // the element of each run at which the copied flags begin
    std::uint8_t terminated[lanes][copied], truncated[lanes][copied];
    // The last step of an env that each run reaches next, from the highest element on: a ring that begins at `next`.
    struct End {
        Index element = PTRDIFF_MIN, lane, env;
    } ends[lanes];
    std::size_t next = 0;

    explicit FlatRuns(const CanonicalRollout<Real>& rollout) : rollout(rollout) {}

    // Find the ends below element `top` of each run, if the rollout is env-major. They lie within the steps of an env.
    void find_ends(Index first, Index top) {
        for (Index lane = 0; lane < lanes && rollout.env_major; ++lane) {
            const Index begin = first + lane * stride, env = (begin + top) / rollout.steps - 1;
            const End end = {(env + 1) * rollout.steps - 1 - begin, lane, env};
            Index i = lane;
            for (; i > 0 && ends[i - 1].element < end.element; --i) ends[i] = ends[i - 1];
            ends[i] = end;
        }
    }
};

// Copy the flags of the elements [bottom, top) of every run, or of the last of them if there is not enough room. The
// flags below them are needed next.
template <class In, bool prefetches, class Real>
void copy_flags(FlatRuns<Real>& runs, Index bottom, Index top) {
    constexpr Index copied = FlatRuns<Real>::copied;
    const auto copy = [&](auto count) {
        runs.flags_begin = top - count;
        for (Index lane = 0; lane < FlatRuns<Real>::lanes; ++lane) {
            const Index k = lane * runs.stride + runs.flags_begin;
            std::memcpy(runs.terminated[lane], runs.at.terminated + k, count);
            if constexpr (In::truncated) std::memcpy(runs.truncated[lane], runs.at.truncated + k, count);
            if constexpr (prefetches) prefetch_below(runs.at.terminated + k, copied);
            if constexpr (prefetches && In::truncated) prefetch_below(runs.at.truncated + k, copied);
        }
    };
    if (top - bottom >= copied)
        copy(std::integral_constant<Index, copied>());
    else
        copy(std::integral_constant<Index, FlatBlock<Real>::steps>());
}

// Return whether any of `count` flags is true.
template <int count>
FASTGAE_INLINE bool any_flag(const std::uint8_t* flags) {
    std::uint64_t any = 0;
    for (int i = 0; i < count; i += 8) {
        std::uint64_t some = 0;
        std::memcpy(&some, flags + i, std::min(count, 8));
        any |= some;
    }
    return any != 0;
}

// Return the deltas of a vector. Truncation is rare, so most vectors of a rollout with final values take the few
// instructions of one without truncation.
template <class V, class In>
FASTGAE_INLINE Deltas<V> flat_deltas(const Pointers<typename V::Real>& at, typename V::Type gamma) {
    if (In::final_values && !any_flag<V::width>(at.truncated)) return deltas<V, Inputs<false, false>>(at, 0, gamma);
    return deltas<V, In>(at, 0, gamma);
}

// Compute the last steps of envs in the block that begins at element s of each run. The step after each in the array
// belongs to the next env, so its gate is closed.
template <class In, class Real>
FASTGAE_NO_INLINE void end_envs(FlatRuns<Real>& runs, Index s, FlatBlock<Real>& block) {
    using V = Vector<Real>;
    using One = Single<Real>;
    using Block = FlatBlock<Real>;
    const CanonicalRollout<Real>& rollout = runs.rollout;
    const View<const Real> last_values = rollout.last_values, last_advantages = rollout.last_advantages;
    const Real gamma = *rollout.gammas.data, gamma_lambda = *rollout.gamma_lambdas.data;
    const Pointers<Real> at = runs.at;
    const Index steps = rollout.steps, stride = runs.stride;
    std::size_t next = runs.next;
    for (; runs.ends[next].element >= s; next = (next + 1) % Block::lanes) {
        const auto end = runs.ends[next];
        const auto to_last = [&](Real) FASTGAE_INLINE_LAMBDA { return *last_values.at(0, end.env); };
        const auto d = deltas<One, In>(at, end.lane * stride + end.element, gamma, to_last);
        const Real following = last_advantages ? *last_advantages.at(0, end.env) : Real(0);
        const std::size_t k = end.element - s;
        block.numbers[k * Block::lanes + end.lane] = advantage<One>(d.delta, d.trace_open, gamma_lambda, following);
        block.gates[k / V::width * Block::lanes + end.lane] &= ~(typename V::Bits(1) << k % V::width);
        runs.ends[next] = {end.element - steps, end.lane, end.env - 1};
    }
    runs.next = next;
}

// Compute the deltas of the block that begins at element s of each run.
template <class In, bool prefetches, class Real>
void fill_flat(FlatRuns<Real>& runs, Index bottom, Index s, FlatBlock<Real>& block) {
    using V = Vector<Real>;
    using Block = FlatBlock<Real>;
    if (s < runs.flags_begin) copy_flags<In, prefetches>(runs, bottom, s + Block::steps);
    const auto gamma = V::all(*runs.rollout.gammas.data);
    for (Index group = 0; group < Block::groups; ++group) {
        unrolled<Block::parts>([&](int reversed) FASTGAE_INLINE_LAMBDA {
            const Index part = Block::parts - 1 - reversed;
            const Index first_lane = group * V::width, from = s + part * V::width, flag = from - runs.flags_begin;
            const std::uint8_t* const terminated = runs.terminated[first_lane] + flag;
            const std::uint8_t* const truncated = runs.truncated[first_lane] + flag;
            auto* const gates = block.gates + part * Block::lanes + first_lane;
            Index k = first_lane * runs.stride + from;
            typename V::Type x[V::width];
            unrolled<V::width>([&](int i) FASTGAE_INLINE_LAMBDA {
                const Index copied = i * FlatRuns<Real>::copied;
                const Pointers<Real> at = {
                    runs.at.rewards + k,     runs.at.values + k,
                    runs.at.next_values + k, In::final_values ? runs.at.final_values + k : nullptr,
                    terminated + copied,     truncated + copied};
                if (prefetches && part == 0) {
                    prefetch_below(at.rewards, kFlatPrefetchBytes);
                    prefetch_below(at.values, kFlatPrefetchBytes);
                }
                const Deltas<V> d = flat_deltas<V, In>(at, gamma);
                x[i] = d.delta;
                gates[i] = V::bits(d.trace_open);
                k += runs.stride;
            });
            V::transpose(x);
            unrolled<V::width>([&](int i) FASTGAE_INLINE_LAMBDA {
                V::store(block.numbers + (part * V::width + i) * Block::lanes + first_lane, x[i]);
            });
        });
    }
    if (runs.ends[runs.next].element >= s) end_envs<In>(runs, s, block);
}

// Turn the deltas of a block into advantages, in place, and pass on those that the block before it needs.
template <int distance, class Real>
void chain_flat(FlatBlock<Real>& block, FlatBlock<Real>& before, Real gamma_lambda) {
    using V = Vector<Real>;
    using Block = FlatBlock<Real>;
    constexpr int steps = Block::steps, groups = Block::groups;
    typename V::Type a[steps + distance][groups];
    const auto at = [&](Index k, Index group) { return block.numbers + k * Block::lanes + group * V::width; };
    unrolled<distance * groups>([&](int i) FASTGAE_INLINE_LAMBDA {
        a[steps + i / groups][i % groups] = V::load(at(steps + i / groups, i % groups));
    });
    unrolled<steps>([&](int i) FASTGAE_INLINE_LAMBDA {
        const int k = steps - 1 - i;
        unrolled<groups>([&](int group) FASTGAE_INLINE_LAMBDA {
            const auto bits = V::load_bits(block.gates + k / V::width * Block::lanes + group * V::width);
            a[k][group] = advantage<V>(V::load(at(k, group)), V::bit(bits, k % V::width), V::all(gamma_lambda),
                                       a[k + distance][group]);
            V::store(at(k, group), a[k][group]);
        });
    });
    unrolled<distance * groups>(
        [&](int i) FASTGAE_INLINE_LAMBDA { V::store(before.following() + i * V::width, a[i / groups][i % groups]); });
}

// Stream returns whose lines do not begin at the same elements as the lines of the advantages. Each line holds elements
// of two blocks. The rest of the highest and of the lowest block gets ordinary stores.
template <class Real>
void stream_shifted(FlatRuns<Real>& runs, Index bottom, Index s, Index top) {
    using V = Vector<Real>;
    constexpr Index steps = FlatBlock<Real>::steps;
    Real* to = runs.returns + s;
    for (Index lane = 0; lane < FlatRuns<Real>::lanes; ++lane, to += runs.stride) {
        Real* const line = runs.lines[lane];
        if (s + steps == top)
            std::copy(line + runs.shift, line + steps, to + runs.shift);
        else
            for (Index i = runs.shift; i < runs.shift + steps; i += V::width) V::stream(to + i, V::load(line + i));
        if (s == bottom) std::copy_n(line, runs.shift, to);
        for (Index i = 0; i < steps; i += V::width) V::store(line + steps + i, V::load(line + i));
    }
}

// Write the results of the block that begins at element s of each run. If `shifted`, the returns have their lines at
// other elements than the advantages.
template <class Out, bool streamed, bool shifted, class Real>
void write_flat(FlatRuns<Real>& runs, Index bottom, Index s, Index top, const FlatBlock<Real>& block) {
    using V = Vector<Real>;
    using Block = FlatBlock<Real>;
    const auto put = [](Real* to, typename V::Type x)
                         FASTGAE_INLINE_LAMBDA { streamed ? V::stream(to, x) : V::store(to, x); };
    for (Index group = 0; group < Block::groups; ++group) {
        typename V::Type x[Block::parts][V::width];
        unrolled<Block::parts>([&](int part) FASTGAE_INLINE_LAMBDA {
            unrolled<V::width>([&](int k) FASTGAE_INLINE_LAMBDA {
                x[part][k] = V::load(block.numbers + (part * V::width + k) * Block::lanes + group * V::width);
            });
            V::transpose(x[part]);
        });
        const auto for_each_vector = [&](const auto& body) FASTGAE_INLINE_LAMBDA {
            Index k = group * V::width * runs.stride + s;
            unrolled<V::width>([&](int lane) FASTGAE_INLINE_LAMBDA {
                Real* const line = runs.lines[group * V::width + lane];
                unrolled<Block::parts>([&](int part) FASTGAE_INLINE_LAMBDA {
                    const Index from = part * V::width;
                    body(x[part][lane], k + from, line + from);
                });
                k += runs.stride;
            });
        };
        // Stream all lines of one result before the lines of the other: see stream in memory.inl.
        if constexpr (Out::advantages)
            for_each_vector([&](typename V::Type a, Index k, Real*)
                                FASTGAE_INLINE_LAMBDA { put(runs.advantages + k, a); });
        if constexpr (Out::returns)
            for_each_vector([&](typename V::Type a, Index k, Real* line) FASTGAE_INLINE_LAMBDA {
                const auto returns = a + V::load(runs.at.values + k);
                shifted ? V::store(line, returns) : put(runs.returns + k, returns);
            });
    }
    if constexpr (shifted) stream_shifted(runs, bottom, s, top);
}

template <class Real>
using ChainFlat = void (*)(FlatBlock<Real>&, FlatBlock<Real>&, Real gamma_lambda);

// Return the chain for a distance from 1 to kFlatDistance.
template <class Real, int... i>
ChainFlat<Real> chain_of(Index distance, std::integer_sequence<int, i...>) {
    constexpr ChainFlat<Real> chains[] = {chain_flat<i + 1, Real>...};
    return chains[distance - 1];
}

template <class Real>
void flat(const CanonicalRollout<Real>& rollout, Index first, Index stride, Index bottom, Index top, Real* carry,
          Store store) {
    using Block = FlatBlock<Real>;
    const Index distance = flat_distance(rollout);
    const auto from_first = [&](auto* data) { return data ? data + first : nullptr; };
    const auto fill = with_inputs(rollout, [&](auto in) {
        using In = decltype(in);
        return store == Store::streamed ? &fill_flat<In, true, Real> : &fill_flat<In, false, Real>;
    });
    const auto chain = chain_of<Real>(distance, std::make_integer_sequence<int, kFlatDistance>());

    FlatRuns<Real> runs(rollout);
    runs.at = {from_first(rollout.rewards.data),     from_first(rollout.values.data),
               from_first(rollout.next_values.data), from_first(rollout.final_values.data),
               from_first(rollout.terminated.data),  from_first(rollout.truncated.data)};
    runs.advantages = from_first(rollout.advantages.data), runs.returns = from_first(rollout.returns.data);
    runs.stride = stride;
    runs.shift = to_line(runs.returns);
    runs.find_ends(first, top);
    const auto write = with_outputs(rollout, [&](auto out) {
        using Out = decltype(out);
        constexpr bool both = Out::advantages && Out::returns;
        if (store != Store::streamed) return &write_flat<Out, false, false, Real>;
        return both && runs.shift ? &write_flat<Out, true, both, Real> : &write_flat<Out, true, false, Real>;
    });
    runs.flags_begin = top;
    Block blocks[2];
    Block *block = &blocks[0], *before = &blocks[1];
    std::copy_n(carry, distance * Block::lanes, block->following());
    fill(runs, bottom, top - Block::steps, *block);
    for (Index s = top - Block::steps; s >= bottom; s -= Block::steps) {
        chain(*block, *before, *rollout.gamma_lambdas.data);
        if (s > bottom) fill(runs, bottom, s - Block::steps, *before);
        if (store != Store::nothing) write(runs, bottom, s, top, *block);
        std::swap(block, before);
    }
    std::copy_n(block->following(), distance * Block::lanes, carry);
}
