"""``fastgae.data.on_table``: a table of whole episodes with their advantages and returns, for any engine."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastgae._call import GAEResult
from fastgae._support.misnamed import refuses_misnamed
from fastgae._typing import BackendName
from fastgae.data.columns import SCATTERED, Columns, Episodes, check_new, chosen_columns, steps_of
from fastgae.data.errors import DataError
from fastgae.data.estimators import How, checked_how
from fastgae.data.formats import NAMING, PLAIN, Format, format_named
from fastgae.data.rows import cast, column_of, promoted
from fastgae.data.steps import RowError, checked_rows, compute_run, last_rows, unknown_end
from fastgae.data.tables import as_table, tabular

CUT = (
    "so the rest of it may be in another table: bring all its rows into one. If this is its last row, set truncated "
    'here, or say ends="terminated" if every episode ends for good'
)


@refuses_misnamed
def on_table(
    table: pa.Table,
    *,
    format: str = PLAIN.name,  # noqa: A002 (the word of the field)
    columns: Mapping[str, str | None] | None = None,
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
        The format whose column names the table uses: "table", "rllib", "lerobot", "minari", "d4rl" or "robomimic";
        "auto" knows "rllib" and "d4rl" by these names.
    columns, ends, rewards, estimator, gamma, gae_lambda, n, backend, num_threads
        As in ``fastgae.data.compute``.

    Returns
    -------
    pyarrow.Table
        The table with two more columns, in the same order of rows; without values, with one more column, returns.

    Raises
    ------
    DataError
        As ``fastgae.data.compute``. The message names the episode and the step of a bad row.

    Examples
    --------
    >>> import pyarrow as pa, fastgae.data
    >>> table = pa.table({"episode": [7, 7], "rewards": [1.0, 1.0], "values": [0.0, 0.0]})
    >>> fastgae.data.on_table(table, ends="terminated", gamma=0.5, gae_lambda=1.0)["advantages"].to_pylist()
    [1.5, 1.0]
    """
    how = checked_how(estimator, gamma, gae_lambda, n, ends, backend, num_threads)
    table = as_table(table)
    known = format_named(format, table.column_names)
    chosen = chosen_columns(columns, known, promoted(tabular(table)), "values", how, rewards)
    check_new(known.results.values(), table.column_names)
    return with_results(table, known, chosen, how, may_be_cut=True)


def with_results(
    table: pa.Table, known: Format, chosen: Columns, how: How, may_be_cut: bool, others: pa.Table | None = None
) -> pa.Table:
    """Return the table with its results.

    ``may_be_cut``: an episode without a flag at its end is an error. ``others``: the types of other parts of the table.
    """
    schema = promoted([*tabular(table), *([] if others is None else tabular(others))])
    kinds = {name: schema.field(name).type for name in chosen.read}
    rows = pa.table(
        {
            name: pa.chunked_array([cast(each, kind) for each in table[name].chunks], kind)
            for name, kind in kinds.items()
        }
    )
    order, names = np.arange(len(rows)), chosen.named(*NAMING)
    try:
        steps = steps_of(rows, chosen)
        last = last_rows(steps, None)
        if (fault := Episodes(names).fault(rows, steps, last, None) if len(rows) else None) is not None:
            chosen.check_sortable(fault.fault)
            keys = {name: rows[name] for name in chosen.keys}
            # pyarrow does not sort floats of 16 bits. Its order is stable.
            halves = {name: key.cast(pa.float32()) for name, key in keys.items() if key.type == pa.float16()}
            by = [(name, "ascending") for name in keys]
            order = pc.sort_indices(pa.table({**keys, **halves}), by).to_numpy()
            ordered = rows.take(order)
            steps = steps_of(ordered, chosen)
            steps = steps._replace(unflagged=SCATTERED if steps.step is None else None)
            last = last_rows(steps, None)
            fault = Episodes(names).fault(ordered, steps, last, None)
        steps = steps._replace(unflagged=CUT) if may_be_cut and how.ends is None else steps
        if (fault := fault or unknown_end(steps, last, how)) is not None:
            raise fault
        if len(rows):
            results, _ = compute_run(steps, last, None, how)
        else:
            none = np.empty(steps.rewards.shape, checked_rows(steps, last, how).dtype)
            results = GAEResult(None if steps.values is None else none, none)
    except RowError as error:
        row = int(order[error.row])
        raise DataError(f"{chosen.place(rows, row, row)}: {error.fault}") from error
    for result, name in known.results.items():
        if (numbers := getattr(results, result)) is not None:
            column = np.empty_like(numbers)
            column[order] = numbers
            table = table.append_column(name, column_of(column))
    return table
