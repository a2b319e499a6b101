"""Compute the step with options: the work on a run before, between and after the recursions of its sweep.

A call has up to three recursions y_t = x_t + decay_t y_{t+1}, in this order:

    STEPS_LEFT    D = 1 + lambda D_next               only if tail-normalized
    ADVANTAGES    A = delta + gl A_next               if tail-normalized, G = D delta + gl G_next, and A = G / D;
                                                      with importance ratios, A = rho delta + (c gl) A_next
    RETURNS       A' = delta + gl' A'_next            only if the returns have their own lambda

For each recursion that ``is_wanted``, a sweep asks ``recursion_of`` for x and decay, and computes y. ``write_results``
turns the y into advantages and returns. In this backend, a new argument changes only this file. An option is tested
once for each run, never for each element.
"""

from typing import Any, NamedTuple

from numba import njit

from fastgae._backends.numba.language import after, at_view, at_view_or, restrict
from fastgae._backends.numba.plain import advantage, delta
from fastgae._backends.numba.runs import LINE, RUN, add, choose, copy, fill
from fastgae._call import CONSTANTS

STEPS_LEFT, ADVANTAGES, RETURNS = RECURSIONS = (0, 1, 2)
RHO_CLIP, C_CLIP, ADVANTAGE_CLIP, LEAKY = map(CONSTANTS.index, ("rho_clip", "c_clip", "advantage_clip", "leaky"))

OPEN, CLOSED, SKIPPED = range(3)  # gates of a recursion
TIME, ENVS = range(2)  # the axis of a run

# Lines of scratch. The first four hold the coefficients of a run where the caller's array cannot be used in place.
GAMMA, GAMMA_LAMBDA, TAIL_LAMBDA, RETURNS_GAMMA_LAMBDA, ONES, NEXT_VALUES, RESULT = range(7)
SCRATCH_LINES = 7


class Run(NamedTuple):
    """The place of a run in the rollout, and the addresses of its working memory."""

    t: Any
    n: Any
    size: Any
    axis: Any
    deltas: Any
    gates: Any
    terms: Any  # x and decay of a recursion where they are computed
    decay: Any
    scratch: Any
    all_exist: Any


@njit
def _deltas(size, gamma, rewards, values, next_values, terminated, deltas):
    restrict()
    for i in range(size):
        deltas[i] = delta(rewards[i], values[i], next_values[i], terminated[i] != 0, gamma[i])


@njit
def _gates(size, terminated, truncated, exists, gates):
    restrict()
    for i in range(size):
        existing = CLOSED if (terminated[i] | truncated[i]) != 0 else OPEN
        gates[i] = existing if exists[i] != 0 else SKIPPED


@njit
def _weight(ratio, clip, leaky, rest):
    """Return rest min(ratio, clip) + leaky ratio, where rest = 1 - leaky; NaN stays NaN, and a zero keeps its sign."""
    clipped = clip if ratio > clip else ratio
    return clipped if leaky == 0 else rest * clipped + leaky * ratio


@njit
def _weigh(size, ratios, constants, one, gamma_lambda, deltas, terms, decay):
    """Compute x and decay of V-trace's recursion from the importance ratios."""
    restrict()
    rho_clip, c_clip, leaky, rest = constants[RHO_CLIP], constants[C_CLIP], constants[LEAKY], one[0] - constants[LEAKY]
    for i in range(size):
        terms[i] = _weight(ratios[i], rho_clip, leaky, rest) * deltas[i]
        decay[i] = _weight(ratios[i], c_clip, leaky, rest) * gamma_lambda[i]


@njit
def _weighted_advantages(size, ratios, constants, one, gamma_lambda, deltas, gates, following, advantages):
    """Compute the advantages of V-trace's policy gradient: rho (delta + gl A_next)."""
    restrict()
    clip, leaky, rest = constants[ADVANTAGE_CLIP], constants[LEAKY], one[0] - constants[LEAKY]
    for i in range(size):
        result = advantage(deltas[i], gamma_lambda[i], following[i], gates[i] != OPEN)
        advantages[i] = result * _weight(ratios[i], clip, leaky, rest)


@njit
def _multiply(size, one, other, product):
    restrict()
    for i in range(size):
        product[i] = one[i] * other[i]


@njit(error_model="numpy")
def _divide(size, one, other, quotient):
    """Divide as IEEE does; Python's error model would raise on 0."""
    restrict()
    for i in range(size):
        quotient[i] = one[i] / other[i]


@njit
def _write(size, gates, result, output):
    """Write advantages; a skipped step has 0."""
    restrict()
    for i in range(size):
        number = result[i]
        output[i] = 0 if gates[i] >= SKIPPED else number


@njit
def _write_sum(size, gates, result, values, output):
    """Write returns; a skipped step has V."""
    restrict()
    for i in range(size):
        value = values[i]
        total = result[i] + value
        output[i] = value if gates[i] >= SKIPPED else total


@njit
def scanned(term, decay, following, gate):
    """Return y = x + decay y_next, x where the gate is closed, and y_next where the step is skipped."""
    existing = advantage(term, decay, following, gate != OPEN)
    return following if gate >= SKIPPED else existing


