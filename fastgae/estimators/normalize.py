"""Normalisation of advantages."""

from __future__ import annotations

import sys
from typing import Any, cast

import numpy as np

from fastgae._call import ABSENT, EPS, MOST_STEPS, NEW, Array, Call
from fastgae._canonical.arguments import as_size, as_word, integer_of, of_one_dtype, shown
from fastgae._canonical.checks import NORMALIZE
from fastgae._canonical.frame import Frame, frame_of
from fastgae._canonical.memory import in_place
from fastgae._engine import dispatch
from fastgae._engine.declared import public
from fastgae._engine.moments import center_and_scale, scale_of
from fastgae._interop.arrays import OnDevice
from fastgae._interop.libraries import as_numbers, takes_tensors
from fastgae._support import memory, threads
from fastgae._support.misnamed import NORMALIZE_ELSEWHERE
from fastgae._typing import ArrayLike, ArrayT, BackendName, Normalize, Numbers


@takes_tensors()
@public
def normalize(
    advantages: ArrayT | Numbers,
    mask: ArrayLike | None = None,
    *,
    by: Normalize = "global",
    mean: ArrayLike | None = None,
    std: ArrayLike | None = None,
    ddof: int = 0,
    eps: float = EPS,
    time_axis: int = 0,
    out: ArrayT | None = None,
    num_threads: int | None = None,
    backend: BackendName | None = None,
) -> ArrayT:
    r"""Shift and scale advantages to mean 0 and standard deviation 1, or by a given mean and standard deviation.

    ::

        x_t  = (A_t - mean) * (1 / (std + eps))
        mean = sum of A / count                                    over all steps that exist, or the steps of each env
        std  = sqrt(sum of (A - mean)^2 / (count - ddof))

    Everything is computed in float64, and then x is rounded once. Sums are taken in a fixed order, so the result has
    the same bits on every backend, CPU target, number of threads and memory layout.

    Parameters
    ----------
    advantages : array of shape (T, N), (T,), or any rank with time along ``time_axis``
        Libraries and dtypes as in ``gae``.
    mask : array like ``advantages``, optional; bool, or numbers that are 0 or 1
        False: the step does not exist. It has no effect on the others, and its result is 0. Trailing axes may be
        missing, as for the flags of ``gae``.
    by : either "global" or "per_env"
        Use one mean and standard deviation over all steps, or one for each env over its steps.
    mean, std : array of ``advantages``' shape without time, or one number for all envs, optional; in their units
        Use these, such as running averages, instead of the mean and standard deviation of ``advantages``. They are read
        as float64 and have no effect on the dtype of the result. Pass both or neither; with both, leave out ``by`` and
        ``ddof``.
    ddof : int >= 0
        0 gives the population's standard deviation, as ``normalize`` of ``gae`` does, and 1 the sample's, as
        ``torch.std`` does. A batch of thousands of steps does not tell them apart; ``group_advantages``, whose groups
        have few answers, has 1. If no more than ``ddof`` steps exist, the result is NaN.
    eps : finite float >= 0
        Added to the standard deviation. Trainers of PPO have 1e-8; those of GRPO more, because the rewards of a group
        are often almost equal.
    out : array, optional
        An array like ``advantages`` in the working dtype, which is filled; it may be ``advantages`` itself.
    time_axis, num_threads, backend
        As in ``gae``.

    Returns
    -------
    array like ``advantages`` in the working dtype, without units.

    Raises
    ------
    ValueError, TypeError, BackendUnavailableError
        As ``gae``.

    Examples
    --------
    >>> import numpy as np, fastgae
    >>> fastgae.normalize(np.array([1.0, 2.0, 3.0, 4.0]), eps=0.0)
    array([-1.34164079, -0.4472136 ,  0.4472136 ,  1.34164079])
    >>> fastgae.normalize(np.array([1.0, 2.0, 3.0, 4.0]), mean=2.0, std=0.5, eps=0.0)
    array([-2.,  0.,  2.,  4.])
    """
    as_word("by", by, NORMALIZE, NORMALIZE_ELSEWHERE)
    if type(advantages) is np.ndarray and mean is None and std is None:
        chosen = dispatch.choose(backend, num_threads)
        call = Call(
            advantages, ABSENT, mask=mask, time_axis=time_axis, out=(NEW if out is None else out, None),
            normalize=by, recursion="none", deviation=(ddof, eps),
        )  # fmt: skip
        results = chosen.short_cut and chosen.short_cut(call, chosen.threads, chosen.target)
        if results is not None:
            return cast(ArrayT, results.advantages)
    (numbers,) = of_one_dtype(advantages=advantages)
    frame = frame_of("advantages", numbers, time_axis)
    exists = frame.flags_or_none("mask", mask)
    given = _as_moments(frame, mean, std)
    kept_out, added = as_ddof(ddof), as_eps(eps)
    if given is not None and (by != "global" or kept_out):
        name = "ddof" if kept_out else "by"
        raise ValueError(f"{name} says how mean and std are computed, and both are given: leave {name} out")
    result: Any = frame.output(NEW if out is None else out, numbers)
    if isinstance(numbers, OnDevice):
        module = dispatch.on_devices("advantages", advantages, num_threads)
        call = Call(
            numbers, ABSENT, mask=exists, time_axis=frame.axis, out=(result, None), normalize=by,
            deviation=(kept_out, added),
        )  # fmt: skip
        filled: Any = module.normalized(call, given)
        return filled
    chosen = dispatch.choose(backend, num_threads)
    if result is NEW:
        result = memory.empty_like(numbers)
    if exists is not None and np.may_share_memory(exists, result):
        exists = exists.copy()
    if not numbers.size:
        return result
    matrix, existing, layout = in_place(numbers, exists, frame.axis)
    how = chosen.module, chosen.threads or threads.usable_cpus(), chosen.target
    if given is None:
        center, scale = center_and_scale(matrix, existing, by, layout, *how, added, kept_out)
    else:
        center, scale = layout.row(given[0]), scale_of(layout.row(given[1]), added)
    skipped = None if existing is None else ~existing
    filled = layout.matrix(np.asarray(result))  # without the methods of a subclass, such as np.matrix
    # The result is written only from here on. With cpp, nothing can fail any more, because all memory has been
    # allocated; NumPy needs more of it to rescale.
    np.copyto(filled, matrix)
    if skipped is not None:
        np.copyto(filled, 0, where=skipped)
    chosen.module.rescale(filled, existing, center, scale, *how[1:])
    if not np.may_share_memory(filled, result):
        result[...] = layout.split(filled)
    return result


def _as_moments(frame: Frame, mean: Any, std: Any) -> tuple[Array, Array] | None:
    """Return a mean and standard deviation of each env in float64, or None if none are given."""
    if mean is None and std is None:
        return None
    if mean is None or std is None:
        given, missing = ("std", "mean") if mean is None else ("mean", "std")
        raise ValueError(f"{given} is given without {missing}: pass both, or neither")
    moments = {name: as_numbers(name, given).astype(np.float64) for name, given in (("mean", mean), ("std", std))}
    center, deviation = (frame.envs(name, array) for name, array in moments.items())
    if not isinstance(deviation, OnDevice) and (deviation < 0).any():
        raise ValueError(f"std must not be negative, got {deviation[deviation < 0][0]}")
    return center, deviation


def as_ddof(given: Any) -> int:
    ddof = integer_of(given)
    if ddof is None or ddof < 0:
        raise ValueError(f"ddof must be an integer >= 0, got {shown(given)}")
    return min(ddof, MOST_STEPS)


def as_eps(given: Any) -> float:
    return as_size("eps", given, "a finite number >= 0", sys.float_info.max)
