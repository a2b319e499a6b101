"""Tests for functions that compute advantages: which convention they compute, and what is wrong in them."""

from fastgae.testing.identify import Identified, assert_gae, identify
from fastgae.testing.rollouts import ROLES

__all__ = ["ROLES", "Identified", "assert_gae", "identify"]
