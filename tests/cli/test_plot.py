"""The plot of the demo."""

import numpy as np
import pytest

import fastgae

pytest.importorskip("matplotlib")

from fastgae.cli import plot, rollout
from fastgae.cli.main import main

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize(("env_id", "suffix", "start"), [("CartPole-v1", "png", PNG), ("Pendulum-v1", "svg", b"<?xml")])
def test_plot_is_written(env_id, suffix, start, tmp_path, capsys):
    path = tmp_path / f"rollout.{suffix}"
    assert main(["demo", "--env", env_id, "--num-envs", "2", "--num-steps", "210", "--plot", str(path)]) == 0
    assert path.read_bytes().startswith(start)
    assert path.stat().st_size > 10_000
    assert str(path) in capsys.readouterr().out


def test_plot_shows_the_environment_whose_returns_vary_most(monkeypatch, tmp_path, capsys, collected):
    drawn = []
    monkeypatch.setattr(plot, "draw", lambda path, title, series: drawn.append((title, series)))
    for env_id, num_steps in (("FrozenLake-v1", 100), ("Pendulum-v1", 201)):
        options = ["--env", env_id, "--num-envs", "5", "--num-steps", str(num_steps), "--plot", str(tmp_path / "x.png")]
        assert main(["demo", *options]) == 0
        title, series = drawn.pop()
        data = collected(env_id, 5, num_steps)
        values = rollout.ValueFunction(data.observations, 0)
        values.fit(data, 0.99)
        env = int(fastgae.gae(**data.arguments(values)).returns.std(0).argmax())
        assert f"environment {env} of 5" in title
        np.testing.assert_array_equal(series.terminated, data.terminated[:, env])
        np.testing.assert_array_equal(series.rewards, data.rewards[:, env])
        np.testing.assert_array_equal(series.returns, series.advantages + series.values)
        np.testing.assert_array_equal(~np.isnan(series.final_values), data.truncated[:, env] & ~data.terminated[:, env])


@pytest.mark.parametrize("steps", [1, 2, 500])
def test_plot_of_any_length_and_of_nothing_but_ends(steps, tmp_path):
    zeros, ends = np.zeros(steps, np.float32), np.ones(steps, np.bool_)
    series = plot.Series(zeros, zeros, zeros, zeros, ends, ~ends, np.full(steps, np.nan))
    plot.draw(tmp_path / "x.png", "all ends", series)
    assert (tmp_path / "x.png").read_bytes().startswith(PNG)
