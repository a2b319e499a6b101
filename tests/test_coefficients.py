"""Arrays of gamma and gae_lambda: every number of them is checked and multiplied, wherever it lies."""

from itertools import product

import numpy as np
import pytest

import fastgae
from support.cases import assert_same_bits, make_case

# The compiled backend takes 16 and 256 numbers at once, of a row of memory: these shapes leave a rest.
SHAPES = [(19, 1), (1, 37), (5, 37), (37, 19), (600, 3)]


def layouts_of(numbers):
    """Yield the same numbers in C order, in Fortran order, and with gaps."""
    yield numbers
    yield np.asfortranarray(numbers)
    yield np.repeat(numbers, 2, axis=1)[:, ::2]


def test_no_number_outside_is_overlooked(backend, dtype):
    outside = (np.nan, np.nextafter(dtype.type(1), 2), -np.nextafter(dtype.type(0), 1))
    for shape, number, place in product(SHAPES, outside, (0, 0.6, 1)):
        case = make_case(shape, dtype, "random", "last_values")
        wrong = np.linspace(0, 1, np.prod(shape), dtype=dtype).reshape(shape)
        wrong.flat[int(place * (wrong.size - 1))] = number
        for name, array in product(("gamma", "gae_lambda"), layouts_of(wrong)):
            with pytest.raises(ValueError, match=f"{name} .*\\[0, 1\\]"):
                fastgae.gae(**case.arguments() | {name: array}, backend=backend)


def test_products_are_rounded_once(backend, dtype):
    for shape in SHAPES:
        case, numbers = make_case(shape, dtype, "random", "last_values"), np.random.default_rng(7).random(shape)
        numbers.flat[0], numbers.flat[-1] = -0.0, 1.0
        coefficients = [
            layout
            for kind, part in product((np.float32, np.float64), (numbers, numbers[:1], numbers[:, :1]))
            for layout in layouts_of(part.astype(kind))
        ]
        lambdas = (1.0, 0.8, coefficients[1], coefficients[-1])
        for gamma, gae_lambda in product([1.0, 0.9, *coefficients], lambdas):
            given = case.arguments() | {"gamma": gamma, "gae_lambda": gae_lambda}
            expected = fastgae.gae(**given, backend="numpy")
            for actual, right in zip(fastgae.gae(**given, backend=backend), expected, strict=True):
                assert_same_bits(actual, right)
