"""The rows of a source, numbered from 0 over all of its files, and read from the last to the first; and their columns.

If the types of columns differ from file to file, all rows are read in one type that holds both, as pyarrow.dataset and
Ray do. Columns become arrays of NumPy, and arrays become columns: the first axis is the rows.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import accumulate, chain, repeat
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastgae._call import Array
from fastgae._support.archive import NUMBERS
from fastgae.data.errors import DataError, first_line, reading

SLICE = 65_536  # rows to read at once from arrays and from tables in memory
MOST = 2**20  # rows to compute at once; with more, the processor waits for memory
ABOUT = b"fastgae"  # the key, in the metadata of a file, of what results say about themselves
LARGE = "large.arrow"  # the copy of a part that does not fit into memory
# A column as arrays: one with a number or more for each row, or a dict of such for a column with fields.
Arrays: TypeAlias = Any
Batches: TypeAlias = Iterator[pa.RecordBatch]
Made: TypeAlias = Callable[[int, int], pa.Array]  # returns a column that is in no file, from a row up to another
Advance: TypeAlias = Callable[[int], None]  # takes how much is done since the last call
Show: TypeAlias = Callable[[str, int | None], AbstractContextManager[Advance]]  # takes what is done, of how many rows


class Part(NamedTuple):
    """Rows that can be read by themselves: a row group of Parquet, a batch of Arrow, a slice of an array, a table."""

    path: Path
    first: int  # its first row, counted from the beginning of the file
    rows: int  # a reader may give more, which are left out
    schema: pa.Schema
    batches: Callable[[Sequence[str], int], Batches]  # columns of the rows, if possible at most so many at a time
    state: Callable[[Sequence[str]], pa.Table] | None = None  # behind the last row, where an episode ends


class Rows:
    """All rows of a source, in the types of a schema or, without one, in those in which all files can be read."""

    def __init__(
        self, parts: Sequence[Part], made: Mapping[str, Made] | None = None, schema: pa.Schema | None = None
    ) -> None:
        self.parts, self.made = [part for part in parts if part.rows], made or {}
        *firsts, self.count = accumulate((part.rows for part in self.parts), initial=0)
        self.firsts = np.array(firsts, np.int64)
        self.ends = np.array([at + p.rows - 1 for p, at in zip(self.parts, firsts, strict=True) if p.state], np.int64)
        self.files = np.array([at for p, at in zip(self.parts, firsts, strict=True) if p.first == 0], np.int64)
        self._known: list[Part] = []  # one part of each schema
        for part in self.parts:
            if not any(part.schema.equals(known.schema) for known in reversed(self._known)):
                self._known.append(part)
        columns = [(name, made(0, 0).type) for name, made in self.made.items()]
        self.schema = schema or pa.schema([*columns, *promoted(self._known)])

    def also(self, made: Mapping[str, Made]) -> "Rows":
        """Return the rows with more columns."""
        return Rows(self.parts, {**self.made, **made})

    @property
    def constants(self) -> dict[str, Any]:
        """Return the items of the files in the columns that are made."""
        rows = [(row, row + 1) for row in self.files.tolist()]
        return {name: [made(*row)[0].as_py() for row in rows] for name, made in self.made.items()}

    @property
    def stored(self) -> pa.Schema:
        """Return the schema with the metadata of the first file, and with the types of the files if they are the same.

        But Parquet cannot hold dictionaries of views. Others together may have more items than each of them.
        """
        schemas = [part.schema for part in self._known]
        fields = []
        for field in self.schema:
            first, *others = [each.field(field.name).type if field.name in each.names else None for each in schemas]
            of_views = isinstance(first, pa.DictionaryType) and pa.types.is_string_view(first.value_type)
            is_common = field.name not in self.made and all(kind == first for kind in others) and not of_views
            if is_common and isinstance(first, pa.DictionaryType):
                first = pa.dictionary(pa.int32(), first.value_type, first.ordered)
            fields.append(field.with_type(first) if is_common else field)
        return pa.schema(fields, schemas[0].metadata)

    def check(self, columns: Sequence[str]) -> None:
        """Check that all files have these columns, and each once."""
        for name in (name for name in columns if name not in self.made):
            check_once([name], self.schema)
            has = {name in part.schema.names: part for part in reversed(self._known)}
            if len(has) > 1:
                ours = "; it holds results of fastgae: move it elsewhere, or name the files of the source"
                way = ours if ABOUT in (has[False].schema.metadata or {}) else ""
                raise DataError(f"{has[False].path} has no column {name!r}, but {has[True].path} has one{way}")

    def _part_of(self, row: int) -> int:
        return int(np.searchsorted(self.firsts, row, side="right")) - 1

    def file_of(self, rows: Array) -> Array:
        """Return the numbers of the files of rows."""
        return np.searchsorted(self.files, rows, side="right") - 1

    def place(self, row: int) -> tuple[Path, int]:
        """Return the file of a row, and its number there."""
        part, first = self.parts[self._part_of(row)], self.firsts[self._part_of(row)]
        return part.path, part.first + row - int(first)

    def batches(self, start: int, stop: int, columns: Sequence[str], most: int) -> Batches:
        """Yield columns of the rows start … stop - 1, if possible at most so many rows at a time."""
        kinds = pa.schema([self.schema.field(name) for name in columns])
        inside = [name for name in columns if name not in self.made]
        if columns and not inside:
            for first in range(start, stop, most):
                yield self._completed(None, first, min(most, stop - first), kinds)
            return
        for number in range(self._part_of(start), int(np.searchsorted(self.firsts, stop))):
            part, row = self.parts[number], int(self.firsts[number])
            last = min(stop, row + part.rows)
            for batch in part.batches(inside, most):
                first, end = max(start, row), min(last, row + batch.num_rows)
                if first < end:
                    own = batch.slice(first - row, end - first)
                    with reading(part.path):
                        found = self._completed(own, first, len(own), kinds)
                    yield found
                row += batch.num_rows
                if row >= last:
                    break
            else:
                raise DataError(f"{part.path} has fewer rows than it says: it is damaged, or has changed")

    def forwards(self, columns: Sequence[str], size: int) -> Iterator[tuple[slice, pa.Table]]:
        """Yield columns of all rows in tables of one size, of which the last one may be smaller, with their place."""
        tables = even(self.batches(0, self.count, columns, size), size) if columns else repeat(pa.table({}))
        for first, table in zip(range(0, self.count, size), tables, strict=False):
            yield slice(first, min(first + size, self.count)), table

    def _completed(self, found: pa.RecordBatch | None, first: int, rows: int, kinds: pa.Schema) -> pa.RecordBatch:
        """Return rows in other types, with the columns that are made."""
        stored = {} if found is None else dict(zip(found.schema.names, found.columns, strict=True))

        def column(field: pa.Field) -> pa.Array:
            if field.name in self.made:
                return self.made[field.name](first, first + rows)
            return cast(stored[field.name], field.type) if field.name in stored else pa.nulls(rows, field.type)

        return pa.RecordBatch.from_arrays(list(map(column, kinds)), schema=kinds)

    def read(self, start: int, stop: int, columns: Sequence[str]) -> pa.Table:
        """Return columns of the rows start … stop - 1, each in one piece of memory."""
        kinds = pa.schema([self.schema.field(name) for name in columns])
        return pa.Table.from_batches(self.batches(start, stop, columns, stop - start), kinds).combine_chunks()

    def behind(self, columns: Sequence[str]) -> Array:
        """Return the rows behind which there is the next state in all of these columns."""
        return self.ends if columns and not self.made.keys() & {*columns} else self.ends[:0]

    def states(self, rows: Array, columns: Sequence[str]) -> pa.Table:
        """Return columns of the states behind some rows."""
        kinds = pa.schema([self.schema.field(name) for name in columns])
        parts = (self.parts[self._part_of(row)] for row in rows)
        states = (part.state(columns).to_batches()[0] for part in parts if part.state)
        return pa.Table.from_batches(self._completed(state, 0, 1, kinds) for state in states)

    def backwards(
        self, start: int, stop: int, columns: Sequence[str], most: int, folder: Path
    ) -> Iterator[tuple[int, pa.Table]]:
        """Yield the rows start … stop - 1 from the last to the first, at most so many at once, with the first's number.

        A part that has more rows is copied to the folder first, batch by batch.
        """
        most = min(most, MOST)
        while stop > start:
            at = int(np.searchsorted(self.firsts, stop - most))
            first = max(start, int(self.firsts[at])) if at < len(self.firsts) else stop
            if first < stop:
                yield first, self.read(first, stop, columns)
                stop = first
                continue
            first = max(start, int(self.firsts[self._part_of(stop - 1)]))
            for table in _copied(self.batches(first, stop, columns, most), most, folder / LARGE):
                stop -= len(table)
                yield stop, table


def _copied(batches: Batches, most: int, to: Path) -> Iterator[pa.Table]:
    """Copy batches to a file, and yield them from the last to the first."""
    to.unlink(missing_ok=True)  # a killed run may have left one, which may have a second name
    tables = even(batches, most)
    first = next(tables)
    with to.open("xb") as file, pa.ipc.new_file(file, first.schema) as writer:
        for table in chain([first], tables):
            writer.write_table(table.combine_chunks())
    with pa.OSFile(str(to)) as file:  # not mapped, because Windows removes no file that a table still needs
        copy = pa.ipc.open_file(file)
        for number in reversed(range(copy.num_record_batches)):
            yield pa.Table.from_batches([copy.get_batch(number)])
    to.unlink()


def even(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.Table]:
    """Yield the same rows in tables of one size, of which the last one may be smaller."""
    waiting, rows = list[pa.RecordBatch](), 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        while rows >= size:
            table = pa.Table.from_batches(waiting)
            yield table.slice(0, size)
            waiting, rows = table.slice(size).to_batches(), rows - size
    if waiting:
        yield pa.Table.from_batches(waiting)


def promoted(parts: Sequence[Part]) -> pa.Schema:
    """Return the columns of all parts, each in the type in which all can be read."""
    common, decimals, integers = None, set[str](), set[str]()
    for part in parts:
        plain = pa.schema([field.with_type(plain_type(field.type)) for field in part.schema])
        decimals.update(field.name for field in plain if pa.types.is_decimal(field.type))
        integers.update(field.name for field in plain if pa.types.is_integer(field.type))
        try:
            if common not in (None, plain):  # two columns may have one name; those of one schema need not be unified
                plain = pa.unify_schemas([common, plain], promote_options="permissive")
            common = plain
        except (pa.ArrowTypeError, pa.ArrowInvalid) as error:
            raise DataError(f"{part.path} and {parts[0].path} have different columns: {first_line(error)}") from error

    def exact(field: pa.Field) -> pa.Field:
        if field.name in decimals and pa.types.is_floating(field.type):  # pyarrow reads decimals beside float32 as it
            return field.with_type(pa.float64())
        if field.name in decimals & integers:  # for which pyarrow has a digit too few
            digits = min(field.type.precision + 1, 76)
            return field.with_type((pa.decimal128 if digits <= 38 else pa.decimal256)(digits, field.type.scale))
        return field

    return pa.schema(map(exact, common or []))


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return a type without dictionaries, which differ from batch to batch.

    It also has no views and no extensions but tensors, because few functions know them.
    """
    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType) and not isinstance(kind, pa.FixedShapeTensorType):
        return plain_type(kind.storage_type)
    return pa.large_string() if pa.types.is_string_view(kind) else kind


def cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column in another type; a list of numbers may become a tensor, and a decimal the nearest float."""
    # Few functions know dictionaries with an item that is missing.
    if column.type == kind and not (pa.types.is_dictionary(kind) and column.dictionary.null_count):
        return column
    if isinstance(kind, pa.FixedShapeTensorType):
        return pa.ExtensionArray.from_storage(kind, cast(column, kind.storage_type))
    if isinstance(column, pa.ExtensionArray):
        return cast(column.storage, kind)
    if pa.types.is_dictionary(column.type):  # its items may be views, which pyarrow does not take
        items = cast(column.dictionary, plain_type(kind))
        if not pa.types.is_dictionary(kind):
            return items.take(column.indices)
        items = items.dictionary_encode()  # of any items; pyarrow casts few of them to dictionaries
        indices = items.indices.take(column.indices)
        return pa.DictionaryArray.from_arrays(indices, items.dictionary, ordered=kind.ordered)
    if pa.types.is_decimal(column.type) and pa.types.is_floating(kind):  # pyarrow multiplies by 0.1, which is inexact
        column = column.cast(pa.string())
    return column.cast(kind)


def each_array(function: Callable[[Array], Any], column: Arrays) -> Arrays:
    """Apply a function to the array of a column; for a column with fields, to the array of each field."""
    if isinstance(column, Mapping):
        return {name: each_array(function, field) for name, field in column.items()}
    return function(column)


def check_once(columns: Iterable[str], schema: pa.Schema) -> None:
    """Check that a schema has no second column of these names."""
    for name in columns:
        if (count := schema.names.count(name)) > 1:
            raise DataError(f"there are {count} columns {name!r}; expected one")


def whole(column: pa.ChunkedArray) -> pa.Array:
    """Return a column in one piece of memory, without a copy if it already is in one piece."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def checked_text(role: str, column: pa.Array) -> pa.Array:
    """Return a column; raise if its text is none, as in tables that hold any bytes as text."""
    try:
        if not pa.types.is_primitive(column.type):
            column.validate(full=True)
    except pa.ArrowInvalid as error:
        raise DataError(f"the column of {role} holds text that is not UTF-8: {first_line(error)}") from error
    return column


