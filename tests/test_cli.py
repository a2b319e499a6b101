"""The command line, run as its users run it."""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces.utils import flatten
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space, iterate

import fastgae
from fastgae.cli import demo, plot, rollout
from fastgae.cli.main import main

PACKAGE = Path(fastgae.__file__).parent.parent  # the same copy in subprocesses
PNG = b"\x89PNG\r\n\x1a\n"


def python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    settings = {name: value for name, value in os.environ.items() if not name.startswith(("FASTGAE_", "OMP_"))}
    path = os.pathsep.join(filter(None, [str(PACKAGE), settings.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env={**settings, "PYTHONPATH": path, **environment},
        timeout=120,
    )


def collected(env_id: str, num_envs: int, num_steps: int, seed: int = 0) -> rollout.CollectedRollout:
    envs = rollout.make_envs(env_id, num_envs)
    try:
        return rollout.collect(envs, num_steps, seed)
    finally:
        envs.close()


# --- the rollout ------------------------------------------------------------------------------------------------------

# CartPole terminates, Pendulum is truncated after 200 steps (in the last row, before it, and not at all), FrozenLake
# has discrete observations.
ROLLOUTS = [
    ("CartPole-v1", 3, 128),
    ("Pendulum-v1", 2, 200),
    ("Pendulum-v1", 2, 256),
    ("Pendulum-v1", 2, 50),
    ("FrozenLake-v1", 3, 128),
]


def episodes_of(env_id: str, env: int, num_envs: int, num_steps: int, seed: int) -> list[dict]:
    """The episodes of one environment, stepped on its own without any vectorisation or autoreset."""
    single = gymnasium.make(env_id)
    actions = batch_space(single.action_space, num_envs)
    actions.seed(seed)
    space = single.observation_space
    episodes, steps = [], 0
    while steps < num_steps:
        observation, _ = single.reset(seed=seed + env) if not episodes else single.reset()
        episode = {"observations": [flatten(space, observation)], "rewards": [], "ending": "cut off"}
        while episode["ending"] == "cut off" and steps < num_steps:
            action = list(iterate(actions, actions.sample()))[env]
            observation, reward, terminated, truncated, _ = single.step(action)
            episode["observations"].append(flatten(space, observation))
            episode["rewards"].append(float(reward))
            episode["ending"] = "terminated" if terminated else "truncated" if truncated else "cut off"
            steps += 1
        episodes.append(episode)
    single.close()
    return episodes


@pytest.mark.parametrize(("env_id", "num_envs", "num_steps"), ROLLOUTS)
def test_demo_advantages_are_those_of_each_episode_by_itself(env_id: str, num_envs: int, num_steps: int) -> None:
    gamma, gae_lambda, seed = 0.97, 0.9, 3
    data = collected(env_id, num_envs, num_steps, seed)
    values = rollout.ValueFunction(data.observations, seed)
    values.fit(data, gamma)
    result = fastgae.gae(**data.arguments(values), gamma=gamma, gae_lambda=gae_lambda)

    for env in range(num_envs):
        episodes = episodes_of(env_id, env, num_envs, num_steps, seed)
        rewards = [reward for episode in episodes for reward in episode["rewards"]]
        np.testing.assert_array_equal(data.rewards[:, env], np.array(rewards, np.float32))
        ends = np.cumsum([len(episode["rewards"]) for episode in episodes]) - 1
        for flags, ending in ((data.terminated, "terminated"), (data.truncated, "truncated")):
            expected = [t for t, episode in zip(ends, episodes, strict=True) if episode["ending"] == ending]
            assert np.flatnonzero(flags[:, env]).tolist() == expected

        advantages = []
        for episode in episodes:
            # One value more than rewards: after the last step comes the final observation, which is worth nothing
            # only where the episode terminated.
            value = values(np.array(episode["observations"], np.float32)).astype(np.float64)
            if episode["ending"] == "terminated":
                value[-1] = 0.0
            deltas = np.array(episode["rewards"]) + gamma * value[1:] - value[:-1]
            decay = (gamma * gae_lambda) ** np.arange(len(deltas))
            advantages += [np.sum(decay[: len(deltas) - t] * deltas[t:]) for t in range(len(deltas))]
        scale = np.abs(result.returns).max()
        np.testing.assert_allclose(result.advantages[:, env], advantages, rtol=1e-4, atol=1e-5 * scale)


def test_pendulum_is_truncated_where_the_tests_need_it() -> None:
    data = collected("Pendulum-v1", 2, 200)
    assert data.truncated[-1].all()
    assert data.truncated.sum() == 2
    assert not data.terminated.any()
    # The last row's own final observation, not the one after the reset.
    assert not np.allclose(data.final_observations, data.last_observations)


def test_collect_refuses_an_autoreset_mode_it_would_misread() -> None:
    envs = gymnasium.make_vec("CartPole-v1", 2, "sync", vector_kwargs={"autoreset_mode": AutoresetMode.NEXT_STEP})
    with pytest.raises(ValueError, match="SAME_STEP"):
        rollout.collect(envs, 4, 0)
    envs.close()


def test_rollouts_are_repeatable_by_seed() -> None:
    first, again, other = (collected("CartPole-v1", 4, 64, seed) for seed in (5, 5, 6))
    np.testing.assert_array_equal(first.observations, again.observations)
    assert not np.array_equal(first.observations, other.observations)
    fitted = [rollout.ValueFunction(data.observations, 5) for data in (first, again)]
    assert fitted[0].fit(first, 0.99) == fitted[1].fit(again, 0.99)
    np.testing.assert_array_equal(fitted[0](first.observations), fitted[1](again.observations))


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "MountainCar-v0", "Acrobot-v1", "Taxi-v3", "Blackjack-v1"])
def test_every_kind_of_space_can_be_collected_and_fitted(env_id: str) -> None:
    if env_id == "Taxi-v3":
        env_id = max(name for name in gymnasium.registry if name.startswith("Taxi-"))
    data = collected(env_id, 3, 40)
    values = rollout.ValueFunction(data.observations, 0)
    values.fit(data, 0.99)
    assert values(data.observations).shape == (40, 3)
    assert np.isfinite(values(data.observations)).all()
    assert data.rewards.dtype == values(data.observations).dtype == np.float32


