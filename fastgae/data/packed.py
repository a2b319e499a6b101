"""Keep the keys of rows as runs, so that results on their way to the sidecar hardly take more space than numbers.

The name of an episode repeats itself, so it is one run. The steps of an episode rise by one, so they are one run after
the numbers of the rows are subtracted.
"""

from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

RISING = b"rising"  # in the metadata of a column without the numbers of the rows: its type with them
LEAST_ROWS = 4  # of a run on average, or runs would take as much space as the rows


def packed(table: pa.Table) -> pa.Table:
    """Return the table with runs in place of the columns that have few."""
    return reduce(_pack, table.column_names, table.combine_chunks())


def unpacked(table: pa.Table) -> pa.Table:
    """Return the table that ``packed`` was given."""
    return reduce(_unpack, table.column_names, table)


def _pack(table: pa.Table, name: str) -> pa.Table:
    column, kind = table[name], table.field(name).type
    candidates: list[tuple[pa.ChunkedArray, dict[bytes, str]]] = []
    if pa.types.is_integer(kind) or pa.types.is_string(kind):
        candidates.append((column, {}))
    if pa.types.is_signed_integer(kind):
        candidates.append((pc.subtract(column, _numbers(table)), {RISING: str(kind)}))
    for each, metadata in candidates:
        runs = pc.run_end_encode(each, run_end_type=pa.int64())
        if sum(len(chunk.values) for chunk in runs.chunks) * LEAST_ROWS <= len(table):
            return _replaced(table, name, runs, metadata)
    return table


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
