"""Every estimator: the same bits as one call on everything in memory, wherever the rows are cut."""

import json

import numpy as np
import pyarrow as pa
import pytest

import fastgae
from fastgae.data import DataError, compute, on_table
from fastgae.data.estimators import ESTIMATORS, How, Rows

from .recorded import CHOICES, ROWS, Recorded, answer, limit, read, read_arrays, write
from .test_tables import quiet

T, N = 60, 7


def test_all_are_drawn():
    assert {choice["estimator"] for choice in CHOICES} == set(ESTIMATORS)


@pytest.fixture(params=CHOICES, ids=lambda choice: "-".join(map(str, choice.values())))
def choice(request):
    return request.param


@pytest.fixture(scope="module")
def special():
    """Return episodes whose numbers are often 0, of both signs, and now and then so large that sums are infinite."""
    rng, changed = np.random.default_rng(3), Recorded()
    for name in ("rewards", "values", "next_values"):
        numbers = getattr(changed, name) * (rng.random(ROWS) < 0.5) * rng.choice(np.float32([-1, 1]), ROWS)
        numbers[rng.random(ROWS) < 0.01] = 3e38
        setattr(changed, name, numbers)
    assert np.isinf(changed.results().returns).any()
    return changed


def bits(array):
    """Return the dtype and the bits of numbers, in which every NaN is the same."""
    return array.dtype, np.where(np.isnan(array), np.nan, array).astype(array.dtype).tobytes()


def assert_results(got, expected, order=slice(None)):
    for name, array in expected._asdict().items():
        assert (name in got.column_names) == (array is not None)
        if array is not None:
            assert bits(got[name].to_numpy()) == bits(array[order]), name


@pytest.mark.parametrize(
    ("last", "group", "rows"), [(900, 7, 61), (900, 7, 10**6), (ROWS, ROWS, 200), (100, 3, 1)], ids=str
)
def test_same_bits_in_every_split(tmp_path, special, choice, last, group, rows):
    """Of the last rows, because the results before them do not matter to them."""
    source = write(special.table().slice(ROWS - last), tmp_path / "source.parquet", group)
    compute(source, tmp_path / "out.parquet", memory=limit(rows), **choice, **quiet)
    expected = (array[-last:] for array in special.results(**choice))
    assert_results(read(tmp_path / "out.parquet"), fastgae.GAEResult(*expected))


def test_scattered_rows(tmp_path, special, choice):
    order = np.random.default_rng(1).permutation(ROWS)
    source = write(special.table().take(order), tmp_path / "source.parquet", 300)
    for rows in (150, 10**6):
        compute(source, tmp_path / "out.parquet", memory=limit(rows), overwrite=True, **choice, **quiet)
        assert_results(read(tmp_path / "out.parquet"), special.results(**choice), order)
    assert_results(on_table(special.table().take(order), **choice), special.results(**choice), order)


@pytest.mark.parametrize(("rows", "kept"), [(20, 1), (20, 2), (20, 12), (20, -1), (10**6, 1)])
def test_resumed(tmp_path, special, choice, rows, kept, monkeypatch):
    """The journal holds what rows need of the rows after them, wherever it ends."""
    source = write(special.table().slice(ROWS - 400), tmp_path / "a.parquet", 10)

    def stopped(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("fastgae.data.state.State.results", stopped)
        with pytest.raises(KeyboardInterrupt):
            compute(source, tmp_path / "out.parquet", memory=limit(rows), resume=True, **choice, **quiet)
    journal = tmp_path / "out.parquet.unfinished" / "journal.jsonl"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:kept]))
    compute(source, tmp_path / "out.parquet", memory=limit(rows), resume=True, **choice, **quiet)
    expected = (array[-400:] for array in special.results(**choice))
    assert_results(read(tmp_path / "out.parquet"), fastgae.GAEResult(*expected))


def test_every_episode_ends_for_good(tmp_path, recorded, choice):
    source = write(recorded.table("episode", "step", "rewards", "values"), tmp_path / "a.parquet", 100)
    compute(source, tmp_path / "out.parquet", ends="terminated", memory=limit(77), **choice, **quiet)
    expected = answer(
        choice, recorded.rewards, recorded.values, recorded.last, np.zeros(ROWS, bool), np.roll(recorded.values, -1)
    )
    assert_results(read(tmp_path / "out.parquet"), expected)


