"""Tianshou 2: ``_gae``, ``Algorithm.compute_episodic_return``, which calls it, and a hook for its algorithms.

Add one line before you train the algorithm::

    fastgae.compat.tianshou.install()
"""

from contextlib import ExitStack
from typing import Annotated, Any

import numpy as np

from fastgae._call import Array
from fastgae._canonical.frame import as_flags
from fastgae.compat._anywhere import Coefficient, Copied, Flags, Having, Integers, Numbers, in_numpy
from fastgae.compat._hooks import Library
from fastgae.estimators.gae import gae

LIBRARY = Library("tianshou", "2.0.0", "2.0.1")


@in_numpy("v_s: T ...")
def _gae(
    v_s: Numbers, v_s_: Numbers, rew: Numbers, end_flag: Flags, gamma: Coefficient, gae_lambda: Coefficient
) -> Array:
    r"""Compute advantages like ``tianshou.algorithm.algorithm_base._gae``, in float64; the same bits.

    ::

        delta_t = (r_t + gamma V'_t) - V_t         V' = v_s_, which is 0 where terminated
        A_t     = delta_t + gamma lambda A_{t+1}   the second term only where not end_flag_t

    Row t of the flags belongs to step t. A truncated step bootstraps from its own ``v_s_``.

    Parameters
    ----------
    v_s, v_s_, rew : array of shape (T,)
        V, V' and r; any dtype is converted to float64.
    end_flag : array of shape (T,); bool, or numbers that are 0 or 1
        True where an episode, or the part of it that the buffer holds, ended.

    Raises
    ------
    ValueError, TypeError
        As in ``fastgae.gae``.
    """
    rew, v_s, v_s_ = (np.asarray(each, np.float64) for each in (rew, v_s, v_s_))
    none = np.zeros_like(end_flag)
    return gae(rew, v_s, none, end_flag, next_values=v_s_, gamma=gamma, gae_lambda=gae_lambda).advantages


@in_numpy("indices: T", v_s_="T | T 1", v_s="T | T 1")
def compute_episodic_return(
    batch: Annotated[Any, Having("rew terminated truncated")],
    buffer: Annotated[Any, Having("terminated unfinished_index")],
    indices: Integers,
    v_s_: Copied | None = None,
    v_s: Copied | None = None,
    gamma: Coefficient = 0.99,
    gae_lambda: Coefficient = 0.95,
) -> tuple[Array, Array]:
    """Compute (returns, advantages) like ``Algorithm.compute_episodic_return``, in float64; the same bits.

    Parameters
    ----------
    batch : object with ``rew``, ``terminated`` and ``truncated`` of shape (T,)
    buffer : object with ``terminated``, and ``unfinished_index()``, the last steps of unfinished episodes
    indices : array of shape (T,)
        The positions of the batch in the buffer.
    v_s_, v_s : tensor or array of T numbers, optional
        V' and V. Without V', ``gae_lambda`` must be 1, and V' counts as 0. Without V, V' of the step before is used as
        V.

    Raises
    ------
    ValueError, TypeError
        As in ``fastgae.gae``; ValueError if V' is missing and ``gae_lambda`` is not 1.
    """
    if v_s_ is None:
        if not np.isclose(gae_lambda, 1.0):
            raise ValueError(f"gae_lambda must be 1 if v_s_ is not given, got {gae_lambda}")
        following = np.zeros_like(batch.rew)
    else:
        following = v_s_.ravel() * ~as_flags("buffer.terminated", buffer.terminated)[indices]
    values = np.roll(following, 1) if v_s is None else v_s.ravel()
    ends = np.logical_or(batch.terminated, batch.truncated)
    ends[np.isin(indices, buffer.unfinished_index())] = True
    advantages = _gae(values, following, batch.rew, ends, gamma, gae_lambda)
    return advantages + values, advantages


def install() -> ExitStack:
    """Replace ``tianshou.algorithm.algorithm_base._gae`` by this module's function; results are the same bits.

    Tianshou's PPO, A2C, TRPO, NPG and Reinforce call that function.

    ``fastgae.compat`` says how to undo it, and when it raises a RuntimeError.
    """
    return LIBRARY.install({"tianshou.algorithm.algorithm_base:_gae": (_gae,)})
