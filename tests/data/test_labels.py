"""What robot trainers write by hand: rewards from success, labels by quantile, and the source with columns more."""

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fastgae
from fastgae.data import compute, labels, on_table

from .recorded import ROWS, assert_same_bits, computed, limit, names, quantile_of, read, read_arrays, refused, write

KEYS = [("episode", "ascending"), ("step", "ascending")]


@pytest.mark.parametrize("per_step", [False, True])
def test_rewards_from_success(tmp_path, recorded, per_step):
    """Success in every row of an episode, or only in its last; episodes and runs end anywhere."""
    succeeded = np.random.default_rng(1).random(recorded.episode[-1] + 1)[recorded.episode] < 0.5
    rewards = np.where(recorded.last, np.where(succeeded, 0, -50), -1).astype(np.float32)
    expected = fastgae.gae(rewards, recorded.values, recorded.last, last_values=0.0, gamma=1.0)
    flags = succeeded & recorded.last if per_step else succeeded
    options = {"rewards": "success:-1:50", "gamma": 1.0, "ends": "terminated"}
    for kind, memory in ((bool, 100), (np.int64, 10_000), (np.float32, 100)):
        table = recorded.table("episode", "step", "values", success=flags.astype(kind))
        source = write(table, tmp_path / "a.parquet", 130)
        assert_same_bits(computed(source, tmp_path / "out.parquet", memory=limit(memory), **options), expected)
        for rows in (np.arange(ROWS), np.random.default_rng(0).permutation(ROWS)):
            assert_same_bits(on_table(table.take(rows), **options).sort_by(KEYS), expected)


def test_success_is_read_in_the_last_row_alone():
    table = pa.table({"episode": [0, 0, 1, 1], "ok": pa.array([None, 1.0, 7.0, 0.0]), "values": np.zeros(4)})
    how = {"ends": "terminated", "gamma": 1.0, "gae_lambda": 1.0, "progress": False}
    assert compute(table, rewards="ok:-1:10", **how)["advantages"].to_pylist() == [-1, 0, -11, -10]
    assert compute(table, rewards="ok:-0.1:0.2", **how)["returns"].to_pylist() == [-0.1, 0, -0.1 - 0.2, -0.2]  # float64
    lists = pa.table({"ok": [[number == 1] * length for number, length in enumerate([3, 1, 2])]})
    results = compute(lists, rewards="ok:-1:10", estimator="discounted_returns", ends="terminated", gamma=1.0)
    assert results["returns"].to_pylist() == [-12, -11, -10, 0, -11, -10]
    assert results["episode"].to_pylist() == [0, 0, 0, 1, 2, 2]


def test_bad_rewards_from_success(tmp_path, recorded):
    success = np.where(recorded.last & (recorded.episode == 3), None, 1)
    columns = {"success": np.full(ROWS, 2), "unknown": success.tolist(), "negative": np.full(ROWS, -1)}
    source = write(recorded.table("episode", "step", "values", **columns), tmp_path / "a.parquet", 130)
    numbers = ("success", "a:b:c", "s:-1:-5", "s:-1:nan", ":1:1", 5)
    for rewards, columns, message in (
        *((text, None, "rewards must be COLUMN:STEP:FAILURE") for text in numbers),
        ("succes:-1:5", None, "there is no column 'succes' for rewards; there are episode"),
        ("success:-1:5", None, "the column of success holds 2; expected 0 or 1"),
        ("negative:-1:5", None, "the column of success holds -1; expected 0 or 1"),
        ("unknown:-1:5", None, r"episode 3, step \d+, row \d+: the column of success holds nan; expected 0 or 1"),
        ("success:-1:5", {"rewards": "values"}, "leave the column of rewards out"),
    ):
        refused(message, source, error=ValueError, rewards=rewards, columns=columns, ends="terminated")
        assert names(tmp_path) == ["a.parquet"]


def test_labels_per_task(tmp_path, recorded):
    """The same thresholds for every memory, order and normalization."""
    rows, out, advantages = np.arange(ROWS), tmp_path / "out.parquet", recorded.result.advantages
    scattered, task = np.random.default_rng(0).permutation(ROWS), recorded.episode % 5
    for quantile, order, kind, options in (
        (0.7, rows, pa.int64(), {"memory": limit(100)}),
        (0.1, rows, pa.duration("ns"), {"normalize": "global"}),
        (0.999, scattered, pa.duration("ns"), {"memory": limit(300)}),
    ):
        column = pa.array(task).cast(kind)
        source = write(recorded.table(task=column).take(order), tmp_path / "a.parquet", 130)
        thresholds = {str(each): quantile_of(advantages[task == each], quantile) for each in np.unique(task)}
        expected = advantages > np.array([*thresholds.values()], np.float32)[task]
        for resume in (False, True):
            options |= {"label_quantile": quantile, "label_per": "task", "resume": resume, "overwrite": not resume}
            report = compute(source, out, progress=False, **options)
            assert report.threshold == thresholds
        assert np.array_equal(np.asarray(read(out)["positive"]), expected[order])
    assert "advantages above" in str(report)


def test_labels_of_envs(tmp_path):
    """A row has a task, and an advantage for each env."""
    rewards, values = np.random.default_rng(0).normal(size=(2, 40, 3))
    ends, task = np.arange(40)[:, None] % 10 == [9, 9, 9], np.arange(40) // 4 % 2
    np.savez(tmp_path / "a.npz", rewards=rewards, values=values, terminated=ends, task=task)
    report = compute(tmp_path / "a.npz", label_quantile=0.3, label_per="task", memory=limit(30), progress=False)
    advantages = fastgae.gae(rewards, values, ends, last_values=np.zeros(3)).advantages
    thresholds = [quantile_of(advantages[task == each].ravel(), 0.3) for each in (0, 1)]
    assert report.threshold == {"0": thresholds[0], "1": thresholds[1]}
    got = read_arrays(tmp_path / "a.advantages.parquet")["positive"]
    assert np.array_equal(got, advantages > np.array(thresholds)[task][:, None])


