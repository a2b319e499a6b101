"""Tianshou 2: the function below its Algorithm, the static method on top of it, and the function's place there.

One line before the algorithm is trained::

    fastgae.compat.tianshou.install()
"""

import importlib
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fastgae._canonical import Array
from fastgae._interop import numpy_of
from fastgae.compat._hooks import replace
from fastgae.estimators.gae import gae


def _gae(
    v_s: ArrayLike, v_s_: ArrayLike, rew: ArrayLike, end_flag: ArrayLike, gamma: float, gae_lambda: float
) -> Array:
    r"""``tianshou.algorithm.algorithm_base._gae``: advantages in float64, the same bits.

    ::

        delta_t = (r_t + gamma V'_t) - V_t         V' = v_s_, which is 0 where terminated
        A_t     = delta_t + gamma lambda A_{t+1}   the second term only where not end_flag_t

    Direct flags. A truncated step bootstraps from its own ``v_s_`` (policy b).

    Parameters
    ----------
    v_s, v_s_, rew : array of shape (T,)
        V, V' and r, computed with in float64, whatever their dtype.
    end_flag : array of shape (T,); bool, or numbers that are 0 or 1
        An episode, or what the buffer holds of it, ended here.

    Raises
    ------
    ValueError, TypeError
        As ``fastgae.gae``.
    """
    flags = np.asarray(end_flag)
    return gae(
        np.asarray(rew, np.float64),
        np.asarray(v_s, np.float64),
        np.zeros_like(flags),
        flags,
        next_values=np.asarray(v_s_, np.float64),
        gamma=gamma,
        gae_lambda=gae_lambda,
    ).advantages


def compute_episodic_return(
    batch: Any,
    buffer: Any,
    indices: Array,
    v_s_: Any = None,
    v_s: Any = None,
    gamma: float = 0.99,
    gae_lambda: float = 0.95,
) -> tuple[Array, Array]:
    """``Algorithm.compute_episodic_return``: (returns, advantages) in float64, the same bits.

    Parameters
    ----------
    batch : object with ``rew``, ``terminated`` and ``truncated`` of shape (T,)
    buffer : object with ``terminated``, and ``unfinished_index()``, the steps whose episodes go on
    indices : array of shape (T,)
        Where the batch lies in the buffer.
    v_s_, v_s : tensor or array of T numbers, optional
        V' and V. Without V', ``gae_lambda`` is 1 and both are 0; without V alone, it is V' one step later.

    Raises
    ------
    ValueError, TypeError
        As ``fastgae.gae``; ValueError where V' is missing and ``gae_lambda`` is not 1.
    """
    if v_s_ is None:
        if not np.isclose(gae_lambda, 1.0):
            raise ValueError(f"gae_lambda must be 1 where v_s_ is not given, got {gae_lambda}")
        following = np.zeros_like(batch.rew)
    else:
        following = numpy_of(v_s_).ravel() * ~buffer.terminated[indices]
    values = np.roll(following, 1) if v_s is None else numpy_of(v_s).ravel()
    ends = np.logical_or(batch.terminated, batch.truncated)
    ends[np.isin(indices, buffer.unfinished_index())] = True
    advantages = _gae(values, following, batch.rew, ends, gamma, gae_lambda)
    return advantages + values, advantages


def install() -> ExitStack:
    """``tianshou.algorithm.algorithm_base._gae``, below PPO, A2C, TRPO, NPG and Reinforce, becomes the one here.

    The same bits.

    Returns
    -------
    contextlib.ExitStack
        For good, or ``with install(): ...``; its ``close()`` puts Tianshou's own function back.
    """
    return replace(importlib.import_module("tianshou.algorithm.algorithm_base"), _gae=_gae)
