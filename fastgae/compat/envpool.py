"""EnvPool: ``compute_gae`` of its PPO example, for async mode, where a batch holds the steps of any envs."""

import numpy as np

from fastgae._call import Array
from fastgae.compat._anywhere import Coefficient, Flags, Integers, Numbers, in_numpy
from fastgae.estimators.gae_packed import gae_packed


@in_numpy("reward: T B")
def compute_gae(
    gamma: Coefficient,
    gae_lambda: Coefficient,
    value: Numbers,
    reward: Numbers,
    done: Flags,
    env_id: Integers,
    numenv: int,
) -> tuple[Array, Array, Array]:
    r"""Compute returns and advantages like EnvPool's PPO example, from batches that hold the steps of any envs.

    ::

        A_t = r_t - V_t + gamma B_t V' + gamma lambda B_t A'     B_t = 1 - d_t, d_t = done of step t
        V', A': of the next step of the same env, anywhere in a later batch; 0 after its last step
        R_t = A_t + V_t

    Truncation ends an episode like termination. Results are float64 like EnvPool's. They differ from EnvPool's by
    rounding, because the order of sums differs; with float32 arrays by float32 rounding, because EnvPool subtracts V
    from the reward in float32.

    Parameters
    ----------
    gamma, gae_lambda : float
        Discount, and decay of the trace.
    value, reward : (T, B)
        Float32 or float64: T batches of B envs each.
    done : (T, B); bool, or numbers that are 0 or 1
        True where the step ended an episode.
    env_id : (T, B), integers from 0 to ``numenv`` - 1, as ``info["env_id"]``
        The env of each step. A batch holds an env at most once.
    numenv : int
        The number of envs.

    Returns
    -------
    (returns, advantages, mask), float64 arrays of shape (T, B)
        The mask is 0 at the last step of an env unless an episode ended there: the value after it is not known, so
        leave that step out of the loss.

    Raises
    ------
    ValueError, TypeError
        As in ``fastgae.gae``, and ValueError if ``env_id`` is not as described.

    Notes
    -----
    ``examples/ppo_atari/gae.py`` in EnvPool's repository.
    """
    if env_id.size and not 0 <= env_id.min() <= env_id.max() < numenv:
        raise ValueError(f"env_id must be integers from 0 to numenv - 1 = {numenv - 1}, got {env_id!r}")
    if (np.diff(np.sort(env_id, axis=1)) == 0).any():
        raise ValueError("env_id has an env twice in one batch: a batch holds one step of an env")
    order = np.argsort(env_id, axis=None, kind="stable")  # sorts by env, and keeps each env in the order of time
    cu_seqlens = np.append(0, np.cumsum(np.bincount(env_id.ravel(), minlength=numenv)))
    ends = done.ravel()[order]
    packed = gae_packed(
        np.asarray(reward, np.float64).ravel()[order],
        np.asarray(value, np.float64).ravel()[order],
        cu_seqlens,
        ends,
        gamma=gamma,
        gae_lambda=gae_lambda,
    )
    has_next = np.diff(env_id.ravel()[order], append=numenv) == 0
    results = np.empty((3, *env_id.shape))
    results.reshape(3, -1)[:, order] = packed.returns, packed.advantages, ends | has_next
    returns, advantages, mask = results
    return returns, advantages, mask
