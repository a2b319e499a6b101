"""Right calls of every public function, drawn from its signature and the roles in fastgae/_call.py."""

import functools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import Parameter
from typing import Any, TypeVar

import numpy as np
from hypothesis import strategies as st

from fastgae._call import ROLES, Role
from support.functions import allows_none, gives_two, required

from . import contents
from .calls import OUTSIDE, PER_ENV, Alias, Call, Given, Over, everywhere
from .layouts import LAYOUTS

Option = TypeVar("Option")

# How often a function comes, where that is not 8.
WEIGHTS = {"gae": 50, "gae_packed": 12, "vtrace": 10, "n_step_returns": 4, "valid_steps": 3, "diagnose": 2}

# An argument is given in 70 percent of the calls. Of functions with many arguments, only these are. Others are given in
# 20 percent, so that a new option leaves most calls to the kernels without options.
MANY = 12
USUAL = (
    *("terminated", "truncated", "last_values", "next_values", "final_values", "prev_done", "gamma", "gae_lambda"),
    *("lambda_", "rho_clip", "c_clip", "advantage_clip", "leaky", "stop_gradients"),
)
# A call may have only one of each of these.
EXCLUSIVE = (("returns_lambda", "tail_normalized", "last_advantages"), ("carry_over", "tail_normalized", "normalize"))
# Without ``terminated`` each env is one sequence, and these have no meaning.
OF_EPISODES = ("truncated", "final_values", "next_values", "autoreset", "prev_done")

REAL = (np.float32, np.float64, np.float32, np.float32, np.float64, np.float16)
# Lengths around the sizes of lanes, tiles, cache lines and blocks of steps.
EDGES = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 40, 48, 63, 64, 65, 66, 97, 127, 128, 129, 130, 200, 257)
LENGTHS = (*EDGES, *range(1, 21), 0)
LONG = (512, 513, 777, 1023, 1025, 2047, 4096, 5000, 9001, 20011)
MOST = 8000  # steps of all envs, in most calls

NUMBERS = (Role.STEPS, Role.ENVS, Role.MOMENTS)
FLAGS = (Role.STEP_FLAGS, Role.ENV_FLAGS)


@functools.cache
def _below(count: int) -> st.SearchStrategy[int]:
    return st.integers(0, count - 1)


@dataclass
class Draws:
    """The decisions of one call. hypothesis shrinks a failing call towards the first options."""

    draw: Callable[[st.SearchStrategy[int]], int]
    seed: int  # of the elements
    rare: int | None = None  # percent of the calls that have an option, of functions with many; None: few
    memory: str | None = None  # the layout of all arrays; None: each has its own; "c": a call as short cuts take them

    def below(self, count: int) -> int:
        return self.draw(_below(count))

    def pick(self, options: Sequence[Option]) -> Option:
        return options[self.below(len(options))]

    def chance(self, percent: int) -> bool:
        return self.below(100) >= 100 - percent

    def rng(self, name: str) -> np.random.Generator:
        """Return the elements of one argument, which do not depend on those of others."""
        return np.random.default_rng([self.seed, *name.encode()])


class Independent(Draws):
    """Decisions by NumPy. hypothesis makes a call from parts of others, so that rare options seldom meet."""

    def __init__(self, seed: int):
        super().__init__(lambda _: 0, seed, rare=50)
        self.generator = np.random.default_rng(seed)

    def below(self, count: int) -> int:
        return int(self.generator.integers(count))


@dataclass(frozen=True)
class Frame:
    """The shapes that the roles of a call refer to, and the dtype of most of its numbers."""

    shape: tuple[int, ...]
    axis: int
    dtype: Any
    lengths: tuple[int, ...] | None = None  # of packed sequences, each of which counts as an env, as each leaf does
    parents: np.ndarray | None = None  # of the nodes of trees

    @property
    def envs(self) -> tuple[int, ...]:
        return self.shape[: self.axis] + self.shape[self.axis + 1 :] if self.lengths is None else (len(self.lengths),)

    def steps(self, count: int) -> tuple[int, ...]:
        return (*self.shape[: self.axis], count, *self.shape[self.axis + 1 :])

    def shape_of(self, name: str) -> tuple[int, ...]:
        return self.envs if ROLES[name] in PER_ENV else self.shape

    def shorter(self, draws: Draws, name: str) -> tuple[int, ...]:
        """Return a shape for an argument that is not the first: often its own, or one that says the same."""
        shape = self.shape_of(name)
        if self.lengths is not None or ROLES[name] not in (*PER_ENV, Role.STEP_FLAGS) or not draws.chance(20):
            return shape
        if ROLES[name] in PER_ENV:
            return self.steps(1)
        kept = shape[: max(self.axis + 1, 2) + draws.below(3)]
        return tuple(1 if axis != self.axis and draws.chance(35) else n for axis, n in enumerate(kept))


