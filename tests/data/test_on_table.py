"""``on_table``: the same bits as ``compute``, for rows in any order, and in every engine that the docs name."""

import numpy as np
import pyarrow as pa
import pytest

from fastgae.data import DataError, on_table


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_rows_in_any_order(recorded, seed):
    rows = np.arange(len(recorded.rewards))
    order = rows if seed is None else np.random.default_rng(seed).permutation(rows)
    given = recorded.table().take(order)
    got = on_table(given)
    assert got.column_names == [*given.column_names, "advantages", "returns"]
    assert got.select(given.column_names) == given
    for name, expected in recorded.result._asdict().items():
        assert np.array_equal(got[name], expected[order])


@pytest.mark.parametrize("shift", range(4))
def test_the_end_of_an_episode_before_its_beginning(shift):
    """A flag ends an episode, and what stands behind it under the same name is no other one."""
    table = pa.table({"episode": [5] * 4, "step": range(4), "rewards": [1.0] * 4, "values": [0.0] * 4})
    table = table.append_column("terminated", pa.array([False, False, False, True]))
    order = np.roll(np.arange(4), shift)
    for known in ({"ends": "terminated"}, {"columns": {"next_values": "values"}}):
        got = on_table(table.take(order), gamma=1.0, gae_lambda=1.0, **known)
        assert np.array_equal(got["advantages"], np.array([4.0, 3.0, 2.0, 1.0])[order])


def test_the_steps_of_an_env_begin_again():
    table = pa.table({"env": [1] * 4, "step": [0, 1, 0, 1], "rewards": [1.0] * 4, "values": [0.0] * 4})
    table = table.append_column("terminated", pa.array([False, True, False, True]))
    assert on_table(table, gamma=1.0, gae_lambda=1.0)["advantages"].to_pylist() == [2.0, 1.0, 2.0, 1.0]


def test_any_parts_of_whole_episodes(recorded):
    parts = np.split(np.arange(len(recorded.rewards)), recorded.first[[3, 4, 9]])
    got = pa.concat_tables(on_table(recorded.table().take(part)) for part in [parts[0][:0], *parts])
    assert np.array_equal(got["advantages"], recorded.result.advantages)


def test_bad_rows(recorded):
    rewards = recorded.rewards.copy()
    rewards[77] = np.nan
    with pytest.raises(
        DataError, match=f"^episode {recorded.episode[77]}, step {recorded.step[77]}, row 77: rewards is NaN"
    ):
        on_table(recorded.table(rewards=rewards))
    with pytest.raises(DataError, match=rf"^episode {recorded.episode[77]}, step .* is followed by step"):
        on_table(recorded.table().take(np.delete(np.arange(3000), 77)))
    with pytest.raises(ValueError, match=r"format must be table, rllib, .*, got 'csv'"):
        on_table(recorded.table(), format="csv")
