"""skrl: ``compute_gae`` of its torch agents (PPO, RPO, TRPO, A2C, AMP, IPPO, MAPPO), and a hook for them.

Add one line before you train the agent::

    fastgae.compat.skrl.install()
"""

from contextlib import ExitStack
from typing import Any

from fastgae.compat._anywhere import Numbers, anywhere, namespace_of
from fastgae.compat._hooks import Library
from fastgae.estimators.gae import gae
from fastgae.estimators.normalize import normalize

LIBRARY = Library("skrl", "2.0.0", "2.1.1")
# The modules in which skrl's agents find ``compute_gae``. To recurrent agents, and in version 2.0 to all of them,
# ``next_values`` are the last values.
AGENTS = (
    "skrl.agents.torch.a2c.a2c",
    "skrl.agents.torch.ppo.ppo",
    "skrl.agents.torch.rpo.rpo",
    "skrl.agents.torch.trpo.trpo",
    "skrl.multi_agents.torch.ippo.ippo",
    "skrl.multi_agents.torch.mappo.mappo",
    "skrl.agents.torch.a2c.a2c_rnn",
    "skrl.agents.torch.ppo.ppo_rnn",
    "skrl.agents.torch.rpo.rpo_rnn",
    "skrl.agents.torch.trpo.trpo_rnn",
)
AMP = "skrl.agents.torch.amp.amp"


@anywhere(like="rewards")
def compute_gae(
    *,
    rewards: Numbers,
    terminated: Any,
    truncated: Any,
    values: Numbers,
    last_values: Numbers,
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
    ends = terminated != 0
    if time_limit_bootstrap:
        ends = ends | (truncated != 0)
    advantages, returns = gae(
        rewards,
        values,
        ends,
        last_values=last_values,
        gamma=discount_factor,
        gae_lambda=lambda_coefficient,
    )
    return returns, normalize(advantages, ddof=1)


def install() -> ExitStack:
    """Replace ``compute_gae`` of all torch agents, recurrent ones included, by the function of this module.

    Results differ from skrl's by the rounding that ``compute_gae`` describes.

    Returns
    -------
    contextlib.ExitStack
        Its ``close()``, or the end of ``with install(): ...``, puts skrl's own functions back.

    Raises
    ------
    RuntimeError
        The hook was not tested with the installed version, or its functions have other parameters. Nothing is replaced.
    """
    places = {f"{module}:compute_gae": (compute_gae, _with_next_values) for module in AGENTS}
    return LIBRARY.install({**places, f"{AMP}:compute_gae": (compute_gae, _amp_of_2_0)})


def _with_next_values(
    *,
    rewards: Any,
    terminated: Any,
    values: Any,
    next_values: Any,
    discount_factor: float = 0.99,
    lambda_coefficient: float = 0.95,
) -> tuple[Any, Any]:
    """Call ``compute_gae`` for agents that name the last values ``next_values``, and know no truncation."""
    return compute_gae(
        rewards=rewards,
        terminated=terminated,
        truncated=terminated,
        values=values,
        last_values=next_values,
        discount_factor=discount_factor,
        lambda_coefficient=lambda_coefficient,
    )


@anywhere(like="rewards")
def _amp_of_2_0(
    *,
    rewards: Numbers,
    terminated: Any,
    values: Numbers,
    next_values: Numbers,
    discount_factor: float = 0.99,
    lambda_coefficient: float = 0.95,
) -> tuple[Any, Any]:
    """Compute what AMP of version 2.0 does: V' of every step is given, and termination cuts the trace alone."""
    ends = terminated != 0
    advantages, returns = gae(
        rewards,
        values,
        namespace_of(rewards).zeros_like(ends),
        ends,
        next_values=next_values,
        gamma=discount_factor,
        gae_lambda=lambda_coefficient,
    )
    return returns, normalize(advantages, ddof=1)
