// Flat: a dense rollout, env-major, also with a mask, or of few envs. It is one array in which element k + distance is
// the step after element k, unless an env ends there. The driver cuts the array into runs of the same length, one for
// each lane, which are computed side by side.
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
    alignas(64) typename V::Bits absent[parts * lanes];         // the same: bit k is set if element k does not exist
    alignas(64) typename V::Bits skipped[parts * lanes];        // the same, but not for the last step of an env
    const std::uint8_t* exists;                                 // whether the elements of the first lane do: a copy
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
    Pointers<Real> at;         // terminated is null where it is left out
    const std::uint8_t* mask;  // or null
    Real *advantages, *returns;
    Index stride;
    Index shift;  // streaming: the element of a block at which a line of the returns begins
    alignas(64) Real lines[lanes][2 * FlatBlock<Real>::steps];  // returns of a block, and of the one after it
    Index flags_begin;  // the element of each run at which the copied flags begin
    std::uint8_t terminated[lanes][copied], truncated[lanes][copied];
    std::uint8_t exists[2][lanes][copied];  // of the mask; the results of a block are written after the next copy
    int copy = 0;
    // The last step of an env that each run reaches next, from the highest element on: a ring that begins at `next`.
    struct End {
        Index element = PTRDIFF_MIN, lane, env;
    } ends[lanes];
    std::size_t next = 0;
    std::uint8_t exists_after[lanes];            // 1 if the element after the next block exists
    Real passed_on[lanes];                       // V' of that element, if it does not
    Real passed[lanes][FlatBlock<Real>::steps];  // V' of a block in which V of later steps is passed on

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

    // Read the states that follow element `top` of each run, or write them.
    void read_passed_on(Index top, const Real* carry) {
        for (Index lane = 0; lane < lanes; ++lane)
            exists_after[lane] = mask[lane * stride + top] != 0, passed_on[lane] = carry[lane];
    }
    void write_passed_on(Real* carry) const {
        for (Index lane = 0; lane < lanes; ++lane) carry[lane] = exists_after[lane] ? Real(0) : passed_on[lane];
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
            const auto take = [&](const std::uint8_t* from, std::uint8_t* to) {
                std::memcpy(to, from + k, count);
                if constexpr (prefetches) prefetch_below(from + k, copied);
            };
            if (runs.at.terminated) take(runs.at.terminated, runs.terminated[lane]);
            if constexpr (In::truncated) take(runs.at.truncated, runs.truncated[lane]);
            if constexpr (In::mask) take(runs.mask, runs.exists[runs.copy][lane]);
        }
    };
    runs.copy ^= 1;
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

// Return whether V' of a step in a block may be V of a later step than the next one, or be passed on to the blocks
// below it. A mask may have other bytes than 1, which only take longer.
template <class Real>
FASTGAE_INLINE bool passes_values(const FlatRuns<Real>& runs, Index s, const FlatBlock<Real>& block) {
    constexpr std::uint64_t ones = 0x0101010101010101;
    std::uint64_t differs = 0, all = 1;
    for (Index lane = 0; lane < FlatRuns<Real>::lanes; ++lane) {
        const std::uint64_t after = runs.exists_after[lane];
        for (Index i = 0; i < FlatBlock<Real>::steps; i += 8) {
            std::uint64_t eight;
            std::memcpy(&eight, block.exists + lane * FlatRuns<Real>::copied + i, sizeof eight);
            differs |= eight ^ after * ones;
        }
        all &= after;
    }
    // The last step of an env gets last_values in end_envs; one that does not exist passes them on.
    return differs || (!all && runs.ends[runs.next].element >= s);
}

