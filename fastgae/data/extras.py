"""Import the libraries that not every user needs."""

import importlib
from typing import Any


def needed(library: str, extra: str, what: str) -> Any:
    """Return a library; where it is not installed, say which extra of fastgae brings it."""
    try:
        return importlib.import_module(library)
    except ModuleNotFoundError as error:
        if error.name != library:  # the library is there, and something that it needs is not
            raise
        message = f"{what} needs {library}, which is not installed: pip install 'fastgae-rl[{extra}]'"
        raise ModuleNotFoundError(message, name=library) from error
