"""Values from a critic: what it is called on, and what it may return."""

import numpy as np
import pyarrow as pa
import pytest

import fastgae
from fastgae.data import Critic, DataError, compute
from fastgae.data.plan import BYTES_PER_ROW

from .recorded import ROWS, assert_same_bits, limit, read, write

SIDE = 5


@pytest.fixture(scope="session")
def states(recorded):
    """Return a table with the states that a critic reads, the first number of which is the value."""
    observations = np.stack([recorded.values, -recorded.values, np.arange(ROWS, dtype=np.float32)], axis=1)
    following = observations.copy()
    following[:, 0] = recorded.next_values
    fixed = pa.list_(pa.float32(), 3)
    table = recorded.table("episode", "step", "rewards", "terminated", "truncated")
    columns = {
        "observations": pa.FixedSizeListArray.from_arrays(pa.array(observations.ravel()), type=fixed),
        "next_observations": pa.FixedSizeListArray.from_arrays(pa.array(following.ravel()), type=fixed),
        "goal": pa.array(list(observations[:, 1:].tolist()), pa.list_(pa.float64())),
        "speed": pa.array(recorded.values),
        "name": pa.array(["text"] * ROWS),
        "image": pa.FixedShapeTensorArray.from_numpy_ndarray(np.ones((ROWS, SIDE, SIDE), np.uint8)),
        "pose": pa.StructArray.from_arrays(
            [pa.array(observations[:, 0]), pa.array(observations[:, 1])], names=["x", "y"]
        ),
    }
    for name, column in columns.items():
        table = table.append_column(name, column)
    return table


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
@pytest.mark.parametrize("rows", [150, 10**6])
def test_same_bits_as_values_in_a_column(tmp_path, states, recorded, suffix, rows):
    source = write(states, tmp_path / f"a{suffix}", 100)
    compute(
        source,
        tmp_path / "out.arrow",
        values=Critic(lambda batch: batch["observations"][:, 0], columns=["observations"], rows=64),
        memory=f"{rows * (200 + 2 * 24)}B",
        progress=False,
    )
    assert_same_bits(read(tmp_path / "out.arrow"), recorded.ended)


def test_scattered_rows(tmp_path, states, recorded):
    order = np.random.default_rng(0).permutation(ROWS)
    source = write(states.drop_columns(["image"]).take(order), tmp_path / "a.parquet", 100)
    critic = Critic(lambda batch: batch["observations"][:, 0], columns=["observations"])
    compute(source, tmp_path / "out.parquet", values=critic, memory=limit(1000), progress=False)
    assert_same_bits(read(tmp_path / "out.parquet"), recorded.ended, order)


def test_what_a_critic_is_called_on(tmp_path, states, recorded):
    batches = []

    def critic(batch):
        batch["speed" if "speed" in batch else "observations"] += 0  # the arrays are the critic's own
        batches.append({name: getattr(array, "shape", array) for name, array in batch.items()})
        return batch["observations"][:, 0]

    source = write(states, tmp_path / "a.arrow", ROWS)
    compute(source, tmp_path / "out.arrow", values=Critic(critic, rows=1700), progress=False)
    *rows, behind = batches
    assert [set(batch) for batch in rows] == [{"observations", "goal", "speed", "pose"}] * 2
    for batch, count in zip(rows, (1700, ROWS - 1700), strict=True):
        assert batch["observations"] == (count, 3)
        assert batch["goal"] == (count, 2)
        assert batch["speed"] == (count,)
        assert {name: array.shape for name, array in batch["pose"].items()} == {"x": (count,), "y": (count,)}
    assert behind == {"observations": (np.count_nonzero(recorded.truncated), 3)}


def test_images_are_read_where_they_are_named(tmp_path, states, recorded):
    shapes = set()

    def critic(batch):
        shapes.add((*batch, batch["image"].dtype, *batch["image"].shape[1:]))
        return np.zeros(len(batch["image"]))

    source = write(states, tmp_path / "a.arrow", 100)
    compute(source, values=Critic(critic, columns=["image"]), ends="terminated", progress=False)
    assert shapes == {("image", np.dtype(np.uint8), SIDE, SIDE)}


