"""Advantages and value targets of recorded data, computed on a Ray cluster."""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import pyarrow as pa

import fastgae
from fastgae._call import Array
from fastgae._support.misnamed import refuses_misnamed
from fastgae._typing import BackendName
from fastgae.data import DataError
from fastgae.data.columns import Columns, check_new, chosen_columns
from fastgae.data.errors import brought_by, is_remote, naming
from fastgae.data.estimators import How, check_advantages, checked_how
from fastgae.data.files import Source, path_of
from fastgae.data.formats import NAMING, format_named, found_in
from fastgae.data.labels import LABEL, Part, are_above, check_items, items_in, thresholds_of
from fastgae.data.on_table import with_results
from fastgae.data.rows import Rows, axes_of, cast, check_once, plain_type, whole
from fastgae.data.stored import closing_files

with brought_by("ray", "fastgae.ray"):
    import ray.data
    from ray.data import Dataset
    from ray.exceptions import UserCodeException

__all__ = ["compute"]

# Takes a block and returns its replacement.
Function: TypeAlias = Callable[[pa.Table], pa.Table | Iterator[pa.Table]]

FIRST, LAST, MOMENTS, KEY = "first", "last", "moments", "__key__"  # columns of internal datasets
NUMBERS = ("rewards", "values", "next_values")


