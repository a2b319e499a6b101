"""Every estimator: the same bits as one call on everything in memory, wherever the rows are cut."""

import json

import numpy as np
import pyarrow as pa
import pytest

import fastgae
from fastgae.data import compute, on_table
from fastgae.data.estimators import ESTIMATORS, How, Rows

from .recorded import CHOICES, ROWS, answer, assert_same_bits, bits, limit, names, read, read_arrays, refused, write

T, N = 24, 5


@pytest.fixture(params=CHOICES, ids=lambda choice: "-".join(map(str, choice.values())))
def choice(request):
    return request.param


LAYOUTS = (np.ascontiguousarray, np.asfortranarray, lambda array: array.astype(array.dtype.newbyteorder(">")))


@pytest.mark.parametrize(("rows", "dtype", "layout"), [(1, "f8", 0), (4, "f4", 1), (10**6, "f8", 2)])
def test_envs(tmp_path, choice, rows, dtype, layout):
    """Rows of (T, N), whose envs end their episodes in different rows.

    V' of every row may be of another dtype; or the next rows and ``last_values`` say it.
    """
    rng = np.random.default_rng(5)
    rewards, values, next_values = rng.normal(size=(3, T, N)).astype(np.float32)
    terminated, truncated = rng.random((2, T, N)) < 0.05
    last = np.arange(T)[:, None] == np.full(N, T - 1)
    after, following = (next_values * 1.1).astype(dtype), np.concatenate([values[1:], next_values[:1]])
    limits = {"truncated": (truncated | last) & ~terminated}
    for more, all_limits, behind in (
        ({"next_values": after, **limits}, limits, after),
        ({"last_values": following[-1]}, {"truncated": last & ~terminated}, following),
    ):
        arrays = {"rewards": rewards, "values": values, "terminated": terminated}
        np.savez(tmp_path / "a.npz", **{name: LAYOUTS[layout](array) for name, array in (arrays | more).items()})
        compute(tmp_path / "a.npz", memory=limit(rows * N), overwrite=True, progress=False, **choice)
        arrays |= {"next_values": behind, **all_limits}
        wide = {name: array.astype(behind.dtype) if array.dtype != bool else array for name, array in arrays.items()}
        got = read_arrays(tmp_path / "a.advantages.parquet")
        for name, expected in answer(choice, **wide)._asdict().items():
            assert got[name].shape == (T, N)
            assert bits(got[name]) == bits(expected), name


RETURNS = {"estimator": "discounted_returns"}


@pytest.mark.parametrize("known", ["next_values", "terminated"])
@pytest.mark.parametrize("scattered", [False, True])
def test_returns_without_values(tmp_path, recorded, known, scattered):
    """The first step of offline training: no critic yet. V' is read behind truncated steps alone."""
    order = np.random.default_rng(1).permutation(ROWS) if scattered else np.arange(ROWS)
    more, given, ends = {}, {**RETURNS}, (recorded.terminated, recorded.truncated)
    if known == "next_values":
        more[known] = np.where(recorded.truncated, recorded.next_values, np.nan)
    else:
        given["ends"], ends = "terminated", (recorded.last, np.zeros(ROWS, bool))
    table = recorded.table("episode", "step", "rewards", "terminated", "truncated", **more)
    source, out = write(table.take(order), tmp_path / "a.parquet", 100), tmp_path / "out.parquet"
    expected = answer(RETURNS, recorded.rewards, None, *ends, recorded.next_values)
    for rows in (50, 10**6):
        report = compute(source, out, memory=limit(rows), overwrite=True, progress=False, **given)
        assert read(out).column_names == ["episode", "step", "returns"]
        assert_same_bits(read(out), expected, order)
    assert_same_bits(on_table(table.take(order), **given), expected, order)
    moments = fastgae.moments(expected.returns)
    assert (report.returns_mean, report.returns_std) == (moments.mean, moments.std)
    assert np.isnan([report.mean, report.std, report.explained_variance]).all()
    assert (report.has_advantages, report.findings) == (False, ())
    assert json.loads(report.to_json())["mean"] is None
    assert "returns" in str(report)
    assert not any(word in str(report) for word in ("advantages", "explained", "diagnose", "nan"))


def test_numbers_that_are_not_finite_are_null_in_json(tmp_path):
    table = pa.table({"episode": [0] * 3, "rewards": np.float32([3e38] * 3), "values": np.float32([0] * 3)})
    source = write(table, tmp_path / "a.parquet", 3)
    how = {"gamma": 1.0, "gae_lambda": 1.0, "ends": "terminated", "progress": False}
    report = compute(source, label_quantile=0.9, label_per="episode", **how)
    facts = json.loads(report.to_json(), parse_constant=pytest.fail)
    assert (facts["mean"], facts["threshold"]) == (None, {"0": None})
    low = pa.table({"episode": [0], "rewards": np.float32([3e38]), "values": np.float32([-3e38])})
    assert on_table(low, estimator="discounted_returns", ends="terminated")["advantages"].to_pylist() == [np.inf]


