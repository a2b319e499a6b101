"""RLax on a CPU, in float32; the largest difference allowed is that of joined roundings."""

from functools import partial
from importlib.metadata import version

import numpy as np

from fastgae.compat import rlax as ours

from .compare import Comparison

PACKAGE = "rlax==0.1.9"
VERSION = partial(version, "rlax")


def comparisons(rng):
    import jax.numpy as jnp
    import rlax as theirs

    length = 100
    values, following, rewards, log_ratios = jnp.asarray(rng.normal(size=(4, length)), jnp.float32)
    discounts = jnp.asarray(0.99 * (rng.random(length) > 0.1), jnp.float32)
    ratios, mix = jnp.exp(log_ratios / 2), jnp.asarray(rng.random(length), jnp.float32)
    mask = jnp.asarray(rng.random(length) < 0.8)
    off_policy = values, following, rewards, discounts, ratios
    longer = jnp.append(values, following[-1:])
    each = {"lambda_": mix, "sample_mask": mask}
    calls = [
        ("truncated_generalized_advantage_estimation", "", (rewards, discounts, 0.95, longer), {}),
        ("truncated_generalized_advantage_estimation", ", lambda per step", (rewards, discounts, mix, longer), {}),
        ("lambda_returns", "", (rewards, discounts, following, 0.95), {}),
        ("lambda_returns", ", lambda per step", (rewards, discounts, following, mix), {}),
        ("discounted_returns", "", (rewards, discounts, following), {}),
        ("vtrace", "", off_policy, {}),
        ("vtrace", ", lambda per step, mask", off_policy, {"clip_rho_threshold": 2.0, **each}),
        ("vtrace_td_error_and_advantage", "", off_policy, {"lambda_": 0.9}),
        ("vtrace_td_error_and_advantage", ", lambda per step, mask", off_policy, each),
    ]
    for name, setting, positional, named in calls:
        results = [getattr(module, name)(*positional, **named) for module in (theirs, ours)]
        pairs = [result if isinstance(result, tuple) else (result,) for result in results]
        yield Comparison(name + setting, *(tuple(map(np.asarray, pair)) for pair in pairs), 1e-5)
