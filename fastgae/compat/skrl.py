"""skrl: ``compute_gae`` of its torch agents (PPO, RPO, TRPO, A2C, AMP, IPPO, MAPPO), and a hook for them.

Add one line before you train the agent::

    fastgae.compat.skrl.install()
"""

import importlib
from contextlib import ExitStack
from typing import Any

from fastgae._interop import like, numbers_of, numpy_of
from fastgae.compat._hooks import replace
from fastgae.estimators.gae import gae
from fastgae.estimators.normalize import normalize

# The modules in which skrl's agents find ``compute_gae``; recurrent agents call theirs with other arguments.
AGENTS = (
    "skrl.agents.torch.a2c.a2c",
    "skrl.agents.torch.amp.amp",
    "skrl.agents.torch.ppo.ppo",
    "skrl.agents.torch.rpo.rpo",
    "skrl.agents.torch.trpo.trpo",
    "skrl.multi_agents.torch.ippo.ippo",
    "skrl.multi_agents.torch.mappo.mappo",
)
RECURRENT_AGENTS = (
    "skrl.agents.torch.a2c.a2c_rnn",
    "skrl.agents.torch.ppo.ppo_rnn",
    "skrl.agents.torch.rpo.rpo_rnn",
    "skrl.agents.torch.trpo.trpo_rnn",
)


def compute_gae(
    *,
    rewards: Any,
    terminated: Any,
    truncated: Any,
    values: Any,
    last_values: Any,
    discount_factor: float = 0.99,
    lambda_coefficient: float = 0.95,
    time_limit_bootstrap: bool = False,
) -> tuple[Any, Any]:
    r"""Compute returns and normalised advantages like skrl.

    ::

        A_t = r_t - V_t + gamma B_t (V_{t+1} + lambda A_{t+1})     B_t = 1 - d_t
        d   = terminated or truncated with time_limit_bootstrap, else terminated: truncation is then no boundary
        R_t = A_t + V_t
        advantages = (A - mean) / (std + 1e-8) with Bessel's std

    With ``time_limit_bootstrap``, skrl adds gamma V(next observation) to the reward of a truncated step when it records
    the step. Results differ from skrl's by rounding: skrl adds in another order, with one bracket around V and A, and
    for mean and std torch adds up float32 numbers in an order of its own, and fastgae float64 numbers.

    Parameters
    ----------
    rewards, values : (T, N, 1), or any shape with time first
        Float32 or float64.
    terminated, truncated : like ``rewards``
        Flags of each step, as ``env.step`` returns them.
    last_values : (N, 1)
        V of the observation after the last step.
    discount_factor, lambda_coefficient : float
        gamma and lambda.
    time_limit_bootstrap : bool
        Whether truncation ends an episode; the reward then contains its bootstrap.

    Returns
    -------
    (returns, advantages), of the shape and type of ``rewards``.

    Raises
    ------
    ValueError, TypeError
        As in ``fastgae.gae``.

    Notes
    -----
    ``skrl/agents/torch/ppo/ppo.py``, version 2.1. Its JAX agents divide by the population's std.
    """
    ends = numpy_of(terminated) != 0
    if time_limit_bootstrap:
        ends |= numpy_of(truncated) != 0
    advantages, returns = gae(
        numbers_of(rewards),
        numbers_of(values),
        ends,
        last_values=numbers_of(last_values),
        gamma=discount_factor,
        gae_lambda=lambda_coefficient,
    )
    given = rewards, values, last_values
    return like(returns, *given), like(normalize(advantages, ddof=1), *given)


def install() -> ExitStack:
    """Replace ``compute_gae`` of all torch agents, recurrent ones included, by the function of this module.

    Results differ from skrl's by the rounding that ``compute_gae`` describes.

    Returns
    -------
    contextlib.ExitStack
        Its ``close()``, or the end of ``with install(): ...``, puts skrl's own functions back.
    """
    with ExitStack() as undo:
        for names, ours in ((AGENTS, compute_gae), (RECURRENT_AGENTS, _compute_gae_recurrent)):
            for name in names:
                undo.enter_context(replace(importlib.import_module(name), compute_gae=ours))
        return undo.pop_all()


def _compute_gae_recurrent(*, next_values: Any, **arguments: Any) -> tuple[Any, Any]:
    """Call ``compute_gae`` for recurrent agents, which name the last values ``next_values`` and have no truncation."""
    return compute_gae(last_values=next_values, truncated=arguments["terminated"], **arguments)
