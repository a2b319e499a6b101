"""Rewards from success, for episodes that have no rewards: so much for every step, and the end by success or failure.

Such rewards make the returns the negative number of steps that are left until success (pi*0.6, RECAP).
"""

from math import isfinite
from typing import NamedTuple

import numpy as np

from fastgae._call import Array
from fastgae.data.errors import argument


class Success(NamedTuple):
    """The reward of every step but the last of an episode, and what a failure costs at the last one."""

    step: float
    failure: float

    @classmethod
    def named(cls, text: str) -> tuple[str, "Success"]:
        """Return the column of success, and the rewards, from "COLUMN:STEP:FAILURE"."""
        column, *numbers = str(text).rsplit(":", 2)
        try:
            step, failure = map(float, numbers)
            if not (column and isfinite(step) and isfinite(failure) and failure >= 0):
                raise ValueError
        except ValueError:
            raise ValueError(
                f"{argument('rewards')} must be COLUMN:STEP:FAILURE, such as success:-1:100 for -1 a step, 0 at "
                f"success and -100 at failure, got {text!r}"
            ) from None
        return column, cls(step, failure)

    def rewards(self, succeeded: Array, last: Array) -> Array:
        """Return the rewards; ``succeeded`` is 1 or 0, and read in the last row of each episode."""
        ends = np.where(succeeded != 0, 0.0, -self.failure)
        return np.where(last, ends, self.step).astype(np.float32)