def holds_numbers(array: Any) -> bool:
    """Return whether rows of an array can be a column of numbers. Arrow has no long double."""
    return array.dtype.kind in NUMBERS and array.dtype.itemsize <= 8 and 0 not in array.shape[1:]


def column_of(array: Arrays) -> pa.Array:
    """Return a column whose rows are the numbers of an array, or its sub-arrays; for a dict, a column with fields."""
    if isinstance(array, Mapping):
        return pa.StructArray.from_arrays([column_of(part) for part in array.values()], names=list(array))
    if not holds_numbers(array):
        raise TypeError(f"an array of dtype {array.dtype} and shape {array.shape} holds no numbers")
    native = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
    if native.ndim == 1:
        return pa.array(native)
    # Arrow stores flags as single bits, and cannot make tensors of them.
    native = native.view(np.uint8) if native.dtype == bool else native
    kind = pa.fixed_shape_tensor(pa.from_numpy_dtype(native.dtype), native.shape[1:])
    items = pa.FixedSizeListArray.from_arrays(pa.array(native.reshape(-1)), type=kind.storage_type)
    return pa.ExtensionArray.from_storage(kind, items)


def is_list(kind: pa.DataType) -> bool:
    """Return whether each row of a column of this type is a list."""
    return any(is_kind(kind) for is_kind in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list))


