"""Named arrays in HDF5, .npz and .npy files: those of the whole file, or of a group in it for each episode."""

import re
import statistics
import threading
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.lib.format import read_array

from fastgae._call import Array
from fastgae._support.archive import NUMBERS, check_kind, checked_header, header_in, mapped_npy, named_members
from fastgae._support.memory import usable_memory
from fastgae._support.misnamed import COLUMN_ROLES
from fastgae.data.errors import DataError, brought_by, is_remote, reading
from fastgae.data.files import HDF5, NPZ, kind_of, npy_files, opened_binary, version_of
from fastgae.data.rows import SLICE, Arrays, Batches, Part, column_of, holds_numbers
from fastgae.data.tables import open_parquet

# Of another length than the rewards, they are an error where they are read: left out, they would change the results.
READ = (*COLUMN_ROLES, "terminals", "timeouts")
KEYS = ("env", "episode", "step")  # which rows of several envs have not
# Returns columns that no array holds, for the rows from one up to another.
Keys: TypeAlias = Callable[[int, int], Mapping[str, Array]]


class Groups(NamedTuple):
    """The groups of episodes in an HDF5 file."""

    name: str  # of a group, up to its number
    key: str  # the column of that number
    longer: Collection[str]  # the arrays that may have one row more: the state behind the last step
    example: str

    def numbers(self, path: Path) -> dict[str, int]:
        """Return the numbers of the episodes of a file in their order, by the names of their groups."""
        above, _, name = self.name.rpartition("/")
        with reading(path):
            names = arrays_in(path).get(above or "/", {})
            found = [each for each in names if re.fullmatch(rf"{name}\d+", each)]  # such as demo_1, or demo_001
        numbers = {self.name + each.removeprefix(name): int(each.removeprefix(name)) for each in found}
        return dict(sorted(numbers.items(), key=itemgetter(1)))

    def parts(self, path: Path) -> list[Part]:
        """Return the episodes of a file, in the order of their numbers."""
        if not (numbers := self.numbers(path)):
            raise DataError(f"{path} has no groups {self.name}0, {self.name}1 …, which {self.example} writes")
        return _parts(path, {group: partial(keys_of, self.key, each) for group, each in numbers.items()}, self.longer)


def keys_of(key: str, episode: int, start: int, stop: int) -> Mapping[str, Array]:
    """Return the columns of steps start … stop - 1 of an episode, for which the place of a row stands."""
    return {key: np.full(stop - start, episode), "step": np.arange(start, stop)}


def flat(path: Path) -> list[Part]:
    """Return the arrays of a whole file, with the keys that follow from ``episode_ends`` if the file has it."""
    arrays = _items(path, "")
    rows = _rows_of(arrays, path)
    # ``last_values`` without values, which come from elsewhere, also say that the episodes end here.
    is_longer = _length(arrays["values"]) == rows + 1 if "values" in arrays else "last_values" in arrays
    longer = ("values",) if is_longer else ()
    ends = arrays["episode_ends"][:] if "episode_ends" in arrays else None
    if ends is not None and not (
        ends.dtype.kind in "iu" and ends.ndim == 1 and (np.diff(ends, prepend=0) > 0).all() and rows in ends[-1:]
    ):
        raise DataError(f"{path}: episode_ends must be integers that rise to {rows}, the number of rewards")

    def keys(start: int, stop: int) -> Mapping[str, Array]:
        if ends is None:
            return {}
        row, firsts = np.arange(start, stop), np.append([0], ends[:-1].astype(np.int64))
        episode = np.searchsorted(firsts, row, side="right") - 1
        return {"episode": episode, "step": row - firsts[episode]}

    return _parts(path, {"": keys}, longer)


