"""Every backend × CPU target × dtype × layout gives the bits of the reference, which is what the definition says."""

import dataclasses
from itertools import product

import numpy as np
import pytest

import fastgae
from support.backends import ONE_TARGET, WITH_KERNELS
from support.cases import FEW_SIZES, LARGE_SIZES, SIZES, assert_same_bits, cases_of, make_case, numbers
from support.exactness import Variant, reference, unwritten, variants
from support.layouts import IN_PLACE, SOME, named
from support.oracle import gae_oracle

COEFFICIENTS = [(0.99, 0.95), (1.0, 1.0), (0.0, 0.95), (0.9, 0.0), (0.7, 1.0), (1e-3, 1e-3)]
TOLERANCE = {"float32": 2e-5, "float64": 1e-12}


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_reference_is_the_definition(size, dtype):
    for number, case in enumerate(cases_of(size, dtype)):
        gamma, gae_lambda = COEFFICIENTS[number % len(COEFFICIENTS)]
        arguments = {**case.arguments(), "gamma": gamma, "gae_lambda": gae_lambda}
        got = fastgae.gae(**arguments, backend="numpy")
        for array, expected in zip(got, gae_oracle(**arguments), strict=True):
            np.testing.assert_allclose(array, expected, rtol=TOLERANCE[dtype.name], atol=10 * TOLERANCE[dtype.name])


@pytest.mark.parametrize("size", FEW_SIZES, ids=str)
def test_every_layout(backend, dtype, size):
    for variant in variants(backend, dtype):
        for case in cases_of(variant.layout.size(size), dtype):
            variant.check(case)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_every_size(dtype, size):
    for layout in IN_PLACE:
        for case, backend in product(cases_of(layout.size(size), dtype), WITH_KERNELS):
            Variant(backend, dtype, layout).check(case)


@pytest.mark.parametrize("coefficients", COEFFICIENTS, ids=str)
def test_every_coefficient(backend, dtype, coefficients):
    gamma, gae_lambda = coefficients
    for variant in variants(backend, dtype, SOME):
        variant.check(make_case(variant.layout.size((17, 33)), dtype, gamma=gamma, gae_lambda=gae_lambda))


@pytest.mark.parametrize("size", LARGE_SIZES, ids=str)
def test_large(dtype, size, large):
    case, expected = large(size, dtype)
    for layout in named("c", "env_major", "env_major_padded"):
        arguments, _ = layout.arguments(case)
        with unwritten(arguments):
            for backend in WITH_KERNELS:
                got = Variant(backend, dtype, layout).results(arguments)
                for array, right in zip(got, expected, strict=True):
                    assert_same_bits(array, right, f"{backend} {layout.name}")


def test_denormal_and_huge_numbers(backend, dtype):
    """Neither flushed to zero nor computed in a wider type."""
    tiny, largest = np.finfo(dtype).tiny, np.finfo(dtype).max
    for variant, scale in product(variants(backend, dtype, SOME), (tiny / 4, largest / 3)):
        case = make_case(variant.layout.size((31, 17)), dtype, "random", "next_values")
        with np.errstate(all="ignore"):
            case = case.mapped(lambda name, a, scale=scale: a * dtype.type(scale) if a.dtype != bool else a)
            advantages, _ = variant.check(case)
        assert np.isinf(advantages).any() if scale > 1 else 0 < np.abs(advantages[advantages != 0]).min() < tiny


def test_backends_are_given_what_a_rollout_promises(dtype, layout, monkeypatch):
    """Views of one dtype, aligned, native, and with a unit stride along the same axis; also where no CPU would mind."""
    rollouts = []
    made = fastgae._backends.numpy.canonical_rollout
    monkeypatch.setattr(
        fastgae._backends.numpy, "canonical_rollout", lambda call: rollouts.append(made(call)) or rollouts[-1]
    )
    for size in FEW_SIZES:
        for case in cases_of(layout.size(size), dtype):
            arguments, _ = layout.arguments(case)
            fastgae.gae(**arguments, backend="numpy")
    for rollout in rollouts:
        arrays = {name: a for name, a in rollout._asdict().items() if isinstance(a, np.ndarray)}
        assert {"rewards", "values", "next_values", "last_values", "terminated", "advantages", "returns"} <= set(arrays)
        unit_axes = {0, 1}
        for name, array in arrays.items():
            assert array.flags.aligned, name
            assert array.dtype == (bool if name in ("terminated", "truncated") else dtype), name
            if array.ndim == 2:
                unit_axes &= {i for i in (0, 1) if array.shape[i] <= 1 or array.strides[i] == array.itemsize}
        assert unit_axes
        assert unit_axes == {0} or rollout.last_values.flags.c_contiguous


