"""skrl: ``compute_gae`` of its torch agents (PPO, RPO, TRPO, A2C, AMP, IPPO, MAPPO), and a hook for them.

Add one line before you train the agent::

    fastgae.compat.skrl.install()

``install_final_obs()`` **changes results**: at a truncated step, PPO, RPO, TRPO and A2C then bootstrap from V of
``infos["final_obs"]``, the observations before the reset, whereas skrl bootstraps from V of the next episode's first
observation.
"""

import importlib
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any
from weakref import WeakSet

from fastgae._typing import ArrayT
from fastgae.compat._anywhere import Coefficient, Flags, Like, Numbers, anywhere, namespace_of
from fastgae.compat._hooks import Library, found_at, taking
from fastgae.estimators.gae import gae
from fastgae.estimators.normalize import normalize

LIBRARY = Library("skrl", "2.0.0", "2.1.1")
# The modules in which skrl's agents find ``compute_gae``. Recurrent agents, and all agents of version 2.0, call the
# last values ``next_values``.
SINGLE = ("a2c", "ppo", "rpo", "trpo")
AGENTS = (
    *(f"skrl.agents.torch.{name}.{name}{suffix}" for suffix in ("", "_rnn") for name in SINGLE),
    *(f"skrl.multi_agents.torch.{name}.{name}" for name in ("ippo", "mappo")),
)
AMP = "skrl.agents.torch.amp.amp"
RECORDED = (
    "observations states actions rewards next_observations next_states terminated truncated infos timestep timesteps"
)
# The agents that read the next observations at a truncated step, and for the last values, which these flags cut off.
LOOKING_AHEAD = tuple(f"skrl.agents.torch.{name}.{name}:{name.upper()}" for name in SINGLE)
HOOKED = WeakSet[Callable[..., None]]()  # what install_final_obs() has put in their places


@anywhere("rewards: T ...", last_values="...")
def compute_gae(
    *,
    rewards: Like[ArrayT],
    terminated: Flags,
    truncated: Flags,
    values: Numbers,
    last_values: Numbers,
    discount_factor: Coefficient = 0.99,
    lambda_coefficient: Coefficient = 0.95,
    time_limit_bootstrap: bool = False,
) -> tuple[ArrayT, ArrayT]:
    r"""Compute returns and normalised advantages like skrl.

    ::

        A_t = r_t - V_t + gamma B_t (V_{t+1} + lambda A_{t+1})     B_t = 1 - d_t
        d   = terminated or truncated with time_limit_bootstrap, else terminated: truncation is then no boundary
        R_t = A_t + V_t
        advantages = (A - mean) / (std + 1e-8) with Bessel's std

    With ``time_limit_bootstrap``, skrl adds gamma V(next observation) to the reward of a truncated step when it records
    the step. Results differ from skrl's by rounding: skrl adds in another order, with one bracket around V and A, and
    for mean and std, torch adds up float32 numbers in its own order, whereas fastgae adds up float64 numbers.

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
    how = {"last_values": last_values, "gamma": discount_factor, "gae_lambda": lambda_coefficient}
    advantages, returns = gae(rewards, values, ends, **how)
    return returns, normalize(advantages, ddof=1)


def install() -> ExitStack:
    """Replace ``compute_gae`` of all torch agents, recurrent ones included, by the function of this module.

    Results differ from skrl's by the rounding that ``compute_gae`` describes.

    ``fastgae.compat`` says how to undo it, and when it raises a RuntimeError.
    """
    places = {f"{module}:compute_gae": (compute_gae, _with_next_values) for module in AGENTS}
    return LIBRARY.install({**places, f"{AMP}:compute_gae": (compute_gae, _amp_of_2_0)})


def install_final_obs() -> ExitStack:
    """Let A2C, PPO, RPO and TRPO bootstrap a truncated step from the observation to which the step led.

    This changes results. With ``time_limit_bootstrap``, skrl adds gamma V(next observation) to the reward of a
    truncated step. Environments that reset themselves return the first observation of the next episode there. After
    this call, the agents read ``infos["final_obs"]`` instead, the observations from before the reset. Isaac Lab
    provides them for all environments with ``compute_final_obs=True``; Gymnasium provides them with
    ``AutoresetMode.SAME_STEP`` for the environments whose episode ended. A step that is terminated too gets no
    bootstrap.

    ``install()`` is independent of it: call either or both.

    Returns
    -------
    contextlib.ExitStack
        Its ``close()``, or the end of ``with install_final_obs(): ...``, puts skrl's own methods back.

    Raises
    ------
    RuntimeError
        The hook was not tested with the installed version, or skrl is older than 2.1, which bootstraps from V of the
        observation before the step. Nothing is replaced.
    KeyError, ValueError
        While the agent trains: a step is truncated without ``infos["final_obs"]``, or without
        ``time_limit_bootstrap=True``.
    """
    if LIBRARY.release() < (2, 1, 0):
        raise RuntimeError(
            "install_final_obs() needs skrl 2.1 or newer, because older agents do not read the next observations of a "
            "truncated step"
        )
    places = [f"{agent}.record_transition" for agent in LOOKING_AHEAD]
    methods = {place: found_at(place) for place in places}
    # A second call of the hook finds its functions in place, and leaves them there.
    ours = {place: method if method in HOOKED else _before_reset(method) for place, method in methods.items()}
    HOOKED.update(ours.values())
    return LIBRARY.install({place: (function,) for place, function in ours.items()})


def _before_reset(record: Callable[..., None]) -> Callable[..., None]:
    """Return a ``record_transition`` that passes the observations from before the reset to skrl's own method."""

    @taking(RECORDED)
    def record_transition(self: Any, **given: Any) -> None:
        if self.training and given["truncated"].any():
            truncated = given["truncated"] = given["truncated"] & ~given["terminated"]
            final = _final_obs(self.cfg, given["infos"])
            spaces = {
                "next_observations": ("policy", self.observation_space),
                "next_states": ("critic", self.state_space),
            }
            for name, (group, space) in spaces.items():
                if given[name] is not None:
                    given[name] = _replaced(given[name], final, group, truncated, space)
        record(self, **given)

    return record_transition


