"""Read one argument without looking at the others, or raise an error that names it."""

import enum
import math
import operator
from collections.abc import Mapping
from typing import Any, get_args

import numpy as np

from fastgae._call import MOST_STEPS, Array, working_dtype
from fastgae._interop.arrays import widened
from fastgae._interop.libraries import as_array, as_floats, as_numbers, first_in_list, is_tensor, is_weak
from fastgae._support.misnamed import AUTORESET_ELSEWHERE, choose_one
from fastgae._typing import Autoreset

LONGEST_SHOWN = 200  # characters of an argument in a message
AUTORESET = get_args(Autoreset)


def of_one_dtype(**given: object) -> list[Array]:
    """Return numbers in the working dtype of all of them."""
    # NumPy rounds an integer of Python to float64 first, and so does every backend.
    numbers = [(as_floats if is_weak(argument) else as_numbers)(name, argument) for name, argument in given.items()]
    strong = (number.dtype for number, argument in zip(numbers, given.values(), strict=True) if not is_weak(argument))
    dtype = working_dtype(*strong)
    with np.errstate(all="ignore"):  # a Python number beyond the working dtype becomes infinity, or 0
        return [number if number.dtype == dtype else number.astype(dtype) for number in numbers]


def as_number(
    name: str, given: Any, expected: str, kinds: str = "iuf", otherwise: type[Exception] = ValueError
) -> float:
    """Return a number as a float. ``kinds`` are the kinds of NumPy numbers to accept."""
    if type(given) is np.ndarray or is_tensor(given):
        given = widened(as_array(name, given))
    if isinstance(given, np.generic | np.ndarray):
        kind = "" if given.ndim or isinstance(given, np.ma.MaskedArray) else given.dtype.kind
    elif isinstance(given, bool):
        kind = "b"
    else:  # float() would also parse text or the bytes of a buffer
        kind = "f" if hasattr(type(given), "__float__") or hasattr(type(given), "__index__") else ""
    cause: Exception | None = None
    if kind and kind in kinds:
        try:
            return float(given)
        except OverflowError as error:
            raise ValueError(f"{name} must be {expected}, got an integer too large for float64") from error
        except Exception as error:  # an object's own __float__ may raise anything
            cause = error
    raise otherwise(f"{name} must be {expected}, got {shown(given)}") from cause


def end_to_end(rewards: object, whole: str) -> Array:
    """Return rewards of one dimension, which hold all sequences, or all nodes."""
    array = as_numbers("rewards", rewards)
    if array.ndim != 1:
        raise ValueError(f"rewards has shape {array.shape}; expected one dimension, {whole}")
    return array


def refuse_per_env(normalize: object, what: str) -> None:
    if isinstance(normalize, str) and normalize == "per_env":
        raise ValueError(f'normalize must be "global" or None: {what} are not envs')


def as_integers(name: str, given: object, expected: str = "integers") -> Array:
    """Return an array of integers as int64; a uint64 too large for it becomes negative, at most a root of a tree."""
    array = as_array(name, given)
    if array.dtype.kind not in "iu":
        # The name of its type, because torch's bfloat16 is a dtype "|V2" here.
        raise TypeError(f"{name} has dtype {array.dtype.type.__name__}; expected {expected}")
    return array.astype(np.int64, copy=False)


def as_boundaries(cu_seqlens: object) -> Array:
    """Return a one-dimensional array of at least one integer as int64."""
    array = as_integers("cu_seqlens", cu_seqlens)
    if array.ndim != 1 or not len(array):
        raise ValueError(f"cu_seqlens has shape {array.shape}; expected (sequences + 1,)")
    return array


def as_labels(name: str, given: Any, shape: tuple[int, ...]) -> Array:
    """Return labels in this shape. A list is not converted by NumPy, which would make equal text of 1 and "1"."""
    is_list = type(given) in (list, tuple)
    if is_list and len(shape) == 1 and not is_tensor(first_in_list(given)):
        labels = np.fromiter(given, object, len(given))
    elif is_list and len(shape) > 1 and len(given) == shape[0] and not any(map(np.isscalar, given)):
        labels = np.empty(shape, object)
        for row, labels_of_row in zip(labels, given, strict=True):
            row[...] = as_labels(name, labels_of_row, shape[1:])
    else:
        labels = as_array(name, given)
    numbers = f"np.arange({math.prod(shape)}){f'.reshape({shape})' * (len(shape) > 1)}"
    alike = f"; for groups of this size, pass {numbers} // {name}" * isinstance(given, int)
    rows = (
        "; if a row of rewards holds the tokens of one answer, pass rewards.sum(axis=1), and if it holds the answers "
        f"to one prompt, np.repeat({name}, {math.prod(shape[1:])}).reshape({shape})"
    )
    check_shape(name, labels, shape, "rewards' shape", alike or rows * (labels.shape == shape[:1]))
    return labels


