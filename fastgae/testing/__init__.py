"""Tests for functions that compute advantages: which convention they compute, and what is wrong in them."""

import typing

from fastgae._support.misnamed import no_name
from fastgae.testing.readings import ROLES
from fastgae.testing.report import Identified, assert_gae, identify

__all__ = ["ROLES", "Identified", "assert_gae", "identify"]

if not typing.TYPE_CHECKING:  # otherwise a type checker would accept every name, also a misspelled one

    def __getattr__(name: str) -> typing.Any:
        raise no_name(__name__, name, __all__)
