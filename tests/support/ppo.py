"""A small PPO in NumPy, for rollouts of policies and critics that learn."""

import itertools

import gymnasium
import numpy as np

import fastgae
from fastgae.compat.gymnasium import Acted, collect

GAMMA = 0.99


class Network:
    """One hidden layer of tanh units, trained by Adam."""

    def __init__(self, rng, inputs, outputs, scale):
        first, second = rng.normal(0, np.sqrt(2 / inputs), (inputs, 64)), rng.normal(0, scale / 8, (64, outputs))
        self.weights = [first, np.zeros(64), second, np.zeros(outputs)]
        self.moments, self.steps = [(np.zeros_like(w), np.zeros_like(w)) for w in self.weights], 0

    def __call__(self, x):
        return np.tanh(x @ self.weights[0] + self.weights[1]) @ self.weights[2] + self.weights[3]

    def descend(self, x, gradient, rate):
        """Take one step of Adam, given the gradient of a loss by the outputs."""
        hidden = np.tanh(x @ self.weights[0] + self.weights[1])
        inner = gradient @ self.weights[2].T * (1 - hidden**2)
        gradients = x.T @ inner, inner.sum(0), hidden.T @ gradient, gradient.sum(0)
        self.steps += 1
        for weight, slope, (mean, square) in zip(self.weights, gradients, self.moments, strict=True):
            mean += 0.1 * (slope - mean)
            square += 0.001 * (slope**2 - square)
            weight -= rate * mean / (1 - 0.9**self.steps) / (np.sqrt(square / (1 - 0.999**self.steps)) + 1e-8)


class PPO:
    """A policy and a critic for vectors of observations."""

    def __init__(self, envs, seed, rate=1e-3):
        self.rng, self.rate = np.random.default_rng(seed), rate
        space, actions = envs.single_observation_space, envs.single_action_space
        self.size = np.where(np.isfinite(space.high), np.minimum(space.high, 10), 1)
        self.discrete = isinstance(actions, gymnasium.spaces.Discrete)
        outputs = actions.n if self.discrete else actions.shape[0]
        self.policy = Network(self.rng, len(self.size), outputs, 0.1)
        self.critic = Network(self.rng, len(self.size), 1, 1.0)

    def act(self, observations):
        scores = self.policy(observations / self.size)
        if self.discrete:
            actions = (scores + self.rng.gumbel(size=scores.shape)).argmax(-1)
            return Acted(actions, {"raw": actions})
        raw = scores + self.rng.normal(size=scores.shape)
        return Acted(np.clip(raw, -2, 2).astype(np.float32), {"raw": raw})

    def value(self, observations):
        return self.critic(observations / self.size)[..., 0]

    def _log_probs(self, x, raw):
        """Return log-probabilities, and their gradients by the outputs of the policy."""
        scores = self.policy(x)
        if not self.discrete:
            return -((raw - scores) ** 2).sum(-1) / 2, raw - scores
        shifted = scores - scores.max(-1, keepdims=True)
        logs = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
        return np.take_along_axis(logs, raw[:, None], 1)[:, 0], np.eye(logs.shape[1])[raw] - np.exp(logs)

    def updates(self, envs, count, num_steps, seed):
        """Train, and yield the arguments of ``gae`` in each update."""
        for rollout in itertools.islice(collect(envs, self.act, num_steps, seed=seed), count):
            call = rollout.arguments(self.value)
            yield call
            real = rollout.valid.ravel()
            x = (rollout.observations / self.size).reshape(len(real), -1)[real]
            raw = rollout.extras["raw"].reshape(len(real), -1)[real]
            self._learn(
                x, raw[:, 0] if self.discrete else raw, *(a.ravel()[real] for a in fastgae.gae(**call, gamma=GAMMA))
            )

    def _learn(self, x, raw, advantages, returns):
        advantages = fastgae.normalize(advantages)
        old = self._log_probs(x, raw)[0]
        for rows in (rows for _ in range(4) for rows in np.array_split(self.rng.permutation(len(x)), 4)):
            now, slopes = self._log_probs(x[rows], raw[rows])
            ratios = np.exp(now - old[rows])
            clipped = np.where(advantages[rows] > 0, ratios > 1.2, ratios < 0.8)
            gain = np.where(clipped, 0, ratios * advantages[rows])
            self.policy.descend(x[rows], -gain[:, None] * slopes / len(rows), self.rate)
            self.critic.descend(x[rows], (self.critic(x[rows]) - returns[rows, None]) / len(rows), self.rate)
