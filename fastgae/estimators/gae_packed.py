"""GAE of many sequences end to end in one array."""

from __future__ import annotations

from typing import Any, Never

import numpy as np
from numpy import ndarray
from numpy.typing import ArrayLike

from fastgae._call import Array, Call, GAEResult
from fastgae._canonical import (
    Frame,
    as_boundaries,
    as_unit_interval,
    checked,
    end_to_end,
    of_one_dtype,
    one_for_each,
    shown,
)
from fastgae._interop import OnDevice, as_array, as_numbers, is_tensor, takes_tensors, with_tensors
from fastgae._misnamed import no_argument
from fastgae._run import run
from fastgae._typing import ArrayT, BackendName, Normalize, Numbers, Output

COEFFICIENTS = ("gamma", "gae_lambda", "returns_lambda")


@takes_tensors
def gae_packed(
    rewards: ArrayT | Numbers,
    values: ArrayLike,
    cu_seqlens: ArrayLike,
    terminated: ArrayLike | None = None,
    *,
    last_values: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    gamma: float | ArrayLike = 1.0,
    gae_lambda: float | ArrayLike = 0.95,
    returns_lambda: float | ArrayLike | None = None,
    normalize: Normalize | None = None,
    out: Output[ArrayT] | None = None,
    num_threads: int | None = None,
    backend: BackendName | None = None,
    **misnamed: Never,
) -> GAEResult[ArrayT]:
    r"""Compute advantages and value targets of sequences of any lengths, end to end in one-dimensional arrays.

    The recursion of ``gae`` runs in every sequence by itself. Sequence i is ``[cu_seqlens[i], cu_seqlens[i + 1])``, as
    in flash-attention. All sequences are computed as one rollout of one env, in which an episode ends at the end of
    each sequence. So the time depends on the total length and not on the lengths of the sequences.

    Parameters
    ----------
    rewards, values : array of shape (total,)
        Reward of each step, and V before it. Libraries and dtypes as in ``gae``.
    cu_seqlens : int32 or int64 array of shape (sequences + 1,)
        The start of each sequence, and then the total length. The numbers begin with 0 and never fall; sequences may be
        empty.
    terminated : array of shape (total,), optional; bool, or numbers that are 0 or 1
        The step ended an episode for good, inside a sequence or at its end.
    last_values : array of shape (sequences,), or one number for all sequences, optional
        V after the last step of each sequence. None: every sequence ends for good, as an answer of a language model
        does.
    mask : array of shape (total,), optional
        As in ``gae``: False where the step does not exist.
    gamma, gae_lambda, returns_lambda : float in [0, 1], or arrays of shape (sequences, 1) or (total,)
        As in ``gae``. An array has one number per sequence, as for a batch of padded sequences with time along axis 1,
        or one per step.
    normalize : str, optional
        "global", as in ``gae``: over all steps that exist.
    out, num_threads, backend
        As in ``gae``.

    Returns
    -------
    GAEResult
        ``(advantages, returns)``, arrays of shape (total,) in the working dtype.

    Raises
    ------
    ValueError, TypeError, BackendUnavailableError
        As ``gae``.

    Examples
    --------
    >>> import numpy as np, fastgae
    >>> rewards, values = np.ones(5, np.float32), np.zeros(5, np.float32)
    >>> fastgae.gae_packed(rewards, values, np.array([0, 2, 5]), gamma=0.5, gae_lambda=1.0).returns
    array([1.5 , 1.  , 1.75, 1.5 , 1.  ], dtype=float32)
    """
    if misnamed:
        raise no_argument(gae_packed, misnamed)
    if type(rewards) is not ndarray and is_tensor(rewards):
        return with_tensors(gae_packed, locals())
    call = Call(
        rewards,
        values,
        terminated,
        last_values=last_values,
        mask=mask,
        gamma=gamma,
        gae_lambda=gae_lambda,
        returns_lambda=returns_lambda,
        normalize=normalize,
        out=out,
        cu_seqlens=cu_seqlens,
    )
    return run(call, backend, num_threads, _checked)


