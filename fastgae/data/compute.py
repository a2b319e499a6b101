"""``fastgae.data.compute``: from recorded data to a sidecar of advantages and value targets."""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fastgae._canonical import as_unit_interval
from fastgae._memory import limit_from
from fastgae.data.columns import chosen_columns
from fastgae.data.critic import Critic, valuation
from fastgae.data.errors import DataError
from fastgae.data.formats import format_of
from fastgae.data.pieces import open_files, put_scratch_into
from fastgae.data.plan import Plan, Source, found_sources, row_bytes
from fastgae.data.report import Report, Sums, report_of
from fastgae.data.spool import Spool
from fastgae.data.steps import How
from fastgae.data.walk import computed_and_written

NORMALIZE = (None, "global")


@open_files()
def compute(
    source: Source,
    out: str | os.PathLike[str] | None = None,
    *,
    format: str = "auto",  # noqa: A002 (the word of the field)
    columns: Mapping[str, str] | None = None,
    ends: str | None = None,
    values: str | Critic | Callable[[dict[str, Any]], Any] = "values",
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
    gamma, gae_lambda = (
        float(as_unit_interval(name, x, ())) for name, x in (("gamma", gamma), ("gae_lambda", gae_lambda))
    )
    if normalize not in NORMALIZE:
        raise ValueError(f'normalize must be "global" or None, got {normalize!r}')
    sources = found_sources(source)
    known = format_of(format, sources[0])
    files = [file for each in sources for file in known.files(each)]
    if not files:
        raise DataError(f"{sources[0]} holds no files of the format {known.name}")
    schema = known.schema(files[0])
    critic = None if isinstance(values, str) else values if isinstance(values, Critic) else Critic(values)
    chosen = chosen_columns(columns, known, schema, ends, values if isinstance(values, str) else None)
    valued = None if critic is None else valuation(critic, schema, known, chosen.of_role.values())
    pieces = [piece for file in files for piece in known.pieces(file)]
    if not pieces:
        raise DataError(f"there are no rows in {', '.join(map(str, sources))}")
    plan = Plan(
        known,
        pieces,
        chosen,
        How(gamma, gae_lambda, ends, backend, num_threads),
        normalize,
        max(
            1,
            limit_from("memory", str(memory))
            // row_bytes(schema.field(chosen.of_role["rewards"]).type, pieces, valued),
        ),
        valued,
    )
    spool = Spool(Path(out) if out is not None else known.sidecar(sources[0]), plan.asked(files))
    if resume and (about := spool.finished()):
        return report_of(Sums.from_dict(about["sums"]), about["findings"], str(spool.out), time.perf_counter() - began)
    if spool.out.exists():
        raise DataError(f"{spool.out} exists already: remove it, or pass another path as out")
    spool.begin(resume)
    put_scratch_into(spool.folder)
    try:
        sums, findings = computed_and_written(plan, spool, progress)
    except DataError:
        spool.remove()  # nothing is left to resume, because the data have to change
        raise
    return report_of(sums, findings, str(spool.out), time.perf_counter() - began)
