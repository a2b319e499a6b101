"""The pictures of docs/figures and the numbers behind them: PPO of ppo_cleanrl_style.py over seeds.

Every run is evaluated as it goes on: ten fresh episodes of the environment with its own time limit.
"""

import argparse
import contextlib
import csv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import gymnasium
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from ppo_cleanrl_style import Agent, Settings, make_envs, train

from fastgae.compat.gymnasium import collect

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
DATA = FIGURES / "data" / "runs.csv"
CARTPOLE = Settings()
PENDULUM = Settings(
    env_id="Pendulum-v1", total_steps=200_000, num_envs=16, num_steps=128, gamma=0.9, epochs=10, minibatches=32
)
SHORT = replace(CARTPOLE, max_episode_steps=50, gamma=0.99)
EXPERIMENTS = {
    "CartPole-v1": CARTPOLE,
    "CartPole-v1, cut at 50, right": SHORT,
    "CartPole-v1, cut at 50, as-termination": replace(SHORT, truncation="as-termination"),
    "Pendulum-v1": PENDULUM,
    "Pendulum-v1, as-termination": replace(PENDULUM, truncation="as-termination"),
}
POINTS = 25  # of each curve
# Neither black nor white, to be read on both; the colours are of Okabe and Ito.
INK, BLUE, VERMILION = "#808080", "#0072B2", "#D55E00"


class Point(NamedTuple):
    """A row of runs.csv."""

    experiment: str
    seed: int
    step: int
    training: float  # mean return of the last 100 episodes of training
    evaluation: float  # mean return of ten fresh episodes, not cut before the environment's own limit
    value: float  # what the critic says of their first observations, in the mean
    discounted: float  # and the discounted return that came


def run(experiment: str, seed: int) -> Iterator[Point]:
    settings = replace(EXPERIMENTS[experiment], seed=seed)
    fresh = replace(settings, max_episode_steps=None, num_envs=10, autoreset="same_step")
    spacing, following = settings.total_steps // POINTS, 0
    with contextlib.closing(make_envs(fresh)) as envs:
        for log, agent in train(settings):
            if log.step >= min(following, settings.total_steps):
                following += spacing
                yield Point(experiment, seed, log.step, log.mean_return, *evaluated(agent, envs, settings.gamma))


def evaluated(agent: Agent, envs: gymnasium.vector.VectorEnv, gamma: float) -> tuple[float, float, float]:
    """Means over the first episodes of the environments: return, V of the first observation, discounted return."""
    steps = gymnasium.spec(envs.spec.id).max_episode_steps
    with torch.random.fork_rng():  # training is what it would be without
        torch.manual_seed(0)
        rollout = next(collect(envs, agent.act, steps, seed=10_000))
    ended = np.logical_or.accumulate(rollout.terminated | rollout.truncated)
    rewards = rollout.rewards * np.vstack([np.ones_like(ended[:1]), ~ended[:-1]])
    discounts = gamma ** np.arange(steps)
    return rewards.sum(0).mean(), agent.value(rollout.observations[0]).mean(), (discounts @ rewards).mean()


def train_all(seeds: int) -> None:
    DATA.parent.mkdir(parents=True, exist_ok=True)
    with DATA.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Point._fields)
        for seed in range(seeds):
            for experiment in EXPERIMENTS:
                points = list(run(experiment, seed))
                writer.writerows(
                    [f"{each:.6g}" if isinstance(each, float | np.floating) else each for each in p] for p in points
                )
                file.flush()
                print(*points[-1], sep="  ", flush=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Train what the pictures show, and draw them; about an hour on one core."
    )
    parser.add_argument("--seeds", type=int, default=8, help="runs of each experiment (default: %(default)s)")
    parser.add_argument("--draw", action="store_true", help="train nothing: draw the numbers that are there")
    return parser.parse_args()


if __name__ == "__main__":
    arguments = parse()
    torch.set_num_threads(1)  # the networks are too small to share
    if not arguments.draw:
        train_all(arguments.seeds)
