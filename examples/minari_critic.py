"""Record random episodes with Minari, fit a critic to them, and write their advantages beside the data."""

import argparse
import contextlib
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import minari
import torch
from torch import nn
from tqdm import tqdm

import fastgae.data

EXAMPLES = """\
examples:
  python minari_critic.py recorded                                    Pendulum-v1, 20,000 steps
  python minari_critic.py recorded --env-id CartPole-v1 --data-format arrow
"""


def record(settings: argparse.Namespace) -> minari.MinariDataset:
    """Record episodes of random actions. The last one is cut off, which Minari flags as truncated."""
    os.environ["MINARI_DATASETS_PATH"] = str(settings.folder.absolute())  # Minari joins a relative one twice
    with (
        contextlib.closing(
            minari.DataCollector(gymnasium.make(settings.env_id), data_format=settings.data_format)
        ) as env,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # Minari asks for a description, an author and more
        env.action_space.seed(settings.seed)
        env.reset(seed=settings.seed)
        for _ in tqdm(range(settings.steps), "recording steps"):
            _, _, terminated, truncated, _ = env.step(env.action_space.sample())
            if terminated or truncated:
                env.reset()
        recorded: minari.MinariDataset = env.create_dataset(
            f"random/{settings.env_id.lower()}", algorithm_name="random"
        )
        return recorded


class Critic(nn.Module):
    """V(s) from a vector of observations."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(size, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        values: torch.Tensor = self.layers(observations).squeeze(-1)
        return values


def transitions(dataset: minari.MinariDataset) -> tuple[torch.Tensor, ...]:
    """Return observations, next observations, rewards and 1 - terminated of all steps."""
    columns: Iterator[tuple[torch.Tensor, ...]] = zip(
        *(
            (
                torch.tensor(episode.observations[:-1]),
                torch.tensor(episode.observations[1:]),
                torch.tensor(episode.rewards, dtype=torch.float32),
                1 - torch.tensor(episode.terminations, dtype=torch.float32),
            )
            for episode in dataset.iterate_episodes()
        ),
        strict=True,
    )
    return tuple(torch.cat(column) for column in columns)


def fit(critic: Critic, dataset: minari.MinariDataset, settings: argparse.Namespace) -> None:
    """Take TD(0) steps on batches of transitions."""
    observations, next_observations, rewards, goes_on = transitions(dataset)
    optimizer = torch.optim.Adam(critic.parameters(), 1e-3)
    for _ in tqdm(range(settings.updates), "fitting the critic"):
        batch = torch.randint(len(rewards), (256,))
        with torch.no_grad():
            target = rewards[batch] + settings.gamma * goes_on[batch] * critic(next_observations[batch])
        loss = nn.functional.mse_loss(critic(observations[batch]), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("folder", type=Path, help="where to write the dataset")
    add("--env-id", default="Pendulum-v1", help="Gymnasium environment with vectors as observations")
    add("--data-format", choices=("hdf5", "arrow"), default="hdf5", help="of Minari (default: %(default)s)")
    add("--steps", type=int, default=20_000, help="steps to record (default: %(default)s)")
    add("--updates", type=int, default=2000, help="of the critic (default: %(default)s)")
    add("--gamma", type=float, default=0.95, help="discount per step (default: %(default)s)")
    add("--seed", type=int, default=0)
    return parser.parse_args(arguments)


def main(settings: argparse.Namespace) -> fastgae.data.Report:
    torch.manual_seed(settings.seed)
    dataset = record(settings)
    critic = Critic(dataset.observation_space.shape[0])
    fit(critic, dataset, settings)

    @torch.no_grad()
    def values(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        of_all: torch.Tensor = critic(torch.as_tensor(batch["observations"]))
        return of_all

    folder = Path(dataset.spec.data_path).parent
    return fastgae.data.compute(folder, values=values, gamma=settings.gamma, gae_lambda=0.95)


if __name__ == "__main__":
    print(main(parse()))
