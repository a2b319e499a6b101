"""The recursion, in plain loops that LLVM vectorises.

    delta = (r + gamma V') - V     V' left out where terminated
    A     = delta + gl A_next      A_next left out where terminated or truncated
    R     = A + V

A matrix is one flat array. Time-major, a run of its numbers is a row, which has the envs of one step, and finds A_next
where the row after it left it. Env-major, a run has steps of one env, whose A_next are not known yet. So first come the
terms of the recursion, then the recursion, for LANES envs side by side, and then the results.

Options are arguments of the same loops. A kernel is compiled for the types of its arguments, and None takes no time.
Both kernels compute the envs from ``first`` to before ``last``, and take the same arguments:

* Step t of env n is the number t apart + n of an array, or, env-major, start + n apart + t. ``values`` may have a step
  more, and so an ``apart`` of its own. ``following`` has V' of the first ``known`` steps, ``shift`` numbers after each
  step, and ``last_values`` V' of a step after them.
* ``passes``: a step before skipped steps has V of the next step that exists as its V'. ``has_final``: ``final_values``
  are V' where truncated; elsewhere they may be anything.
* ``values`` and ``following`` may be one number, and so may coefficients, which may also be one for each row. Flags are
  bytes; any but 0 is True.
* ``is_plain`` is None if there are final values, or any of the following ones. (Numba leaves out a branch for what is
  not None where the argument is None, and compiles both branches where it is not.)
* ``mask`` is 0 where a step does not exist. It is skipped, and there A = 0 and R = V, or A is that of the next step
  that exists if ``carry_over``. ``last_advantages`` is A_T.
* ``second_lambda`` is the decay of a second recursion: of D = 1 + lambda D_next if ``is_tail`` (tail-normalized), where
  A = G / D and G = D delta + gl G_next; or else of A' = delta + gl' A'_next, from which the returns come.
* ``ratios`` are the importance ratios of V-trace, and ``constants`` its clips.
* ``advantages`` and ``returns`` are filled. One that is not wanted is short, and runs overwrite one another there.
"""

import numpy as np

from fastgae._backends.numba.compiled import at, inner, no_overlap, of_row
from fastgae._call import CONSTANTS

# Envs of one step that are computed before those beside them, so that a row finds in the second-level cache what the
# row after it left.
ENVS = 8 * 1024
# Steps of a run of one env, and envs whose recursions run side by side, because each operation waits for the last one.
STEPS, LANES = 512, 8
LINE = STEPS + 16  # of working memory: a run, and the number after it; not a power of two, because of cache sets
RHO_CLIP, C_CLIP, ADVANTAGE_CLIP, LEAKY = map(CONSTANTS.index, ("rho_clip", "c_clip", "advantage_clip", "leaky"))
KEPT = len(CONSTANTS)  # after the constants of V-trace comes 1 - leaky
U = np.uintp  # Numba looks whether an index with a sign is negative, and LLVM does not vectorise that


@inner
def _delta(reward, value, next_value, terminated, gamma):
    """Return (r + gamma V') - V. Both sides of a gate are computed and one is chosen, because LLVM vectorises that."""
    bootstrapped = reward + gamma * next_value
    return (reward if terminated else bootstrapped) - value


@inner
def _traced(term, decay, following, closed, exists):
    """Return y = x + decay y_next, x where the gate is closed, and y_next where the step is skipped."""
    traced = term + decay * following
    existing = term if closed else traced
    return existing if exists else following


@inner
def _exists(mask, i):
    return True if mask is None else mask[i] != 0


@inner
def _weight(ratio, clip, constants):
    """Return (1 - leaky) min(ratio, clip) + leaky ratio; NaN stays NaN, and a zero keeps its sign."""
    clipped = clip if ratio > clip else ratio
    leaked = constants[KEPT] * clipped + constants[LEAKY] * ratio
    return clipped if constants[LEAKY] == 0 else leaked