# --- the value function -----------------------------------------------------------------------------------------------


def test_value_function_is_really_fitted() -> None:
    data = collected("Pendulum-v1", 8, 128)
    values = rollout.ValueFunction(data.observations, 0)
    assert values.fit(data, 0.99) > 0.8
    # And it is not only memory: it also explains a rollout that it has not seen.
    unseen = collected("Pendulum-v1", 8, 128, seed=100)
    returns = fastgae.gae(**unseen.arguments(values), gamma=0.99, gae_lambda=1.0).returns
    assert np.var(returns - values(unseen.observations)) < 0.3 * np.var(returns)


def test_value_function_finds_the_value_of_an_endless_constant_reward() -> None:
    # Acrobot pays -1 at every step, and no random policy ends an episode so soon: V = -1 / (1 - gamma).
    data = collected("Acrobot-v1", 2, 64)
    values = rollout.ValueFunction(data.observations, 0)
    assert np.isnan(values.fit(data, 0.9))
    np.testing.assert_allclose(values(data.observations), -10.0, rtol=1e-3)


# --- demo -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1"])
def test_demo_compares_every_backend(env_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--env", env_id, "--num-envs", "4", "--num-steps", "256"]) == 0
    output = capsys.readouterr().out
    assert demo.verdict(demo.variants(), {}) in output
    rows = {line.split()[1] for line in output.splitlines() if line.endswith(" x │")}
    assert rows == set(demo.variants()) >= {"numpy"}
    data = collected(env_id, 4, 256)
    terminated, truncated = data.terminated.sum(), data.truncated.sum()
    assert f"{terminated + truncated}: {terminated} terminated, {truncated} truncated" in output
    assert terminated + truncated > 0
    for backend in fastgae.backends():
        assert (f"{backend.name} cannot run here: " in output) is not backend.available


def test_variants_are_the_backends_with_their_targets() -> None:
    names = demo.variants()
    assert len(names) == len(set(names))
    for backend in fastgae.backends():
        of_backend = [name for name in names if name.partition(":")[0] == backend.name]
        assert len(of_backend) == (max(1, len(backend.targets)) if backend.available else 0)


def test_verdict_counts_backends_and_variants() -> None:
    assert demo.verdict(["cpp:avx2", "cpp:baseline", "numba", "numpy"], {}) == (
        "All 3 backends (4 variants) agree bit for bit."
    )
    assert demo.verdict(["numba", "numpy"], {}) == "All 2 backends agree bit for bit."
    assert "nothing to compare" in demo.verdict(["numpy"], {})
    assert "NOT the same bits as numpy: numba (3 numbers)" in demo.verdict(["numba", "numpy"], {"numba": 3})


def test_one_bit_is_a_difference() -> None:
    zeros = np.zeros((2, 2), np.float32)
    ulp, negative = zeros.copy(), zeros.copy()
    ulp[1, 0], negative[0, 0] = np.nextafter(np.float32(0), np.float32(1)), -0.0
    nans = np.full((2, 2), np.nan, np.float32)
    computed = {
        "numpy": fastgae.GAEResult(zeros, nans),
        "same": fastgae.GAEResult(zeros.copy(), nans.copy()),
        "ulp": fastgae.GAEResult(ulp, nans),
        "negative": fastgae.GAEResult(negative, nans),
    }
    assert demo.differing(computed) == {"ulp": 1, "negative": 1}


def test_demo_fails_where_a_backend_disagrees(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = fastgae.gae
    monkeypatch.setattr(demo, "variants", lambda: ["wrong", "numpy"])

    def gae(*args: object, backend: str, **kwargs: object) -> fastgae.GAEResult:
        result = right(*args, **kwargs, backend="numpy")  # type: ignore[arg-type]
        if backend == "wrong":
            result.returns[3, 1] = np.nextafter(result.returns[3, 1], np.float32(np.inf))
        return result

    monkeypatch.setattr(fastgae, "gae", gae)
    assert main(["demo", "--num-envs", "2", "--num-steps", "16"]) == 1
    assert "NOT the same bits as numpy: wrong (1 numbers)" in capsys.readouterr().out


def test_median_seconds_calls_everything() -> None:
    counts = {"a": itertools.count(), "b": itertools.count()}
    seconds = demo.median_seconds(
        {name: counter.__next__ for name, counter in counts.items()}, rounds=3, run_seconds=1e-5
    )
    assert set(seconds) == {"a", "b"}
    assert all(time > 0 for time in seconds.values())
    assert all(next(counter) >= 6 for counter in counts.values())


# --- plot -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("env_id", "suffix", "start"), [("CartPole-v1", "png", PNG), ("Pendulum-v1", "svg", b"<?xml")])
def test_plot_is_written(
    env_id: str, suffix: str, start: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"rollout.{suffix}"
    assert main(["demo", "--env", env_id, "--num-envs", "2", "--num-steps", "210", "--plot", str(path)]) == 0
    assert path.read_bytes().startswith(start)
    assert path.stat().st_size > 10_000
    assert str(path) in capsys.readouterr().out


def test_plot_shows_the_environment_with_most_episode_ends(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn = []
    monkeypatch.setattr(plot, "draw", lambda path, title, series: drawn.append((title, series)))
    for env_id, num_steps in (("FrozenLake-v1", 100), ("Pendulum-v1", 201)):
        options = ["--env", env_id, "--num-envs", "5", "--num-steps", str(num_steps), "--plot", str(tmp_path / "x.png")]
        assert main(["demo", *options]) == 0
        title, series = drawn.pop()
        data = collected(env_id, 5, num_steps)
        ends = (data.terminated | data.truncated).sum(0)
        env = int(ends.argmax())
        assert f"environment {env} of 5" in title
        np.testing.assert_array_equal(series.terminated, data.terminated[:, env])
        np.testing.assert_array_equal(series.rewards, data.rewards[:, env])
        np.testing.assert_array_equal(series.returns, series.advantages + series.values)
        np.testing.assert_array_equal(~np.isnan(series.final_values), data.truncated[:, env] & ~data.terminated[:, env])


@pytest.mark.parametrize("steps", [1, 2, 500])
def test_plot_of_any_length_and_of_nothing_but_ends(steps: int, tmp_path: Path) -> None:
    zeros, ends = np.zeros(steps, np.float32), np.ones(steps, np.bool_)
    series = plot.Series(zeros, zeros, zeros, zeros, ends, ~ends, np.full(steps, np.nan))
    plot.draw(tmp_path / "x.png", "all ends", series)
    assert (tmp_path / "x.png").read_bytes().startswith(PNG)


# --- errors -----------------------------------------------------------------------------------------------------------


def failure(argv: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    try:
        code = main(argv)
    except SystemExit as ended:
        code = ended.code  # type: ignore[assignment]
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1, captured.err
    return code, captured.err


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--env", "NoSuchThing-v1"], ["--env", "NoSuchThing"]),
        (["--env", "no_such_module:CartPole-v1"], ["--env", "no_such_module"]),
        (["--env", ""], ["--env"]),
        (["--num-envs", "0"], ["--num-envs", "positive integer", "'0'"]),
        (["--num-envs", "many"], ["--num-envs", "positive integer", "'many'"]),
        (["--num-steps", "-1"], ["--num-steps", "positive integer", "'-1'"]),
        (["--seed", "-1"], ["--seed", "0 or more", "'-1'"]),
        (["--gamma", "1.5"], ["--gamma", "[0, 1]", "'1.5'"]),
        (["--gae-lambda", "nan"], ["--gae-lambda", "[0, 1]", "'nan'"]),
        (["--plot", "TMP/rollout.bmp"], ["--plot", ".png", "rollout.bmp"]),
        (["--plot", "TMP/rollout"], ["--plot", ".png"]),
        (["--plot", "TMP/missing/rollout.png"], ["--plot", "missing"]),
        (["--plot", "TMP/directory.png"], ["--plot", "directory.png", "not writable"]),
        (["--no-such-option"], ["--no-such-option"]),
    ],
    ids=lambda value: " ".join(value) if value and value[0].startswith("--") and len(value) <= 2 else "",
)
def test_bad_options_end_in_one_line_before_any_work(
    options: list[str],
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def too_late(*_: object) -> None:
        raise AssertionError("the rollout was collected before the options were checked")

    monkeypatch.setattr(rollout, "collect", too_late)
    (tmp_path / "directory.png").mkdir()
    code, message = failure(["demo", *(option.replace("TMP", str(tmp_path)) for option in options)], capsys)
    assert code == 2
    assert all(word in message for word in words), message
    assert list(tmp_path.iterdir()) == [tmp_path / "directory.png"]


@pytest.mark.parametrize(("package", "options"), [("gymnasium", []), ("rich", []), ("matplotlib", ["--plot", "x.png"])])
def test_missing_extra_says_how_to_install_it(
    package: str, options: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    code, message = failure(["demo", *options], capsys)
    assert code == 1
    assert package in message
    assert "pip install 'fastgae-rl[demo]'" in message


def test_unusable_number_of_threads(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(fastgae._dispatch.SETTINGS, "FASTGAE_NUM_THREADS", "lots")
    code, message = failure(["demo"], capsys)
    assert code == 1
    assert "FASTGAE_NUM_THREADS" in message
    assert "lots" in message


def test_environment_without_flat_observations(capsys: pytest.CaptureFixture[str]) -> None:
    class Words(gymnasium.Env):
        observation_space = gymnasium.spaces.Sequence(gymnasium.spaces.Discrete(3))
        action_space = gymnasium.spaces.Discrete(2)

    gymnasium.register("FastgaeWords-v0", entry_point=Words)
    try:
        code, message = failure(["demo", "--env", "FastgaeWords-v0"], capsys)
    finally:
        del gymnasium.registry["FastgaeWords-v0"]
    assert code == 2
    assert "--env" in message
    assert "observations" in message


# --- info -------------------------------------------------------------------------------------------------------------


def test_info_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["fastgae"] == fastgae.__version__
    assert facts["numpy"] == np.__version__
    assert len(facts["backends"]) == len(fastgae.backends())
    for shown, backend in zip(facts["backends"], fastgae.backends(), strict=True):
        assert {**shown, "targets": tuple(shown["targets"])} == {**backend._asdict(), "target": shown["target"]}
        assert shown["target"] in ((*backend.targets,) or (None,))
    assert set(facts["environment"]) == set(fastgae._dispatch.ENVIRONMENT)


def test_info_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info"]) == 0
    text = capsys.readouterr().out
    for word in (fastgae.__version__, np.__version__, "default backend", "threads", *fastgae._dispatch.ENVIRONMENT):
        assert word in text
    rows = {line.split()[0]: line for line in text.splitlines() if line.split()[1:2] in (["yes"], ["no"])}
    assert list(rows) == [backend.name for backend in fastgae.backends()]
    for backend in fastgae.backends():
        row = rows[backend.name]
        assert row.split()[1] == ("yes" if backend.available else "no")
        assert all(target in row for target in backend.targets)
        assert ((backend.version if backend.available else backend.why_missing) or "").splitlines()[0] in row


def test_info_needs_numpy_alone() -> None:
    code = "import sys; sys.modules.update(dict.fromkeys(['rich', 'gymnasium', 'matplotlib', 'numba'])); "
    done = python("-c", code + "from fastgae.cli.main import main; sys.exit(main(['info', '--json']))")
    assert done.returncode == 0, done.stderr
    missing = {backend["name"]: backend["why_missing"] for backend in json.loads(done.stdout)["backends"]}
    assert missing["numpy"] is None
    assert missing["numba"]


def test_info_reports_settings_that_cannot_be_honoured() -> None:
    done = python("-m", "fastgae", "info", "--json", FASTGAE_BACKEND="fortran", FASTGAE_NUM_THREADS="0")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["default_backend"] is None
    assert facts["num_threads"] is None
    assert any("FASTGAE_BACKEND" in problem and "fortran" in problem for problem in facts["problems"])
    assert any("FASTGAE_NUM_THREADS" in problem for problem in facts["problems"])
    assert facts["environment"]["FASTGAE_BACKEND"]["value"] == "fortran"


def test_info_shows_the_settings_in_force() -> None:
    done = python("-m", "fastgae", "info", FASTGAE_BACKEND="numpy", FASTGAE_NUM_THREADS="3")
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["default", "backend", "numpy"] in rows
    assert ["threads", "3"] in rows
    assert any(row[:2] == ["FASTGAE_NUM_THREADS", "3"] for row in rows)


# --- the command itself -----------------------------------------------------------------------------------------------


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"fastgae {fastgae.__version__}\n"


def test_without_a_command_it_shows_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    help_text = capsys.readouterr().err
    assert "info" in help_text
    assert "demo" in help_text
    assert "examples:" in help_text


@pytest.mark.parametrize("command", ["info", "demo"])
def test_help_has_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert f"examples:\n  fastgae {command}" in capsys.readouterr().out


def test_the_command_line_imports_nothing_heavy() -> None:
    heavy = "{'numba', 'gymnasium', 'rich', 'matplotlib', 'torch'}"
    done = python("-c", f"import sys, fastgae.cli.main; print(sorted({heavy} & set(sys.modules)))")
    assert done.stdout == "[]\n", done.stderr
