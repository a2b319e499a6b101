"""Keep the keys of rows as runs, so that results on their way to the sidecar hardly take more space than numbers.

The name of an episode repeats itself, so it is one run. The steps of an episode rise by one, so they are one run after
the numbers of the rows are subtracted.
"""

from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

RISING = b"rising"  # in the metadata of a column without the numbers of the rows: its type with them
SAMPLE = 4096  # rows that show whether runs are few
LEAST_ROWS = 4  # of a run there on average, or runs would take as much space as the rows


def packed(table: pa.Table) -> pa.Table:
    """Return the table with runs in place of the columns that have few."""
    return reduce(_pack, table.column_names, table.combine_chunks())


def unpacked(table: pa.Table) -> pa.Table:
    """Return the table that ``packed`` was given."""
    return reduce(_unpack, table.column_names, table)


def _pack(table: pa.Table, name: str) -> pa.Table:
    kind = table.field(name).type
    if pa.types.is_integer(kind) or pa.types.is_string(kind):
        if _few_runs(table[name].slice(0, SAMPLE)):
            return _replaced(table, name, _runs(table[name]), {})
        if pa.types.is_signed_integer(kind) and _few_runs(_without_numbers(table.slice(0, SAMPLE), name)):
            return _replaced(table, name, _runs(_without_numbers(table, name)), {RISING: str(kind)})
    return table


def _few_runs(column: pa.ChunkedArray) -> bool:
    return sum(len(chunk.values) for chunk in _runs(column).chunks) * LEAST_ROWS <= len(column)


def _runs(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.run_end_encode(column, run_end_type=pa.int64())


def _without_numbers(table: pa.Table, name: str) -> pa.ChunkedArray:
    return pc.subtract(table[name], _numbers(table))


def _unpack(table: pa.Table, name: str) -> pa.Table:
    field = table.field(name)
    if not isinstance(field.type, pa.RunEndEncodedType):
        return table
    column = pc.run_end_decode(table[name])
    if field.metadata:
        column = pc.add(column, _numbers(table)).cast(field.metadata[RISING].decode())
    return _replaced(table, name, column, {})


def _numbers(table: pa.Table) -> pa.Array:
    return pa.array(np.arange(len(table)))


def _replaced(table: pa.Table, name: str, column: pa.ChunkedArray, metadata: dict[bytes, str]) -> pa.Table:
    return table.set_column(
        table.schema.get_field_index(name), pa.field(name, column.type, metadata=metadata or None), column
    )