def test_without_next_values(tmp_path, recorded, choice):
    """V' is the value of the next row, and the last row has one row of values more."""
    nothing = np.zeros(ROWS, bool)
    values = np.append(recorded.values, np.float32(3))
    np.savez(tmp_path / "a.npz", rewards=recorded.rewards, values=values, terminated=recorded.terminated)
    compute(tmp_path / "a.npz", tmp_path / "out.parquet", memory=limit(99), **choice, **quiet)
    nothing[-1] = not recorded.terminated[-1]
    expected = answer(choice, recorded.rewards, values[:-1], recorded.terminated, nothing, values[1:])
    assert_results(read(tmp_path / "out.parquet"), expected)


@pytest.mark.parametrize("dtypes", [("f4", "f4", "f8"), ("f4", "f8", "f4"), ("i8", "f4", "f4")])
def test_dtypes(tmp_path, recorded, choice, dtypes):
    """Rewards, values and next_values decide together on the dtype of every estimator."""
    names = ("rewards", "values", "next_values")
    numbers = {name: (9 * getattr(recorded, name)).astype(dtype) for name, dtype in zip(names, dtypes, strict=True)}
    source = write(recorded.table(**numbers), tmp_path / "a.parquet", 100)
    compute(source, tmp_path / "out.parquet", memory=limit(700), **choice, **quiet)
    double = {name: array.astype(np.float64) for name, array in numbers.items()}
    expected = answer(choice, **double, terminated=recorded.terminated, truncated=recorded.truncated)
    assert_results(read(tmp_path / "out.parquet"), expected)


@pytest.mark.parametrize(("rows", "dtype"), [(1, np.float64), (4, np.float32), (10**6, np.float64)])
def test_envs(tmp_path, choice, rows, dtype):
    """Rows of (T, N), whose envs end their episodes in different rows; V' may be of another dtype."""
    rng = np.random.default_rng(5)
    rewards, values, next_values = rng.normal(size=(3, T, N)).astype(np.float32)
    next_values = (next_values * 1.1).astype(dtype)
    terminated, truncated = rng.random((2, T, N)) < 0.05
    truncated[-1] = True
    truncated &= ~terminated
    arrays = {
        "rewards": rewards,
        "values": values,
        "next_values": next_values,
        "terminated": terminated,
        "truncated": truncated,
    }
    np.savez(tmp_path / "a.npz", **arrays)
    compute(tmp_path / "a.npz", memory=limit(rows * N), **choice, **quiet)
    wide = {name: array.astype(dtype) if array.dtype != bool else array for name, array in arrays.items()}
    got = read_arrays(tmp_path / "a.advantages.parquet")
    for name, expected in answer(choice, **wide)._asdict().items():
        assert got[name].shape == (T, N)
        assert bits(got[name]) == bits(expected), name


RETURNS = {"estimator": "discounted_returns"}


@pytest.mark.parametrize("rows", [50, 10**6])
@pytest.mark.parametrize("known", ["next_values", "terminated"])
@pytest.mark.parametrize("scattered", [False, True])
def test_returns_without_values(tmp_path, recorded, rows, known, scattered):
    """The first step of offline training: no critic yet. V' is read behind truncated steps alone."""
    order = np.random.default_rng(1).permutation(ROWS) if scattered else np.arange(ROWS)
    names = ["episode", "step", "rewards", "terminated", "truncated"]
    if known == "next_values":
        options = {}
        table = recorded.table(*names, known, next_values=np.where(recorded.truncated, recorded.next_values, np.nan))
        ends = recorded.terminated, recorded.truncated
    else:
        options = {"ends": "terminated"}
        table, ends = recorded.table(*names), (recorded.last, np.zeros(ROWS, bool))
    source = write(table.take(order), tmp_path / "a.parquet", 100)
    report = compute(source, tmp_path / "out.parquet", memory=limit(rows), **RETURNS, **options, **quiet)
    expected = answer(RETURNS, recorded.rewards, None, *ends, recorded.next_values)
    assert read(tmp_path / "out.parquet").column_names == ["episode", "step", "returns"]
    assert_results(read(tmp_path / "out.parquet"), expected, order)
    assert_results(on_table(table.take(order), **RETURNS, **options), expected, order)
    moments = fastgae.moments(expected.returns)
    assert (report.returns_mean, report.returns_std) == (moments.mean, moments.std)
    assert np.isnan([report.mean, report.std, report.explained_variance]).all()
    assert (report.has_advantages, report.findings) == (False, ())
    assert json.loads(report.to_json())["mean"] is None
    assert "returns" in str(report)
    assert not any(word in str(report) for word in ("advantages", "explained", "diagnose", "nan"))