def test_numbers_that_an_estimator_does_not_read_are_no_findings(tmp_path, recorded):
    known = np.where(recorded.truncated, recorded.next_values, np.nan)
    source = write(recorded.table(next_values=known), tmp_path / "a.parquet", 100)
    report = compute(source, estimator="discounted_returns", progress=False)
    assert not any("next_values" in finding for finding in report.findings)


def test_wrong_settings_are_seen_before_any_row_is(tmp_path, recorded):
    order = np.random.default_rng(0).permutation(ROWS)
    source = write(recorded.table().take(order), tmp_path / "a.parquet", 100)
    for wrong in ({"backend": "fortran"}, {"num_threads": 0}, {"memory": None}, {"memory": 1.5}, {"memory": 0}):
        (name,) = wrong
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("fastgae.data.walk.compute_run", pytest.fail)
            with pytest.raises(ValueError, match=name):
                compute(source, progress=False, **wrong)
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]
    assert compute(source, progress=False, memory=np.int64(10**9)).steps == ROWS


def test_threads_of_the_normalization(recorded, monkeypatch):
    given, normalize = [], fastgae.Moments.normalize
    spy = lambda *arguments, **how: given.append(how) or normalize(*arguments, **how)  # noqa: E731
    monkeypatch.setattr(fastgae.Moments, "normalize", spy)
    compute(recorded.table(), normalize="global", progress=False, num_threads=3, backend="numpy")
    assert given == [{"backend": "numpy", "num_threads": 3}]


def test_what_an_estimator_needs(tmp_path, recorded):
    unknown, source = recorded.next_values.copy(), tmp_path / "a.parquet"
    row = np.flatnonzero(recorded.truncated)[1]
    unknown[row] = np.nan
    columns = ("episode", "step", "rewards", "terminated", "truncated")
    no_values = r"there is no column 'values' for values; there are .* or a critic"
    for table, given, message in (
        (recorded.table(*columns), RETURNS, r"episode is truncated, and there is no value .* column of next_values"),
        (recorded.table(next_values=unknown), RETURNS, f"episode {recorded.episode[row]}, .* next_values is NaN"),
        (recorded.table(*columns), {**RETURNS, "values": "absent"}, "there is no column 'absent' for values"),
        *(
            (recorded.table(*columns), choice, no_values)
            for choice in CHOICES
            if choice["estimator"] not in str(RETURNS)
        ),
        (
            recorded.table("episode", "rewards"),
            {"ends": "terminated", "normalize": "global", **RETURNS},
            r"normalize=.global. is for advantages, and discounted_returns computes",
        ),
    ):
        refused(message, write(table, source, 100), error=ValueError, **given)
    assert names(tmp_path) == ["a.parquet"]


WRONG = [
    ({"estimator": "vtrace"}, "estimator must be one of gae, discounted_returns, .*, got 'vtrace'"),
    ({"estimator": ["gae"]}, r"estimator must be one of gae, .*, got \['gae'\]"),
    ({"estimator": "n_step_returns"}, "n must be a positive integer with estimator=.n_step_returns., got None"),
    ({"estimator": "n_step_returns", "n": 0}, "n must be a positive integer .* got 0"),
    ({"estimator": "n_step_returns", "n": 2.0}, r"n must be a positive integer .* got 2\.0"),
    ({"n": 3}, "n is for n_step_returns, got 3 and estimator=.gae."),
    ({**RETURNS, "gae_lambda": 0.95}, r"gae_lambda is for gae, got 0\.95 and estimator=.discounted_returns."),
    ({"gae_lambda": 1.5}, "gae_lambda must be in .*0, 1.*got 1.5"),
    ({"estimator": "td_lambda"}, "got 'td_lambda'; the returns of .gae. are those of td_lambda"),
    ({"gamma": -1}, "gamma must be in .*0, 1.*got -1"),
    *(({**choice, "backend": "fortran"}, "fortran") for choice in CHOICES),
    *(({**choice, "num_threads": -5}, "num_threads must be") for choice in CHOICES),
]


def test_wrong_arguments(recorded):
    for given, message in WRONG:
        for function in (compute, on_table):
            with pytest.raises(ValueError, match=message):
                function(recorded.table(), **given)


def test_the_rows_that_are_carried():
    """No more than n, and none behind the end of the episode in every env."""

    def carried(ends, n):
        numbers = np.arange(len(ends), dtype=np.float32).reshape(np.shape(ends))
        given = Rows(numbers, numbers, np.array(ends, bool), np.zeros(np.shape(ends), bool), numbers, None)
        _, before = ESTIMATORS["n_step_returns"].compute(given, None, How("n_step_returns", 0.9, {"n": n}))
        return len(before["rewards"])

    for n in (3, 5, 10**6):
        assert carried([0, 0, 1, 0, 0, 0, 0, 1], n) == 3
        assert carried([0, 0, 0, 0, 0, 0, 0, 1], n) == min(n, 8)
        assert carried([1], n) == 1
    assert {choice["estimator"] for choice in CHOICES} == set(ESTIMATORS)  # all are drawn above
