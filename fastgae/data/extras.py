"""Name the extra of fastgae that brings a library which is not installed."""

from collections.abc import Iterator
from contextlib import contextmanager

# What the extras in pyproject.toml bring.
EXTRAS = {"data": ("duckdb", "pyarrow", "rich"), "hdf5": ("h5py",), "plot": ("matplotlib",), "ray": ("ray",)}


@contextmanager
def brought_by(extra: str, what: str) -> Iterator[None]:
    """Say how to install what the imports inside miss; ``what`` needs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS[extra]:  # the library is there, and something that it needs is not
            raise
        message = f"{what} needs {error.name}, which is not installed: pip install 'fastgae-rl[{extra}]'"
        raise ModuleNotFoundError(message, name=error.name) from error
