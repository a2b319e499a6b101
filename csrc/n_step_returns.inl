// n-step returns: a recursion of n steps from each step, instead of a recursion to the end of the episode.
//
//     G_t = r_t + gamma_t V'_t          after one step, the bootstrap only where not terminated
//     G_t = r_t + gamma_t G_{t+1}       after each further one, but G_t stays where an episode ends with step t

// A run of contiguous steps of one env, or of envs of one step.
template <class Real>
struct StepRun {
    Pointers<Real> at;
    const std::uint8_t* mask;
    const Real* gammas;
    bool gamma_varies;
    Index count;
    Real* to;

    StepRun(const CanonicalRollout<Real>& rollout, Index t, Index n, Index count)
        : at(pointers_at<AnyInputs>(rollout, t, n, rollout.next_values.at(t, n))), mask(rollout.mask.at(t, n)),
          gammas(rollout.gammas.at(t, n)), gamma_varies(rollout.env_major ? rollout.gammas.step : rollout.gammas.env),
          count(count), to(rollout.returns.at(t, n)) {
        if (t == rollout.steps - 1) at.next_values = rollout.last_values.at(0, n);
    }

    template <class V>
    FASTGAE_INLINE typename V::Type gamma(Index i) const {
        return gamma_varies ? V::load(gammas + i) : V::all(*gammas);
    }

    template <class V>
    FASTGAE_INLINE typename V::Mask goes_on(Index i) const {
        return V::both(V::zero_flags(at.terminated + i), V::zero_flags(at.truncated + i));
    }

    template <class V>
    FASTGAE_INLINE typename V::Type longer(Index i, typename V::Type following) const {
        return V::load(at.rewards + i) + gamma<V>(i) * following;
    }

    void after_one_step() const {
        for_each_vector<Real>(0, count, [&](auto v, Index i) FASTGAE_INLINE_LAMBDA {
            using V = decltype(v);
            V::store(to + i, deltas<V, AnyInputs>(at, i, gamma<V>(i)).one_step_return);
        });
    }

    // Add one step to each return, from the first on, because it may be the `following` return of the one before it.
    void one_more(const Real* following) const {
        const auto add = [&](auto v, Index i) FASTGAE_INLINE_LAMBDA {
            using V = decltype(v);
            V::store(to + i, V::select(goes_on<V>(i), longer<V>(i, V::load(following + i)), V::load(to + i)));
        };
        using V = Vector<Real>;
        Index i = 0;
        for (; i + V::width <= count; i += V::width) add(V(), i);
        for (; i < count; ++i) add(Single<Real>(), i);
    }
};

// The same where steps do not exist: a return of n steps leaves them out, and theirs is V.

// Time-major: from the last step to the first, the step before gets what it needs of the next step that exists: V' and
// then, pass by pass, a longer return.
template <class Real>
void n_step_returns_masked(const CanonicalRollout<Real>& rollout, Index n, Index first, Index count) {
    alignas(64) Real next[kMaskedEnvs], exists_after[kMaskedEnvs];
    const Index top = rollout.steps - 1;
    for (Index i = 0; i < count; ++i) next[i] = *rollout.last_values.at(0, first + i);
    // Call visit(vector, run, i) for element i of each row.
    const auto sweep = [&](const auto& visit) FASTGAE_INLINE_LAMBDA {
        for (Index t = top; t >= 0; --t) {
            const StepRun<Real> run(rollout, t, first, count);
            for_each_vector<Real>(0, count, [&](auto v, Index i) FASTGAE_INLINE_LAMBDA { visit(v, run, i); });
        }
    };
    const auto hand_on = [&](auto v, auto skipped, auto here, Real* to) FASTGAE_INLINE_LAMBDA {
        using V = decltype(v);
        V::store(to, V::select(skipped, V::load(to), here));
    };
    sweep([&](auto v, const StepRun<Real>& run, Index i) FASTGAE_INLINE_LAMBDA {
        using V = decltype(v);
        const auto skipped = V::zero_flags(run.mask + i);
        const auto to_next_values = [&](auto own) { return rollout.mask_passes_values ? V::load(next + i) : own; };
        const auto d = deltas<V, AnyInputs>(run.at, i, run.template gamma<V>(i), to_next_values);
        V::store(run.to + i, V::select(skipped, d.values, d.one_step_return));
        hand_on(v, skipped, d.values, next + i);
    });
    for (Index pass = 1; pass < n; ++pass) {
        std::fill_n(exists_after, count, Real(0));
        sweep([&](auto v, const StepRun<Real>& run, Index i) FASTGAE_INLINE_LAMBDA {
            using V = decltype(v);
            const auto skipped = V::zero_flags(run.mask + i);
            const auto is_followed = V::at_least(V::load(exists_after + i), V::all(1));
            const auto goes_on = V::both(run.template goes_on<V>(i), is_followed);
            const auto shorter = V::load(run.to + i);
            const auto longer = V::select(goes_on, run.template longer<V>(i, V::load(next + i)), shorter);
            V::store(run.to + i, V::select(skipped, shorter, longer));
            hand_on(v, skipped, shorter, next + i);
            hand_on(v, skipped, V::all(1), exists_after + i);
        });
    }
}

