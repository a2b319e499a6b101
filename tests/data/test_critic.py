"""Values from a critic: what it is called on, and what it may return."""

import re

import numpy as np
import pyarrow as pa
import pytest

import fastgae
from fastgae.data import Critic, DataError, compute
from fastgae.data.plan import BYTES_PER_ROW

from .recorded import ROWS, assert_same_bits, computed, interrupted, limit, names, refused, write

SIDE = 5


@pytest.fixture(scope="session")
def states(recorded):
    """Return a table with the states that a critic reads, the first number of which is the value."""
    observations = np.stack([recorded.values, -recorded.values, np.arange(ROWS, dtype=np.float32)], axis=1)
    following = observations.copy()
    following[:, 0] = np.where(recorded.truncated, recorded.next_values, np.nan)  # read only behind truncated steps
    fixed = pa.list_(pa.float32(), 3)
    fields = [pa.array(observations[:, 0]), pa.array(observations[:, 1])]
    columns = {
        **recorded.arrays("episode", "step", "rewards", "terminated", "truncated"),
        "observations": pa.FixedSizeListArray.from_arrays(pa.array(observations.ravel()), type=fixed),
        "next_observations": pa.FixedSizeListArray.from_arrays(pa.array(following.ravel()), type=fixed),
        "goal": pa.array(list(observations[:, 1:].tolist()), pa.list_(pa.float64())),
        "speed": pa.array(recorded.values),
        "name": pa.array(["text"] * ROWS),
        "image": pa.FixedShapeTensorArray.from_numpy_ndarray(np.ones((ROWS, SIDE, SIDE), np.uint8)),
        "pose": pa.StructArray.from_arrays(fields, names=["x", "y"]),
    }
    return pa.table(columns)


def first(batch):
    return batch["observations"][:, 0]


def test_same_bits_as_values_in_a_column(tmp_path, states, recorded):
    """The critic returns the same array for each batch."""
    rows, scattered, kept = np.arange(ROWS), np.random.default_rng(0).permutation(ROWS), np.zeros(64, np.float32)

    def same(batch):
        kept[: len(batch["observations"])] = first(batch)
        return kept[: len(batch["observations"])]

    for order, most, suffix in ((rows, 150, "arrow"), (rows, 10**6, "parquet"), (scattered, 1000, "parquet")):
        source = write(states.drop_columns(["image"]).take(order), tmp_path / f"a.{suffix}", 100)
        critic, memory = Critic(same, columns=["observations"], rows=64), f"{most * (200 + 2 * 24)}B"
        got = computed(source, tmp_path / "out.arrow", values=critic, memory=memory)
        assert_same_bits(got, recorded.ended, order)


@pytest.mark.parametrize("kind", [pa.list_(pa.float16()), pa.list_(pa.list_(pa.float16(), 1), 1)])
def test_vectors_of_16_bits_in_any_order(recorded, kind):
    """duckdb, which sorts them, knows no floats of 16 bits, and no vectors of no numbers."""
    numbers = recorded.values.astype(np.float16)
    column = pa.array(numbers.reshape(-1, *[1] * str(kind).count("list")).tolist(), kind)
    columns = {"observations": column, "fields": pa.StructArray.from_arrays([column], names=["x"])}
    columns["points"] = pa.array([[{"x": each}] for each in numbers], pa.list_(pa.struct({"x": pa.float16()})))
    columns["nothing"] = pa.array([[]] * ROWS, pa.list_(pa.uint8(), 0))  # as of a robot without actuators
    table = recorded.table("episode", "step", "rewards", "terminated", **columns)
    order = np.random.default_rng(0).permutation(ROWS)

    def critic(batch):
        assert batch["points"]["x"].shape == (len(batch["points"]["x"]), 1)
        numbers = (batch["observations"], batch["fields"]["x"], batch["points"]["x"])
        return sum(each.reshape(-1) for each in numbers).astype(np.float32)

    how = {"values": Critic(critic, [*columns]), "ends": "terminated", "progress": False}
    assert compute(table.take(order), **how).equals(compute(table, **how).take(order))


def test_what_a_critic_is_called_on(tmp_path, states, recorded):
    batches = []

    def critic(batch):
        batch["speed" if "speed" in batch else "observations"] += 0  # the arrays are the critic's own
        batches.append({name: getattr(array, "shape", array) for name, array in batch.items()})
        return first(batch)

    source = write(states, tmp_path / "a.arrow", ROWS)
    compute(source, tmp_path / "out.arrow", values=Critic(critic, rows=1700), progress=False)
    *rows, behind = batches
    for batch, count in zip(rows, (1700, ROWS - 1700), strict=True):
        pose = {name: array.shape for name, array in batch.pop("pose").items()}
        assert pose == {"x": (count,), "y": (count,)}
        assert batch == {"observations": (count, 3), "goal": (count, 2), "speed": (count,)}
    assert behind == {"observations": (np.count_nonzero(recorded.truncated), 3)}