// Write V' of a block, which is V of the next step that exists.
template <class Real>
FASTGAE_NO_INLINE void pass_block(FlatRuns<Real>& runs, Index s, const FlatBlock<Real>& block) {
    using V = Vector<Real>;
    using Block = FlatBlock<Real>;
    const CanonicalRollout<Real>& rollout = runs.rollout;
    alignas(64) typename V::Bits skipped[Block::parts * Block::lanes];
    for (Index lane = 0; lane < Block::lanes; ++lane) {
        std::copy_n(runs.at.next_values + lane * runs.stride + s, Block::steps, runs.passed[lane]);
        unrolled<Block::parts>([&](int part) FASTGAE_INLINE_LAMBDA {
            const std::uint8_t* const exists = block.exists + lane * FlatRuns<Real>::copied + part * V::width;
            skipped[part * Block::lanes + lane] = V::bits(V::zero_flags(exists));
        });
    }
    for (auto [element, lane, env] : runs.ends)
        for (; element >= s; element -= rollout.steps, --env) {
            const std::size_t after = element - s + 1;
            runs.passed[lane][after - 1] = *rollout.last_values.at(0, env);
            if (after == Block::steps)
                runs.exists_after[lane] = 1;
            else
                skipped[after / V::width * Block::lanes + lane] &= ~(typename V::Bits(1) << after % V::width);
        }
    for (Index lane = 0; lane < Block::lanes; lane += V::width)
        pass_down<V>(runs.passed[lane], Block::steps, Block::steps, skipped + lane, Block::lanes,
                     runs.exists_after + lane, runs.passed_on + lane);
    for (Index lane = 0; lane < Block::lanes; ++lane)
        runs.exists_after[lane] = block.exists[lane * FlatRuns<Real>::copied] != 0;
}

// Compute the last steps of envs in the block that begins at element s of each run. The step after each in the array
// belongs to the next env, so its gate is closed.
template <class In, bool prefetches, class Real>
FASTGAE_NO_INLINE void end_envs(FlatRuns<Real>& runs, Index s, FlatBlock<Real>& block) {
    using V = Vector<Real>;
    using One = Single<Real>;
    using Block = FlatBlock<Real>;
    const CanonicalRollout<Real>& rollout = runs.rollout;
    const View<const Real> last_values = rollout.last_values, last_advantages = rollout.last_advantages;
    const Real gamma = *rollout.gammas.data, gamma_lambda = *rollout.gamma_lambdas.data;
    std::size_t next = runs.next;
    for (; runs.ends[next].element >= s; next = (next + 1) % Block::lanes) {
        const auto end = runs.ends[next];
        const Index i = end.lane * runs.stride + end.element, flag = end.element - runs.flags_begin;
        const Pointers<Real> at = {runs.at.rewards + i,
                                   runs.at.values + i,
                                   runs.at.values + i,
                                   In::final_values ? runs.at.final_values + i : nullptr,
                                   runs.terminated[end.lane] + flag,
                                   runs.truncated[end.lane] + flag};
        const auto to_last = [&](Real) FASTGAE_INLINE_LAMBDA { return *last_values.at(0, end.env); };
        const auto d = deltas<One, In>(at, 0, gamma, to_last);
        const Real following = last_advantages ? *last_advantages.at(0, end.env) : Real(0);
        const std::size_t k = end.element - s;
        const Index of_lane = k / V::width * Block::lanes + end.lane;
        const auto others = ~(typename V::Bits(1) << k % V::width);
        const bool exists = !In::mask || block.exists[end.lane * FlatRuns<Real>::copied + k];
        block.numbers[k * Block::lanes + end.lane] =
            exists ? advantage<One>(d.delta, d.trace_open, gamma_lambda, following) : following;
        block.gates[of_lane] &= others;
        if constexpr (In::mask) block.skipped[of_lane] &= others;
        runs.ends[next] = {end.element - rollout.steps, end.lane, end.env - 1};
        if constexpr (prefetches) prefetch_below(last_values.at(0, end.env), 2 * last_values.env * Index(sizeof(Real)));
    }
    runs.next = next;
}

