"""RLlib's ``compute_value_targets`` beside fastgae.compat.rllib's."""

import numpy as np

from fastgae.compat import rllib

from .compare import Comparison
from .installed import function

PACKAGE = "ray==2.60.0"
FILE = "ray/rllib/utils/postprocessing/value_predictions.py"


def comparisons(rng):
    compute_value_targets = function("ray", FILE, "compute_value_targets", np=np)
    for steps in (1, 100, 4000):
        values, rewards = (rng.normal(size=steps).astype(np.float32) for _ in range(2))
        arrays = (values, rewards, rng.random(steps) < 0.05, rng.random(steps) < 0.05, 0.99, 0.95)
        yield Comparison(
            f"compute_value_targets, {steps} steps",
            (compute_value_targets(*arrays),),
            (rllib.compute_value_targets(*arrays),),
        )
