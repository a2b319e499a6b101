// The kernels of one CPU target, from their optional inputs and outputs.

#include "recursion.inl"
#include "rows.inl"
#include "lanes.inl"

// Calls run with the type that says which inputs, or which outputs, there are.
template <class Real, class Run>
auto with_inputs(const Rollout<Real>& rollout, const Run& run) {
    if (!rollout.truncated) return run(Inputs<false, false>{});
    if (!rollout.final_values && !rollout.sparse_finals) return run(Inputs<true, false>{});
    return run(Inputs<true, true>{});
}

template <class Real, class Run>
auto with_outputs(const Rollout<Real>& rollout, const Run& run) {
    if (!rollout.returns) return run(Outputs<true, false>{});
    if (!rollout.advantages) return run(Outputs<false, true>{});
    return run(Outputs<true, true>{});
}

template <class Real>
void rows(const Rollout<Real>& rollout, Index first, Index last, Real* carry, Real* finals, Store store) {
    with_inputs(rollout, [&](auto in) {
        with_outputs(rollout, [&](auto out) {
            using In = decltype(in);
            using Out = decltype(out);
            store == Store::streamed ? rows_of<In, Out, true>(rollout, first, last, carry, finals)
                                     : rows_of<In, Out, false>(rollout, first, last, carry, finals);
        });
    });
}

template <class Real>
void lanes(const Rollout<Real>& rollout, const Lane* lanes, Index count, Index bottom, Index top, Real* carry, Store store) {
    const Fill<Real> fill_in = with_inputs(rollout, [](auto in) -> Fill<Real> { return fill<decltype(in), Real>; });
    const Write<Real> write_out = with_outputs(rollout, [&](auto out) -> Write<Real> {
        using Out = decltype(out);
        return store == Store::nothing ? nullptr : store == Store::streamed ? write<Out, true, Real> : write<Out, false, Real>;
    });
    run_lanes(rollout, lanes, count, bottom, top, carry, fill_in, write_out);
}

template <class Real>
void finish(Store store) {
    if (store == Store::streamed) Vector<Real>::fence();
}

template <class Real>
constexpr Kernels<Real> kernels = {Tile<Real>::lanes, rows<Real>, lanes<Real>, finish<Real>};
