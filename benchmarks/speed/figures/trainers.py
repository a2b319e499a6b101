"""Print as JSON the times of hooks inside running trainers, whose networks push the code of the call out of the caches.

A trainer calls the library's own method and fastgae's in turn, on the rollouts of one training run, and the medians
count. Both give the same bits, which tests/peers asserts, so the training is the same.
"""

import contextlib
import io
import statistics
import time
from collections.abc import Callable, Iterator
from types import MethodType
from typing import Any

from .apart import print_rows

WARM = 4  # calls of each method that import, compile and allocate


class InTurn:
    """Two methods that are called in turn, and the seconds that each of them took."""

    def __init__(self, *methods: Callable[..., None]):
        self.methods = methods
        self.seconds: tuple[list[float], ...] = tuple([] for _ in methods)

    def __call__(self, *given: Any) -> None:
        which = sum(map(len, self.seconds)) % len(self.methods)
        begin = time.perf_counter()
        self.methods[which](*given)
        self.seconds[which].append(time.perf_counter() - begin)

    def row(self, library: str, call: str) -> dict[str, Any]:
        before, after = (statistics.median(seconds[WARM:]) for seconds in self.seconds)
        return {"library": library, "call": call, "before_seconds": before, "after_seconds": after}


def of_stable_baselines3(algorithm: str, steps: int, envs: int, calls: int) -> dict[str, Any]:
    import stable_baselines3
    from stable_baselines3.common.buffers import RolloutBuffer
    from stable_baselines3.common.env_util import make_vec_env

    from fastgae.compat.stable_baselines3 import compute_returns_and_advantage

    both = InTurn(RolloutBuffer.compute_returns_and_advantage, compute_returns_and_advantage)

    class Buffer(RolloutBuffer):
        def compute_returns_and_advantage(self, last_values: Any, dones: Any) -> None:
            both(self, last_values, dones)

    environments = make_vec_env("CartPole-v1", envs, seed=0)
    settings = {"n_steps": steps, "rollout_buffer_class": Buffer, "seed": 0, "device": "cpu"}
    getattr(stable_baselines3, algorithm)("MlpPolicy", environments, **settings).learn(steps * envs * calls)
    return both.row("stable_baselines3", f"{algorithm}, {steps} × {envs}")


def rsl_rl() -> Iterator[dict[str, Any]]:
    from rsl_rl.algorithms import PPO

    from fastgae.compat import rsl_rl as ours
    from peers.hook_rsl_rl import runner

    both, steps, envs = InTurn(PPO.compute_returns, ours.PPO.compute_returns), 24, 4096
    made = runner("PPO", steps, envs)
    made.alg.compute_returns = MethodType(lambda *given: both(*given), made.alg)
    with contextlib.redirect_stdout(io.StringIO()):  # it reports every iteration
        made.learn(32)
    yield both.row("rsl_rl", f"PPO.compute_returns, {steps} × {envs}, normalised")


def stable_baselines3() -> Iterator[dict[str, Any]]:
    yield of_stable_baselines3("A2C", steps=5, envs=8, calls=1200)
    yield of_stable_baselines3("PPO", steps=128, envs=4, calls=32)


if __name__ == "__main__":
    print_rows({"stable_baselines3": stable_baselines3, "rsl_rl": rsl_rl})
