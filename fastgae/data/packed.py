"""Keep the keys of rows as runs, so that unfinished results take hardly more space than their numbers.

The name of an episode is the same in all its rows, so it is one run. Its steps rise by one, so they are one run after
the row numbers are subtracted.
"""

from collections.abc import Collection
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastgae._call import Array
from fastgae.data.arrays import whole

RISING = b"rising"  # in the metadata of a column without the numbers of the rows: its dtype with them
LEAST_ROWS = 4  # of an episode on average, or runs would take as much space as the rows


def packed(table: pa.Table, last: Array, names: Collection[str], step: str | None) -> pa.Table:
    """Return the table with runs in place of its keys; ``last``: True in the last row of each episode."""
    if last.ndim > 1:  # several envs have one name, which changes where the episodes of all end
        last = np.logical_and.reduce(last, axis=1)
    ends = np.flatnonzero(last) + 1
    ends = ends if last[-1] else np.append(ends, len(last))
    if len(ends) * LEAST_ROWS > len(last):
        return table
    begins = np.append(0, ends[:-1])
    for name in names:
        if pa.types.is_dictionary(table.field(name).type):  # of which Arrow makes no runs, and which are small
            continue
        table = _replaced(table, name, _runs(ends, whole(table[name]).take(pa.array(begins))))
    if step is None:
        return table
    numbers = whole(table[step]).to_numpy()
    firsts = numbers[begins].astype(np.int64) - begins
    return _replaced(table, step, _runs(ends, pa.array(firsts)), {RISING: numbers.dtype.str})


def unpacked(table: pa.Table) -> pa.Table:
    """Return the table that ``packed`` was given."""
    return reduce(_unpack, table.column_names, table)


def _unpack(table: pa.Table, name: str) -> pa.Table:
    field = table.field(name)
    if not isinstance(field.type, pa.RunEndEncodedType):
        return table
    column = pc.run_end_decode(table[name])
    if field.metadata:
        numbers = whole(column).to_numpy() + np.arange(len(table))
        column = pa.array(numbers.astype(field.metadata[RISING].decode(), copy=False))
    return _replaced(table, name, column)


def _runs(ends: Array, values: pa.Array) -> pa.Array:
    return pa.RunEndEncodedArray.from_arrays(pa.array(ends), values)


def _replaced(table: pa.Table, name: str, column: pa.Array, metadata: dict[bytes, str] | None = None) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), pa.field(name, column.type, metadata=metadata), column)