// Env-major: a vector of steps, with what follows each in a vector of its own. Where all of them and the one after them
// exist, that lies one element on.
template <class Real>
void n_step_returns_of_masked_env(const CanonicalRollout<Real>& rollout, Index n, Index env) {
    using V = Vector<Real>;
    const Index steps = rollout.steps;
    const StepRun<Real> run(rollout, 0, env, steps);
    const Real* const last_value = rollout.last_values.at(0, env);
    std::copy_n(run.at.values, steps, run.to);
    Index last = steps - 1;
    while (last >= 0 && !run.mask[last]) --last;
    if (last < 0) return;
    // Make the return of each step that exists longer(vector, i, following), where `following` is the number of the
    // next one that exists. A step of the same vector may be that one, so that their numbers are read before any is
    // written.
    const auto sweep = [&](const Real* numbers, const auto& longer) FASTGAE_INLINE_LAMBDA {
        const auto block = [&](auto v, Index i) FASTGAE_INLINE_LAMBDA {
            using W = decltype(v);
            const auto skipped = W::zero_flags(run.mask + i);
            if (W::bits(skipped) == W::all_bits) return;
            Index next = i + W::width;
            Real passed[W::width];
            const Real* following = numbers + i + 1;
            if (W::bits(skipped) != 0 || next > last || !run.mask[next]) {
                while (next <= last && !run.mask[next]) ++next;
                typename Single<Real>::Bits number, here;  // of which a compiler selects one without a branch
                std::memcpy(&number, next <= last ? numbers + next : last_value, sizeof number);
                for (int k = W::width - 1; k >= 0; --k) {
                    std::memcpy(passed + k, &number, sizeof number);
                    std::memcpy(&here, numbers + i + k, sizeof here);
                    number = run.mask[i + k] ? here : number;
                }
                following = passed;
            }
            W::store(run.to + i, W::select(skipped, W::load(run.to + i), longer(v, i, W::load(following))));
        };
        Index i = 0;
        for (; i + V::width < steps; i += V::width) block(V(), i);
        for (; i < steps; ++i) block(Single<Real>(), i);
    };
    sweep(run.at.values, [&](auto v, Index i, auto following) FASTGAE_INLINE_LAMBDA {
        using W = decltype(v);
        const Pointers<Real> at = {run.at.rewards + i,
                                   run.at.values + i,
                                   i < steps - 1 ? run.at.next_values + i : last_value,
                                   run.at.final_values ? run.at.final_values + i : nullptr,
                                   run.at.terminated + i,
                                   run.at.truncated + i};
        const auto to_next_values = [&](auto own) { return rollout.mask_passes_values ? following : own; };
        return deltas<W, AnyInputs>(at, 0, run.template gamma<W>(i), to_next_values).one_step_return;
    });
    for (Index pass = 1; pass < n; ++pass) {
        const Real of_last = run.to[last];  // which no step follows
        sweep(run.to, [&](auto v, Index i, auto following) FASTGAE_INLINE_LAMBDA {
            using W = decltype(v);
            return W::select(run.template goes_on<W>(i), run.template longer<W>(i, following), W::load(run.to + i));
        });
        run.to[last] = of_last;
    }
}

// A return of n steps is made from a return of n - 1 steps, that of the next step. Time-major, row t becomes one step
// longer as soon as row t + 1 has as many steps as row t, so that n rows are in use at a time. An env in contiguous
// memory, and short rows one after the other, become one step longer as a whole.
template <class Real>
void n_step_returns(const CanonicalRollout<Real>& given, Index n, Index first, Index last) {
    CanonicalRollout<Real> rollout = given;
    if (!rollout.truncated) rollout.truncated = rollout.terminated;
    const Index steps = rollout.steps;
    if (rollout.mask) {
        for (Index env = first; rollout.env_major && env < last; ++env) n_step_returns_of_masked_env(rollout, n, env);
        for (Index env = first; !rollout.env_major && env < last; env += kMaskedEnvs)
            n_step_returns_masked(rollout, n, env, std::min(kMaskedEnvs, last - env));
        return;
    }
    // The step after an element lies `distance` elements on.
    const auto whole = [&](Index env, Index distance) FASTGAE_INLINE_LAMBDA {
        StepRun<Real>(rollout, steps - 1, env, distance).after_one_step();
        const StepRun<Real> others(rollout, 0, env, (steps - 1) * distance);
        others.after_one_step();
        for (Index pass = 1; pass < n; ++pass) others.one_more(others.to + distance);
    };
    if (rollout.env_major) {
        for (Index env = first; env < last; ++env) whole(env, 1);
    } else if (rollout.envs <= kJoinedEnvs && rollout.has_numbers() && is_dense(rollout)) {
        whole(0, rollout.envs);
    } else {
        for (Index t = 0; t < steps; ++t) {
            StepRun<Real>(rollout, t, first, last - first).after_one_step();
            for (Index back = t - 1; back >= std::max<Index>(0, t - n + 1); --back)
                StepRun<Real>(rollout, back, first, last - first).one_more(rollout.returns.at(back + 1, first));
        }
    }
}