// Compute the deltas of the block that begins at element s of each run, and prefetch what lies below it into a level of
// the caches; 0: nothing.
template <class In, int level, class Real>
void fill_flat(FlatRuns<Real>& runs, Index bottom, Index s, FlatBlock<Real>& block) {
    using V = Vector<Real>;
    using Block = FlatBlock<Real>;
    if (s < runs.flags_begin) copy_flags<In, level != 0>(runs, bottom, s + Block::steps);
    const Real* next_values = runs.at.next_values + s;
    Index next_stride = runs.stride;
    if constexpr (In::mask) {
        block.exists = runs.exists[runs.copy][0] + (s - runs.flags_begin);
        if (runs.rollout.mask_passes_values && passes_values(runs, s, block)) {
            pass_block(runs, s, block);
            next_values = runs.passed[0], next_stride = Block::steps;
        }
    }
    const auto gamma = V::all(*runs.rollout.gammas.data);
    const bool own_next_values = has_own_next_values(runs.rollout);
    for (Index group = 0; group < Block::groups; ++group) {
        unrolled<Block::parts>([&](int reversed) FASTGAE_INLINE_LAMBDA {
            const Index part = Block::parts - 1 - reversed;
            const Index first_lane = group * V::width, from = s + part * V::width, flag = from - runs.flags_begin;
            const std::uint8_t* const terminated = runs.terminated[first_lane] + flag;
            const std::uint8_t* const truncated = runs.truncated[first_lane] + flag;
            auto* const gates = block.gates + part * Block::lanes + first_lane;
            auto* const absent = block.absent + part * Block::lanes + first_lane;
            auto* const skipped = block.skipped + part * Block::lanes + first_lane;
            const std::uint8_t* const exists = runs.exists[runs.copy][first_lane] + flag;
            const Real* const next = next_values + first_lane * next_stride + part * V::width;
            Index k = first_lane * runs.stride + from;
            typename V::Type x[V::width];
            unrolled<V::width>([&](int i) FASTGAE_INLINE_LAMBDA {
                const Index copied = i * FlatRuns<Real>::copied;
                const Pointers<Real> at = {runs.at.rewards + k,
                                           runs.at.values + k,
                                           In::mask ? next + i * next_stride : runs.at.next_values + k,
                                           In::final_values ? runs.at.final_values + k : nullptr,
                                           terminated + copied,
                                           truncated + copied};
                if (level && part == 0) {
                    constexpr Index ahead = kFlatPrefetchBytes[level], apart = kFlatPrefetchApart;
                    prefetch_below<level>(at.rewards, ahead);
                    if (own_next_values) prefetch_below<level>(at.next_values, ahead + apart);
                    prefetch_below<level>(at.values, ahead + 2 * apart);
                }
                const Deltas<V> d = flat_deltas<V, In>(at, gamma);
                x[i] = d.delta;
                gates[i] = V::bits(d.trace_open);
                if constexpr (In::mask) absent[i] = skipped[i] = V::bits(V::zero_flags(exists + copied));
                k += runs.stride;
            });
            V::transpose(x);
            unrolled<V::width>([&](int i) FASTGAE_INLINE_LAMBDA {
                V::store(block.numbers + (part * V::width + i) * Block::lanes + first_lane, x[i]);
            });
        });
    }
    if (runs.ends[runs.next].element >= s) end_envs<In, level != 0>(runs, s, block);
}

// Turn the deltas of a block into advantages, in place, and pass on those that the block before it needs.
template <int distance, Masked masked, class Real>
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
            const Index of_group = k / V::width * Block::lanes + group * V::width;
            const auto open = V::bit(V::load_bits(block.gates + of_group), k % V::width);
            const auto delta = V::load(at(k, group)), next = a[k + distance][group];
            a[k][group] = advantage<V>(delta, open, V::all(gamma_lambda), next);
            auto result = a[k][group];
            if constexpr (masked != Masked::no) {
                // What an absent step passes on waits for no product, so that the next step waits for one select alone.
                const auto bit = [&](const auto* bits) FASTGAE_INLINE_LAMBDA {
                    return V::bit(V::load_bits(bits + of_group), k % V::width);
                };
                const auto absent = bit(block.absent), passed = V::select(bit(block.skipped), next, delta);
                a[k][group] = V::select(absent, passed, a[k][group]);
                result = masked == Masked::blanks ? V::select(absent, V::all(0), result) : a[k][group];
            }
            V::store(at(k, group), result);
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
// other elements than the advantages. If it blanks, A = 0 and R = V where the step does not exist.
template <class Out, bool streamed, bool shifted, bool blanks, class Real>
void write_flat(FlatRuns<Real>& runs, Index bottom, Index s, Index top, const FlatBlock<Real>& block) {
    using V = Vector<Real>;
    using Block = FlatBlock<Real>;
    const auto put = [](Real* to, typename V::Type x)
                         FASTGAE_INLINE_LAMBDA { streamed ? V::stream(to, x) : V::store(to, x); };
    const std::uint8_t* const exists = block.exists;
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
            unrolled<V::width>([&](int i) FASTGAE_INLINE_LAMBDA {
                unrolled<Block::parts>([&](int part) FASTGAE_INLINE_LAMBDA {
                    body(x[part][i], k + part * V::width, group * V::width + i, part * V::width);
                });
                k += runs.stride;
            });
        };
        // Stream all lines of one result before the lines of the other: see stream in memory.inl.
        if constexpr (Out::advantages)
            for_each_vector([&](typename V::Type a, Index k, Index, Index)
                                FASTGAE_INLINE_LAMBDA { put(runs.advantages + k, a); });
        if constexpr (Out::returns)
            for_each_vector([&](typename V::Type a, Index k, Index lane, Index from) FASTGAE_INLINE_LAMBDA {
                const auto value = V::load(runs.at.values + k);
                auto returns = a + value;
                if constexpr (blanks) {
                    const auto skipped = V::zero_flags(exists + lane * FlatRuns<Real>::copied + from);
                    returns = V::select(skipped, value, returns);
                }
                shifted ? V::store(runs.lines[lane] + from, returns) : put(runs.returns + k, returns);
            });
    }
    if constexpr (shifted) stream_shifted(runs, bottom, s, top);
}

