"""PPO in one compiled program: environments, networks, Adam and the loop over updates are plain JAX.

It trains with ``fastgae.gae`` and with a ``lax.scan`` in its place, compares the curves, and prints both times.
It needs jax, fastgae and, for ``--plot``, matplotlib. Copy it and change it. The parts, from top to bottom: Settings,
the advantages, CartPole, the networks and Adam, training, and the command line.
"""

import argparse
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

import fastgae

EXAMPLES = """\
examples:
  python ppo_jax.py                             four seeds, to a mean return of 500
  python ppo_jax.py --updates 20 --seeds 1      a few seconds
  python ppo_jax.py --plot curves.svg           and draw the learning curves
"""


def option(default: Any, description: str) -> Any:
    return field(default=default, metadata={"help": description})


@dataclass(frozen=True)
class Settings:
    """The settings of training; each one is an option of the command line."""

    seeds: int = option(4, "agents that are trained at the same time, under vmap")
    updates: int = option(120, "rollouts, each followed by an update")
    num_envs: int = option(16, "environments of each agent")
    num_steps: int = option(128, "steps of each environment between two updates")
    gamma: float = option(0.99, "discount")
    gae_lambda: float = option(0.95, "decay of the trace")
    learning_rate: float = option(1e-3, "Adam's step size at the start; it falls to 0 linearly")
    epochs: int = option(4, "passes over each rollout")
    minibatches: int = option(4, "minibatches in each pass")
    clip: float = option(0.2, "how far the ratio of probabilities may be from 1")
    value_weight: float = option(0.5, "weight of the value loss")
    entropy_weight: float = option(0.01, "weight of the entropy bonus")
    max_grad_norm: float = option(0.5, "gradients are clipped to this norm")


class Rollout(NamedTuple):
    """What the agent saw and did; each array has the axes time and environment."""

    observations: Array
    actions: Array
    log_probs: Array
    rewards: Array
    terminated: Array
    truncated: Array
    values: Array
    next_values: Array  # V of the next observation, before any reset


# The advantages, in two ways


def by_fastgae(rollout: Rollout, settings: Settings) -> tuple[Array, Array]:
    return fastgae.gae(
        rollout.rewards,
        rollout.values,
        rollout.terminated,
        rollout.truncated,
        next_values=rollout.next_values,
        gamma=settings.gamma,
        gae_lambda=settings.gae_lambda,
    )


