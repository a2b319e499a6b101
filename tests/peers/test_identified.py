"""fastgae.testing names the convention of each peer's own function."""

import importlib
import warnings
from importlib.metadata import PackageNotFoundError

import numpy as np
import pytest

from fastgae.testing import identify
from support.identified import DONE, PEERS


def imported(module, name):
    return lambda: getattr(importlib.import_module(module), name)


def of_peer(name, *given):
    """Return a function that calls ``theirs`` of the peer's module in this folder."""
    return lambda: importlib.import_module(f".peer_{name}", __package__).theirs(*given)


THEIRS = {
    "brax": imported("brax.training.agents.ppo.losses", "compute_gae"),
    "labml": of_peer("labml"),
    "openrlhf": of_peer("openrlhf"),
    "rl_games": of_peer("rl_games", "discount_values"),
    "rlax": imported("rlax", "truncated_generalized_advantage_estimation"),
    "rlax lambda_returns": imported("rlax", "lambda_returns"),
    "rllib": of_peer("rllib"),
    "rsl_rl": of_peer("rsl_rl"),
    "sample_factory": of_peer("sample_factory"),
    "skrl": of_peer("skrl"),
    "skrl time_limit_bootstrap": of_peer("skrl"),
    "tianshou": imported("tianshou.algorithm.algorithm_base", "_gae"),
    "torchrl": imported("torchrl.objectives.value.functional", "generalized_advantage_estimate"),
    "trl": of_peer("trl"),
    "verl": of_peer("verl", "compute_gae_advantage_return"),
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
