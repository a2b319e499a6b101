"""What the annotations of the public functions say. mypy and pyright read the files beside this one in .ci/run."""

import inspect
from pathlib import Path
from typing import TypeVar, get_args, get_type_hints

import pytest

from fastgae._canonical.arguments import AUTORESET
from fastgae._canonical.checks import NORMALIZE
from fastgae._engine import dispatch
from fastgae._interop.libraries import FUNCTIONS
from fastgae._typing import Autoreset, BackendName, Normalize
from support.compat_calls import CALLS, TORCH_CALLS, puff_elsewhere

# Runs a program in which assert_type looks at the object, and counts how often it did.
CHECKED = """
import runpy, sys, typing
import numpy as np

count = 0

def holds(value, declared):
    global count
    count += 1
    kind, inner = typing.get_origin(declared) or declared, typing.get_args(declared)
    if hasattr(kind, "__value__"):  # an alias made by `type`, as NDArray is from NumPy 2.5 on
        kind, inner = typing.get_origin(kind.__value__), typing.get_args(kind.__value__[inner])
    assert isinstance(value, kind), (declared, type(value))
    if kind is np.ndarray:
        (scalar,) = typing.get_args(inner[1])
        assert scalar is typing.Any or value.dtype.type is scalar, (declared, value.dtype)
    elif issubclass(kind, tuple) and inner:
        for each, of in zip(value, inner * (len(value) // len(inner)), strict=True):
            holds(each, of)

typing.assert_type = holds
runpy.run_path(sys.argv[1])
print(count)
"""


@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
def test_types_hold_when_the_program_runs(python, library):
    pytest.importorskip(library)
    file = Path(__file__).with_name(f"{library}_user.py")
    assert int(python(CHECKED, str(file))) >= file.read_text().count("\nassert_type(") >= 5


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_the_first_argument_decides_on_the_type_of_the_results(function):
    hints = get_type_hints(function)
    first, *_, result = (hints[name] for name in [*inspect.signature(function).parameters, "return"])
    (variable,) = (result,) if isinstance(result, TypeVar) else result.__parameters__
    assert variable in first.__parameters__


def test_so_does_one_argument_in_compat():
    for function, *_ in (*CALLS.values(), *TORCH_CALLS.values()):
        if function is not puff_elsewhere:
            *given, result = get_type_hints(function).values()
            (variable,) = result.__parameters__ if get_args(result) else (result,)
            assert sum(variable in getattr(each, "__parameters__", ()) for each in given) == 1, function


@pytest.mark.parametrize(
    ("words", "choices"),
    [(Autoreset, AUTORESET), (Normalize, NORMALIZE), (BackendName, dispatch.CHOICES)],
    ids=["autoreset", "normalize", "backend"],
)
def test_literals_are_the_words_that_the_checks_take(words, choices):
    assert get_args(words) == choices
