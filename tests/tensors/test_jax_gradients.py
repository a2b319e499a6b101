"""Gradients through the results with stop_gradients=False, and through the functions of fastgae.compat.rlax."""

import inspect
from pathlib import Path

import numpy as np
import pytest

import fastgae
from fastgae.compat import rlax as ours
from support.cases import assert_same_bits, make_case
from support.functions import arrays_of

jax = pytest.importorskip("jax")
jnp = jax.numpy

TESTS = str(Path(__file__).parents[1])
CASE = make_case((9, 4), np.float32, bootstrap="final_dense")
MASK = np.random.default_rng(0).random((9, 4)) < 0.7
FLAGS = {"terminated": CASE.terminated, "truncated": CASE.truncated}
NUMBERS = {
    "rewards": CASE.rewards,
    "values": CASE.values,
    "last_values": CASE.last_values,
    "next_values": CASE.values[::-1],
    "final_values": CASE.final_values,
    "last_advantages": CASE.last_values + 1,
    "ratios": np.exp(CASE.values),
    "gamma": np.full((1, 4), 0.9, np.float32),
    "gae_lambda": np.linspace(0.2, 0.9, 9, dtype=np.float32)[:, None],
    "returns_lambda": np.float32(0.7),
    "lambda_": np.linspace(0.2, 0.9, 36, dtype=np.float32).reshape(9, 4),
    "x": CASE.rewards,
    "decay": CASE.values,
    "initial": CASE.last_values,
}
# name: (function, the numbers that it takes, its other arguments)
CALLS = {
    "gae": (fastgae.gae, "rewards values last_values gamma gae_lambda", {"terminated": CASE.terminated}),
    "gae without gates": (fastgae.gae, "rewards values last_values last_advantages gamma", {"terminated": None}),
    "gae masked": (
        fastgae.gae,
        "rewards values last_values final_values last_advantages gamma gae_lambda",
        {**FLAGS, "mask": MASK},
    ),
    "gae carried over": (
        fastgae.gae,
        "rewards values next_values gamma gae_lambda returns_lambda",
        {**FLAGS, "mask": MASK, "carry_over": True},
    ),
    "gae reset rows": (
        fastgae.gae,
        "rewards values last_values gamma",
        {**FLAGS, "autoreset": "next_step", "prev_done": CASE.truncated[0]},
    ),
    "gae tail": (
        fastgae.gae,
        "rewards values last_values gae_lambda",
        {"terminated": CASE.terminated, "mask": MASK, "tail_normalized": True},
    ),
    "gae normalized": (
        fastgae.gae,
        "rewards values last_values",
        {"terminated": CASE.terminated, "mask": MASK, "normalize": "global"},
    ),
    "td_lambda": (fastgae.td_lambda, "rewards values next_values gamma lambda_", FLAGS),
    "discounted_returns": (
        fastgae.discounted_returns,
        "rewards last_values final_values gamma",
        {**FLAGS, "mask": MASK},
    ),
    "discounted_returns of next_values": (fastgae.discounted_returns, "rewards next_values", {**FLAGS, "mask": MASK}),
    "n_step_returns": (fastgae.n_step_returns, "rewards values last_values final_values gamma", {**FLAGS, "n": 3}),
    "n_step_returns masked": (fastgae.n_step_returns, "rewards values next_values", {**FLAGS, "n": 3, "mask": MASK}),
    "reverse_scan": (fastgae.reverse_scan, "x decay initial", {}),
    "vtrace": (
        fastgae.vtrace,
        "rewards values last_values final_values ratios gamma lambda_",
        {**FLAGS, "mask": MASK, "rho_clip": 1.5, "leaky": 0.2},
    ),
    "retrace": (fastgae.retrace, "rewards values next_values ratios gamma lambda_", {**FLAGS, "mask": MASK}),
    "upgo": (fastgae.upgo, "rewards values last_values gamma", {"terminated": CASE.terminated, "mask": MASK}),
    "gae_packed": (
        fastgae.gae_packed,
        "rewards values last_values gae_lambda",
        {
            "terminated": CASE.terminated[:, 0],
            "mask": MASK[:, 0],
            "cu_seqlens": np.array([0, 2, 2, 7, 9]),
            "gamma": 0.9,
        },
    ),
}
# The sequences of gae_packed lie in one env.
PACKED = {
    "rewards": CASE.rewards[:, 0],
    "values": CASE.values[:, 0],
    "last_values": CASE.last_values,
    "gae_lambda": np.linspace(0.2, 0.9, 9, dtype=np.float32),
}


def call_of(name, **settings):
    """The function of its numbers alone, and these numbers as arrays of JAX."""
    function, numbers, others = CALLS[name]
    known = {**NUMBERS, **PACKED} if name == "gae_packed" else NUMBERS
    given = {each: jnp.asarray(known[each], NUMBERS[each].dtype) for each in numbers.split()}
    return lambda given: function(**given, **others, stop_gradients=False, **settings), given


