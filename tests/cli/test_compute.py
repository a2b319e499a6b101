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
TERMINATED = ["--ends", "terminated"]


def test_results_and_table(recorded, ran):
    source, rewards, values = recorded
    captured = ran("compute", source, *COLUMNS, *TERMINATED, "--gamma", 0.9, "--gae-lambda", 0.8)
    assert "1,000" in captured.out
    assert "episodes.advantages.parquet" in captured.out
    assert re.search(r" s, [1-9][\d,]* steps/s", captured.out)
    assert "computing: 100%" in captured.err
    expected = fastgae.gae_packed(rewards, values, np.arange(0, 1001, 100), gamma=0.9, gae_lambda=0.8)
    got = pq.read_table(source.with_name("episodes.advantages.parquet"))
    assert got.column_names == ["run", "step", "advantages", "returns"]
    assert np.array_equal(got["advantages"], expected.advantages)
    assert np.array_equal(got["returns"], expected.returns)


def test_a_backend_that_is_not_there(recorded, ran, under, monkeypatch):
    under(FASTGAE_BACKEND="numba")
    monkeypatch.setattr("fastgae._engine.dispatch._import", lambda name: ModuleNotFoundError("no numba", name="numba"))
    assert ran("compute", recorded[0], *COLUMNS, *TERMINATED, status=2).err.count("\n") == 1


def test_diagnose_reads_what_compute_reads(recorded, tmp_path, ran, monkeypatch):
    source = recorded[0]
    said = ran("diagnose", source, *COLUMNS, *TERMINATED, status=1).out
    assert "truncation_as_termination: looks like a time limit" in said
    assert "finding in 1,000 steps\n" in said  # whose envs are not known
    # a critic that knows the rest of each episode, and flags a row late, in rows of any order
    rows, rng = np.arange(1000), np.random.default_rng(0)
    flags = rng.random(1000) < 0.04
    to_go = fastgae.discounted_returns(np.ones(1000), flags | (rows == 999))
    knows = (to_go + rng.normal(0, 0.1, 1000)).astype(np.float32)
    late = {"run": 0 * rows, "step": rows, "rewards": np.ones(1000), "values": knows, "terminated": np.roll(flags, 1)}
    pq.write_table(pa.table(late).take(rng.permutation(1000)), tmp_path / "late.parquet")
    arguments = ["diagnose", tmp_path / "late.parquet", "--column", "env=run", *TERMINATED]
    findings = json.loads(ran(*arguments, "--json", status=1).out)["findings"]
    assert [each["detector"] for each in findings] == ["flags_shifted"]
    assert "--time-axis is for a rollout in a file .npz" in ran(*arguments, "--time-axis", 1, status=2).err
    # the rows of ten episodes in turn, which their names and flags tell apart
    said = []
    turns = pq.read_table(source).drop(["step"]).append_column("terminated", pa.array(rows % 100 == 99))
    for table in (turns, turns.take(np.argsort(rows % 100, kind="stable"))):
        pq.write_table(table, tmp_path / "turns.parquet")
        said.append(json.loads(ran("diagnose", tmp_path / "turns.parquet", *COLUMNS, "--json", status=1).out))
    first, moved = (each["findings"][0]["where"].pop("first") for each in said)
    assert said[0] == said[1]
    assert [[np.argsort(rows % 100, kind="stable")[t]] for (t,) in moved] == first == [[99], [199], [299], [399]]
    monkeypatch.setattr(sys.modules["fastgae.data.report"], "SAMPLE", 850)
    assert "where   t=299, t=399, " in ran("diagnose", source, *COLUMNS, *TERMINATED, status=1).out
    said = ran("compute", source, *COLUMNS, *TERMINATED).out
    assert said.endswith("\n`fastgae diagnose` says where in the data, and what to change\n")
    np.save(critic := tmp_path / "values.npy", np.zeros(999))
    assert str(critic) in ran(*arguments, "--values", critic, status=2).err
    assert "none.parquet' does not exist" in ran("diagnose", tmp_path / "none.parquet", status=2).err
    asked = {}
    monkeypatch.setattr(sys.modules["fastgae.data.compute"], "diagnose", lambda _, **given: asked.update(given) or "")
    for options, expected in (([], (0.99, None)), (["--gamma", 0, "--gae-lambda", 0], (0, 0))):
        ran("diagnose", source, *options)
        assert (asked["gamma"], asked["gae_lambda"]) == expected


def test_every_option_is_an_argument(monkeypatch, ran):
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
    assert ran("compute", *options.split(), "--quiet") == ("", "")
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
    assert json.loads(ran("compute", "a", "--quiet", "--json").out)["steps"] == 2