@refuses_misnamed
def compute(
    dataset_or_paths: Dataset | Source,
    *,
    whole_episodes: bool = False,
    format: str = "auto",  # noqa: A002 (the word of the field)
    columns: Mapping[str, str | None] | None = None,
    ends: str | None = None,
    values: str = "values",
    rewards: str | None = None,
    estimator: str = "gae",
    gamma: float = 0.99,
    gae_lambda: float | None = None,
    n: int | None = None,
    normalize: Literal["global"] | None = None,
    label_quantile: float | None = None,
    label_per: str | None = None,
    backend: BackendName | None = None,
    num_threads: int | None = None,
) -> Dataset:
    """Append advantages and returns to recorded episodes, in parallel on the machines of a Ray cluster.

    The results are the same bits as from ``fastgae.data.compute``, for any division into blocks, files and machines.

    Rows are shuffled once, so that each block holds whole episodes. With ``whole_episodes``, the blocks already hold
    whole episodes, and nothing moves between machines. The shuffle keeps all rows in Ray's object store, which spills
    to disk; ``RAY_DATA_ENABLE_DISK_SHUFFLE=1`` makes Ray shuffle in files.

    Parameters
    ----------
    dataset_or_paths : ray.data.Dataset, or a path, folder, pattern or list of them
        One row per step. Paths are read where the tasks run, one file at a time, so every machine must be able to read
        them; URLs need credentials in the environment of every machine.
    whole_episodes : bool
        Every block of the dataset, or every file, has all rows of its episodes. An episode whose last row has no flag
        is an error, because the rest of it may be in another block; with ``ends="terminated"`` this is not checked. Ray
        cuts large files into several blocks, so pass the paths of files rather than a dataset that was read from them.
    format, columns, ends, rewards, estimator, gamma, gae_lambda, n, backend
        As in ``fastgae.data.compute``; "auto" means "table" for a dataset. The shuffle loses the order of rows, so it
        needs columns for "episode" (or "env") and "step".
    values : str
        The name of the column of V. If a critic computes the values, add the column with ``dataset.map_batches``.
    normalize, label_quantile, label_per
        As in ``fastgae.data.compute``. They compute the dataset immediately and keep it in the object store, because
        all advantages must be known before the first result. Labels read them a few times on this machine.
    num_threads : int, optional
        Threads of each task, for which it reserves as many CPUs. None: one.

    Returns
    -------
    ray.data.Dataset
        The rows with two more columns, or with one if there are no values, in an order that Ray chooses. Without
        ``normalize`` and ``label_quantile`` it is lazy: errors in the data are raised when it is read or written.

    Raises
    ------
    DataError, ValueError, TypeError
        As ``fastgae.data.compute``; a task raises a DataError that is a ``ray.exceptions.RayTaskError``, too.

    Examples
    --------
    >>> import fastgae.ray
    >>> dataset = fastgae.ray.compute("/data/episodes", whole_episodes=True, normalize="global")  # doctest: +SKIP
    >>> dataset.write_parquet("/data/with_advantages")  # doctest: +SKIP
    """
    if not isinstance(values, str):
        raise TypeError(
            f"values must be the name of a column, got {type(values).__name__}: let dataset.map_batches compute a "
            "column of values first"
        )
    labels = label_quantile, label_per
    how = checked_how(estimator, gamma, gae_lambda, n, ends, backend, num_threads, normalize, *labels)
    if isinstance(dataset_or_paths, Dataset):
        schema, dataset = _schema_of(dataset_or_paths), dataset_or_paths
        known = format_named(format, schema.names)
        through = partial(_per_block, dataset)
    else:
        given = dataset_or_paths if isinstance(dataset_or_paths, list | tuple) else [dataset_or_paths]
        paths = [path_of("source", path) for path in given]
        with closing_files():
            # Tasks may run in another folder.
            absolute = [path if is_remote(path) else path.absolute() for path in paths]
            found = found_in(absolute, format, columns, rewards)
        known, schema = found.format, found.rows.schema
        check_once(schema.names, schema)
        through = partial(_per_file, found.rows, found.rows.files if whole_episodes else found.rows.firsts)
        dataset = through(lambda block: block)
    chosen = chosen_columns(columns, known, schema, values, how, rewards)
    check_advantages(how, "values" in chosen.of_role)
    check_items(label_per, schema)
    check_new([*known.results.values(), *([] if label_quantile is None else [LABEL])], schema.names)
    # Blocks may differ in their types, and all results have one.
    kinds = {name: schema.field(name).type for name in chosen.named(*NUMBERS)}
    numbers = [name for name, kind in kinds.items() if axes_of(kind) is not None or pa.types.is_decimal(kind)]
    others = pa.Table.from_batches([], pa.schema([schema.field(name) for name in numbers]))
    computed = partial(with_results, known=known, chosen=chosen, how=how, may_be_cut=whole_episodes, others=others)
    if len(numbers) == len(kinds):  # or Ray does not know the types
        alone = chosen._replace(of_role={role: name for role, name in chosen.of_role.items() if role in NUMBERS})
        expected = (
            with_results(others, known=known, chosen=alone, how=how, may_be_cut=False).drop_columns(numbers).schema
        )
        computed = partial(_in_types, expected, numbers, computed)
    alike = partial(_if_alike, {*known.columns.values(), *chosen.read}, schema.names)
    if whole_episodes:
        results = through(partial(alike, computed), num_threads)
    else:
        results = _per_block(_shuffled(dataset, chosen, alike), computed, num_threads)
    if normalize is None and label_quantile is None:
        return results
    blocks = results.materialize()  # or Ray would compute them for the statistics, and once more for the results
    name, above, moments = known.results["advantages"], None, None

    def parts() -> Iterator[Part]:
        for block in blocks.iter_batches(batch_size=None, batch_format="pyarrow"):
            yield block[name].to_numpy(), items_in(block, label_per)

    if how.label_quantile is not None:
        above = thresholds_of(parts, how.label_quantile)
    if normalize is not None:
        found = _per_block(blocks, partial(_moments, name)).take_all()
        moments = sum((fastgae.Moments(**json.loads(each[MOMENTS])) for each in found), fastgae.Moments())
    return _per_block(blocks, partial(_completed, name, how, above, moments))


def _schema_of(dataset: Dataset) -> pa.Schema:
    if (schema := dataset.schema()) is None:
        raise DataError("there are no rows in the dataset")
    # A type of pandas that Arrow has not, an object or a category, is mostly text. The blocks have types of Arrow.
    kinds = [plain_type(kind) if isinstance(kind, pa.DataType) else pa.string() for kind in schema.types]
    return pa.schema(list(zip(schema.names, kinds, strict=True)))


class RayDataError(DataError, UserCodeException):  # type: ignore[misc]
    """Recorded data that a task cannot compute; Ray shows errors of this kind without its own stack."""


def _per_block(dataset: Dataset, function: Function, num_cpus: int | None = None) -> Dataset:
    function = partial(_computed_block, function)
    results = dataset.map_batches(function, batch_size=None, batch_format="pyarrow", num_cpus=num_cpus)
    results.context.raise_original_map_exception = True  # or errors would say no more than that "UDF failed"
    return results


