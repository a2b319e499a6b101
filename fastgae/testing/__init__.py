"""Tests for functions that compute advantages: which convention they compute, and what is wrong in them."""

from fastgae.testing.rollouts import ROLES
from fastgae.testing.search import Identified, assert_gae, identify

__all__ = ["ROLES", "Identified", "assert_gae", "identify"]
