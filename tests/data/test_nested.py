"""One row per episode: lists of steps; and the names of RLlib's columns."""

import numpy as np
import pyarrow as pa
import pytest

from fastgae.data import compute

from .recorded import computed, limit, refused, write


@pytest.fixture
def parts(recorded):
    return np.split(np.arange(len(recorded.rewards)), recorded.first[1:])


def lists(recorded, parts, kind):
    """Return a row for each episode; ``kind``: how the rows say what follows the end."""

    def of_episodes(*names):
        return {name: [getattr(recorded, name)[part].tolist() for part in parts] for name in names}

    columns = of_episodes("rewards", "values")
    if kind == "next values":
        columns |= of_episodes("next_values", "terminated", "truncated")
    else:
        last = [part[-1] for part in parts]
        for values, row in zip(columns["values"], last, strict=True):
            values.append(recorded.next_values[row])
        columns |= {name: getattr(recorded, name)[last].tolist() for name in ("terminated", "truncated")}
    floats = {name: pa.array(columns[name], pa.list_(pa.float32())) for name in columns if name[0] != "t"}
    names = {"episode": [f"e{number}" for number in range(len(parts))]}
    return pa.table({**names, **columns, **floats, "goal": [[0.5, 1.5, 2.5]] * len(parts)})


@pytest.mark.parametrize("kind", ["next values", "one value more"])
def test_lists(tmp_path, recorded, parts, kind):
    rows = lists(recorded, parts, kind)
    expected = recorded.result if kind == "next values" else recorded.ended
    for number, (memory, suffix) in enumerate([(limit(50), ".parquet"), (limit(700), ".arrow"), ("1GB", ".jsonl")]):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        for file in range(2):
            write(rows.slice(5 * file, 5 if file == 0 else None), folder / f"{file}{suffix}", 3)
        got = computed(folder, tmp_path / "out.arrow", memory=memory)
        assert got.column_names == ["episode", "step", "advantages", "returns"]
        assert np.array_equal(got["step"], recorded.step)
        assert got["episode"].to_pylist() == [f"e{episode}" for episode in recorded.episode]
        for name, answer in expected._asdict().items():
            exact = suffix != ".jsonl"  # text has no float32
            assert np.array_equal(got[name], answer) if exact else np.allclose(got[name], answer, atol=1e-5)
    unnamed = compute(rows.drop_columns("episode"), progress=False)
    assert unnamed["episode"].to_pylist() == recorded.episode.tolist()
    renamed, ends = rows.rename_columns({"values": "x"}), {} if kind == "next values" else {"ends": "terminated"}
    critic = compute(renamed, values=lambda batch: batch["x"] + 0 * batch["goal"].sum(axis=1), progress=False, **ends)
    assert len(critic) == len(recorded.rewards)


def test_lists_that_do_not_fit(recorded, parts):
    rows = lists(recorded, parts, "one value more").slice(0, 3).to_pydict()
    for name, wrong, message in (
        ("values", [*rows["values"][:2], [1.0]], r"values has 1 items; expected \d+, as in rewards and the first"),
        ("values", [*rows["values"][:2], None], r"values has no list; expected \d+"),
        ("rewards", [None, *rows["rewards"][1:]], "rewards has no list in the first row"),
        ("rewards", [[], [], []], "expected|no steps"),
        ("step", [0, 1, 2], r"the column of rewards holds (large_)?list"),
    ):
        refused(message, pa.table({**rows, name: wrong}))


def test_rllib_columns(tmp_path, recorded):
    """RLlib records no ``t``."""
    names = ["eps_id", "rewards", "vf_preds", "new_vf", "terminateds", "truncateds"]
    columns = ("episode", "rewards", "values", "next_values", "terminated", "truncated")
    rows, how = recorded.table(*columns).rename_columns(names), {"columns": {"next_values": "new_vf"}}
    got = computed(write(rows, tmp_path / "a.parquet", 100), tmp_path / "out.arrow", **how)
    assert np.array_equal(got["advantages"], recorded.result.advantages)
    cut = int(recorded.first[1]) + 1
    files = [write(part, tmp_path / f"{len(part)}.parquet", 100) for part in (rows.slice(0, cut), rows.slice(cut))]
    message = r"goes on with the same episode, or .*: name a column of step"
    refused(message, files, tmp_path / "b.parquet", **how)