def numbered(name: str, labels: Array) -> Array:
    """Return a small integer for each label, as bincount takes it, the same for labels that are equal in Python."""
    if not labels.size:
        return np.zeros(0, np.intp)
    if labels.dtype.kind in "USTO":
        numbers: dict[Any, int] = {}
        objects = labels.tolist()
        for label in {type(label): label for label in objects}.values():
            if isinstance(label, float | np.floating) or is_tensor(label):  # tensors are equal to themselves only
                raise TypeError(f"{name} has a label of type {type(label).__name__}: pass integers or strings")
        try:
            return np.array([numbers.setdefault(label, len(numbers)) for label in objects], np.intp)
        except Exception as error:  # an object's own __hash__ may raise anything
            raise TypeError(f"{name} has a label that cannot be hashed: pass integers or strings") from error
    if labels.dtype.kind not in "biu":
        raise TypeError(f"{name} has dtype {labels.dtype.type.__name__}; expected integers, strings or other labels")
    lowest, highest = int(labels.min()), int(labels.max())
    if highest - lowest <= 4 * labels.size and highest < 2**63:  # so few empty groups cost less than to sort the labels
        return (labels.astype(np.int64) - lowest).astype(np.intp, copy=False)
    return np.unique(labels, return_inverse=True)[1]


def integer_of(given: Any) -> int | None:
    """Return the argument as an int, or None if it is not an integer. A bool gives None: it is usually a mistake."""
    if isinstance(given, bool):
        return None
    try:
        return operator.index(given)
    except Exception:  # an object's own __index__ may raise anything
        return None


def as_count(name: str, given: Any, most: int = MOST_STEPS) -> int:
    """Return a positive integer; a larger one than ``most`` counts as ``most``."""
    count = integer_of(given)
    if count is None or count < 1:
        raise ValueError(f"{name} must be a positive integer, got {shown(given)}")
    return min(count, most)


def as_clip(name: str, given: Any) -> float:
    """Return the number at which ratios are clipped: infinity for None."""
    return math.inf if given is None else as_size(name, given, "a number >= 0, or None", math.inf)


def as_share(name: str, given: Any) -> float:
    return as_size(name, given, "a number in [0, 1]", 1.0)


def as_size(name: str, given: Any, expected: str, most: float) -> float:
    """Return a number from 0 to ``most``."""
    size = as_number(name, given, expected)
    if not 0.0 <= size <= most:
        raise ValueError(f"{name} must be {expected}, got {size!r}")
    return size


def shown(given: object) -> str:
    """Return the repr of an argument in one line of a message: shortened if it is long, or its type if it has none."""
    try:
        text = " ".join(map(str.strip, repr(given).splitlines()))
    except Exception:  # Python refuses to write out long integers, and an object may do anything
        return f"an object of type {type(given).__name__}"
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def as_switch(name: str, given: object) -> bool:
    """Return a switch. Only True and False are accepted, because the truth of other objects may run their own code."""
    if given is True or given is False or isinstance(given, np.bool_):
        return bool(given)
    raise TypeError(f"{name} must be True or False, got {shown(given)}")


def as_word(name: str, given: object, words: tuple[str, ...], elsewhere: Mapping[str, str], more: str = "") -> str:
    """Return one of these words. ``elsewhere`` is what stands for them in other libraries."""
    if isinstance(given, str) and given in words:
        return given
    meant = choose_one(given, words, elsewhere)
    raise ValueError(f"{name} must be one of {', '.join(map(repr, words))}{more}, got {shown(given)}{meant}")


def autoreset_mode(given: object) -> str | None:
    """Return the name of a mode, in lower case as Gymnasium's AutoresetMode has it."""
    if given is None:
        return None
    name = given.name if isinstance(given, enum.Enum) else given
    mode = name.lower() if isinstance(name, str) else None
    more = ", the member of Gymnasium's AutoresetMode, or None"
    return mode if mode in AUTORESET else as_word("autoreset", given, AUTORESET, AUTORESET_ELSEWHERE, more)


def one_for_each(name: str, array: Array, shape: tuple[int, ...], what: str, on_device: bool = False) -> Array:
    """Return numbers of this shape. One number alone stands for all of them; on a GPU, it stays one number."""
    if array.ndim == 0:
        return array if on_device else np.full(shape, array)
    check_shape(name, array, shape, f"one number, or {what}")
    return array


def check_shape(name: str, array: Array, shape: tuple[int, ...], what: str, advice: str = "") -> None:
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}; expected {what}, {shape}{advice}")
