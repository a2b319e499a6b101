"""Labels of advantages by a quantile over the whole source, or over each task; exact for sources larger than memory."""

from collections.abc import Callable, Iterable
from fractions import Fraction
from math import ceil
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from fastgae._call import Array
from fastgae.data.errors import DataError, argument
from fastgae.data.rows import cast, checked_text, plain_type, whole

LABEL = "positive"  # the column of labels
MOST_TALLIES = 2**22  # counts in memory: of many groups, a pass finds fewer bits of the thresholds
# Numbers of some rows, and the item of each row that says its group; None: there is one group.
Part: TypeAlias = tuple[Array, pa.Array | None]


def thresholds_of(parts: Callable[[], Iterable[Part]], quantile: float) -> dict[Any, float]:
    """Return, for each group, the least of its numbers that at least this part of them does not exceed.

    ``parts`` gives all numbers, in any parts. The first pass over them counts the numbers of each group, and every
    other one how they go on after the bits found before.
    """
    known: dict[Any, int] = {}
    dtype, counts = np.dtype(np.float32), np.zeros(0, np.int64)
    for numbers, items in parts():
        dtype, added = numbers.dtype, np.bincount(_groups(numbers, items, known), minlength=len(known))
        counts = added + np.pad(counts, (0, len(added) - len(counts)))
    # 0.7 means 7/10, and not the nearest float.
    ranks = np.array([ceil(Fraction(repr(quantile)) * count) for count in counts.tolist()])
    integer = np.dtype(f"u{dtype.itemsize}")
    sign = integer.type(1 << (8 * dtype.itemsize - 1))
    digit = min(16, max(1, (MOST_TALLIES // max(len(counts), 1)).bit_length() - 1))  # bits of one pass
    found = np.zeros(len(counts), integer)
    for shift in reversed(range(0, 8 * dtype.itemsize, digit)):
        tallies: Array = np.zeros(len(counts) << digit, np.int64)
        for numbers, items in parts():
            groups = _groups(numbers, items, known)
            bits = numbers.reshape(-1).view(integer)
            # Integers in the order of the floats: all bits of negative ones turned, else the sign.
            begin = np.where(bits & sign, ~bits, bits | sign) >> integer.type(shift)
            same = begin >> integer.type(digit) == found[groups]
            digits = (begin[same] & integer.type((1 << digit) - 1)).astype(np.int64)
            tallies += np.bincount((groups[same] << digit) + digits, minlength=len(tallies))
        tallies = tallies.reshape(len(counts), 1 << digit)  # also of no rows
        below = np.cumsum(tallies, axis=1)
        digits = np.count_nonzero(below < ranks[:, None], axis=1)
        at = np.arange(len(counts)), digits
        ranks -= below[at] - tallies[at]
        found = found << integer.type(digit) | digits.astype(integer)
    bits = np.where(found & sign, found ^ sign, ~found)  # of the floats again
    return dict(zip(known, bits.view(dtype).tolist(), strict=True))


def are_above(thresholds: dict[Any, float], numbers: Array, items: pa.Array | None) -> Array:
    """Return True where a number is above the threshold of its group."""
    groups = _groups(numbers, items, {item: number for number, item in enumerate(thresholds)})
    return numbers > np.array([*thresholds.values()], numbers.dtype)[groups].reshape(numbers.shape)


def check_items(per: str | None, schema: pa.Schema) -> None:
    """Check the column of the items, for each of which there is a threshold."""
    if per is None:
        return
    if per not in schema.names:
        raise DataError(f"there is no column {per!r} for {argument('label_per')}; there are {', '.join(schema.names)}")
    kind = schema.field(per).type
    try:
        _groups(np.empty(0), pa.nulls(0, plain_type(kind)), {})
    except pa.ArrowNotImplementedError as error:
        raise DataError(f"the column of {argument('label_per')} holds {kind}; expected integers or text") from error


def items_in(table: pa.Table, per: str | None) -> pa.Array | None:
    """Return the column of the items in one piece, without dictionaries, which may hold an item that is missing."""
    if per is None:
        return None
    items = cast(whole(table[per]), plain_type(table.schema.field(per).type))
    return checked_text(argument("label_per"), items)


def _groups(numbers: Array, items: pa.Array | None, known: dict[Any, int]) -> Array:
    """Return the number of the group of each number; new groups get numbers in ``known``."""
    if items is None:
        return np.full(numbers.size, known.setdefault(None, 0))
    encoded = items.dictionary_encode()
    is_time = pa.types.is_temporal(encoded.dictionary.type)  # Python's has no nanoseconds
    names = (encoded.dictionary.cast(pa.string()) if is_time else encoded.dictionary).to_pylist()
    if encoded.null_count or any(name != name for name in names):
        raise DataError(f"the column of {argument('label_per')} has a row without an item")
    of_names = np.array([known.setdefault(name, len(known)) for name in names], np.int64)
    groups: Array = of_names[np.asarray(encoded.indices)]
    return groups.repeat(numbers.size // max(len(items), 1))
