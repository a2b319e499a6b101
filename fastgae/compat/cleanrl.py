"""CleanRL: the advantage loop of ppo.py and its siblings."""

from fastgae._typing import ArrayT
from fastgae.compat._anywhere import Coefficient, Flags, Like, Numbers, anywhere, namespace_of
from fastgae.estimators.gae import gae


@anywhere("rewards: T ...", next_value="... | 1 ...", next_done="... | 1 ...")
def compute_gae(
    rewards: Like[ArrayT],
    values: Numbers,
    dones: Flags,
    next_value: Numbers,
    next_done: Flags,
    gamma: Coefficient = 0.99,
    gae_lambda: Coefficient = 0.95,
) -> tuple[ArrayT, ArrayT]:
    r"""Compute the advantages and returns of the loop under "bootstrap value if not done", with the script's variables.

    ::

        delta_t = (r_t + gamma V_{t+1}) - V_t      the bootstrap only where not dones_{t+1}
        A_t     = delta_t + gamma lambda A_{t+1}   the second term only where not dones_{t+1}
        R_t     = A_t + V_t                        V_T = next_value, dones_T = next_done

    ``dones[t]`` says that observation t is the first of an episode. Truncation counts as termination. The scripts have
    no function for these lines, so this one has the name that their JAX siblings use.

    Parameters
    ----------
    rewards, values, dones : tensor of shape (num_steps, num_envs) or (num_steps, num_envs, ...)
    next_value : tensor of shape (num_envs,) or (1, num_envs)
    next_done : tensor of shape (num_envs,)

    Returns
    -------
    (advantages, returns)
        Tensors like ``rewards``: the same bits as the scripts' in float32 and in float64, on a CPU.

    Raises
    ------
    ValueError, TypeError
        As in ``fastgae.gae``.
    """
    ends = namespace_of(rewards).concatenate([dones, next_done.reshape(1, *dones.shape[1:])])[1:]
    last = next_value.reshape(rewards.shape[1:])
    advantages, returns = gae(rewards, values, ends, last_values=last, gamma=gamma, gae_lambda=gae_lambda)
    return advantages, returns
