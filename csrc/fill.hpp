// Read a call and fill its results, without Python.
#pragma once

#include <optional>

#include "arguments.hpp"
#include "call_reader.hpp"
#include "normalize.hpp"
#include "parallel.hpp"
#include "recycled.hpp"
#include "trees.hpp"

namespace fastgae {

// What a call is computed with.
struct How {
    const Target& target;
    Index threads;
    RecycledMemory& memory;  // for what is needed on the way
};

// How many steps of long trajectories the last call of this thread computed again.
inline thread_local Index redone = 0;

// Read a call whose layout has been read, and fill its results; false: declined, and nothing is written. Needs no
// Python.
template <class Real>
bool fill(const Call& call, CallReader<Real>& reader, const Operand& advantages, const Operand& returns,
          const How& how) {
    // The results first, because inputs may be copied, which is in vain where a result is wrong.
    if (!reader.read_outputs(advantages, returns) || !reader.read() || !reader.make_coefficients() ||
        !reader.make_finals_dense())
        return false;
    const CanonicalRollout<Real>& rollout = reader.rollout();
    std::optional<Trees<Real>> trees;
    if (call.recursion == Recursion::tree && !trees.emplace(call, rollout, how.threads, how.memory).add_up())
        return false;
    std::optional<Normalization<Real>> normalization;
    if (call.normalize != Normalize::nothing) normalization.emplace(rollout, call.normalize == Normalize::per_env);
    redone = 0;
    if (call.recursion == Recursion::n_step_returns)
        n_step_returns(how.target, rollout, call.n, how.threads);
    else if (trees)
        trees->run();
    else if (call.recursion != Recursion::none)
        redone = gae(how.target, rollout, how.threads);
    if (normalization) normalization->run(how.target, call.ddof, call.eps, how.threads);
    return true;
}

}  // namespace fastgae
