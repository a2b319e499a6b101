"""Every bad value of every argument of every function: an error that names it, and nothing else.

Backends, with their short cut and without, give the same answer: the same error, or the same bits.
"""

import contextlib
import re
import warnings

import numpy as np
import pytest

import fastgae
from support.backends import ONE_TARGET, no_short_cut
from support.bad_arguments import CONFLICTS, VALUES, kind_of
from support.cases import assert_same_bits, difference, make_case
from support.functions import FUNCTIONS, allows_none, arrays_of, parameters, required
from support.good_calls import good_calls


def bytes_of(arguments):
    """The memory of all arrays among some arguments."""
    given = (each if isinstance(each, tuple) else (each,) for each in arguments.values())
    return [array.tobytes() for arrays in given for array in arrays if type(array) is np.ndarray]


def nothing_is_left_behind():
    """An exception that a compiled module forgot comes out at the next statement."""
    assert int("1") == 1
    assert list(each for each in (1, 2)) == [1, 2]  # noqa: C400


def outcome(function, arguments):
    """What a call returns, or the exception that it raises, after which nothing is written."""
    before = bytes_of(arguments)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            result = getattr(fastgae, function)(**arguments)
    except Exception as raised:
        nothing_is_left_behind()
        assert bytes_of(arguments) == before, "wrote to an array"
        return raised
    nothing_is_left_behind()
    return result


def failure_of(got, name, error):
    """What is wrong with how a call ends; nothing where it ends as it should."""
    if not isinstance(got, Exception):
        return None if error is None else f"accepted; expected {error.__name__}"
    if error is None:
        return f"raised {got!r}"
    if type(got) is not error:
        return f"raised {got!r}; expected {error.__name__}"
    return None if re.search(rf"\b{name}\b", str(got)) else f"does not name it: {got}"


def disagreement(got, expected):
    """What differs between the answers of two backends; nothing where they are the same."""
    if got is expected:
        return None
    if type(got) is type(expected) and isinstance(got, np.ndarray | fastgae.GAEResult):
        return "; ".join(filter(None, map(difference, arrays_of(got), arrays_of(expected))))
    got, expected = (re.sub("0x[0-9a-f]+", "", repr(each)) for each in (got, expected))
    return None if got == expected else f"{got}, and another backend: {expected}"


def good_call(arguments):
    """The same arguments with outputs of their own, which still hold 7."""
    out = arguments.get("out")
    if out is None:
        return dict(arguments)
    fresh = tuple(np.full_like(array, 7) for array in out) if isinstance(out, tuple) else np.full_like(out, 7)
    return {**arguments, "out": fresh}


# name: (backend, a context in which it computes). CPU targets check nothing, so one of them is enough.
WAYS = {
    **{backend: (backend, contextlib.nullcontext) for backend in ONE_TARGET},
    **{f"{name} without its short cut": (name, lambda name=name: no_short_cut(name)) for name in ONE_TARGET[:-1]},
}


OPTIONAL_ARRAYS = ("numbers", "numbers of envs", "moment", "flags")


def bad_values(function, arguments):
    """(argument, its value in words, good value -> bad one, the error or None where it is fine)."""
    for name, parameter in parameters(function).items():
        kind = kind_of(function, name)
        absent = arguments.get(name) is None and allows_none(parameter) and kind in OPTIONAL_ARRAYS
        if absent or any(name in CONFLICTS.get(given, ()) for given in arguments):  # another call has it
            continue
        for value, (change, error) in VALUES[kind].items():
            yield name, value, change, error


def cases():
    for function, kind, arguments in good_calls():
        yield pytest.param(function, arguments, id=f"{function}-{kind.replace(' ', '_')}")


def ways(function, arguments):
    """Return the ways in which a call is checked. Numba checks in its short cut alone, which takes no mask."""
    if "backend" not in parameters(function):
        return [("", None, None)]
    asks_numba = function in ("gae", "td_lambda") and "mask" not in arguments
    return [(way, *how) for way, how in WAYS.items() if how[0] != "numba" or asks_numba]


@pytest.mark.parametrize(("function", "arguments"), list(cases()))
def test_bad_arguments(function, arguments):
    inputs = bytes_of({name: given for name, given in arguments.items() if name != "out"})
    failures, seen = [], {}
    for way, backend, context in ways(function, arguments):
        with (context or contextlib.nullcontext)():
            for name, value, change, error in bad_values(function, arguments):
                call = {**good_call(arguments), **({"backend": backend} if backend else {})}
                call[name] = change(call.get(name))
                got = outcome(function, call)
                wrong = failure_of(got, name, error) or disagreement(got, seen.setdefault((name, value), got))
                if wrong:
                    failures.append(f"{name}: {value}: {way}: {wrong}")
    assert not failures, "\n".join([f"{len(failures)} in {function}({', '.join(arguments)}):", *failures])
    assert bytes_of({name: given for name, given in arguments.items() if name != "out"}) == inputs


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_argument_of_every_function_is_attacked(function):
    """Only a setting can be missing in the table: it is of a kind of its own."""
    calls = [arguments for name, _, arguments in good_calls() if name == function]
    attacked = {name for arguments in calls for name, *_ in bad_values(function, arguments)}
    assert attacked == {*parameters(function)}
    assert all(any(name in call for call in calls) for name, each in parameters(function).items() if required(each))


