"""The examples run: a few updates in every mode, and what they write."""

import csv
import importlib
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("gymnasium")

EXAMPLES = Path(__file__).parents[2] / "examples"
MODES = ("next_step", "same_step", "disabled")
ENVIRONMENTS = ("CartPole-v1", "Pendulum-v1")


@pytest.fixture
def example(monkeypatch):
    """Import an example by its name."""
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setattr(sys, "argv", ["example"])
    torch.set_num_threads(1)
    return importlib.import_module


def calls_of(program, monkeypatch):
    """Return the list to which each call of ``fastgae.gae`` by the example will add its arguments."""
    calls, gae = [], program.fastgae.gae
    monkeypatch.setattr(program.fastgae, "gae", lambda *given, **named: calls.append(named) or gae(*given, **named))
    return calls


def short(ppo, **changes):
    given = {"max_episode_steps": 15, "total_steps": 256, "num_envs": 4, "num_steps": 32, "epochs": 2}
    return replace(ppo.Settings(), **(given | changes))


def logged(ppo, settings):
    """All but the time, and the weights in the end."""
    logs, agent = [], None
    for log, agent in ppo.train(settings):  # noqa: B007
        logs.append(log._replace(seconds=0.0))
    return logs, {name: array.numpy().tobytes() for name, array in agent.state_dict().items()}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("env_id", ENVIRONMENTS)
def test_ppo_trains(example, env_id, mode):
    ppo = example("ppo_cleanrl_style")
    settings = short(ppo, env_id=env_id, autoreset=mode)
    logs, weights = logged(ppo, settings)
    assert 256 <= logs[-1].step < 256 + 4 * 32
    assert logs[-1].episodes >= 4 * 3
    assert all(np.isfinite(each).all() for each in logs if each.episodes)
    assert 0 < logs[-1].mean_length <= 15
    assert logged(ppo, settings) == (logs, weights)
    assert logged(ppo, replace(settings, seed=1))[1] != weights
    if mode == "disabled":
        assert logged(ppo, replace(settings, autoreset="same_step")) == (logs, weights)


def test_reset_rows_are_not_trained_on(example, monkeypatch):
    ppo = example("ppo_cleanrl_style")
    collect, poisoned = ppo.collect, []

    def without_their_actions(*arguments, **keywords):
        for rollout in collect(*arguments, **keywords):
            rollout.actions[~rollout.valid] = np.nan
            poisoned.append(np.isnan(rollout.actions).sum())
            yield rollout

    monkeypatch.setattr(ppo, "collect", without_their_actions)
    logs, _ = logged(ppo, short(ppo, env_id="Pendulum-v1", autoreset="next_step"))
    assert min(poisoned) > 0
    assert np.isfinite([log.policy_loss for log in logs]).all()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("truncation", ["right", "as-termination"])
def test_what_truncation_does(example, monkeypatch, mode, truncation):
    ppo = example("ppo_cleanrl_style")
    calls = calls_of(ppo, monkeypatch)
    next(ppo.train(short(ppo, env_id="Pendulum-v1", autoreset=mode, truncation=truncation)))
    (call,) = calls
    right = truncation == "right"
    assert ("truncated" in call) == right
    assert call["terminated"].any() == (not right)
    assert ("final_values" in call) == (right and mode != "next_step")


def test_ppo_from_the_command_line(example, tmp_path, capsys):
    ppo = example("ppo_cleanrl_style")
    log, plot = tmp_path / "log.csv", tmp_path / "plot.svg"
    ppo.main(f"--total-steps 600 --num-steps 32 --seed 4 --csv {log} --plot {plot}".split())
    assert capsys.readouterr().out.startswith("CartPole-v1, seed 4: ")
    rows = list(csv.DictReader(log.read_text().splitlines()))
    assert tuple(rows[0]) == ppo.Log._fields
    assert [float(row["step"]) for row in rows] == sorted(float(row["step"]) for row in rows)
    assert "<svg" in plot.read_text()


def test_ppo_cartpole(example, monkeypatch, tmp_path, capsys):
    program, plot = example("ppo_cartpole"), tmp_path / "plot.svg"
    calls = calls_of(program, monkeypatch)
    program.main(["--updates", "4", "--plot", str(plot)])
    assert "2,048 rows: mean return of the last 100 episodes" in capsys.readouterr().out
    assert not calls[0]["prev_done"].any()
    assert any(call["prev_done"].any() for call in calls)  # an episode ended in the last row of a rollout
    assert "<svg" in plot.read_text()
    curve = program.train(30)
    assert curve[-1] > 2 * curve[0]