def right_call(draws: Draws, functions: Sequence[str]) -> tuple[Call, Frame]:
    """Return a call of one of these functions that must be accepted, and its frame.

    If ``last_values`` is missing, some calls of ``discounted_returns`` lack an end of an episode and must be refused.
    """
    weighted = [name for name in functions for _ in range(WEIGHTS.get(name, 8))]
    call = Call(draws.pick(weighted) if len(functions) > 1 else functions[0], {})
    draws.memory = draws.pick(("c", None, None, None, "c", "fortran"))
    takes = call.parameters()
    frame = frame_of(draws, takes)
    rare = 70 if len(takes) <= MANY else draws.rare or (4 if draws.memory == "c" else 20)
    wanted = [
        name
        for name, parameter in takes.items()
        if name not in ("out", *OUTSIDE)
        and (required(parameter) or (name == "time_axis" and frame.axis) or draws.chance(70 if name in USUAL else rare))
    ]
    settings = {name: SETTINGS[name](draws, frame) for name in wanted if name in SETTINGS}
    names = consistent(draws, takes, wanted, str(settings.get("autoreset")).lower() == "next_step")
    given = {**settings, **alone(draws, takes, names, frame), **arrays(draws, takes, names, frame)}
    call.arguments = {name: given[name] for name in names if name in given}
    if "out" in takes and draws.chance(50):
        call.out = outputs(draws, call, frame)
    if "num_threads" in takes and draws.chance(60):
        call.how["num_threads"] = draws.pick((1, 2, 3, 7, 64))
    return call, frame


def alone(draws: Draws, takes: Mapping[str, Parameter], names: Collection[str], frame: Frame) -> dict[str, Any]:
    """Return the arguments that depend on no other argument."""
    return {name: ALONE[ROLES[name]](draws, frame, takes[name]) for name in names if ROLES[name] in ALONE}


