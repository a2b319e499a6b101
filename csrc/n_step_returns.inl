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

// The same where steps do not exist: a return of n steps leaves them out, and theirs is V. From the last step to the
// first, the step before gets what it needs of the next step that exists: V' and then, pass by pass, a longer return.
template <class Real>
void n_step_returns_masked(const CanonicalRollout<Real>& rollout, Index n, Index first, Index count) {
    alignas(64) Real next[kMaskedEnvs], exists_after[kMaskedEnvs];
    const Index top = rollout.steps - 1;
    for (Index i = 0; i < count; ++i) next[i] = *rollout.last_values.at(0, first + i);
    // Call visit(vector, run, i, lane) for element i of each run; `lane` is its place among the envs.
    const auto sweep = [&](const auto& visit) FASTGAE_INLINE_LAMBDA {
        if (rollout.env_major) {
            visit(Single<Real>(), StepRun<Real>(rollout, top, first, 1), 0, 0);
            const StepRun<Real> others(rollout, 0, first, top);
            for (Index t = top - 1; t >= 0; --t) visit(Single<Real>(), others, t, 0);
            return;
        }
        for (Index t = top; t >= 0; --t) {
            const StepRun<Real> run(rollout, t, first, count);
            for_each_vector<Real>(0, count, [&](auto v, Index i) FASTGAE_INLINE_LAMBDA { visit(v, run, i, i); });
        }
    };
    const auto hand_on = [&](auto v, auto skipped, auto here, Real* to) FASTGAE_INLINE_LAMBDA {
        using V = decltype(v);
        V::store(to, V::select(skipped, V::load(to), here));
    };
    sweep([&](auto v, const StepRun<Real>& run, Index i, Index lane) FASTGAE_INLINE_LAMBDA {
        using V = decltype(v);
        const auto skipped = V::zero_flags(run.mask + i);
        const auto to_next_values = [&](auto own) { return rollout.mask_passes_values ? V::load(next + lane) : own; };
        const auto d = deltas<V, AnyInputs>(run.at, i, run.template gamma<V>(i), to_next_values);
        V::store(run.to + i, V::select(skipped, d.values, d.one_step_return));
        hand_on(v, skipped, d.values, next + lane);
    });
    for (Index pass = 1; pass < n; ++pass) {
        std::fill_n(exists_after, count, Real(0));
        sweep([&](auto v, const StepRun<Real>& run, Index i, Index lane) FASTGAE_INLINE_LAMBDA {
            using V = decltype(v);
            const auto skipped = V::zero_flags(run.mask + i);
            const auto is_followed = V::at_least(V::load(exists_after + lane), V::all(1));
            const auto goes_on = V::both(run.template goes_on<V>(i), is_followed);
            const auto shorter = V::load(run.to + i);
            const auto longer = V::select(goes_on, run.template longer<V>(i, V::load(next + lane)), shorter);
            V::store(run.to + i, V::select(skipped, shorter, longer));
            hand_on(v, skipped, shorter, next + lane);
            hand_on(v, skipped, V::all(1), exists_after + lane);
        });
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
        const Index together = rollout.env_major ? 1 : kMaskedEnvs;
        for (Index env = first; env < last; env += together)
            n_step_returns_masked(rollout, n, env, std::min(together, last - env));
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