@pytest.mark.parametrize("backend", ONE_TARGET)
def test_numbers_beyond_the_working_dtype_are_infinity(backend):
    """A clip of infinity clips nothing, and a share that is 0 in the working dtype leaks nothing, also of infinity."""
    case = make_case((9, 5), np.float32, bootstrap="last_values")
    arguments = {name: value for name, value in case.arguments().items() if name != "gae_lambda"}
    arguments["ratios"] = np.where(case.values > 1, np.inf, np.exp(case.values)).astype(np.float32)
    arguments["gamma"] = np.full((9, 1), 0.99)  # for which another test compiles Numba's kernel
    for name, plain in {**dict.fromkeys(("rho_clip", "c_clip", "advantage_clip")), "leaky": 0.0}.items():
        expected = fastgae.vtrace(**arguments, **{name: plain}, backend="numpy")
        for given in [1e-50] if name == "leaky" else [1e300, np.float64(1e300), np.array(1e300), 10**300, np.inf]:
            assert_same_bits(fastgae.vtrace(**arguments, **{name: given}, backend=backend), expected)
    one = np.ones((1, 1), np.float32)
    for sign in (1, -1):
        beyond = {"last_values": sign * 1e300, "gamma": 0.99, "backend": backend}
        for got in (fastgae.gae(one, one, one == 0, **beyond), fastgae.gae_packed(one[0], one[0], [0, 1], **beyond)):
            assert_same_bits(got.returns.reshape(1), np.full(1, sign * np.inf, np.float32))


@pytest.mark.parametrize("backend", ONE_TARGET)
def test_normalize_with_its_mask_in_the_memory_of_out(backend):
    numbers = np.arange(12.0).reshape((4, 3))
    exists = numbers % 3 != 0
    expected = fastgae.normalize(numbers, exists, backend="numpy")
    out = np.zeros((4, 3))
    mask = out.view(bool)[:, :3]
    mask[...] = exists
    assert_same_bits(fastgae.normalize(numbers, mask, out=out, backend=backend), expected)


@pytest.mark.parametrize("backend", ONE_TARGET)
def test_normalize_in_the_memory_of_its_numbers(backend):
    numbers = np.random.default_rng(1).normal(size=(6, 6)).astype(np.float32)
    for place in (
        lambda memory: (memory, memory),
        lambda memory: (memory, memory.T),
        lambda memory: (memory.reshape(12, 3)[:6], memory[:, :3]),
        lambda memory: (memory[:, :3], memory.reshape(12, 3)[:6]),
        lambda memory: (memory[:5], memory[1:]),
        lambda memory: (memory[1:], memory[:5]),
        lambda memory: (memory.view(np.float16)[:, :6], memory),
        lambda memory: (memory.view(np.float16)[::2, ::2], memory[::2]),
    ):
        given, out = place(numbers.copy())
        given[...] = numbers[: len(given), : given.shape[1]]
        mask = given > -1
        expected = fastgae.normalize(given.copy(), mask, backend="numpy")
        assert fastgae.normalize(given, mask, out=out, backend=backend) is out
        assert_same_bits(out, expected)


@pytest.mark.parametrize("backend", ONE_TARGET)
def test_out_of_a_subclass_whose_methods_give_other_shapes(backend):
    """``np.matrix`` has two dimensions, whatever is asked of it. Nothing is written beside it."""
    case = make_case((4, 2), np.float32, bootstrap="last_values")
    calls = [
        ("normalize", {"advantages": case.rewards}, 1),
        ("gae", case.arguments(), 2),
        ("gae", {**case.arguments(), "normalize": "global"}, 2),
        ("gae", {**case.arguments(), "mask": np.ones((4, 2), bool)}, 2),
    ]
    for order in "CF":
        for name, arguments, count in calls:
            memory = np.full((count, 400), 7, np.float32)
            out = tuple(row[96:104].reshape((4, 2), order=order).view(np.matrix) for row in memory)
            got = getattr(fastgae, name)(**arguments, out=out if count == 2 else out[0], backend=backend)
            expected = getattr(fastgae, name)(**arguments, backend="numpy")
            for each, array, right in zip(arrays_of(got), out, arrays_of(expected), strict=True):
                assert each is array
                assert_same_bits(np.asarray(array), right)
            assert (np.delete(memory, np.s_[96:104], 1) == 7).all(), name


if __name__ == "__main__":
    calls = [case.values for case in cases()]
    values = sum(len(list(bad_values(*call))) for call in calls)
    print(values, "values in", len(calls), "calls, each in every way in which calls are checked")
