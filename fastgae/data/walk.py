"""Compute the rows of a plan, from the last to the first."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from fastgae._call import Array
from fastgae.data.columns import Episodes
from fastgae.data.errors import DataError, argument
from fastgae.data.formats import NAMING
from fastgae.data.plan import Plan
from fastgae.data.report import Sums, findings_in
from fastgae.data.rows import Advance, Rows, Show
from fastgae.data.sorting import ROW, Database, sort
from fastgae.data.state import ADVANTAGES, ENDS, RETURNS, SORTED, VALUES, Done, State
from fastgae.data.steps import Following, RecordedSteps, RowError, check_ends, compute_run, last_rows, unknown_end
from fastgae.data.tables import parquet


def computed(plan: Plan, state: State, show: Show) -> tuple[Rows, Done]:
    """Compute all rows. Return them in the order in which they are computed, and what is known of them."""
    database = Database(state.folder, plan.memory, plan.how.num_threads)
    if plan.beside is not None:
        with show("reading values", plan.rows.count) as advance:
            plan.beside.put_into(state.folder / VALUES, plan.columns, database, advance)
    if (copy := state.sorted_copy()) is None:
        with show("computing", plan.rows.count) as advance:
            done = walk(plan, plan.rows, state, advance)
        if isinstance(done, Done):
            return plan.rows, done
        plan.columns.check_sortable(str(done))
        with show("sorting", plan.rows.count) as advance:
            copy = state.sort(lambda to: sort(plan.rows, plan.read, plan.columns, to, database, advance))
    rows = sorted_rows(plan, copy)
    with show("computing", rows.count) as advance:
        done = walk(plan, rows, state, advance)
    if isinstance(done, DataError):
        raise done
    return rows, done


def sorted_rows(plan: Plan, copy: Path) -> Rows:
    """Return the rows of a sorted copy, in the types of the source."""
    kinds = [plan.rows.schema.field(name) for name in plan.read]
    return Rows(parquet(copy), schema=pa.schema([*kinds, (ROW, pa.int64())]))


def walk(plan: Plan, rows: Rows, state: State, advance: Advance) -> Done | DataError:
    """Compute all rows that are not done yet, from the last to the first.

    Return an error if the rows of an episode do not follow each other: then they can be sorted.
    """
    done, names = state.done(), plan.columns.named(*NAMING) if rows is plan.rows else []
    episodes = Episodes(names)
    for _, table in rows.backwards(done.first, rows.count, names, plan.most, state.folder) if names else ():
        episodes.again(table)
    advance(rows.count - done.first)
    for first, table in rows.backwards(0, done.first, plan.read_of(rows), plan.most, state.folder):
        with plan.naming(table, first):
            steps = plan.steps(table, first)
            last = last_rows(steps, done.following)
            fault = episodes.fault(table, steps, last, done.following)
            if fault is None and (fault := unknown_end(steps, last, plan.how)) is not None:
                # Rows of the episode may be among those before, which are then not in order.
                earlier = rows.backwards(0, first, names, plan.most, state.folder) if names else ()
                if not any(episodes.again(each) for _, each in earlier):
                    raise fault
            if fault is not None:
                return plan.named(fault, table, first)
            if plan.is_by_name:
                _check_files(plan, table, first, last, done.following)
            results, following = compute_run(steps, last, done.following, plan.how)
            findings = findings_in(steps, plan.how) if done.following is None else done.findings
        following = following._replace(row=int(plan.numbers(table, first, 0)))
        done = Done(first, Sums.of(results) + done.sums, following, findings)
        arrays = {ADVANTAGES: results.advantages, RETURNS: results.returns, ENDS: results.last if plan.plot else None}
        state.add(done, {name: array for name, array in arrays.items() if array is not None})
        advance(len(table))
    return done


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


def last_steps(plan: Plan, folder: Path) -> RecordedSteps:
    """Return the last rows that fit into memory, in the order of their episodes."""
    database, rows = Database(folder, plan.memory, None), plan.rows
    if plan.beside is not None:
        plan.beside.put_into(folder / VALUES, plan.columns, database, lambda _: None)
    while True:
        first, table = next(rows.backwards(0, rows.count, plan.read_of(rows), plan.most, folder))
        with plan.naming(table, first):
            steps = plan.steps(table, first)
            last = last_rows(steps, None)
            if (fault := Episodes(plan.columns.named(*NAMING)).fault(table, steps, last, None)) is None:
                check_ends(steps, last, plan.how)
                return steps
            if rows is not plan.rows:
                raise fault
            plan.columns.check_sortable(fault.fault)
        sort(plan.rows, plan.read, plan.columns, folder / SORTED, database, lambda _: None)
        rows = sorted_rows(plan, folder / SORTED)
