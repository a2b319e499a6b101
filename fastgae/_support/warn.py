"""Warnings that name the caller's own line."""

import sys
import warnings


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line outside of fastgae from which this call comes."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "fastgae":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