def by_scan(rollout: Rollout, settings: Settings) -> tuple[Array, Array]:
    bootstrap = jnp.where(rollout.terminated, 0.0, settings.gamma * rollout.next_values)
    deltas = (rollout.rewards + bootstrap) - rollout.values
    decay = settings.gamma * settings.gae_lambda

    def step(following: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, ended = row
        advantage = delta + jnp.where(ended, 0.0, decay * following)
        return advantage, advantage

    ended = rollout.terminated | rollout.truncated
    advantages = lax.scan(step, jnp.zeros_like(deltas[0]), (deltas, ended), reverse=True)[1]
    return advantages, advantages + rollout.values


WAYS = {"fastgae": by_fastgae, "lax.scan": by_scan}
Advantages = Callable[[Rollout, Settings], tuple[Array, Array]]


# CartPole: a pole stands on a cart that is pushed to the left or to the right

MOST_STEPS = 500
GRAVITY, CART, POLE, LENGTH, FORCE, SECONDS = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02  # LENGTH is half of the pole's
FARTHEST, STEEPEST = 2.4, math.radians(12)


class Envs(NamedTuple):
    observations: Array  # (envs, 4): position and speed of the cart, angle and angular speed of the pole
    steps: Array
    returns: Array
    last_returns: Array  # of the last episode that ended; 0 before


def fresh(key: Array, num_envs: int) -> Array:
    return jax.random.uniform(key, (num_envs, 4), minval=-0.05, maxval=0.05)


def moved(observations: Array, actions: Array) -> Array:
    """Return the observations one step of Euler's method later."""
    _, speed, angle, spin = observations.T
    total, moment = CART + POLE, POLE * LENGTH
    push = (FORCE * (2 * actions - 1) + moment * spin**2 * jnp.sin(angle)) / total
    torque = GRAVITY * jnp.sin(angle) - jnp.cos(angle) * push
    turning = torque / (LENGTH * (4 / 3 - POLE * jnp.cos(angle) ** 2 / total))
    acceleration = push - moment * turning * jnp.cos(angle) / total
    rates = jnp.stack([speed, acceleration, spin, turning], 1)
    return observations + SECONDS * rates


def step_envs(envs: Envs, actions: Array, key: Array) -> tuple[Envs, Array, Array, Array]:
    """Return the environments, of which those that ended have begun anew, the observations before, and the flags."""
    following = moved(envs.observations, actions)
    steps, returns = envs.steps + 1, envs.returns + 1  # the reward of every step is 1
    terminated = (jnp.abs(following[:, 0]) > FARTHEST) | (jnp.abs(following[:, 2]) > STEEPEST)
    truncated = (steps >= MOST_STEPS) & ~terminated
    ended = terminated | truncated
    reset = Envs(
        jnp.where(ended[:, None], fresh(key, len(steps)), following),
        jnp.where(ended, 0, steps),
        jnp.where(ended, 0.0, returns),
        jnp.where(ended, returns, envs.last_returns),
    )
    return reset, following, terminated, truncated


# The networks and Adam

Layers = list[tuple[Array, Array]]


class Agent(NamedTuple):
    actor: Layers
    critic: Layers


def new_agent(key: Array) -> Agent:
    def layers(key: Array, outputs: int, scale: float) -> Layers:
        # Not orthogonal: under vmap, JAX 0.10.2 may wait for ever for LAPACK's QR on two CPUs.
        shapes = (4, 64, 1.0), (64, 64, 1.0), (64, outputs, scale)
        normal = jax.nn.initializers.variance_scaling
        return [
            (normal(scale, "fan_in", "normal")(each, (inputs, outputs)), jnp.zeros(outputs))
            for each, (inputs, outputs, scale) in zip(jax.random.split(key, 3), shapes, strict=True)
        ]

    one, other = jax.random.split(key)
    return Agent(layers(one, 2, 1e-4), layers(other, 1, 1.0))


def applied(layers: Layers, x: Array) -> Array:
    for weights, biases in layers[:-1]:
        x = jnp.tanh(x @ weights + biases)
    weights, biases = layers[-1]
    return x @ weights + biases


def value(agent: Agent, observations: Array) -> Array:
    return applied(agent.critic, observations)[..., 0]


class Adam(NamedTuple):
    updates: Array
    means: Agent
    squares: Agent


def new_adam(agent: Agent) -> Adam:
    zeros = jax.tree.map(jnp.zeros_like, agent)
    return Adam(jnp.zeros((), jnp.int32), zeros, zeros)


def improved(agent: Agent, adam: Adam, gradient: Agent, settings: Settings) -> tuple[Agent, Adam]:
    """Return the agent after one step of Adam, with a clipped gradient and a falling step size."""
    norm = jnp.sqrt(sum(jnp.sum(each**2) for each in jax.tree.leaves(gradient)))
    scale = jnp.minimum(1.0, settings.max_grad_norm / (norm + 1e-8))
    number = adam.updates + 1
    means = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * scale * g, adam.means, gradient)
    squares = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * (scale * g) ** 2, adam.squares, gradient)
    total = settings.updates * settings.epochs * settings.minibatches
    rate = settings.learning_rate * (1 - adam.updates / total)
    corrected = rate * jnp.sqrt(1 - 0.999**number) / (1 - 0.9**number)
    changed = jax.tree.map(lambda p, m, v: p - corrected * m / (jnp.sqrt(v) + 1e-8), agent, means, squares)
    return changed, Adam(number, means, squares)


# Training


class State(NamedTuple):
    agent: Agent
    adam: Adam
    envs: Envs
    key: Array


def new_state(key: Array, settings: Settings) -> State:
    key, of_agent, of_envs = jax.random.split(key, 3)
    agent, zeros = new_agent(of_agent), jnp.zeros(settings.num_envs)
    envs = Envs(fresh(of_envs, settings.num_envs), zeros.astype(jnp.int32), zeros, zeros)
    return State(agent, new_adam(agent), envs, key)


