"""fastgae beside what people write in JAX: in a loop that JAX compiles, as libraries for JAX train, and eager.

An eager call cannot cost less than one with NumPy and the conversion of two results, and a compiled one not less than
the smallest program with two results.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from timeit import Timer
from typing import Any

import numpy as np

import fastgae
from speed.machine import describe_machine
from speed.text import duration, markdown
from speed.timing import best

SHAPES = ((128, 8), (128, 64), (24, 4096), (128, 1024), (2048, 64))
CALLS = 50  # in one compiled loop
GAMMA, LAMBDA = 0.99, 0.95


def ours(rewards: Any, values: Any, terminated: Any, last: Any) -> Any:
    return fastgae.gae(rewards, values, terminated, last_values=last, gamma=GAMMA, gae_lambda=LAMBDA)


def own_scan(rewards: Any, values: Any, terminated: Any, last: Any) -> Any:
    """Return the advantages and value targets of the loop that JAX programs write themselves."""
    import jax
    import jax.numpy as jnp

    def step(carry: Any, row: Any) -> Any:
        advantage, next_value = carry
        reward, value, done = row
        delta = reward + GAMMA * next_value * (1 - done) - value
        advantage = delta + GAMMA * LAMBDA * (1 - done) * advantage
        return (advantage, value), advantage

    rows = rewards, values, terminated.astype(jnp.float32)
    advantages = jax.lax.scan(step, (jnp.zeros_like(last), last), rows, reverse=True)[1]
    return advantages, advantages + values


def contenders() -> dict[str, Callable[..., Any]]:
    """Return functions of rewards, values, terminated and last values that return advantages and value targets."""
    import jax
    import jax.numpy as jnp
    import rlax
    from brax.training.agents.ppo import losses as of_brax

    def associative(rewards: Any, values: Any, terminated: Any, last: Any) -> Any:
        goes_on = 1 - terminated.astype(jnp.float32)
        deltas = rewards + GAMMA * jnp.concatenate([values[1:], last[None]]) * goes_on - values

        def both(later: Any, earlier: Any) -> Any:
            return earlier[0] * later[0], earlier[0] * later[1] + earlier[1]

        advantages = jax.lax.associative_scan(both, (GAMMA * LAMBDA * goes_on, deltas), reverse=True)[1]
        return advantages, advantages + values

    def of_rlax(rewards: Any, values: Any, terminated: Any, last: Any) -> Any:
        of_env = rlax.truncated_generalized_advantage_estimation
        discounts = GAMMA * (1 - terminated.astype(jnp.float32))
        longer = jnp.concatenate([values, last[None]])
        advantages = jax.vmap(of_env, (1, 1, None, 1), 1)(rewards, discounts, LAMBDA, longer)
        return advantages, advantages + values

    def brax(rewards: Any, values: Any, terminated: Any, last: Any) -> Any:
        ends = terminated.astype(jnp.float32)
        # Brax's own advantages take one more step, which XLA leaves out here.
        targets, _ = of_brax.compute_gae(jnp.zeros_like(ends), ends, rewards, values, last, LAMBDA, GAMMA)
        return targets - values, targets

    return {"fastgae": ours, "own lax.scan": own_scan, "associative_scan": associative, "RLax": of_rlax, "Brax": brax}


def eager(given: Sequence[Any], arrays: Sequence[Any]) -> dict[str, Callable[[], Any]]:
    """Return calls outside of compiled code, beside the parts that an eager call of fastgae cannot avoid."""
    import jax

    from fastgae._interop import jax_calls

    scanned, jitted = jax.jit(own_scan), jax.jit(ours)
    nothing = jax.jit(lambda rewards, values, terminated, last: (-rewards, -values))

    def converted() -> Any:
        results = [jax_calls._aligned(given[0].shape, given[0].dtype) for _ in "AR"]  # JAX copies any other memory
        return list(map(jax.dlpack.from_dlpack, results))

    return {
        "fastgae": lambda: jax.block_until_ready(ours(*arrays)),
        "fastgae with NumPy": lambda: ours(*given),
        "two results to JAX": converted,
        "fastgae, jitted": lambda: jax.block_until_ready(jitted(*arrays)),
        "own lax.scan, jitted": lambda: jax.block_until_ready(scanned(*arrays)),
        "two negations, jitted": lambda: jax.block_until_ready(nothing(*arrays)),
    }


def measure() -> dict[str, Any]:
    import jax

    names = ("jax", "rlax", "brax")
    functions = contenders()
    assert jax.default_backend() == "cpu"
    rows = [{"name": f"{steps}×{envs}", **measure_shape(steps, envs, functions)} for steps, envs in SHAPES]
    return {"machine": describe_machine() | {name: version(name) for name in names}, "rows": rows}


def measure_shape(steps: int, envs: int, functions: Mapping[str, Callable[..., Any]]) -> dict[str, Any]:
    """Return the seconds of one call in the compiled loop, after a check of its answer, and of one eager call."""
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(0)
    rewards, values = rng.normal(size=(2, steps, envs)).astype(np.float32)
    given = [rewards, values, rng.random((steps, envs)) < 0.02, rng.normal(size=envs).astype(np.float32)]
    arrays = list(map(jnp.asarray, given))
    right = functions["fastgae"](*given)
    for function in functions.values():
        np.testing.assert_allclose(jax.jit(function)(*arrays), right, rtol=1e-4, atol=1e-4)
    timers = {}
    for name, function in {**functions, "the loop alone": lambda rewards, values, *_: (-rewards, -values)}.items():

        def loop(rewards: Any, values: Any, terminated: Any, last: Any, function: Any = function) -> Any:
            # Each call needs the results of the one before, so that XLA can leave none of them out. Behind the barrier
            # every array is new, as in a rollout, so that XLA cannot convert the flags once for all calls.
            def call(results: Any, _: None) -> Any:
                given = rewards, values, terminated, last + 1e-3 * results[0][0]
                return tuple(function(*jax.lax.optimization_barrier(given))), None

            return jax.lax.scan(call, (jnp.zeros_like(rewards), jnp.zeros_like(rewards)), None, length=CALLS)[0]

        program = jax.jit(loop)
        jax.block_until_ready(program(*arrays))
        timers[name] = Timer(lambda program=program: jax.block_until_ready(program(*arrays)))  # type: ignore[misc]
    seconds = {name: found / CALLS for name, found in best(timers, 2.0).items()}
    return {"seconds": seconds, "eager": best({name: Timer(call) for name, call in eager(given, arrays).items()}, 0.5)}


TABLES = {"seconds": "T×N, in a compiled loop", "eager": "T×N, one eager call"}


def table(measured: Mapping[str, Any]) -> str:
    """Write the times, and in parentheses how many times as long as fastgae the others take: compiled, then eager."""
    return "\n\n".join(_table(measured["rows"], of, heading) for of, heading in TABLES.items())


def _table(measured: Sequence[Mapping[str, Any]], of: str, heading: str) -> str:
    names = list(measured[0][of])
    rows = []
    for row in measured:
        ours = row[of]["fastgae"]
        others = (f"{duration(row[of][name])} ({row[of][name] / ours:.2g})" for name in names[1:])
        rows.append((row["name"], duration(ours), *others))
    return markdown((heading, *names), rows)
