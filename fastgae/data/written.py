"""Write what is computed, in the order of the source: beside the keys, or beside all columns of the source."""

import json
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fastgae._call import Array
from fastgae.data.arrays import arrays_of, column_of, whole
from fastgae.data.labels import LABEL, are_above, thresholds_of
from fastgae.data.plan import Plan
from fastgae.data.rows import MOST, SLICE, Rows, Show
from fastgae.data.sorting import ROW, new_array
from fastgae.data.state import ABOUT, ADVANTAGES, PLACES, Done, State

# The advantage above which a row is labelled positive, by the item of its group; without groups, by None.
Thresholds: TypeAlias = dict[Any, float]


def thresholds(plan: Plan, rows: Rows, state: State, show: Show) -> Thresholds:
    """Return the thresholds of all groups of advantages; none without labels."""
    if plan.how.label_quantile is None:
        return {}
    with show("labelling", None) as advance:  # in a number of passes that the groups decide

        def parts() -> Iterator[tuple[Array, pa.Array | None]]:
            for at, table in rows.forwards(plan.groups, SLICE):
                yield state.numbers(ADVANTAGES, at), _group(plan, table)
                advance(at.stop - at.start)

        return thresholds_of(parts, plan.how.label_quantile)


def _group(plan: Plan, table: pa.Table) -> pa.Array | None:
    return None if plan.how.label_per is None else whole(table[plan.how.label_per])


def write(
    plan: Plan,
    rows: Rows,
    done: Done,
    state: State,
    above: Thresholds,
    said: Mapping[str, Any],
    file: IO[bytes],
    show: Show,
) -> None:
    """Write all results to a file, with what they say about themselves in its metadata."""
    with show("writing", rows.count) as advance:
        tables = _results(plan, rows, done, state, above)
        first = next(tables)
        copied = plan.rows.stored if plan.into else pa.schema([])
        # No result is missing, which makes files smaller and faster to write.
        fields = [
            copied.field(each.name) if each.name in copied.names else each.with_nullable(False) for each in first.schema
        ]
        schema = pa.schema(fields, {**(copied.metadata or {}), ABOUT: json.dumps(said)})
        if state.out.suffix == ".parquet":
            # Results hardly repeat, and their ranges are alike in all row groups. Without dictionaries of integers, 10
            # million rows take 90 MB in place of 84, and 0.15 s in place of 0.22.
            keys = [name for name in schema.names if name in (*copied.names, *plan.columns.keys)]
            names = [name for name in keys if not pa.types.is_integer(schema.field(name).type)]
            writer: Any = pq.ParquetWriter(file, schema, use_dictionary=names, write_statistics=keys)
        else:
            writer = pa.ipc.new_file(file, schema, options=pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True))
        with writer:
            for table in chain([first], tables):
                writer.write_table(pa.Table.from_arrays(table.columns, schema=schema))
                advance(len(table))


def _results(plan: Plan, rows: Rows, done: Done, state: State, above: Thresholds) -> Iterator[pa.Table]:
    """Yield the results in the order of the source, beside the keys or beside all columns."""
    places = None if rows is plan.rows else _places(rows, state.folder / PLACES)
    names = plan.found.rows.schema.names if plan.into else plan.columns.keys
    read = list(dict.fromkeys([*names, *plan.groups]))
    for at, source in plan.rows.forwards(read, plan.size_of(names), plan.rows.stored if plan.into else None):
        own = at if places is None else np.memmap(places, np.int64, "r")[at]
        columns: dict[str, Any] = {name: source[name] for name in names}
        numbers = {
            name: found
            for result, name in plan.found.format.results.items()
            if (found := state.numbers(result, own)) is not None
        }
        advantages = plan.found.format.results[ADVANTAGES]
        labels = {LABEL: are_above(above, numbers[advantages], _group(plan, source))} if above else {}
        if plan.how.normalize:
            numbers[advantages] = done.sums.advantages.normalize(numbers[advantages], backend=plan.how.backend)
        yield pa.table(columns | {name: column_of(array) for name, array in {**numbers, **labels}.items()})


def _places(rows: Rows, to: Path) -> Path:
    """Write the places of the rows of the source among rows that are sorted, and return the file."""
    new_array(to, np.int64, rows.count)
    for at, table in rows.forwards([ROW], MOST):
        places = np.memmap(to, np.int64, "r+")  # anew: its touched pages take memory
        places[arrays_of(table[ROW])] = np.arange(at.start, at.stop)
    return to
