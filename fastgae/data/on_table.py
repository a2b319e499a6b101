"""``fastgae.data.on_table``: a table of whole episodes with their advantages and returns, for any engine."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastgae._call import GAEResult
from fastgae._misnamed import refuses_misnamed
from fastgae._typing import BackendName
from fastgae.data.columns import Columns, chosen_columns, steps_of
from fastgae.data.episodes import Episodes
from fastgae.data.errors import DataError
from fastgae.data.estimators import How, checked_how, dtype_of
from fastgae.data.formats import FORMATS, NAMING, PLAIN
from fastgae.data.pieces import decoded
from fastgae.data.plan import ROW
from fastgae.data.steps import RowError, ScatteredError, compute_run


@refuses_misnamed
def on_table(
    table: pa.Table,
    *,
    format: str = PLAIN.name,  # noqa: A002 (the word of the field)
    columns: Mapping[str, str] | None = None,
    ends: str | None = None,
    rewards: str | None = None,
    estimator: str = "gae",
    gamma: float = 0.99,
    gae_lambda: float | None = None,
    n: int | None = None,
    backend: BackendName | None = None,
    num_threads: int | None = None,
) -> pa.Table:
    """Append advantages and returns to a table of whole episodes, whose rows may be in any order.

    Unless ``ends`` is "terminated", the last row of every episode must have a flag, because the rest of an episode
    without one may be in another table.

    It is a pure function of one table in memory. So any engine, such as Ray Data, Dask, Spark, Daft, duckdb or Polars,
    can call it on its partitions, if each episode is in one partition. The results are the same bits as from
    ``fastgae.data.compute``, which also normalizes and labels advantages, because that needs all of them.

    Parameters
    ----------
    table : pyarrow.Table, or anything with ``__arrow_c_stream__``, such as a data frame of pandas or Polars
        One row per step. Its columns are named as in ``fastgae.data.compute``.
    format : str
        The format whose column names the table uses: "table", "rllib", "lerobot", "minari", "d4rl" or "robomimic".
    columns, ends, rewards, estimator, gamma, gae_lambda, n, backend, num_threads
        As in ``fastgae.data.compute``.

    Returns
    -------
    pyarrow.Table
        The table with two more columns, in the same order of rows; without values, with one more column, returns.

    Raises
    ------
    DataError
        As ``fastgae.data.compute``. The message names the episode and the step.

    Examples
    --------
    >>> import pyarrow as pa, fastgae.data
    >>> table = pa.table({"episode": [7, 7], "rewards": [1.0, 1.0], "values": [0.0, 0.0]})
    >>> fastgae.data.on_table(table, ends="terminated", gamma=0.5, gae_lambda=1.0)["advantages"].to_pylist()
    [1.5, 1.0]
    """
    how = checked_how(estimator, gamma, gae_lambda, n, ends, backend, num_threads)
    return with_results(table, format, columns, rewards, how, may_be_cut=True)


def with_results(
    table: pa.Table,
    format: str,  # noqa: A002
    columns: Mapping[str, str] | None,
    rewards: str | None,
    how: How,
    may_be_cut: bool,
) -> pa.Table:
    """Return the table with its results; ``may_be_cut``: an episode without a flag at its end is an error."""
    table = pa.table(table)
    if format not in FORMATS:
        raise ValueError(f"format must be {', '.join(FORMATS)}, got {format!r}")
    known = FORMATS[format]
    chosen = chosen_columns(columns, known, decoded(table.schema.empty_table()).schema, "values", how, rewards)
    rows = decoded(table.select(list(dict.fromkeys(chosen.of_role.values()))))
    order = np.arange(len(rows))
    try:
        computed = _in_order(rows, chosen, how, may_be_cut)
    except ScatteredError:
        keys = [(name, "ascending") for name in (*chosen.keys, ROW)]
        order = pc.sort_indices(rows.append_column(ROW, pa.array(order)), keys).to_numpy()
        try:
            computed = _in_order(rows.take(order), chosen, how, may_be_cut)
        except RowError as error:
            raise _named(error, rows, int(order[error.row]), chosen) from error
    except RowError as error:
        raise _named(error, rows, error.row, chosen) from error
    for result, name in known.results.items():
        if (numbers := getattr(computed, result)) is not None:
            column = np.empty_like(numbers)
            column[order] = numbers
            table = table.append_column(name, pa.array(column))
    return table


def _in_order(rows: pa.Table, columns: Columns, how: How, may_be_cut: bool) -> GAEResult[Any]:
    """Compute rows in which the rows of each episode are adjacent."""
    steps = steps_of(rows, columns)._replace(may_be_cut=may_be_cut)
    if not len(rows):
        empty = np.empty(0, dtype_of(steps.rewards, steps.values, steps.next_values))
        return GAEResult(None if steps.values is None else empty, empty)
    Episodes(columns.named(*NAMING)).add(rows, steps.changes, None)
    computed, _ = compute_run(steps, None, how)
    return GAEResult(computed.advantages, computed.returns)


def _named(error: RowError, rows: pa.Table, row: int, columns: Columns) -> DataError:
    return DataError(f"{columns.place(rows, row, row)}: {error.fault}")