def _per_file(rows: Rows, firsts: Array, function: Function, num_cpus: int | None = None) -> Dataset:
    """Apply a function to the rows from each of these up to the next."""
    bounds = [{FIRST: first, LAST: last} for first, last in pairwise([*firsts.tolist(), rows.count])]
    return _per_block(ray.data.from_items(bounds), partial(_of_rows, rows, function), num_cpus)


def _shuffled(dataset: Dataset, columns: Columns, alike: Callable[..., Any]) -> Dataset:
    """Return the rows in blocks that hold whole episodes, in any order inside: ``on_table`` sorts them."""
    names = columns.named(*NAMING)
    if not names or "step" not in columns.of_role:
        raise DataError(
            'rows are shuffled by episode, and lose their order: name columns of "episode" and "step", or pass '
            "whole_episodes=True if every block or file holds whole episodes"
        )
    keys = [KEY + name for name in names]
    blocks = _per_block(dataset, partial(alike, partial(_with_keys, names)))
    blocks = blocks.repartition(dataset.context.default_hash_shuffle_parallelism, keys=keys)
    return blocks.drop_columns(keys)


# The functions that tasks run.


def _computed_block(function: Function, block: pa.Table) -> Iterator[pa.Table]:
    """Return the results of a block; raise errors of the data without a stack, because they name the place."""
    try:
        results = function(block)
        yield from [results] if isinstance(results, pa.Table) else results
    except DataError as error:
        raise RayDataError(str(error)) from None


def _if_alike(roles: Collection[str], present: Sequence[str], function: Function, block: pa.Table) -> Any:
    """Call a function with a block, if it has the columns that the dataset has: Ray may know only the first block's."""
    has = block.column_names
    if len(block) and (lost := sorted(name for name in roles if (name in present) != (name in has))):
        raise DataError(f"only some blocks of the dataset have the column {lost[0]!r}: add it to all, or drop it")
    return function(block)


def _in_types(
    expected: pa.Schema, numbers: Sequence[str], function: Callable[[pa.Table], pa.Table], block: pa.Table
) -> pa.Table:
    """Call a function with a block, and check that its results have the types that Ray's schema of the dataset means.

    Ray may know only the first block's types, or those before ``dataset.filter``, which makes float64 of float32.
    """
    table = function(block)
    for name, kind in zip(expected.names, expected.types, strict=True):
        if (found := table.schema.field(name).type) != kind:
            raise DataError(
                f"the schema of the dataset makes {name} {kind}, and a block makes them {found}: let "
                f"dataset.map_batches cast {', '.join(numbers)} to one type"
            )
    return table


def _with_keys(names: Sequence[str], block: pa.Table) -> pa.Table:
    """Return a block with the names of episodes in types that are the same in all blocks, for Ray to shuffle by.

    Ray hashes the same number differently as int32, int64 or float64.
    """
    for name in names:
        if KEY + name in block.column_names:
            raise DataError(f"the dataset has a column {KEY + name!r}, a name that fastgae needs: rename it")
        items = cast(whole(block[name]), plain_type(block[name].type))
        is_text = pa.types.is_string(items.type) or pa.types.is_large_string(items.type)
        key = items.cast(pa.large_string() if is_text else pa.int64(), safe=False)  # bad names raise later
        block = block.append_column(KEY + name, key)
    return block


def _of_rows(rows: Rows, function: Function, bounds: pa.Table) -> Iterator[pa.Table]:
    """Apply a function to some rows of files."""
    for bound in bounds.to_pylist():
        with closing_files(), naming(rows.place(bound[FIRST])[0]):
            yield function(rows.read(bound[FIRST], bound[LAST], rows.schema.names))


def _moments(name: str, block: pa.Table) -> pa.Table:
    """Return the exact sums of a block as JSON, because they are integers of any size."""
    return pa.table({MOMENTS: [json.dumps(asdict(fastgae.moments(block[name].to_numpy())))]})


def _completed(
    name: str, how: How, above: dict[Any, float] | None, moments: fastgae.Moments | None, block: pa.Table
) -> pa.Table:
    """Return a block with labels, if there are thresholds, and with its advantages normalized, if there are moments."""
    numbers = block[name].to_numpy()
    if above is not None:
        block = block.append_column(LABEL, pa.array(are_above(above, numbers, items_in(block, how.label_per))))
    if moments is not None:
        normalized = pa.array(moments.normalize(numbers, backend=how.backend, num_threads=how.num_threads))
        block = block.set_column(block.schema.get_field_index(name), name, normalized)
    return block
