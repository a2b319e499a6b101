"""A user's code with JAX. Type checkers must accept it, and what it says of types must hold when it runs."""

from typing import assert_type

import jax
import jax.numpy as jnp

import fastgae
from fastgae.compat import brax, rlax

rewards, values, last_values = jnp.ones((3, 2)), jnp.ones((3, 2)), jnp.ones(2)
flags = jnp.zeros((3, 2), jnp.bool_)

advantages, returns = fastgae.gae(rewards, values, flags, last_values=last_values)
assert_type(advantages, jax.Array)
assert_type(returns, jax.Array)
assert_type(fastgae.td_lambda(rewards, values, None, last_values=0.0), jax.Array)
assert_type(fastgae.normalize(advantages), jax.Array)
assert_type(fastgae.valid_steps(flags), jax.Array)

# The functions of other libraries.
assert_type(brax.compute_gae(flags, flags, rewards, values, last_values)[0], jax.Array)
first, ratios = jnp.ones(3), jnp.ones(3)
assert_type(rlax.vtrace_td_error_and_advantage(first, first, first, first, ratios).pg_advantage, jax.Array)
