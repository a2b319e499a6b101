"""Which calls must be refused, by the documentation alone. Shares no code with fastgae's checks."""

import collections
import itertools
import math
import operator
from typing import Any

import numpy as np

from fastgae._call import ROLES, Role
from support.functions import allows_none, gives_two, parameters, required

from .calls import Alias, Call, Given, Over, everywhere

Fault = tuple[type[Exception], tuple[str, ...]]  # the error, and the arguments of which its message names one

MODES = ("next_step", "same_step", "disabled")
WORDS = {"scale": ("std", "batch", "none")}
BASELINES = ("mean", "leave_one_out", "none")
MISSING = object()


class Seen:
    """An argument as NumPy sees it."""

    def __init__(self, given: Any):
        dtype = getattr(given.plain if isinstance(given, Given) else given, "dtype", None)
        self.narrow = dtype == np.float16 or (isinstance(given, Given) and given.kind == "bfloat16")
        self.array = np.asarray(given.plain if isinstance(given, Given) else given)
        if isinstance(given, Given) and given.kind == "list":
            self.array = np.asarray(given.plain.tolist())
        self.shape, self.ndim, self.kind = self.array.shape, self.array.ndim, self.array.dtype.kind

    @property
    def is_numeric(self) -> bool:
        return self.kind in "biuf"


def integer(given: Any) -> int | None:
    """Return an integer; a bool is none."""
    try:
        return None if isinstance(given, bool) else operator.index(given)
    except TypeError:
        return None


def number(given: Any, *, bools: bool) -> float | None:
    """Return one number as a float, and infinity for integers that are larger than any float."""
    seen = Seen(given)
    if isinstance(given, int) and not isinstance(given, bool):
        return float(given) if abs(given) < 2**1000 else math.inf
    return float(seen.array) if seen.ndim == 0 and seen.kind in ("biuf" if bools else "iuf") else None


def faults(call: Call) -> list[Fault]:
    """Return what is wrong with a call; nothing if it must be accepted."""
    return _Faults(call).found()