def jitted(function, **options):
    """Compile without most optimisations, which would take most of the time of these tests."""
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0}, **options)


def total(results):
    return sum((result * jnp.cos(result)).sum() for result in arrays_of(results))


def test_finite_differences(python):
    """In float64: derivatives forward and backward, and of the second order."""
    python(
        "import os; os.environ['XLA_FLAGS'] = '--xla_backend_optimization_level=0'\n"
        "import jax, sys; jax.config.update('jax_enable_x64', True); sys.path.insert(0, " + repr(TESTS) + ")\n"
        "import numpy as np; from jax.test_util import check_grads; from tensors import test_jax_gradients as t\n"
        "t.NUMBERS = {name: np.float64(each) for name, each in t.NUMBERS.items()}\n"
        "for name in t.CALLS:\n"
        "    call, given = t.call_of(name)\n"
        "    order = 1 + (name == 'gae masked')\n"
        "    check_grads(jax.jit(call), (given,), order=order, atol=1e-5, rtol=1e-5)\n"
    )


def test_values_and_where_derivatives_run():
    """A derivative changes no bit of the results; it runs in jit, vmap, scan, remat, and of rewards of integers."""
    for name in CALLS:
        call, given = call_of(name)
        function, _, others = CALLS[name]
        expected = arrays_of(function(**{each: np.asarray(array) for each, array in given.items()}, **others))
        both = jax.jit(lambda given, call=call: (call(given), jax.vjp(call, given)[0]))(given)
        for got in (call(given), *both):
            for result, right in zip(arrays_of(got), expected, strict=True):
                assert_same_bits(result, right, name)
    call, given = call_of("gae masked")
    two = jax.tree.map(lambda array: jnp.stack([array, array]), given)

    def loss(given):
        return total(call(given))

    def gradients(two):
        return [
            jax.vmap(jax.grad(loss))(two),
            jax.grad(lambda two: jax.vmap(loss)(two).sum())(two),
            jax.lax.scan(lambda carry, given: (carry, jax.grad(loss)(given)), 0, two)[1],
            jax.vmap(jax.grad(jax.checkpoint(loss)))(two),
        ]

    right = jax.grad(loss)(given)
    for got in jitted(gradients, donate_argnums=0)(two):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, jnp.stack([b, b]), 1e-5, 1e-5), got, right)
    of_integers = jax.grad(
        lambda values: fastgae.gae(
            jnp.ones((9, 4), int), values, MASK, last_values=0, mask=MASK[::-1], stop_gradients=False
        ).advantages.sum()
    )(given["values"])
    assert of_integers.dtype == np.float32
    assert np.isfinite(of_integers).all()


def test_equal_advantages_have_the_normalized_gradients_of_torch():
    """The standard deviation is 0, where its root has no derivative."""
    torch = pytest.importorskip("torch")
    ends, values = np.ones((4, 3), bool), np.zeros((4, 3), np.float32)
    weights = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)

    def loss(rewards, weights=weights, by="global"):
        advantages, _ = fastgae.gae(rewards, values, ends, last_values=0.0, normalize=by, stop_gradients=False)
        return (advantages * weights).sum() + (advantages**2).sum()

    for by in ("global", "per_env"):
        rewards = torch.ones(4, 3, requires_grad=True)
        loss(rewards, torch.from_numpy(weights), by).backward()
        gradient = jax.grad(loss)(jnp.ones((4, 3)), by=by)
        assert np.isfinite(gradient).all()
        np.testing.assert_allclose(gradient, rewards.grad, rtol=1e-5, atol=1.0)
        second = jax.hessian(loss)(jnp.ones((4, 3)), by=by)
        other = torch.autograd.functional.hessian(
            lambda r, by=by: loss(r, torch.from_numpy(weights), by), torch.ones(4, 3)
        )
        np.testing.assert_allclose(second, other, rtol=1e-4)
        assert np.isfinite(second).all()


def test_identities():
    rewards, discounts = jnp.asarray(CASE.rewards), jnp.asarray(np.full((9, 4), 0.5, np.float32))

    def advantages(rewards, **settings):
        return fastgae.gae(rewards, rewards, ends, last_values=0.0, **settings).advantages

    def sums(rewards):
        return fastgae.discounted_returns(rewards, None, last_values=0.0, gamma=discounts, stop_gradients=False)

    first = jax.grad(lambda rewards: sums(rewards)[0].sum())(rewards)
    np.testing.assert_array_equal(first, np.cumprod(np.vstack([np.ones((1, 4)), discounts[1:]]), 0))
    ends = np.zeros((9, 4), bool)
    ends[3] = True
    behind = jax.grad(lambda rewards: advantages(rewards, stop_gradients=False)[:4].sum())(rewards)
    assert behind[:4].any()
    assert not behind[4:].any()
    assert not jax.grad(lambda rewards: advantages(rewards).sum())(rewards).any()