def _checked(given: Call) -> Call:
    """Check sequences end to end, and return the call of one env whose episodes end with them."""
    if given.normalize == "per_env":
        raise ValueError('normalize must be "global" or None: packed sequences are not envs')
    if isinstance(given.rewards, OnDevice):
        return _checked_on_device(given)
    lengths, last_steps, ended, last = _checked_sequences(given)
    ends = np.zeros(lengths.sum(), bool)
    ends[last_steps] = True
    inside = np.zeros(len(ends), bool) if ended is None else ended
    return checked(
        given._replace(
            terminated=inside | ends if last is None else inside,
            truncated=None if last is None else ends,
            final_values=last,
            last_values=0.0,  # never read, because the last sequence ends with a flag too
            **{name: _per_step(name, getattr(given, name), lengths) for name in COEFFICIENTS},
        )
    )


def _checked_on_device(given: Call) -> Call:
    """Check all but the numbers of the boundaries. The kernel reads them, and needs no flags where sequences end."""
    reward = end_to_end("rewards", given.rewards)
    frame = Frame("rewards", reward.shape, 0, ())
    frame.check_steps("values", as_numbers("values", given.values))
    starts = as_boundaries("cu_seqlens", given.cu_seqlens)
    sequences = len(starts) - 1
    if len(reward) and len(starts) == 1:
        raise ValueError(f"cu_seqlens must rise from 0 to the number of steps, {len(reward)}, but has no sequence")
    (last,) = of_one_dtype((), last_values=given.last_values)
    last = one_for_each("last_values", last, (sequences,), "one per sequence", on_device=True)
    coefficients = {name: getattr(given, name) for name in COEFFICIENTS}
    per_sequence = {
        name: coefficient
        for name, coefficient in coefficients.items()
        if _is_per_sequence(name, coefficient, sequences, len(reward))
    }
    call = checked(
        given._replace(
            last_values=0.0,
            **dict.fromkeys(per_sequence, 1.0),
        )
    )
    return call._replace(last_values=last, cu_seqlens=starts, **per_sequence)


def _checked_sequences(given: Call) -> tuple[Array, Array, Array | None, Array | None]:
    """Check the arguments that a rollout of one env does not have, or has in another form.

    Return the length of each sequence, the last step that exists of each sequence that has one, the flags, and the
    values after those last steps.
    """
    reward = end_to_end("rewards", given.rewards)
    frame, total = Frame("rewards", reward.shape, 0, ()), len(reward)
    _, values, last = of_one_dtype(
        ("values",), rewards=given.rewards, values=given.values, last_values=given.last_values
    )
    frame.check_steps("values", values)
    starts = as_boundaries("cu_seqlens", given.cu_seqlens)
    firsts, nexts = starts[:-1], starts[1:]
    some = nexts > firsts  # compared, because differences can overflow
    whole = bool(some.all())
    if starts[0] != 0 or starts[-1] != total or not (whole or (nexts >= firsts).all()):
        raise ValueError(f"cu_seqlens must rise from 0 to the number of steps, {total}, got {shown(given.cu_seqlens)}")
    lengths, ends = nexts - firsts, nexts - 1
    ended = frame.step_flags("terminated", given.terminated)
    last = one_for_each("last_values", last, lengths.shape, "one per sequence")
    if given.mask is not None:  # the end must be a flag of a step in the mask, because other flags are ignored
        before = np.concatenate([[-1], np.flatnonzero(frame.flags("mask", given.mask))])
        ends = before[np.searchsorted(before, ends, "right") - 1]
        some = ends >= firsts
    elif whole:
        return lengths, ends, ended, last
    return lengths, ends[some], ended, None if last is None else last[some]


def _per_step(name: str, coefficient: Any, lengths: Array) -> Any:
    """Return a coefficient that is given per sequence as one per step. Any other one is left for gae to check."""
    given = as_array(name, coefficient) if isinstance(coefficient, list | tuple) else coefficient
    if not _is_per_sequence(name, given, len(lengths), int(lengths.sum())):
        return given
    return np.repeat(as_unit_interval(name, given, _fits)[:, 0], lengths)


def _is_per_sequence(name: str, given: Any, sequences: int, total: int) -> bool:
    """Return whether a coefficient has shape (sequences, 1), as in a batch of padded sequences along axis 1."""
    shape = getattr(given, "shape", ())
    if shape in ((), (1,), (total,)):
        return False
    if shape == (sequences, 1):
        return True
    raise ValueError(
        f"{name} has shape {shape}; expected one number, one per step, {(total,)}, or one per sequence, "
        f"{(sequences, 1)}"
    )


def _fits(name: str, array: Array) -> None:
    """Accept an array whose shape has been checked."""
