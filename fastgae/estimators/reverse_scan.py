"""The recursion that every estimator is built on."""

from __future__ import annotations

from typing import Never

from fastgae._call import ABSENT, NEW
from fastgae._engine.declared import estimator
from fastgae._engine.run import run
from fastgae._typing import ArrayLike, ArrayT, BackendName, Numbers


@estimator(result="advantages", words={"rewards": "x", "gae_lambda": "decay", "last_advantages": "initial"})
def reverse_scan(
    x: ArrayT | Numbers,
    decay: ArrayLike,
    *unnamed: Never,
    initial: ArrayLike | None = None,
    time_axis: int = 0,
    out: ArrayT | None = None,
    stop_gradients: bool = True,
    num_threads: int | None = None,
    backend: BackendName | None = None,
    **misnamed: Never,
) -> ArrayT:
    r"""Compute a linear recursion along time, from the last step to the first.

    ::

        y_t = x_t + decay_t y_{t+1}     y_T = initial

    The product is always added: unlike a flag of ``gae``, a decay of 0 does not keep NaN or infinity out.

    Parameters
    ----------
    x : array of shape (T, N), (T,), or any rank with time along ``time_axis``
        Libraries and dtypes as in ``gae``.
    decay : number, or array with the axes of ``x``, each of full length or of length 1
        Any numbers.
    initial : array of ``x``'s shape without time or with one step, or one number for all of it, optional
        The y after the last step; None: 0.
    time_axis, stop_gradients, num_threads, backend
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
    call = (
        x, ABSENT, ABSENT, None, None, None, None, None, None, None, 1.0, decay, time_axis,
        (NEW if out is None else out, None), None, initial,
    )  # fmt: skip
    return run(reverse_scan, call, backend, num_threads, stop_gradients, unnamed, misnamed).advantages
