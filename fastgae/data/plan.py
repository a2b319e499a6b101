"""What to read, also from a file of values, how to compute it, and where a row of it comes from."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import pyarrow as pa

from fastgae._call import Array
from fastgae._canonical.arguments import integer_of
from fastgae._engine import dispatch
from fastgae._support.memory import amount_of
from fastgae.data.columns import FINAL, SCATTERED, Columns, chosen_columns, in_envs, numbers_in, steps_of
from fastgae.data.critic import Critic, Valuation, valuation
from fastgae.data.errors import DataError, argument, is_remote, naming, reading
from fastgae.data.estimators import How, check_advantages
from fastgae.data.files import NPY, by_suffix, files_of, kind_of, path_of
from fastgae.data.formats import FILE, Found, found_in, parts_in
from fastgae.data.rows import MOST, SLICE, Advance, Batches, Rows, column_of, even
from fastgae.data.sorting import ROW, Database, joined, new_array
from fastgae.data.steps import RecordedSteps, RowError, check_finite
from fastgae.data.stored import Lazy, npy, type_of

BYTES_PER_ROW = 240  # of memory beside what every run needs; measured: 10 million rows of 7 columns, Parquet
NAME = "values"  # of the column in a table of values


def values_file(values: str | os.PathLike[str], columns: Sequence[str]) -> Path | None:
    """Return the path of a file of values; None if this is the name of a column."""
    if values in (NAME, *columns):  # the default names no file
        return None
    path = path_of("values", values)
    with reading(path):
        if path.exists():
            return path
    if isinstance(values, os.PathLike) or is_remote(path) or by_suffix(path) or len(path.parts) > 1:
        raise DataError(f"{argument('values')} {str(path)!r} does not exist, and no column has this name")
    return None


class Values:
    """The values in a file, in the order of the rows of a source.

    There is one for each row of the source, or, if the source has the state behind each episode, one for each state:
    T + 1 per episode. A table with the columns that name the rows may have its rows in any order.
    """

    def __init__(self, path: Path, rows: Rows) -> None:
        self.path, self.files, self._rows = path, files_of(path), rows
        self._table = Rows([])
        if kind_of(path) == NPY:
            self._numbers: Any = npy(path)
            with reading(path):
                if not self._numbers.shape:
                    raise DataError(f"{path} holds one number; expected one for each row of the source")
                type_of(self._numbers)  # which raises if they are no numbers
                count = self._numbers.shape[0]
        else:
            self._table = Rows(parts_in(path))
            count, names = self._table.count, self._table.schema.names
            if not count:
                raise DataError(f"there are no rows in {path}")
            if NAME not in names:
                raise DataError(f"{path} has no column {NAME!r}; there are {', '.join(names)}")
            with naming(path):
                self._table.check([NAME])
                # Until ``put_into``, an array of no rows.
                self._numbers = numbers_in(NAME, self._table.read(0, 1, [NAME])[NAME].slice(0, 0))
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
        names = self._table.schema.names
        others = ", ".join(name for name in names if name != NAME)
        keys = columns.keys if others else []  # values alone are in the order of the source
        alone = f"leave only {NAME!r}, in the order of the source"
        if others and not keys:
            raise DataError(f"{self.path} has {others} beside {NAME!r}, and the source has no names of rows: {alone}")
        if missing := [key for key in keys if key not in names]:
            raise DataError(
                f"{self.path} has no column {' and no '.join(missing)}, by which its rows would be found; there are "
                f"{others}: rename them, or {alone}"
            )
        with naming(self.path):
            self._table.check(keys)
        dtype, shape = self._numbers.dtype, (self._table.count, *self._numbers.shape[1:])
        file.unlink(missing_ok=True)
        if not self._copied(file, keys, advance):
            if len(self.ends):
                raise DataError(
                    f"{self.path} has other rows than the source, in {' or '.join(keys)}, or has them in another "
                    "order, in which values of the states behind episodes cannot be found: sort it"
                )
            numbers = new_array(file, dtype, shape)
            joined(self._rows, self._table, self.path, columns, NAME, numbers, database, advance)
        mapped = partial(np.memmap, file, dtype, "r", shape=shape)
        self._numbers = Lazy.of(mapped(), mapped)

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


class Plan(NamedTuple):
    """What to read and how to compute it."""

    found: Found
    columns: Columns
    how: How
    memory: int  # bytes
    most: int  # rows in memory at once
    critic: Valuation | None = None
    beside: Values | None = None  # the file of values
    plot: Path | None = None
    into: bool = False  # write the results beside all columns of the source

    @property
    def read(self) -> list[str]:
        """The columns to read, each once, though one may have two roles."""
        return list(dict.fromkeys([*self.columns.read, *(self.critic.read if self.critic else []), *self.groups]))

    @property
    def groups(self) -> list[str]:
        """The column that says to which group of labels a row belongs, if there is one."""
        return [] if self.how.label_per is None else [self.how.label_per]

    @property
    def is_by_name(self) -> bool:
        """Whether only names say which rows of several files are one episode."""
        roles = self.columns.of_role.keys()
        return len(self.rows.files) > 1 and "episode" in roles and not {"file", "step"} & roles

    @property
    def ends(self) -> Array:
        """The rows at which an episode without a name ends, because a file has the value of the state behind them."""
        return self.rows.ends[: 0 if self.columns.keys else None]

    @property
    def options(self) -> dict[str, Any]:
        """Everything except the files that affects the results."""
        return {
            "columns": dict(self.columns.of_role),
            "rewards": self.columns.success,
            "into": self.into,
            **self.how.asked,
            "values": self.critic and self.critic.asked,
            "format": self.found.format.name,
            "folders": self.rows.constants,
        }

    @property
    def rows(self) -> Rows:
        """The rows of the source."""
        return self.found.rows

    def numbers(self, table: pa.Table, first: int, at: Any) -> Any:
        """Return the numbers in the source of one or several rows of a table that begins with the first one."""
        return table[ROW].to_numpy()[at] if ROW in table.column_names else first + at

    def named(self, error: RowError, table: pa.Table, first: int) -> DataError:
        """Return an error of a row with its place."""
        path, own = self.rows.place(int(self.numbers(table, first, error.row)))
        return DataError(f"{path}: {self.columns.place(table, error.row, own)}: {error.fault}")

    @contextmanager
    def naming(self, table: pa.Table, first: int) -> Iterator[None]:
        """Name the file in errors of some rows, and the episode and the step in errors of one of them."""
        try:
            with naming(self.rows.place(int(self.numbers(table, first, 0)))[0]):
                yield
        except RowError as error:
            raise self.named(error, table, first) from error

    def steps(self, table: pa.Table, first: int) -> RecordedSteps:
        """Return rows as arrays."""
        values = None if self.critic is None else self.critic.of(table)
        if self.beside is not None:
            values = self.beside.of(self.numbers(table, first, np.arange(len(table))))
        steps = steps_of(table, self.columns, values)
        if ROW in table.column_names and steps.step is None:
            steps = steps._replace(unflagged=SCATTERED)
        return steps

    def with_states(self, steps: RecordedSteps, table: pa.Table, first: int, last: Array) -> RecordedSteps:
        """Return the rows with the values of the states behind the last rows of episodes that do not end for good."""
        if self.how.ends == "terminated" or steps.next_values is not None:
            return steps
        critic = self.critic
        columns = self.columns.named("values") if critic is None else critic.columns
        next_columns = {} if critic is None else critic.next_columns
        kept = self.rows.behind(columns) if self.beside is None else self.beside.ends  # behind which there is the state
        ends = last & ~steps.terminated
        if steps.final_values is not None:
            check_finite(FINAL, steps.final_values, ends & steps.truncated)
            ends &= ~steps.truncated
        every = np.flatnonzero(ends.any(axis=tuple(range(1, ends.ndim))))
        at = every if next_columns else every[np.isin(self.numbers(table, first, every), kept)]
        if not len(at):
            return steps
        numbers = self.numbers(table, first, at)
        try:
            if self.beside is not None:
                final = self.beside.of(numbers, behind=True)
            elif critic is None:
                final = numbers_in("values", self.rows.states(numbers, columns)[columns[0]])
            elif next_columns:
                final = critic.of(table.select([*next_columns.values()]).take(at).rename_columns([*next_columns]))
            else:
                final = critic.of(self.rows.states(numbers, columns))
            check_finite("values", final, ends[at])
        except RowError as error:
            raise RowError(int(at[error.row]), f"{error.fault} in the state after this step") from error
        # Integers cannot be NaN; where one is missing, nothing is computed, and the dtype has no effect.
        shape, is_known = steps.rewards.shape, len(at) == len(every)
        final_values = np.zeros(shape, final.dtype) if is_known else np.full(shape, np.nan)
        final_values[at] = final
        if steps.final_values is not None:
            final_values = np.where(ends, final_values, steps.final_values)
        return steps._replace(final_values=final_values)

    def size_of(self, names: Sequence[str]) -> int:
        """Return how many rows of these columns, with their results, to write at once."""
        sample = min(100, self.rows.count) if self.into else 0  # the first row alone may have an empty text
        row = sum(int(each.nbytes) for each in self.rows.batches(0, sample, names, 1)) // max(1, sample)
        return max(1, min(MOST, self.most, self.memory // (2 * row + BYTES_PER_ROW)))


def planned(
    source: Any,
    format: str,  # noqa: A002 (the word of the field)
    columns: Mapping[str, str | None] | None,
    episode_is: str | None,
    values: str | os.PathLike[str] | Critic | Callable[[dict[str, Any]], Any],
    rewards: str | None,
    how: How,
    memory: str | int,
) -> Plan:
    """Return what the source holds, and how to read and compute it."""
    if not isinstance(columns, Mapping | None):
        raise TypeError(f'columns must be a dict, such as {{"rewards": "reward"}}, got {columns!r:.50}')
    if episode_is not in (None, "file"):
        raise ValueError(f'episode_is must be "file" or None, got {episode_is!r}')
    if episode_is is not None and "file" in (columns or {}):
        raise ValueError(f"{argument('episode_is', 'file')} names files itself: leave the column of file out")
    dispatch.resolve_backend(how.backend)  # or an error would come after hours of sorting
    dispatch.resolve_threads(how.num_threads)
    limit = amount_of(memory) if isinstance(memory, str) else integer_of(memory) or 0
    if limit < 1:
        raise ValueError(f"{argument('memory')} must be an amount of memory such as 256MB, got {memory!r}")
    named = {} if not isinstance(values, str | os.PathLike) or values == NAME else {"values": os.fspath(values)}
    found = found_in(source, format, {**(columns or {}), **named}, rewards, episode_is is not None)
    columns = columns if episode_is is None else {**(columns or {}), "file": FILE}
    rows, critic, beside, column = found.rows, None, None, None  # the column of values, if they are in the source
    if not isinstance(values, str | os.PathLike):
        critic = values if isinstance(values, Critic) else Critic(values)
    elif (file := values_file(values, rows.schema.names)) is None:
        column = os.fspath(values)
    else:
        beside = Values(file, rows)
    if ROW in rows.schema.names:
        raise DataError(f"the source has a column {ROW!r}, a name that fastgae needs: rename it")
    with naming(rows.place(0)[0]):
        chosen = chosen_columns(columns, found.format, rows.schema, column, how, rewards)
        in_files = pa.schema(field for field in rows.schema if field.name not in rows.made)
        # As ``gae`` takes them: the values of truncated steps beside one more row of values.
        is_given = critic is None and beside is None and chosen.of_role.get("values", NAME) == NAME
        if is_given and len(rows.ends) and "next_values" not in chosen.of_role and FINAL in rows.schema.names:
            chosen = chosen._replace(of_role={**chosen.of_role, FINAL: FINAL})
        valued = None if critic is None else valuation(critic, in_files, found.format, chosen.of_role.values())
        rows.check([*chosen.read, *(valued.read if valued else [])])
    check_advantages(how, valued is not None or beside is not None or "values" in chosen.of_role)
    kind = rows.schema.field(chosen.of_role["rewards"]).type
    width = BYTES_PER_ROW * (kind.shape[0] if in_envs(kind) else 1)
    if valued is not None:  # what it reads is there as a table, and as arrays
        width += 2 * next(rows.batches(0, 1, valued.read, 1)).nbytes
    return Plan(found, chosen, how, limit, max(1, limit // width), valued, beside)
