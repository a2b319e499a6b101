"""The table of bad arguments: for each kind of argument, values and the error of each, or None if it is fine."""

from fractions import Fraction

import numpy as np
from numpy.lib.stride_tricks import as_strided

from fastgae import GAEResult
from fastgae._call import NUMBERS as NAMES_OF_NUMBERS
from fastgae._call import ROLES, Role

from .functions import allows_none, gives_two, parameters, required

HUGE = 10**5000  # beyond float64, and longer than what Python writes out
UNREADABLE = TypeError  # the argument is of a wrong kind
WRONG = ValueError  # the argument is of the right kind, but has a wrong value
NO_BFLOAT16 = np.dtype((type("bfloat16", (np.void,), {}), "V4"))
ENDLESS = []
ENDLESS.append(ENDLESS)


class Raises:
    """Raise an error from every method that could read this object."""

    def fail(self, *arguments, **named):
        raise ZeroDivisionError("this object fails")

    __array__ = __bool__ = __float__ = __index__ = __int__ = __len__ = __iter__ = __getitem__ = __repr__ = fail


class OddError(Exception):
    """An error that is no ValueError or TypeError, and that takes two arguments."""

    def __init__(self, one, other):
        super().__init__(one, other)


class RaisesItsOwn(Raises):
    def __array__(self, *arguments, **named):
        raise OddError(1, 2)

    __float__ = __index__ = __array__


class InCupy:
    """An array of CuPy on a GPU, as far as anybody can see without one."""

    __module__ = "cupy.core"
    __cuda_array_interface__ = __dlpack__ = None

    def __array__(self, *arguments, **named):
        raise TypeError("Implicit conversion to a NumPy array is not allowed")


class InWarp:
    """An array of Warp, of which NumPy would make an object."""

    __module__ = "warp.types"
    __dlpack__ = None


class InNumba:
    __module__ = "numba.cuda"
    __cuda_array_interface__ = None


# name: (function from the good argument to the bad one, error)


def always(given):
    return lambda good: given


def each(error, values):
    """Return a row for each value, which does not depend on the good argument."""
    return {name: (always(given), error) for name, given in values.items()}


def longer(good):
    return np.concatenate([good, good[:1]])


def byteswapped(good):
    return good.astype(good.dtype.newbyteorder())


def read_only(good):
    good = good.copy()
    good.flags.writeable = False
    return good


def with_one(number, dtype=None):
    """Replace one element of the good array."""

    def changed(good):
        array = np.array(good, dtype or good.dtype)
        array.flat[-1] = number
        return array

    return changed


NO_ARRAYS = {
    **each(UNREADABLE, {"text": "abc", "bytes": b"1", "an integer beyond float64": HUGE, "a dict": {}, "a set": {1.0}}),
    **each(UNREADABLE, {"a function": len, "of CuPy": InCupy(), "of Warp": InWarp(), "a masked element": np.ma.masked}),
    **each(UNREADABLE, {"an object that fails": Raises(), "an object that fails its own way": RaisesItsOwn()}),
    "a generator": (lambda good: (number for number in good), UNREADABLE),
    "of two results": (lambda good: GAEResult(good, good), UNREADABLE),
    "masked": (lambda good: np.ma.masked_array(good), UNREADABLE),
    "masked rows": (lambda good: [np.ma.masked_array(good)] * len(good), UNREADABLE),
    "objects": (lambda good: good.astype(object), UNREADABLE),
    "complex": (lambda good: good.astype(complex), UNREADABLE),
    "texts": (lambda good: good.astype(str), UNREADABLE),
    "dates": (lambda good: np.zeros(good.shape, "M8[s]"), UNREADABLE),
    "durations": (lambda good: np.zeros(good.shape, "m8[s]"), UNREADABLE),
    "fields": (lambda good: np.zeros(good.shape, [("a", "f4")]), UNREADABLE),
    "four bytes that say bfloat16": (lambda good: np.zeros(good.shape, NO_BFLOAT16), UNREADABLE),
    "ragged": (always([[1.0], [1.0, 2.0]]), WRONG),
    "a list in itself": (always(ENDLESS), WRONG),
}
if hasattr(np.dtypes, "StringDType"):  # NumPy 1 has none
    NO_ARRAYS["texts of any length"] = (lambda good: good.astype(np.dtypes.StringDType()), UNREADABLE)
