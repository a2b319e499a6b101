"""Test the fuzzer itself: its oracle, its guarded memory, how cases replay and shrink. And run a few cases."""

import contextlib
import ctypes
import inspect
from pathlib import Path

import numpy as np
import pytest

import fastgae
from support.functions import FUNCTIONS, parameters
from support.oracle import gae_oracle

from .calls import Call, Given
from .check import DifferenceError, check, variants
from .choices import Choices, parse, smallest, written
from .draw import random_call
from .memory import Arena, Pages, Place
from .mutants import MUTANTS, ROOT
from .oracle import ANSWERS, answers
from .roles import handed_over
from .run import attempt, main

NUMPY = ["numpy"]
TESTS = str(Path(__file__).parents[1])


@pytest.mark.parametrize("function", FUNCTIONS)
def test_some_cases(function):
    """Run a few cases of each function, so that plain `pytest` sees a broken generator or function."""
    backends = variants()
    for case in range(40):
        outcome, _ = attempt(case, (function,), backends)
        assert outcome in ("right", "refused"), outcome


@pytest.mark.parametrize("function", FUNCTIONS)
def test_roles_are_true(monkeypatch, function):
    """Without the oracle, every answer is compared with calls for halves of the envs, which roles say how to make."""
    monkeypatch.setattr("fuzz.check.ANSWERS", {})
    for case in range(40):
        outcome, _ = attempt(case, (function,), NUMPY)
        assert outcome in ("right", "refused"), outcome


def test_every_argument_is_given_sometimes():
    """Only a setting can be missing here: its values stand in ``SETTINGS`` in draw.py."""
    missing = {(name, each) for name in FUNCTIONS for each in parameters(name)}
    for case in range(6000):
        call = random_call(Choices(case))
        given = {*call.arguments, *call.how, "backend", *(["out"] if call.out else [])}
        missing -= {(call.function, name) for name in given}
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
    choose = Choices([])
    return Call("gae", {name: handed_over(choose, array) for name, array in arrays.items()}), arrays


def test_the_oracle_is_right():
    """Compare the oracle with another one, in float64, which shares no code with it."""
    call, arrays = plain_call()
    expected = dict(zip(("advantages", "returns"), gae_oracle(**arrays), strict=True))
    found = list(answers(call))
    assert len(found) == 2 * 3
    for name, index, numbers in found:
        np.testing.assert_allclose(numbers, expected[name][index], rtol=1e-12, atol=1e-12)


def test_one_wrong_bit_is_a_difference(monkeypatch):
    call, _ = plain_call()
    assert check(call, NUMPY) == "right"
    exact = fastgae.gae

    def wrong(*arguments, **named):
        result = exact(*arguments, **named)
        result.returns[2, 1] = np.nextafter(result.returns[2, 1], 9)
        return result

    wrong.__signature__ = inspect.signature(exact)
    monkeypatch.setattr(fastgae, "gae", wrong)
    with pytest.raises(DifferenceError, match=r"oracle, returns.*1 of 6 differ"):
        check(call, NUMPY)


def replaced(monkeypatch, change):
    """Put change(arguments, result) after ``gae``, which the oracle then does not know."""
    exact = fastgae.gae

    def wrong(**named):
        result = exact(**named)
        change(named, result)
        return result

    wrong.__signature__ = inspect.signature(exact)
    monkeypatch.setattr(fastgae, "gae", wrong)
    monkeypatch.delitem(ANSWERS, "gae")


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda named, result: None, None),
        (lambda named, result: result.returns.put(0, named["rewards"].strides[0]), r"returns\[slice"),
        (lambda named, result: result.advantages.put(0, result.returns[0, -1]), r"advantages\[slice"),
    ],
    ids=["right", "looks at strides", "looks at another env"],
)
def test_without_an_oracle_memory_and_envs_are_compared(monkeypatch, change, found):
    replaced(monkeypatch, change)
    call, arrays = plain_call()
    call.arguments["rewards"] = Given(arrays["rewards"], Place((1, 0), (0, 0), (False, False), 0, True))
    with pytest.raises(DifferenceError, match=found) if found else contextlib.nullcontext():
        check(call, NUMPY)


def test_a_write_beside_an_output_is_a_difference(monkeypatch):
    call, _ = plain_call()
    exact = fastgae.gae

    def wrong(rewards, *arguments, **named):
        result = exact(rewards, *arguments, **named)
        rewards[0, 0] += 1
        return result

    wrong.__signature__ = inspect.signature(exact)
    monkeypatch.setattr(fastgae, "gae", wrong)
    with pytest.raises(DifferenceError, match="no output was written to"):
        check(call, NUMPY)


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


@pytest.mark.parametrize(("at_end", "beside"), [(True, 64), (False, -1)])
def test_pages_beside_an_array_may_not_be_touched(python, at_end, beside):
    code = f"""if True:
        import ctypes, numpy as np
        from fuzz.memory import Arena, Pages, Place
        array = Arena(Pages()).array(np.zeros(8), Place((0,), (0,), (False,), 0, {at_end}))
        ctypes.string_at(array.ctypes.data, 64)
        print("inside", flush=True)
        ctypes.string_at(array.ctypes.data + {beside}, 1)
    """
    done = python(code, check=False, PYTHONPATH=TESTS)
    assert done.stdout == "inside\n"
    assert done.returncode < 0  # a signal


def test_a_case_is_replayed_by_its_decisions():
    for case in range(50):
        choose = Choices(case)
        call = str(random_call(choose))
        assert str(random_call(Choices(parse(written(choose.taken))))) == call
        assert str(random_call(Choices(parse(written(case))))) == call


def test_shrinking_keeps_what_matters():
    def fails(taken):
        choose = Choices(taken)
        return [choose.below(100) for _ in range(20)][7] >= 42

    taken = [*range(50, 57), 99, *range(60, 72)]
    assert smallest(taken, fails) == [0] * 7 + [42]


def test_what_is_found_is_printed_with_how_to_replay_it(monkeypatch, capsys):
    monkeypatch.setattr("fuzz.run.check", lambda call, backends: (_ for _ in ()).throw(DifferenceError("planted")))
    assert main(["--replay", "5", "--backend", "numpy"]) == 1
    printed = capsys.readouterr().out
    assert "python -m fuzz --replay" in printed
    assert "planted" in printed


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.what)
def test_every_mutant_still_finds_its_text(mutant):
    assert (ROOT / mutant.file).read_text(encoding="utf-8").count(mutant.old) == 1
