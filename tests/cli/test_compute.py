"""The command `compute`: what it writes, what it prints, and one line for what it cannot use."""

import functools
import inspect
import itertools
import json
import pkgutil
import re
import signal
import sys

import numpy as np
import pytest

import fastgae
from fastgae.cli.main import main

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def recorded(tmp_path):
    """Return a file of ten episodes that end for good, and its rewards and values."""
    rewards, values = np.random.default_rng(0).normal(size=(2, 1000)).astype(np.float32)
    rows = np.arange(1000)
    columns = {"run": rows // 100, "step": rows % 100, "reward": rewards, "values": values}
    pq.write_table(pa.table(columns), tmp_path / "episodes.parquet")
    return tmp_path / "episodes.parquet", rewards, values


COLUMNS = ["--column", "rewards=reward", "--column", "episode=run"]


def compute(source, *options):
    return main(["compute", str(source), *COLUMNS, *options])


def test_results_and_table(recorded, capsys):
    source, rewards, values = recorded
    assert compute(source, "--ends", "terminated", "--gamma", "0.9", "--gae-lambda", "0.8") == 0
    captured = capsys.readouterr()
    assert "1,000" in captured.out
    assert "episodes.advantages.parquet" in captured.out
    assert re.search(r" s, [1-9][\d,]* steps/s", captured.out)
    assert "computing: 100%" in captured.err
    expected = fastgae.gae_packed(rewards, values, np.arange(0, 1001, 100), gamma=0.9, gae_lambda=0.8)
    got = pq.read_table(source.with_name("episodes.advantages.parquet"))
    assert got.column_names == ["run", "step", "advantages", "returns"]
    assert np.array_equal(got["advantages"], expected.advantages)
    assert np.array_equal(got["returns"], expected.returns)


def test_a_backend_that_is_not_there(recorded, capsys, under, monkeypatch):
    under(FASTGAE_BACKEND="numba")
    monkeypatch.setattr("fastgae._engine.dispatch._import", lambda name: ModuleNotFoundError("no numba", name="numba"))
    assert compute(recorded[0], "--ends", "terminated") == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_diagnose_reads_what_compute_reads(recorded, tmp_path, capsys, monkeypatch):
    source = str(recorded[0])
    assert main(["diagnose", source, *COLUMNS, "--ends", "terminated"]) == 1
    said = capsys.readouterr().out
    assert "truncation_as_termination: looks like a time limit" in said
    assert "finding in 1,000 steps\n" in said  # whose envs are not known
    # a critic that knows the rest of each episode, and flags a row late, in rows of any order
    rows, rng = np.arange(1000), np.random.default_rng(0)
    flags = rng.random(1000) < 0.04
    to_go = fastgae.discounted_returns(np.ones(1000), flags | (rows == 999))
    knows = (to_go + rng.normal(0, 0.1, 1000)).astype(np.float32)
    late = {"run": 0 * rows, "step": rows, "rewards": np.ones(1000), "values": knows, "terminated": np.roll(flags, 1)}
    pq.write_table(pa.table(late).take(rng.permutation(1000)), tmp_path / "late.parquet")
    arguments = ["diagnose", str(tmp_path / "late.parquet"), "--column", "env=run", "--ends", "terminated"]
    critic = tmp_path / "values.npy"
    assert main([*arguments, "--json"]) == 1
    assert [each["detector"] for each in json.loads(capsys.readouterr().out)["findings"]] == ["flags_shifted"]
    assert main([*arguments, "--time-axis", "1"]) == 2
    assert "--time-axis is for a rollout in a file .npz" in capsys.readouterr().err
    # the rows of ten episodes in turn, which their names and flags tell apart
    said = []
    turns = pq.read_table(source).drop(["step"]).append_column("terminated", pa.array(rows % 100 == 99))
    for table in (turns, turns.take(np.argsort(rows % 100, kind="stable"))):
        pq.write_table(table, tmp_path / "turns.parquet")
        main(["diagnose", str(tmp_path / "turns.parquet"), *COLUMNS, "--json"])
        said.append(json.loads(capsys.readouterr().out))
    first, moved = (each["findings"][0]["where"].pop("first") for each in said)
    assert said[0] == said[1]
    assert [[np.argsort(rows % 100, kind="stable")[t]] for (t,) in moved] == first == [[99], [199], [299], [399]]
    monkeypatch.setattr(sys.modules["fastgae.data.report"], "SAMPLE", 850)
    assert main(["diagnose", source, *COLUMNS, "--ends", "terminated"]) == 1
    assert "where   t=299, t=399, " in capsys.readouterr().out
    assert main(["compute", source, *COLUMNS, "--ends", "terminated"]) == 0
    assert capsys.readouterr().out.endswith("\n`fastgae diagnose` says where in the data, and what to change\n")
    np.save(critic, np.zeros(999))
    assert main([*arguments, "--values", str(critic)]) == 2
    assert str(critic) in capsys.readouterr().err
    assert main(["diagnose", str(tmp_path / "none.parquet")]) == 2
    assert "none.parquet' does not exist" in capsys.readouterr().err
    asked = {}
    monkeypatch.setattr(sys.modules["fastgae.data.compute"], "diagnose", lambda _, **given: asked.update(given) or "")
    for options, expected in (([], (0.99, None)), (["--gamma", "0", "--gae-lambda", "0"], (0, 0))):
        assert main(["diagnose", source, *options]) == 0
        assert (asked["gamma"], asked["gae_lambda"]) == expected


def test_every_option_is_an_argument(monkeypatch, capsys):
    """The tests of ``fastgae.data.compute`` say what the arguments do."""
    from fastgae import data

    asked = {}

    @functools.wraps(data.compute)
    def computed(source, out, **options):
        asked.update(options, source=source, out=out)
        return data.Report("out.parquet", 1, 2, *[0.0] * 5, True, (), 1.0)

    names = inspect.signature(data.compute).parameters.keys() - {"backend", "num_threads"}
    monkeypatch.setattr(data, "compute", computed)
    options = """a b --column rewards=r --column episode=e --values v.npy --episode file --ends terminated
        --rewards s:-1:30 --format rllib --memory 40KB --out out.parquet --gamma 0.5 --estimator n_step_returns
        --gae-lambda 0.25 --n 3 --normalize global --label-quantile 0.7 --label-per task --into copy.parquet
        --plot a.png --resume --overwrite --column step="""
    assert main(["compute", *options.split(), "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    expected = {
        "source": ["a", "b"],
        "columns": {"rewards": "r", "episode": "e", "step": None},
        "values": "v.npy",
        "episode_is": "file",
        "ends": "terminated",
        "rewards": "s:-1:30",
        "format": "rllib",
        "memory": "40KB",
        "out": "out.parquet",
        "gamma": 0.5,
        "estimator": "n_step_returns",
        "gae_lambda": 0.25,
        "n": 3,
        "normalize": "global",
        "label_quantile": 0.7,
        "label_per": "task",
        "into": "copy.parquet",
        "resume": True,
        "overwrite": True,
        "progress": False,
    }
    assert {name: value for name, value in asked.items() if name != "plot"} == expected
    assert str(asked["plot"]) == "a.png"
    assert asked.keys() == names
    assert main(["compute", "a", "--quiet", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 2


def test_plot(recorded, capsys, tmp_path):
    pytest.importorskip("matplotlib")
    source, *_ = recorded
    assert compute(source, "--ends", "terminated", "--plot", str(tmp_path / "a.svg")) == 0
    assert (tmp_path / "a.svg").read_bytes().startswith(b"<?xml")
    assert f"Plot in {tmp_path / 'a.svg'}" in capsys.readouterr().out
    options = ["--ends", "terminated", "--json", "-o", str(tmp_path / "b.parquet"), "--plot", str(tmp_path / "b.png")]
    assert compute(source, *options) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 1000
    kept = (tmp_path / "b.png").stat().st_mtime_ns
    assert compute(source, *options[:2], *options[3:], "--resume") == 0
    assert "written" not in capsys.readouterr().out  # it was there
    assert (tmp_path / "b.png").stat().st_mtime_ns == kept


def test_ctrl_c(recorded, capsys, monkeypatch):
    """One line, and what ``--resume`` needs."""
    source, *_ = recorded
    rows, out = np.random.default_rng(0).permutation(1000), source.with_name("episodes.advantages.parquet")
    pq.write_table(pq.read_table(source).take(rows), source, row_group_size=100)
    options = ["--ends", "terminated", "--memory", "40KB", "--quiet"]
    assert compute(source, *options) == 0
    undisturbed = out.read_bytes()
    out.unlink()
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # which a job in the background ignores
    for name, call, resumed in (
        ("state.State.results", 1, True),
        ("walk.compute_run", 1, True),
        ("walk.compute_run", 3, True),
        ("state.version_of", 1, False),
        ("walk.sort", 1, False),
        ("rows.Rows._completed", 6, False),  # while duckdb reads
    ):
        calls, kept = itertools.count(1), pkgutil.resolve_name(f"fastgae.data.{name}")

        def interrupted(*arguments, calls=calls, kept=kept, call=call, **more):
            if next(calls) == call:
                signal.raise_signal(signal.SIGINT)
            return kept(*arguments, **more)

        with monkeypatch.context() as patched:
            patched.setattr(f"fastgae.data.{name}", interrupted)
            assert compute(source, *options) == 130
        way = "; --resume continues from the rows that are done" if resumed else ""
        assert capsys.readouterr() == ("", f"fastgae compute: interrupted{way}\n")
        assert source.with_name("episodes.advantages.parquet.unfinished").exists() == resumed, name
        assert compute(source, *options, "--resume") == 0
        assert out.read_bytes() == undisturbed, name
        out.unlink()
    signal.signal(signal.SIGINT, handler)


def test_what_cannot_be_used(recorded, failure):
    source, *_ = recorded
    for options, message in (
        (["-o", "results.csv"], "out must end in .parquet, .arrow"),
        (["--column", "values=v"], "there is no column 'v' for values; there are run, step, reward, values"),
        (["--column", "reward"], "expected ROLE=NAME, such as rewards=next.reward, got 'reward'"),
        (["--values", "none.npy"], "error: --values 'none.npy' does not exist"),
        (["--memory", "1000000"], "expected an amount of memory such as 256MB, got '1000000'"),
        (["--critic", "my_critic"], "argument --critic: expected MODULE:NAME"),
        (["--critic", "my:critic", "--values", "v"], "argument --values: not allowed with argument --critic"),
        (["--plot", "a.jpg"], "argument --plot: expected a file name that ends in .png, .pdf, .svg, got 'a.jpg'"),
    ):
        status, line = failure("compute", source, *COLUMNS, "--ends", "terminated", *options)
        assert status == 2
        assert message in line
    assert list(source.parent.iterdir()) == [source]


def test_without_an_extra(recorded, python, failure, monkeypatch):
    source, *_ = recorded
    code = "import sys; sys.modules['pyarrow'] = None\nfrom fastgae.cli.main import main\nsys.exit(main(sys.argv[1:]))"
    no_pyarrow = python(code, "compute", str(source), check=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    no_matplotlib = failure("compute", source, "--plot", "a.png")
    for extra, (status, line) in (("data", (no_pyarrow.returncode, no_pyarrow.stderr)), ("plot", no_matplotlib)):
        assert status == 2
        assert line.count(f"pip install '.[{extra}]'") == line.count("\n") == 1
    assert list(source.parent.iterdir()) == [source]


def test_critic(recorded, capsys, tmp_path, monkeypatch):
    """A function, or a Critic that chooses columns, in a module of the current folder, and what it imports later."""
    source, rewards, values = recorded
    table = pq.read_table(source)
    pq.write_table(table.append_column("state", table["values"]).drop(["values"]), source)
    (tmp_path / "my_critic.py").write_text(
        "import sys\n\nimport fastgae.data\n\nsys.path.insert(0, 'library')\n\n"
        "def twice(batch):\n    import my_times, my_two\n    return my_times.times(batch['state'], my_two.TWO)\n\n"
        "chosen = fastgae.data.Critic(twice, columns=['state'], rows=7)\n"
    )
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "my_times.py").write_text("def times(array, number):\n    return array * number\n")
    (tmp_path / "my_two.py").write_text("TWO = 2\n")
    monkeypatch.chdir(tmp_path)
    expected = fastgae.gae_packed(rewards, values * 2, np.arange(0, 1001, 100), gamma=0.99)
    before = sys.path[:]
    for name in ("twice", "chosen"):
        assert compute(source, "--ends", "terminated", "--critic", f"my_critic:{name}", "--overwrite", "--quiet") == 0
        got = pq.read_table(source.with_name("episodes.advantages.parquet"))
        assert np.array_equal(got["advantages"], expected.advantages)
        assert sys.path == before
    for given, message in (
        ("my_critic:no", "--critic my_critic:no cannot be loaded: module 'my_critic' has no attribute 'no'"),
        ("my_critic:__name__", "cannot be loaded: values must be a column, a file such as values.npy, or a function"),
        ("no_such:f", "--critic no_such:f cannot be loaded: No module named 'no_such'"),
    ):
        assert compute(source, "--critic", given) == 2
        assert message in capsys.readouterr().err


def test_errors_name_options(recorded, capsys):
    """The same errors name arguments in Python."""
    from fastgae.data import compute as in_python

    source, *_ = recorded
    ends = {"ends": "terminated"}
    columns = {"columns": {"rewards": "reward", "episode": "run"}}
    results = source.with_name("a.parquet")
    in_python(source, results, progress=False, **columns, **ends)
    exists = ("pass another path, or pass --overwrite", "another path, or pass overwrite=True")
    wrong_n = (
        "--n is for n_step_returns, got 3 and --estimator gae",
        'n is for n_step_returns, got 3 and estimator="gae"',
    )
    for arguments, options, in_options, in_arguments in (
        ({}, [], "or pass --ends terminated if all did", 'or pass ends="terminated" if all did'),
        ({"columns": {}}, None, "pass --column rewards=reward", "pass columns={'rewards': 'reward'}"),
        ({**ends, "out": results}, ["-o", results], *exists),
        ({**ends, "n": 3}, ["--n", "3"], *wrong_n),
        (
            {"columns": {"reward": "rewards"}},
            ["--column", "reward=rewards"],
            "error: --column reward=rewards: unknown role",
            "columns={'reward': 'rewards'}: unknown role",
        ),
        ({**ends, "into": "a", "out": "b"}, ["--into", "a", "-o", "b"], "--out and --into both", "out and into both"),
        ({**ends, "label_quantile": 7}, ["--label-quantile", "7"], "--label-quantile must be", "label_quantile must"),
    ):
        with pytest.raises(ValueError) as caught:  # noqa: PT011
            in_python(source, progress=False, **{**columns, **arguments})
        assert in_arguments in str(caught.value)
        if options is None:
            assert main(["compute", str(source)]) == 2
        else:
            assert compute(source, *(["--ends", "terminated"] if "ends" in arguments else []), *map(str, options)) == 2
        assert in_options in capsys.readouterr().err