template <class Real>
using ChainFlat = void (*)(FlatBlock<Real>&, FlatBlock<Real>&, Real gamma_lambda);

// Return the chain for a distance from 1 to kFlatDistance.
template <class Real, int... i>
ChainFlat<Real> chain_of(Index distance, std::integer_sequence<int, i...>) {
    constexpr ChainFlat<Real> chains[] = {chain_flat<i + 1, Masked::no, Real>...};
    return chains[distance - 1];
}

template <class Real>
void flat(const CanonicalRollout<Real>& rollout, Index first, Index stride, Index bottom, Index top, Real* carry,
          Store store, Prefetching& prefetching) {
    using Block = FlatBlock<Real>;
    using Fill = void (*)(FlatRuns<Real>&, Index bottom, Index s, Block&);
    const Index distance = flat_distance(rollout);
    const auto from_first = [&](auto* data) { return data ? data + first : nullptr; };
    const Fill* const fills = with_inputs(rollout, [&](auto in) {
        const auto fills_with = [](auto with) -> const Fill* {
            using In = decltype(with);
            static constexpr Fill fills[] = {fill_flat<In, 0, Real>, fill_flat<In, 1, Real>, fill_flat<In, 2, Real>};
            return fills;
        };
        return rollout.mask ? fills_with(WithMask<decltype(in)>()) : fills_with(in);
    });
    const bool blanks = rollout.mask && !rollout.carry_over;
    const auto chain = blanks         ? &chain_flat<1, Masked::blanks, Real>
                       : rollout.mask ? &chain_flat<1, Masked::carries_over, Real>
                                      : chain_of<Real>(distance, std::make_integer_sequence<int, kFlatDistance>());

    FlatRuns<Real> runs(rollout);
    runs.at = {from_first(rollout.rewards.data),     from_first(rollout.values.data),
               from_first(rollout.next_values.data), from_first(rollout.final_values.data),
               from_first(rollout.terminated.data),  from_first(rollout.truncated.data)};
    if (repeats_terminated(rollout)) {
        runs.at.terminated = nullptr;
        std::memset(runs.terminated, 0, sizeof runs.terminated);
    }
    runs.mask = from_first(rollout.mask.data);
    runs.advantages = from_first(rollout.advantages.data), runs.returns = from_first(rollout.returns.data);
    runs.stride = stride;
    runs.shift = to_line(runs.returns);
    runs.find_ends(first, top);
    const auto write = with_outputs(rollout, [&](auto out) {
        using Out = decltype(out);
        const auto with = [&](auto blanked) {
            constexpr bool both = Out::advantages && Out::returns;
            if (store != Store::streamed) return &write_flat<Out, false, false, blanked, Real>;
            return both && runs.shift ? &write_flat<Out, true, both, blanked, Real>
                                      : &write_flat<Out, true, false, blanked, Real>;
        };
        return blanks ? with(std::true_type()) : with(std::false_type());
    });
    runs.flags_begin = top;
    const auto fill = [&](Index s, Block& block) {
        const int level = store == Store::streamed ? prefetching.next(4 * 64 * Block::lanes) : 0;
        fills[level](runs, bottom, s, block);
    };
    Block blocks[2];
    Block *block = &blocks[0], *before = &blocks[1];
    std::copy_n(carry, distance * Block::lanes, block->following());
    if (rollout.mask) runs.read_passed_on(top, carry + Block::lanes);
    fill(top - Block::steps, *block);
    for (Index s = top - Block::steps; s >= bottom; s -= Block::steps) {
        chain(*block, *before, *rollout.gamma_lambdas.data);
        if (s > bottom) fill(s - Block::steps, *before);
        if (store != Store::nothing) write(runs, bottom, s, top, *block);
        std::swap(block, before);
    }
    std::copy_n(block->following(), distance * Block::lanes, carry);
    if (rollout.mask) runs.write_passed_on(carry + Block::lanes);
}
