"""Loops in JAX."""

import jax
import jax.numpy as jnp

from . import BOTH, GAE, GIVEN, LAST, LONGER, Corpus

corpus = Corpus()
says = corpus.says


@says(f"fastgae.gae(rewards[:-1], values, terminated[:-1], {GIVEN})", BOTH, "last_row_dropped raises")
def gymnax_blines(value, reward, done, discount, gae_lambda):
    advantages, gae = [], 0.0
    for t in reversed(range(len(reward) - 1)):
        delta = reward[t] + discount * value[t + 1] * (1 - done[t]) - value[t]
        gae = delta + discount * gae_lambda * (1 - done[t]) * gae
        advantages.append(gae)
    advantages = jnp.array(advantages[::-1])
    return advantages, advantages + value[:-1]


@says(LONGER)
def flax_example(rewards, terminal_masks, values, discount, gae_param):
    advantages, gae = [], 0.0
    for t in reversed(range(len(rewards))):
        delta = rewards[t] + discount * values[t + 1] * terminal_masks[t] - values[t]
        gae = delta + discount * gae_param * terminal_masks[t] * gae
        advantages.append(gae)
    return jnp.array(advantages[::-1])


@says("fastgae.gae(rewards, values, terminated, gamma=0.99, gae_lambda=gae_lambda)")
def one_env(r_t, discount_t, values, lambda_):
    deltas = r_t + discount_t * values[1:] - values[:-1]

    def step(total, row):
        total = row[0] + row[1] * lambda_ * total
        return total, total

    return jax.lax.scan(step, 0.0, (deltas, discount_t), reverse=True)[1]


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
    advantages, total = [], 0.0
    for delta, end in zip(deltas[::-1], ended[::-1], strict=True):
        total = delta + gamma * lam * (1 - end) * total
        advantages.append(total)
    return jnp.stack(advantages[::-1])


@says("fastgae.gae(rewards, values, terminated, next_values=next_values, gamma=0.97, gae_lambda=0.9)", "returns")
def dreamer(reward, value, next_value, cont):
    inputs = reward + 0.97 * cont * (1 - 0.9) * next_value
    returns, total = [], next_value[-1]
    for t in reversed(range(len(reward))):
        total = inputs[t] + 0.97 * 0.9 * cont[t] * total
        returns.append(total)
    return jnp.stack(returns[::-1])
