"""The command `diagnose`: its exit status, its two outputs, and what it says of files that it cannot use."""

import json

import numpy as np
import pytest

from fastgae.cli.main import main


@pytest.fixture
def saved(tmp_path):
    """Save a correct call, changed as given, and its path; what is None is left out."""

    def save(**changed):
        rewards, values = np.random.default_rng(0).normal(size=(2, 32, 4))
        call = {"rewards": rewards, "values": values, "terminated": np.zeros((32, 4), bool), "last_values": np.ones(4)}
        path = tmp_path / "rollout.npz"
        np.savez(path, **{name: array for name, array in {**call, **changed}.items() if array is not None})
        return str(path)

    return save


def test_nothing_found(saved, capsys):
    assert main(["diagnose", saved()]) == 0
    assert capsys.readouterr().out.startswith("Nothing found in 32 steps of 4 environments.")


def test_something_found(saved, capsys):
    path = saved(last_values=np.zeros(4))
    assert main(["diagnose", path]) == 1
    assert "last_row_bootstrap: " in capsys.readouterr().out
    assert main(["diagnose", path, "--json"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert finding["detector"] == "last_row_bootstrap"


def test_options_are_those_of_gae(saved, capsys):
    rounded = float(np.float16(0.99))
    assert main(["diagnose", saved(gamma=rounded)]) == 1
    assert main(["diagnose", saved(gamma=rounded), "--gamma", "0.99"]) == 0
    assert main(["diagnose", saved(), "--gae-lambda", str(rounded)]) == 1
    terminated = np.zeros((32, 4))
    terminated[9] = 1
    assert main(["diagnose", saved(terminated=terminated), "--autoreset", "next_step"]) == 1
    assert "not_next_step" in capsys.readouterr().out
    assert main(["diagnose", saved(last_values=np.ones(32)), "--time-axis", "1"]) == 0
    assert main(["diagnose", saved(), "--normalize", "global"]) == 0


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"values": None}, "has no values; it holds rewards, terminated, last_values"),
        ({"values": None, "terminated": None}, "has no values and no terminated"),
        ({"dones": np.zeros(4)}, "holds dones, which is no argument; known are rewards, values, terminated, truncated"),
        ({"last_values": None}, "the value after the last step is missing"),
        ({"terminated": np.full((32, 4), 2)}, "terminated must hold 0 or 1"),
        ({"rewards": np.array([None, 1])}, "allow_pickle=False"),
    ],
)
def test_files_with_the_wrong_arrays(changed, said, saved, capsys):
    path = saved(**changed)
    assert main(["diagnose", path]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("fastgae diagnose: error: ")
    assert path in captured.err
    assert said in captured.err


def test_files_that_are_no_archive(tmp_path, capsys):
    text, one, cut, empty = (tmp_path / name for name in ("text.npz", "one.npy", "cut.npz", "empty.npz"))
    text.write_text("rewards")
    np.save(one, np.ones(3))
    np.savez(cut, rewards=np.ones(3))
    cut.write_bytes(cut.read_bytes()[:-30])
    empty.touch()
    for path in (text, one, cut, empty, tmp_path, tmp_path / "missing.npz"):
        assert main(["diagnose", str(path)]) == 2
        assert str(path) in capsys.readouterr().err
