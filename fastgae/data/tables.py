"""Tables that are no files of ours: in memory, of pyarrow.dataset, of Hugging Face, and with a log of deleted rows."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias, TypeVar, cast

import pyarrow as pa
import pyarrow.dataset

from fastgae.data.errors import DataError, UnreachableError
from fastgae.data.extras import installed
from fastgae.data.pieces import SLICE, Piece, decoded, pieces_of, slices
from fastgae.data.places import DELTA, ICEBERG
from fastgae.data.urls import is_remote

HERE = Path("the table")  # stands for a path where an error names one
Tabular: TypeAlias = Any  # what is_table() knows
Computes = TypeVar("Computes", bound=Callable[..., Any])
VERSION = re.compile(r"v?(\d+)")  # how the names of Iceberg's metadata begin


def is_table(source: Any) -> bool:
    """Return whether a source is a table or a dataset, and no path."""
    marks = ("__arrow_c_stream__", "__arrow_c_array__", "with_format")
    return isinstance(source, pa.dataset.Dataset) or any(hasattr(source, mark) for mark in marks)


def table_for_table(compute: Computes) -> Computes:
    """Let a function that writes a file return the table in this file, if it gets a table and no name of a file."""

    @wraps(compute)
    def call(source: Any, out: Any = None, *, into: Any = None, **options: Any) -> Any:
        if out is not None or into is not None or not is_table(source):
            return compute(source, out, into=into, **options)
        with TemporaryDirectory(prefix="fastgae-") as folder:
            compute(source, out := Path(folder, "results.arrow"), **options)
            with pa.OSFile(str(out)) as file:
                return pa.ipc.open_file(file).read_all().replace_schema_metadata(None)

    return cast("Computes", call)


def pieces_of_table(source: Any) -> list[Piece]:
    """Return the rows of a table or a dataset."""
    if isinstance(source, pa.dataset.Dataset):
        return dataset_pieces(source)
    if not hasattr(source, "with_format"):
        rows = pa.table(source)
        select = rows.select
    elif isinstance(source, Mapping) or not hasattr(source, "__len__"):
        raise TypeError(f"source must be one split of a Dataset of Hugging Face, got {type(source).__name__}")
    else:
        rows = source.with_format("arrow")  # it stays in its files, and gives the rows of a slice as a table
        select = rows.select_columns

    def read(start: int, stop: int, columns: Sequence[str]) -> pa.Table:
        return decoded(select(list(columns))[start:stop])

    return slices(HERE, 0, len(rows), decoded(rows[:1]).schema, read)


def dataset_pieces(dataset: pa.dataset.Dataset) -> list[Piece]:
    """Return the rows of a dataset of pyarrow, each file as a piece."""
    try:
        parts = list(dataset.get_fragments())
        schema = {"schema": dataset.schema}
    except ValueError:  # pyarrow refuses to give the files of a dataset that is filtered
        parts, schema = [dataset], {}
    one = {"batch_readahead": 1, "fragment_readahead": 1, "use_threads": False}  # or many batches are in memory at once

    def pieces(part: Any) -> list[Piece]:
        def batches(_: int, columns: Sequence[str], most: int) -> Iterator[pa.RecordBatch]:
            scanner = part.scanner(columns=list(columns), batch_size=min(most, SLICE), **one, **schema)
            yield from scanner.to_batches()

        return pieces_of(Path(getattr(part, "path", HERE)), [part.count_rows()], dataset.schema, batches)

    return [piece for part in parts for piece in pieces(part)]


@contextmanager
def _by(library: str, kind: str, path: Path) -> Iterator[None]:
    """Name the table in errors of the library that reads it."""
    try:
        with installed(library, f"the {kind} table {path}, whose files also hold rows that were deleted,"):
            yield
    except (DataError, ModuleNotFoundError):
        raise
    except Exception as error:
        raised = UnreachableError if is_remote(path) else DataError
        raise raised(f"{path} cannot be read by {library}: {' '.join(str(error).split())}") from None


def delta_pieces(path: Path) -> list[Piece]:
    """Return the rows that a Delta table has now."""
    with _by("deltalake", DELTA, path):
        import deltalake

        return dataset_pieces(deltalake.DeltaTable(str(path)).to_pyarrow_dataset())


def iceberg_pieces(path: Path) -> list[Piece]:
    """Return the rows that an Iceberg table has now, each file as a piece, which pyiceberg reads whole."""
    with _by("pyiceberg", ICEBERG, path):
        from pyiceberg.io.pyarrow import ArrowScan
        from pyiceberg.table import StaticTable

        # Otherwise pyarrow reads URLs there, which ignores some settings of the environment, such as AWS_ENDPOINT_URL.
        by_fsspec = {"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"} if is_remote(path) else {}
        table = StaticTable.from_metadata(str(_newest_metadata(path)), by_fsspec)
        tasks = list(table.scan().plan_files())
        schema = table.schema().as_arrow()

        def batches(number: int, columns: Sequence[str], most: int) -> Iterator[pa.RecordBatch]:
            with _by("pyiceberg", ICEBERG, path):
                scan = table.scan(selected_fields=tuple(columns))
                arrow = ArrowScan(table.metadata, table.io, scan.projection(), scan.row_filter)
                yield from (batch.select(columns) for batch in arrow.to_record_batches([tasks[number]]))

        def rows(number: int) -> int:
            if not tasks[number].delete_files:
                return int(tasks[number].file.record_count)
            return sum(batch.num_rows for batch in batches(number, schema.names[:1], SLICE))

        return pieces_of(path, list(map(rows, range(len(tasks)))), schema, batches)


def _newest_metadata(path: Path) -> Path:
    """Return the description of an Iceberg table with the highest number."""
    versions: dict[int, list[Path]] = {}
    for file in (path / "metadata").glob("*.metadata.json"):
        if match := VERSION.match(file.name):
            versions.setdefault(int(match[1]), []).append(file)
    newest = versions[max(versions)] if versions else []
    if len(newest) != 1:  # a commit that failed leaves one beside that of the commit which won
        raise DataError(
            f"{path} has {len(newest)} newest descriptions of the table, and only its catalog knows which is right: "
            "load it from the catalog, and pass table.scan().to_arrow()"
        )
    return newest[0]
