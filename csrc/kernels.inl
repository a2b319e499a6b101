// The kernels of one CPU target, from their optional inputs and outputs.

#include "recursion.inl"
#include "rows.inl"
#include "lanes.inl"
#include "general.inl"
#include "moments.inl"

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
void lanes(const Rollout<Real>& rollout, const Lane* lanes, Index count, Index bottom, Index top, Real* carry,
           Real* scratch, Store store) {
    const Fill<Real> fill_in = with_inputs(rollout, [](auto in) -> Fill<Real> { return fill<decltype(in), Real>; });
    const Write<Real> write_out = with_outputs(rollout, [&](auto out) -> Write<Real> {
        using Out = decltype(out);
        return store == Store::nothing ? nullptr : store == Store::streamed ? write<Out, true, Real> : write<Out, false, Real>;
    });
    run_lanes(rollout, lanes, count, bottom, top, carry, *new (scratch) Tile<Real>, fill_in, write_out);
}

template <class Real>
void finish(Store store) {
    if (store == Store::streamed) Vector<Real>::fence();
}

template <class Real>
constexpr Kernels<Real> kernels = {Tile<Real>::lanes,  sizeof(Tile<Real>) / sizeof(Real),
                                   kScratch<Real>,     rows<Real>,
                                   lanes<Real>,        general_rows<Real>,
                                   general_lanes<Real>, block_sums<Real>,
                                   rescale<Real>,      finish<Real>};
