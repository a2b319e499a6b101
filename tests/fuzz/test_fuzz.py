"""Run some calls of every function, and test the fuzzer itself: oracles, guarded memory, shrinking and replaying."""

import contextlib
import ctypes
import inspect
import itertools
import re
from pathlib import Path

import numpy as np
import pytest

import fastgae
from support.functions import FUNCTIONS, parameters

pytest.importorskip("hypothesis")

from .calls import Call, Given, Over
from .check import DifferenceError, check, variants
from .layouts import LAYOUTS
from .memory import Arena, Pages, Place
from .mutants import MUTANTS, ROOT
from .oracle import ANSWERS
from .right import WEIGHTS, Independent, right_call
from .run import block, main

NUMPY = ["numpy"]
TESTS = str(Path(__file__).parents[1])


def checked(call):
    """Check a call on all backends; on Numba for GAE in float32 with final values, a mask or neither, and for trees.

    A kernel for each option and dtype would take most of the time. tests/test_numba.py has a call of each.
    """
    numbers = [call.arguments.get(name, 1.0) for name in ("gamma", "gae_lambda")]
    plain = not call.arguments.keys() & {"returns_lambda", "tail_normalized"} and {*map(type, numbers)} == {float}
    asked = call.function == "gae_tree" or (call.function in ("gae", "gae_packed") and plain)
    asks_numba = asked and call.working_dtype() == np.float32
    return check(call, [name for name in variants() if name != "numba" or asks_numba])


@pytest.mark.parametrize("function", FUNCTIONS)
def test_some_calls(function):
    """The calls that plain `pytest` makes: more of functions with more arguments. A step of .ci/run makes more."""
    assert not block(1, 2 * WEIGHTS.get(function, 16), (function,), checked)


