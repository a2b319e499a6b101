"""The plot of the demo."""

import os

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from fastgae.cli import plot

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize(("env_id", "suffix", "start"), [("CartPole-v1", "png", PNG), ("Pendulum-v1", "svg", b"<?xml")])
def test_plot_is_written(env_id, suffix, start, tmp_path, ran):
    path = tmp_path / f"rollout.{suffix}"
    assert str(path) in ran("demo", "--env", env_id, "--num-envs", 2, "--num-steps", 210, "--plot", path).out
    assert path.read_bytes().startswith(start)
    assert path.stat().st_size > 10_000


@pytest.mark.parametrize("steps", [1, 60])
def test_plot_of_any_length_and_of_nothing_but_ends(steps, tmp_path):
    zeros, ends = np.zeros(steps, np.float32), np.ones(steps, np.bool_)
    series = dict.fromkeys(("rewards", "values", "advantages", "returns"), zeros)
    series |= {"terminated": ends, "truncated": ~ends, "final_values": np.full(steps, np.nan)}
    most = os.pathconf(tmp_path, "PC_NAME_MAX") if hasattr(os, "pathconf") else 60
    long = f"{'x' * (most - 4)}.png"
    plot.draw(tmp_path / long, "all ends", series)
    assert (tmp_path / long).read_bytes().startswith(PNG)
