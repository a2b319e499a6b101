"""Name the extra of fastgae that installs a missing library."""

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager

from fastgae._project import how_to_install

# The libraries that the extras in pyproject.toml install.
EXTRAS = {
    "data": ("duckdb", "pyarrow", "rich"),
    "hdf5": ("h5py",),
    "plot": ("matplotlib",),
    "ray": ("ray",),
    "remote": ("fsspec", "upath"),
}


def brought_by(extra: str, what: str) -> AbstractContextManager[None]:
    """If an import inside fails, say how to install the missing library, which ``what`` needs."""
    return _installed(EXTRAS[extra], what, how_to_install(extra))


def installed(library: str, what: str) -> AbstractContextManager[None]:
    """Do the same for a library that is in no extra, because whoever has such data has the library."""
    return _installed([library], what, f"pip install {library}")


@contextmanager
def _installed(libraries: Collection[str], what: str, brings: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in libraries:  # the library is installed, but something that it needs is not
            raise
        message = f"{what} needs {error.name}, which is not installed: run {brings}"
        raise ModuleNotFoundError(message, name=error.name) from error
