"""The recursion that every estimator is built on."""

from __future__ import annotations

from typing import Never

import numpy as np
from numpy.typing import ArrayLike

from fastgae._call import ABSENT, NEW, Call
from fastgae._canonical import frame_of, of_one_dtype
from fastgae._interop import is_tensor, takes_tensors, with_tensors
from fastgae._misnamed import no_argument
from fastgae._run import run
from fastgae._typing import ArrayT, BackendName, Numbers


@takes_tensors
def reverse_scan(
    x: ArrayT | Numbers,
    decay: ArrayLike,
    *,
    initial: ArrayLike | None = None,
    time_axis: int = 0,
    out: ArrayT | None = None,
    num_threads: int | None = None,
    backend: BackendName | None = None,
    **misnamed: Never,
) -> ArrayT:
    r"""Compute a linear recursion along time, from the last step to the first.

    ::

        y_t = x_t + decay_t y_{t+1}     y_T = initial

    The product is always added: unlike a closed gate of ``gae``, a decay of 0 does not keep NaN or infinity out.

    Parameters
    ----------
    x : array of shape (T, N), (T,), or any rank with time along ``time_axis``
        Kinds and dtypes as in ``gae``.
    decay : number, or array with the axes of ``x``, each of full length or of length 1
        Any numbers.
    initial : array of ``x``'s shape without time or with one step, or one number for all of it, optional
        The y after the last step; None: 0.
    time_axis, num_threads, backend
        As in ``gae``.
    out : array, optional
        An array of ``x``'s shape and the working dtype, which is filled and returned.

    Returns
    -------
    array of ``x``'s shape in the working dtype.

    Raises
    ------
    ValueError, TypeError, BackendUnavailableError
        As ``gae``.

    Notes
    -----
    Blelloch, "Prefix Sums and Their Applications", 1990, calls it a first-order linear recurrence.

    Examples
    --------
    >>> import numpy as np, fastgae
    >>> fastgae.reverse_scan(np.ones(4, np.float32), 0.5)
    array([1.875, 1.75 , 1.5  , 1.   ], dtype=float32)
    """
    if misnamed:
        raise no_argument(reverse_scan, misnamed)
    if type(x) is not np.ndarray and is_tensor(x):
        return with_tensors(reverse_scan, locals())
    call = Call(
        x,
        ABSENT,
        ABSENT,
        last_advantages=initial,
        gamma=1.0,
        gae_lambda=decay,
        time_axis=time_axis,
        out=(NEW if out is None else out, None),
    )
    return run(call, backend, num_threads, _checked).advantages


def _checked(given: Call) -> Call:
    """Check a recursion without values and gates, whose lambda is ``decay``."""
    terms, factors, first = of_one_dtype(
        ("x", "decay"), x=given.rewards, decay=given.gae_lambda, initial=given.last_advantages
    )
    frame = frame_of("x", terms, given.time_axis)
    return Call(
        terms,
        None,
        None,
        last_advantages=frame.envs("initial", first),
        gamma=1.0,
        gae_lambda=frame.factors("decay", factors),
        time_axis=frame.axis,
        out=(frame.output(given.out[0], terms), None),
    )