def frame_of(draws: Draws, takes: Collection[str]) -> Frame:
    """Return a frame for a function that takes these parameters."""
    dtype = draws.pick(REAL)
    if any(ROLES[name] is Role.BOUNDARIES for name in takes):
        lengths = [draws.pick(LENGTHS) * (not draws.chance(10)) for _ in range(draws.below(9))]
        many = [1 + number % 60 for number in range(200)], [0] * (sum(lengths) - len(lengths))
        lengths += draws.pick((*[[]] * 18, *many))  # with the second of them, as many sequences as steps
        return Frame((sum(lengths),), 0, dtype, tuple(lengths))
    if any(ROLES[name] is Role.PARENTS for name in takes):
        parents = _trees(draws)
        return Frame(parents.shape, 0, dtype, (1,) * int(np.count_nonzero(_leaves(parents))), parents)
    size, rank = draws.below(200), draws.pick((2, 2, 2, 2, 1, 1, 3, 4))
    steps, envs = draws.pick(LENGTHS), draws.pick(LENGTHS) if rank > 1 else 1
    if size >= 196:
        steps, envs = draws.pick(LONG), 1 + draws.below(4)
    elif size >= 193:
        steps, envs = 1 + draws.below(6), draws.pick(LONG)
    elif size == 192:
        steps, envs = 64 + draws.below(500), 64 + draws.below(900)
    elif steps * envs > MOST:
        envs = MOST // steps
    if rank == 1:
        return Frame((steps,), 0, dtype)
    others = [envs]
    for _ in range(rank - 2):
        split = draws.pick((1, 2, 3))
        others = [split, *others[:-1], others[-1] // split]
    axis = draws.below(rank) if "time_axis" in takes else 0
    return Frame((*others[:axis], steps, *others[axis:]), axis, dtype)


def consistent(draws: Draws, takes: Mapping[str, Parameter], names: Collection[str], next_step: bool) -> list[str]:
    """Return the names without those that exclude each other, and with those that others need."""
    kept = {*names}
    for group in EXCLUSIVE:
        kept -= {*[name for name in group if name in kept][1:]}
    if "std" in takes:  # in place of those that by and ddof say how to compute
        kept = kept - {"by", "ddof"} | {"mean", "std"} if "std" in kept else kept - {"mean"}
    if "truncated" in takes and "last_values" in takes and "terminated" not in kept and draws.chance(50):
        kept = {*kept, "last_values"} - {*OF_EPISODES}
        return [name for name in takes if name in kept]
    if "truncated" in takes:
        kept.add("terminated")
    if "next_values" in takes and "values" not in takes:
        kept -= {draws.pick(("last_values", "next_values"))}
    elif "next_values" in takes:  # V after the last step comes from exactly one place
        sources = [name for name in ("last_values", "next_values") if name in takes]
        kept -= {*sources}
        kept |= {draws.pick([name for name in sources if required(takes[name])] or ["longer values", *sources])}
    if "autoreset" in takes and not next_step:
        kept.discard("prev_done")
    if "final_values" in takes:
        kept.discard("final_values")
        if "truncated" in kept and "next_values" not in kept and not next_step:
            kept.add("final_values")
    return [name for name in takes if name in kept]


def arrays(draws: Draws, takes: Collection[str], names: Collection[str], frame: Frame) -> dict[str, Any]:
    """Return the arguments per step and per env."""
    first = next(iter(names))
    shapes = {
        name: frame.shape_of(name) if name == first else frame.shorter(draws, name)
        for name in names
        if ROLES[name] in (*NUMBERS, *FLAGS)
    }
    flags = {name: flag_array(draws, name, shapes.pop(name), frame) for name in names if ROLES[name] in FLAGS}
    if frame.parents is not None:
        flags |= {name: flags[name] & _leaves(frame.parents) for name in flags if name == "terminated"}
        shapes |= {name: frame.shape for name in shapes if ROLES[name] is Role.ENVS and draws.chance(50)}
    sources = {"values", "last_values", "next_values"}
    if "last_values" in takes and not sources & {*names} and frame.lengths is None:
        end_every_env(draws, flags, frame)
    truth = {
        name: everywhere(array, frame.shape) if ROLES[name] is Role.STEP_FLAGS else array
        for name, array in flags.items()
    }
    shapes |= {name: () for name in shapes if ROLES[name] in (Role.ENVS, Role.MOMENTS) and draws.chance(20)}
    if "values" in names and "next_values" in takes and not sources & {*names} - {"values"}:
        shapes["values"] = frame.steps(frame.shape[frame.axis] + 1)
    if "final_values" in names and draws.chance(50):
        shapes["final_values"] = (np.count_nonzero(truth["truncated"]),)
    plain = {name: number_array(draws, name, shape, frame.dtype) for name, shape in shapes.items()}
    for name, unread in unread_of(plain, truth).items():
        contents.poison(draws.rng(f"unread {name}"), plain[name], unread)
    if "std" in plain:
        plain["std"] = np.abs(plain["std"])
    given = {name: handed_over(draws, name, array) for name, array in plain.items()}
    given = {name: perhaps_bfloat16(draws, name, each) for name, each in given.items()}
    other_dtypes = draws.memory is None
    given |= {
        name: handed_over(draws, name, contents.flags(draws.rng(f"kind {name}"), array, other_dtypes))
        for name, array in flags.items()
    }
    if frame.parents is not None and draws.chance(20):
        given["values"] = draws.pick((0.0, 0))  # there is no critic
    return {name: number_of(draws, name, each) if isinstance(each, Given) else each for name, each in given.items()}


def end_every_env(draws: Draws, flags: dict[str, np.ndarray], frame: Frame) -> None:
    """Let the last step that exists end the episode of every env, or of all but one."""
    ended, mask = flags["terminated"], flags.get("mask")
    if ended.shape != frame.shape or not ended.size or draws.chance(10):
        return
    exists = np.ones(frame.shape, bool) if mask is None else everywhere(mask, frame.shape)
    last = frame.shape[frame.axis] - 1 - np.flip(exists, frame.axis).argmax(frame.axis, keepdims=True)
    flags["terminated"] = ended = np.array(ended)
    np.put_along_axis(ended, last, True, frame.axis)
    if draws.chance(25):
        place = draws.rng("one env").integers(last.size)
        odd = np.take_along_axis(ended, last, frame.axis)
        odd.flat[place] = False
        np.put_along_axis(ended, last, odd, frame.axis)


def unread_of(plain: dict[str, np.ndarray], truth: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return, by name, which numbers lie behind closed gates, at skipped steps, or at steps without a final value."""
    skipped = ~truth["mask"] if "mask" in truth else np.False_
    unread = {name: skipped for name in plain if ROLES[name] is Role.STEPS and name != "values"}
    if "next_values" in plain:
        unread["next_values"] = truth["terminated"] | skipped
    if "final_values" in plain:
        behind, cut = truth["terminated"] | skipped, truth["truncated"]
        unread["final_values"] = behind | ~cut if plain["final_values"].shape == cut.shape else behind[cut]
    return {
        name: where
        for name, where in unread.items()
        if plain[name].shape == where.shape and 0 not in plain[name].strides
    }


def number_array(draws: Draws, name: str, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    rng = draws.rng(name)
    if draws.memory == "c" and rng.random() < 0.12:  # which is all that keeps a short cut from taking the call
        dtype = np.float32 if dtype == np.float64 else np.float64
    if draws.memory is None and rng.random() < 0.04:
        dtype = rng.choice(("f8", "f4", "f2", "i8", "i2", "u1"))
    return contents.broadcast(rng, contents.numbers(rng, shape, dtype))


def flag_array(draws: Draws, name: str, shape: tuple[int, ...], frame: Frame) -> np.ndarray:
    rng = draws.rng(name)
    if name == "mask" and len(shape) > frame.axis and rng.random() < 0.4:
        return contents.answers(rng, shape, frame.axis)
    return contents.broadcast(rng, contents.truths(rng, shape))


def handed_over(draws: Draws, name: str, plain: np.ndarray, *, writable: bool = False) -> Given:
    """Return the array in some memory, or as a list, in the other byte order, or read-only."""
    rng = draws.rng(f"memory of {name}")
    at_end = bool(rng.random() < 0.7)
    if draws.memory is not None:
        return Given(plain, LAYOUTS[draws.memory], at_end=at_end)
    layout, style = LAYOUTS[draws.pick((*LAYOUTS, *("c",) * 10))], rng.integers(100)
    if not writable and style == 99 and plain.size and plain.ndim and plain.dtype.kind != "b":
        return Given(plain, layout, "list")
    if not writable and style == 98 and plain.itemsize > 1:
        plain = plain.astype(plain.dtype.newbyteorder("S"))
    return Given(plain, layout, "readonly" if not writable and style >= 95 else "array", at_end)


def perhaps_bfloat16(draws: Draws, name: str, given: Given) -> Given:
    """Return some arrays of float32 as bfloat16: their numbers without the lower 16 bits, in the same place."""
    plain = given.plain
    fits = given.kind == "array" and plain.dtype == np.float32 and plain.dtype.isnative and plain.ndim
    if not fits or 0 in plain.strides or draws.rng(f"bfloat16 {name}").random() > 0.08:
        return given
    return replace(given, plain=(plain.view(np.uint32) & 0xFFFF0000).view(np.float32), kind="bfloat16")


def number_of(draws: Draws, name: str, given: Given) -> Any:
    """Return an array without axes as a number of Python, in 30 percent of the calls."""
    return given.plain.item() if given.plain.ndim == 0 and draws.rng(f"number {name}").random() < 0.3 else given


def coefficient(draws: Draws, frame: Frame, parameter: Parameter) -> Any:
    """Return a number in [0, 1] of any type, or an array of such numbers that broadcasts to the frame."""
    rng = draws.rng(parameter.name)
    plain = draws.memory == "c" and draws.chance(80)
    kind = "float" if plain else draws.pick(("float", "float", "float", "odd", "array", "array"))
    number = rng.choice((0.99, 0.95, 1.0, 0.0, -0.0, 0.5, 0.999, 1e-3)) if rng.random() < 0.8 else rng.random()
    if kind == "float":
        return float(number)
    if kind == "odd":
        return (np.float32, np.float64, round, np.asarray)[rng.integers(4)](number)
    per_sequence = frame.lengths is not None and frame.parents is None and rng.random() < 0.5
    shape = (*frame.envs, 1) if per_sequence else _broadcasting(draws, frame.shape)
    array = rng.random(shape)
    array[rng.random(shape) < 0.1] = rng.choice((1.0, 0.0, -0.0))
    return handed_over(draws, parameter.name, array.astype(rng.choice((np.float64, np.float32))))


def factors(draws: Draws, frame: Frame, parameter: Parameter) -> Any:
    """Return any number, or an array of them that broadcasts to the frame."""
    if draws.chance(30):
        return draws.pick((0.5, 1.0, 0.0, -2))
    shape = _broadcasting(draws, frame.shape)
    return handed_over(draws, parameter.name, number_array(draws, parameter.name, shape, frame.dtype))


def constant(draws: Draws, frame: Frame, parameter: Parameter) -> Any:
    """Return a number in [0, 1] or the default; any number >= 0 where None means that there is no limit."""
    usual = () if required(parameter) else (parameter.default,)
    return draws.pick((*usual, 0.3, 0.0, -0.0, 1e-50, 1, *((2.0, math.inf, None) if allows_none(parameter) else ())))


def boundaries(draws: Draws, frame: Frame, parameter: Parameter) -> Any:
    starts = np.concatenate([[0], np.cumsum(frame.lengths)])
    return handed_over(draws, parameter.name, starts.astype(draws.pick((np.int64, np.int32, np.uint64))))


def _trees(draws: Draws) -> np.ndarray:
    """Return the parent of each node: of chains, of bushes and of stars, with some roots."""
    rng, nodes = draws.rng("parents"), draws.pick((*LENGTHS, 300, 1000, 3000))
    before = np.arange(nodes)
    reach = draws.pick((1, 2, 6, nodes + 1))
    parents = np.maximum(before - 1 - rng.integers(0, reach, nodes), -1)
    return np.where(rng.random(nodes) < draws.pick((0.0, 0.1, 0.5)), -1, parents)


def _leaves(parents: np.ndarray) -> np.ndarray:
    return ~np.isin(np.arange(len(parents)), parents)


def tree_parents(draws: Draws, frame: Frame, parameter: Parameter) -> Any:
    return handed_over(draws, parameter.name, np.asarray(frame.parents).astype(draws.pick((np.int64, np.int32))))


def words_or_numbers(draws: Draws, frame: Frame, parameter: Parameter) -> Any:
    """Return a word, or numbers such as visits, which are also baselines."""
    words = ("children", "leaves") if parameter.name == "weights" else ("mean", "leave_one_out", "none", None)
    rng, kind = draws.rng(parameter.name), draws.pick((*words, "visits", "any"))
    if kind in words:
        return kind
    numbers = rng.integers(1, 9, frame.shape) if kind == "visits" else rng.random(frame.shape) + 1e-3
    return handed_over(draws, parameter.name, numbers.astype(draws.pick((np.float64, np.float32))))


def labels(draws: Draws, frame: Frame, parameter: Parameter) -> Any:
    """Return groups of some sizes, or a trajectory for each sample, because its samples must have the same reward."""
    size = int(np.prod(frame.shape))
    rng, most = draws.rng(parameter.name), draws.pick((1, 2, 5, size + 1))
    drawn = rng.permutation(size) if parameter.name == "trajectories" else rng.integers(0, most, size)
    chosen = drawn * draws.pick((1, -1, 1000003)) + draws.pick((0, -3, 2**40))
    return handed_over(draws, parameter.name, chosen.reshape(frame.shape))


def _broadcasting(draws: Draws, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(1 if draws.chance(35) else n for n in shape)


# A setting is text or a number of its own kind. ``right_call`` adds ``out`` and ``num_threads``, check.py ``backend``.
SETTINGS: dict[str, Callable[[Draws, Frame], Any]] = {
    "autoreset": lambda draws, frame: draws.pick(("next_step", "NEXT_STEP", "next_step", "same_step", "disabled")),
    "normalize": lambda draws, frame: draws.pick(("global", "per_env") if frame.lengths is None else ("global",)),
    "tail_normalized": lambda draws, frame: True,
    "carry_over": lambda draws, frame: True,
    "stop_gradients": lambda draws, frame: True,
    "time_axis": lambda draws, frame: frame.axis - len(frame.shape) if draws.chance(30) else frame.axis,
    "n": lambda draws, frame: 1 + draws.below(9),
    "ddof": lambda draws, frame: draws.below(3),
    "by": lambda draws, frame: draws.pick(("global", "per_env")),
    "scale": lambda draws, frame: draws.pick(("std", "batch", "none", None)),
    "eps": lambda draws, frame: draws.pick((1e-8, 0.0, 1, 1e-3)),
}
# How to draw an argument that depends on no other argument.
ALONE = {
    Role.COEFFICIENT: coefficient,
    Role.FACTORS: factors,
    Role.CONSTANT: constant,
    Role.BOUNDARIES: boundaries,
    Role.LABELS: labels,
    Role.PARENTS: tree_parents,
    Role.WEIGHTS: words_or_numbers,
}


def outputs(draws: Draws, call: Call, frame: Frame) -> Any:
    """Return arrays to fill, in new memory, in inputs, or where an input lies too. One of two may be missing."""
    empty, count = np.full(frame.shape, np.nan, call.working_dtype()), 1 + gives_two(call.function)
    kind = draws.pick(("own", "own", "own", "time backwards", "inputs", "inputs", "over"))
    out: list[Any] = [handed_over(draws, f"out {i}", empty, writable=True) for i in range(count)]
    if kind == "time backwards":
        out = [replace(each, layout=LAYOUTS[kind]) for each in out]
    fillable = [name for name in call.arguments if ROLES[name] is Role.STEPS and _fillable(call, name)]
    if fillable and kind == "inputs":
        first = draws.below(len(fillable))
        for i, name in enumerate([*fillable[first:], *fillable[:first]][:count]):
            out[i] = Alias(name, _first_or_last_steps(draws, call, name))
    shared = [name for name, given in call.arguments.items() if isinstance(given, Given) and given.kind == "array"]
    if shared and kind == "over":
        row = empty[:1].nbytes
        out[draws.below(count)] = Over(draws.pick(shared), frame.shape, draws.pick((0, row, -row)))
    if count == 1:
        return out[0]
    missing = draws.pick((None, None, None, 1, 0))
    if missing is not None and not (missing == 0 and "normalize" in call.arguments):
        out[missing] = None
    return out


def _first_or_last_steps(draws: Draws, call: Call, name: str) -> tuple[slice, ...]:
    """Return the index of as many steps of an input as there are steps to fill, sometimes backwards."""
    shape, time = call.shape, call.time_axis
    longer = call.arguments[name].plain.shape[time] > shape[time]
    kind = draws.pick(("first", "first", "last", "backwards"))
    if not longer and kind == "backwards":
        return (slice(None, None, -1),) * len(shape)
    steps = slice(1, None) if longer and kind == "last" else slice(0, shape[time])
    return tuple(steps if axis == time else slice(None) for axis in range(len(shape)))


def _fillable(call: Call, name: str) -> bool:
    given = call.arguments.get(name)
    if not isinstance(given, Given) or given.kind != "array" or given.plain.dtype != call.working_dtype():
        return False
    shape, longer = list(call.shape), list(given.plain.shape)
    if len(shape) != len(longer):  # final values, one per truncated step
        return False
    longer[call.time_axis] = min(longer[call.time_axis], shape[call.time_axis])
    return longer == shape and not any(
        stride == 0 and n > 1 for stride, n in zip(given.plain.strides, given.plain.shape, strict=True)
    )