def _final_obs(settings: Any, infos: Mapping[str, Any]) -> Any:
    if not settings.time_limit_bootstrap:
        raise ValueError(
            "time_limit_bootstrap is False, so the agent continues over a truncated step into the next episode: set "
            "it to True, or do not call install_final_obs()"
        )
    if "final_obs" not in infos:
        raise KeyError(
            "infos has no final_obs at a truncated step: let the environment give the observations from before its "
            "reset, in Isaac Lab with compute_final_obs, in Gymnasium with AutoresetMode.SAME_STEP, or do not call "
            "install_final_obs()"
        )
    return infos["final_obs"]


def _replaced(following: Any, final: Any, group: str, truncated: Any, space: Any) -> Any:
    """Return the next observations, with the final ones where an env was truncated.

    ``final`` has groups of tensors of all envs, or one observation for each env that ended, and None for the others.
    """
    spaces: Any = importlib.import_module("skrl.utils.spaces.torch")

    def flat(given: Any) -> Any:
        return spaces.flatten_tensorized_space(spaces.tensorize_space(space, given, device=following.device))

    if isinstance(final, Mapping):
        return flat(final[group]).where(truncated, following)
    replaced = following.clone()
    for n in truncated.flatten().nonzero().flatten().tolist():
        replaced[n] = flat(final[n])
    return replaced


@taking("rewards terminated values next_values discount_factor lambda_coefficient")
def _with_next_values(*, terminated: Any, next_values: Any, **given: Any) -> tuple[Any, Any]:
    """Call ``compute_gae`` for agents that call the last values ``next_values`` and do not pass truncation."""
    return compute_gae(terminated=terminated, truncated=terminated, last_values=next_values, **given)


@anywhere("rewards: T ...")
def _amp_of_2_0(
    *,
    rewards: Like[ArrayT],
    terminated: Flags,
    values: Numbers,
    next_values: Numbers,
    discount_factor: Coefficient = 0.99,
    lambda_coefficient: Coefficient = 0.95,
) -> tuple[ArrayT, ArrayT]:
    """Compute the advantages of AMP in version 2.0: V' of every step is given, and termination cuts only the trace."""
    ends = terminated != 0
    how = {"next_values": next_values, "gamma": discount_factor, "gae_lambda": lambda_coefficient}
    advantages, returns = gae(rewards, values, namespace_of(rewards).zeros_like(ends), ends, **how)
    return returns, normalize(advantages, ddof=1)