@inner
def _decay(i, decays, ratios, constants):
    """Return the decay of A: gl, or c gl."""
    decay = at(decays, i)
    return decay if ratios is None else _weight(ratios[i], constants[C_CLIP], constants) * decay


@inner
def _term(i, delta, second, is_tail, ratios, constants):
    """Return the x of A: delta, D delta, or rho delta."""
    if is_tail is not None:
        return second * delta
    return delta if ratios is None else _weight(ratios[i], constants[RHO_CLIP], constants) * delta


@inner
def _results(i, y, y_next, second, delta, closed, gamma_lambda, second_lambda, is_tail, ratios, constants):
    """Return A, and what the returns add to V. V-trace's A is rho (delta + gl A_next)."""
    if is_tail is not None:
        return y / second, y / second
    if second_lambda is not None:
        return y, second
    if ratios is not None:
        traced = _traced(delta, at(gamma_lambda, i), y_next, closed, True)
        return traced * _weight(ratios[i], constants[ADVANTAGE_CLIP], constants), y
    return y, y


@no_overlap
def _follow(i, f, after, o, size, following, truncated, final_values, has_final, mask, passes, carried, line):
    """Write V' of a run to a line: V of the next step, or of the next one that exists, which ``carried`` holds."""
    i, f, after, o = U(i), U(f), U(after), U(o)
    for k in range(U(size)):
        value = at(following, f + k)
        if mask is not None:
            passed, exists = carried[k], (mask[after + k] != 0) | (not passes)
            value = value if exists else passed
            carried[k] = value
        final = final_values[i + k]
        line[o + k] = final if has_final & (truncated[i + k] != 0) else value


@no_overlap
def _row(
    i, f, a, a_next, q, size, following, after, y, seconds, is_plain, rewards, values, terminated, truncated, gamma,
    gamma_lambda, mask, second_lambda, is_tail, ratios, constants, carry_over, advantages, returns,
):  # fmt: skip
    """Compute a row.

    ``y`` and ``seconds`` hold the recursions of the row after it, and then its own. Without options, y is A, which is
    read from ``after`` and not stored twice.
    """
    i, f, a, a_next, q = U(i), U(f), U(a), U(a_next), U(q)
    zero, one = y.dtype.type(0), y.dtype.type(1)
    for k in range(U(size)):
        exists, closed, value = _exists(mask, i + k), (terminated[i + k] | truncated[i + k]) != 0, at(values, i + k)
        delta = _delta(rewards[i + k], value, at(following, f + k), terminated[i + k] != 0, at(gamma, i + k))
        y_next = after[a_next + k] if is_plain is not None else y[k]
        second = one
        if second_lambda is not None:
            second_term = delta if is_tail is None else one
            second = _traced(second_term, at(second_lambda, i + k), seconds[k], closed, exists)
            seconds[k] = second
        term = _term(i + k, delta, second, is_tail, ratios, constants)
        y_here = _traced(term, _decay(i + k, gamma_lambda, ratios, constants), y_next, closed, exists)
        if is_plain is None:
            y[k] = y_here
        advantage, total = _results(
            i + k, y_here, y_next, second, delta, closed, gamma_lambda, second_lambda, is_tail, ratios, constants
        )
        shown, result = exists | carry_over, total + value
        advantages[a + k] = advantage if shown else zero
        returns[q + k] = result if shown else value


