"""Loops in JAX."""

import jax
import jax.numpy as jnp

from . import BOTH, GAE, GIVEN, LAST, LONGER, Corpus

corpus = Corpus()
says = corpus.says


def swept(deltas, going_on, decay, total=0.0):
    """Return the sums along time that most loops have in common."""
    sums = []
    for delta, alive in zip(deltas[::-1], going_on[::-1], strict=True):
        total = delta + decay * alive * total
        sums.append(total)
    return jnp.stack(sums[::-1])


@says(f"fastgae.gae(rewards[:-1], values, terminated[:-1], {GIVEN})", BOTH, "last_row_dropped raises")
def gymnax_blines(value, reward, done, discount, gae_lambda):
    going_on = 1 - done[:-1]
    advantages = swept(reward[:-1] + discount * value[1:] * going_on - value[:-1], going_on, discount * gae_lambda)
    return advantages, advantages + value[:-1]


@says(LONGER)
def flax_example(rewards, terminal_masks, values, discount, gae_param):
    deltas = rewards + discount * values[1:] * terminal_masks - values[:-1]
    return swept(deltas, terminal_masks, discount * gae_param)


def step(total, row):  # outside of the loop, because JAX would compile a new function with each call
    total = row[0] + row[1] * total
    return total, total


@says("fastgae.gae(rewards, values, terminated, gamma=gamma, gae_lambda=gae_lambda)")
def one_env(r_t, discount_t, values, lambda_):
    deltas = r_t + discount_t * values[1:] - values[:-1]
    return jax.lax.scan(step, 0.0, (deltas, discount_t * lambda_), reverse=True)[1]


@says(f"fastgae.gae(rewards, values, terminated, truncated, next_values=next_values, {GIVEN})", BOTH)
@jax.jit
def stoix(rewards, values, next_values, terminated, truncated, gamma, gae_lambda):
    deltas = rewards + gamma * next_values * (1 - terminated) - values
    decay = gamma * gae_lambda * (1 - terminated) * (1 - truncated)

    def combined(late, early):
        return late[0] * early[0], early[1] + early[0] * late[1]

    advantages = jax.lax.associative_scan(combined, (decay, deltas), reverse=True)[1]
    return advantages, advantages + values


@says(GAE, BOTH)
@jax.jit
def clean_rl(rewards, values, dones, next_value, next_done, gamma=0.99, gae_lambda=0.95):
    dones, values = jnp.concatenate([dones, next_done[None]]), jnp.concatenate([values, next_value[None]])

    def once(carry, row):
        done, following, value, reward = row
        delta = reward + gamma * following * (1.0 - done) - value
        carry = delta + gamma * gae_lambda * (1.0 - done) * carry
        return carry, carry

    rows = (dones[1:], values[1:], values[:-1], rewards)
    advantages = jax.lax.scan(once, jnp.zeros(rewards.shape[1]), rows, reverse=True)[1]
    return {"advantages": advantages, "returns": advantages + values[:-1]}


@says(
    f"fastgae.gae(rewards, values, terminated | truncated, {LAST}, {GIVEN})", "advantages", "truncation_as_termination"
)
def mixed(rewards, values, terminations, truncations, last_values, gamma, lam):
    ended = jnp.maximum(terminations, truncations)
    deltas = rewards + gamma * jnp.concatenate([values[1:], last_values[None]]) * (1 - ended) - values
    return swept(deltas, 1 - ended, gamma * lam)


@says("fastgae.gae(rewards, values, terminated, next_values=next_values, gamma=0.97, gae_lambda=0.9)", "returns")
def dreamer(reward, value, next_value, cont):
    return swept(reward + 0.97 * cont * (1 - 0.9) * next_value, cont, 0.97 * 0.9, next_value[-1])
