"""Name the extra of fastgae that installs a missing library."""

from collections.abc import Iterator
from contextlib import contextmanager

# The libraries that the extras in pyproject.toml install.
EXTRAS = {
    "data": ("duckdb", "pyarrow", "rich"),
    "hdf5": ("h5py",),
    "plot": ("matplotlib",),
    "ray": ("ray",),
    "remote": ("fsspec", "upath"),
}


@contextmanager
def brought_by(extra: str, what: str) -> Iterator[None]:
    """If an import inside fails, say how to install the missing library, which ``what`` needs."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS[extra]:  # the library is installed, but something that it needs is not
            raise
        message = f"{what} needs {error.name}, which is not installed: pip install 'fastgae-rl[{extra}]'"
        raise ModuleNotFoundError(message, name=error.name) from error