def axes_of(kind: pa.DataType) -> int | None:
    """Return the number of axes of one row: 0 for a number, 2 or more for an image; None if it holds no numbers."""
    if pa.types.is_struct(kind):
        return max((axes for field in kind if (axes := axes_of(field.type)) is not None), default=None)
    if is_list(kind) or isinstance(kind, pa.FixedShapeTensorType):
        inner = axes_of(kind.value_type)
        return None if inner is None else inner + (1 if is_list(kind) else len(kind.shape))
    numbers = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
    return 0 if any(is_kind(kind) for is_kind in numbers) else None


def arrays_of(column: pa.Array | pa.ChunkedArray) -> Arrays:
    """Return a column as an array, or a dict of arrays of the fields that hold numbers. Lists must have one length."""
    if isinstance(column, pa.ChunkedArray):
        column = whole(column)
    kind = column.type
    if column.null_count:
        raise ValueError("a row is missing")
    if pa.types.is_struct(kind):
        parts = zip(kind, column.flatten(), strict=True)
        return {field.name: arrays_of(part) for field, part in parts if axes_of(field.type) is not None}
    if isinstance(kind, pa.FixedShapeTensorType):
        if column.storage.flatten().null_count:  # which would become 0
            raise ValueError("a number is missing")
        return column.to_numpy_ndarray()
    if pa.types.is_boolean(kind):  # to_numpy takes ten times as long
        byte, bit = divmod(column.offset, 8)
        packed = np.frombuffer(column.buffers()[1] or b"", np.uint8, offset=byte)
        return np.unpackbits(packed, count=bit + len(column), bitorder="little")[bit:].view(bool)
    if not is_list(kind):
        return column.to_numpy(zero_copy_only=False)
    lengths = pc.unique(pc.list_value_length(column))
    if len(lengths) > 1:
        raise ValueError("its lists have different lengths")
    rows = len(column), lengths[0].as_py() if len(lengths) else 0
    return each_array(lambda inner: inner.reshape(*rows, *inner.shape[1:]), arrays_of(column.flatten()))
