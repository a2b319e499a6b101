// n-step returns: a recursion of n steps from each step, instead of a recursion to the end of the episode.
//
//     G_t = r_t + gamma_t V'_t          after one step, the bootstrap only where not terminated
//     G_t = r_t + gamma_t G_{t+1}       after each further one, but G_t stays where an episode ends with step t

// A run of contiguous steps of one env, or of envs of one step.
template <class Real>
struct StepRun {
    Pointers<Real> at;
    const Real* gammas;
    bool gamma_varies;
    Index count;
    Real* to;

    StepRun(const CanonicalRollout<Real>& rollout, Index t, Index n, Index count)
        : at(pointers_at<AnyInputs>(rollout, t, n, rollout.next_values.at(t, n))), gammas(rollout.gammas.at(t, n)),
          gamma_varies(rollout.env_major ? rollout.gammas.step : rollout.gammas.env), count(count),
          to(rollout.returns.at(t, n)) {
        if (t == rollout.steps - 1) at.next_values = rollout.last_values.at(0, n);
    }

    template <class V>
    FASTGAE_INLINE typename V::Type gamma(Index i) const {
        return gamma_varies ? V::load(gammas + i) : V::all(*gammas);
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
            const auto goes_on = V::both(V::zero_flags(at.terminated + i), V::zero_flags(at.truncated + i));
            const auto longer = V::load(at.rewards + i) + gamma<V>(i) * V::load(following + i);
            V::store(to + i, V::select(goes_on, longer, V::load(to + i)));
        };
        using V = Vector<Real>;
        Index i = 0;
        for (; i + V::width <= count; i += V::width) add(V(), i);
        for (; i < count; ++i) add(Single<Real>(), i);
    }
};

// A return of n steps is made from a return of n - 1 steps, that of the next step. Time-major, row t becomes one step
// longer as soon as row t + 1 has as many steps as row t, so that n rows are in use at a time. An env in contiguous
// memory, and short rows one after the other, become one step longer as a whole.
template <class Real>
void n_step_returns(const CanonicalRollout<Real>& given, Index n, Index first, Index last) {
    CanonicalRollout<Real> rollout = given;
    if (!rollout.truncated) rollout.truncated = rollout.terminated;
    const Index steps = rollout.steps;
    // The step after an element lies `distance` elements on.
    const auto whole = [&](Index env, Index distance) {
        StepRun<Real>(rollout, steps - 1, env, distance).after_one_step();
        const StepRun<Real> others(rollout, 0, env, (steps - 1) * distance);
        others.after_one_step();
        for (Index pass = 1; pass < std::min(n, steps); ++pass) others.one_more(others.to + distance);
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
