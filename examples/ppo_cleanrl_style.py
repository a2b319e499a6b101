"""PPO in one file: vectorised Gymnasium environments, rollouts and advantages by fastgae, a network in PyTorch.

Copy it and change it. The parts, from top to bottom: Settings, Agent, train (the loop), update (the losses), and the
functions for the command line, the progress bar, the CSV file and the plot.
"""

import argparse
import contextlib
import csv
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box, Discrete, flatdim
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import ClipAction, FlattenObservation
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution, Independent, Normal

import fastgae
from fastgae.compat.gymnasium import Rollout, collect

EXAMPLES = """\
examples:
  python ppo_cleanrl_style.py                        CartPole-v1, to a mean return of 475 and more
  python ppo_cleanrl_style.py --autoreset same_step --seed 3 --csv cartpole.csv --plot cartpole.svg
  python ppo_cleanrl_style.py --env-id Pendulum-v1 --total-steps 200000 --num-envs 16 --num-steps 128
      --gamma 0.9 --minibatches 32
"""


def option(default: Any, description: str, **keywords: Any) -> Any:
    return field(default=default, metadata={"help": description, **keywords})


@dataclass(frozen=True)
class Settings:
    """The settings of training; each one is an option of the command line."""

    env_id: str = option("CartPole-v1", "Gymnasium environment with observations that can be flattened")
    max_episode_steps: int | None = option(None, "time limit in place of the environment's own", type=int)
    seed: int = option(0, "seed of everything")
    total_steps: int = option(100_000, "steps to train for, of all environments together")
    num_envs: int = option(8, "environments")
    num_steps: int = option(64, "steps of each environment between two updates")
    autoreset: str = option("next_step", "when environments reset", choices=("next_step", "same_step", "disabled"))
    truncation: str = option(
        "right", "treat a time limit as truncation (right), or as termination", choices=("right", "as-termination")
    )
    gamma: float = option(0.98, "discount")
    gae_lambda: float = option(0.9, "decay of the trace")
    learning_rate: float = option(1e-3, "Adam's step size at the start; it falls to 0 linearly")
    epochs: int = option(10, "passes over each rollout")
    minibatches: int = option(4, "minibatches in each pass")
    clip: float = option(0.2, "how far the ratio of probabilities may be from 1")
    value_weight: float = option(0.5, "weight of the value loss")
    entropy_weight: float = option(0.0, "weight of the entropy bonus")
    max_grad_norm: float = option(0.5, "gradients are clipped to this norm")


class Log(NamedTuple):
    """One update: a line of the CSV file."""

    step: int
    seconds: float
    episodes: int
    mean_return: float  # of the last 100 episodes; NaN before the first ends
    mean_length: float
    policy_loss: float
    value_loss: float
    entropy: float
    approximate_kl: float
    explained_variance: float


class Agent(nn.Module):
    """A policy and a critic, each with two hidden layers."""

    def __init__(self, envs: gymnasium.vector.VectorEnv) -> None:
        super().__init__()
        inputs, actions = flatdim(envs.single_observation_space), envs.single_action_space
        discrete = isinstance(actions, Discrete)
        if not discrete and not (isinstance(actions, Box) and len(actions.shape) == 1):
            raise ValueError(f"actions must be Discrete or a vector, got {actions}")
        outputs = flatdim(actions)
        self.policy = network(inputs, outputs, scale=0.01)
        self.critic = network(inputs, 1, scale=1.0)
        self.log_std = None if discrete else nn.Parameter(torch.zeros(outputs))

    def distribution(self, observations: Tensor) -> Distribution:
        outputs = self.policy(observations)
        if self.log_std is None:
            return Categorical(logits=outputs)
        return Independent(Normal(outputs, self.log_std.exp()), 1)

    @torch.no_grad()
    def act(self, observations: np.ndarray) -> np.ndarray:
        actions: np.ndarray = self.distribution(to_tensor(observations)).sample().numpy()
        return actions

    @torch.no_grad()
    def value(self, observations: np.ndarray) -> np.ndarray:
        values: np.ndarray = self.critic(to_tensor(observations)).numpy()
        return values


def network(inputs: int, outputs: int, scale: float) -> nn.Sequential:
    layers = [nn.Linear(inputs, 64), nn.Linear(64, 64), nn.Linear(64, outputs)]
    for layer, gain in zip(layers, (2**0.5, 2**0.5, scale), strict=True):
        nn.init.orthogonal_(layer.weight, gain)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])


def to_tensor(array: np.ndarray) -> Tensor:
    return torch.as_tensor(array, dtype=torch.float32)


def make_envs(settings: Settings) -> gymnasium.vector.VectorEnv:
    limit = {} if settings.max_episode_steps is None else {"max_episode_steps": settings.max_episode_steps}
    wrappers: list[Any] = [FlattenObservation]
    with contextlib.closing(gymnasium.make(settings.env_id)) as env:
        if isinstance(env.action_space, Box):
            wrappers.append(ClipAction)  # samples of a normal distribution have no bounds
    mode = AutoresetMode[settings.autoreset.upper()]
    return gymnasium.make_vec(
        settings.env_id, settings.num_envs, "sync", vector_kwargs={"autoreset_mode": mode}, wrappers=wrappers, **limit
    )


