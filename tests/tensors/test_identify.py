"""fastgae.testing calls functions of torch, also with gradients, compiled ones of JAX, and the loops of the corpus."""

import jax
import jax.numpy as jnp
import pytest
import torch

from fastgae.testing import identify
from loops import environments, in_jax, in_torch
from test_loops import check


def of_torch(rewards, values, dones, next_value, gamma=0.99, lam=0.95):
    advantages, advantage = [], torch.zeros_like(next_value).requires_grad_()
    for t in reversed(range(len(rewards))):
        following = next_value if t + 1 == len(rewards) else values[t + 1]
        delta = rewards[t] + gamma * following * (1.0 - dones[t]) - values[t]
        advantage = delta + gamma * lam * (1.0 - dones[t]) * advantage
        advantages.insert(0, advantage)
    return torch.stack(advantages), torch.stack(advantages) + values


@jax.jit
def of_jax(rewards, values, terminated, last_values):
    def step(carry, row):
        following, advantage = carry
        reward, value, done = row
        delta = reward + 0.9 * following * (1 - done) - value
        advantage = delta + 0.9 * 0.8 * (1 - done) * advantage
        return (value, advantage), advantage

    start = last_values, jnp.zeros_like(last_values)
    advantages = jax.lax.scan(step, start, (rewards, values, terminated), reverse=True)[1]
    return {"targets": advantages + values, "advantages": advantages}


def test_torch():
    found = identify(of_torch)
    assert (found.known, found.findings, found.error) == (True, (), 0.0)
    assert "torch arrays of shape (T, N), flags as float32" in found.arguments


def test_jax():
    found = identify(of_jax)
    assert (found.known, found.findings) == (True, ())
    assert found.outputs == {"targets": "returns", "advantages": "advantages"}
    assert found.call.endswith("gamma=0.9, gae_lambda=0.8)")
    assert found.error < 1e-6


def test_the_error_is_that_of_the_library_that_the_function_is_written_for():
    with pytest.raises(TypeError, match="with arrays of torch most often AttributeError: 'Tensor' object has no attr"):
        identify(lambda rewards, values: torch.relu(rewards.no_such_method()))


def test_a_loop_in_numpy_gets_arrays_of_numpy():
    """JAX would take its shorter arrays, too, because it reads the last row in place of one that does not exist."""
    for name in ("ikostrikov", "epymarl", "pymarl"):
        assert "; passed as numpy " in identify(environments.corpus[name].function).arguments


@pytest.mark.parametrize("corpus", [in_torch.corpus, in_jax.corpus], ids=["torch", "jax"])
def test_loops_of_the_corpus(corpus):
    check(corpus)
