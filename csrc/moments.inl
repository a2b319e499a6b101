// The sums from which moments are computed, and the rescaling of a matrix with the moments. A sum covers kMomentSteps
// steps of one env, in float64 and in the order of time.

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

// Add `rows` rows, from row t on, to the sums of the envs [first, last). A sum stays in a register while it takes the
// numbers of all these rows, one after the other.
template <int rows, bool masked, bool centered, class Real>
FASTGAE_INLINE void add_to_sums(const MaskedMatrix<Real>& of, Index t, Index first, Index last, double* sums) {
    for_each_vector<double>(first, last, [&](auto v, Index n) FASTGAE_INLINE_LAMBDA {
        using V = decltype(v);
        typename V::Type center{};
        if constexpr (centered) center = V::load(of.in_env(of.center, n));
        auto total = V::load(sums + n);
        unrolled<rows>([&](int k) FASTGAE_INLINE_LAMBDA {
            const std::uint8_t* const mask = masked ? of.mask.at(t + k, n) : nullptr;
            total = total + moment_term<V, masked, centered>(of.matrix.at(t + k, n), mask, center);
        });
        V::store(sums + n, total);
    });
}

template <bool masked, bool centered, class Real>
void sum_rows(const MaskedMatrix<Real>& of, Index first, Index last, double* sums) {
    for (Index bottom = 0; bottom < of.steps; bottom += kMomentSteps, sums += of.envs) {
        std::fill(sums + first, sums + last, 0.0);
        const Index top = std::min(of.steps, bottom + kMomentSteps);
        Index t = bottom;
        for (; t + kMomentRows <= top; t += kMomentRows)
            add_to_sums<kMomentRows, masked, centered>(of, t, first, last, sums);
        for (; t < top; ++t) add_to_sums<1, masked, centered>(of, t, first, last, sums);
    }
}

// The address of block i of an env-major matrix. The whole blocks of all envs come first, then the shorter last block
// of each.
struct BlockPlace {
    Index t, env, steps;
};
template <class Real>
BlockPlace block_place(const MaskedMatrix<Real>& of, Index i) {
    const Index whole = of.steps / kMomentSteps;
    if (i < whole * of.envs) return {i % whole * kMomentSteps, i / whole, kMomentSteps};
    return {whole * kMomentSteps, i - whole * of.envs, of.steps - whole * kMomentSteps};
}

// Sum groups * V::width blocks side by side, from `block` on. Terms are transposed in registers, so that one vector
// adds to the sums of V::width blocks, and several groups hide the latency of the additions.
template <class V, int groups, bool masked, bool centered, class Real>
FASTGAE_INLINE void sum_blocks(const MaskedMatrix<Real>& of, Index block, double* sums) {
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
        center[i] = V::all(centered ? *of.in_env(of.center, at[i].env) : 0.0);
        steps = std::min(steps, at[i].steps);
    }
    unrolled<groups>([&](int g) FASTGAE_INLINE_LAMBDA { total[g] = V::all(0); });
    Index k = 0;
    for (; k + V::width <= steps; k += V::width) {
        unrolled<groups>([&](int g) FASTGAE_INLINE_LAMBDA {
            typename V::Type terms[V::width];
            unrolled<V::width>([&](int j) FASTGAE_INLINE_LAMBDA {
                const int i = g * V::width + j;
                terms[j] = moment_term<V, masked, centered>(x[i] + k, mask[i] + k, center[i]);
            });
            V::transpose(terms);
            unrolled<V::width>([&](int j) FASTGAE_INLINE_LAMBDA { total[g] = total[g] + terms[j]; });
        });
    }
    alignas(64) double totals[count];
    unrolled<groups>([&](int g) FASTGAE_INLINE_LAMBDA { V::store(totals + g * V::width, total[g]); });
    for (int i = 0; i < count; ++i) {
        const double shift = centered ? *of.in_env(of.center, at[i].env) : 0.0;
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
void block_sums(const MaskedMatrix<Real>& of, Index first, Index last, double* sums) {
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

// Return the rescaled numbers of one vector, and 0 where a step does not exist.
template <class V, bool masked, class Element>
FASTGAE_INLINE typename V::Type rescaled(const Element* x, const std::uint8_t* mask, typename V::Type center,
                                         typename V::Type scale) {
    const auto scaled = (V::load(x) - center) * scale;
    if constexpr (masked) return V::select(V::zero_flags(mask), V::all(0), scaled);
    return scaled;
}

// Rescale `rows` rows of the envs [first, last), from row t on. Each center and scale is read once for all of them.
template <int rows, bool masked, class Real>
FASTGAE_INLINE void rescale_rows(const MaskedMatrix<Real>& of, Index t, Index first, Index last) {
    for_each_vector<double>(first, last, [&](auto v, Index n) FASTGAE_INLINE_LAMBDA {
        using V = decltype(v);
        const auto center = V::load(of.in_env(of.center, n)), scale = V::load(of.in_env(of.scale, n));
        // All are loaded before the first is stored: rows 4 KiB apart look like one to the CPU.
        typename V::Type x[rows];
        unrolled<rows>([&](int k) FASTGAE_INLINE_LAMBDA {
            const std::uint8_t* const mask = masked ? of.mask.at(t + k, n) : nullptr;
            x[k] = rescaled<V, masked>(of.matrix.at(t + k, n), mask, center, scale);
        });
        unrolled<rows>([&](int k) FASTGAE_INLINE_LAMBDA { V::store(of.rescaled.at(t + k, n), x[k]); });
    });
}

// Rescale one block of an env-major matrix.
template <bool masked, class Real>
FASTGAE_INLINE void rescale_block(const MaskedMatrix<Real>& of, const BlockPlace& at) {
    const Real* const x = of.matrix.at(at.t, at.env);
    Real* const to = of.rescaled.at(at.t, at.env);
    const std::uint8_t* const mask = masked ? of.mask.at(at.t, at.env) : nullptr;
    for_each_vector<double>(0, at.steps, [&](auto v, Index k) FASTGAE_INLINE_LAMBDA {
        using V = decltype(v);
        const auto center = V::all(*of.in_env(of.center, at.env)), scale = V::all(*of.in_env(of.scale, at.env));
        V::store(to + k, rescaled<V, masked>(x + k, mask + k, center, scale));
    });
}

template <class Real>
void rescale(const MaskedMatrix<Real>& of, Index first, Index last) {
    with_constant(bool(of.mask), [&](auto masked) {
        if (of.env_major) {
            for (; first < last; ++first) rescale_block<masked.value>(of, block_place(of, first));
            return;
        }
        Index t = 0;
        for (; t + kMomentRows <= of.steps; t += kMomentRows)
            rescale_rows<kMomentRows, masked.value>(of, t, first, last);
        for (; t < of.steps; ++t) rescale_rows<1, masked.value>(of, t, first, last);
    });
}
