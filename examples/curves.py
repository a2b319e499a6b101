"""Train the PPO of ppo_cleanrl_style.py with several seeds, and write the numbers and pictures of docs/curves.

Every run is evaluated during training, on ten fresh episodes of the environment with its own time limit.
"""

import argparse
import contextlib
import csv
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import gymnasium
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from fastgae._support.pictures import BLUE, INK, NOTE, VERMILION, new_figure, style, svg
from fastgae.compat.gymnasium import collect
from ppo_cleanrl_style import Agent, Settings, make_envs, train

CURVES = Path(__file__).parents[1] / "docs" / "curves"
DATA = CURVES / "runs.csv"
CARTPOLE = Settings()
PENDULUM = Settings(env_id="Pendulum-v1", total_steps=200_000, num_envs=16, num_steps=128, gamma=0.9, minibatches=32)
CUT_AT_50, CUT_AT_200 = (replace(CARTPOLE, max_episode_steps=limit, gamma=0.99) for limit in (50, 200))
EXPERIMENTS = {
    "CartPole-v1": CARTPOLE,
    "CartPole-v1, cut at 50, right": CUT_AT_50,
    "CartPole-v1, cut at 50, as-termination": replace(CUT_AT_50, truncation="as-termination"),
    "CartPole-v1, cut at 200, right": CUT_AT_200,
    "CartPole-v1, cut at 200, as-termination": replace(CUT_AT_200, truncation="as-termination"),
    "Pendulum-v1": PENDULUM,
    "Pendulum-v1, as-termination": replace(PENDULUM, truncation="as-termination"),
}
TRUNCATION = {
    "CartPole-v1, cut at 200": ("CartPole-v1, cut at 200, right", "CartPole-v1, cut at 200, as-termination"),
    "Pendulum-v1, cut at 200 as always": ("Pendulum-v1", "Pendulum-v1, as-termination"),
    "CartPole-v1, cut at 50": ("CartPole-v1, cut at 50, right", "CartPole-v1, cut at 50, as-termination"),
}
POINTS = 25  # of each curve


class Point(NamedTuple):
    """A row of runs.csv."""

    experiment: str
    seed: int
    step: int
    training: float  # mean return of the last 100 episodes of training
    evaluation: float  # mean return of ten fresh episodes, not cut before the environment's own limit
    value: float  # mean V of the first observations of these episodes
    discounted: float  # mean discounted return of these episodes


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
    """Return means over the first episode of each environment: return, V at its start, discounted return."""
    steps = None if envs.spec is None else gymnasium.spec(envs.spec.id).max_episode_steps
    if steps is None:
        raise ValueError("the environment has no limit, so its first episode may never end")
    with torch.random.fork_rng():  # evaluation must not change the random numbers of training
        torch.manual_seed(0)
        rollout = next(collect(envs, agent.act, steps, seed=10_000))
    ended = np.logical_or.accumulate(rollout.terminated | rollout.truncated)
    rewards = rollout.rewards * np.vstack([np.ones_like(ended[:1]), ~ended[:-1]])
    discounts = gamma ** np.arange(steps)
    return rewards.sum(0).mean(), agent.value(rollout.observations[0]).mean(), (discounts @ rewards).mean()


def train_all(seeds: int) -> None:
    DATA.parent.mkdir(parents=True, exist_ok=True)
    new = DATA.with_suffix(".new")
    with new.open("w", newline="", encoding="utf-8") as file:
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
    new.replace(DATA)


def curves_of(experiment: str, quantity: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the steps, and the values with a column for each seed."""
    with DATA.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["experiment"] == experiment]
    seeds = sorted({row["seed"] for row in rows}, key=int)
    values = [[float(row[quantity]) for row in rows if row["seed"] == seed] for seed in seeds]
    # Under NEXT_STEP, seeds are evaluated after numbers of steps that differ slightly.
    steps = [[float(row["step"]) for row in rows if row["seed"] == seed] for seed in seeds]
    return np.mean(steps, 0), np.transpose(values)


def plot(axes: Axes, steps: np.ndarray, values: np.ndarray, color: str, label: str) -> None:
    axes.plot(steps, values, color=color, linewidth=0.8, alpha=0.5)
    axes.plot(steps, values.mean(1), color=color, linewidth=2.2, label=label)


def panels_of(figure: Figure, rows: int, titles: Collection[str]) -> np.ndarray:
    panels = figure.subplots(rows, len(titles), squeeze=False, sharex="col")
    for panel in panels.flat:
        style(panel, "both")
        panel.xaxis.set_major_formatter(EngFormatter(sep=""))
    for panel, title in zip(panels[0], titles, strict=True):
        panel.set_title(title, fontsize=11)
    for panel in panels[-1]:
        panel.set_xlabel("steps of training")
    return panels


def draw_learning_curves(figure: Figure) -> None:
    experiments = ("CartPole-v1", "Pendulum-v1")
    ((cartpole, pendulum),) = panels_of(figure, 1, experiments)
    for panel, experiment in zip((cartpole, pendulum), experiments, strict=True):
        plot(panel, *curves_of(experiment, "training"), BLUE, "mean of the seeds")
    cartpole.axhline(475, color=VERMILION, linewidth=1.2, linestyle="--", label="475")
    cartpole.set_ylabel("mean return of the last 100 episodes")
    cartpole.legend(loc="lower right", frameon=False, labelcolor=INK)


def draw_truncation(figure: Figure) -> None:
    panels = panels_of(figure, 2, TRUNCATION)
    for column, experiments in zip(panels.T, TRUNCATION.values(), strict=True):
        for experiment, color, label in zip(experiments, (BLUE, VERMILION), ("correct", "as termination"), strict=True):
            steps, returns = curves_of(experiment, "evaluation")
            plot(column[0], steps, returns, color, label)
            errors = curves_of(experiment, "value")[1] - curves_of(experiment, "discounted")[1]
            plot(column[1], steps, errors, color, label)
        column[1].axhline(0, color=NOTE, linewidth=0.8)
    panels[0, 0].set_ylabel("return of fresh, uncut episodes")
    panels[1, 0].set_ylabel("V(first observation) minus\nthe discounted return that came")
    panels[0, 2].legend(loc="lower right", frameon=False, title="truncation")


def draw_all() -> None:
    for name, draw, size in (
        ("learning_curves", draw_learning_curves, (9, 3.6)),
        ("truncation", draw_truncation, (11, 6)),
    ):
        figure = new_figure(*size)
        draw(figure)
        (CURVES / f"{name}.svg").write_bytes(svg(figure))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Train what the pictures show, and draw them; about an hour on one core."
    )
    parser.add_argument("--seeds", type=int, default=8, help="runs of each experiment (default: %(default)s)")
    parser.add_argument("--draw", action="store_true", help="train nothing: draw the numbers that are there")
    given = parser.parse_args()
    if given.seeds < 1:
        parser.error("--seeds must be at least 1")
    return given


if __name__ == "__main__":
    arguments = parse()
    torch.set_num_threads(1)  # the networks are too small for threads to pay
    if not arguments.draw:
        train_all(arguments.seeds)
    draw_all()
