"""EnvPool: ``compute_gae`` of its PPO example, for batches whose rows belong to env ids (async mode)."""

import numpy as np
from numpy.typing import ArrayLike

from fastgae._call import Array
from fastgae.estimators.gae_packed import gae_packed


def compute_gae(
    gamma: float,
    gae_lambda: float,
    value: ArrayLike,
    reward: ArrayLike,
    done: ArrayLike,
    env_id: ArrayLike,
    numenv: int,
) -> tuple[Array, Array, Array]:
    r"""Returns and advantages of steps that came in batches of any envs, as EnvPool's example computes them.

    ::

        A_t = r_t - V_t + gamma B_t V' + gamma lambda B_t A'     B_t = 1 - d_t, direct flags
        V', A': of the next step of the same env, wherever in a later batch it lies; 0 after its last step
        R_t = A_t + V_t

    Truncation ends an episode like termination. Results are float64 as EnvPool's, and differ by rounding, for the order
    of sums: with float32 arrays by that of float32, in which it subtracts V from the reward.

    Parameters
    ----------
    gamma, gae_lambda : float
        Discount, and decay of the trace.
    value, reward : (T, B)
        Float32 or float64: T batches, each of B envs.
    done : (T, B); bool, or numbers that are 0 or 1
        The step ended an episode.
    env_id : (T, B), integers from 0 to ``numenv`` - 1, as ``info["env_id"]``
        The env of each step. No env is twice in a batch.
    numenv : int
        How many envs there are.

    Returns
    -------
    (returns, advantages, mask), float64 arrays of shape (T, B)
        The mask is 0 at the last step of an env where no episode ended: its next value is not known, so keep it out.

    Raises
    ------
    ValueError, TypeError
        As ``fastgae.gae``, and where ``env_id`` is no such integer.

    Notes
    -----
    ``examples/ppo_atari/gae.py`` of EnvPool's repository.
    """
    envs = np.asarray(env_id)
    if envs.dtype.kind not in "iu" or (envs.size and not 0 <= envs.min() <= envs.max() < numenv):
        raise ValueError(f"env_id must be integers from 0 to numenv - 1 = {numenv - 1}, got {env_id!r}")
    order = np.argsort(envs, axis=None, kind="stable")  # env by env, each in the order of time
    cu_seqlens = np.append(0, np.cumsum(np.bincount(envs.ravel(), minlength=numenv)))
    ends = np.asarray(done, bool).ravel()[order]
    packed = gae_packed(
        np.asarray(reward, np.float64).ravel()[order],
        np.asarray(value, np.float64).ravel()[order],
        cu_seqlens,
        ends,
        gamma=gamma,
        gae_lambda=gae_lambda,
    )
    has_next = np.ones(len(order), bool)
    has_next[cu_seqlens[1:][np.diff(cu_seqlens) > 0] - 1] = False
    results = np.empty((3, *envs.shape))
    results.reshape(3, -1)[:, order] = packed.returns, packed.advantages, ends | has_next
    returns, advantages, mask = results
    return returns, advantages, mask
