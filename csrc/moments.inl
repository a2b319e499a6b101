// The sums from which moments are made, and the rescaling of a matrix by them. A sum covers kMomentSteps steps of one
// env, in float64 and in the order of time.

// Return the terms of a sum: x, or (x - center)^2. A step that does not exist gives -0.0, which adds nothing.
template <class V, bool masked, bool centered, class Element>
FASTGAE_INLINE typename V::Type moment_term(const Element* x, const std::uint8_t* mask, typename V::Type center) {
    auto term = V::load(x);
    if constexpr (centered) {
        term = term - center;
        term = term * term;
    }
    if constexpr (masked) term = V::select(V::zero_flags(mask), V::all(-0.0), term);
    return term;
}

template <bool masked, bool centered, class Real>
void sum_rows(const Moments<const Real>& of, Index first, Index last, double* sums) {
    for (Index bottom = 0; bottom < of.steps; bottom += kMomentSteps, sums += of.envs) {
        std::fill(sums + first, sums + last, 0.0);
        for (Index t = bottom; t < std::min(of.steps, bottom + kMomentSteps); ++t) {
            const Real* row = of.matrix.at(t, 0);
            const std::uint8_t* mask = masked ? of.mask.at(t, 0) : nullptr;
            for_each_vector<double>(first, last, [&](auto v, Index n) FASTGAE_INLINE_LAMBDA {
                using V = decltype(v);
                typename V::Type center{};
                if constexpr (centered) center = V::load(of.center + n);
                V::store(sums + n, V::load(sums + n) + moment_term<V, masked, centered>(row + n, mask + n, center));
            });
        }
    }
}

// Where block i of an env-major matrix lies. The whole blocks of all envs come first, then the shorter last block of
// each.
struct BlockPlace {
    Index t, env, steps;
};
template <class Element>
BlockPlace block_place(const Moments<Element>& of, Index i) {
    const Index whole = of.steps / kMomentSteps;
    if (i < whole * of.envs) return {i % whole * kMomentSteps, i / whole, kMomentSteps};
    return {whole * kMomentSteps, i - whole * of.envs, of.steps - whole * kMomentSteps};
}

// Sum groups * V::width blocks side by side, from `block` on. Terms are transposed in registers, so that one vector
// adds to the sums of V::width blocks, and several groups hide the latency of the additions.
template <class V, int groups, bool masked, bool centered, class Real>
FASTGAE_INLINE void sum_blocks(const Moments<const Real>& of, Index block, double* sums) {
    constexpr int count = groups * V::width;
    BlockPlace at[count];
    const Real* x[count];
    const std::uint8_t* mask[count];
    typename V::Type center[count], total[groups];
    Index steps = kMomentSteps;
    for (int i = 0; i < count; ++i) {
        at[i] = block_place(of, block + i);
        x[i] = of.matrix.at(at[i].t, at[i].env);
        mask[i] = masked ? of.mask.at(at[i].t, at[i].env) : nullptr;
        center[i] = V::all(centered ? of.center[at[i].env] : 0.0);
        steps = std::min(steps, at[i].steps);
    }
    unrolled<groups>([&](auto g) FASTGAE_INLINE_LAMBDA { total[g] = V::all(0); });
    Index k = 0;
    for (; k + V::width <= steps; k += V::width) {
        unrolled<groups>([&](auto g) FASTGAE_INLINE_LAMBDA {
            typename V::Type terms[V::width];
            unrolled<V::width>([&](auto j) FASTGAE_INLINE_LAMBDA {
                constexpr int i = g * V::width + j;
                terms[j] = moment_term<V, masked, centered>(x[i] + k, mask[i] + k, center[i]);
            });
            V::transpose(terms);
            unrolled<V::width>([&](auto j) FASTGAE_INLINE_LAMBDA { total[g] = total[g] + terms[j]; });
        });
    }
    alignas(64) double totals[count];
    unrolled<groups>([&](auto g) FASTGAE_INLINE_LAMBDA { V::store(totals + g * V::width, total[g]); });
    for (int i = 0; i < count; ++i) {
        const double shift = centered ? of.center[at[i].env] : 0.0;
        for (Index rest = k; rest < at[i].steps; ++rest)
            totals[i] += moment_term<Single<double>, masked, centered>(x[i] + rest, mask[i] + rest, shift);
        sums[at[i].t / kMomentSteps * of.envs + at[i].env] = totals[i];
    }
}

// Call work with std::true_type or std::false_type.
template <class Work>
void with_constant(bool condition, const Work& work) {
    condition ? work(std::true_type()) : work(std::false_type());
}

template <class Real>
void block_sums(const Moments<const Real>& of, Index first, Index last, double* sums) {
    with_constant(bool(of.mask), [&](auto masked) {
        with_constant(of.center != nullptr, [&](auto centered) {
            if (!of.env_major) return sum_rows<masked.value, centered.value>(of, first, last, sums);
            using V = Vector<double>;
            constexpr int groups = 4;
            for (; first + groups * V::width <= last; first += groups * V::width)
                sum_blocks<V, groups, masked.value, centered.value>(of, first, sums);
            for (; first < last; ++first) sum_blocks<Single<double>, 1, masked.value, centered.value>(of, first, sums);
        });
    });
}

// Rescale the elements [first, last) of one run of memory, with one center and scale for all of them or one for each. A
// step that does not exist keeps its number.
template <bool masked, class Center, class Real>
FASTGAE_INLINE void rescale_run(Real* x, const std::uint8_t* mask, Center center, Center scale, Index first,
                                Index last) {
    for_each_vector<double>(first, last, [&](auto v, Index i) FASTGAE_INLINE_LAMBDA {
        using V = decltype(v);
        const auto old = V::load(x + i);
        auto scaled = (old - center.template get<V>(i)) * scale.template get<V>(i);
        if constexpr (masked) scaled = V::select(V::zero_flags(mask + i), old, scaled);
        V::store(x + i, scaled);
    });
}

template <class Real>
void rescale(const Moments<Real>& of, Index first, Index last) {
    with_constant(bool(of.mask), [&](auto masked) {
        const auto mask_at = [&](Index t, Index n) { return masked.value ? of.mask.at(t, n) : nullptr; };
        if (!of.env_major) {
            using Run = ConstantOrRun<double, true>;
            for (Index t = 0; t < of.steps; ++t)
                rescale_run<masked.value>(of.matrix.at(t, 0), mask_at(t, 0), Run{of.center}, Run{of.scale}, first,
                                          last);
            return;
        }
        using Constant = ConstantOrRun<double, false>;
        for (; first < last; ++first) {
            const BlockPlace at = block_place(of, first);
            rescale_run<masked.value>(of.matrix.at(at.t, at.env), mask_at(at.t, at.env), Constant{of.center + at.env},
                                      Constant{of.scale + at.env}, Index(0), at.steps);
        }
    });
}
