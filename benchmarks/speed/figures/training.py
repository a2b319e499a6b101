"""The share of GAE in training: Stable-Baselines3's own PPO, timed while it learns, with fastgae run beside its GAE."""

import statistics
import time
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, NamedTuple

from speed.machine import describe_machine
from speed.text import duration, markdown


class Setting(NamedTuple):
    """A run of PPO with Stable-Baselines3's defaults and these settings."""

    name: str
    env: str
    envs: int
    steps: int
    settings: Mapping[str, Any]
    rollouts: int


SETTINGS = (
    Setting("defaults, 1 env", "CartPole-v1", 1, 2048, {}, 3),
    Setting("8 envs", "CartPole-v1", 8, 1024, {"batch_size": 256}, 2),
    Setting("64 envs, one epoch, large batches", "CartPole-v1", 64, 512, {"batch_size": 4096, "n_epochs": 1}, 3),
)


def measure() -> dict[str, Any]:
    import torch

    names = ("stable-baselines3", "torch", "gymnasium")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # two threads would wait for each other on such small networks
    try:
        rows = [learn(setting) for setting in SETTINGS]
    finally:
        torch.set_num_threads(threads)
    return {"machine": describe_machine() | {name: version(name) for name in names}, "rows": rows}


def learn(setting: Setting) -> dict[str, Any]:
    """Return the seconds of a rollout and its training without GAE, and of their and our GAE on the same rollouts."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.buffers import RolloutBuffer
    from stable_baselines3.common.env_util import make_vec_env

    from fastgae.compat.stable_baselines3 import compute_returns_and_advantage as ours

    spent: list[tuple[float, float]] = []

    class Buffer(RolloutBuffer):
        def compute_returns_and_advantage(self, last_values: Any, dones: Any) -> None:
            begin = time.perf_counter()
            super().compute_returns_and_advantage(last_values, dones)
            between, right = time.perf_counter(), self.advantages.copy()
            restart = time.perf_counter()
            ours(self, last_values, dones)
            spent.append((between - begin, time.perf_counter() - restart))
            assert (self.advantages == right).all()

    environments = make_vec_env(setting.env, setting.envs, seed=0)
    settings = {"n_steps": setting.steps, "rollout_buffer_class": Buffer, **setting.settings}
    model = PPO("MlpPolicy", environments, seed=0, device="cpu", **settings)
    begin = time.perf_counter()
    model.learn(setting.steps * setting.envs * setting.rollouts)
    rest = time.perf_counter() - begin - sum(map(sum, spent))
    theirs_seconds, our_seconds = map(statistics.median, zip(*spent, strict=True))
    return {
        "name": f"{setting.env}, {setting.name}",
        "steps": setting.steps,
        "envs": setting.envs,
        "rest_seconds": rest / setting.rollouts,
        "their_seconds": theirs_seconds,
        "our_seconds": our_seconds,
    }


def table(measured: Mapping[str, Any]) -> str:
    """Write the seconds per rollout and its training as Markdown."""
    rows = []
    for row in measured["rows"]:
        cells = [row["name"], f"{row['steps']}×{row['envs']}", f"{row['rest_seconds']:.2f} s"]
        for seconds in (row["their_seconds"], row["our_seconds"]):
            cells += [duration(seconds), f"{seconds / (seconds + row['rest_seconds']):.3%}"]
        rows.append(cells)
    headings = "PPO of Stable-Baselines3", "rollout", "all else per rollout", "its own GAE", "share", "fastgae", "share"
    return markdown(headings, rows, left=2)
