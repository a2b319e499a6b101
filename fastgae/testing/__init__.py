"""Tests for functions that compute advantages: which convention they compute, and what is wrong in them."""

from fastgae.testing.readings import ROLES
from fastgae.testing.report import Identified, assert_gae, identify

__all__ = ["ROLES", "Identified", "assert_gae", "identify"]