def test_tokens(example, tmp_path, capsys):
    program, plot = example("tokens"), tmp_path / "plot.svg"
    program.main(["--updates", "2", "--plot", str(plot)])
    shown = capsys.readouterr().out
    assert [line.partition(":")[0] for line in shown.splitlines()] == ["GRPO", "RLOO", "PPO"]
    assert "<svg" in plot.read_text()
    for method in ("GRPO", "RLOO", "PPO"):
        curve = program.train(method, 40)
        assert curve[-1] > curve[0] + 0.2, method


@pytest.mark.parametrize("given", ["ppo_cartpole --updates 0", "tokens --updates 0", "ppo_cleanrl_style --num-envs 0"])
def test_numbers_that_are_too_small(example, capsys, given):
    name, option, number = given.split()
    with pytest.raises(SystemExit):
        example(name).main([option, number])
    assert f"error: {option} must be at least 1" in capsys.readouterr().err


def test_a_folder_that_is_missing_is_said_before_the_training(example, tmp_path, capsys):
    for name in ("ppo_cartpole", "tokens", "ppo_cleanrl_style"):
        with pytest.raises(SystemExit):
            example(name).main(["--plot", str(tmp_path / "none" / "plot.svg")])
        assert f"error: --plot: there is no folder {tmp_path / 'none'}" in capsys.readouterr().err


def test_examples_to_copy_are_short():
    for name in ("ppo_cartpole", "ppo_jax", "tokens"):
        assert len((EXAMPLES / f"{name}.py").read_text(encoding="utf-8").splitlines()) < 150


def test_ppo_jax_trains_the_same_both_ways(python, tmp_path):
    pytest.importorskip("jax")
    plot = tmp_path / "plot.svg"
    given = f"--updates 3 --seeds 2 --plot {plot}".split()
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import ppo_jax; "
        "ppo_jax.ENVS, ppo_jax.STEPS, ppo_jax.MOST_STEPS = 4, 32, 9; ppo_jax.main(sys.argv[2:])"
    )
    fast = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"  # to compile, not to run
    shown = python(code, str(EXAMPLES), *given, XLA_FLAGS=fast)
    assert shown.count("mean return 9.0 after 384 steps") == 3  # no pole falls so early
    assert "weights of fastgae and lax.scan: the same bits" in shown
    assert "<svg" in plot.read_text()
    for wrong, error in (("--updates 0", "must be at least 1"), ("--plot none/plot.svg", "there is no folder none")):
        assert error in python(code, str(EXAMPLES), *wrong.split(), check=False).stderr


def test_the_drop_in_changes_nothing(example, capsys):
    pytest.importorskip("stable_baselines3")
    assert example("sb3_drop_in").main(["--total-steps", "2048", "--env-id", "Pendulum-v1"]) == 0
    assert "weights: the same bits" in capsys.readouterr().out


def test_curves(example, monkeypatch, tmp_path):
    pytest.importorskip("matplotlib")
    ppo, curves = example("ppo_cleanrl_style"), example("curves")
    tiny = {
        name: short(ppo, env_id=each.env_id, truncation=each.truncation, total_steps=128)
        for name, each in curves.EXPERIMENTS.items()
    }
    monkeypatch.setattr(curves, "POINTS", 1)
    monkeypatch.setattr(curves, "EXPERIMENTS", tiny)
    monkeypatch.setattr(curves, "CURVES", tmp_path)
    monkeypatch.setattr(curves, "DATA", tmp_path / "runs.csv")
    curves.train_all(seeds=1)
    curves.draw_all()
    assert {path.name for path in tmp_path.glob("*.svg")} == {"learning_curves.svg", "truncation.svg"}


@pytest.mark.parametrize("data_format", ["hdf5", "arrow"])
@pytest.mark.filterwarnings("ignore:Implicitly cleaning up:ResourceWarning")  # of the folder that Minari collects in
def test_minari_critic(example, tmp_path, data_format):
    for library in ("minari", "h5py", "jax"):
        pytest.importorskip(library)
    program = example("minari_critic")
    given = [str(tmp_path), "--steps", "500", "--updates", "20", "--data-format", data_format]
    report = program.main(program.parse(given))
    assert (report.steps, report.episodes) == (500, 3)
    assert Path(report.file).is_file()


def test_lerobot_labels(example, tmp_path):
    for library in ("matplotlib", "pyarrow"):
        pytest.importorskip(library)
    program = example("lerobot_labels")
    given = [str(tmp_path / "reach"), "--episodes", "12", "--plot", str(tmp_path / "labels.png")]
    report = program.main(program.parse(given))
    assert report.episodes == 12
    labelled = program.labelled(tmp_path / "reach")["positive"]
    assert len(labelled) == report.steps
    assert 0.29 < labelled.mean() < 0.31
    for wrong in (["--episodes", "0"], ["--plot", str(tmp_path / "none" / "labels.png")]):
        with pytest.raises(SystemExit):
            program.parse([str(tmp_path / "other"), *wrong])
    assert (tmp_path / "labels.png").is_file()
