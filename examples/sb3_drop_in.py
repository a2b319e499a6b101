"""Train Stable-Baselines3's PPO with its own rollout buffer and with fastgae's, and compare the weights and times."""

import argparse
import contextlib
import statistics
import time
from typing import Any, NamedTuple

import gymnasium
import torch
from stable_baselines3 import PPO
from stable_baselines3.common import buffers
from stable_baselines3.common.env_util import make_vec_env

from fastgae.compat.stable_baselines3 import DictRolloutBuffer, RolloutBuffer

EXAMPLES = """\
examples:
  python sb3_drop_in.py                                   CartPole-v1, 50,000 steps, twice
  python sb3_drop_in.py --env-id Pendulum-v1 --num-envs 8 --total-steps 20000
"""


class Run(NamedTuple):
    weights: dict[str, torch.Tensor]
    seconds: float  # of the whole run
    advantages: list[float]  # seconds of each computation of advantages


def train(settings: argparse.Namespace, buffer_class: type[buffers.RolloutBuffer]) -> Run:
    seconds = []

    class Timed(buffer_class):  # type: ignore[valid-type,misc]
        def compute_returns_and_advantage(self, *arguments: Any, **keywords: Any) -> None:
            start = time.perf_counter()
            super().compute_returns_and_advantage(*arguments, **keywords)
            seconds.append(time.perf_counter() - start)

    with contextlib.closing(make_vec_env(settings.env_id, settings.num_envs, seed=settings.seed)) as envs:
        policy = "MultiInputPolicy" if isinstance(envs.observation_space, gymnasium.spaces.Dict) else "MlpPolicy"
        model = PPO(policy, envs, rollout_buffer_class=Timed, seed=settings.seed, device="cpu")  # the line to change
        start = time.perf_counter()
        model.learn(settings.total_steps)
        return Run(model.policy.state_dict(), time.perf_counter() - start, seconds)


def same_weights(one: Run, other: Run) -> bool:
    pairs = zip(one.weights.items(), other.weights.items(), strict=True)
    # Compare bytes, because as bytes NaN equals itself, and 0.0 differs from -0.0.
    return all(a == b and x.numpy().tobytes() == y.numpy().tobytes() for (a, x), (b, y) in pairs)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--env-id", default="CartPole-v1", help="Gymnasium environment (default: %(default)s)")
    add("--total-steps", type=int, default=50_000, help="steps to train for (default: %(default)s)")
    add("--num-envs", type=int, default=1, help="environments (default: %(default)s)")
    add("--seed", type=int, default=0, help="seed of everything (default: %(default)s)")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    settings = parse(arguments)
    torch.set_num_threads(1)  # the networks are too small for threads to pay
    with contextlib.closing(gymnasium.make(settings.env_id)) as env:
        is_dict = isinstance(env.observation_space, gymnasium.spaces.Dict)
    theirs, ours = (buffers.DictRolloutBuffer, DictRolloutBuffer) if is_dict else (buffers.RolloutBuffer, RolloutBuffer)
    runs = {"stable_baselines3": train(settings, theirs), "fastgae": train(settings, ours)}
    print(f"PPO on {settings.env_id}, {settings.total_steps:,} steps, {settings.num_envs} envs, seed {settings.seed}")
    for name, run in runs.items():
        total = sum(run.advantages)
        print(
            f"{name:18} {run.seconds:6.1f} s, of which {total:.4f} s ({total / run.seconds:.3%}) for advantages:"
            f" {len(run.advantages)} times, in the median {1e3 * statistics.median(run.advantages):.3f} ms"
        )
    same = same_weights(*runs.values())
    print(f"weights: {'the same bits' if same else 'NOT the same'}")
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(main())