def test_the_next_value_of_a_truncated_step_must_be_known(tmp_path, recorded):
    source = write(recorded.table("episode", "step", "rewards", "terminated", "truncated"), tmp_path / "a.parquet", 100)
    with pytest.raises(DataError, match=r"the episode is truncated, and there is no value .* column of next_values"):
        compute(source, **RETURNS, **quiet)
    unknown = recorded.next_values.copy()
    row = np.flatnonzero(recorded.truncated)[1]
    unknown[row] = np.nan
    (tmp_path / "b.parquet").touch()
    source = write(recorded.table(next_values=unknown), tmp_path / "b.parquet", 100)
    with pytest.raises(DataError, match=f"episode {recorded.episode[row]}, step .* next_values is NaN"):
        compute(source, **RETURNS, **quiet)


def test_the_other_estimators_need_values(tmp_path, recorded):
    table = recorded.table("episode", "step", "rewards", "next_values", "terminated", "truncated")
    source = write(table, tmp_path / "a.parquet", 100)
    for choice in CHOICES:
        if choice["estimator"] != "discounted_returns":
            with pytest.raises(DataError, match=r"there is no column 'values' for values; there are .* or a critic"):
                compute(source, **choice, **quiet)
    with pytest.raises(DataError, match="there is no column 'v' for values"):
        compute(source, values="v", **RETURNS, **quiet)


def test_empty_tables(recorded, choice):
    got = on_table(recorded.table().slice(0, 0), **choice)
    assert got.schema.field("returns").type == got.schema.field("advantages").type == pa.float32()


WRONG = [
    ({"estimator": "vtrace"}, "estimator must be gae, discounted_returns, .*, got 'vtrace'"),
    ({"estimator": ["gae"]}, r"estimator must be gae, .*, got \['gae'\]"),
    ({"estimator": "n_step_returns"}, "n must be a positive integer with estimator=.n_step_returns., got None"),
    ({"estimator": "n_step_returns", "n": 0}, "n must be a positive integer .* got 0"),
    ({"estimator": "n_step_returns", "n": 2.0}, r"n must be a positive integer .* got 2\.0"),
    ({"n": 3}, "n is for n_step_returns, got 3 and estimator=.gae."),
    (
        {**RETURNS, "gae_lambda": 0.95},
        r"gae_lambda is for gae, got 0\.95 and estimator=.discounted_returns.",
    ),
    ({"gae_lambda": 1.5}, "gae_lambda must be in .*0, 1.*got 1.5"),
    ({"estimator": "td_lambda"}, "got 'td_lambda'; the returns of .gae. are those of td_lambda"),
    ({"gamma": -1}, "gamma must be in .*0, 1.*got -1"),
]


@pytest.mark.parametrize(("given", "message"), WRONG)
def test_wrong_arguments(tmp_path, recorded, given, message):
    source = write(recorded.table(), tmp_path / "a.parquet", 100)
    with pytest.raises(ValueError, match=message):
        compute(source, **given, **quiet)
    with pytest.raises(ValueError, match=message):
        on_table(recorded.table(), **given)
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]


def test_nothing_to_normalize(tmp_path, recorded):
    source = write(recorded.table("episode", "rewards"), tmp_path / "a.parquet", 100)
    with pytest.raises(ValueError, match=r"normalize=.global. is for advantages, and discounted_returns computes"):
        compute(source, ends="terminated", normalize="global", **RETURNS, **quiet)
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]


@pytest.mark.parametrize("rows", [3, 5, 10**6])
def test_the_rows_that_are_carried(rows):
    """No more than n, and none behind the end of the episode in every env."""

    def carried(ends, n):
        numbers = np.arange(len(ends), dtype=np.float32).reshape(np.shape(ends))
        given = Rows(numbers, numbers, np.array(ends, bool), np.zeros(np.shape(ends), bool), numbers, None)
        _, before = ESTIMATORS["n_step_returns"].compute(given, None, How("n_step_returns", 0.9, {"n": n}))
        return len(before["rewards"])

    assert carried([0, 0, 1, 0, 0, 0, 0, 1], rows) == 3
    assert carried([0, 0, 0, 0, 0, 0, 0, 1], rows) == min(rows, 8)
    assert carried([1], rows) == 1