def time_major(
    first, last, steps, apart, values_apart, following_apart, start, known, shift, passes, has_final, keeps_advantages,
    keeps_returns, following, last_values, last_advantages, final_values, is_plain, rewards, values, terminated,
    truncated, gamma, gamma_lambda, mask, second_lambda, is_tail, ratios, constants, carry_over, advantages, returns,
):  # fmt: skip
    """Compute row by row, from the last."""
    if not keeps_advantages:  # a row reads those of the row after it, and each thread has rows of its own
        advantages = np.empty(2 * ENVS, rewards.dtype)
    # A row gets its arrays by name: Numba counts references to those in a tuple, which takes longer than a short row.
    dtype, width = rewards.dtype, min(ENVS, last - first)
    y, seconds = np.empty(width, dtype), np.empty(width, dtype)
    carried, line = np.empty(width, dtype), np.empty(width, dtype)
    zero = first - first  # a literal 0 has a type of its own, for which Numba would compile a row once more
    for left in range(first, last, width):
        size, a_next = min(width, last - left), zero
        for k in range(size):  # an assignment to a slice would take half a second to compile
            y[k], seconds[k] = last_advantages[left + k], 0
        for t in range(steps - 1, -1, -1):
            i, goes_on = t * apart + left, t + 1 < steps
            a, q = i if keeps_advantages else (t & 1) * ENVS, i if keeps_returns else 0
            if is_plain is not None and goes_on:
                _row(
                    i, i + shift, a, a_next, q, size, following, advantages, y, seconds, is_plain, rewards, values,
                    terminated, truncated, of_row(gamma, t), of_row(gamma_lambda, t), mask, of_row(second_lambda, t),
                    is_tail, ratios, constants, carry_over, advantages, returns,
                )  # fmt: skip
                a_next = a
                continue
            if t < known:
                _follow(
                    i, i + shift, i + goes_on * apart, 0, size, following, truncated, final_values, has_final, mask,
                    passes and goes_on, carried, line,
                )  # fmt: skip
            else:
                _follow(
                    i, left, i, 0, size, last_values, truncated, final_values, has_final, mask, False, carried, line
                )
            _row(
                i, zero, a, zero, q, size, line, y, y, seconds, is_plain, rewards, values, terminated, truncated,
                of_row(gamma, t), of_row(gamma_lambda, t), mask, of_row(second_lambda, t), is_tail, ratios, constants,
                carry_over, advantages, returns,
            )  # fmt: skip
            a_next = a


@no_overlap
def _pass(i, f, size, following, mask, value, line):
    """Write V of the next step that exists to a line, for steps of one env; ``value`` follows the last of them."""
    for k in range(size - 1, -1, -1):
        value = at(following, U(f + k)) if _exists(mask, U(i + k + 1)) else value
        line[k] = value
    return value


@no_overlap
def _terms(
    i, v, o, size, following, second, terms, rewards, values, terminated, truncated, gamma, gamma_lambda, mask,
    second_lambda, is_tail, ratios, constants, carry_over, advantages, returns,
):  # fmt: skip
    """Write the terms of a run of one env: of the second recursion, or of that of A if ``second`` is given."""
    i, v, o = U(i), U(v), U(o)
    one = terms.dtype.type(1)
    for k in range(U(size)):
        delta = _delta(rewards[i + k], at(values, v + k), following[o + k], terminated[i + k] != 0, at(gamma, i + k))
        if second is not None:
            terms[o + k] = _term(i + k, delta, at(second, o + k), is_tail, ratios, constants)
        else:
            terms[o + k] = delta if is_tail is None else one


@no_overlap
def _recursion(size, starts, y, carried, terminated, truncated, mask, decays, ratios, constants):
    """Put y in place of the terms of LANES envs; ``carried`` holds the y that follow, and then the first y."""
    for lane in range(LANES):
        y[lane * LINE + size] = carried[lane]
    for t in range(size - 1, -1, -1):
        for lane in range(LANES):
            i, k = U(starts[lane] + t), U(lane * LINE + t)
            closed, decay = (terminated[i] | truncated[i]) != 0, _decay(i, decays, ratios, constants)
            y_here = _traced(y[k], decay, carried[lane], closed, _exists(mask, i))
            y[k] = carried[lane] = y_here


