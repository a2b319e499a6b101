"""``fastgae.data.compute``: from recorded data to a sidecar of advantages and value targets."""

import os
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

import pyarrow as pa

from fastgae._memory import limit_from
from fastgae._misnamed import refuses_misnamed
from fastgae._typing import BackendName
from fastgae.data.columns import chosen_columns
from fastgae.data.critic import Critic, valuation
from fastgae.data.errors import DataError, UnreachableError, WriteError, argument, naming
from fastgae.data.estimators import How, check_advantages, checked_how
from fastgae.data.formats import FILE, Found, found_in
from fastgae.data.labels import checked_quantile
from fastgae.data.picture import checked_picture
from fastgae.data.pieces import check_alike, open_files, put_scratch_into
from fastgae.data.places import Source, files_of, path_of
from fastgae.data.plan import Plan, check_out, row_bytes
from fastgae.data.report import Report, report_of
from fastgae.data.shards import Shard, shards_of
from fastgae.data.sidecars import sidecar_of
from fastgae.data.spool import Spool
from fastgae.data.success import Success
from fastgae.data.tables import Tabular, table_for_table
from fastgae.data.urls import is_remote
from fastgae.data.values_file import COLUMN, is_values_file, with_values
from fastgae.data.walk import computed_and_written

NORMALIZE = (None, "global")


