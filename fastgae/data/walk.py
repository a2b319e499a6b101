"""Compute the rows of a plan from the last to the first, and write the results from the first to the last."""

import json
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fastgae._call import Array
from fastgae.data.columns import Episodes
from fastgae.data.errors import DataError, argument, column_argument
from fastgae.data.formats import NAMING
from fastgae.data.labels import LABEL, Part, are_above, items_in, thresholds_of
from fastgae.data.plan import Plan
from fastgae.data.report import Sums, diagnosis_of
from fastgae.data.rows import ABOUT, MOST, SLICE, Advance, Rows, Show, arrays_of, column_of
from fastgae.data.sorting import ROW, Database, new_array, sort
from fastgae.data.state import ADVANTAGES, ENDS, PLACES, RETURNS, VALUES, Done, State
from fastgae.data.steps import Following, RecordedSteps, RowError, compute_run, last_rows, unknown_end
from fastgae.data.tables import parquet


def computed(plan: Plan, state: State, show: Show, begin: int = 0) -> tuple[Rows, Done]:
    """Compute all rows, or those from a row on. Return them in the order in which they are computed."""
    database = Database(state.folder, plan.memory, plan.how.num_threads)
    if plan.beside is not None:
        with show("reading values", plan.rows.count) as advance:
            plan.beside.put_into(state.folder / VALUES, plan.columns, database, advance)
    if (copy := state.sorted_copy()) is None:
        with show("computing", plan.rows.count) as advance:
            done = walk(plan, plan.rows, state, advance, begin)
        if isinstance(done, Done):
            return plan.rows, done
        plan.columns.check_sortable(str(done))
        with show("sorting", plan.rows.count) as advance:
            copy = state.sort(lambda to: sort(plan.rows, plan.read, plan.columns, to, database, advance))
    kinds = [plan.rows.schema.field(name) for name in plan.read]
    rows = Rows(parquet(copy), schema=pa.schema([*kinds, (ROW, pa.int64())]))
    with show("computing", rows.count) as advance:
        done = walk(plan, rows, state, advance, begin)
    if isinstance(done, DataError):
        raise done
    return rows, done


def walk(plan: Plan, rows: Rows, state: State, advance: Advance, begin: int) -> Done | DataError:
    """Compute all rows that are not done yet, from the last to the first one to compute.

    Return an error if the rows of an episode do not follow each other: then they can be sorted.
    """
    done, names, read = state.done(), plan.columns.named(*NAMING), plan.read
    if is_sorted := rows is not plan.rows:
        names, read = [], [*read, ROW]
    episodes = Episodes(names)
    for _, table in rows.backwards(done.first, rows.count, names, plan.most, state.folder) if names else ():
        episodes.again(table)
    advance(rows.count - done.first)
    for first, table in rows.backwards(begin, done.first, read, plan.most, state.folder):
        with plan.naming(table, first):
            steps = plan.steps(table, first)
            last = last_rows(steps, done.following)
            ends = plan.ends - first
            last[ends[(ends >= 0) & (ends < len(table))]] = True
            fault = episodes.fault(table, steps, last, done.following)
            if fault is None:
                try:
                    steps = plan.with_states(steps, table, first, last)
                    if (fault := unknown_end(steps, last, plan.how)) is None:
                        results, following = compute_run(steps, last, done.following, plan.how)
                except RowError as error:
                    fault = error
                # The next row of an episode without a flag may be among those before, which are then not in order.
                unflagged = last & ~(steps.terminated | steps.truncated)
                if fault and (
                    is_sorted
                    or not unflagged[fault.row].any()
                    or not _are_scattered(plan, rows, state.folder, episodes, first, steps)
                ):
                    raise fault
            if fault is not None:
                return plan.named(fault, table, first)
            if plan.is_by_name:
                _check_files(plan, table, first, last, done.following)
            if {"file", "episode", "step"} <= plan.columns.of_role.keys():
                _check_cuts(steps, done.following)
            if done.following is None and steps.values is not None:
                diagnosis = diagnosis_of(steps, last, plan.how, partial(plan.numbers, table, first))
                done = done._replace(diagnosis=diagnosis, findings=[finding.what for finding in diagnosis])
        following = following._replace(row=int(plan.numbers(table, first, 0)))
        done = done._replace(first=first, sums=Sums.of(results, last) + done.sums, following=following)
        arrays = {ADVANTAGES: results.advantages, RETURNS: results.returns, ENDS: last}
        state.add(done, {name: array for name, array in arrays.items() if array is not None})
        advance(len(table))
    return done


def _are_scattered(plan: Plan, rows: Rows, folder: Path, episodes: Episodes, first: int, steps: RecordedSteps) -> bool:
    """Return whether rows before these steps, of which the first is ``first``, are not in the order of episodes."""
    for at, table in rows.backwards(0, first, plan.read, plan.most, folder):
        following = Following(steps.name(0), None if steps.step is None else int(steps.step[0]), {})
        with plan.naming(table, at):
            steps = plan.steps(table, at)
        if episodes.fault(table, steps, last_rows(steps, following), following) is not None:
            return True
        if steps.changes.any():  # from here on the episode can only come again, and names say that
            for before, each in rows.backwards(0, at, plan.columns.keys, plan.most, folder):
                with plan.naming(each, before):
                    if episodes.again(each) is not None:
                        return True
            return False
    return False


