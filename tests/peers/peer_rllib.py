"""RLlib's ``compute_value_targets`` beside fastgae.compat.rllib's."""

import numpy as np

from fastgae.compat import rllib

from .compare import called
from .installed import function

PACKAGE = "ray==2.60.0"
FILE = "ray/rllib/utils/postprocessing/value_predictions.py"


def theirs():
    return function("ray", FILE, "compute_value_targets", np=np)


def comparisons(rng):
    for steps in (1, 100, 4000):
        values, rewards = rng.normal(size=(2, steps)).astype(np.float32)
        given = (values, rewards, *(rng.random((2, steps)) < 0.05), 0.99, 0.95)
        yield called(f"compute_value_targets, {steps} steps", theirs(), rllib.compute_value_targets, *given)