def collected(state: State, settings: Settings) -> tuple[State, Rollout]:
    """Let the agent act, and return what happened."""

    def step(carry: tuple[Envs, Array], _: None) -> tuple[tuple[Envs, Array], Rollout]:
        envs, key = carry
        key, of_action, of_reset = jax.random.split(key, 3)
        observations = envs.observations
        logits = jax.nn.log_softmax(applied(state.agent.actor, observations))
        actions = jax.random.categorical(of_action, logits)
        envs, following, terminated, truncated = step_envs(envs, actions, of_reset)
        seen = Rollout(
            observations,
            actions,
            jnp.take_along_axis(logits, actions[:, None], 1)[:, 0],
            jnp.ones(len(actions)),
            terminated,
            truncated,
            value(state.agent, observations),
            value(state.agent, following),
        )
        return (envs, key), seen

    (envs, key), rollout = lax.scan(step, (state.envs, state.key), None, settings.num_steps)
    return state._replace(envs=envs, key=key), rollout


def loss(agent: Agent, batch: Rollout, advantages: Array, returns: Array, settings: Settings) -> Array:
    logits = jax.nn.log_softmax(applied(agent.actor, batch.observations))
    ratio = jnp.exp(jnp.take_along_axis(logits, batch.actions[:, None], 1)[:, 0] - batch.log_probs)
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    clipped = jnp.clip(ratio, 1 - settings.clip, 1 + settings.clip)
    of_policy = -jnp.minimum(ratio * advantages, clipped * advantages).mean()
    of_value = 0.5 * ((value(agent, batch.observations) - returns) ** 2).mean()
    entropy = -(jnp.exp(logits) * logits).sum(1).mean()
    return of_policy + settings.value_weight * of_value - settings.entropy_weight * entropy


def updated(state: State, advantages_of: Advantages, settings: Settings) -> State:
    """Collect a rollout, and pass over it several times."""
    state, rollout = collected(state, settings)
    steps = settings.num_steps * settings.num_envs
    whole = rollout, *advantages_of(rollout, settings)
    flat = jax.tree.map(lambda array: array.reshape(steps, *array.shape[2:]), whole)
    key, of_epochs = jax.random.split(state.key)

    def minibatch(carry: tuple[Agent, Adam], chosen: Array) -> tuple[tuple[Agent, Adam], None]:
        gradient = jax.grad(loss)(carry[0], *jax.tree.map(lambda array: array[chosen], flat), settings)
        return improved(*carry, gradient, settings), None

    def epoch(carry: tuple[Agent, Adam], key: Array) -> tuple[tuple[Agent, Adam], None]:
        order = jax.random.permutation(key, steps).reshape(settings.minibatches, -1)
        return lax.scan(minibatch, carry, order)

    (agent, adam), _ = lax.scan(epoch, (state.agent, state.adam), jax.random.split(of_epochs, settings.epochs))
    return State(agent, adam, state.envs, key)


Show = Callable[[Any, Any], None]  # takes the number of an update, and a mean return


def trainer(advantages_of: Advantages, settings: Settings, show: Show) -> Any:
    """Return a function of a key for each seed: the learning curves, of shape (updates, seeds), and the agents."""

    def update(states: State, number: Array) -> tuple[State, Array]:
        states = jax.vmap(lambda state: updated(state, advantages_of, settings))(states)
        curve = states.envs.last_returns.mean(1)
        jax.debug.callback(show, number, curve.mean())
        return states, curve

    def train(keys: Array) -> tuple[Array, Agent]:
        states = jax.vmap(lambda key: new_state(key, settings))(keys)
        states, curves = lax.scan(update, states, jnp.arange(settings.updates))
        return curves, states.agent

    return jax.jit(train)


class Trained(NamedTuple):
    seconds: float
    curves: np.ndarray[Any, Any]  # (updates, seeds): mean return of the last episode of each environment
    agents: Agent


def shows(name: str, settings: Settings) -> Show:
    """Return the function that shows progress, on a terminal."""

    def show(number: Any, mean: Any) -> None:
        done = f"{name}: {int(number) + 1} of {settings.updates} updates, mean return {float(mean):.1f}"
        print(f"\r{done:60}\r", end="", file=sys.stderr, flush=True)

    return show if sys.stderr.isatty() else lambda number, mean: None


