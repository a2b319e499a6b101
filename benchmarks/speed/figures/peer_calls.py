"""Other libraries' own functions on one rollout, each with its data in the layout and the types that it wants.

A peer is a function from a rollout to its call and a function that reads the advantages out of its answer as (T, N).
Data are converted before the call, so that no library pays for that.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastgae._support.project import DISTRIBUTION

from .in_jax import own_scan

Array = NDArray[Any]
GAMMA, LAMBDA = 0.99, 0.95


class Rollout(NamedTuple):
    """(T, N) float32, time-major; the flags end episodes for good."""

    rewards: Array
    values: Array
    terminated: Array
    last_values: Array


class Ready(NamedTuple):
    """A call, and a function that reads the advantages out of its answer."""

    call: Callable[[], Any]
    advantages: Callable[[Any], Array]


def next_values(rollout: Rollout) -> Array:
    return np.concatenate([rollout.values[1:], rollout.last_values[np.newaxis]])


def stable_baselines3(rollout: Rollout) -> Ready:
    import torch
    from gymnasium.spaces import Box
    from stable_baselines3.common.buffers import RolloutBuffer

    space, (steps, envs) = Box(-1.0, 1.0, (1,)), rollout.rewards.shape
    buffer = RolloutBuffer(steps, space, space, "cpu", LAMBDA, GAMMA, envs)
    buffer.rewards[:], buffer.values[:] = rollout.rewards, rollout.values
    buffer.episode_starts[1:] = rollout.terminated[:-1]
    last_values = torch.from_numpy(rollout.last_values[:, np.newaxis])
    call = partial(buffer.compute_returns_and_advantage, last_values, rollout.terminated[-1])
    return Ready(call, lambda _: buffer.advantages)


def torchrl(name: str, rollout: Rollout) -> Ready:
    import torch
    from torchrl.objectives.value import functional

    def batch(array: Array) -> Any:  # (N, T, 1)
        return torch.from_numpy(np.ascontiguousarray(array.T)[..., np.newaxis])

    done = batch(rollout.terminated)
    call = partial(
        getattr(functional, name),
        GAMMA,
        LAMBDA,
        state_value=batch(rollout.values),
        next_state_value=batch(next_values(rollout)),
        reward=batch(rollout.rewards),
        done=done,
        terminated=done,
    )
    return Ready(torch.no_grad()(call), lambda answer: answer[0][..., 0].numpy().T)


def tianshou(rollout: Rollout) -> Ready:
    """Prepare one float64 array, env after env; the last step of each env ends its trace."""
    from tianshou.algorithm.algorithm_base import _gae

    ends = rollout.terminated.copy()
    ends[-1] = True
    following = np.where(rollout.terminated, 0, next_values(rollout))
    values, following, rewards, ends = (
        array.T.ravel() for array in (rollout.values, following, rollout.rewards.astype(np.float64), ends)
    )
    call = partial(_gae, values, following, rewards, ends, GAMMA, LAMBDA)
    return Ready(call, lambda answer: answer.reshape(rollout.rewards.shape[::-1]).T)


def rlax(rollout: Rollout) -> Ready:
    import jax
    import jax.numpy as jnp
    from rlax import truncated_generalized_advantage_estimation as theirs

    compiled = jax.jit(jax.vmap(theirs, in_axes=(1, 1, None, 1), out_axes=1))
    discounts = np.where(rollout.terminated, 0, GAMMA).astype(np.float32)
    longer = np.concatenate([rollout.values, rollout.last_values[np.newaxis]])
    arguments = *map(jnp.asarray, (rollout.rewards, discounts)), LAMBDA, jnp.asarray(longer)
    return Ready(lambda: compiled(*arguments).block_until_ready(), np.asarray)


def jax_scan(rollout: Rollout) -> Ready:
    """Prepare the loop that JAX programs write themselves."""
    import jax

    given = rollout._replace(terminated=rollout.terminated.astype(np.float32))
    scanned, arguments = jax.jit(own_scan), list(map(jax.numpy.asarray, given))
    return Ready(lambda: jax.block_until_ready(scanned(*arguments)), lambda answer: np.asarray(answer[0]))


def numba_loop(rollout: Rollout) -> Ready:
    """Prepare a tuned loop written by hand: row by row, so that it vectorises, with fast-math and allocated outputs."""
    import numba

    @numba.njit(fastmath=True, boundscheck=False)
    def swept(
        rewards: Any, values: Any, goes_on: Any, last_values: Any, gamma: Any, decay: Any, advantages: Any, returns: Any
    ) -> None:
        steps, envs = rewards.shape
        for t in range(steps - 1, -1, -1):
            following = values[t + 1] if t + 1 < steps else last_values
            trace = advantages[t + 1] if t + 1 < steps else np.zeros_like(last_values)
            for n in range(envs):
                delta = rewards[t, n] + gamma * goes_on[t, n] * following[n] - values[t, n]
                advantages[t, n] = delta + decay * goes_on[t, n] * trace[n]
                returns[t, n] = advantages[t, n] + values[t, n]

    advantages, returns = np.zeros_like(rollout.rewards), np.zeros_like(rollout.rewards)
    goes_on = (~rollout.terminated).astype(np.float32)
    coefficients = np.float32(GAMMA), np.float32(GAMMA * LAMBDA)
    given = rollout.rewards, rollout.values, goes_on, rollout.last_values
    return Ready(partial(swept, *given, *coefficients, advantages, returns), lambda _: advantages)


def rlox(rollout: Rollout) -> Ready:
    """Prepare one float32 array, env after env."""
    from rlox import compute_gae_batched_f32

    steps, envs = rollout.rewards.shape
    given = [
        np.ascontiguousarray(array.T, np.float32).ravel()
        for array in (rollout.rewards, rollout.values, rollout.terminated)
    ]
    call = partial(compute_gae_batched_f32, *given, rollout.last_values, steps, GAMMA, LAMBDA)
    return Ready(call, lambda answer: np.asarray(answer[0]).reshape(envs, steps).T)


def ours(backend: str, rollout: Rollout) -> Ready:
    import fastgae

    out = np.zeros_like(rollout.rewards), np.zeros_like(rollout.rewards)
    settings = {"gamma": GAMMA, "gae_lambda": LAMBDA, "num_threads": 1, "backend": backend}
    call = partial(
        fastgae.gae,
        rollout.rewards,
        rollout.values,
        rollout.terminated,
        last_values=rollout.last_values,
        out=out,
        **settings,
    )
    return Ready(call, lambda answer: answer.advantages)


# name in the tables -> (distribution that has the version, function that prepares it)
PEERS: dict[str, tuple[str, Callable[[Rollout], Ready]]] = {
    "fastgae, cpp": (DISTRIBUTION, partial(ours, "cpp")),
    "fastgae, numba": (DISTRIBUTION, partial(ours, "numba")),
    "hand-written Numba loop": ("numba", numba_loop),
    "rlox, batched float32": ("rlox", rlox),
    "JAX, lax.scan": ("jax", jax_scan),
    "RLax, jit and vmap": ("rlax", rlax),
    "Tianshou": ("tianshou", tianshou),
    "torchrl, vectorised": ("torchrl", partial(torchrl, "vec_generalized_advantage_estimate")),
    "torchrl, loop": ("torchrl", partial(torchrl, "generalized_advantage_estimate")),
    "Stable-Baselines3": ("stable-baselines3", stable_baselines3),
}
