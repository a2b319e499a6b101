"""compute_gae of Brax's PPO on a CPU, in float32."""

from fastgae.compat import brax as ours

from .compare import called

PACKAGE = "brax==0.14.2"


def comparisons(rng):
    import jax.numpy as jnp
    from brax.training.agents.ppo import losses as theirs

    rewards, values, last = (jnp.asarray(rng.normal(size=size), jnp.float32) for size in ((64, 6), (64, 6), 6))
    ends, limit = rng.random(rewards.shape) < 0.2, rng.random(rewards.shape) < 0.5
    flags = [jnp.asarray(array, jnp.float32) for array in (ends & limit, ends & ~limit)]
    for lambda_, discount in ((0.95, 0.99), (1.0, 1.0)):
        name, given = f"compute_gae, lambda {lambda_} discount {discount}", (*flags, rewards, values, last)
        yield called(name, theirs.compute_gae, ours.compute_gae, *given, lambda_, discount, tolerance=1e-5)
