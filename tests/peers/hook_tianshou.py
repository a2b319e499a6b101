"""``Algorithm.compute_episodic_return`` on a buffer of several environments, and the function below it."""

import numpy as np
import torch
from gymnasium.spaces import Discrete
from tianshou.algorithm import A2C, NPG, PPO, TRPO, algorithm_base
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Batch, VectorReplayBuffer
from tianshou.utils.net.common import Net
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic
from tianshou.utils.torch_utils import policy_within_training_step

from fastgae.compat.tianshou import install

from .compare import Hooked


def hooks(rng):
    steps, envs = 50, 4
    buffer = added(VectorReplayBuffer(steps * envs, envs), rng, steps)
    ring = added(
        VectorReplayBuffer(40, 1), rng, 50
    )  # the first steps are overwritten, and the last one ends no episode
    for name, filled, known, coefficients in [
        (f"{envs} × {steps}", buffer, 2, (0.99, 0.95)),
        ("rewards alone, a buffer that went round", ring, 0, (0.1, 1.0)),
        ("V' alone, a buffer that went round", ring, 1, (0.99, 0.95)),
    ]:
        batch, indices = filled.sample(0)
        values = [*rng.normal(size=(known, len(indices))).astype(np.float32), None, None][:2]

        def returns(given=(batch, filled, indices, *values, *coefficients)):
            return algorithm_base.Algorithm.compute_episodic_return(*given)

        yield Hooked(f"Algorithm.compute_episodic_return, {name}", returns, returns, install)

    collected = added(VectorReplayBuffer(60, 2), rng, 30)
    for algorithm in (A2C, NPG, PPO, TRPO):
        weights = trained(algorithm, collected)
        yield Hooked(f"{algorithm.__name__}.update: the weights after 3 updates", weights, weights, install)

    length = 2048 * 64
    following, values = rng.normal(size=(2, length)).astype(np.float32)
    given = values, following, rng.normal(size=length), rng.random(length) < 0.01, 0.99, 0.95

    def recursion():
        return (algorithm_base._gae(*given),)

    yield Hooked(f"_gae, {length} steps", recursion, recursion, install, timed=True)


def added(buffer, rng, steps):
    """Return the buffer with this many steps of each of its environments."""
    envs = buffer.buffer_num
    for _ in range(steps):
        ends, limit = rng.random((2, envs)) < 0.2
        flags = {"terminated": ends & ~limit, "truncated": ends & limit}
        obs, obs_next = rng.normal(size=(2, envs, 3)).astype(np.float32)
        acts = rng.integers(2, size=envs)
        buffer.add(Batch(obs=obs, act=acts, rew=rng.normal(size=envs), obs_next=obs_next, info=Batch(), **flags))
    return buffer


def trained(algorithm, buffer):
    def call():
        torch.set_num_threads(1)  # the networks are too small to share
        torch.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002  # Tianshou shuffles with NumPy's global generator
        actor = DiscreteActor(preprocess_net=Net(state_shape=3, hidden_sizes=[8]), action_shape=2)
        critic = DiscreteCritic(preprocess_net=Net(state_shape=3, hidden_sizes=[8]))
        policy = DiscreteActorPolicy(actor=actor, action_space=Discrete(2))
        made = algorithm(policy=policy, critic=critic, optim=AdamOptimizerFactory(lr=1e-3))
        for _ in range(3):
            with policy_within_training_step(policy):
                made.update(buffer, batch_size=16, repeat=2)
        return tuple(parameter.detach() for parameter in made.parameters())

    return call
