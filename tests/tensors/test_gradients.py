"""Results that keep their gradients, with arrays of torch and of JAX."""

import functools
import inspect

import numpy as np
import pytest

import fastgae
from fastgae._interop.libraries import FUNCTIONS
from support.functions import arrays_of

KEEPING = [name for name, function in FUNCTIONS.items() if "stop_gradients" in inspect.signature(function).parameters]
QUICKLY = {"xla_backend_optimization_level": 0}  # compiled: without most optimisations, which take most of the time
RNG = np.random.default_rng(0)


def of_torch(function, numbers):
    """Return the derivatives of a function of arrays and of their library."""
    torch = pytest.importorskip("torch")
    leaves = {name: torch.tensor(given, requires_grad=True) for name, given in numbers.items()}
    function(leaves, torch).backward()
    return {name: leaf.grad.numpy() for name, leaf in leaves.items()}


def of_jax(function, numbers):
    jax = pytest.importorskip("jax")
    gradient = jax.grad(functools.partial(function, xp=jax.numpy))
    return jax.jit(gradient, compiler_options=QUICKLY)(numbers)


UNREAD = {"rewards": 7, "values": 7, "ratios": 7, "final_values": slice(0, 5), "next_values": 3, "last_values": 0}
TAKES = {
    "gae": "rewards values last_values final_values gamma gae_lambda",
    "td_lambda": "rewards values next_values gamma lambda_",
    "discounted_returns": "rewards last_values final_values gamma",
    "vtrace": "rewards values last_values final_values ratios gamma lambda_",
    "retrace": "rewards values next_values ratios gamma lambda_",
}


@pytest.mark.parametrize("name", TAKES)
@pytest.mark.parametrize("gradients_of", [of_torch, of_jax])
def test_numbers_that_are_never_used_have_no_gradient(gradients_of, name):
    """NaN behind a closed gate, at masked steps, and where no final value is read."""
    given = {each: RNG.random((9, 4), np.float32) for each in UNREAD} | {"last_values": RNG.random(4, np.float32)}
    for each, rows in UNREAD.items():
        given[each][rows] = np.nan
    given["ratios"][2] = 1.0  # at the clip, where the gradient is that of the ratio
    given |= dict.fromkeys(("gamma", "gae_lambda", "lambda_"), np.float32(0.9))
    flags = {each: np.zeros((9, 4), bool) for each in ("terminated", "truncated")} | {"mask": np.ones((9, 4), bool)}
    flags["terminated"][3], flags["truncated"][5], flags["mask"][7], flags["terminated"][8, 0] = True, True, False, True
    clips = {"c_clip": 1e39} if name == "vtrace" else {}  # infinite in float32

    def live(numbers, xp):
        results = getattr(fastgae, name)(**numbers, **flags, **clips, stop_gradients=False)
        return sum(xp.where(xp.asarray(flags["mask"]), each, 0.0).sum() for each in arrays_of(results))

    for each, gradient in gradients_of(live, {each: given[each] for each in TAKES[name].split()}).items():
        assert np.isfinite(gradient).all(), each
        assert each not in UNREAD or not gradient[UNREAD[each]].any(), each
        assert each != "ratios" or gradient[2].all()


@pytest.mark.parametrize("gradients_of", [of_torch, of_jax])
def test_the_gradient_where_a_reward_is_nan(gradients_of):
    given = {each: RNG.random((9, 4), np.float32) for each in ("rewards", "values")}

    def total(numbers, xp):
        results = fastgae.gae(**numbers, terminated=None, last_values=0.0, stop_gradients=False)
        return sum(each.sum() for each in results)

    expected = gradients_of(total, given)
    given["rewards"][5] = np.nan
    for each, gradient in gradients_of(total, given).items():
        np.testing.assert_allclose(gradient, expected[each], rtol=1e-5)


@pytest.mark.parametrize("by", ["global", "per_env"])
def test_equal_advantages_have_normalized_gradients(by):
    """The same of both libraries: the standard deviation is 0, where its root has no derivative."""
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    ends, values, weights = np.ones((4, 3), bool), np.zeros((4, 3), np.float32), RNG.normal(size=(4, 3))

    def loss(numbers, xp):
        given = {"last_values": 0.0, "normalize": by, "stop_gradients": False}
        advantages, _ = fastgae.gae(numbers["rewards"], values, ends, **given)
        return (advantages * xp.asarray(weights, dtype=xp.float32)).sum() + (advantages**2).sum()

    ones = np.ones((4, 3), np.float32)
    gradient, other = (of(loss, {"rewards": ones})["rewards"] for of in (of_jax, of_torch))
    assert np.isfinite(gradient).all()
    np.testing.assert_allclose(gradient, other, rtol=1e-5, atol=1.0)
    hessian = jax.hessian(lambda rewards: loss({"rewards": rewards}, jax.numpy))
    second, hessian = jax.jit(hessian, compiler_options=QUICKLY)(ones), torch.autograd.functional.hessian
    assert np.isfinite(second).all()
    np.testing.assert_allclose(second, hessian(lambda r: loss({"rewards": r}, torch), torch.ones(4, 3)), rtol=1e-4)