@pytest.mark.parametrize("function", ["gae", "gae_tree", "vtrace", "retrace", "normalize"])
def test_calls_of_any_options(function):
    for seed in range(50 * WEIGHTS.get(function, 8) // 8):
        call, _ = right_call(Independent(seed), (function,))
        checked(call)


@pytest.mark.parametrize("following", ["next_values", "final_values"])
@pytest.mark.parametrize("axis", [0, 1])
def test_outputs_over_any_input(following, axis):
    """Each row of an output lies where the row of an input before it or after it does, or where flags do."""
    _, arrays = plain_call(next_values=np.arange(18.0).reshape(6, 3), mask=np.eye(6, 3) == 0, last_values=np.ones(3))
    other = "final_values" if following == "next_values" else "next_values"
    arrays["values"] = arrays["values"][:6]
    arrays = {name: np.asarray(array, bool if array.dtype == bool else "f4") for name, array in arrays.items()}
    for masked, shift, place in itertools.product((True, False), (0, 1, -1), (0, 1)):
        absent = {other, *["last_values"] * (following == "next_values"), *["mask"] * (not masked)}
        given = {name: Given(array.T if axis else array, LAYOUTS["c"]) for name, array in arrays.items()}
        given = {name: array for name, array in given.items() if name not in absent} | {"time_axis": axis}
        shape = given["rewards"].plain.shape
        for name in {*arrays} - absent:
            outputs = [None, None]
            outputs[place] = Over(name, shape, shift * shape[1] * 4)
            check(Call("gae", given, outputs), variants())


@pytest.mark.parametrize("function", FUNCTIONS)
def test_roles_are_true(monkeypatch, function):
    """Without the oracle, every answer is compared with calls for halves of the envs, which roles say how to make."""
    monkeypatch.setattr("fuzz.check.ANSWERS", {})
    assert not block(2, 20, (function,), lambda call: check(call, NUMPY))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_argument_is_given_sometimes(function):
    """Only a setting can be missing here: its values stand in ``SETTINGS`` in right.py."""
    missing = {*parameters(function)} - {"backend"}
    for seed in range(300):
        call, _ = right_call(Independent(seed), (function,))
        missing -= {*call.arguments, *call.how, *(["out"] if call.out else [])}
        if not missing:
            return
    assert not missing


def plain_call(**changed):
    rng = np.random.default_rng(0)
    shape = (6, 3)
    arrays = {
        "rewards": rng.normal(size=shape),
        "values": rng.normal(size=(7, 3)),
        "terminated": rng.random(shape) < 0.2,
        "truncated": rng.random(shape) < 0.2,
        "final_values": rng.normal(size=shape),
        **changed,
    }
    return Call("gae", {name: Given(array, LAYOUTS["c"]) for name, array in arrays.items()}), arrays


def one_bit(named, result):
    result.returns[2, 1] = np.nextafter(result.returns[2, 1], 9)


@pytest.mark.parametrize(
    ("change", "by_oracle", "found"),
    [
        (one_bit, True, r"oracle, returns.*1 of 6 differ"),
        (lambda named, result: None, True, None),
        (lambda named, result: None, False, None),
        (lambda named, result: result.returns.put(0, named["rewards"].strides[0]), False, r"returns\[slice"),
        (lambda named, result: result.advantages.put(0, result.returns[0, -1]), False, r"advantages\[slice"),
    ],
    ids=["one wrong bit", "right", "right without the oracle", "looks at strides", "looks at another env"],
)
def test_what_is_wrong_is_found(monkeypatch, change, by_oracle, found):
    """By the oracle, and where it does not know the function, by other memory and fewer envs."""
    exact = fastgae.gae

    def wrong(**named):
        result = exact(**named)
        change(named, result)
        return result

    wrong.__signature__ = inspect.signature(exact)
    monkeypatch.setattr(fastgae, "gae", wrong)
    if not by_oracle:
        monkeypatch.delitem(ANSWERS, "gae")
    call, arrays = plain_call()
    call.arguments["rewards"] = Given(arrays["rewards"], LAYOUTS["fortran"])
    with pytest.raises(DifferenceError, match=found) if found else contextlib.nullcontext():
        assert check(call, NUMPY) == "right"


def test_arrays_lie_as_asked():
    """Elements, strides and ends of an array follow its Place, and writes beside its elements are seen."""
    plain = np.arange(12, dtype=np.float32).reshape(3, 4)
    with contextlib.closing(Arena(Pages())) as arena:
        array = arena.array(plain, Place((1, 0), (1, 2), (True, False), shift=1, at_end=True))
        np.testing.assert_array_equal(array, plain)
        assert array.strides == (-8, 3 * 8 + 8)
        assert not array.flags.aligned
        assert arena.changed() is None
        array[1, 1] = 7
        assert "no output" in arena.changed()
        assert arena.changed([array]) is None
        ctypes.memset(array[1:, 1:].ctypes.data + array.itemsize, 1, 1)
        assert "between the elements" in arena.changed([array])


def test_pages_beside_an_array_may_not_be_touched(python):
    code = """if True:
        import ctypes, multiprocessing, numpy as np
        from fuzz.memory import Arena, Pages, Place

        def touch(at_end, beside):
            array = Arena(Pages()).array(np.zeros(8), Place((0,), (0,), (False,), 0, at_end))
            ctypes.string_at(array.ctypes.data, 64)
            print("inside", flush=True)
            ctypes.string_at(array.ctypes.data + beside, 1)

        for case in ((True, 64), (False, -1)):
            child = multiprocessing.get_context("fork").Process(target=touch, args=case)
            child.start()
            child.join()
            print(child.exitcode < 0)  # a signal
    """
    assert python(code, PYTHONPATH=TESTS).split() == ["inside", "True"] * 2


def wrong_where_truncated(call, backends):
    """Stand in for ``check``: find a mistake in every call of ``gae`` with at least five steps and ``truncated``."""
    if call.function == "gae" and "truncated" in call.arguments and len(call.shape) == 2 and call.shape[0] >= 5:
        raise DifferenceError("planted")
    return "right"


def test_what_is_found_is_small_and_can_be_replayed(monkeypatch, capsys):
    monkeypatch.setattr("fuzz.run.check", wrong_where_truncated)
    found = block(5, 100, ("gae",), lambda call: wrong_where_truncated(call, NUMPY))
    assert found.startswith("planted")
    shape = re.search(r"rewards=\w+\[(\d+), (\d+)\]", found)
    assert shape.groups() == ("5", "1")
    case = found.split()[-1]
    assert main(["--replay", case, "--function", "gae", "--backend", "numpy"]) == 1
    printed = capsys.readouterr().out
    assert shape[0] in printed
    assert "planted" in printed


def test_a_finding_that_does_not_come_again_is_reported():
    made = []

    def wrong_once(call):
        made.append(call)
        if len(made) == 5:
            raise DifferenceError("planted")

    assert block(6, 20, ("gae",), wrong_once) == "planted; but not every time"


def test_a_seed_makes_the_same_calls():
    made = [], []
    for calls in made:
        block(5, 20, FUNCTIONS, lambda call, calls=calls: calls.append(str(call)))
    assert made[0] == made[1]


def test_every_mutant_still_finds_its_text():
    for mutant in MUTANTS:
        assert (ROOT / mutant.file).read_text(encoding="utf-8").count(mutant.old) == 1, mutant.what