def _check_files(plan: Plan, table: pa.Table, first: int, last: Array, following: Following | None) -> None:
    """Raise if an episode goes on in another file, where its rows have no steps.

    Then nothing says whether it is the same episode, or whether every file counts its episodes from 0.
    """
    rows = plan.numbers(table, first, np.arange(len(table)))
    file = plan.rows.file_of(np.append(rows, rows[-1] if following is None else following.row))
    if len(wrong := np.flatnonzero((file[1:] != file[:-1]) & ~last)):
        path, _ = plan.rows.place(int(plan.rows.files[file[wrong[0] + 1]]))
        raise RowError(
            int(wrong[0]),
            f"{path} goes on with the same episode, or with another one of the same name: name a column of step; or, "
            f"if every file counts its episodes from 0, pass {argument('episode_is', 'file')}",
        )


def _check_cuts(steps: RecordedSteps, following: Following | None) -> None:
    """Raise if the next file goes on with an episode, whose name is another one there only because of the file."""
    assert steps.step is not None
    rises = steps.changes & (steps.step[1:] == steps.step[:-1] + 1)
    each = ((row, steps.name(row + 1), int(steps.step[row + 1])) for row in np.flatnonzero(rises).tolist())
    end = [] if following is None else [(len(steps.step) - 1, following.name, following.step)]
    for row, (file, *after), step in chain(each, end):
        before, *name = steps.name(row)
        is_cut = file != before and after == name and step == int(steps.step[row]) + 1
        if is_cut and not (steps.terminated[row] or steps.truncated[row]):
            raise RowError(
                row,
                f"{file} goes on with step {step} of the same episode, so let no file be a part of its name; or, if "
                "several datasets have episodes of the same names, name their folders like run=0, and pass "
                f"{column_argument('env', 'run')}",
            )


def thresholds(plan: Plan, rows: Rows, state: State, show: Show) -> dict[Any, float]:
    """Return the advantage above which a row is labelled, by the item of its group; nothing without labels."""
    if plan.how.label_quantile is None:
        return {}
    with show("labelling", None) as advance:  # in a number of passes that the groups decide

        def parts() -> Iterator[Part]:
            for at, table in rows.forwards(plan.groups, SLICE):
                yield state.numbers(ADVANTAGES, at), items_in(table, plan.how.label_per)
                advance(at.stop - at.start)

        return thresholds_of(parts, plan.how.label_quantile)


def write(
    plan: Plan, tables: Iterator[pa.Table], said: Mapping[str, Any], out: Path, file: IO[bytes], show: Show
) -> None:
    """Write tables of results to a file, with what they say about themselves in its metadata."""
    with show("writing", plan.rows.count) as advance:
        first = next(tables)
        copied = plan.rows.stored if plan.into else pa.schema([])
        # No result is missing, which makes files smaller and faster to write.
        fields = [
            copied.field(each.name) if each.name in copied.names else each.with_nullable(False) for each in first.schema
        ]
        schema = pa.schema(fields, {**(copied.metadata or {}), ABOUT: json.dumps(said)})
        known: dict[int, pa.Array] = {}
        if out.suffix == ".parquet":
            # Results hardly repeat, and their ranges are alike in all row groups. Without dictionaries of integers, 10
            # million rows take 90 MB in place of 84, and 0.15 s in place of 0.22.
            keys = [name for name in schema.names if name in (*copied.names, *plan.columns.keys)]
            names = [name for name in keys if not pa.types.is_integer(schema.field(name).type)]
            writer: Any = pq.ParquetWriter(file, schema, use_dictionary=names, write_statistics=keys)
        else:
            # A dictionary may only grow there, so an array without rows has the one of all items so far.
            known = {at: pa.array([], each.type) for at, each in enumerate(schema) if pa.types.is_dictionary(each.type)}
            writer = pa.ipc.new_file(file, schema, options=pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True))
        with writer:
            for table in chain([first], tables):
                columns = table.columns
                for at, before in known.items():
                    columns[at] = pa.chunked_array([before, *columns[at].chunks]).unify_dictionaries()
                    known[at] = columns[at].chunk(0)
                writer.write_table(pa.Table.from_arrays(columns, schema=schema))
                advance(len(table))


def results(plan: Plan, rows: Rows, done: Done, state: State, above: dict[Any, float]) -> Iterator[pa.Table]:
    """Yield the results in the order of the source, beside the keys or beside all columns."""
    places = None if rows is plan.rows else _places(rows, state.folder / PLACES)
    names = plan.rows.schema.names if plan.into else plan.columns.keys
    read = list(dict.fromkeys([*names, *plan.groups]))
    sources = Rows(plan.rows.parts, plan.rows.made, plan.rows.stored) if plan.into else plan.rows
    for at, source in sources.forwards(read, plan.size_of(names)):
        own = at if places is None else np.memmap(places, np.int64, "r")[at]
        columns: dict[str, Any] = {name: source[name] for name in names}
        found = {name: state.numbers(result, own) for result, name in plan.found.format.results.items()}
        numbers = {name: array for name, array in found.items() if array is not None}
        advantages = plan.found.format.results[ADVANTAGES]
        labels = {LABEL: are_above(above, numbers[advantages], items_in(source, plan.how.label_per))} if above else {}
        if plan.how.normalize:
            numbers[advantages] = done.sums.advantages.normalize(
                numbers[advantages], backend=plan.how.backend, num_threads=plan.how.num_threads
            )
        yield pa.table(columns | {name: column_of(array) for name, array in {**numbers, **labels}.items()})


def _places(rows: Rows, to: Path) -> Path:
    """Write the places of the rows of the source among rows that are sorted, and return the file."""
    new_array(to, np.int64, (rows.count,))
    for at, table in rows.forwards([ROW], MOST):
        places = np.memmap(to, np.int64, "r+")  # anew: its touched pages take memory
        places[arrays_of(table[ROW])] = np.arange(at.start, at.stop)
    return to