def trained_in_turn(settings: Settings, seed: int, rounds: int) -> dict[str, Trained]:
    """Train in both ways; keep the best time of each, because other programs only ever add time."""
    keys = jax.random.split(jax.random.key(seed), settings.seeds)
    programs, results = {}, dict[str, Trained]()
    for name, advantages_of in WAYS.items():
        start = time.perf_counter()
        programs[name] = trainer(advantages_of, settings, shows(name, settings)).lower(keys).compile()
        print(f"{name} is compiled in {time.perf_counter() - start:.1f} s", file=sys.stderr)
    for name in list(WAYS) * rounds:
        start = time.perf_counter()
        curves, agents = jax.block_until_ready(programs[name](keys))
        seconds = time.perf_counter() - start
        best = min(seconds, results[name].seconds) if name in results else seconds
        results[name] = Trained(best, np.asarray(curves), agents)
    jax.effects_barrier()  # the last progress may still be on its way
    return results


def same_bits(one: Any, other: Any) -> bool:
    return all(map(np.array_equal, jax.tree.leaves(one), jax.tree.leaves(other)))


# The command line


def parse(arguments: list[str] | None = None) -> tuple[Settings, int, int, Path | None]:
    """Return the settings, the seed, the rounds, and the file for the plot."""
    parser = argparse.ArgumentParser(
        description="Train PPO on CartPole in one compiled program of JAX, with fastgae and with a lax.scan.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for each in fields(Settings):
        name, described = "--" + each.name.replace("_", "-"), each.metadata["help"] + " (default: %(default)s)"
        parser.add_argument(name, type=type(each.default), default=each.default, help=described)
    parser.add_argument("--seed", type=int, default=0, help="seed of everything (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=2, help="train so often; the best time counts (default: 2)")
    parser.add_argument("--plot", type=Path, help="draw the learning curves to this file (.svg, .png, .pdf)")
    given = vars(parser.parse_args(arguments))
    settings = Settings(**{each.name: given.pop(each.name) for each in fields(Settings)})
    counts = {name: number for name, number in (vars(settings) | given).items() if type(number) is int}
    for name in counts.keys() - {"seed"}:
        if counts[name] < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1, got {counts[name]}")
    if settings.num_envs * settings.num_steps % settings.minibatches:
        parser.error("--minibatches must divide the steps of a rollout, --num-envs times --num-steps")
    return settings, *given.values()


def draw(path: Path, settings: Settings, results: dict[str, Trained]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    steps = settings.num_envs * settings.num_steps * np.arange(1, settings.updates + 1)
    for (name, result), color, style in zip(results.items(), ("tab:blue", "tab:orange"), ("-", "--"), strict=True):
        axes.plot(steps, result.curves, color=color, linestyle=style, linewidth=0.8, alpha=0.4)
        label = f"{name}, {result.seconds:.2f} s"
        axes.plot(steps, result.curves.mean(1), color=color, linestyle=style, linewidth=2, label=label)
    axes.set(
        xlabel="steps of each agent",
        ylabel="mean return of the last episodes",
        title=f"PPO on CartPole in one compiled program, mean of {settings.seeds} agents",
    )
    axes.set_ylim(0)
    axes.legend(loc="lower right")
    axes.grid(alpha=0.3)
    figure.savefig(path)


def main(arguments: list[str] | None = None) -> None:
    settings, seed, rounds, plot_file = parse(arguments)
    steps = settings.seeds * settings.updates * settings.num_envs * settings.num_steps
    results = trained_in_turn(settings, seed, rounds)
    for name, result in results.items():
        mean = result.curves[-1].mean()
        print(f"{name:9} {steps:,} steps in {result.seconds:.2f} s; mean return of the last episodes {mean:.1f}")
    one, other = results.values()
    apart = float(np.abs(one.curves - other.curves).max())
    print("learning curves:", "the same bits" if same_bits(one.curves, other.curves) else f"up to {apart:.3g} apart")
    print("weights:", "the same bits" if same_bits(one.agents, other.agents) else "they differ")
    if plot_file:
        draw(plot_file, settings, results)


if __name__ == "__main__":
    main()