@njit(forceinline=True)
def _is_number(coefficients):
    return coefficients.step_stride == 0 and coefficients.env_stride == 0


@njit(forceinline=True)
def _repeat(coefficients, line):
    if coefficients.steps and _is_number(coefficients):
        fill(RUN, coefficients.first[0], line)


@njit(forceinline=True)
def _of_run(coefficients, run, line):
    """Return the address of a run's coefficients: the caller's array, or ``line`` where it has no stride along the run.

    ``prepare`` has filled the line where there is one number for all steps.
    """
    first, repeated = at_view(coefficients, run.t, run.n), after(run.scratch, line * LINE)
    stride = coefficients.step_stride if run.axis == TIME else coefficients.env_stride
    if stride != 0:
        return first
    if not _is_number(coefficients):
        fill(run.size, first[0], repeated)
    return repeated


@njit(forceinline=True)
def prepare(given, scratch, all_exist):
    """Fill the lines of scratch, and the flags, that are the same for all runs of a call."""
    _repeat(given.gamma, after(scratch, GAMMA * LINE))
    _repeat(given.gamma_lambda, after(scratch, GAMMA_LAMBDA * LINE))
    _repeat(given.tail_lambda, after(scratch, TAIL_LAMBDA * LINE))
    _repeat(given.returns_gamma_lambda, after(scratch, RETURNS_GAMMA_LAMBDA * LINE))
    fill(RUN, 1, after(scratch, ONES * LINE))
    fill(RUN, 1, all_exist)


@njit(forceinline=True)
def begin(given, run, next_values):
    """Compute the deltas and gates of a run."""
    t, n, size = run.t, run.n, run.size
    terminated = at_view(given.terminated, t, n)
    truncated = at_view_or(given.truncated, t, n, terminated)
    if given.final_values.steps:
        chosen = after(run.scratch, NEXT_VALUES * LINE)
        choose(size, truncated, at_view(given.final_values, t, n), next_values, chosen)
        next_values = chosen
    gamma = _of_run(given.gamma, run, GAMMA)
    _deltas(size, gamma, at_view(given.rewards, t, n), at_view(given.values, t, n), next_values, terminated, run.deltas)
    _gates(size, terminated, truncated, at_view_or(given.mask, t, n, run.all_exist), run.gates)


@njit(forceinline=True)
def is_wanted(given, recursion):
    """Return whether a call has this recursion."""
    if recursion == STEPS_LEFT:
        return given.tail_lambda.steps != 0
    return recursion == ADVANTAGES or given.returns_gamma_lambda.steps != 0


@njit(forceinline=True)
def recursion_of(recursion, given, run, steps_left):
    """Return the addresses of x and decay of one recursion; ``steps_left`` are the y of STEPS_LEFT."""
    if recursion == STEPS_LEFT:
        return after(run.scratch, ONES * LINE), _of_run(given.tail_lambda, run, TAIL_LAMBDA)
    if recursion == RETURNS:
        return run.deltas, _of_run(given.returns_gamma_lambda, run, RETURNS_GAMMA_LAMBDA)
    gamma_lambda = _of_run(given.gamma_lambda, run, GAMMA_LAMBDA)
    if given.tail_lambda.steps:
        _multiply(run.size, steps_left, run.deltas, run.terms)
        return run.terms, gamma_lambda
    if given.ratios.steps:
        ratios, one = at_view(given.ratios, run.t, run.n), after(run.scratch, ONES * LINE)
        _weigh(run.size, ratios, given.constants.first, one, gamma_lambda, run.deltas, run.terms, run.decay)
        return run.terms, run.decay
    return run.deltas, gamma_lambda


@njit(forceinline=True)
def write_results(given, run, traced, stride, following):
    """Write advantages and returns.

    The y of a recursion begin at ``traced + recursion * stride``, and the y_{t+1} of ADVANTAGES at ``following``.
    """
    t, n, size, result = run.t, run.n, run.size, after(run.scratch, RESULT * LINE)
    advantages = errors = after(traced, ADVANTAGES * stride)
    if given.tail_lambda.steps:
        _divide(size, advantages, after(traced, STEPS_LEFT * stride), result)
        advantages = errors = result
    elif given.ratios.steps:
        gamma_lambda = _of_run(given.gamma_lambda, run, GAMMA_LAMBDA)
        ratios, one = at_view(given.ratios, t, n), after(run.scratch, ONES * LINE)
        _weighted_advantages(
            size, ratios, given.constants.first, one, gamma_lambda, run.deltas, run.gates, following, result
        )
        advantages = result
    if given.returns_gamma_lambda.steps:
        errors = after(traced, RETURNS * stride)
    if given.advantages.steps:
        if given.carry_over:  # a skipped step gets the y that it passed on
            copy(size, advantages, at_view(given.advantages, t, n))
        else:
            _write(size, run.gates, advantages, at_view(given.advantages, t, n))
    if given.returns.steps:
        if given.carry_over:
            add(size, errors, at_view(given.values, t, n), at_view(given.returns, t, n))
        else:
            _write_sum(size, run.gates, errors, at_view(given.values, t, n), at_view(given.returns, t, n))
