"""The demo: what it compares and shows, and what becomes of bad options."""

import json
import os
import sys
from importlib.util import find_spec
from itertools import cycle

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.envs.registration import EnvSpec

import fastgae
from fastgae.cli import demo, rollout


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1"])
def test_demo_compares_every_backend(env_id, ran, collected):
    output = ran("demo", "--env", env_id, "--num-envs", 4, "--num-steps", 256).out
    assert demo.verdict(demo.variants(), {}) in output
    rows = [line.split()[1:3] for line in output.splitlines() if line.endswith(" x │")]
    assert [name for name, _ in rows] == demo.variants()
    assert [name for name, mark in rows if mark == "(default)"] == [demo.default_variant()]
    data = collected(env_id, 4, 256)
    terminated, truncated = data.terminated.sum(), data.truncated.sum()
    assert f"{terminated + truncated}: {terminated} terminated, {truncated} truncated" in output
    assert terminated + truncated > 0
    for backend in fastgae.backends():
        missing = backend.device == "CPU" and not backend.available
        assert (f"{backend.name} cannot run here: " in output) is missing


def test_demo_as_json(ran, collected):
    facts = json.loads(ran("demo", "--num-envs", 2, "--num-steps", 64, "--json").out)
    assert facts["terminated"] == collected("CartPole-v1", 2, 64).terminated.sum() > 0
    assert [each["name"] for each in facts["backends"]] == demo.variants()
    assert facts["default"] in demo.variants()
    assert 0 < facts["explained_variance"] < 1
    assert (facts["rewards_not_finite"], facts["different"]) == (0, {})


def test_demo_says_what_rewards_are_not_finite(ran, tmp_path, monkeypatch):
    plot, bad = ["--plot", str(tmp_path / "bad.png")] if find_spec("matplotlib") else [], cycle([np.nan, np.inf])

    class Bad(CartPoleEnv):
        def step(self, action):
            observation, reward, terminated, _, info = super().step(action)
            return observation, next(bad) if terminated else reward, terminated, terminated, info  # which is one end

    monkeypatch.setitem(gymnasium.registry, "Bad-v0", EnvSpec("Bad-v0", Bad, max_episode_steps=200))
    output = ran("demo", "--env", "Bad-v0", "--num-steps", 64, *plot).out
    ends = int(output.partition("episode ends")[2].split()[0].rstrip(":"))
    assert f"rewards         {ends} of 512 are NaN or infinite" in output
    assert "value function  0 everywhere" in output
    assert demo.verdict(demo.variants(), {}) in output


def test_demo_fails_where_a_backend_disagrees(monkeypatch, ran):
    right = fastgae.gae
    monkeypatch.setattr(demo, "variants", lambda: ["wrong", "numpy"])

    def gae(*args, backend, **kwargs):
        assert (kwargs["gamma"], kwargs["gae_lambda"]) == (0.5, 0.25)
        result = right(*args, **kwargs, backend="numpy")
        if backend == "wrong":
            result.returns[3, 1] = np.nextafter(result.returns[3, 1], np.float32(np.inf))
        return result

    monkeypatch.setattr(fastgae, "gae", gae)
    options = ["--num-envs", 2, "--num-steps", 16, "--gamma", 0.5, "--gae-lambda", 0.25]
    assert "NOT the same bits as numpy: wrong (1 numbers)" in ran("demo", *options, status=1).out


@pytest.mark.filterwarnings("ignore")
def test_bad_options_end_in_one_line_before_any_work(tmp_path, monkeypatch, failure):
    def too_late(*_):
        raise AssertionError("the rollout was collected before the options were checked")

    class Words(gymnasium.Env):
        observation_space = gymnasium.spaces.Sequence(gymnasium.spaces.Discrete(3))
        action_space = gymnasium.spaces.Discrete(2)

    class Answers(gymnasium.Env):
        observation_space = gymnasium.spaces.Discrete(2)
        action_space = gymnasium.spaces.Text(4)

    monkeypatch.setattr(rollout, "collect", too_late)
    monkeypatch.setitem(gymnasium.registry, "Words-v0", EnvSpec("Words-v0", Words))
    monkeypatch.setitem(gymnasium.registry, "Answers-v0", EnvSpec("Answers-v0", Answers))
    (tmp_path / "directory.png").mkdir()
    for options, *words in (
        ("--env NoSuchThing-v1", "--env", "NoSuchThing"),
        ("--env no_such_module:CartPole-v1", "--env", "no_such_module"),
        ("--env Words-v0", "--env", "single_observation_space must have arrays of fixed shapes"),
        ("--env Answers-v0", "--env", "single_action_space must have arrays of fixed shapes"),
        ("--num-steps -1", "--num-steps", "positive integer", "'-1'"),
        ("--seed -1", "--seed", "0 or more", "'-1'"),
        ("--gamma 1.5", "--gamma", "[0, 1]", "'1.5'"),
        ("--gae-lambda nan", "--gae-lambda", "[0, 1]", "'nan'"),
        (f"--plot {tmp_path}/rollout.bmp", "--plot", ".png", "rollout.bmp"),
        (f"--plot {tmp_path}/missing/rollout.png", "--plot", "missing"),
        (f"--plot {tmp_path}/directory.png", "--plot", "directory.png", "not writable"),
        *[(f"--plot {tmp_path}/{'a' * 300}.png", "--plot", "a.png")] * (os.name == "posix"),  # others may say it late
        ("--no-such-option", "--no-such-option"),
    ):
        message = failure("demo", *options.split())
        assert all(word in message for word in words), message
    assert list(tmp_path.iterdir()) == [tmp_path / "directory.png"]


def test_a_picture_that_cannot_be_written(tmp_path, monkeypatch, failure):
    def full(*_):
        raise OSError(28, "No space left on device")

    pytest.importorskip("matplotlib")
    monkeypatch.setattr("fastgae.cli.plot.draw", full)
    assert "argument --plot: cannot write" in failure("demo", "--num-steps", 4, "--plot", tmp_path / "a.png")


def test_what_is_missing_and_settings_that_cannot_be_used(monkeypatch, failure):
    for package, options in (("gymnasium", []), ("rich", []), ("matplotlib", ["--plot", "x.png"])):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, package, None)
            message = failure("demo", *options, status=1)
        assert package in message
        assert "pip install '.[demo]'" in message
    for setting in ("FASTGAE_NUM_THREADS", "FASTGAE_BACKEND", "FASTGAE_RECYCLE"):
        with monkeypatch.context() as patch:
            patch.setitem(fastgae._engine.dispatch.SETTINGS, setting, "lots")
            fastgae._engine.dispatch.recycle.cache_clear()
            message = failure("demo", status=1)
        assert setting in message
        assert "lots" in message
    for option, number in (("--num-steps", 10**14), ("--num-steps", 10**20), ("--num-envs", 10**400)):
        assert "not enough memory: the rewards alone would take" in failure("demo", option, number)