@no_overlap
def _write(
    i, v, o, a, q, size, following, y, second, rewards, values, terminated, truncated, gamma, gamma_lambda, mask,
    second_lambda, is_tail, ratios, constants, carry_over, advantages, returns,
):  # fmt: skip
    """Write the results of a run of one env."""
    i, v, o, a, q = U(i), U(v), U(o), U(a), U(q)
    zero = y.dtype.type(0)
    for k in range(U(size)):
        closed, value = (terminated[i + k] | truncated[i + k]) != 0, at(values, v + k)
        delta = _delta(rewards[i + k], value, following[o + k], terminated[i + k] != 0, at(gamma, i + k))
        advantage, total = _results(
            i + k, y[o + k], y[o + k + U(1)], at(second, o + k), delta, closed, gamma_lambda, second_lambda, is_tail,
            ratios, constants,
        )  # fmt: skip
        shown, result = _exists(mask, i + k) | carry_over, total + value
        advantages[a + k] = advantage if shown else zero
        returns[q + k] = result if shown else value


def env_major(
    first, last, steps, apart, values_apart, following_apart, start, known, shift, passes, has_final, keeps_advantages,
    keeps_returns, following, last_values, last_advantages, final_values, is_plain, rewards, values, terminated,
    truncated, gamma, gamma_lambda, mask, second_lambda, is_tail, ratios, constants, carry_over, advantages, returns,
):  # fmt: skip
    """Compute runs of LANES envs, from the last steps."""
    dtype = rewards.dtype
    given = (
        rewards, values, terminated, truncated, gamma, gamma_lambda, mask, second_lambda, is_tail, ratios, constants,
        carry_over, advantages, returns,
    )  # fmt: skip
    y, seconds, line = np.empty(LANES * LINE, dtype), np.empty(LANES * LINE, dtype), np.empty(LANES * LINE, dtype)
    y_next, second_next, value_next = np.empty(LANES, dtype), np.empty(LANES, dtype), np.empty(LANES, dtype)
    i, v, passed = np.empty(LANES, np.intp), np.empty(LANES, np.intp), np.empty(LINE, dtype)
    for left in range(first, last, LANES):
        lanes = min(LANES, last - left)
        for lane in range(lanes):
            y_next[lane], second_next[lane] = last_advantages[left + lane], 0
        for t in range((steps - 1) // STEPS * STEPS, -1, -STEPS):
            size, found = min(STEPS, steps - t), min(STEPS, known - t)
            for lane in range(LANES):
                n = min(left + lane, last - 1)  # the last env again if there are no more
                i[lane], v[lane] = start + n * apart + t, start + n * values_apart + t
            for lane in range(lanes):
                n, o, count = left + lane, lane * LINE, size
                f = start + n * following_apart + t + shift
                if mask is not None and passes:  # it passes only with a mask, and Numba leaves this out without one
                    if t + size == steps:
                        count -= 1
                        value_next[lane] = at(following, f + count) if found == size else last_values[n]
                        passed[count] = value_next[lane]
                    value_next[lane] = _pass(i[lane], f, count, following, mask, value_next[lane], passed)
                    _follow(i[lane], 0, 0, o, size, passed, truncated, final_values, has_final, None, False, None, line)
                    continue
                _follow(i[lane], f, 0, o, found, following, truncated, final_values, has_final, None, False, None, line)
                if found < size:
                    _follow(
                        i[lane] + found, n, 0, o + found, 1, last_values, truncated, final_values, has_final, None,
                        False, None, line,
                    )  # fmt: skip
            if second_lambda is not None:
                for lane in range(lanes):
                    _terms(i[lane], v[lane], lane * LINE, size, line, None, seconds, *given)
                _recursion(size, i, seconds, second_next, terminated, truncated, mask, second_lambda, None, constants)
            for lane in range(lanes):
                _terms(i[lane], v[lane], lane * LINE, size, line, seconds, y, *given)
            _recursion(size, i, y, y_next, terminated, truncated, mask, gamma_lambda, ratios, constants)
            for lane in range(lanes):
                a, q = i[lane] if keeps_advantages else 0, i[lane] if keeps_returns else 0
                _write(i[lane], v[lane], lane * LINE, a, q, size, line, y, seconds, *given)
