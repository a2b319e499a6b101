"""``fastgae.data.compute``: from recorded data to a sidecar of advantages and value targets."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import pyarrow as pa

import fastgae
from fastgae._canonical.arguments import as_switch
from fastgae._support.misnamed import refuses_misnamed
from fastgae._typing import BackendName
from fastgae.data.columns import check_new
from fastgae.data.critic import Critic
from fastgae.data.errors import DataError, UnreachableError, WriteError, argument, brought_by, first_line
from fastgae.data.estimators import checked_how
from fastgae.data.files import Source, path_of, would_read
from fastgae.data.formats import beside
from fastgae.data.labels import LABEL, check_items
from fastgae.data.picture import checked_picture, draw
from fastgae.data.plan import Plan, planned
from fastgae.data.report import SAMPLE, Report, report_of
from fastgae.data.rows import Advance, Show
from fastgae.data.state import SUFFIXES, State
from fastgae.data.stored import closing_files
from fastgae.data.tables import Tabular, is_table
from fastgae.data.walk import computed, results, thresholds, write


@refuses_misnamed
@closing_files()
def compute(
    source: Source | Tabular,
    out: str | os.PathLike[str] | None = None,
    *,
    format: str = "auto",  # noqa: A002 (the word of the field)
    columns: Mapping[str, str | None] | None = None,
    ends: str | None = None,
    episode_is: Literal["file"] | None = None,
    values: str | os.PathLike[str] | Critic | Callable[[dict[str, Any]], Any] = "values",
    estimator: str = "gae",
    gamma: float = 0.99,
    gae_lambda: float | None = None,
    n: int | None = None,
    normalize: Literal["global"] | None = None,
    rewards: str | None = None,
    label_quantile: float | None = None,
    label_per: str | None = None,
    into: str | os.PathLike[str] | None = None,
    memory: str | int = "1GB",
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = True,
    plot: str | os.PathLike[str] | None = None,
    backend: BackendName | None = None,
    num_threads: int | None = None,
) -> Report | pa.Table:
    r"""Compute advantages and value targets of recorded episodes, and write them to a file beside the data.

    ::

        delta_t = (r_t + gamma V'_t) - V_t       the bootstrap gamma V'_t only where not terminated_t
        A_t     = delta_t + gamma lambda A_{t+1} the second term only inside an episode
        R_t     = A_t + V_t

    ``estimator`` names another function of fastgae for R, and then A = R - V.

    The source, and each of its episodes, may be larger than memory, and the rows may be in any order. The source is
    never written to. The results are the same bits as from one call of the estimator on all data in memory, for every
    ``memory``, every size of files and row groups, and every number of threads.

    Parameters
    ----------
    source : path, folder, pattern, or a list of them; or a table
        Tables of Parquet, Arrow, Delta, CSV or JSON, NumPy or HDF5 arrays, or a dataset of LeRobot, Minari, robomimic
        or D4RL, here or behind URLs. Or a table of pyarrow, a data frame of pandas or Polars, or anything else with
        ``__arrow_c_stream__``; or a dataset of ``pyarrow.dataset`` or Hugging Face.
    out : path, optional
        The file to write, Parquet or Arrow by its suffix. None: the place that the format's convention gives, if the
        source is one path; or, for a table, no file.
    format : str
        "auto", or the name of a format if the files do not show it.
    columns : mapping, optional
        The name of the column for each role: "file", "env", "episode", "step", "rewards", "values", "next_values",
        "terminated", "truncated", "done" or "mask"; None: no column has the role. "done" is True at either end.
    ends : str, optional
        "terminated": the last row of every episode ends it for good, whatever its flags say. None: if a last row does
        not end its episode for good, it needs the value of the state after it.
    episode_is : str, optional
        "file": the file of a row, with the folders around it, is a part of the name of its episode, and a column of the
        sidecar. None: the columns of "env" and "episode" alone name an episode.
    values : str, path or callable
        The column of V; or a file of V (.npy, or a table with a column "values") for each row of the source, found by
        the columns of episode and step if it has other columns; or, for a Minari dataset, for each observation; or a
        function ``critic(batch) -> V`` of a dict of arrays, one row per state (see ``Critic``). With values from a
        file, a function, or another column beside the format's, next values are read only if ``columns`` names them:
        they may be of an older critic.
    estimator : str
        "gae", "n_step_returns", or "discounted_returns", which needs no values except V' of truncated steps.
    gamma, gae_lambda, n, backend, num_threads
        As in the function of this name; gae_lambda is 0.95 by default.
    normalize : str, optional
        "global": shift and scale the advantages to mean 0 and standard deviation 1 over the whole source, with the
        exact statistics of ``fastgae.moments``.
    rewards : str, optional
        "COLUMN:STEP:FAILURE", such as "success:-1:100", makes rewards of a column of success: STEP for every step, but
        0 for the last step of a successful episode and -FAILURE for the last step of another.
    label_quantile : float, optional
        0.7: also write a column "positive", which is True where the advantage is above the 0.7 quantile of all
        advantages: the least advantage that at least this part of all advantages does not exceed.
    label_per : str, optional
        A column such as "task_index": take the quantile over the rows of each of its items.
    into : path, optional
        Instead of ``out``: write all columns of the source, and the results as further columns.
    memory : str or int
        About how many bytes to use in addition to Python and its libraries, such as "256MB".
    resume : bool
        Continue from what a killed run has left for the same options and data, and keep finished results.
    overwrite : bool
        Replace earlier results of fastgae at ``out``, once the new ones are whole, and the picture at ``plot``.
    progress : bool
        Show a bar.
    plot : path, optional
        A picture to draw too, .png, .pdf or .svg, of the advantages, the episode lengths, and returns against values.
        It needs the extra "plot".

    Returns
    -------
    Report, or pyarrow.Table
        Episodes, steps, statistics, and the findings of ``fastgae.diagnose`` in a sample. Or what the file would hold,
        if the source is a table and there is no file to write.

    Raises
    ------
    DataError
        The data cannot be computed. The message names the file, and of a bad row the episode and the step. Nothing is
        written.
    WriteError
        The results cannot be written, for example because the disk is full. The message says what is kept.
    ValueError, TypeError
        An argument has a wrong value or type.
    """
    began = time.perf_counter()
    for name, switch in (("resume", resume), ("overwrite", overwrite), ("progress", progress)):
        as_switch(argument(name), switch)
    if out is not None and into is not None:
        raise ValueError(f"{argument('out')} and {argument('into')} both name the file to write: pass one of them")
    if resume and is_table(source):
        raise ValueError(f"{argument('resume')} needs a source of files, and this one is a table in memory")
    picture = None if plot is None else checked_picture(plot)
    labels = label_quantile, label_per
    how = checked_how(estimator, gamma, gae_lambda, n, ends, backend, num_threads, normalize, *labels)
    plan = planned(source, format, columns, episode_is, values, rewards, how, memory)
    plan = plan._replace(plot=picture, into=into is not None)
    alone = is_table(source) and out is None and into is None  # then the results are a table, too
    with TemporaryDirectory(prefix="fastgae-") if alone else nullcontext() as folder:
        place = ("out", out) if into is None else ("into", into)
        to = _place(place, plan) if folder is None else Path(folder, "results.arrow")
        _check_names(plan)
        files = [*plan.found.files, *(plan.beside.files if plan.beside else [])]
        state = State(to, plan.options, files, plan.rows.count, overwrite)
        with state.held():
            said = state.finished() if resume else None
            if said is None:
                if picture is not None and picture.exists() and (state.reads(picture) or not (overwrite or resume)):
                    way = "" if state.reads(picture) else f", or pass {argument('overwrite', True)}"
                    raise DataError(f"{picture} exists already: pass another path as {argument('plot')}{way}")
                state.begin(resume)
                said = _written(plan, state, partial(_shown, progress))
            elif picture is not None and not picture.exists():
                raise DataError(f"{to} is finished, and nothing is left to draw {picture} from: compute it again")
        if not alone:
            return report_of(said, str(to), time.perf_counter() - began)
        with pa.OSFile(str(to)) as file:
            return pa.ipc.open_file(file).read_all().replace_schema_metadata(None)


@contextmanager
def _shown(progress: bool, what: str, total: int | None) -> Iterator[Advance]:
    """Show the progress of a part of the computation."""
    if not progress or sys.stderr is None:  # it is None where the caller has closed it
        yield lambda rows: None
        return
    with brought_by("data", "a progress bar"):
        from tqdm import tqdm
    interval = 0.1 if sys.stderr.isatty() else 10  # seconds between the updates in a log
    with tqdm(desc=what, total=total, unit=" rows", unit_scale=True, mininterval=interval) as bar:
        yield bar.update


def _place(argued: tuple[str, str | os.PathLike[str] | None], plan: Plan) -> Path:
    """Return where to write the results; raise if a later run would read them as data."""
    name, given = argued
    format, paths, patterns, *_ = plan.found  # noqa: A001
    if given is None and len(paths) > 1:
        raise ValueError(f"the source is {len(paths)} paths: say where to write the results, by {argument('out')}")
    to = format.sidecar(paths[0]) if given is None else path_of(name, given)
    if to.suffix not in SUFFIXES:
        raise DataError(f"{argument(name)} must end in {', '.join(SUFFIXES)}, got {str(to)!r}")
    # A dataset with a place for results has its data in a folder of its own.
    own = [path if format.sidecar(path) == beside(path) else path / "data" for path in paths]
    if would_read(own, patterns, to):
        raise DataError(f"{to} belongs to the source, and the next run would read it as data: pass a path elsewhere")
    return to


def _check_names(plan: Plan) -> None:
    """Check the names of the columns that are read, and of those that are written."""
    names = plan.rows.schema.names
    plan.rows.check(names if plan.into else plan.groups)
    check_items(plan.how.label_per, plan.rows.schema)
    labels = [] if plan.how.label_quantile is None else [LABEL]
    check_new([*plan.found.format.results.values(), *labels], names if plan.into else plan.columns.keys)


def _written(plan: Plan, state: State, show: Show) -> dict[str, Any]:
    """Compute and write the results, and return what they say about themselves."""
    try:
        rows, done = computed(plan, state, show)
        above = thresholds(plan, rows, state, show)
        said = {
            "asked": state.digest,
            "sums": asdict(done.sums),
            "findings": done.findings,
            "threshold": above.get(None, {str(name): number for name, number in above.items()} or None),
            "columns": dict(plan.columns.of_role),
            "unread": [name for name in plan.rows.schema.names if name not in plan.read],
        }
        with state.results() as file:
            try:
                write(plan, results(plan, rows, done, state, above), said, state.out, file, show)
            except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:  # of a column of the source
                other = ".arrow" if state.out.suffix == ".parquet" else ".parquet"
                raise DataError(f"{state.out} must end in {other}, because {first_line(error)}") from error
            state.check_unchanged()
            if plan.plot is not None:
                draw(plan, state, done, plan.plot)
    except BaseException as error:
        is_final = isinstance(error, DataError) and not isinstance(error, UnreachableError)  # the data have to change
        kept = state.is_kept and not is_final
        if not kept:
            state.remove()
        if is_final:
            state.check_unchanged()
        if isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt(*[f"{argument('resume')} continues from the rows that are done"] * kept) from None
        if not isinstance(error, OSError):
            raise
        path = error.path if isinstance(error, WriteError) else state.folder
        raise WriteError(path, getattr(error, "reason", first_line(error)), kept=kept) from error
    state.remove()
    return said


@closing_files()
def diagnose(
    source: Source, *, gamma: float, gae_lambda: float | None, ends: str | None, memory: str | int, **reading: Any
) -> fastgae.Diagnosis:
    """Look for mistakes in a sample of the last rows; the arguments are those of ``compute``."""
    how = checked_how("gae", gamma, gae_lambda, None, ends, None, None)
    plan = planned(source, how=how, memory=memory, **reading)
    with TemporaryDirectory(prefix="fastgae-") as folder:
        state = State(Path(folder, "results.arrow"), plan.options, [], plan.rows.count, overwrite=False)
        with state.held():
            state.begin(resume=False)
            _, done = computed(plan, state, partial(_shown, False), begin=max(0, plan.rows.count - SAMPLE))
    assert done.diagnosis is not None  # because gae has values
    return done.diagnosis
