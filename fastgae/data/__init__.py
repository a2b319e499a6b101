"""Advantages and value targets of recorded data, in files that may be larger than memory."""

import typing

from fastgae._support.misnamed import no_name
from fastgae.data.errors import brought_by

with brought_by("data", "fastgae.data"):
    from fastgae.data.compute import compute
    from fastgae.data.critic import Critic
    from fastgae.data.errors import DataError, WriteError
    from fastgae.data.on_table import on_table
    from fastgae.data.report import Report

__all__ = ["Critic", "DataError", "Report", "WriteError", "compute", "on_table"]

if not typing.TYPE_CHECKING:  # otherwise a type checker would accept every name, also a misspelled one

    def __getattr__(name: str) -> typing.Any:
        raise no_name(__name__, name, __all__)
