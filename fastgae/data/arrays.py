"""Turn NumPy arrays into columns of a table, and back. The first axis is the rows."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastgae._support.archive import NUMBERS

# A column as arrays: one with a number or more for each row, or a dict of such for a column with fields.
Arrays: TypeAlias = Any


def each_array(function: Callable[..., Any], *columns: Arrays) -> Arrays:
    """Apply a function to the array of every column; for columns with fields, to the arrays of each field."""
    if isinstance(columns[0], Mapping):
        return {name: each_array(function, *(column[name] for column in columns)) for name in columns[0]}
    return function(*columns)


def whole(column: pa.ChunkedArray) -> pa.Array:
    """Return a column in one piece of memory, without a copy if it already is in one piece."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def column_of(array: Arrays) -> pa.Array:
    """Return a column whose rows are the numbers of an array, or its sub-arrays; for a dict, a column with fields."""
    if isinstance(array, Mapping):
        return pa.StructArray.from_arrays([column_of(part) for part in array.values()], names=list(array))
    if array.dtype.kind not in NUMBERS or array.dtype.itemsize > 8:  # Arrow has no long double
        raise TypeError(f"an array of dtype {array.dtype} holds no numbers")
    native = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
    if native.ndim == 1:
        return pa.array(native)
    # Arrow stores flags as single bits, and cannot make tensors of them.
    native = native.view(np.uint8) if native.dtype == bool else native
    if not len(native):  # of which pyarrow makes no array
        kind = pa.fixed_shape_tensor(pa.from_numpy_dtype(native.dtype), native.shape[1:])
        return pa.ExtensionArray.from_storage(kind, pa.array([], kind.storage_type))
    return pa.FixedShapeTensorArray.from_numpy_ndarray(native)


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
    inner = arrays_of(column.flatten())
    return inner.reshape(len(column), lengths[0].as_py() if len(lengths) else 0, *inner.shape[1:])
