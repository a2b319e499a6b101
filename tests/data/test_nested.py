"""One row per episode: lists of steps; and the names of RLlib's columns."""

import numpy as np
import pyarrow as pa
import pytest

import fastgae
from fastgae.data import compute

from .recorded import assert_same_bits, computed, limit, refused, write

D4RL = {"terminated": "terminals", "truncated": "timeouts"}
RLLIB = {"episode": "eps_id", "values": "vf_preds", "terminated": "terminateds", "truncated": "truncateds"}


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


@pytest.mark.parametrize("named", [{}, D4RL, RLLIB])
def test_flags_of_whole_episodes(named):
    """They are those of its last step, also where the names of the columns show the format."""
    lengths, terminated = np.array([2, 1, 3, 1]), np.array([True, True, False, False])
    rewards, values, next_values = np.random.default_rng(0).normal(size=(3, 7))
    arrays = {"rewards": rewards, "values": values, "next_values": next_values}
    lists = {name: np.split(array, np.cumsum(lengths)[:-1]) for name, array in arrays.items()}
    columns = {"episode": range(4), **lists, "terminated": terminated, "truncated": ~terminated}
    got = compute(pa.table({named.get(name, name): column for name, column in columns.items()}), progress=False)
    got = got.rename_columns(["episode", "step", "advantages", "returns"])
    ended, cut = np.zeros((2, 7), bool)
    ended[[1, 2]] = cut[[5, 6]] = True
    assert_same_bits(got, fastgae.gae(rewards, values, ended, cut, next_values=next_values))


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("v", {"values": "v"}),
        ("v", {"columns": {"values": "v"}}),
        ("vf_preds", {}),
        ("obs", {"values": lambda batch: batch["obs"]}),
    ],
)
def test_one_item_more(name, how):
    states, flags = np.array([0.0, 1.0, 7.0]), {"terminateds": [False], "truncateds": [True]}
    got = compute(pa.table({"eps_id": [3], "rewards": [np.ones(2)], name: [states], **flags}), progress=False, **how)
    expected = fastgae.gae(np.ones(2), states, [0, 0])
    assert_same_bits(got.rename_columns(["episode", "step", "advantages", "returns"]), expected)


def test_a_limit_in_the_middle_of_a_list():
    """The item after it is of another episode, so there is no value of the state after it."""
    states, cut = np.array([0.0, 1.0, 100.0, 2.0, 7.0]), [False, True, False, True]
    rows = {"rewards": [np.ones(4)], "terminated": [[True, False, False, False]]}
    of_critic = {"values": lambda batch: batch["observations"], "gamma": 0.9}
    for flags in ({"truncated": [cut]}, {"done": [[True, *cut[1:]]]}, {"truncated": [np.array(cut, np.float32)]}):
        refused("step 1, row 1: next_values is NaN", pa.table({**rows, **flags, "values": [states]}))
        refused("row is missing", pa.table({**rows, **flags, "observations": [states]}), **of_critic)
        ended = compute(pa.table({**rows, **flags, "values": [states]}), ends="terminated", gamma=0.9, progress=False)
        assert_same_bits(ended, fastgae.gae(np.ones(4), states[:-1], [1, 1, 0, 1], last_values=0.0, gamma=0.9))
        given = pa.table({**rows, **flags, "values": [states], "next_values": [[0.5, 3.0, 4.0, 7.0]]})
        got, how = compute(given, gamma=0.9, progress=False), {"next_values": [0.5, 3.0, 4.0, 7.0], "gamma": 0.9}
        assert_same_bits(got, fastgae.gae(np.ones(4), states[:-1], rows["terminated"][0], cut, **how))
    older = pa.table({**rows, "v": [states], "values": [states + 9], "truncated": [[False] * 3 + [True]]})
    got = compute(older, columns={"values": "v", "next_values": "next_values"}, gamma=0.9, progress=False)
    how = {"truncated": [0, 0, 0, 1], "next_values": states[1:], "gamma": 0.9}
    assert_same_bits(got, fastgae.gae(np.ones(4), states[:-1], rows["terminated"][0], **how))
    refused("truncated holds", pa.table({**rows, "truncated": [["no", "yes", "no", "yes"]], "values": [states]}))
    refused("truncated is missing", pa.table({**rows, "truncated": [[False, None, False, True]], "values": [states]}))
    ends = {"terminated": [[False, True, False, False]], "truncated": [[False] * 3 + [True]], "values": [states]}
    got = compute(pa.table({**rows, **ends}), gamma=0.9, progress=False)
    assert_same_bits(
        got, fastgae.gae(np.ones(4), states[:-1], [0, 1, 0, 0], [0, 0, 0, 1], next_values=states[1:], gamma=0.9)
    )


def test_lists_that_do_not_fit(tmp_path):
    rows = {"rewards": [[1.0, 2.0], [3.0], [4.0]], "values": [[0.0] * 3, [0.0] * 2, [0.0] * 2]}
    rows |= {"terminated": [True, True, True]}
    for name, wrong, message in (
        ("values", [*rows["values"][:2], [1.0]], r"values has 1 items; expected \d+, as in rewards and the first"),
        ("values", [*rows["values"][:2], None], r"values has no list; expected \d+"),
        ("terminated", [[False, False, True], [False, True], [False, True]], "terminated has 3 items; expected 2, as"),
        ("rewards", [None, *rows["rewards"][1:]], "rewards has no list in the first row"),
        ("rewards", [*rows["rewards"][:2], None], "rewards has no list in row 2"),
        ("terminated", [None] * 3, "the column of terminated holds null, such as None; expected bool"),
        ("rewards", [[], [], []], "expected|no steps"),
        ("step", [0, 1, 2], r"the column of rewards holds (large_)?list"),
    ):
        refused(message, pa.table({**rows, name: wrong}))
    steps = [{"reward": 1.0, "is_last": True}]  # as RLDS has them
    for column in ([steps], steps):
        refused("for rewards; .* if they are a field of steps, make a column of each", pa.table({"steps": column}))
    unknown = pa.table({**rows, "values": [[0.0] * 2, [0.0], [np.nan]]})
    refused("row 3: values is NaN", write(unknown, tmp_path / "a.parquet", 1))  # the number of the step in its file
