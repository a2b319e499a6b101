"""What the function of each peer computes: the call of fastgae that ``identify`` shows, and its findings."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fastgae import compat
from loops import BESSEL, GAE, GIVEN, LONGER

OF_ZEROS = f"fastgae.gae((rewards * mask), (values * mask), terminated=None, last_values=0.0, {GIVEN}, time_axis=1)"


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


PEERS = {
    "brax": Peer(
        compat.brax.compute_gae,
        "fastgae.gae(np.where(truncated, values, rewards), values, terminated | truncated, "
        f"last_values=last_values, {GIVEN})",
        ["returns", "one more TD step on the returns"],
        "truncation_dropped",
        names={"truncation": "truncated", "termination": "terminated"},
    ),
    "cleanrl": Peer(compat.cleanrl.compute_gae, GAE, ["advantages", "returns"]),
    "labml": Peer(
        compat.labml.GAE,
        f"fastgae.gae(rewards, values, terminated, {GIVEN}, time_axis=1)",
        ["advantages"],
        adapted=_labml,
    ),
    "openrlhf": Peer(compat.openrlhf.get_advantages_and_returns, OF_ZEROS, ["advantages", "returns"]),
    "paper2code": Peer(
        compat.paper2code.compute_gae,
        LONGER,
        ["normalised advantages (mean 0, std 1)", "returns"],
        "truncation_ignored both_flags",
    ),
    "pufferlib": Peer(
        compat.pufferlib.compute_puff_advantage,
        "",  # long: the rows are moved
        ["advantages"],
        adapted=lambda function: (
            lambda rewards, values, terminals, gamma, gae_lambda: function(
                values, rewards, terminals, np.ones_like(values), np.zeros_like(values), gamma, gae_lambda, 1.0, 1.0
            )
        ),
    ),
    "rl_games": Peer(
        compat.rl_games.discount_values,
        GAE,
        ["advantages"],
        adapted=lambda function: (
            lambda next_done, last_values, starts, values, rewards, gamma, tau: function(
                next_done, last_values[:, None], starts, values[..., None], rewards[..., None], gamma=gamma, tau=tau
            )[..., 0]
        ),
    ),
    "rlax": Peer(
        compat.rlax.truncated_generalized_advantage_estimation,
        "fastgae.gae(rewards, values, terminated, gamma=gamma, gae_lambda=gae_lambda)",
        ["advantages"],
    ),
    "rlax lambda_returns": Peer(
        compat.rlax.lambda_returns,
        "fastgae.gae(rewards, np.concatenate([next_values[:1], next_values[:-1]]), terminated, "
        "next_values=next_values, gamma=gamma, gae_lambda=gae_lambda)",
        ["returns"],
    ),
    "rllib": Peer(
        compat.rllib.compute_value_targets,
        "fastgae.gae(rewards, values, terminated, truncated, next_values=np.concatenate([values[1:], "
        f"0 * values[0][np.newaxis]]), {GIVEN})",
        ["returns"],
        "value_of_the_reset_observation last_values_missing",
    ),
    "rsl_rl": Peer(compat.rsl_rl.compute_returns, GAE, ["returns", BESSEL]),
    "sample_factory": Peer(
        compat.sample_factory.gae_advantages,
        "fastgae.reverse_scan((((rewards * mask) + gamma * np.where(terminated, 0, np.concatenate([(values[:-1] * "
        "mask)[1:], (values[-1] * mask[-1])[np.newaxis]]))) - (values[:-1] * mask)), np.where(terminated, 0, "
        "np.where(mask, gamma * gae_lambda, 1)).astype(rewards.dtype))",
        ["advantages"],
        adapted=_sample_factory,
    ),
    "skrl": Peer(compat.skrl.compute_gae, GAE, ["returns", BESSEL], "truncation_ignored", _skrl),
    "skrl time_limit_bootstrap": Peer(
        compat.skrl.compute_gae,
        f"fastgae.gae(rewards, values, terminated | truncated, last_values=last_values, {GIVEN})",
        ["returns", BESSEL],
        "truncation_as_termination",
        lambda function: _skrl(function, time_limit_bootstrap=True),
    ),
    "tianshou": Peer(
        compat.tianshou._gae,
        f"fastgae.gae(rewards, values, (terminated & False), terminated, next_values=next_values, {GIVEN})",
        ["advantages"],
        "bootstrap_at_termination",
    ),
    "torchrl": Peer(
        compat.torchrl.generalized_advantage_estimate,
        f"fastgae.gae(rewards, values, terminated, truncated, next_values=next_values, {GIVEN})",
        ["advantages", "returns"],
    ),
    "trl": Peer(compat.trl.compute_advantages, OF_ZEROS, ["values", BESSEL, "returns"]),
    "verl": Peer(
        compat.verl.compute_gae_advantage_return,
        f"fastgae.gae(rewards, values, terminated=None, last_values=0.0, mask=mask, {GIVEN}, time_axis=1)",
        [BESSEL, "returns"],
    ),
}