def test_memory_counts_what_a_critic_reads(tmp_path, states):
    longest = []

    def critic(batch):
        longest.append(len(batch["image"]))
        return np.zeros(len(batch["image"]))

    source = write(states, tmp_path / "a.arrow", 10)
    critic = Critic(critic, columns=["image"])
    compute(source, values=critic, ends="terminated", memory=f"{500 * (BYTES_PER_ROW + 2 * SIDE**2)}B", progress=False)
    assert max(longest) == 500


def returning(value):
    return lambda batch: value(len(batch["observations"]))


WRONG = {
    "shape": (
        returning(lambda rows: np.zeros((rows, 1))),
        ValueError,
        r"the critic returned shape \(\d+, 1\) for \d+ rows",
    ),
    "number": (returning(lambda rows: 1.0), ValueError, r"returned shape \(\) for \d+ rows; expected \(\d+,\)"),
    "dtype": (
        returning(lambda rows: np.zeros(rows, np.float16)),
        TypeError,
        "returned dtype float16; expected float32",
    ),
    "integers": (returning(lambda rows: np.zeros(rows, int)), TypeError, "returned dtype int64; expected float32"),
    "nothing": (returning(lambda rows: None), TypeError, "values from the critic must be an array, got None"),
    "NaN": (
        lambda batch: np.where(batch["observations"][:, 2] == 55, np.nan, 1.0),
        DataError,
        r"a.parquet: episode \d+, step \d+, row 55: the value from the critic is NaN",
    ),
    "another column": (
        lambda batch: batch["image"],
        DataError,
        "the critic reads the column 'image'; it gets observations, goal, speed, pose",
    ),
    "not behind": (
        lambda batch: batch["speed"],
        DataError,
        "the critic reads the column 'speed'; it gets observations",
    ),
    "no function": (1, TypeError, "values must be a column or a function of a batch of rows, got 1"),
    "unknown": (
        Critic(len, columns=["state", "name"]),
        DataError,
        "there are no numbers state and name for the critic",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_critics(tmp_path, states, name):
    critic, error, message = WRONG[name]
    source = write(states, tmp_path / "a.parquet", 100)
    with pytest.raises(error, match=message):
        compute(source, tmp_path / "out.parquet", values=critic, progress=False)
    assert not (tmp_path / "out.parquet").exists()


def test_rows_of_a_critic():
    with pytest.raises(ValueError, match="rows of a critic must be at least 1, got 0"):
        Critic(len, rows=0)


def test_lists_of_several_lengths(tmp_path, states):
    goal = pa.array([[1.0], *[[1.0, 2.0]] * (ROWS - 1)])
    table = states.set_column(states.schema.get_field_index("goal"), "goal", goal)
    source = write(table, tmp_path / "a.parquet", 100)
    with pytest.raises(DataError, match=r"step 0, row 0: the critic cannot read goal: its lists have different"):
        compute(source, values=lambda batch: batch["observations"][:, 0], progress=False)


def test_a_table_without_states(tmp_path, recorded):
    source = write(recorded.table(), tmp_path / "a.parquet", 100)
    with pytest.raises(DataError, match="there is no column for the critic; there are episode, step"):
        compute(source, values=len, progress=False)


def test_going_on_with_another_critic(tmp_path, states):
    calls = []

    def killed(batch):
        calls.append(batch)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return batch["observations"][:, 0]

    source = write(states, tmp_path / "a.parquet", 100)
    with pytest.raises(KeyboardInterrupt):
        compute(source, tmp_path / "out.parquet", values=killed, ends="terminated", memory=limit(1000), progress=False)
    with pytest.raises(DataError, match="cannot resume: values changed"):
        compute(source, tmp_path / "out.parquet", values=len, ends="terminated", resume=True, progress=False)


def test_batches_of_torch(tmp_path, states, recorded):
    """Tensors on the device that the critic names, without gradients; columns with fields too."""
    torch = pytest.importorskip("torch")
    weight = torch.ones(1, requires_grad=True)

    def values(batch):
        assert batch["observations"].device.type == batch["pose"]["x"].device.type == "cpu"
        result = batch["observations"][:, 0] * weight
        assert not result.requires_grad
        return result

    source = write(states.drop_columns(["image"]), tmp_path / "a.parquet", 100)
    critic = Critic(values, columns=["observations", "pose"], device="cpu")
    compute(source, tmp_path / "out.parquet", values=critic, memory=limit(1000), ends="terminated", progress=False)
    expected = fastgae.gae(recorded.rewards, recorded.values, recorded.last, last_values=0.0)
    assert_same_bits(read(tmp_path / "out.parquet"), expected)
