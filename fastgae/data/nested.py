"""Episodes that are rows of a table: each row holds lists with an item for each step, or an episode that RLlib packed.

The steps become the rows.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastgae._call import Array
from fastgae.data.arrays import Arrays, column_of, each_array, is_list, whole
from fastgae.data.errors import DataError, naming
from fastgae.data.extras import installed
from fastgae.data.pieces import Piece, check_alike

FLAGS = ("terminated", "truncated", "done")
AT_ONCE = 1024  # rows to read in order to count their steps
EPISODE, STEP, ITEM = "episode", "step", "item"


def unnested(pieces: list[Piece], roles: Mapping[str, str]) -> list[Piece]:
    """Return pieces whose rows are steps; ``roles``: the name of the column of each role."""
    schema = pieces[0].schema
    lists = {field.name for field in schema if is_list(field.type)}
    first = _tables(pieces[0], schema.names, 1)
    if schema.names == [ITEM] and pa.types.is_binary(schema.field(ITEM).type):
        rows: Lists | Packed = Packed.of(next(first), pieces[0].path)
    elif roles["rewards"] in lists and roles.get(STEP) not in {*schema.names} - lists:
        with naming(pieces[0].path):
            rows = Lists.of(next(first), roles)
    else:
        return pieces
    check_alike(pieces, schema.names)
    found: list[Piece] = []
    number = 0
    for piece in pieces:
        before = found[-1] if found and found[-1].path == piece.path else None
        found.append(_of_steps(piece, number, 0 if before is None else before.first + before.rows, rows))
        number += piece.rows
    return [piece for piece in found if piece.rows]


def _of_steps(piece: Piece, number: int, first: int, rows: "Lists | Packed") -> Piece:
    """Return the steps of a piece; ``number``: of its first row in the source; ``first``: of its first step."""

    def tables(columns: Sequence[str], at_once: int) -> Iterator[pa.Table]:
        at = number
        for table in _tables(piece, rows.stored(columns), at_once):
            try:
                yield rows.steps(table, at, columns)
            except (ValueError, TypeError, KeyError) as error:
                raise DataError(f"{piece.path}: in row {at - number} or one after it: {error}") from error
            at += len(table)

    def batches(columns: Sequence[str], most: int) -> Iterator[pa.RecordBatch]:
        for table in tables(columns, max(1, most * piece.rows // max(steps, 1))):
            yield from table.combine_chunks().to_batches(most)

    steps = sum(map(len, tables([rows.rewards], AT_ONCE)))
    return Piece(piece.path, first, steps, rows.schema, batches)


def _tables(piece: Piece, columns: Sequence[str], at_once: int) -> Iterator[pa.Table]:
    return (pa.Table.from_batches([batch]) for batch in piece.batches(columns, at_once))


class Lists(NamedTuple):
    """Rows with lists."""

    rewards: str
    lists: Sequence[str]  # the columns with an item for each step
    longer: Mapping[str, str]  # those with one more, for the state after the last step: the columns of next states
    flags: Sequence[str]  # the columns that say how the episode of a row ended
    made: Mapping[str, str]  # the columns of EPISODE and STEP, if the rows have none
    schema: pa.Schema = pa.schema([])  # of the steps

    @classmethod
    def of(cls, row: pa.Table, roles: Mapping[str, str]) -> "Lists":
        """Look at the first row."""
        lengths = {
            field.name: pc.list_value_length(row[field.name])[0].as_py() for field in row.schema if is_list(field.type)
        }
        if (steps := lengths[roles["rewards"]]) is None:
            raise DataError(f"{roles['rewards']} has no list in the first row")
        known = {name: role for role, name in roles.items()}
        lists = [name for name, length in lengths.items() if name in known or length in (steps, steps + 1)]
        longer = {f"next_{known.get(name, name)}": name for name in lists if lengths[name] == steps + 1}
        flags = [name for name in row.schema.names if known.get(name) in FLAGS and name not in lists]
        made = {name: role for name, role in known.items() if role in (EPISODE, STEP) and name not in row.schema.names}
        rows = cls(roles["rewards"], lists, longer, flags, made)
        names = dict.fromkeys([*made, *row.column_names, *longer])
        return rows._replace(schema=rows.steps(row, 0, list(names)).schema)

    def stored(self, columns: Sequence[str]) -> list[str]:
        """Return the columns of the rows from which columns of the steps are made."""
        found = (self.longer.get(column, column) for column in columns if column not in self.made)
        return list(dict.fromkeys([self.rewards, *found]))

    def steps(self, rows: pa.Table, number: int, columns: Sequence[str]) -> pa.Table:
        """Return columns of the steps of rows; ``number``: of the first row in the source."""
        lengths = whole(pc.list_value_length(rows[self.rewards])).fill_null(0).to_numpy().astype(np.int64)
        row = np.repeat(np.arange(len(rows)), lengths)
        ends = np.cumsum(lengths)
        step = np.arange(len(row)) - np.repeat(ends - lengths, lengths)

        def column(name: str) -> Any:
            if name in self.made:
                return pa.array(row + number if self.made[name] == EPISODE else step)
            if name in self.longer and name not in rows.column_names:
                return self._items(rows, self.longer[name], lengths + 1, ends - lengths + np.arange(len(rows)))
            if name in self.longer.values():
                return self._items(rows, name, lengths + 1, ends + np.arange(len(rows)))
            if name in self.lists:
                return self._items(rows, name, lengths, [])
            of_step = rows[name].take(pa.array(row))
            if name in self.flags:
                return pc.if_else(pa.array(step + 1 == lengths[row]), of_step, pa.scalar(0).cast(of_step.type))
            return of_step

        return pa.table({name: column(name) for name in columns})

    def _items(self, rows: pa.Table, name: str, expected: Array, without: Any) -> pa.Array:
        """Return the items of lists, whose lengths must be these, without some of the items."""
        lengths = whole(pc.list_value_length(rows[name])).fill_null(-1).to_numpy()
        if len(wrong := np.flatnonzero(lengths != expected)):
            at = wrong[0]
            has = "no list" if lengths[at] < 0 else f"{lengths[at]:,} items"
            raise DataError(f"{name} has {has}; expected {expected[at]:,}, as in {self.rewards} and the first row")
        items = whole(rows[name]).flatten()
        return items.take(pa.array(np.delete(np.arange(len(items)), without))) if len(without) else items


class Packed(NamedTuple):
    """Rows with an episode each that RLlib packed by msgpack, as it records them unless it is told otherwise."""

    decoded: Callable[[bytes], Any]
    schema: pa.Schema = pa.schema([])
    rewards: str = "rewards"

    @classmethod
    def of(cls, row: pa.Table, path: Path) -> "Packed":
        """Look at the first row."""
        with installed("msgpack", f"reading the episodes of RLlib in {path}"):
            import msgpack
        rows = cls(partial(msgpack.unpackb, object_hook=_array, strict_map_key=False))
        with naming(path):
            return rows._replace(schema=rows._steps(row[ITEM][0].as_py()).schema)

    def stored(self, columns: Sequence[str]) -> list[str]:
        return [ITEM]

    def steps(self, rows: pa.Table, number: int, columns: Sequence[str]) -> pa.Table:
        return pa.concat_tables(self._steps(item).select(columns) for item in rows[ITEM].to_pylist())

    def _steps(self, item: bytes) -> pa.Table:
        """Return the steps of an episode, in the columns that RLlib records otherwise."""
        try:
            said = self.decoded(item)
            rewards = _stacked(said["rewards"])
            steps, first = len(rewards), said["t_started"]
            last = np.arange(steps) == steps - 1
            states = _stacked(said["observations"])
            more = {name: _stacked(output) for name, output in said["extra_model_outputs"].items()}
            columns = {
                "t": np.arange(first, first + steps),
                "rewards": rewards,
                "terminateds": last & bool(said["is_terminated"]),
                "truncateds": last & bool(said["is_truncated"]),
                "obs": each_array(itemgetter(slice(0, steps)), states),
                "new_obs": each_array(itemgetter(slice(1, steps + 1)), states),
                **more,
            }
            names = pa.array([said["id_"]] * steps, pa.string())
            return pa.table({"eps_id": names, **{name: column_of(column) for name, column in columns.items()}})
        except (ValueError, TypeError, KeyError) as error:
            raise DataError(f"the column {ITEM!r} holds no episode of one agent from RLlib: {error!r}") from error


def _array(said: dict[Any, Any]) -> Any:
    """Return the array that msgpack_numpy packed; never objects, which it would unpickle."""
    if b"nd" not in said:
        return said
    array = np.frombuffer(said[b"data"], np.dtype(said[b"type"]))
    return array.reshape(said[b"shape"]) if said[b"nd"] else array[0]


def _stacked(said: Mapping[str, Any]) -> Arrays:
    """Return an array for all steps, without those of an earlier fragment of the episode."""
    return each_array(itemgetter(slice(said["lookback"], None)), _joined(said["data"]))


def _joined(items: Any) -> Arrays:
    if isinstance(items, Mapping):
        return {name: _joined(part) for name, part in items.items()}
    if isinstance(items, Sequence) and items and isinstance(items[0], Mapping):
        return {name: _joined([item[name] for item in items]) for name in items[0]}
    return np.asarray(items)
