"""One row per episode: lists of steps; and the names of RLlib's columns."""

import numpy as np
import pyarrow as pa

import fastgae

from .recorded import assert_same_bits, computed, limit, refused, write


def test_lists_without_names(tmp_path, recorded):
    """The number of a row names its episode. A critic gets lists of one length as vectors, and no names of folders."""
    parts = np.split(recorded.rewards, recorded.first[1:])
    rows = pa.table({"rewards": parts, "x": parts, "goal": [[0.5, 1.5, 2.5]] * len(parts)})
    seen, source = [], tmp_path / "runs"
    (source / "run=7").mkdir(parents=True)
    write(rows, source / "run=7" / "a.parquet", 5)
    critic = lambda batch: seen.append((batch["goal"].shape[1], *sorted(batch))) or batch["x"]  # noqa: E731
    how = {"values": critic, "ends": "terminated", "memory": limit(100)}
    got = computed(source, tmp_path / "out.parquet", **how)
    assert {*seen} == {(3, "goal", "x")}
    assert np.array_equal(got["episode"], recorded.episode)
    assert np.array_equal(got["step"], recorded.step)
    assert_same_bits(got, fastgae.gae(recorded.rewards, recorded.rewards, recorded.last, last_values=0.0))
    no_step = computed(source, tmp_path / "b.parquet", **how, columns={"step": None})
    assert no_step["advantages"].equals(got["advantages"])


def test_lists_that_do_not_fit():
    rows = {"rewards": [[1.0, 2.0], [3.0], [4.0]], "values": [[0.0] * 3, [0.0] * 2, [0.0] * 2]}
    rows |= {"terminated": [True, True, True]}
    for name, wrong, message in (
        ("values", [*rows["values"][:2], [1.0]], r"values has 1 items; expected \d+, as in rewards and the first"),
        ("values", [*rows["values"][:2], None], r"values has no list; expected \d+"),
        ("rewards", [None, *rows["rewards"][1:]], "rewards has no list in the first row"),
        ("rewards", [[], [], []], "expected|no steps"),
        ("step", [0, 1, 2], r"the column of rewards holds (large_)?list"),
    ):
        refused(message, pa.table({**rows, name: wrong}))