SHAPES = {
    "one longer": (longer, WRONG),
    "one shorter": (lambda good: good[1:], WRONG),
    "another rank": (lambda good: good[..., np.newaxis], WRONG),
    "empty": (lambda good: good[:0], WRONG),
}
NONE = {"None": (always(None), UNREADABLE)}
NUMBERS = {
    **NO_ARRAYS,
    "float16": (lambda good: good.astype(np.float16), None),
    "wider floats": (lambda good: good.astype(np.longdouble), UNREADABLE if np.finfo("g").bits > 64 else None),
    "NaN": (with_one(np.nan), None),
    "infinity": (with_one(np.inf), None),
    "float32": (lambda good: good.astype(np.float32), None),
    "integers": (lambda good: good.astype(np.int8), None),
    "bool": (lambda good: good.astype(bool), None),
    "byteswapped": (byteswapped, None),
    "a list": (lambda good: good.tolist(), None),
    "read-only": (read_only, None),
}
FLAGS = {
    **NO_ARRAYS,
    "2": (with_one(2, int), WRONG),
    "-1": (with_one(-1, np.int8), WRONG),
    "255": (with_one(255, np.uint8), WRONG),
    "0.5": (with_one(0.5, float), WRONG),
    "NaN": (with_one(np.nan, float), WRONG),
    "infinity": (with_one(np.inf, np.float64), WRONG),
    "bytes that are 2": (lambda good: (good * np.uint8(2)).view(bool), None),
    "integers": (lambda good: good.astype(np.uint64), None),
    "floats": (lambda good: good.astype(np.float16), None),
    "a list": (lambda good: good.tolist(), None),
}
CHOICES = each(WRONG, {"unknown": "never", "bytes": b"global", "3": 3, "a list": [], "fails": Raises()})
LABELS = {
    **NO_ARRAYS,
    **SHAPES,
    "floats": (lambda good: good.astype(float), UNREADABLE),
    "lists": (lambda good: np.array([[None, []]] * good.size, object)[:, 1].reshape(good.shape), UNREADABLE),
    **{each: (NO_ARRAYS[each][0], None) for each in ("objects", "texts", "texts of any length") if each in NO_ARRAYS},
    "large": (lambda good: good.astype(np.uint64) + 2**63, None),
    "byteswapped": (byteswapped, None),
    "negative": (lambda good: -(2**40) * good, None),
    "a list": (lambda good: good.tolist(), None),
}
NO_NUMBERS = {
    "text": "0.5",
    "bytes": b"1",
    "an array of text": np.array("0.5"),
    "complex": 1j,
    "complex of NumPy": np.complex64(0.5),
    "a date": np.datetime64("2026-01-01"),
    "a duration": np.timedelta64(1, "s"),
    "a masked element": np.ma.masked,
    "a dict": {},
    "a set": {1.0},
    "an object": np.array(0.5, object),
    "an object that fails": Raises(),
    "an object that fails its own way": RaisesItsOwn(),
}
OF_NUMPY = {"a number of NumPy": np.float32(0.5), "an array without axes": np.array(0.5)}
COEFFICIENTS = {
    **each(UNREADABLE, NO_NUMBERS),
    **each(WRONG, {"-0.5": -0.5, "2": 2, "NaN": np.nan, "infinity": np.inf, "an integer beyond float64": HUGE}),
    **each(WRONG, {"minus an integer beyond float64": -HUGE, "an empty list": [], "a list with 2": [2.0]}),
    **each(WRONG, {"a list with NaN": [np.nan], "ragged": [[0.5], [0.5, 0.5]], "another shape": np.full(7, 0.5)}),
    **each(WRONG, {"a higher rank": np.full((1, 1, 1, 1), 0.5)}),
    "a generator": (lambda good: (number for number in [0.5]), UNREADABLE),
    **each(UNREADABLE, {"a list with text": ["0.5"], "masked": np.ma.masked_array([0.5])}),
    **each(UNREADABLE, {"float16": np.full(1, 0.5, np.float16), "objects": np.full(1, 0.5, object)}),
    **each(UNREADABLE, {"a number of 16 bits": np.float16(0.5), "a list of 16 bits": [np.float16(0.5)]}),
    **each(UNREADABLE, {"an array of 16 bits without axes": np.array(0.5, np.float16)}),
    **each(None, {"True": True, "1": 1, "a fraction": Fraction(1, 2), **OF_NUMPY}),
}
AMOUNTS = {
    **each(WRONG, {**NO_NUMBERS, "memory": memoryview(b"1"), "a list": [1.0], "an array": np.ones(1), "True": True}),
    **each(WRONG, {"-1": -1, "NaN": np.nan, "an integer beyond float64": HUGE}),
    **each(None, {"0": 0, "a fraction": Fraction(1, 2), **OF_NUMPY}),
}
NO_INTEGERS = {
    **NO_NUMBERS,
    "1.5": 1.5,
    "1.0": 1.0,
    "True": True,
    "NaN": np.nan,
    "a list": [1],
    "an array": np.ones(1, int),
    "a number of NumPy": np.float64(1),
}