def _parts(path: Path, groups: Mapping[str, Keys], longer: Collection[str]) -> list[Part]:
    """Return the rows of groups of a file, of which "" is the file itself, in slices."""
    found, before, schema = list[Part](), 0, None
    for name, keys in groups.items():
        where = f"{path}: {name}" if name else str(path)
        with reading(path):
            items = _items(path, name)
            rows = _rows_of(items, where)
            schema = schema or _schema_of(items, rows, keys)
        group = Group(path, name, where, rows, schema, longer, keys)
        for start in range(0, rows, SLICE):
            stop = min(start + SLICE, rows)
            state = partial(group.read, stop, stop + 1) if longer and stop == rows else None
            found.append(Part(path, before + start, stop - start, schema, partial(group.batches, start, stop), state))
        before += rows
    return found


def _schema_of(items: Mapping[str, Any], rows: int, keys: Keys) -> pa.Schema:
    """Return the columns of a group that hold numbers; those of all other groups have the same types."""
    fields = [(name, pa.array(key).type) for name, key in keys(0, 1).items()]
    in_envs = "rewards" in items and len(items["rewards"].shape) > 1
    read = {*READ} - ({*KEYS} if in_envs else {*keys(0, 1)})
    for name, item in items.items():
        with suppress(TypeError):
            length = _length(item)
            is_column = length in (rows, rows + 1) or (name in read and length is not None)
            fields += [(name, type_of(item))] if is_column else []
    return pa.schema(fields)


class Group(NamedTuple):
    """Arrays of one length in a file."""

    path: Path
    name: str
    where: str  # both, for errors
    rows: int
    schema: pa.Schema
    longer: Collection[str]
    keys: Keys

    def batches(self, start: int, stop: int, names: Sequence[str], most: int) -> Batches:
        for first in range(start, stop, most):
            yield from self.read(first, min(first + most, stop), names).to_batches()

    def read(self, start: int, stop: int, names: Sequence[str]) -> pa.Table:
        """Return rows of arrays; the row behind the last one is the state there."""
        with reading(self.path):
            items = _items(self.path, self.name)
            made = self.keys(start, stop)
            return pa.table({name: self._column(items, made, name, start, stop) for name in names})

    def _column(self, items: Any, made: Mapping[str, Array], name: str, start: int, stop: int) -> pa.Array:
        if name in made:
            return column_of(made[name])
        if name not in items:
            raise DataError(f"{self.where} has no {name}; there are {', '.join(items) or 'no arrays'}")
        length, most = _length(items[name]), self.rows + (name in self.longer)
        if length is None or not max(self.rows, stop) <= length <= most:
            has = "no rows" if length is None else f"{length:,} rows"
            raise DataError(f"{self.where}: {name} has {has}; expected {max(most, stop):,}, for {self.rows:,} rewards")
        try:
            column = column_of(_slice(items[name], slice(start, stop)))
        except TypeError as error:
            raise DataError(f"{self.where}: {name} cannot be read: {error}") from error
        if column.type != (expected := self.schema.field(name).type):
            raise DataError(f"{self.where}: {name} holds {column.type}; expected {expected}, as in the first episode")
        return column


def _rows_of(items: Mapping[str, Any], where: object) -> int:
    """Return the length of the rewards, or, without them, of most arrays."""
    known = [items["rewards"]] if "rewards" in items else items.values()
    rows = statistics.mode([length for length in map(_length, known) if length is not None] or [None])
    if rows is None:
        fault = "rewards is not an array with one number" if "rewards" in items else "no array has a row"
        is_of_minari = any(re.fullmatch(r"episode_\d+", name) for name in items)
        way = "; pass this file, or the folder of the Minari dataset" if is_of_minari else ""
        raise DataError(f"{where}: {fault} for each step; there are {', '.join(items) or 'none'}{way}")
    return rows


def _length(item: Any) -> int | None:
    """Return the number of rows of an array; None for a number, and for a group whose arrays have different lengths."""
    if isinstance(item, Mapping):
        lengths = set(map(_length, item.values()))
        return lengths.pop() if len(lengths) == 1 else None
    return item.shape[0] if getattr(item, "shape", None) else None  # HDF5 also has types, which have no shape