def train(settings: Settings) -> Iterator[tuple[Log, Agent]]:
    """Train by PPO; after each update, yield what to log, and the agent."""
    torch.manual_seed(settings.seed)
    start, step, episodes = time.perf_counter(), 0, 0
    last_returns: deque[float] = deque(maxlen=100)
    last_lengths: deque[int] = deque(maxlen=100)
    with contextlib.closing(make_envs(settings)) as envs:
        agent = Agent(envs)
        optimizer = torch.optim.Adam(agent.parameters(), eps=1e-5)
        for rollout in collect(envs, agent.act, settings.num_steps, seed=settings.seed):
            for group in optimizer.param_groups:
                group["lr"] = settings.learning_rate * (1 - step / settings.total_steps)
            losses = update(agent, optimizer, rollout, settings)

            step += int(rollout.valid.sum())
            episodes += len(rollout.episode_returns)
            last_returns.extend(rollout.episode_returns)
            last_lengths.extend(rollout.episode_lengths)
            means = [float(np.mean(last)) if last else float("nan") for last in (last_returns, last_lengths)]
            yield Log(step, time.perf_counter() - start, episodes, *means, *losses), agent
            if step >= settings.total_steps:
                return


def update(agent: Agent, optimizer: torch.optim.Optimizer, rollout: Rollout, settings: Settings) -> list[float]:
    """Pass over one rollout several times, and return the numbers from policy_loss on in Log."""
    arguments = rollout.arguments(agent.value)
    if settings.truncation == "as-termination":  # a mistake that is easily made, to see its effect
        arguments["terminated"] = arguments["terminated"] | arguments.pop("truncated")
        arguments.pop("final_values", None)
    computed = fastgae.gae(**arguments, gamma=settings.gamma, gae_lambda=settings.gae_lambda, normalize="global")
    valid = rollout.valid  # under NEXT_STEP, the row after an end is no step
    observations, actions = to_tensor(rollout.observations[valid]), torch.as_tensor(rollout.actions[valid])
    advantages, returns = (to_tensor(array[valid]) for array in computed)
    with torch.no_grad():
        old_log_probs = agent.distribution(observations).log_prob(actions)

    losses = []
    for _ in range(settings.epochs):
        for chosen in torch.randperm(len(actions)).chunk(settings.minibatches):
            distribution = agent.distribution(observations[chosen])
            log_ratio = distribution.log_prob(actions[chosen]) - old_log_probs[chosen]
            ratio, advantage = log_ratio.exp(), advantages[chosen]
            clipped = ratio.clamp(1 - settings.clip, 1 + settings.clip)
            policy_loss = -torch.min(ratio * advantage, clipped * advantage).mean()
            value_loss = 0.5 * (agent.critic(observations[chosen]).squeeze(-1) - returns[chosen]).square().mean()
            entropy = distribution.entropy().mean()

            optimizer.zero_grad()
            loss = policy_loss + settings.value_weight * value_loss - settings.entropy_weight * entropy
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), settings.max_grad_norm)
            optimizer.step()
            kl = (ratio - 1 - log_ratio).mean()
            losses.append([float(each.detach()) for each in (policy_loss, value_loss, entropy, kl)])

    targets, values = computed.returns[valid], arguments["values"][valid]
    explained = 1 - np.var(targets - values) / np.var(targets) if np.var(targets) > 0 else float("nan")
    return [*np.mean(losses, 0).tolist(), float(explained)]


def parse(arguments: list[str] | None = None) -> tuple[Settings, Path | None, Path | None]:
    """Return the settings, and the files for the log and the plot."""
    parser = argparse.ArgumentParser(
        description="Train PPO on a vectorised Gymnasium environment.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for each in fields(Settings):
        keywords = {"type": each.type, **each.metadata}
        keywords["help"] += " (default: %(default)s)"
        parser.add_argument("--" + each.name.replace("_", "-"), default=each.default, **keywords)
    parser.add_argument("--csv", type=Path, help="write the log to this file")
    parser.add_argument("--plot", type=Path, help="draw the learning curve to this file (.svg, .png, .pdf)")
    given = vars(parser.parse_args(arguments))
    for name in ("total_steps", "num_envs", "num_steps", "epochs", "minibatches"):
        if given[name] < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    for name in ("csv", "plot"):
        if given[name] and not given[name].parent.is_dir():
            parser.error(f"--{name}: there is no folder {given[name].parent}")
    return Settings(**{each.name: given.pop(each.name) for each in fields(Settings)}), *given.values()


@contextlib.contextmanager
def progress_bar(total: int) -> Iterator[Callable[[Log], None]]:
    """Show how far training is with rich's bar, if rich is installed and stderr is a terminal."""
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        yield lambda log: None
        return
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("training", total=total)
        yield lambda log: progress.update(task, completed=log.step, description=f"return {log.mean_return:8.1f}")


def write_csv(path: Path, logs: list[Log]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(Log._fields)
        writer.writerows([f"{number:.6g}" for number in log] for log in logs)


def draw(path: Path, title: str, logs: list[Log]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot([log.step for log in logs], [log.mean_return for log in logs])
    axes.set(xlabel="steps", ylabel="mean return of the last 100 episodes", title=title)
    axes.grid(alpha=0.3)
    figure.savefig(path)


def main(arguments: list[str] | None = None) -> None:
    settings, csv_file, plot_file = parse(arguments)
    torch.set_num_threads(1)  # the networks are too small for threads to pay
    logs = []
    with progress_bar(settings.total_steps) as show:
        for log, _ in train(settings):
            logs.append(log)
            show(log)
    if csv_file:
        write_csv(csv_file, logs)
    if plot_file:
        draw(plot_file, f"PPO on {settings.env_id}, seed {settings.seed}", logs)
    last, best = logs[-1], np.nanmax([log.mean_return for log in logs], initial=-np.inf)
    print(
        f"{settings.env_id}, seed {settings.seed}: {last.step:,} steps and {last.episodes:,} episodes"
        f" in {last.seconds:.0f} s; mean return of the last 100 episodes {last.mean_return:.1f}, at best {best:.1f}"
    )


if __name__ == "__main__":
    main()
