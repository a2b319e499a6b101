"""Gradients through the results with stop_gradients=False, and through the functions of fastgae.compat.rlax."""

import inspect

import numpy as np
import pytest

import fastgae
from fastgae.compat import rlax as ours
from support.cases import assert_same_bits, make_case
from support.compat_calls import CALLS, STEPS, prepared
from support.drawn import drawn
from support.functions import arrays_of

from .test_gradients import KEEPING, QUICKLY

jax = pytest.importorskip("jax")
jnp = jax.numpy
from jax.test_util import check_vjp  # noqa: E402

CASE = make_case((9, 4), np.float32)


def calls(name, dtype=np.float32, first=2):
    """Yield some calls that keep gradients, each as a function of its numbers alone, and these numbers."""
    for function, arguments in drawn(name, dtype)[:first]:
        numbers = {each: given for each, given in arguments.items() if getattr(given, "dtype", None) == dtype}
        others = {each: given for each, given in arguments.items() if each not in numbers} | {"stop_gradients": False}
        yield lambda numbers, function=function, others=others: function(**numbers, **others), numbers


def total(results):
    return sum((result * jnp.cos(result)).sum() for result in arrays_of(results))


def checked(function, given, plain):
    """Check one derivative backward against differences of a plain function. Return the results and the program."""

    def derivative(given, weights):
        results, pull = jax.vjp(function, given)
        return results, *pull(weights)

    program = jax.jit(derivative, compiler_options=QUICKLY)
    results, _ = program(given, plain(given))
    check_vjp(plain, lambda _: (results, lambda weights: program(given, weights)[1:]), (given,), atol=1e-5, rtol=1e-5)
    return results, program


def test_finite_differences():
    """In float64, also of the second order. A derivative backward is the transpose of the one forward.

    NumPy's call is the plain function, because it needs no program; a derivative changes no bit of its results.
    """
    with jax.enable_x64(True):
        for name in KEEPING:
            for number, (call, given) in enumerate(calls(name, np.float64)):
                results, program = checked(call, given, call)
                assert_same_bits(results, call(given))
                if name == "gae" and number == 1:
                    once = lambda given, call=call: jax.vjp(call, given)[1](call(given))[0]  # noqa: E731
                    checked(once, given, lambda given, call=call, of=program: of(given, call(given))[1])


def test_values_and_where_derivatives_run():
    """A derivative changes no bit of the results; it runs in jit, vmap, scan, remat, and of rewards of integers."""
    for name in KEEPING:
        call, numbers = next(calls(name))
        given = jax.device_put(numbers)
        both = jax.jit(lambda given, call=call: (call(given), jax.vjp(call, given)[0]))(given)
        for got in (call(given), *both):
            assert_same_bits(got, call(numbers))
    call, given = [*calls("gae")][1]
    two = jax.tree.map(lambda array: np.stack([array, array]), given)

    def loss(given):
        return total(call(given))

    def gradients(two):
        return [
            jax.tree.map(lambda array: jnp.stack([array, array]), jax.grad(loss)(given)),
            jax.vmap(jax.grad(loss))(two),
            jax.grad(lambda two: jax.vmap(loss)(two).sum())(two),
            jax.lax.scan(lambda carry, given: (carry, jax.grad(loss)(given)), 0, two)[1],
            jax.vmap(jax.grad(jax.checkpoint(loss)))(two),
        ]

    right, *others = jax.jit(gradients, compiler_options=QUICKLY)(two)
    for got in others:
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-5, 1e-5), got, right)
    ones, ends = jnp.ones((9, 4), int), np.ones((9, 4), bool)
    call = lambda values: fastgae.gae(ones, values, ends, last_values=0, stop_gradients=False)  # noqa: E731
    of_integers = jax.grad(lambda values: call(values).advantages.sum())(CASE.values)
    assert (of_integers == -1).all()


def test_a_number_behind_a_gate_has_no_part_in_derivatives():
    """JAX drops the rule of a custom_jvp in a loop after the first derivative, so the function itself has to gate."""

    def first(gamma, last_values=np.nan):
        how = {"last_values": last_values, "gamma": gamma, "stop_gradients": False}
        return fastgae.discounted_returns(jnp.ones(3), np.array([0, 0, 1]), **how)[0]

    assert jax.grad(jax.grad(first))(0.5) == 2
    assert jax.jvp(first, (0.5, 1.0), (0.0, np.nan))[1] == 0  # nor has its tangent


def test_one_step_without_jit():
    """Where a loop of JAX must not be empty."""
    rewards = np.ones((2, 3), np.float32)
    with jax.disable_jit():
        got = jax.vmap(lambda each: fastgae.n_step_returns(each, each, None, n=1, last_values=0.0, gamma=0.5))(rewards)
    assert (got == np.array([1.5, 1.5, 1.0])).all()


def test_what_has_no_gradients():
    rewards, values = CASE.rewards, CASE.values
    got = fastgae.gae(rewards, values, CASE.terminated, last_values=0.0, stop_gradients=False)
    assert_same_bits(got.advantages, fastgae.gae(rewards, values, CASE.terminated, last_values=0.0).advantages)
    for function in (fastgae.gae, fastgae.td_lambda):
        with pytest.raises(TypeError, match=r"values is an array of jax, and rewards is not.*convert rewards"):
            function(rewards, jnp.asarray(values), CASE.terminated, last_values=0.0, stop_gradients=False)
        with pytest.raises(ValueError, match="out cannot carry gradients"):
            function(jnp.asarray(rewards), values, None, last_values=0.0, stop_gradients=False, out=(rewards, values))


def gradients_of_rlax(function, given, stop):
    """The numbers are no integers, so that no ratio lies at its clip."""
    floats = {
        name: jnp.asarray(0.77 * each + 0.1, jnp.float32)
        for name, each in given.items()
        if getattr(each, "dtype", None) == np.float32 or (isinstance(each, float) and "clip" not in name)
    }
    others = {name: each for name, each in given.items() if name not in floats}
    call = lambda floats: total(function(**floats, **others, stop_target_gradients=stop))  # noqa: E731
    with jax.disable_jit():  # to compile each function would take longer
        return jax.value_and_grad(call)(floats)


def test_gradients_of_rlax():
    """The gradients of every function equal RLax's, with and without stop_target_gradients."""
    theirs, seen = pytest.importorskip("rlax"), set()
    for name, call in CALLS.items():
        if name.startswith("rlax"):
            function, given = prepared(call)
            if steps := {"rlax gae": STEPS, "rlax retrace_continuous": STEPS - 1}.get(name):
                given["lambda_"] = np.linspace(0.5, 0.9, steps, dtype=np.float32)
            seen.add(function.__name__)
            both = function, getattr(theirs, function.__name__)
            defaults = {inspect.signature(each).parameters["stop_target_gradients"].default for each in both}
            assert len(defaults) == 1, name
            for stop in (False, True):
                pair = [gradients_of_rlax(each, given, stop) for each in both]
                jax.tree.map(lambda a, b, name=name: np.testing.assert_allclose(a, b, 2e-5, 2e-5, err_msg=name), *pair)
    assert seen == {name for name in vars(ours) if hasattr(theirs, name) and inspect.isfunction(getattr(ours, name))}