def strided(*strides):
    """Put a matrix into a new block, with its elements this far apart; a vector, over itself or far apart."""

    def changed(good):
        far = strides if good.ndim == 2 else [strides[-1] if strides == (5, 2) else 0] * good.ndim
        size = 2 + sum((length - 1) * int(stride + 0.5) for length, stride in zip(good.shape, far, strict=True))
        return as_strided(np.full(size, 7, good.dtype), good.shape, [int(good.itemsize * stride) for stride in far])

    return changed


OUT = {
    "text": (always("ab"), UNREADABLE),
    "a number": (always(5), UNREADABLE),
    "a generator": (lambda good: (each for each in [good, good]), UNREADABLE),
    "an object that fails": (always(Raises()), UNREADABLE),
}
ARRAYS_TO_FILL = {
    "a list": (lambda good: good.tolist(), UNREADABLE),
    "an object that fails": (always(Raises()), UNREADABLE),
    "masked": (lambda good: np.ma.masked_array(good), UNREADABLE),
    "another dtype": (lambda good: good.astype(np.float32), UNREADABLE),
    "integers": (lambda good: good.astype(int), UNREADABLE),
    "byteswapped": (byteswapped, UNREADABLE),
    "one longer": (longer, WRONG),
    "one shorter": (lambda good: good[1:], WRONG),
    "another rank": (lambda good: good[np.newaxis], WRONG),
    "read-only": (read_only, WRONG),
    "broadcast": (lambda good: as_strided(good, good.shape, [0] * good.ndim), WRONG),
    "overlapping": (strided(1, 1), WRONG),
    "overlapping between its elements": (strided(2, 4), WRONG),
    "overlapping by a half": (strided(2.5, 2), WRONG),
    "interleaved": (strided(5, 2), None),  # elements between those of another row, and none of them twice
    "Fortran": (lambda good: np.asfortranarray(good), None),
    "sliced": (lambda good: np.repeat(good, 2, axis=-1)[..., ::2], None),
}


def overlapping(good):
    memory = np.full((len(good[0]) + 1, *good[0].shape[1:]), 7, good[0].dtype)
    return memory[1:], memory[:-1]


def one_of_two(place, change):
    """Change one of the two arrays of ``out``."""
    return lambda good: tuple(change(array) if number == place else array for number, array in enumerate(good))


