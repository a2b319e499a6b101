// All kernels of one CPU target. The files are included once per target, in the order in which they use each other.

#include "memory.inl"
#include "recursion.inl"
#include "step.inl"
#include "rows.inl"
#include "lanes.inl"
#include "flat.inl"
#include "n_step_returns.inl"
#include "moments.inl"

template <class Real>
constexpr Kernels<Real> kernels = {
    Vector<Real>::width,                      // vector
    Tile<Real>::lanes,                        // width
    Tile<Real>::scratch(1),                   // lanes_scratch
    Tile<Real>::scratch(Tile<Real>::arrays),  // options_scratch
    rows<Real>,
    lanes<Real>,
    FlatBlock<Real>::lanes,  // flat_lanes
    flat<Real>,
    n_step_returns<Real>,
    block_sums<Real>,
    rescale<Real>,
};
