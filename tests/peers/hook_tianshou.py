"""``Algorithm.compute_episodic_return`` on a buffer of several environments, and the function below it."""

import numpy as np
from tianshou.algorithm import algorithm_base
from tianshou.data import Batch, VectorReplayBuffer

from fastgae.compat.tianshou import install

from .compare import Hooked


def hooks(rng):
    steps, envs = 50, 4
    buffer = VectorReplayBuffer(steps * envs, envs)
    for _ in range(steps):
        ends, limit = rng.random((2, envs)) < 0.2
        flags = {"terminated": ends & ~limit, "truncated": ends & limit}
        zeros = np.zeros(envs)
        buffer.add(Batch(obs=zeros, act=zeros, rew=rng.normal(size=envs), obs_next=zeros, info=Batch(), **flags))
    batch, indices = buffer.sample(0)
    following, values = rng.normal(size=(2, len(indices))).astype(np.float32)

    given = batch, buffer, indices, following, values, 0.99, 0.95

    def returns(given=given):
        return algorithm_base.Algorithm.compute_episodic_return(*given)

    yield Hooked(f"Algorithm.compute_episodic_return, {envs} × {steps}", returns, returns, install)

    length = 2048 * 64
    following, values = rng.normal(size=(2, length)).astype(np.float32)
    rewards, ends = rng.normal(size=length), rng.random(length) < 0.01

    given = values, following, rewards, ends, 0.99, 0.95

    def recursion(given=given):
        return (algorithm_base._gae(*given),)

    yield Hooked(f"_gae, {length} steps", recursion, recursion, install, timed=True)
