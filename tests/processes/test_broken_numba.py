"""A numba that is installed and broken, in ways that were seen in the wild: nothing falls, and the cause is named."""

import json

import pytest

from support.backends import needs_numba
from support.programs import CALL, NO_CORE, python_path

# The package's __init__.py, the type of the error and a word of it.
BROKEN = {
    "import error": ("raise ImportError('DLL load failed')", "ImportError", "DLL load failed"),
    "its own requirement is missing": ("import llvmlite_of_another_age", "ModuleNotFoundError", "another_age"),
    "runtime error": ("raise RuntimeError('not for this Python')", "RuntimeError", "not for this Python"),
    "after an update of NumPy": ("import numpy; numpy.bool8_", "AttributeError", "bool8_"),
    "syntax error": ("def (", "SyntaxError", "invalid syntax"),
    "an error without words": ("raise KeyError", "KeyError", "KeyError"),
    "an empty package": ("", "ImportError", "__version__"),
    "no numba of ours": ("def __getattr__(name): raise AttributeError('gone')", "ImportError", "numba"),
}
SEEN = """
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    call(); call(plain=False); infos = fastgae.backends(); fastgae.backends()
    error = failing(backend="numba")
numba = next(info for info in infos if info.name == "numba")
print(json.dumps([[[w.category.__name__, str(w.message)] for w in caught], numba, error]))
"""


@pytest.fixture(params=BROKEN)
def broken(request, tmp_path):
    """(environment, type of the cause, a word of it) of an interpreter that finds a broken numba first."""
    source, cause, word = BROKEN[request.param]
    package = tmp_path / "first" / "numba"
    package.mkdir(parents=True)
    package.joinpath("__init__.py").write_text(source)
    return {"PYTHONPATH": python_path(package.parent)}, cause, word


def seen(printed, *words):
    """Check that warnings, information and the error say these words; return the first warning and the error."""
    warned, numba, error = json.loads(printed)
    assert [category for category, _ in warned] == ["RuntimeWarning"] * 2
    assert "falls back" in warned[1][1]  # because cpp is missing, too
    assert numba[:2] == ["numba", False]
    assert error[0] == "BackendUnavailableError"
    for text in (warned[0][1], numba[4], error[1]):
        assert all(word in text for word in words), text
    return warned[0][1], error


def test_everything_else_runs_and_one_warning_names_the_cause(python, broken):
    environment, cause, word = broken
    warning, error = seen(python(NO_CORE + CALL + SEEN, **environment), word)
    assert error[2] == cause, "chained from what numba raised"
    assert "numba" in warning
    assert "backend='numba'" in error[1]


@pytest.mark.parametrize("broken", ["runtime error"], indirect=True)
def test_info_says_why(python, broken):
    environment, _, word = broken
    quiet = "import sys, warnings; warnings.simplefilter('ignore'); from fastgae.cli import info, main; "
    done = python(f"{quiet}info.LARGE_CALLS = 0; main.main(sys.argv[1:])", "info", "--json", **environment)
    numba = next(backend for backend in json.loads(done)["backends"] if backend["name"] == "numba")
    assert not numba["available"]
    assert word in numba["why_missing"]


CANNOT_COMPILE = """
from numba.core.dispatcher import Dispatcher

def compile(self, signature):
    raise ZeroDivisionError("no such instruction")

Dispatcher.compile = compile
"""


@needs_numba
def test_a_numba_that_cannot_compile_is_a_broken_one(python):
    seen(python(NO_CORE + CALL + CANNOT_COMPILE + SEEN), "numba backend", "no such instruction", 'backend="numpy"')
