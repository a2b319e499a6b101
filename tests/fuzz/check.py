"""The one check: make a call on every backend and CPU target, with its short cut and without, and compare.

Whether a call is accepted, and its answers, are those of the oracles in accepted.py and oracle.py. All backends give
the same bits, errors and warnings, in words too, and write to nothing but the outputs.
"""

import collections
import contextlib
import itertools
import math
import re
import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import fastgae
from support.backends import BACKENDS, no_short_cut
from support.cases import difference

from .accepted import faults
from .calls import Alias, Call, Given, Over, everywhere
from .invariance import halves, in_plain_memory
from .memory import Arena, Pages
from .oracle import ANSWERS, answers

PAGES = Pages()

# Results of the last calls that are still in use, and their bytes: no later call may write to them.
IN_USE: collections.deque[tuple[np.ndarray, bytes]] = collections.deque(maxlen=8)


class DifferenceError(AssertionError):
    """What went wrong in a call."""


def variants(names: Sequence[str] = ()) -> list[str]:
    """Return the backends and CPU targets that run here, the reference first; only these names, if any are given."""
    return [each for each in reversed(BACKENDS) if not names or each.partition(":")[0] in names]


def ways(names: Sequence[str]) -> list[tuple[str, bool]]:
    """Return the ways of a call: every one of these backends, and those with a short cut once without it."""
    without = {name.partition(":")[0]: name for name in names if name != "numpy"}  # the best target, which is last
    return [(name, True) for name in names] + [(name, False) for name in without.values()]


def check(call: Call, backends: Sequence[str]) -> str:
    """Make the call in every way. Return "right" or "refused", or raise DifferenceError."""
    wrong, outcomes = faults(call), {}
    for backend, short_cut in ways(backends) if "backend" in call.parameters() else [(backends[0], True)]:
        what = backend if short_cut else f"{backend} without its short cut"
        try:
            with contextlib.nullcontext() if short_cut else no_short_cut(backend):
                outcomes[what] = _run(call, backend)
        except DifferenceError as error:
            raise DifferenceError(f"{what}: {error}") from None
    first, expected = next(iter(outcomes.items()))
    for what, outcome in outcomes.items():
        _compare(f"{what} and {first}", outcome, expected)
    if wrong or "error" in expected:
        _check_refused(wrong, expected)
        return "refused"
    if call.function == "moments":
        _check_merged(call, expected["report"])
    for name, index, numbers in answers(call):
        got = expected["arrays"].get(name, expected["arrays"].get("result"))
        if got is not None:
            _same_bits(f"{first} and the oracle, {name}{list(index)}", got[index], numbers)
    if call.function not in ANSWERS:
        _check_invariance(call, expected, first)
    _check_normalized(call, expected["arrays"], first)
    return "right"


def _check_refused(wrong: Sequence[tuple[type[Exception], tuple[str, ...]]], outcome: dict[str, Any]) -> None:
    """Compare an error with what is wrong by the oracle: it names one of the arguments, and has the right type."""
    said = ", ".join(f"{error.__name__} of {' or '.join(names)}" for error, names in wrong) or "nothing wrong"
    if "error" not in outcome:
        raise DifferenceError(f"accepted, and the oracle expects a {said}")
    kind, _, message = outcome["error"].partition(": ")
    named = [error for error, names in wrong if any(_names(message, name) for name in names)]
    if kind not in [error.__name__ for error in named]:
        raise DifferenceError(f"refused, and the oracle expects {said}: {outcome['error']}")


