"""What the function of each peer computes: the call of fastgae that ``identify`` shows, and its findings."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fastgae import compat
from loops import BESSEL, GAE, GIVEN, LONGER

OF_ZEROS = f"fastgae.gae((rewards * mask), (values * mask), terminated=None, last_values=0.0, {GIVEN}, time_axis=1)"
OF_MASK = f"fastgae.gae(rewards, values, terminated=None, last_values=0.0, mask=mask, {GIVEN}, time_axis=1)"
TIME_LAST = f"fastgae.gae(rewards, values, terminated, {GIVEN}, time_axis=1)"
ENDED = f"fastgae.gae(rewards, values, terminated | truncated, last_values=last_values, {GIVEN})"
TRUNCATED = f"fastgae.gae(rewards, values, terminated, truncated, next_values=next_values, {GIVEN})"
NEVER_TERMINATED = f"fastgae.gae(rewards, values, (terminated & False), terminated, next_values=next_values, {GIVEN})"
OF_BRAX = ENDED.replace("rewards", "np.where(truncated, values, rewards)", 1)
OF_RLAX = (
    "fastgae.gae(rewards, np.concatenate([next_values[:1], next_values[:-1]]), terminated, next_values=next_values, "
    f"{GIVEN})"
)
OF_RLLIB = TRUNCATED.replace("=next_values", "=np.concatenate([values[1:], 0 * values[0][np.newaxis]])")
OF_SAMPLE_FACTORY = (
    "fastgae.reverse_scan((((rewards * mask) + gamma * np.where(terminated, 0, np.concatenate([(values[:-1] * "
    "mask)[1:], (values[-1] * mask[-1])[np.newaxis]]))) - (values[:-1] * mask)), np.where(terminated, 0, "
    "np.where(mask, gamma * gae_lambda, 1)).astype(rewards.dtype))"
)


class Peer(NamedTuple):
    """``adapted`` takes the library's function, and returns one whose arguments ``identify`` can name."""

    function: Any  # that of fastgae.compat
    call: str
    outputs: list[str]
    findings: str = ""
    adapted: Callable[[Any], Callable[..., Any]] = lambda function: function
    names: dict[str, str] | None = None


def _sample_factory(function: Any) -> Callable[..., Any]:
    def adapted(rewards: Any, dones: Any, values: Any, mask: Any, gamma: float, gae_lambda: float) -> Any:
        return function(rewards, dones, values, mask[:, [*range(mask.shape[1]), -1]], gamma, gae_lambda)

    return adapted


def _labml(made: Any) -> Callable[..., Any]:
    return lambda done, rewards, values, gamma, lam: made(*rewards.shape, gamma, lam)(done, rewards, values)


def _skrl(function: Any, **settings: Any) -> Callable[..., Any]:
    return lambda rewards, terminated, truncated, values, last_values, gamma, gae_lambda: function(
        rewards=rewards, terminated=terminated, truncated=truncated, values=values, last_values=last_values,
        discount_factor=gamma, lambda_coefficient=gae_lambda, **settings,
    )  # fmt: skip


def _pufferlib(function: Any) -> Callable[..., Any]:
    return lambda rewards, values, terminals, gamma, gae_lambda: function(
        values, rewards, terminals, np.ones_like(values), np.zeros_like(values), gamma, gae_lambda, 1.0, 1.0
    )


def _rl_games(function: Any) -> Callable[..., Any]:
    return lambda next_done, last_values, starts, values, rewards, gamma, tau: function(
        next_done, last_values[:, None], starts, values[..., None], rewards[..., None], gamma=gamma, tau=tau
    )[..., 0]


def _with_time_limits(function: Any) -> Callable[..., Any]:
    return _skrl(function, time_limit_bootstrap=True)


NAMES_OF_BRAX = {"truncation": "truncated", "termination": "terminated"}
TD_STEP = ["returns", "one more TD step on the returns"]
NORMALISED = ["normalised advantages (mean 0, std 1)", "returns"]
RESETS = "value_of_the_reset_observation last_values_missing"
TWO = ["advantages", "returns"]
PEERS = {
    "brax": Peer(compat.brax.compute_gae, OF_BRAX, TD_STEP, "truncation_dropped", names=NAMES_OF_BRAX),
    "cleanrl": Peer(compat.cleanrl.compute_gae, GAE, TWO),
    "labml": Peer(compat.labml.GAE, TIME_LAST, ["advantages"], adapted=_labml),
    "openrlhf": Peer(compat.openrlhf.get_advantages_and_returns, OF_ZEROS, TWO),
    "paper2code": Peer(compat.paper2code.compute_gae, LONGER, NORMALISED, "truncation_ignored both_flags"),
    # Its call is long: the rows are moved.
    "pufferlib": Peer(compat.pufferlib.compute_puff_advantage, "", ["advantages"], adapted=_pufferlib),
    "rl_games": Peer(compat.rl_games.discount_values, GAE, ["advantages"], adapted=_rl_games),
    "rlax": Peer(compat.rlax.truncated_generalized_advantage_estimation, LONGER, ["advantages"]),
    "rlax lambda_returns": Peer(compat.rlax.lambda_returns, OF_RLAX, ["returns"]),
    "rllib": Peer(compat.rllib.compute_value_targets, OF_RLLIB, ["returns"], RESETS),
    "rsl_rl": Peer(compat.rsl_rl.compute_returns, GAE, ["returns", BESSEL]),
    "sample_factory": Peer(
        compat.sample_factory.gae_advantages, OF_SAMPLE_FACTORY, ["advantages"], adapted=_sample_factory
    ),
    "skrl": Peer(compat.skrl.compute_gae, GAE, ["returns", BESSEL], "truncation_ignored", _skrl),
    "skrl time_limit_bootstrap": Peer(
        compat.skrl.compute_gae, ENDED, ["returns", BESSEL], "truncation_as_termination", _with_time_limits
    ),
    "tianshou": Peer(compat.tianshou._gae, NEVER_TERMINATED, ["advantages"], "bootstrap_at_termination"),
    "torchrl": Peer(compat.torchrl.generalized_advantage_estimate, TRUNCATED, TWO),
    "trl": Peer(compat.trl.compute_advantages, OF_ZEROS, ["values", BESSEL, "returns"]),
    "verl": Peer(compat.verl.compute_gae_advantage_return, OF_MASK, [BESSEL, "returns"]),
}