def test_images_are_read_where_they_are_named(tmp_path, states):
    """And their size counts against the memory."""
    shapes = []

    def critic(batch):
        shapes.append((*batch, batch["image"].dtype, *batch["image"].shape))
        return np.zeros(len(batch["image"]))

    source, memory = write(states, tmp_path / "a.arrow", 10), f"{500 * (BYTES_PER_ROW + 2 * SIDE**2)}B"
    compute(source, values=Critic(critic, columns=["image"]), ends="terminated", memory=memory, progress=False)
    assert set(shapes) == {("image", np.dtype(np.uint8), 500, SIDE, SIDE)}


def returning(value):
    return lambda batch: value(len(batch["observations"]))


WRONG = {
    "shape": (
        returning(lambda rows: np.zeros((rows, 1))),
        ValueError,
        r"critic returned shape \(\d+, 1\) for \d+ rows; .*; squeeze its last axis",
    ),
    "number": (returning(lambda rows: 1.0), ValueError, r"returned shape \(\) for \d+ rows; expected \(\d+,\)"),
    "dtype": (returning(lambda rows: np.zeros(rows, np.float16)), ValueError, "dtype float16; expected float32"),
    "integers": (returning(lambda rows: np.zeros(rows, int)), ValueError, "returned dtype int64; expected float32"),
    "nothing": (returning(lambda rows: None), TypeError, "values from the critic must be an array, got None"),
    "NaN": (
        Critic(lambda batch: np.where(batch["observations"][:, 2] == 55, np.nan, 1.0), rows=50),
        DataError,
        r"a.parquet: episode \d+, step \d+, row 55: the value from the critic is NaN",
    ),
    "another dtype": (
        lambda batch: batch["observations"][:, 2].astype("f4" if batch["observations"][0, 2] > 1500 else "f8"),
        DataError,
        "the results are {'advantages': .*f8.* in some rows, and {'advantages': .*f4.* in others",
    ),
    "another column": (
        lambda batch: batch["image"],
        DataError,
        "the critic reads the column 'image'; it gets observations, goal, speed, pose",
    ),
    "not behind": (lambda batch: batch["speed"], DataError, "reads the column 'speed'; it gets observations"),
    "no function": (1, TypeError, "values must be a column, a file such as values.npy, or a function of a .* got 1"),
    "an array": (np.zeros(999), TypeError, r"a batch of rows, got array\(\[[0., ]*\.\.\.$"),
    "unknown": (Critic(len, columns=["state", "name"]), DataError, "there are no numbers state and name for the crit"),
}


@pytest.mark.parametrize("error", [FileNotFoundError("weights"), ValueError("shapes"), ZeroDivisionError("no")])
def test_errors_of_a_critic_are_its_own(tmp_path, recorded, error):
    """They say so, and leave nothing behind, because nothing has been computed."""

    def critic(_):
        raise error

    source = write(recorded.table(seen=recorded.values), tmp_path / "a.parquet", 100)
    own = type(error) if isinstance(error, ZeroDivisionError) else RuntimeError
    refused(f"{error}", source, tmp_path / "out.parquet", values=critic, error=own)
    assert names(tmp_path) == ["a.parquet"]


def test_wrong_critics(tmp_path, states, recorded):
    source = write(states, tmp_path / "a.parquet", 100)
    for critic, error, message in WRONG.values():
        refused(message, source, error=error, values=critic, memory=limit(2000))
    for size in (0, 1.5, "8"):
        with pytest.raises(ValueError, match=f"rows of a critic must be an integer of at least 1, got {size!r}"):
            Critic(len, rows=size)
    for columns in ("obs", [1], True):
        with pytest.raises(TypeError, match=re.escape(f"columns of a critic must be a list of names, got {columns!r}")):
            Critic(len, columns=columns)
    refused("there is no column for the critic; there are episode, step", recorded.table(), values=len)
    goal = pa.array([[1.0], *[[1.0, 2.0]] * (ROWS - 1)])
    write(states.set_column(states.schema.get_field_index("goal"), "goal", goal), source, 100)
    refused("step 0, row 0: .* read goal of the 3,000 rows from this one on: its lists have", source, values=first)
    assert list(tmp_path.iterdir()) == [source]


def test_going_on_with_another_critic(tmp_path, states):
    source, out, given = write(states, tmp_path / "a.parquet", 100), tmp_path / "out.parquet", {"ends": "terminated"}
    interrupted("state.State.results", source, out, values=first, **given)
    refused("cannot resume: values changed", source, out, values=len, resume=True, **given)


def test_batches_of_torch(tmp_path, states, recorded):
    """Tensors on the device that the critic names, without gradients; columns with fields too."""
    torch = pytest.importorskip("torch")
    weight = torch.ones(1, requires_grad=True)

    def values(batch):
        assert batch["observations"].device.type == batch["pose"]["x"].device.type == "cpu"
        result = first(batch) * weight
        assert not result.requires_grad
        return result

    source = write(states.drop_columns(["image"]), tmp_path / "a.parquet", 100)
    critic = Critic(values, columns=["observations", "pose"], device="cpu")
    got = computed(source, tmp_path / "out.parquet", values=critic, memory=limit(1000), ends="terminated")
    assert_same_bits(got, fastgae.gae(recorded.rewards, recorded.values, recorded.last, last_values=0.0))