def test_plot(recorded, ran, tmp_path):
    pytest.importorskip("matplotlib")
    call = ["compute", recorded[0], *COLUMNS, *TERMINATED]
    assert f"Plot in {tmp_path / 'a.svg'}" in ran(*call, "--plot", tmp_path / "a.svg").out
    assert (tmp_path / "a.svg").read_bytes().startswith(b"<?xml")
    options = ["-o", tmp_path / "b.parquet", "--plot", tmp_path / "b.png"]
    assert json.loads(ran(*call, "--json", *options).out)["steps"] == 1000
    kept = (tmp_path / "b.png").stat().st_mtime_ns
    assert "written" not in ran(*call, *options, "--resume").out  # it was there
    assert (tmp_path / "b.png").stat().st_mtime_ns == kept


def test_ctrl_c(recorded, ran, monkeypatch):
    """One line, and what ``--resume`` needs."""
    source, *_ = recorded
    rows, out = np.random.default_rng(0).permutation(1000), source.with_name("episodes.advantages.parquet")
    pq.write_table(pq.read_table(source).take(rows), source, row_group_size=100)
    command = ["compute", source, *COLUMNS, *TERMINATED, "--memory", "40KB", "--quiet"]
    ran(*command)
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
            printed = ran(*command, status=130)
        way = "; --resume continues from the rows that are done" if resumed else ""
        assert printed == ("", f"fastgae compute: interrupted{way}\n")
        assert source.with_name("episodes.advantages.parquet.unfinished").exists() == resumed, name
        ran(*command, "--resume")
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
        assert message in failure("compute", source, *COLUMNS, *TERMINATED, *options)
    assert list(source.parent.iterdir()) == [source]


def test_without_an_extra(recorded, python, failure, monkeypatch):
    source, *_ = recorded
    code = "import sys; sys.modules['pyarrow'] = None\nfrom fastgae.cli.main import main\nsys.exit(main(sys.argv[1:]))"
    no_pyarrow = python(code, "compute", str(source), check=False)
    assert no_pyarrow.returncode == 2
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for extra, line in (("data", no_pyarrow.stderr), ("plot", failure("compute", source, "--plot", "a.png"))):
        assert line.count(f"pip install '.[{extra}]'") == line.count("\n") == 1
    assert list(source.parent.iterdir()) == [source]


def test_critic(recorded, ran, tmp_path, monkeypatch):
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
    call = ["compute", source, *COLUMNS]
    for name in ("twice", "chosen"):
        ran(*call, *TERMINATED, "--critic", f"my_critic:{name}", "--overwrite", "--quiet")
        got = pq.read_table(source.with_name("episodes.advantages.parquet"))
        assert np.array_equal(got["advantages"], expected.advantages)
        assert sys.path == before
    for given, message in (
        ("my_critic:no", "--critic my_critic:no cannot be loaded: module 'my_critic' has no attribute 'no'"),
        ("my_critic:__name__", "cannot be loaded: values must be a column, a file such as values.npy, or a function"),
        ("no_such:f", "--critic no_such:f cannot be loaded: No module named 'no_such'"),
    ):
        assert message in ran(*call, "--critic", given, status=2).err


def test_errors_name_options(recorded, ran):
    """The same errors name arguments in Python."""
    from fastgae.data import compute as in_python

    source, *_ = recorded
    ends, given = {"ends": "terminated"}, [*COLUMNS, *TERMINATED]
    columns = {"columns": {"rewards": "reward", "episode": "run"}}
    results = source.with_name("a.parquet")
    in_python(source, results, progress=False, **columns, **ends)
    exists = "pass another path, or pass --overwrite", "another path, or pass overwrite=True"
    n = "is for n_step_returns, got 3 and"
    unknown_role = "error: --column reward=rewards: unknown role", "columns={'reward': 'rewards'}: unknown role"
    both = "--out and --into both", "out and into both"
    quantile = "--label-quantile must be", "label_quantile must"
    for arguments, options, in_options, in_arguments in (
        ({}, COLUMNS, "or pass --ends terminated if all did", 'or pass ends="terminated" if all did'),
        ({"columns": {}}, [], "pass --column rewards=reward", "pass columns={'rewards': 'reward'}"),
        ({**ends, "out": results}, [*given, "-o", results], *exists),
        ({**ends, "n": 3}, [*given, "--n", 3], f"--n {n} --estimator gae", f'n {n} estimator="gae"'),
        ({"columns": {"reward": "rewards"}}, [*COLUMNS, "--column", "reward=rewards"], *unknown_role),
        ({**ends, "into": "a", "out": "b"}, [*given, "--into", "a", "-o", "b"], *both),
        ({**ends, "label_quantile": 7}, [*given, "--label-quantile", 7], *quantile),
    ):
        with pytest.raises(ValueError) as caught:  # noqa: PT011
            in_python(source, progress=False, **{**columns, **arguments})
        assert in_arguments in str(caught.value)
        assert in_options in ran("compute", source, *options, status=2).err
