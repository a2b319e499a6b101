"""What robot trainers write by hand: rewards from success, labels by quantile, and the source with columns more."""

import math

import numpy as np
import pyarrow as pa
import pytest

import fastgae
from fastgae.data import DataError, compute, on_table
from fastgae.data.labels import thresholds_of

from .recorded import ROWS, assert_same_bits, limit, read, write


@pytest.mark.parametrize("per_step", [False, True])
def test_rewards_from_success(tmp_path, recorded, per_step):
    """Success in every row of an episode, or only in its last; episodes and runs end anywhere."""
    succeeded = np.random.default_rng(1).random(recorded.episode[-1] + 1)[recorded.episode] < 0.5
    rewards = np.where(recorded.last, np.where(succeeded, 0, -50), -1).astype(np.float32)
    expected = fastgae.gae(rewards, recorded.values, recorded.last, last_values=0.0, gamma=1.0)
    flags = succeeded & recorded.last if per_step else succeeded
    for kind, memory in ((bool, 100), (np.int64, 10_000), (np.float32, 100)):
        table = recorded.table("episode", "step", "values").append_column("success", pa.array(flags.astype(kind)))
        source = write(table, tmp_path / "a.parquet", 130)
        options = {"rewards": "success:-1:50", "gamma": 1.0, "ends": "terminated"}
        out = tmp_path / "out.parquet"
        report = compute(source, out, overwrite=True, progress=False, memory=limit(memory), **options)
        assert_same_bits(read(out), expected)
        for rows in (np.arange(ROWS), np.random.default_rng(0).permutation(ROWS)):
            assert_same_bits(
                on_table(table.take(rows), **options).sort_by([(name, "ascending") for name in ("episode", "step")]),
                expected,
            )
    assert report.returns_mean == fastgae.moments(expected.returns).mean


def test_bad_rewards_from_success(tmp_path, recorded):
    table = recorded.table("episode", "step", "values").append_column("success", pa.array(np.full(ROWS, 2)))
    source = write(table, tmp_path / "a.parquet", 130)
    for rewards, columns, message in (
        *(
            (text, None, "rewards must be COLUMN:STEP:FAILURE")
            for text in ("success", "a:b:c", "s:-1:-5", "s:-1:nan", ":1:1", 5)
        ),
        ("succes:-1:5", None, "there is no column 'succes' for rewards; there are episode"),
        ("success:-1:5", None, "success is 2; expected 0 or 1"),
        ("success:-1:5", {"rewards": "values"}, "leave the column of rewards out"),
    ):
        with pytest.raises(ValueError, match=message):
            compute(source, rewards=rewards, columns=columns, ends="terminated", progress=False)
        assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]


def test_labels(tmp_path, recorded):
    """The same threshold for every memory, order and normalization."""
    advantages = np.sort(recorded.result.advantages)
    order = np.random.default_rng(0).permutation(ROWS)
    for quantile, rows, suffix, options in (
        (0.7, np.arange(ROWS), ".parquet", {"memory": limit(100)}),
        (0.1, np.arange(ROWS), ".parquet", {"normalize": "global"}),
        (0.999, order, ".arrow", {"memory": limit(300)}),
    ):
        threshold = advantages[math.ceil(round(quantile * ROWS, 6)) - 1]
        expected = recorded.result.advantages > threshold
        assert abs(expected.mean() - (1 - quantile)) <= 1 / ROWS
        source = write(recorded.table().take(rows), tmp_path / "a.parquet", 130)
        out = tmp_path / f"out{suffix}"
        report = compute(source, out, label_quantile=quantile, overwrite=True, progress=False, **options)
        assert report.threshold == threshold
        assert np.array_equal(np.asarray(read(out)["positive"]), expected[rows])
        again = compute(source, out, label_quantile=quantile, resume=True, progress=False, **options)
        assert again.threshold == threshold
    assert "advantages above" in str(report)
    for given in (0, 1, -1, float("nan")):
        with pytest.raises(ValueError, match="label_quantile must be a number between 0 and 1"):
            compute(source, label_quantile=given, progress=False)
    rewards = write(recorded.table("episode", "rewards"), tmp_path / "b.parquet", 100)
    with pytest.raises(
        ValueError, match=r"label_quantile=0\.5 is for advantages, and discounted_returns computes none"
    ):
        compute(rewards, label_quantile=0.5, estimator="discounted_returns", ends="terminated", progress=False)


def test_the_threshold_is_a_number_of_the_data():
    rng = np.random.default_rng(0)
    for dtype in (np.float32, np.float64):
        special = np.array([np.inf, -np.inf, 0.0, -0.0, np.finfo(dtype).tiny / 2, np.finfo(dtype).min], dtype)
        for count in (1, 2, 3, 1000):
            numbers = np.concatenate([rng.normal(size=count), rng.integers(-2, 3, count)]).astype(dtype)
            numbers = np.concatenate([numbers, special[: count % 7]])
            parts = np.array_split(numbers, 3)
            for quantile in (0.001, 0.3, 0.5, 0.7, 0.999):
                expected = np.sort(numbers)[math.ceil(round(quantile * len(numbers), 6)) - 1]
                found = thresholds_of(lambda: [(part, None) for part in parts], quantile)  # noqa: B023
                assert found == {None: expected}


def test_into_a_copy(tmp_path, recorded):
    """All columns of the source in its order, nulls and texts and lists included, at every memory."""
    text = pa.array([None if row % 7 == 0 else f"step {row}" for row in range(ROWS)])
    lists = pa.array([[row] * (row % 3) for row in range(ROWS)])
    order = np.random.default_rng(0).permutation(ROWS)
    for rows in (np.arange(ROWS), order):
        table = recorded.table().append_column("text", text).append_column("lists", lists).take(rows)
        (tmp_path / "a").mkdir(exist_ok=True)
        for name, part in (("a", table.slice(0, 1234)), ("b", table.slice(1234))):
            write(part, tmp_path / "a" / f"{name}.parquet", 130)
        for memory, suffix in ((100, ".parquet"), (100, ".arrow"), (100_000, ".parquet")):
            copy = tmp_path / f"copy{suffix}"
            compute(tmp_path / "a", into=copy, label_quantile=0.5, memory=limit(memory), overwrite=True, progress=False)
            got = read(copy)
            assert got.column_names == [*table.column_names, "advantages", "returns", "positive"]
            assert got.select(table.column_names).equals(table)
            assert_same_bits(got, recorded.result, rows)
    for options, message in (
        ({"into": "b.parquet", "out": "c.parquet"}, "out and into both name the file to write"),
        ({"into": str(tmp_path / "a" / "c.parquet")}, "the next run would read it as data"),
    ):
        with pytest.raises(ValueError, match=message):
            compute(tmp_path / "a", progress=False, **options)
    with pytest.raises(
        DataError, match="the source has a column 'advantages', but a column of results has the same name"
    ):
        compute(tmp_path / "copy.parquet", into=tmp_path / "again.parquet", progress=False)
