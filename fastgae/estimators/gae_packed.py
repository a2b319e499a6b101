"""GAE of many sequences end to end in one array."""

from __future__ import annotations

from typing import Never, Unpack

from fastgae._call import MISSING, GAEResult
from fastgae._engine.declared import estimator
from fastgae._engine.run import run
from fastgae._typing import ArrayLike, ArrayT, BackendName, Misnamed, Normalize, Numbers, Output


@estimator()
def gae_packed(
    rewards: ArrayT | Numbers,
    values: ArrayLike,
    cu_seqlens: ArrayLike,
    terminated: ArrayLike | None = None,
    *unnamed: Never,
    last_values: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    gamma: float | ArrayLike,
    gae_lambda: float | ArrayLike = 0.95,
    returns_lambda: float | ArrayLike | None = None,
    normalize: Normalize | None = None,
    out: Output[ArrayT] | None = None,
    stop_gradients: bool = True,
    num_threads: int | None = None,
    backend: BackendName | None = None,
    **misnamed: Unpack[Misnamed],
) -> GAEResult[ArrayT]:
    r"""Compute advantages and value targets of sequences of any lengths, end to end in one-dimensional arrays.

    The recursion of ``gae`` runs in every sequence by itself. Sequence i is ``[cu_seqlens[i], cu_seqlens[i + 1])``, as
    in flash-attention. All sequences are computed as one rollout of one env, in which an episode ends at the end of
    each sequence. So the time depends on the total length and not on the lengths of the sequences.

    Parameters
    ----------
    rewards, values : array of shape (total,)
        Reward of each step, and V before it. Libraries and dtypes as in ``gae``.
    cu_seqlens : integer array of shape (sequences + 1,)
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
        As in ``gae``, but ``gamma`` has no default: it is 1.0 in most trainers of language models, and 0.99 in most
        others. An array has one number per sequence, as for a batch of padded sequences with time along axis 1, or one
        per step.
    normalize : str, optional
        "global", as in ``gae``: over all steps that exist.
    out, stop_gradients, num_threads, backend
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
    call = (
        rewards, values, terminated, None, last_values, None, None, None, None, mask, gamma, gae_lambda, 0, out,
        normalize, None, returns_lambda, False, False, MISSING if cu_seqlens is None else cu_seqlens,
    )  # fmt: skip
    return run(gae_packed, call, backend, num_threads, stop_gradients, unnamed, misnamed)