@pytest.mark.parametrize(("gamma", "gae_lambda"), [(0.99, 0.95), (0.997, 0.93), (0.98, 0.97), (0.1, 0.3)])
def test_gamma_lambda_is_one_float64_product_rounded_once(backend, dtype, gamma, gae_lambda):
    """With V = 0 and rewards (0, 1), A_0 is gamma lambda itself."""
    advantages, _ = fastgae.gae(
        np.array([[0], [1]], dtype),
        np.zeros((3, 1), dtype),
        np.zeros((2, 1), bool),
        gamma=gamma,
        gae_lambda=gae_lambda,
        backend=backend,
    )
    assert_same_bits(advantages, np.array([[gamma * gae_lambda], [1]], dtype))


def test_every_operation_is_rounded_on_its_own(backend, dtype):
    """Written out with Python numbers rounded one by one: no fused multiply-add, no wider type, no other bracketing."""

    def rounded(number):
        return float(dtype.type(number))

    rng = np.random.default_rng(3)
    rewards, values = numbers(rng, (9, 33), dtype), numbers(rng, (10, 33), dtype)
    advantages, returns = fastgae.gae(rewards, values, np.zeros((9, 33), bool), backend=backend)
    gamma, gamma_lambda = rounded(0.99), rounded(0.99 * 0.95)
    for env in range(33):
        following = 0.0
        for t in reversed(range(9)):
            reward, value, next_value = float(rewards[t, env]), float(values[t, env]), float(values[t + 1, env])
            delta = rounded(rounded(reward + rounded(gamma * next_value)) - value)
            following = rounded(delta + rounded(gamma_lambda * following))
            assert advantages[t, env] == following
            assert returns[t, env] == rounded(following + value)


@pytest.mark.parametrize("other", ["int32", "int8", "bool", "float32", "float64"])
@pytest.mark.parametrize("name", ["rewards", "values", "last_values", "final_values"])
def test_a_mix_promotes_as_numpy_does(dtype, name, other):
    case = make_case((17, 9), dtype)
    mixed = {**case.arguments(), name: case.arguments()[name].astype(other)}
    expected_dtype = np.result_type(dtype, other)
    flags = ("terminated", "truncated")
    same = dataclasses.replace(case, **{name: mixed[name]})
    same = same.mapped(lambda key, a: a if key in flags else a.astype(expected_dtype))
    for backend in ONE_TARGET:
        for array, right in zip(fastgae.gae(**mixed, backend=backend), reference(same), strict=True):
            assert_same_bits(array, right, f"{backend}:")


def test_integers_and_lists_become_float64(backend):
    got = fastgae.gae([1, 2], [0, 0, 4], [0, 1], gamma=0.5, gae_lambda=1, backend=backend)
    assert_same_bits(got.advantages, np.array([2.0, 2.0]))
    got = fastgae.gae(np.array([1, 2], np.uint8), [0, 0], [False, False], last_values=4, gamma=0.5, backend=backend)
    assert_same_bits(got.returns[1], np.float64(4.0))


def test_a_python_number_promotes_nothing(backend):
    got = fastgae.gae(np.ones(2, np.float32), np.ones(2, np.float32), [0, 0], last_values=0.1, backend=backend)
    assert got.advantages.dtype == np.float32


def test_flags_of_every_type(backend, dtype):
    case = make_case((17, 9), dtype)
    for kind in ("bool", "uint8", "int64", "float32", "float64", ">i4", ">f8"):
        flags = {name: getattr(case, name).astype(kind) for name in ("terminated", "truncated")}
        got = fastgae.gae(**{**case.arguments(), **flags}, backend=backend)
        for array, expected in zip(got, reference(case), strict=True):
            assert_same_bits(array, expected, f"{kind}:")
