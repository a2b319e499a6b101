"""Episodes that are rows of a table: each row holds lists with an item for each step. The steps become the rows."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastgae._call import Array
from fastgae.data.errors import DataError, naming, reading
from fastgae.data.rows import Batches, Part, Rows, axes_of, is_list

FLAGS = ("terminated", "truncated", "done")
OF_STEPS = (*FLAGS, "mask", "next_values")  # roles whose lists have no item of the state behind the last step
AT_ONCE = 1024  # rows to read in order to count their steps


def unnested(rows: Rows, roles: Mapping[str, str | None], following: Mapping[str, str]) -> Rows:
    """Return rows that are steps; ``roles``: role -> column; ``following``: column of states -> that of next states."""
    names = rows.schema.names
    lists = {field.name for field in rows.schema if is_list(field.type)}
    if not rows.count or roles.get("rewards") not in lists or roles.get("step") in {*names} - lists:
        return rows
    rows.check(names)
    path, _ = rows.place(0)
    with naming(path):
        example = Lists.of(rows.read(0, 1, names).to_batches()[0], roles, following)
    found, row = list[Part](), 0
    for part in rows.parts:
        before = found[-1].first + found[-1].rows if found and part.first else 0
        found.append(_of_steps(rows, row, row + part.rows, part.path, before, example))
        row += part.rows
    return Rows(found)


def _of_steps(rows: Rows, first: int, last: int, path: Path, before: int, lists: "Lists") -> Part:
    """Return the steps of the rows first … last - 1, which are one part; ``before``: steps before it in its file."""
    steps, row = 0, first
    for batch in rows.batches(first, last, [lists.rewards], AT_ONCE):
        (missing,) = np.nonzero(batch.column(0).is_null())
        if len(missing):  # such a row at the end of a file has no steps, so it would be left out without a word
            raise DataError(f"{path}: {lists.rewards} has no list in row {rows.place(row + missing[0])[1]}")
        steps, row = steps + int(_lengths(batch.column(0)).sum()), row + batch.num_rows

    def batches(columns: Sequence[str], most: int) -> Batches:
        number = first
        for batch in rows.batches(first, last, lists.stored(columns), max(1, most * (last - first) // steps)):
            with reading(path), naming(path):
                yield pa.record_batch(lists.steps(batch, number, columns))
            number += batch.num_rows

    return Part(path, before, steps, lists.schema, batches)


def _lengths(lists: pa.Array) -> Array:
    lengths: Array = pc.list_value_length(lists).to_numpy().astype(np.int64)
    return lengths


class Lists(NamedTuple):
    """The columns of a table with one row per episode, as its first row shows them."""

    rewards: str
    lists: Sequence[str]  # with an item for each step, or one item more
    of_states: Sequence[str]  # those with one item more
    longer: Mapping[str, str]  # the column of the next states, if the rows have none -> the list with one item more
    flags: Mapping[str, str]  # role -> column; those that are no lists are of the whole episode: of its last step
    made: Mapping[str, str]  # the columns of the roles "episode" and "step", if the rows have none
    schema: pa.Schema = pa.schema([])  # of the steps

    @classmethod
    def of(cls, row: pa.RecordBatch, roles: Mapping[str, Any], following: Mapping[str, str]) -> "Lists":
        """Look at the first row."""
        names, known = row.schema.names, {name: role for role, name in roles.items() if name is not None}
        lengths = {name: row.column(name)[0] for name in names if is_list(row.column(name).type)}
        lengths = {name: len(item) if item.is_valid else None for name, item in lengths.items()}
        if (steps := lengths[roles["rewards"]]) is None:
            raise DataError(f"{roles['rewards']} has no list in the first row")
        lists = [name for name, length in lengths.items() if name in known or length in (steps, steps + 1)]
        of_states = [name for name in lists if lengths[name] == steps + 1 and known.get(name) not in OF_STEPS]
        roles_last = sorted(of_states, key=lambda name: name in known)  # they take the place of lists of their names
        longer = {following.get(name, f"next_{known.get(name, name)}"): name for name in roles_last}
        longer = {column: name for column, name in longer.items() if column not in names}
        flags = {role: roles[role] for role in FLAGS if roles.get(role) in names}
        made = {name: role for name, role in known.items() if role in ("episode", "step") and name not in names}
        episodes = cls(roles["rewards"], lists, of_states, longer, flags, made)
        columns = episodes.steps(row, 0, list(dict.fromkeys([*made, *names, *longer])))
        return episodes._replace(schema=pa.schema([(name, column.type) for name, column in columns.items()]))

    def stored(self, columns: Sequence[str]) -> list[str]:
        """Return the columns of the rows from which columns of the steps are made."""
        found = (self.longer.get(column, column) for column in columns if column not in self.made)
        flags = self.flags.values() if self.longer.keys() & {*columns} else ()
        return list(dict.fromkeys([self.rewards, *found, *flags]))

    def steps(self, rows: pa.RecordBatch, number: int, columns: Sequence[str]) -> dict[str, pa.Array]:
        """Return columns of the steps of rows; ``number``: of the first row in the source."""
        lengths = _lengths(rows.column(self.rewards))
        row, ends = np.repeat(np.arange(len(lengths)), lengths), np.cumsum(lengths)
        step = np.arange(len(row)) - np.repeat(ends - lengths, lengths)
        last = ends + np.arange(len(lengths))  # of the items in lists with one item more
        items = partial(self._items, rows)

        def column(name: str) -> Any:
            if name in self.made:
                return pa.array(row + number if self.made[name] == "episode" else step)
            if name not in rows.schema.names:
                following = items(self.longer[name], lengths + 1, last - lengths)
                if not (unknown := self._limits(rows) & (step + 1 < lengths[row])).any():
                    return following
                following = following.take(pa.array(np.arange(len(row)), mask=unknown))
                is_read = name == "next_values" and pa.types.is_floating(following.type)  # and NaN only if it is used
                return following.fill_null(np.nan) if is_read else following
            if name in self.of_states:
                return items(name, lengths + 1, last)
            if name in self.lists:
                return items(name, lengths, [])
            of_step = rows.column(name).take(pa.array(row))
            if name not in self.flags.values():
                return of_step
            try:
                return pc.if_else(pa.array(step + 1 == lengths[row]), of_step, pa.scalar(0).cast(of_step.type))
            except pa.ArrowNotImplementedError:  # of a type that holds no flags, which is an error later
                return of_step

        return {name: column(name) for name in columns}

    def _limits(self, rows: pa.RecordBatch) -> Array:
        """Return True where the flags of steps say that a limit ended an episode: the next item is of another one."""
        lengths = _lengths(rows.column(self.rewards))

        def are_set(role: str) -> Array:
            if (name := self.flags.get(role, "")) not in self.lists:
                return np.zeros(lengths.sum(), bool)
            flags = self._items(rows, name, lengths, [])
            flags = flags if axes_of(flags.type) == 0 else pa.nulls(len(flags))  # of a type that is an error later
            return np.asarray(flags.cast(pa.bool_()).fill_null(False))

        limits = are_set("truncated")
        return limits | (are_set("done") & ~are_set("terminated")) if "terminated" in self.flags else limits

    def _items(self, rows: pa.RecordBatch, name: str, expected: Array, without: Any) -> pa.Array:
        """Return the items of lists, whose lengths must be these, without some of the items."""
        lengths = pc.list_value_length(rows.column(name)).fill_null(-1).to_numpy()
        if len(wrong := np.flatnonzero(lengths != expected)):
            at = wrong[0]
            has = "no list" if lengths[at] < 0 else f"{lengths[at]:,} items"
            raise DataError(f"{name} has {has}; expected {expected[at]:,}, as in {self.rewards} and the first row")
        items = rows.column(name).flatten()
        return items.take(pa.array(np.delete(np.arange(len(items)), without))) if len(without) else items
