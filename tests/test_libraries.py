"""A new array library is a row in the table of libraries, and a module with its conversions."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

import fastgae
from fastgae._interop.arrays import given_back
from fastgae._interop.libraries import LIBRARIES, Library, type_of
from support.cases import assert_same_bits, make_case


class Boxed:
    """An array of a library that NumPy does not know."""

    __array__ = None

    def __init__(self, inside):
        self.inside = inside


@pytest.fixture
def boxes(monkeypatch):
    conversions = SimpleNamespace(
        to_numpy=lambda name, array: array.inside,
        from_numpy=lambda results, like: given_back(results, Boxed),
        may_be_read=lambda given: type(given[0]) is Boxed,
    )
    monkeypatch.setitem(sys.modules, "boxes", SimpleNamespace(Boxed=Boxed))
    monkeypatch.setitem(LIBRARIES, "boxes", Library("Boxed", "boxes.stack", lambda: conversions))


@pytest.mark.parametrize("name", LIBRARIES)
def test_the_type_of_every_row_is_found(name):
    """NumPy can read the arrays of many libraries. A type that is not found would make the results NumPy's."""
    pytest.importorskip(name)
    assert isinstance(type_of(name), type)


@pytest.mark.usefixtures("boxes")
def test_a_row_in_the_table():
    arguments = make_case((17, 6), np.float32, bootstrap="last_values").arguments()
    boxed = {name: Boxed(each) if isinstance(each, np.ndarray) else each for name, each in arguments.items()}
    for result, expected in zip(fastgae.gae(**boxed), fastgae.gae(**arguments), strict=True):
        assert type(result) is Boxed
        assert_same_bits(result.inside, expected)
    sums = fastgae.reverse_scan(boxed["rewards"], 0.5)
    assert_same_bits(sums.inside, fastgae.reverse_scan(arguments["rewards"], 0.5))
    assert_same_bits(fastgae.valid_steps(Boxed(np.array([0, 1, 0]))).inside, np.array([True, True, False]))
    # In the place of another argument, such an array is read; the results are those of the first one's library.
    mixed = {**arguments, "values": boxed["values"]}
    assert_same_bits(fastgae.gae(**mixed).advantages, fastgae.gae(**arguments).advantages)
    with pytest.raises(TypeError, match="out cannot be filled with results from arrays of boxes"):
        fastgae.gae(**boxed, out=tuple(fastgae.gae(**arguments)))
    with pytest.raises(TypeError, match=r"rewards is a list of boxes arrays: pass one array, boxes.stack\(rewards\)"):
        fastgae.gae([boxed["rewards"]], boxed["values"], None)
