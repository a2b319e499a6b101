"""``fastgae diagnose`` of recorded data: what ``fastgae.diagnose`` says of a sample of them."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import fastgae
from fastgae.data.compute import planned
from fastgae.data.critic import Critic
from fastgae.data.episodes import Episodes
from fastgae.data.estimators import checked_how
from fastgae.data.formats import NAMING
from fastgae.data.pieces import check_alike, open_files, put_scratch_into, runs_backwards
from fastgae.data.places import Source
from fastgae.data.plan import Plan
from fastgae.data.report import diagnosis_of
from fastgae.data.scattered import sorted_plan
from fastgae.data.steps import ScatteredError
from fastgae.data.walk import read_run


@open_files()
def diagnose(
    source: Source,
    *,
    format: str = "auto",  # noqa: A002 (the word of the field)
    columns: Mapping[str, str] | None = None,
    ends: str | None = None,
    episode_is: str | None = None,
    values: str | os.PathLike[str] | Critic | Callable[[dict[str, Any]], Any] = "values",
    rewards: str | None = None,
    gamma: float = 0.99,
    gae_lambda: float | None = None,
    memory: str | int = "1GB",
) -> fastgae.Diagnosis:
    """Look for mistakes in the last rows that fit into ``memory``; the arguments are those of ``compute``."""
    how = checked_how("gae", gamma, gae_lambda, None, ends, None, None)
    _, plan = planned(source, format, columns, episode_is, values, rewards, how, memory)
    check_alike(plan.pieces, plan.read)
    with TemporaryDirectory(prefix="fastgae-") as folder:
        put_scratch_into(Path(folder))
        try:
            return _of_last_run(plan, Path(folder))
        except ScatteredError:
            return _of_last_run(sorted_plan(plan, Path(folder), lambda _: None), Path(folder))


def _of_last_run(plan: Plan, folder: Path) -> fastgae.Diagnosis:
    run = next(runs_backwards(plan.pieces, plan.read, plan.most, folder))
    table, steps = read_run(plan, run)
    with plan.naming(table, run):
        Episodes(plan.columns.named(*NAMING)).add(table, steps.changes, None)
        return diagnosis_of(steps, plan.how)
