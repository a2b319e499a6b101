"""Random calls of ``gae`` and of the functions that take a rollout as it does."""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import fastgae

from . import contents
from .choices import Choices
from .memory import Arena, Place

REAL = (np.float32, np.float32, np.float64)


@dataclass(frozen=True)
class Given:
    """One array of a call: its elements, and how they are handed over."""

    plain: np.ndarray
    place: Place
    kind: str = "array"  # or "list", "readonly"

    def made(self, arena: Arena) -> Any:
        if self.kind == "list":
            return self.plain.tolist()
        array = arena.array(self.plain, self.place)
        array.flags.writeable = self.kind != "readonly"
        return array

    @property
    def dtype(self) -> np.dtype:
        return np.asarray(self.plain.tolist()).dtype if self.kind == "list" else self.plain.dtype.newbyteorder("=")


@dataclass(frozen=True)
class Alias:
    """An output in the memory of an input: its first or last steps, in their order or backwards."""

    name: str
    index: tuple[slice, ...]


@dataclass
class Call:
    """A function of fastgae and its arguments; ``out`` is apart, for it is made anew for every run."""

    function: str
    arguments: dict[str, Any]
    time_axis: int = 0  # of the first argument, not negative
    out: list[Given | Alias | None] | None = None
    broken: str = ""  # what was made wrong on purpose
    how: dict[str, Any] = field(default_factory=dict)  # num_threads

    @property
    def first(self) -> Given:
        return next(iter(self.arguments.values()))

    def plain(self, name: str) -> Any:
        """Return an argument as the oracle takes it: an array of its elements, or what it is."""
        given = self.arguments.get(name)
        return given.plain if isinstance(given, Given) else given

    def working_dtype(self) -> np.dtype:
        """Promote as NumPy does, to float32 or float64; Python's own numbers do not count. bool if there are none."""
        dtypes = [self.arguments[name].dtype for name in NUMBERS if isinstance(self.arguments.get(name), Given)]
        dtypes += [np.asarray(self.arguments[name]).dtype for name in NUMBERS if _is_scalar(self.arguments.get(name))]
        if not dtypes:
            return np.dtype(bool)
        return np.dtype(np.float32) if np.result_type(*dtypes) == np.float32 else np.dtype(np.float64)

    def parameters(self) -> Any:
        return inspect.signature(getattr(fastgae, self.function)).parameters

    def __str__(self) -> str:
        lines = [f"fastgae.{self.function}("]
        for name, given in self.arguments.items():
            lines.append(f"    {name}={_described(given)},")
        if self.out is not None:
            lines.append(f"    out=({', '.join(map(_described, self.out))}),")
        lines += [f"    {name}={given!r}," for name, given in self.how.items()]
        return "\n".join([*lines, ")" + (f"  # broken on purpose: {self.broken}" if self.broken else "")])


# The arguments that decide on the working dtype.
NUMBERS = (
    *("rewards", "values", "last_values", "next_values", "final_values", "last_advantages", "ratios"),
    *("x", "decay", "initial", "advantages"),
)


def _is_scalar(given: object) -> bool:
    return isinstance(given, np.generic | np.ndarray)


def _described(given: object) -> str:
    if not isinstance(given, Given):
        return repr(given)
    array, odd = given.plain, "" if given.kind == "array" else f" as {given.kind}"
    with np.printoptions(threshold=24, precision=9):
        text = " ".join(np.array2string(array).split())
    repeated = [axis for axis, stride in enumerate(array.strides) if stride == 0 and array.shape[axis] > 1]
    again = f" repeated along {repeated}" * bool(repeated)
    return f"{array.dtype.str}{array.shape}{odd} {text[:160]} {given.place}{again}"


def handed_over(choose: Choices, plain: np.ndarray, *, writable: bool = False) -> Given:
    """Return the array in some memory, or as a list, in the other byte order, or read-only."""
    style = choose.below(100) if choose.order is None else 0
    if not writable and style == 99 and plain.size and plain.ndim and plain.dtype.kind != "b":
        return Given(plain, contents.place(choose, plain.ndim), "list")
    if not writable and style == 98 and plain.itemsize > 1:
        plain = plain.astype(plain.dtype.newbyteorder("S"))
    kind = "readonly" if not writable and style >= 95 else "array"
    return Given(plain, contents.place(choose, plain.ndim), kind)