VALUES = {
    # All other arguments must have the shape of the first one, so errors of shape name those.
    "first numbers": {**NONE, **NUMBERS, "a number": (always(1.0), WRONG)},
    # These alone decide which dtype out must have, so with another dtype the good out is wrong.
    "only numbers": {name: case for name, case in {**NONE, **NUMBERS}.items() if name not in ("float16", "float32")},
    "first flags": {**NONE, **FLAGS, "a number": (always(1), WRONG)},
    "numbers": {**NUMBERS, **SHAPES},
    "required numbers": {**NONE, **NUMBERS, **SHAPES},
    "flags": {**FLAGS, **SHAPES},
    "required flags": {**NONE, **FLAGS, **SHAPES},
    # One number for each env, of which one may stand for all.
    "numbers of envs": {
        **NUMBERS,
        **SHAPES,
        **each(None, {"a number": 0.5, "no axes": np.array(0.5)}),
        **each(None, {"the largest integer": (1 << 64) - 1, "the smallest integer": -(1 << 63)}),
        **each(UNREADABLE, {"an integer of 65 bits": 1 << 64, "a negative integer of 65 bits": -(1 << 63) - 1}),
    },
    # Numbers as float64, which have no effect on the dtype of the results.
    "moment": {**NUMBERS, **SHAPES, "alone": (always(None), WRONG), "a number": (always(0.5), None)},
    # Numbers of any size that broadcast.
    "factors": {**NONE, **NUMBERS, "another shape": (always(np.ones(7)), WRONG), "a number": (always(2.0), None)},
    "labels": LABELS,
    "required labels": {**NONE, **LABELS},
    "boundaries": {
        **NONE,
        **NO_ARRAYS,
        "floats": (lambda good: good.astype(float), UNREADABLE),
        "an empty list": (always([]), UNREADABLE),
        "none": (lambda good: good[:0], WRONG),
        "another rank": (lambda good: good[np.newaxis], WRONG),
        "one shorter": (lambda good: good[:-1], WRONG),
        "not from 0": (lambda good: good[1:], WRONG),
        "falling": (lambda good: good[::-1], WRONG),
        "wrapping": (always(np.array([0, 2**63 - 1, -2, 4])), WRONG),
        "wrapping as unsigned": (always(np.array([0, 2**64 - 1, 2, 4], np.uint64)), WRONG),
        "unsigned": (lambda good: good.astype(np.uint64), None),
    },
    "parents": {
        **NONE,
        **NO_ARRAYS,
        "floats": (lambda good: good.astype(float), UNREADABLE),
        "another rank": (lambda good: good[np.newaxis], WRONG),
        "one shorter": (lambda good: good[:-1], WRONG),
        "children before parents": (lambda good: np.arange(len(good))[::-1], WRONG),
        "a node as its own parent": (lambda good: np.arange(len(good)), WRONG),
        "no node": (lambda good: good + len(good), WRONG),
        "below -1": (lambda good: good - 1, WRONG),
        "unsigned": (lambda good: good.astype(np.uint64), None),  # 2^64 - 1 is -1
    },
    "weights": {
        **NONE,
        **each(WRONG, {"text": "visits", "one number": 1.0}),
        "words": (always("leaves"), None),
        "negative": (lambda good: -np.ones(len(good)), WRONG),
        "NaN": (lambda good: np.full(len(good), np.nan), WRONG),
        "all -0.0": (lambda good: -np.zeros(len(good)), WRONG),
        "too large together": (lambda good: np.full(len(good), 1.7e308), WRONG),
        "one shorter": (lambda good: np.ones(len(good) - 1), WRONG),
        "integers": (lambda good: np.arange(1, len(good) + 1), None),
        "complex": (lambda good: np.ones(len(good)) * 1j, UNREADABLE),
    },
    "baseline": {
        **each(None, {"None": None, "words": "none", "one number": 1}),
        **each(WRONG, {"text": "median", "another shape": np.ones(7)}),
        **each(UNREADABLE, {"complex": 1j, "fails": Raises()}),
        "texts": (lambda good: np.full(np.shape(good), "mean"), UNREADABLE),
    },
    "coefficient": {**NONE, **COEFFICIENTS},
    "coefficient or None": COEFFICIENTS,
    "constant": {**AMOUNTS, **each(WRONG, {"None": None})},
    # A limit: None and large numbers mean that there is none.
    "constant or None": {**AMOUNTS, **each(None, {"None": None, "1e300": 1e300, "infinity": np.inf})},
    "amount": {**AMOUNTS, **each(WRONG, {"None": None, "infinity": np.inf}), **each(None, {"1e300": 1e300})},
    "count": {
        **NONE,
        **each(WRONG, {**NO_INTEGERS, "0": 0, "-1": -1}),
        **each(None, {"more than there are steps": HUGE, "an integer of NumPy": np.int64(2)}),
        **each(None, {"an array without axes": np.array(2)}),
    },
    "degrees": {
        **each(WRONG, {**NO_INTEGERS, "None": None, "-1": -1}),
        **each(None, {"0": 0, "an integer of NumPy": np.int64(0)}),
    },
    "threads": {
        **each(WRONG, {**NO_INTEGERS, "0": 0, "-1": -1}),
        **each(None, {"more than there are": HUGE, "an integer of NumPy": np.int64(2)}),
    },
    "axis": {
        **each(UNREADABLE, {**NO_INTEGERS, "None": None, "0.0": 0.0, "False": False}),
        **each(WRONG, {"9": 9, "-9": -9, "an integer beyond float64": HUGE}),
        **each(None, {"an integer of NumPy": np.int64(0)}),
    },
    "backend": {
        **each(UNREADABLE, {"3": 3, "a list": ["numpy"], "bytes": b"numpy", "an object that fails": Raises()}),
        **each(WRONG, {"unknown": "cuda", "empty": ""}),
        **each(None, {"None": None}),
    },
    "choice or None": {**each(None, {"None": None}), **CHOICES},
    "choice": CHOICES,
    "pair": {
        **OUT,
        "an array": (lambda good: np.stack(good), UNREADABLE),
        "three": (lambda good: (*good, good[0]), UNREADABLE),
        "nothing": (always((None, None)), WRONG),
        "the same twice": (lambda good: (good[0], good[0]), WRONG),
        "overlapping": (overlapping, WRONG),
        **{f"{name} first": (one_of_two(0, change), error) for name, (change, error) in ARRAYS_TO_FILL.items()},
        **{f"{name} second": (one_of_two(1, change), error) for name, (change, error) in ARRAYS_TO_FILL.items()},
    },
    "array": {**OUT, **ARRAYS_TO_FILL, "a pair": (lambda good: (good, good), UNREADABLE)},
    "switch": {
        **each(None, {"True": True, "NumPy's True": np.True_}),
        **each(UNREADABLE, {"None": None, "1": 1, "text": "no", "an array": np.ones(2), "fails": Raises()}),
    },
}


