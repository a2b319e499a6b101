"""One call on every backend and CPU target: the same bits as each other and as the oracle, and nothing else written."""

import contextlib
import math
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import fastgae

from .calls import Alias, Call, Given
from .memory import Arena, Pages
from .oracle import answers

PAGES = Pages()


class Difference(AssertionError):
    """What went wrong in a call."""


def variants(names: Sequence[str] = ()) -> list[str]:
    """Return every backend and CPU target that runs here, NumPy's reference first; of these names, if any are given."""
    found = [
        f"{info.name}:{target}" if target else info.name
        for info in reversed(fastgae.backends())
        if info.available and (not names or info.name in names)
        for target in (info.targets or (None,))
    ]
    return found


def check(call: Call, backends: Sequence[str]) -> str:
    """Make the call everywhere; return "right" or "refused", or raise Difference."""
    takes = call.parameters()
    outcomes = {}
    for backend in backends if "backend" in takes else backends[:1]:
        try:
            outcomes[backend] = _run(call, {"backend": backend} if "backend" in takes else {})
        except Difference as error:
            raise Difference(f"{backend}: {error}") from None
    first, expected = next(iter(outcomes.items()))
    for backend, outcome in outcomes.items():
        _compare(f"{backend} and {first}", outcome, expected)
    if "error" in expected:
        if not call.broken:
            raise Difference(f"a good call was refused: {expected['error']}")
        return "refused"
    if not call.broken:
        for name, index, numbers in answers(call):
            got = expected["arrays"].get(name, expected["arrays"].get("result"))
            if got is not None:
                _same_bits(f"{first} and the oracle, {name}{list(index)}", got[index], numbers)
        _check_moments(call, expected["arrays"])
    return "right"


def _run(call: Call, how: dict[str, Any]) -> dict[str, Any]:
    """Return copies of the results and their strides, or the error."""
    with contextlib.closing(Arena(PAGES)) as arena:
        given = {name: a.made(arena) if isinstance(a, Given) else a for name, a in call.arguments.items()}
        arguments = {**given, **call.how, **how}
        written: list[Any] = []
        pair: list[Any] = []
        for output in call.out or ():
            base = given.get(output.name) if isinstance(output, Alias) else output and output.made(arena)
            pair.append(base[output.index] if isinstance(output, Alias) and isinstance(base, np.ndarray) else base)
            written.append(base)
        if call.out is not None:
            arguments["out"] = tuple(pair) if len(pair) == 2 else pair[0]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                result = getattr(fastgae, call.function)(**arguments)
        except (ValueError, TypeError) as error:
            if what := arena.changed():
                raise Difference(f"{what} by a call that was refused: {error}") from None
            return {"error": f"{type(error).__name__}: {error}"}
        except Exception as error:
            raise Difference(f"{type(error).__name__}: {error}") from error
        if sys.exc_info()[0] is not None:
            raise Difference("an exception was left behind")
        if what := arena.changed(written):
            raise Difference(what)
        return _outcome(call, result, pair)


def _outcome(call: Call, result: Any, pair: list[Any]) -> dict[str, Any]:
    if call.function == "diagnose":
        return {"arrays": {}, "strides": {}, "report": result.to_json()}
    named = result._asdict() if isinstance(result, fastgae.GAEResult) else {"result": result}
    if call.out is not None:
        for output, array in zip(pair, named.values(), strict=True):
            if array is not output:
                raise Difference("the result is not the array that was given to fill")
    shape, dtype = call.first.plain.shape, call.working_dtype()
    for name, array in named.items():
        if array is None and call.out is not None:
            continue
        if array.shape != shape or array.dtype != dtype:
            raise Difference(f"{name} has shape {array.shape} and dtype {array.dtype}")
    arrays = {name: array.copy() for name, array in named.items() if array is not None}
    strides = {
        name: [stride for stride, n in zip(a.strides, a.shape, strict=True) if n > 1] if a.size else []
        for name, a in named.items()
        if a is not None
    }
    return {"arrays": arrays, "strides": strides}


def _compare(what: str, got: dict[str, Any], expected: dict[str, Any]) -> None:
    for key in ("error", "report", "strides"):
        if got.get(key) != expected.get(key):
            raise Difference(f"{what}, {key}: {got.get(key)} and {expected.get(key)}")
    for name, numbers in expected.get("arrays", {}).items():
        _same_bits(f"{what}, {name}", got["arrays"][name], numbers)


def _same_bits(what: str, got: np.ndarray, expected: np.ndarray) -> None:
    """NaN counts by its place alone: its sign and payload are not promised."""
    if got.dtype != expected.dtype or got.shape != expected.shape:
        raise Difference(f"{what}: {got.dtype}{got.shape} and {expected.dtype}{expected.shape}")
    unsigned = f"u{got.itemsize}"
    same = np.ascontiguousarray(got).view(unsigned) == np.ascontiguousarray(expected).view(unsigned)
    if got.dtype.kind == "f":
        same |= np.isnan(got) & np.isnan(expected)
    if not same.all():
        where = tuple(int(i) for i in np.argwhere(~same)[0])
        raise Difference(
            f"{what}: {np.count_nonzero(~same)} of {same.size} differ, first at {where}: {got[where]!r} and "
            f"{expected[where]!r}"
        )


def _check_moments(call: Call, arrays: dict[str, np.ndarray]) -> None:
    """What is normalised has mean 0 and standard deviation 1, by exact sums, where these are far from every limit."""
    by = call.arguments.get("by", "global") if call.function == "normalize" else call.arguments.get("normalize")
    numbers = arrays.get("result" if call.function == "normalize" else "advantages")
    if by is None or numbers is None or call.function == "diagnose":
        return
    exists = np.ones(numbers.shape, bool)
    if call.plain("mask") is not None:
        exists &= call.plain("mask") != 0
    if str(call.arguments.get("autoreset")).lower() == "next_step" or "eps" in call.arguments:
        return
    for group in _groups(numbers, exists, by, call.time_axis):
        if len(group) < 2 or not np.isfinite(group).all():
            continue
        mean = math.fsum(group) / len(group)
        spread = math.fsum((x - mean) ** 2 for x in group) / len(group)
        # Numbers that hardly differ have no deviation to speak of: eps and rounding decide.
        if 1e-3 < spread and (abs(mean) > 1e-3 or abs(spread - 1) > 1e-2):
            raise Difference(f"normalised numbers have mean {mean} and variance {spread}")


def _groups(numbers: np.ndarray, exists: np.ndarray, by: str, axis: int) -> Iterator[list[float]]:
    if by == "global":
        yield numbers[exists].astype(np.float64).tolist()
        return
    columns, places = np.moveaxis(numbers, axis, 0), np.moveaxis(exists, axis, 0)
    for index in list(np.ndindex(*columns.shape[1:]))[:8]:
        column = (slice(None), *index)
        yield columns[column][places[column]].astype(np.float64).tolist()
