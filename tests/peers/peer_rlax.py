"""RLax on a CPU, in float32; the largest difference allowed is that of joined roundings."""

import numpy as np

from fastgae.compat import rlax as ours

from .compare import called

PACKAGE = "rlax==0.1.9"
ACTIONS = 4


def comparisons(rng):
    import jax.numpy as jnp
    import rlax as theirs

    for length in (100, 2):
        values, following, rewards, log_ratios = jnp.asarray(rng.normal(size=(4, length)), jnp.float32)
        discounts = jnp.asarray(0.99 * (rng.random(length) > 0.1), jnp.float32)
        ratios, mix = jnp.exp(log_ratios / 2), jnp.asarray(rng.random(length), jnp.float32)
        off_policy = values, following, rewards, discounts, ratios
        actions, actions_before = jnp.asarray(rng.integers(0, ACTIONS, (2, length)))
        action_values, action_values_before = jnp.asarray(rng.normal(size=(2, length, ACTIONS)), jnp.float32)
        policy = jnp.asarray(rng.dirichlet(np.ones(ACTIONS), length), jnp.float32)
        behaviour = jnp.asarray(rng.random(length), jnp.float32)
        traces = 0.9 * jnp.minimum(ratios, 1)
        discrete = action_values_before, action_values, actions_before, actions, rewards, discounts, policy, behaviour
        continuous = values, values[1:], following, rewards, discounts, log_ratios[1:]
        longer = jnp.append(values, following[-1:])
        each = {"lambda_": mix, "sample_mask": jnp.asarray(rng.random(length) < 0.8)}
        actions_taken = action_values, actions, rewards, discounts, traces, policy
        for name, positional, named in [
            ("truncated_generalized_advantage_estimation", (rewards, discounts, 0.95, longer), {}),
            ("truncated_generalized_advantage_estimation", (rewards, discounts, mix, longer), {}),
            ("lambda_returns", (rewards, discounts, following, 0.95), {}),
            ("lambda_returns", (rewards, discounts, following, mix), {}),
            ("n_step_bootstrapped_returns", (rewards, discounts, following, 5), {}),
            ("n_step_bootstrapped_returns", (rewards, discounts, following, 5, mix), {}),
            ("discounted_returns", (rewards, discounts, following), {}),
            ("vtrace", off_policy, {}),
            ("vtrace", off_policy, {"clip_rho_threshold": 2.0, **each}),
            ("vtrace_td_error_and_advantage", off_policy, {"lambda_": 0.9}),
            ("vtrace_td_error_and_advantage", off_policy, each),
            ("leaky_vtrace", off_policy, {}),
            ("leaky_vtrace", off_policy, {"alpha_": 0.6, **each}),
            ("leaky_vtrace_td_error_and_advantage", off_policy, {}),
            ("leaky_vtrace_td_error_and_advantage", off_policy, {"alpha": 0.6, "clip_pg_rho_threshold": 0.5, **each}),
            ("general_off_policy_returns_from_q_and_v", (values[1:], following, rewards, discounts, traces[1:]), {}),
            ("general_off_policy_returns_from_action_values", actions_taken, {}),
            ("retrace", (*discrete, 0.9), {}),
            ("retrace_continuous", (*continuous, 0.9), {}),
            ("retrace_continuous", (*continuous, mix[1:]), {}),
        ]:
            functions = (getattr(module, name) for module in (theirs, ours))
            yield called(", ".join([name, *named]), *functions, *positional, **named, tolerance=1e-5)