class _Faults:
    def __init__(self, call: Call):
        self.call, self.takes, self.list = call, parameters(call.function), []
        self.unknown: set[str] = set()  # the arguments that are no arrays of numbers, or do not fit the first one
        self.given = {name: call.arguments.get(name, MISSING) for name in self.takes if name != "out"}
        for name, parameter in self.takes.items():
            given = self.given.get(name)
            none = given is None and ROLES[name] is Role.COEFFICIENT  # None of another role is looked at below
            if (given is MISSING or none) and required(parameter):
                self.add(TypeError, name)
            elif given is MISSING:
                self.given[name] = parameter.default
        self.first = next(iter(self.takes))

    def add(self, error: type[Exception], *names: str) -> None:
        self.list.append((error, names))

    def of(self, *roles: Role) -> list[str]:
        """Return the names of the arguments with these roles that are given."""
        named = (name for name in self.given if ROLES[name] in roles)
        return [name for name in named if self.given[name] is not MISSING and not self.may_be_none(name)]

    def may_be_none(self, name: str) -> bool:
        return self.given[name] is None and allows_none(self.takes[name])

    def found(self) -> list[Fault]:
        self.settings()
        self.dtypes()
        first, axis = self.given[self.first], integer(self.given.get("time_axis", 0))
        if first is MISSING or first is None:
            return self.list
        self.shape = Seen(first).shape
        if not self.shape or (self.call.is_flat and len(self.shape) != 1):
            self.add(ValueError, self.first)
            return self.list
        if axis is None or not -len(self.shape) <= axis < len(self.shape):
            self.add(TypeError if axis is None else ValueError, "time_axis")
            return self.list
        self.axis = axis % len(self.shape)
        self.envs = self.shape[: self.axis] + self.shape[self.axis + 1 :]
        self.one_step = (*self.shape[: self.axis], 1, *self.shape[self.axis + 1 :])
        self.one_longer = (*self.shape[: self.axis], self.shape[self.axis] + 1, *self.shape[self.axis + 1 :])
        self.lengths: list[int] = []
        if "cu_seqlens" in self.takes:
            self.sequences()
        if "parents" in self.takes:
            self.trees()
        if "baseline" in self.takes:
            self.baseline()
        self.shapes()
        self.coefficients()
        self.elements()
        self.outputs()
        self.combinations()
        return self.list

    def settings(self) -> None:
        given = self.given
        for name in self.of(Role.SETTING, Role.CONSTANT):
            value = given[name]
            if name == "autoreset" and not (isinstance(value, str) and value.lower() in MODES):
                self.add(ValueError, name)
            if name in ("normalize", "by") and not (isinstance(value, str) and value in ("global", "per_env")):
                self.add(ValueError, name)
            if name in WORDS and not (value is None or (isinstance(value, str) and value in WORDS[name])):
                self.add(ValueError, name)
            if name in ("tail_normalized", "carry_over", "stop_gradients") and not isinstance(value, bool):
                self.add(TypeError, name)
            if (name == "n" and (integer(value) or 0) < 1) or (name == "ddof" and (integer(value) or 0) < 0):
                self.add(ValueError, name)
            if name in ("n", "ddof") and integer(value) is None:
                self.add(TypeError if name == "n" and value is None else ValueError, name)
            if ROLES[name] is Role.CONSTANT or name == "eps":
                amount = None if value is None else number(value, bools=False)
                most = {"eps": 1.7e308, "leaky": 1.0}.get(name, math.inf)
                if amount is None or not 0.0 <= amount <= most:
                    self.add(ValueError, name)
        threads = self.call.how.get("num_threads")
        if threads is not None and (integer(threads) or 0) < 1:
            self.add(ValueError, "num_threads")
        if self.call.is_flat and given["normalize"] == "per_env":
            self.add(ValueError, "normalize")

    def dtypes(self) -> None:
        numbers = (Role.STEPS, Role.ENVS, Role.MOMENTS, Role.FACTORS, Role.STEP_FLAGS, Role.ENV_FLAGS)
        for name in self.of(*numbers, Role.BOUNDARIES, Role.LABELS, Role.PARENTS):
            value = self.given[name]
            kinds = {Role.BOUNDARIES: "iu", Role.LABELS: "biuUSO", Role.PARENTS: "iu"}.get(ROLES[name], "biuf")
            empty = ROLES[name] is Role.LABELS and not Seen(value).array.size
            is_object = Seen(value).kind == "O" and not Seen(value).ndim and not isinstance(value, Given | np.ndarray)
            if (
                value is None
                or is_object
                or isinstance(value, str | bytes)
                or (Seen(value).kind not in kinds and not empty)
            ):
                self.add(TypeError, name)
                self.unknown.add(name)

    def sequences(self) -> None:
        given, total = self.given["cu_seqlens"], self.shape[0]
        if given is MISSING or given is None or Seen(given).kind not in "iu":
            return
        starts = Seen(given)
        if starts.ndim != 1 or not starts.array.size:
            self.add(ValueError, "cu_seqlens")
            return
        edges = [int(start) for start in starts.array]
        self.lengths = [end - begin for begin, end in itertools.pairwise(edges)]
        if edges[0] != 0 or edges[-1] != total or any(length < 0 for length in self.lengths):
            self.add(ValueError, "cu_seqlens")

    def trees(self) -> None:
        """Find what is wrong with the tree. Its leaves count as sequences of one step each."""
        given, nodes = self.given["parents"], self.shape[0]
        if given is MISSING or given is None or "parents" in self.unknown:
            return
        parents = Seen(given).array
        if parents.shape != self.shape or not all(-1 <= parent < node for node, parent in enumerate(parents.tolist())):
            self.add(ValueError, "parents")
            self.unknown.add("parents")
            return
        self.children = collections.Counter(parents.tolist())
        self.lengths = [1 for node in range(nodes) if not self.children[node]]
        self.weights(parents.tolist())

    def weights(self, parents: list[int]) -> None:
        given = self.given["weights"]
        if isinstance(given, str):
            if given not in ("children", "leaves"):
                self.add(ValueError, "weights")
            return
        seen = Seen(given)
        if given is None or not seen.is_numeric:
            self.add(TypeError, "weights")
            return
        numbers = seen.array.astype(np.float64)
        if numbers.shape != self.shape or not ((numbers >= 0) & (numbers < np.inf)).all():
            self.add(ValueError, "weights")
            return
        totals = collections.Counter[int]()
        for parent, number in zip(parents, numbers.tolist(), strict=True):
            totals[parent] += number
        if any(totals[parent] in (0, math.inf) for parent in parents if parent >= 0):
            self.add(ValueError, "weights")

    def baseline(self) -> None:
        given = self.given["baseline"]
        if given is None or isinstance(given, str | bool):
            if given is not None and given not in BASELINES:
                self.add(ValueError, "baseline")
            return
        if not Seen(given).is_numeric:
            self.add(TypeError, "baseline")
        elif Seen(given).shape not in ((), self.shape):
            self.add(ValueError, "baseline")

    def shapes(self) -> None:
        flat, one_longer = self.call.is_flat, () if self.call.is_flat else (self.one_longer,)
        fitted = (Role.STEPS, Role.ENVS, Role.MOMENTS, Role.FACTORS, Role.STEP_FLAGS, Role.ENV_FLAGS, Role.LABELS)
        for name in self.of(*fitted):
            role, value = ROLES[name], self.given[name]
            if value is None or name in (self.first, "final_values"):
                continue
            if "parents" in self.takes and name == "values" and type(value) in (int, float) and value == 0:
                continue
            shape = Seen(value).shape
            if role in (Role.STEPS, Role.LABELS):
                fits = shape == self.shape or (name == "values" and shape in one_longer)
            elif role is Role.FACTORS:
                fits = shape == () or self.repeats(shape)
            elif role is Role.STEP_FLAGS:
                fewest = max(self.axis + 1, 2)
                shorter = fewest <= len(shape) <= len(self.shape) and shape[self.axis] == self.shape[self.axis]
                whole = self.shape[: len(shape)]
                fits = shape == self.shape or (
                    shorter and all(n in (1, length) for n, length in zip(shape, whole, strict=True))
                )
            elif flat:
                fits = shape in ((), (len(self.lengths),), *([self.shape] if "parents" in self.takes else ()))
            else:
                fits = shape in (self.envs, self.one_step) or (shape == () and role is not Role.ENV_FLAGS)
            if not fits:
                self.add(ValueError, name)
                self.unknown.add(name)

    def repeats(self, shape: tuple[int, ...]) -> bool:
        """Return whether an array has all axes, each of full length or of length 1."""
        return len(shape) == len(self.shape) and all(
            n in (1, length) for n, length in zip(shape, self.shape, strict=True)
        )

    def coefficients(self) -> None:
        for name in self.of(Role.COEFFICIENT):
            value = self.given[name]
            seen = None if value is None else Seen(value)
            if seen is None or (not seen.is_numeric and not isinstance(value, int)):
                self.add(TypeError, name)
                continue
            if seen.narrow:
                self.add(TypeError, name)
            if seen.ndim == 0:
                one = number(value, bools=True)
                if one is None or not 0.0 <= one <= 1.0:
                    self.add(ValueError, name)
                continue
            if not (self.repeats(seen.shape) or ("cu_seqlens" in self.takes and seen.shape == (len(self.lengths), 1))):
                self.add(ValueError, name)
            if not ((seen.array >= 0) & (seen.array <= 1)).all():
                self.add(ValueError, name)

    def elements(self) -> None:
        for name in self.of(Role.STEP_FLAGS, Role.ENV_FLAGS):
            if self.given[name] is not None and Seen(self.given[name]).is_numeric:
                array = Seen(self.given[name]).array
                if array.dtype != bool and not ((array == 0) | (array == 1)).all():
                    self.add(ValueError, name)
        std = self.given.get("std")
        if std is not None and Seen(std).is_numeric and (Seen(std).array < 0).any():
            self.add(ValueError, "std")

    def outputs(self) -> None:
        out = self.call.out
        if out is None or self.unknown:  # without all numbers, the dtype of the results is unknown
            return
        if not gives_two(self.call.function):
            self.output("out", out)
            return
        if not isinstance(out, list | tuple) or len(out) != 2:
            self.add(TypeError, "out")
            return
        if out[0] is None and out[1] is None:
            self.add(ValueError, "out")
        for place, each in enumerate(out):
            if each is not None:
                self.output(f"out[{place}]", each)
        if isinstance(out[0], Given) and out[0] is out[1] and out[0].plain.size:
            self.add(ValueError, "out[0]")
        if out[0] is None and self.given.get("normalize") is not None:
            self.add(ValueError, "normalize")

    def output(self, name: str, given: Any) -> None:
        if isinstance(given, Alias | Over):
            return
        if not isinstance(given, Given) or given.kind == "list":
            self.add(TypeError, name)
            return
        plain = given.plain
        if plain.shape != self.shape:
            self.add(ValueError, name)
        if plain.dtype != self.call.working_dtype() or not plain.dtype.isnative:
            self.add(TypeError, name)
        repeated = any(stride == 0 and n > 1 for stride, n in zip(plain.strides, plain.shape, strict=True))
        if given.kind == "readonly" or (repeated and plain.size):
            self.add(ValueError, name)

    def combinations(self) -> None:
        """Find what is wrong between arguments that are right by themselves."""
        given = {name: value for name, value in self.given.items() if value is not None and value is not MISSING}
        mode = str(given.get("autoreset")).lower()
        if "std" in self.takes:
            if ("mean" in given) != ("std" in given):
                self.add(ValueError, "mean", "std")
            elif "mean" in given and (given.get("by") != "global" or integer(given.get("ddof"))):
                self.add(ValueError, "by", "ddof")
        if "values" in given and not self.call.is_flat:
            longer = Seen(given["values"]).shape == self.one_longer
            if longer + ("last_values" in given) + ("next_values" in given) != 1:
                self.add(ValueError, "values", "last_values", "next_values", "terminated")
        episodes = "truncated" in given or mode == "next_step" or "last_values" not in given
        if "terminated" in self.takes and "terminated" not in given and episodes and not self.call.is_flat:
            self.add(ValueError, "terminated")
        if "prev_done" in given and "autoreset" in self.takes and mode != "next_step":
            self.add(ValueError, "prev_done")
        if "final_values" in self.takes:
            self.final_values(given, mode)
        for one, other in (
            ("returns_lambda", "last_advantages"),
            ("returns_lambda", "tail_normalized"),
            ("tail_normalized", "last_advantages"),
            ("carry_over", "tail_normalized"),
            ("carry_over", "normalize"),
        ):
            if given.get(one, False) is not False and given.get(other, False) is not False:
                self.add(ValueError, one, other.replace("tail_normalized", "tail-normalized"))
        if "parents" in given and "terminated" in given and not {"parents", "terminated"} & self.unknown:
            flags = Seen(given["terminated"]).array
            if any(self.children[node] for node in np.flatnonzero(flags).tolist()):
                self.add(ValueError, "terminated")
        if {"groups", "trajectories"} <= {*given} and not self.unknown:
            self.trajectories(given)
        sources = {"last_values", "next_values"} & {*given}
        if self.call.function == "discounted_returns" and len(sources) == 2:
            self.add(ValueError, *sources)
        elif self.call.function == "discounted_returns" and not sources and not self.unknown:
            self.ends(given)

    def final_values(self, given: dict[str, Any], mode: str) -> None:
        final, truncated = given.get("final_values"), given.get("truncated")
        if truncated is None:
            if final is not None:
                self.add(ValueError, "final_values")
            return
        if final is None:
            if "next_values" not in given and mode != "next_step":
                self.add(ValueError, "truncated")
            return
        if mode == "next_step" or "next_values" in given:
            self.add(ValueError, "final_values")
        if {"final_values", "truncated"} & self.unknown:
            return
        cut = everywhere(Seen(truncated).array, self.shape)
        if Seen(final).shape not in (self.shape, (np.count_nonzero(cut),)):
            self.add(ValueError, "final_values")

    def where(self, name: str, given: dict[str, Any], missing: bool) -> np.ndarray:
        """Return the flags of every step."""
        return everywhere(Seen(given.get(name, missing)).array, self.shape) != 0

    def trajectories(self, given: dict[str, Any]) -> None:
        """All samples of a trajectory must have the same reward."""
        exists, names = self.where("mask", given, True), ("groups", "trajectories", "rewards")
        whole: dict[Any, float] = {}
        for group, trajectory, reward in zip(
            *(Seen(given[name]).array[exists].tolist() for name in names), strict=True
        ):
            first = whole.setdefault((group, trajectory), reward)
            if first != reward and not (first != first and reward != reward):
                self.add(ValueError, "rewards")
                return

    def ends(self, given: dict[str, Any]) -> None:
        """Without a value after the last step, the last step that exists must end every episode."""
        done = self.where("terminated", given, False) | self.where("truncated", given, False)
        exists = self.where("mask", given, True)
        for env in np.ndindex(self.envs):
            column = (*env[: self.axis], slice(None), *env[self.axis :])
            steps = np.flatnonzero(exists[column])
            if steps.size and not done[column][steps[-1]]:
                self.add(ValueError, "last_values")
                return