def type_of(item: Any) -> pa.DataType:
    """Return the type of the column; raise TypeError if it does not hold numbers."""
    if isinstance(item, Mapping):
        return pa.struct([(name, type_of(part)) for name, part in _numbers(item).items()])
    return column_of(np.zeros((1, *item.shape[1:]), item.dtype)).type


def _slice(item: Any, rows: Any) -> Arrays:
    """Return rows of an array, or of each array of a group; raise TypeError if they do not hold numbers."""
    if isinstance(item, Mapping):
        return {name: _slice(part, rows) for name, part in _numbers(item).items()}
    if item.dtype.kind not in NUMBERS:
        raise TypeError(f"an array of dtype {item.dtype} holds no numbers")
    if getattr(item, "is_virtual", False) or getattr(item, "external", None):
        raise TypeError("its numbers are in another file: copy them into this one")
    return item[rows]


def _numbers(items: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the members of a group that hold numbers; raise TypeError if none does."""

    def holds(item: Any) -> bool:
        if isinstance(item, Mapping):
            return any(map(holds, item.values()))
        return _length(item) is not None and holds_numbers(item)

    if found := {name: item for name, item in items.items() if holds(item)}:
        return found
    raise TypeError(f"the group of {', '.join(items) or 'no arrays'} holds no numbers")


_open = threading.local()


def arrays_in(path: Path) -> Any:
    """Return the arrays and groups of a file by their names. The last two files stay open."""
    files = _open.__dict__.setdefault("files", {})
    if path not in files:
        while len(files) > 1:
            _close(files.pop(next(iter(files))))
        files[path] = _opened(path)
    return files[path]


def _items(path: Path, group: str) -> Any:
    """Return the arrays and groups of a group of a file, or those of the whole file, which may be a rollout."""
    items = arrays_in(path)
    if group:
        return items[group]
    if isinstance(items, dict):  # of .npy and .npz, which are read as a rollout when they are opened
        return items
    groups = {name: item for name, item in items.items() if not hasattr(item, "shape")}
    arrays = as_rollout({name: item for name, item in items.items() if name not in groups})
    return dict(sorted((groups | arrays).items()))


@contextmanager
def closing_files() -> Iterator[None]:
    """Close at the end what is open: HDF5 opens no file to write that is open to read, and disks keep removed files."""
    try:
        yield
    finally:
        for file in _open.__dict__.pop("files", {}).values():
            _close(file)
        open_parquet.cache_clear()


def _close(file: Any) -> None:
    if not isinstance(file, dict):
        file.close()


def _opened(path: Path) -> Any:
    if (kind := kind_of(path)) != HDF5:
        arrays: dict[str, Any] = Npz(path) if kind == NPZ else {file.stem: npy(file) for file in npy_files(path)}
        with reading(path):
            return as_rollout(arrays)
    with brought_by("hdf5", f"reading {path}"):
        import h5py
    file = h5py.File(opened_binary(path, "blockcache") if is_remote(path) else path, "r")
    # A link to another place may lead to anything. Hard links are of type 0.
    if (link := file.id.links.visit(lambda name, link: name if link.type else None, info=True)) is not None:
        file.close()
        raise DataError(f"{path}: {link.decode(errors='replace')} is a link to another place: copy the numbers there")
    return file


@dataclass(frozen=True)
class Lazy:
    """An array that is read, or mapped anew, when rows of it are asked for: touched pages of a mapping take memory."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    rows: Callable[[slice], Array]

    @classmethod
    def of(cls, like: Any, array: Callable[[], Array]) -> "Lazy":
        return cls(like.shape, like.dtype, lambda rows: array()[rows])

    def __getitem__(self, rows: slice) -> Array:
        return self.rows(rows)


def _longer(values: Any, last: Array, rows: slice) -> Array:
    """Return rows of the values, with those of the states after the last step as one more row."""
    found: Array = _slice(values, rows).astype(last.dtype, copy=False)
    return found if rows.stop in range(values.shape[0] + 1) else np.concatenate([found, last])


# What changes the results of gae, but that recorded data have not, or have as an argument.
NOT_READ = ["gamma", "gae_lambda", "returns_lambda", "last_advantages", "prev_done", "autoreset", "normalize"]
NOT_READ += ["tail_normalized", "carry_over", "time_axis"]


def as_rollout(arrays: dict[str, Any]) -> dict[str, Any]:
    """Return the arrays, with ``last_values`` of ``gae`` as one more row of the values."""
    for name in filter(arrays.__contains__, NOT_READ):
        passed = name in ("gamma", "gae_lambda", "normalize")
        way = "leave it out, and pass it as an argument" if passed else "call fastgae.gae with these arrays"
        raise ValueError(f"there is an array {name}, which fastgae.gae reads, but recorded data have none: {way}")
    has_final = "final_values" in arrays
    if "values" not in arrays or not (has_final or "last_values" in arrays):
        return arrays
    values = arrays["values"]
    if has_final and not {"truncated", "timeouts", "done"} & arrays.keys():
        raise ValueError("there are final_values, but no truncated")
    if has_final and "last_values" not in arrays:
        if _length(values) == (_length(arrays["final_values"]) or 0) + 1:
            return arrays
        raise ValueError("there are final_values, but no last_values")
    shape = arrays.get("rewards", values).shape  # rewards may have another name
    if "next_values" in arrays or values.shape != shape or not values.shape:
        twice = "next_values" if "next_values" in arrays else f"values of shape {values.shape}"
        raise ValueError(f"there are both last_values and {twice}: keep one of them")
    dtype = values.dtype
    for name, expected in (("last_values", [shape[1:], ()]), ("final_values", [shape]))[: 1 + has_final]:
        if (found := arrays[name]).shape not in expected or found.dtype.kind not in NUMBERS:
            has = f"shape {found.shape} and dtype {found.dtype}"
            raise ValueError(f"{name} has {has}; expected {expected[0]}, as values have, and numbers")
        dtype = np.result_type(dtype, found.dtype)
    last = np.broadcast_to(_slice(arrays.pop("last_values"), ...), (1, *shape[1:])).astype(dtype)
    arrays["values"] = Lazy((shape[0] + 1, *shape[1:]), dtype, partial(_longer, values, last))
    return arrays


class Npz(dict[str, Lazy]):
    """The arrays of an .npz file, in memory from their first use on. A fault of one raises only when it is read."""

    def __init__(self, path: Path) -> None:
        self._faults: dict[str, ValueError] = {}
        with reading(path), opened_binary(path, "readahead") as file:
            check_kind(file)
            archive = zipfile.ZipFile(file)
            for name, member in named_members(archive).items():
                try:
                    self[name] = Lazy.of(checked_header(archive, name, member), cache(partial(_loaded, path, member)))
                except ValueError as error:
                    self._faults[name] = error

    def __contains__(self, name: object) -> bool:
        return name in self._faults or super().__contains__(name)

    def __missing__(self, name: str) -> Lazy:
        raise self._faults[name]


def _loaded(path: Path, member: zipfile.ZipInfo | None) -> Array:
    """Return the array of an .npy file, or of a member of an .npz file."""
    if (member.file_size if member else version_of(path)[0]) > usable_memory() // 2:
        raise DataError(f"{path} does not fit into memory: save its arrays as .npy files in a folder of this machine")
    with ExitStack() as stack:
        file: Any = stack.enter_context(opened_binary(path, "readahead"))
        if member is not None:
            file = stack.enter_context(zipfile.ZipFile(file).open(member))
        return read_array(file, allow_pickle=False)


def npy(path: Path) -> Lazy:
    """Return the array of an .npy file."""
    with reading(path):
        kind_of(path)  # raises if it is a pipe or a folder
        if not is_remote(path):
            return Lazy.of(mapped_npy(path), partial(mapped_npy, path))
        with opened_binary(path) as file:
            header = header_in(file, path.name, version_of(path)[0])
        return Lazy.of(header, cache(partial(_loaded, path, None)))
