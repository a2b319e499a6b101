"""compute_gae of Brax's PPO on a CPU, in float32."""

import numpy as np

from fastgae.compat import brax as ours

from .compare import Comparison

PACKAGE = "brax==0.14.2"


def comparisons(rng):
    import jax.numpy as jnp
    from brax.training.agents.ppo import losses as theirs

    shape = (64, 6)
    rewards, values = jnp.asarray(rng.normal(size=(2, *shape)), jnp.float32)
    last = jnp.asarray(rng.normal(size=shape[1]), jnp.float32)
    ends, limit = rng.random(shape) < 0.2, rng.random(shape) < 0.5
    flags = [jnp.asarray(array, jnp.float32) for array in (ends & limit, ends & ~limit)]
    for coefficients in ((0.95, 0.99), (1.0, 1.0)):
        results = [module.compute_gae(*flags, rewards, values, last, *coefficients) for module in (theirs, ours)]
        yield Comparison(
            "compute_gae, lambda {} discount {}".format(*coefficients),
            *(tuple(map(np.asarray, pair)) for pair in results),
            1e-5,
        )
