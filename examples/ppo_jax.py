"""PPO in one program that JAX compiles: environments, networks and the loop over updates are plain JAX.

It trains three times: with fastgae, with a lax.scan that computes the same, and with the loop of PureJaxRL, for which
a time limit ends an episode like a fall. It needs jax, fastgae and, for --plot, matplotlib. Copy it and change it.
"""

import argparse
from collections import namedtuple
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.example_libraries import optimizers

import fastgae

ENVS, STEPS, EPOCHS, BATCHES, MOST_STEPS = 16, 128, 4, 16, 500  # BATCHES: of all epochs
GAMMA, GAE_LAMBDA, CLIP, RATE = 0.99, 0.95, 0.2, 1e-3

# Arrays with the axes time and environment. next_values are V of the next observation, before any reset.
Rollout = namedtuple("Rollout", "observations actions log_probs rewards terminated truncated values next_values")
Envs = namedtuple("Envs", "observations steps last_returns")


def by_fastgae(r: Rollout) -> tuple[Array, Array]:
    flags = {"terminated": r.terminated, "truncated": r.truncated}
    return fastgae.gae(r.rewards, r.values, **flags, next_values=r.next_values, gamma=GAMMA, gae_lambda=GAE_LAMBDA)


def by_scan(r: Rollout) -> tuple[Array, Array]:
    deltas = (r.rewards + jnp.where(r.terminated, 0.0, GAMMA * r.next_values)) - r.values

    def step(following: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        advantage = row[0] + jnp.where(row[1], 0.0, GAMMA * GAE_LAMBDA * following)
        return advantage, advantage

    _, advantages = lax.scan(step, jnp.zeros(ENVS), (deltas, r.terminated | r.truncated), reverse=True)
    return advantages, advantages + r.values


def step_envs(envs: Envs, actions: Array, key: Array) -> tuple[Envs, Array, Array, Array]:
    """Return CartPole's environments, reset where an episode ended; the observations before that; and the flags."""
    _, speed, angle, spin = envs.observations.T
    push = (10.0 * (2 * actions - 1) + 0.05 * spin**2 * jnp.sin(angle)) / 1.1
    turning = (9.8 * jnp.sin(angle) - jnp.cos(angle) * push) / (0.5 * (4 / 3 - 0.1 * jnp.cos(angle) ** 2 / 1.1))
    rates = jnp.stack([speed, push - 0.05 * turning * jnp.cos(angle) / 1.1, spin, turning], 1)
    following, steps = envs.observations + 0.02 * rates, envs.steps + 1
    terminated = (jnp.abs(following[:, 0]) > 2.4) | (jnp.abs(following[:, 2]) > np.radians(12))
    truncated = (steps >= MOST_STEPS) & ~terminated
    ended, fresh = terminated | truncated, jax.random.uniform(key, (ENVS, 4), minval=-0.05, maxval=0.05)
    returns = jnp.where(ended, steps.astype(jnp.float32), envs.last_returns)  # the reward of every step is 1
    reset = Envs(jnp.where(ended[:, None], fresh, following), jnp.where(ended, 0, steps), returns)
    return reset, following, terminated, truncated


def new_network(key: Array, outputs: int, scale: float) -> list[tuple[Array, Array]]:
    layers = zip(jax.random.split(key, 3), (4, 64, 64), (64, 64, outputs), (1.0, 1.0, scale), strict=True)
    return [(s * jax.random.normal(key, (i, o)) / i**0.5, jnp.zeros(o)) for key, i, o, s in layers]


def applied(network: Any, array: Array) -> Any:
    for weights, bias in network[:-1]:
        array = jnp.tanh(array @ weights + bias)
    return array @ network[-1][0] + network[-1][1]


def collected(agent: Any, envs: Envs, key: Array) -> tuple[Envs, Rollout]:
    def step(envs: Envs, key: Array) -> tuple[Envs, Rollout]:
        of_action, of_reset = jax.random.split(key)
        logits = jax.nn.log_softmax(applied(agent["actor"], envs.observations))
        actions = jax.random.categorical(of_action, logits)
        following, observations, *flags = step_envs(envs, actions, of_reset)
        values = (applied(agent["critic"], each)[:, 0] for each in (envs.observations, observations))
        seen = envs.observations, actions, logits[jnp.arange(ENVS), actions], jnp.ones(ENVS), *flags, *values
        return following, Rollout(*seen)

    return lax.scan(step, envs, jax.random.split(key, STEPS))


def loss(agent: Any, r: Rollout, advantages: Array, returns: Array) -> Any:
    logits = jax.nn.log_softmax(applied(agent["actor"], r.observations))
    ratio = jnp.exp(logits[jnp.arange(len(logits)), r.actions] - r.log_probs)
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    of_policy = -jnp.minimum(ratio * advantages, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * advantages).mean()
    of_value = 0.5 * ((applied(agent["critic"], r.observations)[:, 0] - returns) ** 2).mean()
    return of_policy + 0.5 * of_value + 0.01 * (jnp.exp(logits) * logits).sum(1).mean()


def train(key: Array, advantages_of: Any, updates: int) -> tuple[Array, Any]:
    """Return the learning curve, and the agent."""
    first, adam, agent_of = optimizers.adam(optimizers.polynomial_decay(RATE, updates * BATCHES, 0.0))
    of_actor, of_critic, of_updates = jax.random.split(key, 3)
    learner = first({"actor": new_network(of_actor, 2, 0.01), "critic": new_network(of_critic, 1, 1.0)})
    envs = Envs(jnp.zeros((ENVS, 4)), jnp.zeros(ENVS, jnp.int32), jnp.zeros(ENVS))

    def improve(learner: Any, batch: Any) -> tuple[Any, None]:
        gradient = jax.grad(loss)(agent_of(learner), *batch[1:])
        return adam(batch[0], optimizers.clip_grads(gradient, 0.5), learner), None

    def update(carry: Any, row: Any) -> tuple[Any, Array]:
        (learner, envs), (key, number) = carry, row
        of_rollout, *of_epochs = jax.random.split(key, 1 + EPOCHS)
        envs, rollout = collected(agent_of(learner), envs, of_rollout)
        order = jnp.stack([jax.random.permutation(each, ENVS * STEPS) for each in of_epochs]).reshape(BATCHES, -1)
        chosen = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:])[order], (rollout, *advantages_of(rollout)))
        learner, _ = lax.scan(improve, learner, (number * BATCHES + jnp.arange(BATCHES), *chosen))
        return (learner, envs), envs.last_returns.mean()

    rows = jax.random.split(of_updates, updates), jnp.arange(updates)
    (learner, _), curve = lax.scan(update, (learner, envs), rows)
    return curve, agent_of(learner)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=120, help="rollouts, each followed by an update (default: 120)")
    parser.add_argument("--seeds", type=int, default=8, help="agents that are trained under vmap (default: 8)")
    parser.add_argument("--plot", type=Path, help="draw the learning curves to this file")
    given = parser.parse_args(arguments)
    if min(given.updates, given.seeds) < 1:
        parser.error("--updates and --seeds must be at least 1")
    if given.plot and not given.plot.parent.is_dir():
        parser.error(f"--plot: there is no folder {given.plot.parent}")
    ways = {"fastgae": by_fastgae, "lax.scan": by_scan}
    ways["PureJaxRL's loop"] = lambda r: by_scan(r._replace(terminated=r.terminated | r.truncated))
    keys, curves, agents = jax.random.split(jax.random.key(0), given.seeds), {}, {}
    for name, advantages_of in ways.items():
        program = jax.jit(jax.vmap(partial(train, advantages_of=advantages_of, updates=given.updates)))
        curves[name], agents[name] = jax.tree.map(np.asarray, program(keys))
        print(f"{name}: mean return {curves[name][:, -1].mean():.1f} after {given.updates * STEPS * ENVS:,} steps")
    same = all(map(np.array_equal, *(jax.tree.leaves(agents[name]) for name in ("fastgae", "lax.scan"))))
    print("weights of fastgae and lax.scan:", "the same bits" if same else "they differ")
    if given.plot:
        from matplotlib.figure import Figure

        axes = (figure := Figure(figsize=(7, 4), layout="constrained")).subplots()
        for (name, curve), style in zip(curves.items(), ("-", "--", ":"), strict=True):
            axes.plot(ENVS * STEPS * np.arange(1, given.updates + 1), curve.mean(0), style, label=name)
        axes.set(xlabel="steps of each agent", ylabel="mean return of the last episodes", ylim=(0, None))
        axes.legend()
        figure.savefig(given.plot)


if __name__ == "__main__":
    main()