KINDS = {
    Role.STEPS: "numbers",
    Role.ENVS: "numbers of envs",
    **dict.fromkeys((Role.STEP_FLAGS, Role.ENV_FLAGS), "flags"),
    Role.MOMENTS: "moment",
    Role.FACTORS: "factors",
    Role.COEFFICIENT: "coefficient",
    Role.CONSTANT: "constant",
    Role.LABELS: "labels",
    Role.BOUNDARIES: "boundaries",
    Role.PARENTS: "parents",
    Role.WEIGHTS: "weights",
}
SETTINGS = {
    **dict.fromkeys(("autoreset", "normalize", "by"), "choice"),
    "scale": "choice or None",
    **dict.fromkeys(("tail_normalized", "carry_over", "stop_gradients"), "switch"),
    "ddof": "degrees",
    "time_axis": "axis",
    "n": "count",
    "eps": "amount",
    "num_threads": "threads",
    "backend": "backend",
}
# A call with the first argument must not have the others, whatever their values.
CONFLICTS = {"last_advantages": ("returns_lambda", "tail_normalized"), "std": ("by", "ddof")}


def kind_of(function, name):
    """Return the key in VALUES for an argument of a public function."""
    takes, role = parameters(function), ROLES[name]
    if name == "out":
        return "pair" if gives_two(function) else "array"
    if role is Role.SETTING or name == "baseline":
        return SETTINGS.get(name, name)
    kind = KINDS[role]
    if kind not in ("numbers", "numbers of envs", "moment", "flags", "labels"):
        return f"{kind} or None" if allows_none(takes[name]) else kind
    if [each for each in takes if each in NAMES_OF_NUMBERS] == [name]:
        return "only numbers"
    if name == next(iter(takes)):
        return f"first {kind}"
    return f"required {kind}" if required(takes[name]) and not allows_none(takes[name]) else kind
