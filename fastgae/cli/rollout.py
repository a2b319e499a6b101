"""Collect a rollout from a vectorised Gymnasium environment, and fit a value function to it."""

from collections.abc import Callable, Iterable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.wrappers import FlattenObservation
from numpy.typing import NDArray

import fastgae
from fastgae.compat.gymnasium import Rollout
from fastgae.compat.gymnasium import collect as rollouts

Floats = NDArray[np.float32]


def make_envs(env_id: str, num_envs: int) -> VectorEnv[Any, Any, Any]:
    """Make environments whose observations are flat vectors."""
    envs = gymnasium.make_vec(
        env_id,
        num_envs=num_envs,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},  # every row is a real step
        wrappers=[FlattenObservation],
    )
    try:
        rollouts(envs, len, 1)  # refuses spaces without fixed shapes, before any step
    except ValueError:
        envs.close()
        raise
    return envs


def collect(
    envs: VectorEnv[Any, Any, Any], num_steps: int, seed: int, track: Callable[[Iterable[int]], Iterable[int]] = iter
) -> Rollout:
    """Follow the uniformly random policy; ``track`` wraps the loop to show its progress."""
    steps = iter(track(range(num_steps)))
    envs.action_space.seed(seed)

    def random_actions(observations: Floats) -> Any:
        next(steps)
        return envs.action_space.sample()

    rollout = next(rollouts(envs, random_actions, num_steps, seed=seed))
    next(steps, None)  # lets the progress bar reach its end
    return rollout


class ValueFunction:
    """V(s) = w . phi(s), phi(s) = (1, cos(W z + b)): random Fourier features of the standardised observation z.

    The features approximate a Gaussian kernel (Rahimi and Recht, "Random Features for Large-Scale Kernel Machines",
    2007) whose width is the typical distance between two observations.
    """

    num_features = 128
    ridge = 1e-2  # relative to the number of observations
    most_observations = 16_384  # enough to fit 129 weights; more would only take longer

    def __init__(self, observations: Floats, seed: int) -> None:
        flat = observations.reshape(-1, observations.shape[-1])
        dimensions = flat.shape[1]
        self._generator = np.random.default_rng(seed)
        self._mean = flat.mean(0, np.float64)
        deviation = flat.std(0, dtype=np.float64)
        self._scale = np.sqrt(dimensions) * np.where(deviation > 0, deviation, 1.0)
        self._frequencies = self._generator.standard_normal((dimensions, self.num_features))
        self._phases = self._generator.uniform(0.0, 2.0 * np.pi, self.num_features)
        self._weights = np.zeros(1 + self.num_features)
        self._most = np.inf

    def __call__(self, observations: Floats) -> Floats:
        flat = observations.reshape(-1, observations.shape[-1])
        # In blocks, because the features take far more memory than the observations.
        blocks = np.array_split(flat, 1 + len(flat) // 4096)
        values = np.concatenate([self._features(block) @ self._weights for block in blocks])
        return values.clip(-self._most, self._most).astype(np.float32).reshape(observations.shape[:-1])

    def _features(self, observations: Floats) -> NDArray[np.float64]:
        waves = np.cos((observations - self._mean) / self._scale @ self._frequencies + self._phases)
        return np.hstack([np.ones((len(waves), 1)), waves])

    def fit(self, rollout: Rollout, gamma: float, most_iterations: int = 200) -> float | None:
        """Fit V to the discounted returns by ridge regression.

        Return the explained variance, 1 - Var(returns - V) / Var(returns), or None if the returns do not vary.

        Where the rollout cuts a return off, at a truncation or at the last row, V itself replaces the rest. So the fit
        is repeated until V and its targets agree. V stays within twice what the rewards can add up to, because it would
        grow without end where few steps are fitted.
        """
        steps = min(most_iterations * len(rollout.rewards), 1 / max(1 - gamma, 1e-9))
        self._most = 2 * steps * np.abs(rollout.rewards).max(initial=0.0)
        flat = rollout.observations.reshape(-1, rollout.observations.shape[-1])
        chosen = self._generator.permutation(len(flat))[: self.most_observations]
        features = self._features(flat[chosen])
        penalty = np.full(features.shape[1], self.ridge * len(features))
        penalty[0] = 0.0
        regression = np.linalg.solve(features.T @ features + np.diag(penalty), features.T)
        returns = self._discounted_returns(rollout, gamma)
        for _ in range(most_iterations):
            self._weights = regression @ returns.ravel()[chosen]
            previous, returns = returns, self._discounted_returns(rollout, gamma)
            if np.allclose(returns, previous, rtol=1e-5, atol=0.0):
                break
        if np.allclose(returns, returns.flat[0], rtol=1e-4, atol=0.0):
            return None
        unexplained = (returns - self(rollout.observations)).var(dtype=np.float64)
        return float(1.0 - unexplained / returns.var(dtype=np.float64))

    def _discounted_returns(self, rollout: Rollout, gamma: float) -> Floats:
        """Return the returns of lambda = 1: discounted rewards, then V where the episode was cut."""
        # The reference backend computes them, so that no setting changes the data on which the backends are compared.
        return fastgae.discounted_returns(
            rollout.rewards.astype(np.float32),
            rollout.terminated,
            rollout.truncated,
            last_values=self(rollout.last_observations),
            final_values=self(rollout.final_observations),
            gamma=gamma,
            backend="numpy",
        )