def rollout_shape(choose: Choices) -> tuple[tuple[int, ...], int]:
    """Return a shape with a time axis, and which axis that is."""
    style, rank = choose.below(200), choose.pick((2, 2, 2, 2, 1, 1, 3, 4))
    steps, envs = contents.length(choose), contents.length(choose)
    if style >= 196:
        steps, envs = choose.pick(contents.LONG), 1 + choose.below(4)
    elif style >= 193:
        steps, envs = 1 + choose.below(6), choose.pick(contents.LONG)
    elif style == 192:
        steps, envs = 64 + choose.below(500), 64 + choose.below(900)
    elif steps * envs > 8000:
        envs = 8000 // steps
    if rank == 1:
        return (steps,), 0
    others = [envs]
    for _ in range(rank - 2):
        split = choose.pick((1, 2, 3))
        others = [split, *others[:-1], others[-1] // split]
    axis = choose.below(rank)
    return (*others[:axis], steps, *others[axis:]), axis


def coefficient(choose: Choices, shape: tuple[int, ...]) -> Any:
    """Return a number in [0, 1] of any type, or an array of such that broadcasts to the shape."""
    number = choose.pick((0.99, 0.95, 1.0, 0.0, 0.5, 0.999, 1e-3)) if choose.chance(80) else choose.below(1001) / 1000
    if not choose.chance(35):
        return choose.pick((float, float, float, float, np.float32, np.float64, round, np.asarray))(number)
    kept = shape[choose.below(len(shape)) :] if choose.chance(30) else shape
    kept = tuple(1 if choose.chance(35) else n for n in kept)
    array = contents.rng_of(choose).random(kept)
    array[contents.rng_of(choose).random(kept) < 0.1] = choose.pick((1.0, 0.0))
    return handed_over(choose, array.astype(choose.pick((np.float64, np.float32))))


def number_array(choose: Choices, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    if choose.order is None and choose.chance(4):
        dtype = choose.pick((np.float64, np.float32, np.int64, np.int16, np.uint8))
    return contents.broadcast(choose, contents.numbers(choose, shape, dtype))


def rollout_call(choose: Choices, function: str) -> Call:
    """Return a call of a function that takes rewards, values, terminated and what belongs to them."""
    shape, axis = rollout_shape(choose)
    dtype, without_time = choose.pick(REAL), shape[:axis] + shape[axis + 1 :]
    call = Call(function, {}, axis)
    takes, add = call.parameters(), call.arguments
    plain: dict[str, np.ndarray] = {"rewards": number_array(choose, shape, dtype)}

    def wanted(name: str, percent: float) -> bool:
        return name in takes and choose.chance(percent)

    source = choose.pick(("longer", "last_values", "next_values"))
    longer = (*shape[:axis], shape[axis] + 1, *shape[axis + 1 :]) if source == "longer" else shape
    plain["values"] = number_array(choose, longer, dtype)
    truth = {"terminated": contents.broadcast(choose, contents.truths(choose, shape))}
    next_step = wanted("autoreset", 15)
    sparse = dense = False
    if choose.chance(60):
        truth["truncated"] = contents.broadcast(choose, contents.truths(choose, shape))
        sparse = source != "next_values" and not next_step and choose.chance(50)
        dense = source != "next_values" and not next_step and not sparse
    if wanted("mask", 30):
        truth["mask"] = contents.broadcast(choose, contents.truths(choose, shape))
    if next_step:
        add["autoreset"] = choose.pick(("next_step", "NEXT_STEP"))
        if choose.chance(50):
            truth["prev_done"] = contents.truths(choose, without_time)
    elif wanted("autoreset", 5):
        add["autoreset"] = choose.pick(("same_step", "disabled"))
    if source == "last_values":
        plain["last_values"] = number_array(choose, without_time, dtype)
    if source == "next_values":
        plain["next_values"] = number_array(choose, shape, dtype)
    if dense:
        plain["final_values"] = number_array(choose, shape, dtype)
    if sparse:
        plain["final_values"] = number_array(choose, (np.count_nonzero(truth["truncated"]),), dtype)
    if "ratios" in takes:
        plain["ratios"] = np.abs(number_array(choose, shape, dtype))
    second = wanted("returns_lambda", 15)
    tail = not second and wanted("tail_normalized", 10)
    if not second and not tail and wanted("last_advantages", 20):
        plain["last_advantages"] = number_array(choose, without_time, dtype)
    _hide(choose, plain, truth, source, next_step, sparse)

    given = {name: handed_over(choose, array) for name, array in plain.items()}
    given |= {name: handed_over(choose, contents.flags(choose, array)) for name, array in truth.items()}
    call.arguments = {name: given[name] for name in takes if name in given} | add
    add = call.arguments
    if len(shape) == 1 and source == "last_values" and choose.chance(30):
        add["last_values"] = float(plain["last_values"])
    for name in ("gamma", "gae_lambda", "lambda_"):
        if wanted(name, 80):
            add[name] = coefficient(choose, shape)
    if second:
        add["returns_lambda"] = coefficient(choose, shape)
    if tail:
        add["tail_normalized"] = True
    for name in ("rho_clip", "c_clip", "advantage_clip"):
        if wanted(name, 50):
            add[name] = choose.pick((1.0, 0.5, 2.0, None, 0.0, 1, math.inf))
    if wanted("normalize", 15):
        add["normalize"] = choose.pick(("global", "per_env"))
    if "n" in takes:
        add["n"] = 1 + choose.below(9)
    if axis or choose.chance(20):
        add["time_axis"] = axis - len(shape) if choose.chance(30) else axis
    finish(choose, call)
    return call


def _hide(
    choose: Choices,
    plain: dict[str, np.ndarray],
    truth: dict[str, np.ndarray],
    source: str,
    next_step: bool,
    sparse: bool,
) -> None:
    """Poison what lies behind closed gates, at skipped steps, and at steps without a final value."""
    ended, cut = truth["terminated"], truth.get("truncated")
    unread: dict[str, Any] = {}
    if source == "next_values":
        unread["next_values"] = ended
    if "final_values" in plain and cut is not None:
        unread["final_values"] = ended[cut] if sparse else ~cut | ended
    if "mask" in truth and not next_step:
        skipped = ~truth["mask"]
        unread |= {"rewards": skipped, "ratios": skipped}
    for name, where in unread.items():
        if name in plain and plain[name].shape == where.shape and 0 not in plain[name].strides:
            contents.poison(choose, plain[name], where)


def finish(choose: Choices, call: Call) -> None:
    """Add what every function takes: outputs and a number of threads; and break one call in twenty."""
    takes = call.parameters()
    if "out" in takes and choose.chance(50):
        call.out = outputs(choose, call, 2 if call.function in TWO_OUTPUTS else 1)
    if "num_threads" in takes and choose.chance(60):
        call.how["num_threads"] = choose.pick((1, 2, 3, 7, 64))
    if choose.chance(5):
        _break(choose, call)


TWO_OUTPUTS = ("gae", "gae_packed", "vtrace")


def outputs(choose: Choices, call: Call, count: int) -> list[Given | Alias | None]:
    """Return outputs in memory of their own, or in that of inputs; of two, one may be missing."""
    shape, dtype = call.first.plain.shape, call.working_dtype()
    empty = np.full(shape, np.nan, dtype)
    out: list[Given | Alias | None] = [handed_over(choose, empty, writable=True) for _ in range(count)]
    if choose.chance(25):
        for i, name in enumerate([name for name in ("rewards", "values", "next_values", "x") if _fillable(call, name)]):
            if i < count:
                given, time = call.arguments[name], call.time_axis
                skip = given.plain.shape[time] - shape[time]
                steps = slice(1, None) if skip and choose.chance(50) else slice(0, shape[time])
                backwards = slice(None, None, -1)
                rows = [steps if axis == time else slice(None) for axis in range(len(shape))]
                out[i] = Alias(name, tuple([backwards] * len(shape)) if not skip and choose.chance(20) else tuple(rows))
    if count == 2 and choose.chance(25) and "normalize" not in call.arguments:
        out[choose.below(2)] = None
    elif count == 2 and choose.chance(5):
        out[1] = None
    return out


def _fillable(call: Call, name: str) -> bool:
    given = call.arguments.get(name)
    if not isinstance(given, Given) or given.kind != "array" or given.plain.dtype != call.working_dtype():
        return False
    shape, longer = list(call.first.plain.shape), list(given.plain.shape)
    longer[call.time_axis] = min(longer[call.time_axis], shape[call.time_axis])
    return longer == shape and not any(
        stride == 0 and n > 1 for stride, n in zip(given.plain.strides, given.plain.shape, strict=True)
    )


def _break(choose: Choices, call: Call) -> None:
    """Make one argument wrong. Every backend must refuse the call in the same words, or give the same answer."""
    name = choose.pick([*call.arguments])
    given = call.arguments[name]
    wrong: list[tuple[str, Callable[[], Any]]] = [
        ("None", lambda: None),
        ("a number", lambda: choose.pick((2.0, -1.0, math.nan, 7, 0.5))),
        ("text", lambda: "next"),
    ]
    if isinstance(given, Given):
        array = given.plain
        wrong += [
            ("left out", lambda: _LEFT_OUT),
            ("another rank", lambda: handed_over(choose, array[..., np.newaxis].copy())),
            ("objects", lambda: array.astype(object)),
            ("twos", lambda: handed_over(choose, np.full(array.shape, 2, choose.pick((np.float32, np.int32))))),
        ]
        if array.ndim:
            wrong.append(("one more", lambda: handed_over(choose, np.concatenate([array, array[:1]]))))
    what, value = choose.pick(wrong)
    made = value()
    if made is _LEFT_OUT:
        del call.arguments[name]
    else:
        call.arguments[name] = made
    call.broken = f"{name}: {what}"


_LEFT_OUT = object()
