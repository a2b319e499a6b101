// Fill the results of a call that has been read, without Python.
#pragma once

#include <optional>
#include <type_traits>

#include "arguments.hpp"
#include "call_reader.hpp"
#include "n_step_returns.hpp"
#include "narrow.hpp"
#include "normalize.hpp"
#include "parallel.hpp"
#include "recycled.hpp"

namespace fastgae {

// What a call is computed with.
struct How {
    const Target& target;
    Index threads;
    RecycledMemory& memory;  // for what is needed on the way
    double eps;              // normalisation adds this to a standard deviation
};

// How many steps of long trajectories the last call of this thread computed again.
inline thread_local Index redone = 0;

// Run the kernels. Inputs of 16 bits are widened piece by piece if there is no memory to widen them as a whole.
template <class Real>
void run_kernels(const Call& call, CallReader<Real>& reader, const std::optional<RecycledBlock>& widened,
                 const How& how) {
    CanonicalRollout<Real>& rollout = reader.rollout();
    reader.reduce();
    if constexpr (std::is_same_v<Real, float>) {
        const NarrowInputs& narrow = reader.narrow();
        if (narrow && !widened) return gae_in_pieces(how.target, narrow, rollout, how.threads);
        if (narrow) narrow.widen(how.target, {0, rollout.steps, 0, rollout.envs}, widened->data(), rollout);
    }
    if (call.recursion == Recursion::n_step_returns) return n_step_returns(rollout, call.n);
    redone = gae(how.target, rollout, how.threads);
}

// Fill the results of a call that has been read; false: declined, and nothing is written. Needs no Python.
template <class Real>
bool fill(const Call& call, CallReader<Real>& reader, const Operand& advantages, const Operand& returns,
          const How& how) {
    if (!reader.read_outputs(advantages, returns) || !reader.make_coefficients(how.threads, how.memory)) return false;
    std::optional<RecycledBlock> widened;
    if (const NarrowInputs& narrow = reader.narrow(); narrow && !in_pieces(how.target, call, reader.rollout()))
        widened.emplace(how.memory, narrow.bytes(reader.rollout()));
    std::optional<Normalization<Real>> normalization;
    if (call.normalize != Normalize::nothing)
        normalization.emplace(reader.rollout(), call.normalize == Normalize::per_env);
    run_kernels(call, reader, widened, how);
    if (normalization) normalization->run(how.target, how.eps, how.threads);
    return true;
}

}  // namespace fastgae