@refuses_misnamed
@table_for_table
@open_files()
def compute(
    source: Source | Tabular,
    out: str | os.PathLike[str] | None = None,
    *,
    format: str = "auto",  # noqa: A002 (the word of the field)
    columns: Mapping[str, str] | None = None,
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
    into: str | os.PathLike[str] | None = None,
    memory: str | int = "1GB",
    resume: bool = False,
    overwrite: bool = False,
    shard: str | None = None,
    merge: bool = False,
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

    ``estimator`` names another function of fastgae for R, and then A = R - V::

        n_step_returns      R_t = r_t + ... + gamma^(n-1) r_{t+n-1} + gamma^n V'_{t+n-1}
        discounted_returns  R_t = r_t + gamma R_{t+1}, to the end of the episode
        td_lambda           R_t = r_t + gamma ((1 - lambda) V'_t + lambda R_{t+1})

    By definition, the returns of "td_lambda" equal the returns of "gae", bit for bit. Its advantages, too, are A of the
    first equation, because R - V would be the same number, rounded once more.

    The source, and each of its episodes, may be larger than memory, and the rows may be in any order. The source is
    never written to. The results are the same bits as from one call of the estimator on all data in memory, for every
    ``memory``, every size of files and row groups, and every number of threads.

    "discounted_returns" needs no values except V' of truncated steps: compute these returns first, train a critic on
    them, and then compute advantages. Without values it writes no advantages.

    Parameters
    ----------
    source : path, folder, pattern, or a list of them; or a table
        Tables of Parquet, Arrow, Delta, Iceberg, CSV or JSON, NumPy or HDF5 arrays, or a dataset of LeRobot, Minari,
        RLlib, robomimic or D4RL. Names that begin with "_" or "." are skipped in folders and patterns. They may be URLs
        such as s3://bucket/a.parquet, and so may ``out`` and a file of ``values``. A table is one of pyarrow, a data
        frame of pandas or Polars, or anything else with ``__arrow_c_stream__``; or a dataset of ``pyarrow.dataset`` or
        Hugging Face, whose rows stay in their files.
    out : path, optional
        The file to write, Parquet, Arrow or .npz by its suffix. None: the place that the format's convention gives; or,
        for a table, no file.
    format : str
        "auto", or the name of a format if the files do not show it.
    columns : mapping, optional
        The name of the column for each role: "file", "env", "episode", "step", "rewards", "values", "next_values",
        "terminated", "truncated" or "done". They take precedence over the names that the format uses.
    ends : str, optional
        "terminated": the last row of every episode ends it for good, whatever its flags say. None: if a last row does
        not end its episode for good, it needs the value of the state after it.
    episode_is : str, optional
        "file": the file of a row, with the folders around it, is a part of the name of its episode: for one episode per
        file, or where the names of episodes begin again in every file. The sidecar then has a column "file". None: the
        columns of "env" and "episode" alone name an episode.
    values : str, path or callable
        The column of V; or a file of V (.npy, or a table with a column "values", also of Delta or Iceberg), with one
        number for each row of the source, found by the columns of episode and step if it has them; or, for a Minari
        dataset, one for each observation; or a function ``critic(batch) -> V`` of a dict of arrays, one row per state
        (see ``Critic``).
    estimator : str
        "gae", "td_lambda", "n_step_returns" or "discounted_returns".
    gamma : float in [0, 1]
        Discount per step.
    gae_lambda : float in [0, 1], optional
        The decay of the trace, for "gae" and "td_lambda". None: 0.95.
    n : int, optional
        The number of rewards in each return, for "n_step_returns", which takes n passes over the rows.
    normalize : str, optional
        "global": shift and scale the advantages to mean 0 and standard deviation 1 over the whole source, with the
        exact statistics of ``fastgae.moments``.
    rewards : str, optional
        "COLUMN:STEP:FAILURE", such as "success:-1:100", makes rewards of a column of success: STEP for every step, but
        0 for the last step of a successful episode and -FAILURE for the last step of another. The last row of an
        episode says whether it succeeded.
    label_quantile : float, optional
        0.7: also write a column "positive", which is True where the advantage is above the 0.7 quantile of all
        advantages. The quantile is the least advantage that at least this part of all advantages does not exceed.
    into : path, optional
        Instead of ``out``: write all columns of the source, and the results as further columns.
    memory : str or int
        About how many bytes to use in addition to Python and its libraries, such as "256MB".
    resume : bool
        Keep finished parts, and continue from the parts that a killed run has left for the same options and the same
        contents of the files. False: start anew. Then parts are kept only if they cost more than to compute them again:
        of a critic, of rows in any order, with a URL, and for ``normalize``, ``label_quantile``, ``plot`` or ``shard``.
    overwrite : bool
        Replace earlier results of fastgae at ``out``, once the new ones are whole.
    shard : str, optional
        "3/8": compute the third of eight parts, and write it to a file beside ``out``, whose name ends in
        ".shard-3-of-8". The parts may be computed at the same time, by any processes and machines.
    merge : bool
        Write the results from the files of all shards, the same bytes as from one process, and remove these files.
    progress : bool
        Show a bar on a terminal, and print lines elsewhere.
    plot : path, optional
        A picture to draw too, .png, .pdf or .svg: the distribution of the advantages before normalisation and of the
        episode lengths, and the returns against the values. Above half a million steps, the picture shows a sample of
        the steps. It needs the extra "plot".
    backend, num_threads
        As in ``fastgae.gae``. "n_step_returns" has one backend and one thread.

    Returns
    -------
    Report
        Episodes, steps, statistics, and the findings of ``fastgae.diagnose`` in a sample; ``print`` shows a table.
    pyarrow.Table
        If the source is a table and ``out`` is None: what the file would hold, one row for each row of the source, in
        the same order.

    Raises
    ------
    DataError
        The data cannot be computed. The message names the file, the episode and the step. Nothing is written.
    WriteError
        The results cannot be written, for example because the disk is full. The message says whether the finished part
        is kept, so that ``resume`` continues from it.
    ValueError, TypeError
        An argument has a wrong value or type.

    Examples
    --------
    >>> import fastgae.data
    >>> fastgae.data.compute("episodes.parquet", ends="terminated")  # doctest: +SKIP
    """
    began = time.perf_counter()
    if normalize not in NORMALIZE:
        raise ValueError(f'normalize must be "global" or None, got {normalize!r}')
    picture = None if plot is None else checked_picture(plot)
    part = None if shard is None else Shard.named(shard)
    quantile = None if label_quantile is None else checked_quantile(label_quantile)
    if out is not None and into is not None:
        raise ValueError(f"{argument('out')} and {argument('into')} both name the file to write: pass one of them")
    if part is not None and (merge or picture is not None):
        raise ValueError(
            f"{argument('shard')} computes one part of the results: pass {argument('merge')} and {argument('plot')} "
            "without it, for all parts together"
        )
    how = checked_how(estimator, gamma, gae_lambda, n, ends, backend, num_threads)
    (known, sources, files, _, names), plan = planned(source, format, columns, episode_is, values, rewards, how, memory)
    plan = plan._replace(normalize=normalize, plot=picture, shard=part, label_quantile=quantile, into=into is not None)
    for name, asked in (("resume", resume), ("shard", shard), ("merge", merge)):
        if asked and not sources:
            raise ValueError(
                f"{argument(name)} needs a source of files, and this one is a table in memory: leave it out"
            )
    check_advantages(normalize, quantile, how, plan.values is not None or "values" in plan.columns.of_role)
    check_alike(plan.pieces, [*plan.read, *(plan.source_columns if plan.into else [])])
    to = path_of("out", given) if (given := out if into is None else into) else known.sidecar(sources[0])
    check_out(to, sources, plan)
    sidecar_of(to)  # raises before anything is computed
    spool = Spool(to if part is None else part.beside(to), {**plan.options, "names": names}, files, overwrite)
    with spool.held():
        shards = shards_of(to) if merge else []
        if resume and (about := spool.finished()):
            if picture is not None and not picture.exists():
                raise DataError(
                    f"{spool.out} is finished, and nothing is left to draw {picture} from: compute it again"
                )
        else:
            spool.begin(resume)
            put_scratch_into(spool.folder)
            local = not any(map(is_remote, [to, *files]))
            at_once = local and plan.is_plain and spool.takes_state_last and not (resume or merge)
            try:
                if merge:
                    spool.unpack(shards)
                about = computed_and_written(plan, spool, at_once, progress)
            except UnreachableError:
                raise
            except WriteError as error:
                if sources and spool.holds_results():
                    raise
                spool.remove()
                raise WriteError(error.path, error.reason, kept=False) from error
            except DataError:
                spool.remove()  # nothing can be resumed, because the data have to change
                raise
        spool.remove_shards(shards)
    return report_of(about, str(spool.out), time.perf_counter() - began)


def planned(
    source: Source | Tabular,
    format: str,  # noqa: A002
    columns: Mapping[str, str] | None,
    episode_is: str | None,
    values: str | os.PathLike[str] | Critic | Callable[[dict[str, Any]], Any],
    rewards: str | None,
    how: How,
    memory: str | int,
) -> tuple[Found, Plan]:
    """Return what the source holds, and how to read and compute it."""
    if episode_is not in (None, "file"):
        raise ValueError(f'episode_is must be "file" or None, got {episode_is!r}')
    bytes_in_memory = limit_from(argument("memory"), str(memory))
    of_success = {} if rewards is None else {"rewards": Success.named(rewards)[0]}
    found = found_in(source, format, {**(columns or {}), **of_success})
    if episode_is is not None:
        found = found.with_files()
        columns = {"file": FILE, **(columns or {})}
    known, rows = found.format, found.pieces
    path, schema = rows[0].path, rows[0].schema
    column = None
    if isinstance(values, str | os.PathLike):
        column = COLUMN if is_values_file(values, schema.names) else os.fspath(values)
    present = schema.append(pa.field(COLUMN, pa.float32())) if column == COLUMN else schema
    with naming(path):
        chosen = chosen_columns(columns, known, present, column, how, rewards)
    pieces, valued, beside = rows, None, None
    if not isinstance(values, str | os.PathLike):
        critic = values if isinstance(values, Critic) else Critic(values)
        valued = valuation(critic, schema, known, chosen.of_role.values())
    elif chosen.of_role.get("values") == COLUMN:
        beside = rows, path_of("values", values)
        pieces = with_values(rows, beside[1], chosen.keys)
        found.files.extend(files_of(beside[1]))
    most = bytes_in_memory // row_bytes(schema.field(chosen.of_role["rewards"]).type, pieces, valued)
    return found, Plan(known, pieces, chosen, how, None, max(1, most), valued, beside=beside)