def test_bad_labels(recorded):
    half, wrong = {"label_quantile": 0.5}, (0, 1, np.nan, "0.5")
    of_tasks = {**half, "label_per": "task"}
    for table, given, message in (
        *((recorded.table(), {"label_quantile": each}, "must be a number between 0 and 1") for each in wrong),
        (
            recorded.table("rewards", "episode"),
            {**half, "estimator": "discounted_returns", "ends": "terminated"},
            r"label_quantile=0\.5 is for advan",
        ),
        (recorded.table(), {"label_per": "episode"}, "label_per is for labels: pass label_quantile too"),
        (recorded.table(), of_tasks, "no column 'task' for label_per; there are"),
        *(
            (recorded.table(task=[0] * (ROWS - 1) + [each]), of_tasks, "of label_per has a row without an item")
            for each in (np.nan, None)
        ),
        (
            recorded.table(task=[0] * ROWS).append_column("task", [[0] * ROWS]),
            of_tasks,
            "are 2 columns 'task'; expected",
        ),
        (recorded.table(task=[[0]] * ROWS), of_tasks, r"the column of label_per holds list<.*; expected integers"),
        (recorded.table(task=[pa.MonthDayNano([0, 0, 0])] * ROWS), of_tasks, "label_per holds month_day_nano_interval"),
    ):
        refused(message, table, error=ValueError, **given)


@pytest.mark.parametrize("most", [1, 2**10, 2**16])
def test_the_threshold_is_a_number_of_the_data(monkeypatch, most):
    """Of all numbers, or of those of each group, however few bits a pass finds. 0.55 * 100 is more than 55."""
    monkeypatch.setattr(labels, "MOST_TALLIES", most)
    assert labels.thresholds_of(list, 0.5) == {}  # as of a dataset of Ray whose filter has left no rows
    rng = np.random.default_rng(0)
    for dtype, count in itertools.product((np.float32, np.float64), (1, 2, 50, 106)):
        special = np.array([np.inf, -np.inf, 0.0, -0.0, np.finfo(dtype).tiny / 2, np.finfo(dtype).min], dtype)
        numbers = [rng.normal(size=count), rng.integers(-2, 3, count), special[: count % 10]]
        numbers = np.concatenate(numbers).astype(dtype)
        groups = rng.permutation(len(numbers)) % 100
        for quantile in (0.001, 0.55, 0.999):
            parts = [(part, None) for part in np.array_split(numbers, 3)]
            assert labels.thresholds_of(lambda: parts, quantile) == {None: quantile_of(numbers, quantile)}  # noqa: B023
            parts = [(numbers[at::2], pa.array(groups[at::2])) for at in range(2)]
            expected = {group: quantile_of(numbers[groups == group], quantile) for group in set(groups)}
            assert labels.thresholds_of(lambda: parts, quantile) == expected  # noqa: B023


def test_into_a_copy(tmp_path, recorded):
    """Nulls and texts and lists included, at every memory; and the metadata of the schema.

    Each file has categories of its own, which eight bits number, as of pandas; but not those of both.
    """
    text = pa.array([None if row % 7 == 0 else f"step {row}" for row in range(ROWS)])
    lists, tasks = pa.array([[row] * (row % 3) for row in range(ROWS)]), [f"task {row // 16}" for row in range(ROWS)]
    table = recorded.table(text=text, lists=lists, task=tasks).replace_schema_metadata({"info": "of the user"})
    categories = pa.dictionary(pa.int8(), pa.string())
    (source := tmp_path / "a").mkdir()
    for memory, suffix in ((100, ".parquet"), (100, ".arrow"), (100_000, ".parquet")):
        for name, part in (("a", table.slice(0, 1234)), ("b", table.slice(1234))):
            column = part["task"].combine_chunks().dictionary_encode().cast(categories)
            write(part.set_column(part.num_columns - 1, "task", column), source / f"{name}{suffix}", 130)
        copy = tmp_path / f"copy{suffix}"
        compute(f"{source}/*{suffix}", into=copy, memory=limit(memory), overwrite=True, progress=False)
        got = read(copy)
        assert got.select(table.column_names).to_pydict() == table.to_pydict()
        assert_same_bits(got, recorded.result)
        assert got.schema.metadata[b"info"] == b"of the user"
        assert pa.types.is_dictionary(got.schema.field("task").type)
        holes = pa.DictionaryArray.from_arrays(np.arange(ROWS, dtype=np.int32) % 3, ["a", None, "b"])
        compute(recorded.table(holes=holes), into=copy, overwrite=True, progress=False)
        assert read(copy)["holes"].to_pylist() == holes.to_pylist()
    texts = recorded.table(text=["", *["long" * 100] * (ROWS - 1)])  # of which the first says little about the others
    compute(texts, into=copy, memory="1MB", overwrite=True, progress=False)
    assert pq.read_metadata(copy).num_row_groups > 2
    source = source / "a.parquet"
    both = "out and into both name the file to write"
    refused(both, source, error=ValueError, into="b.parquet", out="c.parquet")
    refused("the next run would read it as data", source.parent, into=str(source.with_name("c.parquet")))
    message = "the source has a column 'advantages', but a column of results has the same name"
    refused(message, tmp_path / "copy.parquet", into=tmp_path / "again.parquet")
