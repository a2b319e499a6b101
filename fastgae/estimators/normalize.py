"""Normalisation of advantages."""

import math
from collections.abc import Callable
from typing import Any, Never

import numpy as np
from numpy.typing import ArrayLike

from fastgae import _dispatch, _threads
from fastgae._backends import Backend
from fastgae._call import EPS, NEW, Array
from fastgae._canonical import NORMALIZE, Layout, as_number, frame_of, in_place, of_one_dtype, shown
from fastgae._interop import OnDevice, is_tensor, takes_tensors, with_tensors
from fastgae._misnamed import no_argument
from fastgae._moments import center_and_scale
from fastgae._typing import ArrayT, BackendName, Normalize, Numbers

How = tuple[Backend, int, str | None]  # a backend, the number of threads, and the CPU target


@takes_tensors
def normalize(
    advantages: ArrayT | Numbers,
    mask: ArrayLike | None = None,
    *,
    by: Normalize = "global",
    eps: float = EPS,
    time_axis: int = 0,
    out: ArrayT | None = None,
    num_threads: int | None = None,
    backend: BackendName | None = None,
    **misnamed: Never,
) -> ArrayT:
    r"""Shift and scale advantages to mean 0 and standard deviation 1.

    ::

        x_t = (A_t - mean) / (std + eps)     over all steps that exist, or those of each env

    ``std`` is the population's. Sums are taken in float64, in a fixed order, so the result has the same bits on every
    backend, CPU target, number of threads and memory layout.

    Parameters
    ----------
    advantages : array of shape (T, N), (T,), or any rank with time along ``time_axis``
        Kinds and dtypes as in ``gae``.
    mask : array like ``advantages``, optional; bool, or numbers that are 0 or 1
        False: the step does not exist. It has no effect on the others, and its result is 0.
    by : "global" or "per_env"
        Take one mean and standard deviation over all steps, or one of each env over its steps.
    eps : finite float >= 0
        Added to the standard deviation.
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
    """
    if misnamed:
        raise no_argument(normalize, misnamed)
    if type(advantages) is not np.ndarray and is_tensor(advantages):
        return with_tensors(normalize, locals())
    if not isinstance(by, str) or by not in NORMALIZE:
        raise ValueError(f"by must be {' or '.join(map(repr, NORMALIZE))}, got {shown(by)}")

    if isinstance(advantages, OnDevice):
        return _on_device(advantages, mask, by, eps, time_axis, out)

    def moments(matrix: Array, exists: Array | None, layout: Layout, how: How, eps: float) -> tuple[Array, Array]:
        return center_and_scale(matrix, exists, by, layout, *how, eps)

    return shift_and_scale(moments, advantages, mask, eps, time_axis, out, num_threads, backend)


def _on_device(advantages: OnDevice, mask: Any, by: str, eps: float, time_axis: int, out: Any) -> Array:
    (numbers,) = of_one_dtype(("advantages",), advantages=advantages)
    frame = frame_of("advantages", numbers, time_axis)
    exists = frame.step_flags("mask", mask)
    wanted = frame.output(NEW if out is None else out, numbers)
    module = _dispatch.on_devices("advantages", advantages)
    result: Array = module.normalized(numbers, exists, by, _as_eps(eps), frame.axis, wanted)
    return result


def shift_and_scale(
    moments: Callable[[Array, Array | None, Layout, How, float], tuple[Array, Array]],
    advantages: Any,
    mask: ArrayLike | None,
    eps: float,
    time_axis: int,
    out: Any,
    num_threads: int | None,
    backend: BackendName | None,
) -> Any:
    """Return (advantages - center) * scale, where ``moments`` computes center and scale of each env of a matrix."""
    chosen = _dispatch.choose(backend, num_threads)
    (numbers,) = of_one_dtype(("advantages",), advantages=advantages)
    frame = frame_of("advantages", numbers, time_axis)
    exists = frame.step_flags("mask", mask)
    added = _as_eps(eps)
    result = frame.output(NEW if out is None else out, numbers)
    if exists is not None and np.may_share_memory(exists, result):
        exists = exists.copy()
    if not numbers.size:
        return result
    how: How = (chosen.module, chosen.threads or _threads.usable_cpus(), chosen.target)
    matrix, existing, layout = in_place(numbers, exists, frame.axis)
    center, scale = moments(matrix, existing, layout, how, added)
    skipped = None if existing is None else ~existing
    filled = layout.matrix(result)
    # The result is written only from here on: all memory has been allocated, so nothing can fail any more.
    np.copyto(filled, matrix)
    if skipped is not None:
        np.copyto(filled, 0, where=skipped)
    chosen.module.rescale(filled, existing, center, scale, *how[1:])
    if not np.may_share_memory(filled, result):
        result[...] = layout.split(filled)
    return result


def _as_eps(given: Any) -> float:
    expected = "a finite number >= 0"
    eps = as_number("eps", given, expected)
    if not 0.0 <= eps < math.inf:
        raise ValueError(f"eps must be {expected}, got {eps!r}")
    return eps
