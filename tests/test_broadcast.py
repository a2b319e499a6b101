"""Coefficients and numbers of one step: shapes that could be something else are refused."""

import numpy as np
import pytest

import fastgae
from support.cases import assert_same_bits

SQUARE = np.ones((4, 4))
CUBE = np.ones((4, 4, 4))


@pytest.mark.parametrize(
    ("rewards", "changes", "words"),
    [
        # A vector could be of the steps or of the envs, and here it has as many numbers as there are of both.
        (SQUARE, {"terminated": np.zeros(4)}, ["terminated", "(4,)", "(4, 4)"]),
        (SQUARE, {"mask": np.ones(4)}, ["mask", "(4,)", "(4, 4)"]),
        (SQUARE, {"gamma": np.ones(4)}, ["gamma", "(4,)", "(1, 4) is one per env", "(4, 1) one per step"]),
        (SQUARE, {"gae_lambda": [0.5] * 4}, ["gae_lambda", "(4,)"]),
        (SQUARE, {"gamma": np.ones(4), "time_axis": 1}, ["gamma", "(4, 1) is one per env", "(1, 4) one per step"]),
        # Flags are of every step.
        (SQUARE, {"terminated": np.zeros((1, 4))}, ["terminated", "(1, 4)"]),
        (SQUARE, {"mask": np.ones((4, 1)), "time_axis": 1}, ["mask", "(4, 1)"]),
        (SQUARE, {"mask": np.ones((1, 1))}, ["mask", "(1, 1)"]),
        # What is missing are the last axes, and never time.
        (np.ones((2, 4, 3)), {"terminated": np.zeros((4, 3))}, ["terminated", "(4, 3)", "(2, 4, 3)"]),
        (np.ones((2, 3, 4)), {"terminated": np.zeros((2, 3)), "time_axis": 2}, ["terminated", "(2, 3)", "first 3"]),
        (CUBE, {"gamma": np.ones((4, 4))}, ["gamma", "(4, 4)", "(1, 4, 4) is one per env", "(4, 1, 1) one per step"]),
        (CUBE, {"mask": np.ones((4, 4, 4, 1))}, ["mask", "(4, 4, 4, 1)"]),
        # What is per env has one step or none.
        (SQUARE, {"last_values": np.ones((4, 1))}, ["last_values", "(4, 1)", "(1, 4)", "(4,)"]),
        (SQUARE, {"last_values": SQUARE}, ["last_values", "(4, 4)", "(1, 4)", "(4,)"]),
        (SQUARE, {"prev_done": np.ones((4, 1)), "autoreset": "next_step"}, ["prev_done", "(4, 1)", "(1, 4)"]),
    ],
)
def test_what_could_be_something_else_is_refused(backend, rewards, changes, words):
    good = {"rewards": rewards, "values": rewards, "terminated": np.zeros(rewards.shape, bool), "last_values": 0.0}
    fastgae.gae(**good, backend=backend)
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        fastgae.gae(**{**good, **changes}, backend=backend)
    missing = [word for word in words if word not in str(caught.value)]
    assert not missing, f"{missing} not in {caught.value}"


def test_a_decay_has_every_axis_too(backend):
    with pytest.raises(ValueError, match=r"decay has shape \(4,\)"):
        fastgae.reverse_scan(SQUARE, np.full(4, 2.0), backend=backend)
    per_env = fastgae.reverse_scan(SQUARE, np.full((1, 4), 2.0), backend=backend)
    assert_same_bits(per_env, fastgae.reverse_scan(SQUARE, np.full((4, 4), 2.0), backend="numpy"))
    assert_same_bits(per_env, fastgae.reverse_scan(SQUARE, np.array(2.0), backend=backend))
