"""Compute the rows of a plan from the last to the first, and write their results in the order of the source."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from itertools import zip_longest
from typing import Any

import numpy as np
import pyarrow as pa

from fastgae._call import Array
from fastgae.data.arrays import arrays_of, column_of
from fastgae.data.columns import steps_of, values_in
from fastgae.data.episodes import Episodes, Files
from fastgae.data.errors import DataError, naming
from fastgae.data.formats import NAMING
from fastgae.data.labels import LABEL, passes_over, threshold_of
from fastgae.data.picture import draw
from fastgae.data.pieces import Run, grouped, runs_backwards
from fastgae.data.plan import BYTES_PER_ROW, ROW, Plan
from fastgae.data.progress import Advance, progress_of
from fastgae.data.report import Sums, findings_in
from fastgae.data.scattered import COPY, JOINED, in_source_order, joined_plan, sorted_plan
from fastgae.data.shards import up_to_an_end
from fastgae.data.spool import LAST, Spool
from fastgae.data.steps import (
    Computed,
    Following,
    RecordedSteps,
    RowError,
    ScatteredError,
    at_row,
    compute_run,
    first_steps,
    last_rows,
)
from fastgae.data.values_file import OrderError

HEAD = 65_536  # rows in which to look for the end of the first episode, before all rows


class LongEpisodeError(Exception):
    """An episode goes on beyond the next run of rows."""


def computed_and_written(plan: Plan, spool: Spool, at_once: bool, progress: bool) -> dict[str, Any]:
    """Compute the plan and write the sidecar. Return the sums, what diagnose found and the threshold of labels.

    ``at_once``: write results as soon as they are computed, without the spool, if the rows allow it.
    """
    is_sorted = (spool.folder / COPY).exists()
    if (spool.folder / JOINED).exists():
        plan = joined_plan(plan, spool.folder, lambda _: None)
    if not is_sorted:
        try:
            if at_once:
                said: dict[str, Any] = {}
                with suppress(LongEpisodeError), progress_of("computing", plan.rows, progress) as advance:
                    _finish(streamed(plan, said, advance), plan, spool, said, progress)
                    return said
            return _done(plan, spool, progress)
        except OrderError:
            if plan.beside is None or not (plan.columns.named(*NAMING) and "step" in plan.columns.of_role):
                raise
            with progress_of("joining", plan.rows, progress) as advance:
                joined_plan(plan, spool.folder, advance)
            return computed_and_written(plan, spool, at_once, progress)
        except ScatteredError as error:
            if plan.shard is not None:
                raise DataError(
                    "the rows of an episode do not follow each other, as shards need: sort the source, or compute it "
                    "in one process"
                ) from error
            spool.clear()  # before the sorted copy exists, which says that later results belong to it
    with progress_of("sorting", plan.rows, progress and not is_sorted) as advance:
        plan = sorted_plan(plan, spool.folder, advance)
    return _done(plan, spool, progress)


def _done(plan: Plan, spool: Spool, progress: bool) -> dict[str, Any]:
    with progress_of("computing", sum(piece.rows for piece in plan.parts[0]), progress) as advance:
        sums, runs, findings = spooled(plan, spool, advance)
    said: dict[str, Any] = {"sums": asdict(sums), "findings": findings}
    if plan.shard is not None:
        spool.pack(said, progress)
        return said
    if plan.label_quantile is not None:
        said["threshold"] = _threshold(plan.label_quantile, plan, spool, runs, sums, progress)
    if plan.plot is not None:
        with progress_of("drawing", plan.rows, progress) as advance:
            draw(plan, spool, runs, sums, plan.plot, advance)
    with progress_of("writing", plan.rows, progress) as advance:
        tables = finished(plan, spool, runs, sums, said.get("threshold"), advance)
        if plan.source is not None:
            tables = in_source_order(tables, plan, spool.folder)
        _finish(tables, plan, spool, said, progress)
    return said


def _finish(tables: Iterator[pa.Table], plan: Plan, spool: Spool, said: dict[str, Any], progress: bool) -> None:
    if plan.into:
        tables = _with_source(tables, plan)
    spool.finish(tables, plan.source_columns if plan.into else plan.columns.keys, plan.into, said, progress)


def _threshold(quantile: float, plan: Plan, spool: Spool, runs: int, sums: Sums, progress: bool) -> float:
    """Return the advantage above which advantages are labelled positive."""
    name = plan.format.results["advantages"]
    dtype = arrays_of(spool.table(0)[name]).dtype
    with progress_of("labelling", sums.steps * passes_over(dtype), progress) as advance:

        def parts() -> Iterator[Array]:
            for number in range(runs):
                numbers = arrays_of(spool.table(number)[name])
                yield numbers
                advance(numbers.size)

        return threshold_of(parts, dtype, sums.steps, quantile)


def _with_source(tables: Iterator[pa.Table], plan: Plan) -> Iterator[pa.Table]:
    """Return the results as further columns of the rows of the source."""
    names, pieces = plan.source_columns, plan.source_pieces
    most = max(1, plan.most * BYTES_PER_ROW // max(1, next(pieces[0].batches(names, 1)).nbytes))
    waiting: list[pa.Table] = []
    for batch in (batch for piece in pieces for batch in piece.batches(names, min(plan.most, most))):
        while sum(map(len, waiting)) < batch.num_rows:
            waiting.append(next(tables))
        rows = pa.concat_tables(waiting)
        results = [name for name in rows.column_names if name not in plan.columns.keys]
        table = pa.Table.from_batches([batch])
        for name in results:
            table = table.append_column(name, rows[name].slice(0, batch.num_rows))
        waiting = [rows.slice(batch.num_rows)]
        yield table


def spooled(plan: Plan, spool: Spool, advance: Advance) -> tuple[Sums, int, list[str]]:
    """Compute all rows, except those that the spool already holds.

    Return the sums, the number of runs and what diagnose found in the first one.
    """
    sums, following, number = Sums(), None, -1
    findings: list[str] = []
    own, later = plan.parts
    episodes, files, end = Episodes(plan.columns.named(*NAMING)), _files(plan), plan.rows
    rest = up_to_an_end(later, plan.columns, plan.most)
    end += sum(piece.rows for piece in rest) - sum(piece.rows for piece in later)
    for run in runs_backwards(rest, plan.read, plan.most, spool.folder):
        end -= run.rows
        _, following = _computed(plan, run, *read_run(plan, run), end, following, files)
    for number, run in enumerate(runs_backwards(own, plan.read, plan.most, spool.folder)):
        end -= run.rows
        state = spool.state(number)
        if state is None:
            table, steps = read_run(plan, run)
            with plan.naming(table, run):
                episodes.add(table, steps.changes, following)  # before rows of other episodes are taken for ends
            computed, before = _computed(plan, run, table, steps, end, following, files)
            with plan.naming(table, run):
                found = findings_in(steps, plan.how) if number == 0 and not later else []
            state = {"sums": asdict(Sums.of(computed)), "following": before, "findings": found}
            kept = results(table, computed, plan).append_column(LAST, column_of(computed.last))
            spool.add(number, kept, state)
        else:
            episodes.add(spool.table(number), None, following)
        sums = Sums.from_dict(state["sums"]) + sums
        following = Following(tuple(state["following"][0]), *state["following"][1:])
        findings = findings or state["findings"]
        advance(run.rows)
    return sums, number + 1, findings


def streamed(plan: Plan, said: dict[str, Any], advance: Advance) -> Iterator[pa.Table]:
    """Compute all rows, and return their results from the first to the last; ``said`` is complete with the last ones.

    Each run needs a few numbers from the next one, which follow from its first episode. So this episode is computed
    twice.
    """
    runs = [Run(group) for group in grouped(plan.pieces, plan.most)][::-1]
    if any(run.rows > plan.most for run in runs):
        raise LongEpisodeError
    episodes, files, sums, first = Episodes(plan.columns.named(*NAMING)), _files(plan), Sums(), 0
    table, steps = read_run(plan, runs[0])
    for run, later in zip_longest(runs, runs[1:]):
        after = None if later is None else read_run(plan, later)
        with plan.naming(table, run):
            episodes.add(table, steps.changes, None if after is None else at_row(after[1], 0, {}))
        following = None if after is None else _following(plan, later, *after, first + run.rows, files)
        computed, _ = _computed(plan, run, table, steps, first, following, files)
        sums += Sums.of(computed)
        if later is None:
            said.update(sums=asdict(sums), findings=findings_in(steps, plan.how))
        yield results(table, computed, plan)
        del computed  # its memory is free before more rows are read
        advance(run.rows)
        first += run.rows
        if after is not None:
            table, steps = after


def _following(
    plan: Plan, run: Run, table: pa.Table, steps: RecordedSteps, first: int, files: Files | None
) -> Following:
    """Return the numbers that the rows before a run need, from the rows up to the first end of episodes in all envs."""
    for rows in (HEAD, run.rows):
        head = first_steps(steps, rows)
        ends = last_rows(head, None)
        if first + len(ends) < plan.rows:
            ends[-1] = head.terminated[-1] | head.truncated[-1]  # its episode may go on
        whole = ends.all(axis=tuple(range(1, ends.ndim)))
        if whole.any():
            break
    else:
        raise LongEpisodeError
    with plan.naming(table, run):
        _, following = compute_run(first_steps(head, int(np.argmax(whole)) + 1), None, plan.how)
    return following if files is None else following._replace(file=int(files.of(np.array([first]))[0]))


def read_run(plan: Plan, run: Run) -> tuple[pa.Table, RecordedSteps]:
    """Return the rows of a run, as table and arrays."""
    table = run.read(plan.read)
    with plan.naming(table, run), naming((plan.source or run).pieces[0].path):
        return table, valued_steps(table, run, plan)


def _computed(
    plan: Plan,
    run: Run,
    table: pa.Table,
    steps: RecordedSteps,
    first: int,
    following: Following | None,
    files: Files | None,
) -> tuple[Computed, Following]:
    """Return the results of the rows of a run, and the numbers that the rows before them need."""
    with plan.naming(table, run):
        computed, before = compute_run(steps, following, plan.how)
        if files is not None:
            rows = np.arange(first, first + run.rows) if plan.source is None else table[ROW].to_numpy()
            before = before._replace(file=files.check(rows, steps, following))
    return computed, before


def _files(plan: Plan) -> Files | None:
    """Return the files of the source, if there are several and nothing but names says which rows are one episode."""
    roles, pieces = plan.columns.of_role, plan.source.pieces if plan.source else plan.pieces
    several = sum(piece.first == 0 for piece in pieces) > 1
    advice = plan.format.advice.get("step", "name a column of step")
    return Files(pieces, advice) if several and "episode" in roles and not {"file", "step"} & roles.keys() else None


def valued_steps(table: pa.Table, run: Run, plan: Plan) -> RecordedSteps:
    """Return the rows as arrays, with the values of the states after episodes that do not end for good."""
    values = plan.values
    steps = steps_of(table, plan.columns, None if values is None else values.of(table))
    finals_exist = values is not None or any(piece.final for piece in run.pieces)
    if plan.how.ends == "terminated" or steps.next_values is not None or not finals_exist:
        return steps
    ends = last_rows(steps, None) & ~steps.terminated
    rows = np.flatnonzero(ends.any(axis=tuple(range(1, ends.ndim)))).tolist()
    columns = plan.columns.named("values") if values is None else values.columns
    found = run.finals(columns, set(rows)) if columns else None
    if found is None and rows and values is not None and values.next_columns:
        found = rows, values.behind(table, rows)
    if found is None:
        return steps
    rows, states = found
    try:
        final = values_in(states, plan.columns) if values is None else values.of(states)
    except RowError as error:
        raise RowError(rows[error.row], f"{error.fault} in the state after this step") from error
    final_values = np.full(steps.rewards.shape, np.nan, final.dtype)
    final_values[rows] = final
    return steps._replace(final_values=final_values)


def results(table: pa.Table, computed: Computed, plan: Plan) -> pa.Table:
    """Return a table with the keys of the rows and their results."""
    rows = table.select(plan.keys)
    for result, name in plan.format.results.items():
        if (numbers := getattr(computed, result)) is not None:
            rows = rows.append_column(name, column_of(numbers))
    return rows


def finished(
    plan: Plan, spool: Spool, runs: int, sums: Sums, threshold: float | None, advance: Advance
) -> Iterator[pa.Table]:
    """Return the results of all runs from the first row to the last, labelled and normalized if the plan says so."""
    name = plan.format.results["advantages"]
    for number in reversed(range(runs)):
        table = spool.table(number).drop_columns([LAST])
        if threshold is not None:
            table = table.append_column(LABEL, column_of(arrays_of(table[name]) > threshold))
        if plan.normalize is not None:
            normalized = sums.advantages.normalize(arrays_of(table[name]), backend=plan.how.backend)
            table = table.set_column(table.schema.get_field_index(name), name, column_of(normalized))
        yield table
        advance(len(table))
