"""The reference: the recursion as in the equations, with vector operations over envs for each step of time."""

import numpy as np

from fastgae._call import Array, Call
from fastgae._canonical import MOMENT_STEPS, CanonicalRollout, Scalar, canonical_rollout
from fastgae._exact_sums import sums_by_numpy

RECURSIONS = ("gae",)
exact_sums = sums_by_numpy


def version() -> str:
    return f"numpy {np.__version__}"


def targets() -> tuple[str, ...]:
    return ()


def gae(call: Call, num_threads: int, target: str | None) -> None:
    """delta = (r + gamma V') - V;  A = delta + gamma lambda A_next;  R = A + V; a closed gate leaves its term out."""
    rollout = canonical_rollout(call)
    bootstrap = ~rollout.terminated
    trace = bootstrap if rollout.truncated is None else bootstrap & ~rollout.truncated
    # NaN and infinity are data here, and values behind a closed gate must not even cause a warning.
    with np.errstate(all="ignore"):
        deltas = rollout.one_step_returns(rollout.all_next_values(), bootstrap)
        deltas -= rollout.values
        advantages = _advantages(rollout, deltas, trace)
        traced = advantages
        if rollout.returns_gamma_lambda is not None:
            traced = _scan(rollout, deltas, rollout.returns_gamma_lambda, trace)
        returns = traced + rollout.values
        if rollout.constants is not None:
            _, _, advantage_clip, leaky = rollout.constants
            following = _following(advantages)
            advantages = deltas
            np.add(advantages, rollout.gamma_lambda * following, out=advantages, where=trace)
            advantages *= _weights(rollout.ratios, advantage_clip, leaky)
        _write(rollout, rollout.advantages, advantages, 0)
        _write(rollout, rollout.returns, returns, rollout.values)


def _advantages(rollout: CanonicalRollout, deltas: Array, trace: Array) -> Array:
    """Return A of every step. A skipped step gets A of the next step that exists."""
    if rollout.tail_lambda is not None:  # A = G / D;  G = D delta + gamma lambda G_next;  D = 1 + lambda D_next
        steps_left = _scan(rollout, np.ones_like(deltas), rollout.tail_lambda, trace)
        return _scan(rollout, steps_left * deltas, rollout.gamma_lambda, trace) / steps_left
    if rollout.constants is not None:  # A = rho delta + gamma lambda c A_next
        rho_clip, c_clip, _, leaky = rollout.constants
        weighted = _weights(rollout.ratios, rho_clip, leaky) * deltas
        decay = _weights(rollout.ratios, c_clip, leaky) * rollout.gamma_lambda
        return _scan(rollout, weighted, decay, trace, rollout.last_advantages)
    return _scan(rollout, deltas, rollout.gamma_lambda, trace, rollout.last_advantages)


def _weights(ratios: Array, clip: Scalar, leaky: Scalar) -> Array:
    """Return (1 - leaky) min(ratio, clip) + leaky ratio; in min(), NaN stays NaN and a zero keeps its sign."""
    clipped = np.where(ratios > clip, clip, ratios)
    return clipped if leaky == 0 else (type(leaky)(1) - leaky) * clipped + leaky * ratios


def _scan(
    rollout: CanonicalRollout, terms: Array, decay: Array | Scalar, trace: Array, following: Array | None = None
) -> Array:
    """Compute y_t = x_t + decay_t y_{t+1}, the second term only where the gate is open; a skipped step keeps y."""
    result, decay = terms.copy(), np.broadcast_to(decay, terms.shape)
    following = np.zeros_like(rollout.last_values) if following is None else following
    for t in reversed(range(len(result))):
        np.add(result[t], decay[t] * following, out=result[t], where=trace[t])
        if rollout.mask is not None:
            np.copyto(result[t], following, where=~rollout.mask[t])
        following = result[t]
    return result


def _following(array: Array) -> Array:
    """Return the rows one step later, and zeros as the last row."""
    return np.concatenate([array[1:], np.zeros_like(array[:1])])


def _write(rollout: CanonicalRollout, output: Array | None, result: Array, skipped: Array | int) -> None:
    """Write a result; without ``carry_over``, a skipped step gets ``skipped``, not the number that it passed on."""
    if output is None:
        return
    if rollout.mask is None or rollout.carry_over:
        output[...] = result
    else:
        output[...] = np.where(rollout.mask, result, skipped)


def block_sums(matrix: Array, mask: Array | None, center: Array | None, num_threads: int, target: str | None) -> Array:
    """Sum x, or (x - center)^2, over each MOMENT_STEPS steps."""
    steps, envs = matrix.shape
    sums = np.zeros((-(-steps // MOMENT_STEPS), envs))
    for i in range(min(MOMENT_STEPS, steps)):
        terms = matrix[i::MOMENT_STEPS].astype(np.float64)
        if center is not None:
            terms -= center
            terms *= terms
        total = sums[: len(terms)]
        np.add(total, terms, out=total, where=True if mask is None else mask[i::MOMENT_STEPS])
    return sums


def rescale(
    matrix: Array, mask: Array | None, center: Array, scale: Array, num_threads: int, target: str | None
) -> None:
    """Compute x = (x - center) scale in place."""
    with np.errstate(all="ignore"):  # NaN and infinity are data here
        scaled = (matrix.astype(np.float64) - center) * scale
        np.copyto(matrix, scaled, casting="same_kind", where=True if mask is None else mask)
