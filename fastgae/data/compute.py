"""``fastgae.data.compute``: from recorded data to a sidecar of advantages and value targets."""

import glob
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from fastgae._canonical import as_unit_interval
from fastgae._memory import limit_from
from fastgae.data.columns import Columns, chosen_columns, steps_of
from fastgae.data.errors import DataError
from fastgae.data.formats import FORMATS, READERS, Format, found_format, schema
from fastgae.data.pieces import Piece, Run, runs_backwards
from fastgae.data.progress import Advance, progress_of
from fastgae.data.report import Report, Sums, findings_in, report_of
from fastgae.data.spool import Spool
from fastgae.data.steps import Computed, Following, How, RowError
from fastgae.data.steps import compute as compute_steps

BYTES_PER_ROW = 200  # of memory beside what every run needs; measured: 10 million rows of 7 columns, Parquet
Source: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


class Plan(NamedTuple):
    """What to read and how to compute it."""

    format: Format
    pieces: Sequence[Piece]
    columns: Columns
    how: How
    most: int  # rows in memory at once

    @property
    def rows(self) -> int:
        return sum(piece.rows for piece in self.pieces)

    @property
    def read(self) -> list[str]:
        return list(dict.fromkeys(self.columns.of_role.values()))


def compute(
    source: Source,
    out: str | os.PathLike[str] | None = None,
    *,
    format: str = "auto",
    columns: Mapping[str, str] | None = None,
    ends: str | None = None,
    values: str = "values",
    gamma: float = 0.99,
    gae_lambda: float = 0.95,
    normalize: str | None = None,
    memory: str | int = "1GB",
    resume: bool = False,
    progress: bool = True,
    backend: str | None = None,
    num_threads: int | None = None,
) -> Report:
    began = time.perf_counter()
    gamma, gae_lambda = (float(as_unit_interval(name, x, ())) for name, x in (("gamma", gamma), ("gae_lambda", gae_lambda)))
    sources = found_sources(source)
    known = found_format(sources[0]) if format == "auto" else FORMATS[format]
    files = [file for each in sources for file in known.files(each)]
    names = schema(files[0]).names
    plan = Plan(
        known,
        [piece for file in files for piece in READERS[file.suffix](file)],
        chosen_columns(columns, known, names, ends, values),
        How(gamma, gae_lambda, ends, backend, num_threads),
        max(1, limit_from("memory", str(memory)) // BYTES_PER_ROW),
    )
    spool = Spool(Path(out) if out is not None else known.sidecar(sources[0]))
    if spool.out.exists():
        raise DataError(f"{spool.out} exists already: remove it, or pass another path as out")
    spool.begin(asked(plan, files), resume)
    try:
        with progress_of("computing", plan.rows, progress) as advance:
            sums, runs, findings = spooled(plan, spool, advance)
        with progress_of("writing", plan.rows, progress) as advance:
            spool.finish(runs, plan.columns.keys, changed_by(sums, plan, normalize, advance))
    except DataError:
        spool.remove()
        raise
    return report_of(sums, findings, str(spool.out), time.perf_counter() - began)


def spooled(plan: Plan, spool: Spool, advance: Advance) -> tuple[Sums, int, list[str]]:
    """Compute all rows from the last to the first, except those that the spool already holds.

    Return the sums, the number of runs and the findings of the first one.
    """
    sums, following, findings, number = Sums(), None, [], -1
    states = spool.states()
    for number, run in enumerate(runs_backwards(plan.pieces, plan.read, plan.most, spool.folder)):
        state = next(states, None)
        if state is None:
            table = run.read(plan.read)
            with naming_places(table, run, plan):
                steps = steps_of(table, plan.columns)
                computed, before = compute_steps(steps, following, plan.how)
                found = findings_in(steps, following, plan.how) if number == 0 else []
            state = {"sums": asdict(Sums.of(computed)), "following": before, "findings": found}
            spool.add(number, results(table, computed, plan), state)
        sums += Sums.from_dict(state["sums"])
        following = Following(tuple(state["following"][0]), *state["following"][1:])
        findings = findings or state["findings"]
        advance(run.rows)
    return sums, number + 1, findings


def changed_by(sums: Sums, plan: Plan, normalize: str | None, advance: Advance) -> Callable[[pa.Table], pa.Table]:
    """Return what happens to the results of a run on their way into the sidecar."""
    name = plan.format.results["advantages"]

    def change(table: pa.Table) -> pa.Table:
        advance(len(table))
        if normalize is None:
            return table
        normalized = sums.advantages.normalize(table[name].to_numpy(), backend=plan.how.backend)
        return table.set_column(table.schema.get_field_index(name), name, pa.array(normalized))

    return change


@contextmanager
def naming_places(table: pa.Table, run: Run, plan: Plan) -> Iterator[None]:
    """Name the file, the episode and the step in the error of a row."""
    try:
        yield
    except RowError as error:
        path, row = run.place(error.row)
        named = {role: name for role, name in plan.columns.of_role.items() if name in plan.columns.keys}
        at = [f"{role} {table[name][error.row]}" for role, name in named.items()]
        raise DataError(f"{path}: {', '.join([*at, f'row {row}'])}: {error.fault}") from error


def results(table: pa.Table, computed: Computed, plan: Plan) -> pa.Table:
    """Return the keys of the rows, and beside them their results."""
    keys = table.select(plan.columns.keys)
    for result, name in plan.format.results.items():
        keys = keys.append_column(name, pa.array(getattr(computed, result)))
    return keys


def asked(plan: Plan, files: Sequence[Path]) -> dict[str, Any]:
    """Return what decides on the results: the arguments, and size and time of every file."""
    stats = {str(file.resolve()): file.stat() for file in files}
    return {
        "files": {file: [stat.st_size, stat.st_mtime_ns] for file, stat in stats.items()},
        "columns": dict(plan.columns.of_role),
        "memory": plan.most,
        **{name: value for name, value in plan.how._asdict().items() if name in ("gamma", "gae_lambda", "ends")},
    }


def found_sources(source: Source) -> list[Path]:
    """Return the paths that a path, a pattern or a list of them names."""
    given = [source] if isinstance(source, str | os.PathLike) else list(source)
    return [path for each in given for path in _matches(os.fspath(each))]


def _matches(name: str) -> Iterator[Path]:
    if Path(name).exists():
        yield Path(name)
        return
    matches = sorted(glob.glob(name, recursive=True))
    if not matches:
        raise DataError(f"source {name!r} does not exist")
    yield from map(Path, matches)
