"""fastgae.testing names the convention of each peer's own function."""

import importlib
import warnings
from importlib.metadata import PackageNotFoundError
from types import SimpleNamespace

import numpy as np
import pytest

from fastgae.testing import identify
from support.identified import DONE, PEERS

from .installed import function


def imported(module, name):
    return lambda: getattr(importlib.import_module(module), name)


def in_file(peer, package, name, **modules):
    """Take a function out of the file that ``peer`` of this folder names; ``modules`` are what it refers to."""

    def found():
        names = {short: importlib.import_module(long) for short, long in modules.items()}
        return function(package, importlib.import_module(f".{peer}", __package__).FILE, name, **names)

    return found


def openrlhf():
    theirs = in_file("peer_openrlhf", "openrlhf", "get_advantages_and_returns", torch="torch")()
    return lambda values, rewards, action_mask, gamma, lambd: theirs(None, values, rewards, action_mask, gamma, lambd)


def rl_games():
    theirs = in_file("peer_rl_games", "rl-games", "discount_values", torch="torch")()

    def discount_values(*arrays, gamma, tau):
        return theirs(SimpleNamespace(gamma=gamma, tau=tau, horizon_length=len(arrays[-1])), *arrays)

    return discount_values


def rsl_rl():
    from .peer_rsl_rl import Critic

    theirs = in_file("peer_rsl_rl", "rsl-rl-lib", "compute_returns")()

    def compute_returns(rewards, values, dones, last_values, gamma, lam):
        import torch

        storage = SimpleNamespace(
            num_transitions_per_env=len(rewards),
            rewards=rewards,
            values=values,
            dones=dones,
            returns=torch.zeros_like(rewards),
        )
        names = {"gamma": gamma, "lam": lam, "normalize_advantage_per_mini_batch": False}
        theirs(SimpleNamespace(storage=storage, critic=Critic(), **names), last_values)
        return storage.returns, storage.advantages

    return compute_returns


def sample_factory():
    discounted_sum = in_file("peer_sample_factory", "sample-factory", "calculate_discounted_sum_torch", torch="torch")()
    from .peer_sample_factory import FILE

    return function("sample-factory", FILE, "gae_advantages", calculate_discounted_sum_torch=discounted_sum)


def trl():
    theirs = importlib.import_module(".peer_trl", __package__).theirs()

    def compute_advantages(values, rewards, mask, gamma, lam):
        config = SimpleNamespace(gamma=gamma, lam=lam, whiten_rewards=False)
        return theirs(SimpleNamespace(config=config), values, rewards, mask)

    return compute_advantages


THEIRS = {
    "brax": imported("brax.training.agents.ppo.losses", "compute_gae"),
    "labml": lambda: importlib.import_module(".peer_labml", __package__).theirs(),
    "openrlhf": openrlhf,
    "rl_games": rl_games,
    "rlax": imported("rlax", "truncated_generalized_advantage_estimation"),
    "rlax lambda_returns": imported("rlax", "lambda_returns"),
    "rllib": in_file("peer_rllib", "ray", "compute_value_targets", np="numpy"),
    "rsl_rl": rsl_rl,
    "sample_factory": sample_factory,
    "skrl": in_file("peer_skrl", "skrl", "compute_gae", torch="torch"),
    "skrl time_limit_bootstrap": in_file("peer_skrl", "skrl", "compute_gae", torch="torch"),
    "tianshou": imported("tianshou.algorithm.algorithm_base", "_gae"),
    "torchrl": imported("torchrl.objectives.value.functional", "generalized_advantage_estimate"),
    "trl": trl,
    "verl": lambda: importlib.import_module(".peer_verl", __package__).theirs("compute_gae_advantage_return"),
}


@pytest.mark.parametrize("name", THEIRS)
def test_their_own_function(name):
    peer = PEERS[name]
    with warnings.catch_warnings(action="ignore"):
        try:
            theirs = THEIRS[name]()
        except (ModuleNotFoundError, PackageNotFoundError) as missing:
            pytest.skip(f"{name} is not installed: {missing}")
        found = identify(peer.adapted(theirs), names=peer.names)
    assert [finding.detector for finding in found.findings] == peer.findings.split()
    assert found.call == peer.call
    assert [*found.outputs.values()] == peer.outputs
    assert found.error < 1e-5


def test_stable_baselines3():
    buffers = pytest.importorskip("stable_baselines3.common.buffers")
    import torch
    from gymnasium.spaces import Box

    def of_buffer(rewards, values, episode_starts, last_values, next_done, gamma, gae_lambda):
        space = Box(-1, 1)
        buffer = buffers.RolloutBuffer(len(rewards), space, space, "cpu", gae_lambda, gamma, n_envs=rewards.shape[1])
        buffer.rewards, buffer.values, buffer.episode_starts = rewards, values, episode_starts
        buffer.compute_returns_and_advantage(torch.from_numpy(last_values), next_done)
        return buffer.advantages, buffer.returns

    found = identify(of_buffer)
    assert (found.findings, found.call, found.error) == ((), DONE, 0.0)
    assert np.array_equal([*found.outputs.values()], ["advantages", "returns"])