def test_numbers_that_are_never_used_have_no_gradient():
    """NaN and infinity behind a closed gate, at masked steps, and where no final value is read."""
    ended, cut, mask = (np.zeros((9, 4), bool) for _ in range(3))
    ended[3], cut[5], mask[:] = True, True, True
    mask[7] = False
    bad = dict.fromkeys(("rewards", "values", "ratios"), 7) | {"final_values": slice(0, 5), "next_values": 3}
    given = {name: np.array(array) for name, array in NUMBERS.items()}
    for name, rows in bad.items():
        given[name][rows] = np.nan
    given["gamma"] = given["lambda_"] = given["gae_lambda"] = np.float32(0.9)
    for name in ("gae masked", "td_lambda", "discounted_returns", "vtrace", "retrace"):
        function, numbers, others = CALLS[name]
        settings = {**others, "terminated": ended, "truncated": cut, "mask": mask}
        arrays = {each: jnp.asarray(given[each]) for each in numbers.split()}
        call = lambda arrays, f=function, s=settings: f(**arrays, **s, stop_gradients=False)  # noqa: E731
        live = lambda arrays, call=call: sum(jnp.where(mask, each, 0).sum() for each in arrays_of(call(arrays)))  # noqa: E731
        gradients = jitted(jax.grad(live))(arrays)
        for each, gradient in gradients.items():
            assert np.isfinite(gradient).all(), (name, each)
            if each in bad and each != "next_values":
                assert not gradient[bad[each]].any(), (name, each)


def test_what_has_no_gradients():
    rewards, values = CASE.rewards, CASE.values
    got = fastgae.gae(rewards, values, CASE.terminated, last_values=0.0, stop_gradients=False)
    assert_same_bits(got.advantages, fastgae.gae(rewards, values, CASE.terminated, last_values=0.0).advantages)
    for function in (fastgae.gae, fastgae.td_lambda):
        with pytest.raises(TypeError, match=r"values is an array of jax, and rewards is not.*convert rewards"):
            function(rewards, jnp.asarray(values), CASE.terminated, last_values=0.0, stop_gradients=False)
        with pytest.raises(ValueError, match="out cannot carry gradients"):
            function(jnp.asarray(rewards), values, None, last_values=0.0, stop_gradients=False, out=(rewards, values))


SIZES = {"q_tm1": (5, 3), "q_t": (5, 3), "pi_t": (5, 3), "values": 6}
ONE_LESS = {
    "general_off_policy_returns_from_q_and_v": {"q_t": 4, "c_t": 4},
    "retrace": {"lambda_": ()},
    "retrace_continuous": {"q_tm1": 5, "q_t": 4, "log_rhos": 4, "lambda_": 4},
}


def arguments_of_rlax(name, parameters):
    """Numbers between 0 and 1, which are right for each argument, and the other arguments."""
    rng = np.random.default_rng(0)
    sizes = {**SIZES, **ONE_LESS.get(name, {})}
    required = [each for each in parameters if parameters[each].default is inspect.Parameter.empty]
    given = {each: rng.random(sizes.get(each, 5)) for each in required}
    others = {each: jnp.asarray(rng.integers(0, 3, 5)) for each in ("a_t", "a_tm1") if each in given}
    others |= {"n": 4} if "n" in given else {}
    return {each: jnp.asarray(array, jnp.float32) for each, array in given.items() if each not in others}, others


def gradients_of_rlax(module, name, stop):
    floats, others = arguments_of_rlax(name, inspect.signature(getattr(module, name)).parameters)
    function = lambda floats: total(getattr(module, name)(**floats, **others, stop_target_gradients=stop))  # noqa: E731
    with jax.disable_jit():  # to compile each function would take longer
        return jax.value_and_grad(function)(floats)


def test_gradients_of_rlax():
    """The gradients of every function equal RLax's, with and without stop_target_gradients."""
    theirs = pytest.importorskip("rlax")
    names = [name for name in vars(ours) if hasattr(theirs, name) and inspect.isfunction(getattr(ours, name))]
    assert len(names) == 12
    for name in names:
        defaults = [inspect.signature(getattr(module, name)).parameters for module in (ours, theirs)]
        assert len({each["stop_target_gradients"].default for each in defaults}) == 1, name
        for stop in (False, True):
            pair = [gradients_of_rlax(module, name, stop) for module in (ours, theirs)]
            jax.tree.map(lambda a, b, name=name: np.testing.assert_allclose(a, b, 2e-5, 2e-5, err_msg=name), *pair)
