// All kernels of one CPU target. The files are included once per target, in the order in which they use each other.

#include "memory.inl"
#include "limit.inl"
#include "recursion.inl"
#include "rows.inl"
#include "lanes.inl"
#include "flat.inl"
#include "step.inl"
#include "rows_options.inl"
#include "lanes_options.inl"
#include "moments.inl"
#include "narrow.inl"

template <class Real>
void finish(Store store) {
    if (store == Store::streamed) Vector<Real>::fence();
}

// How many numbers of scratch memory the two kernels with options need: three tiles, or a row for each factor and
// result.
template <class Real>
constexpr Index kOptionsScratch = std::max(3 * (kOptionsTileBytes / Index(sizeof(Real)) + kMaxLanes * kTilePadding),
                                           (kFactors + 2) * kOptionsColumns);

template <class Real>
constexpr Kernels<Real> kernels = {
    Vector<Real>::width,                // vector
    2 * Vector<Real>::width,            // width
    sizeof(Tile<Real>) / sizeof(Real),  // lanes_scratch
    kOptionsScratch<Real>,              // options_scratch
    rows<Real>,
    lanes<Real>,
    FlatBlock<Real>::lanes,  // flat_lanes
    flat<Real>,
    rows_with_options<Real>,
    lanes_with_options<Real>,
    block_sums<Real>,
    rescale<Real>,
    finish<Real>,
    streaming_add<Real>,
};
