"""Values in a separate file.

There is one for each row of the source, or, if the source has the state behind each episode, one for each state: T + 1
per episode. A table with the columns that name the rows may have its rows in any order.
"""

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa

from fastgae._call import Array
from fastgae.data.arrays import arrays_of, column_of
from fastgae.data.columns import Columns, numbers_in
from fastgae.data.errors import DataError, argument, is_remote, reading
from fastgae.data.files import NPY, by_suffix, files_of, kind_of, path_of
from fastgae.data.formats import parts_in
from fastgae.data.rows import SLICE, Advance, Batches, Rows, even
from fastgae.data.sorting import Database, joined, new_array
from fastgae.data.steps import RowError
from fastgae.data.stored import Lazy, npy, type_of

NAME = "values"  # of the column in a table


def values_file(values: str | os.PathLike[str], columns: Sequence[str]) -> Path | None:
    """Return the path of a file of values; None if this is the name of a column."""
    if values in (NAME, *columns):  # the default names no file
        return None
    path = path_of("values", values)
    if path.exists():
        return path
    if isinstance(values, os.PathLike) or is_remote(path) or by_suffix(path) or len(path.parts) > 1:
        raise DataError(f"{argument('values')} {str(path)!r} does not exist, and no column has this name")
    return None


class Values:
    """The values in a file, in the order of the rows of a source."""

    def __init__(self, path: Path, rows: Rows) -> None:
        self.path, self.files, self._rows = path, files_of(path), rows
        self._table = Rows([])
        self._numbers: Any = npy(path) if kind_of(path) == NPY else None
        if self._numbers is not None:
            with reading(path):
                count, self.kind = len(self._numbers), type_of(self._numbers)
        else:
            self._table = Rows(parts_in(path))
            count, names = self._table.count, self._table.schema.names
            if NAME not in names:
                raise DataError(f"{path} has no column {NAME!r}; there are {', '.join(names)}")
            self.kind = column_of(numbers_in(NAME, self._table.read(0, 0, [NAME])[NAME])).type
        states = rows.count + len(rows.ends)
        if count not in (rows.count, states):
            more = f", or {states:,}, one more for each of {len(rows.ends):,} episodes" if len(rows.ends) else ""
            expected = f"expected {rows.count:,}, one for each row of the source{more}"
            raise DataError(f"{path} has {count:,} values; {expected}")
        self.ends = rows.ends if count > rows.count else rows.ends[:0]  # rows behind which there is another value

    def of(self, rows: Array, behind: bool = False) -> Array:
        """Return the values of some rows, or of the states behind them; after ``put_into``."""
        places = rows + np.searchsorted(self.ends, rows) + behind
        return numbers_in(NAME, pa.chunked_array([column_of(self._numbers[places])]))

    def put_into(self, file: Path, columns: Columns, database: Database, advance: Advance) -> None:
        """Write the values of a table to a file in the order of the source, to be read from there."""
        if not self._table.count:
            return
        keys, names = columns.keys, self._table.schema.names
        others = ", ".join(name for name in names if name != NAME)
        alone = f"leave only {NAME!r}, in the order of the source"
        if others and not keys:
            raise DataError(f"{self.path} has {others} beside {NAME!r}, and the source has no names of rows: {alone}")
        if others and (missing := [key for key in keys if key not in names]):
            raise DataError(
                f"{self.path} has no column {' and no '.join(missing)}, by which its rows would be found; there are "
                f"{others}: rename them, or {alone}"
            )
        keys, dtype = [key for key in keys if key in names], arrays_of(pa.array([], self.kind)).dtype
        file.unlink(missing_ok=True)
        if not self._copied(file, keys, advance):
            if len(self.ends):
                raise DataError(f"{self.path} has other rows than the source, in {' or '.join(keys)}")
            numbers = new_array(file, dtype, self._rows.count)
            joined(self._rows, self._table, self.path, columns, NAME, numbers, database, advance)
        mapped = partial(np.memmap, file, dtype, "r")
        self._numbers = Lazy(mapped(), mapped)

    def _copied(self, to: Path, keys: Sequence[str], advance: Advance) -> bool:
        """Copy the values of the table, and return whether its rows have the keys of the source, in its order."""
        states = self.ends + np.arange(1, len(self.ends) + 1)  # the places of values that are of no row

        def found(file: IO[bytes]) -> Batches:
            for at, table in self._table.forwards([NAME, *keys], SLICE):
                try:
                    numbers = numbers_in(NAME, table[NAME])
                except RowError as error:
                    raise DataError(f"{self.path}: row {at.start + error.row}: {error.fault}") from error
                file.write(np.ascontiguousarray(numbers).data)
                advance(len(table))
                yield from table.filter(pa.array(~np.isin(np.arange(at.start, at.stop), states))).to_batches()

        with to.open("xb") as file:
            pairs = zip(even(found(file), SLICE), self._rows.forwards(keys, SLICE), strict=True)
            return all(_same(table[key], own[key]) for table, (_, own) in pairs for key in keys)


def _same(found: pa.ChunkedArray, key: pa.ChunkedArray) -> bool:
    """Return whether two columns hold the same names, perhaps in different types."""
    try:
        return bool(found.cast(key.type).combine_chunks().equals(key.combine_chunks()))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