def _names(message: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", message) is not None


def _run(call: Call, backend: str) -> dict[str, Any]:
    """Return copies of the results and their strides, or the error."""
    how, time_axis = {"backend": backend} if "backend" in call.parameters() else {}, call.time_axis
    with contextlib.closing(Arena(PAGES)) as arena:

        def made(given: Any) -> Any:
            return given.made(arena, time_axis) if isinstance(given, Given) else given

        given = {name: made(each) for name, each in call.arguments.items()}
        outputs = call.out if isinstance(call.out, list) else [call.out]
        memory: dict[int, Any] = {}  # of each output, which may stand at both places
        for output in outputs:
            if isinstance(output, Over):
                plain = call.arguments[output.name].plain
                memory[id(output)], given[output.name] = output.made(arena, call.working_dtype(), plain)
            elif id(output) not in memory:
                memory[id(output)] = given[output.name] if isinstance(output, Alias) else made(output)
        written = [memory[id(output)] for output in outputs]
        pair = [
            base[output.index] if isinstance(output, Alias) else base
            for base, output in zip(written, outputs, strict=True)
        ]
        arguments = {**given, **call.how, **how}
        if call.out is not None:
            arguments["out"] = tuple(pair) if isinstance(call.out, list) else pair[0]
        try:
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("error")
                warnings.simplefilter("always", UserWarning)  # what the call probably means, alike on every backend
                result = getattr(fastgae, call.function)(**arguments)
        except (ValueError, TypeError) as error:
            if what := arena.changed():
                raise DifferenceError(f"{what} by a call that was refused: {error}") from None
            return {"error": f"{type(error).__name__}: {error}"}
        except Exception as error:
            raise DifferenceError(f"{type(error).__name__}: {error}") from error
        if sys.exc_info()[0] is not None:
            raise DifferenceError("an exception was left behind")
        if what := arena.changed(written):
            raise DifferenceError(what)
        return {**_outcome(call, result, pair, given), "warned": [str(each.message) for each in warned]}


def _outcome(call: Call, result: Any, pair: list[Any], given: dict[str, Any]) -> dict[str, Any]:
    if isinstance(result, fastgae.Diagnosis):
        return {"arrays": {}, "report": result.to_json()}
    if isinstance(result, fastgae.Moments):
        return {"arrays": {}, "report": result}
    named = result._asdict() if isinstance(result, fastgae.GAEResult) else {"result": result}
    if call.out is not None:
        for output, array in zip(pair, named.values(), strict=True):
            if array is not output:
                raise DifferenceError("the result is not the array that was given to fill")
    if any(array.tobytes() != before for array, before in IN_USE):
        raise DifferenceError("the results of an earlier call were written to")
    if call.out is None:
        IN_USE.extend((array, array.tobytes()) for array in named.values())
    shape, dtype = call.shape, call.working_dtype()
    like = np.empty_like(np.asarray(given[next(iter(call.parameters()))]), dtype)
    for name, array in named.items():
        if array is None and call.out is not None:
            continue
        if array.shape != shape or array.dtype != dtype:
            raise DifferenceError(f"{name} has shape {array.shape} and dtype {array.dtype}")
        if "out" in call.parameters() and call.out is None and array.size and not _alike(array, like):
            raise DifferenceError(f"{name} has strides {array.strides}, and numpy.empty_like gives {like.strides}")
    arrays = {name: array.copy() for name, array in named.items() if array is not None}
    return {"arrays": arrays}


def _alike(one: np.ndarray, other: np.ndarray) -> bool:
    """Return whether two arrays lie alike in memory. Strides of axes of length 1 mean nothing."""
    return all(n == 1 or a == b for n, a, b in zip(one.shape, one.strides, other.strides, strict=True))


def _compare(what: str, got: dict[str, Any], expected: dict[str, Any]) -> None:
    for key in ("error", "report", "warned"):
        if got.get(key) != expected.get(key):
            raise DifferenceError(f"{what}, {key}: {got.get(key)} and {expected.get(key)}")
    for name, numbers in expected.get("arrays", {}).items():
        _same_bits(f"{what}, {name}", got["arrays"][name], numbers)


def _same_bits(what: str, got: np.ndarray, expected: np.ndarray) -> None:
    if said := difference(got, expected):
        raise DifferenceError(f"{what}: {said}")


def _check_invariance(call: Call, expected: dict[str, Any], backend: str) -> None:
    """Compare with the same call in plain memory, and with a call for each half of the envs."""
    everything = (slice(None),) * len(call.shape)
    parts = halves(call) if expected["arrays"] else ()
    for index, other in ((everything, in_plain_memory(call)), *parts):
        got, what = _run(other, backend), f"{list(index)} in other memory or in a call of its own"
        if "error" in got or got.get("report") != expected.get("report"):
            raise DifferenceError(f"{what}: {got.get('error', got.get('report'))}")
        for name, numbers in expected["arrays"].items():
            _same_bits(f"{name}{what}", got["arrays"][name], numbers[index])


def _check_normalized(call: Call, arrays: dict[str, np.ndarray], backend: str) -> None:
    """Compare ``normalize`` with its definition, and normalized advantages with ``normalize`` of the raw ones."""
    if call.function == "normalize":
        by, eps = call.arguments.get("by", "global"), float(call.arguments.get("eps", 1e-8))
        mask = call.plain("mask")
        exists = np.ones(arrays["result"].shape, bool) if mask is None else mask != 0
        given = call.first.plain.astype(np.float64)
        if "std" in call.arguments:
            _check_shifted(call, given, exists, arrays["result"], eps)
        else:
            for group in _groups(given.shape, by, call.time_axis):
                ddof = call.arguments.get("ddof", 0)
                _check_group(given[group][exists[group]], arrays["result"][group][exists[group]], eps, ddof)
        if arrays["result"][~exists].any():
            raise DifferenceError("steps that do not exist were not 0 after normalize")
    elif call.arguments.get("normalize") is not None and "advantages" in arrays:
        plain = {name: given for name, given in call.arguments.items() if name != "normalize"}
        raw = _run(replace(call, arguments=plain, out=None), backend)["arrays"]["advantages"]
        mask = call.plain("mask")
        if str(plain.get("autoreset")).lower() == "next_step":
            if mask is not None:
                return  # valid_steps takes no mask, so the steps that exist are unknown here
            flags = {name: call.plain(name) for name in ("terminated", "truncated", "prev_done")}
            mask = fastgae.valid_steps(**flags, time_axis=call.time_axis)
        by = call.arguments["normalize"]
        expected = fastgae.normalize(raw, mask, by=by, time_axis=call.time_axis, backend=backend)
        _same_bits("advantages and normalize of them", arrays["advantages"], expected)


def _check_merged(call: Call, expected: Any) -> None:
    """Compare with the moments of some parts, merged."""
    numbers, mask = np.asarray(call.first.plain), call.plain("mask")
    exists = np.True_ if mask is None else everywhere(mask != 0, numbers.shape)
    parts = np.array_split(numbers[np.broadcast_to(exists, numbers.shape)], 3)
    merged = sum(map(fastgae.moments, reversed(parts)), fastgae.Moments())
    if merged != expected:
        raise DifferenceError(f"moments of three parts, merged: {merged}, and of all of them: {expected}")


def _groups(shape: tuple[int, ...], by: str, axis: int) -> list[tuple[Any, ...]]:
    """Return one index of everything, or the indices of some environments."""
    if by == "global":
        return [(slice(None),) * len(shape)]
    others = shape[:axis] + shape[axis + 1 :]
    return [(*index[:axis], slice(None), *index[axis:]) for index in itertools.islice(np.ndindex(*others), 8)]


def _check_shifted(call: Call, given: np.ndarray, exists: np.ndarray, got: np.ndarray, eps: float) -> None:
    """Compare with the equation of a given mean and standard deviation."""
    mean, std = (np.asarray(call.plain(name), np.float64) for name in ("mean", "std"))
    mean, std = (np.expand_dims(number, call.time_axis) if number.ndim else number for number in (mean, std))
    with np.errstate(all="ignore"):
        expected = ((given - mean) * (1 / (std + eps))).astype(got.dtype)
    _same_bits("normalize by a given mean and std", got[exists], expected[exists])


def _check_group(given: np.ndarray, got: np.ndarray, eps: float, ddof: int) -> None:
    """Compare with (x - mean) / (std + eps) from exact sums, within the rounding errors of sums in float64."""
    if len(given) <= ddof:
        if not np.isnan(got).all():
            raise DifferenceError(f"normalize: not NaN where {len(given)} steps exist and ddof is {ddof}")
        return
    if not np.isfinite(given).all() or np.abs(given).max() > 1e100:
        return
    mean = math.fsum(given) / len(given)
    scale = math.sqrt(math.fsum((given - mean) ** 2) / (len(given) - ddof)) + eps
    if scale < 1e-100:
        return
    expected = (given - mean) / scale
    allowed = np.finfo(got.dtype).eps * 4 * np.abs(expected) + 1e-14 * len(given) * np.abs(given).max() / scale
    with np.errstate(invalid="ignore"):
        wrong = ~(np.abs(got - expected) <= allowed + np.finfo(got.dtype).tiny)
    if wrong.any():
        raise DifferenceError(f"normalize: {got[wrong][0]!r} where the definition gives {expected[wrong][0]!r}")
