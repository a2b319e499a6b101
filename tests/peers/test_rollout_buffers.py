"""Stable-Baselines3 with its own rollout buffers and with fastgae's: a seeded run ends in the same weights."""

import pickle

import gymnasium
import numpy as np
import pytest

pytest.importorskip("stable_baselines3")
import torch
from stable_baselines3 import A2C, PPO
from stable_baselines3.common import buffers

from fastgae.compat import stable_baselines3 as compat

NAMES = ("RolloutBuffer", "DictRolloutBuffer")


class AsDict(gymnasium.ObservationWrapper):
    """Observations in two parts."""

    def __init__(self, env):
        super().__init__(env)
        half = gymnasium.spaces.Box(-np.inf, np.inf, (env.observation_space.shape[0] // 2,))
        self.observation_space = gymnasium.spaces.Dict(first=half, second=half)

    def observation(self, observation):
        first, second = np.split(observation, 2)
        return {"first": first, "second": second}


def make_env():
    # A short limit, so that episodes are truncated as well.
    return gymnasium.make("CartPole-v1", max_episode_steps=30)


def learned(algorithm, policy, env, buffer_class, steps=2048, **settings):
    torch.set_num_threads(1)  # the networks are too small to share
    model = algorithm(policy, env, rollout_buffer_class=buffer_class, seed=3, device="cpu", **settings)
    return model.learn(steps)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("algorithm", "settings"), [(PPO, {"n_steps": 512, "n_epochs": 2}), (A2C, {"steps": 256})], ids=["PPO", "A2C"]
)
def test_the_same_weights(name, algorithm, settings):
    of_dict = name == "DictRolloutBuffer"
    policy = "MultiInputPolicy" if of_dict else "MlpPolicy"
    before, after = (
        learned(algorithm, policy, AsDict(make_env()) if of_dict else make_env(), getattr(module, name), **settings)
        for module in (buffers, compat)
    )

    assert type(after.rollout_buffer) is getattr(compat, name)
    pairs = zip(before.policy.state_dict().items(), after.policy.state_dict().items(), strict=True)
    for (parameter, theirs), (same_parameter, ours) in pairs:
        assert parameter == same_parameter
        assert theirs.numpy().tobytes() == ours.numpy().tobytes(), parameter
    for array in ("advantages", "returns"):
        theirs, ours = (getattr(model.rollout_buffer, array) for model in (before, after))
        assert theirs.dtype == ours.dtype
        assert theirs.tobytes() == ours.tobytes(), array


@pytest.mark.parametrize("name", NAMES)
def test_fastgae_computes_the_advantages(name):
    assert getattr(compat, name).compute_returns_and_advantage is compat.compute_returns_and_advantage


@pytest.mark.parametrize("name", NAMES)
def test_one_class_that_pickle_finds(name):
    buffer_class = getattr(compat, name)
    assert buffer_class is getattr(compat, name)
    assert issubclass(buffer_class, getattr(buffers, name))
    assert pickle.loads(pickle.dumps(buffer_class)) is buffer_class
    assert buffer_class.__name__ == name
    assert "fastgae" in buffer_class.__doc__


def test_a_saved_model_goes_on(tmp_path):
    model = learned(PPO, "MlpPolicy", make_env(), compat.RolloutBuffer, 64, n_steps=64)
    model.save(tmp_path / "model.zip")
    loaded = PPO.load(tmp_path / "model.zip", env=make_env(), device="cpu")
    assert type(loaded.rollout_buffer) is compat.RolloutBuffer


@pytest.mark.parametrize("name", ["RecurrentPPO", "MaskablePPO"])
def test_sb3_contrib(name, monkeypatch):
    """They choose their buffers themselves, which inherit the method that install() replaces."""
    contrib = pytest.importorskip("sb3_contrib")
    from sb3_contrib.common.envs import InvalidActionEnvDiscrete

    policy, env = {
        "RecurrentPPO": ("MlpLstmPolicy", make_env()),
        "MaskablePPO": ("MlpPolicy", InvalidActionEnvDiscrete(dim=4)),
    }[name]
    calls = []
    gae = compat.gae
    monkeypatch.setattr(compat, "gae", lambda *given, **named: calls.append(1) or gae(*given, **named))

    def weights():
        torch.set_num_threads(1)
        settings = {"n_steps": 32, "batch_size": 16, "n_epochs": 1, "seed": 3, "device": "cpu"}
        model = getattr(contrib, name)(policy, env, **settings).learn(128)
        return [parameter.detach().numpy().tobytes() for parameter in model.policy.parameters()]

    before = weights()
    assert not calls
    with compat.install():
        assert weights() == before
    assert len(calls) == 4
