"""``on_table``: the same bits as ``compute``, for rows in any order, and in every engine that the docs name."""

from functools import partial
from itertools import pairwise, product

import numpy as np
import pyarrow as pa
import pytest

from fastgae.data import DataError, compute, on_table

from .recorded import ROLES, assert_same_bits, limit


def test_any_parts_of_whole_episodes(recorded):
    """test_tables_in_memory.py has rows in any order."""
    table, bounds = recorded.table(), [0, 0, *recorded.first[[3, 4, 9]], len(recorded.rewards)]
    assert any(bound % 8 for bound in bounds)  # Arrow has eight flags in a byte
    got = pa.concat_tables(on_table(table.slice(first, end - first)) for first, end in pairwise(bounds))
    assert got.column_names == [*table.column_names, "advantages", "returns"]
    assert got.select(table.column_names) == table
    assert_same_bits(got, recorded.result)


def test_the_end_of_an_episode_before_its_beginning():
    """A flag ends an episode, and what stands behind it under the same name is no other one; an env's steps restart."""
    table = pa.table({"episode": [5] * 4, "step": range(4), "rewards": [1.0] * 4, "values": [0.0] * 4})
    table = table.append_column("terminated", pa.array([False, False, False, True]))
    for order in (np.roll(np.arange(4), shift) for shift in range(4)):
        for known in ({}, {"ends": "terminated"}, {"columns": {"next_values": "values"}}):
            how, expected = {"gamma": 1.0, "gae_lambda": 1.0, **known}, np.array([4.0, 3.0, 2.0, 1.0])[order]
            assert np.array_equal(on_table(table.take(order), **how)["advantages"], expected)
            for memory in (limit(1), "1GB"):
                got = compute(table.take(order), memory=memory, progress=False, **how)
                assert np.array_equal(got["advantages"], expected)
    others = {"episode": [0, 1, 2, 0, 0], "step": [2, 0, 0, 0, 1], "terminated": [True, True, True, False, False]}
    others |= {"rewards": [1.0] * 5, "values": [0.0] * 5}
    halves = {name: np.float16(others[name]) for name in ("episode", "step")}
    for table in (pa.table(others), pa.table({**others, **halves})):
        for memory in (limit(1), limit(2), limit(3), "1GB"):  # between them, episodes come and end
            got = compute(table, memory=memory, progress=False, gamma=1.0, gae_lambda=1.0)
            assert got["advantages"].to_pylist() == [1.0, 1.0, 1.0, 3.0, 2.0]
        assert on_table(table, ends="terminated", gamma=1.0, gae_lambda=1.0)["advantages"].equals(got["advantages"])
    # what is missing in rows that only look like ends, because the rows after them are before them
    unread = {"step": [3, 2, 1, 0], "rewards": [1.0] * 4, "next_values": [np.nan] * 4, "success": [1, None, None, None]}
    unread = pa.table({"episode": [0] * 4, "terminated": [True, False, False, False], **unread})
    for memory in (limit(1), limit(2), "1GB"):
        how = {"memory": memory, "estimator": "discounted_returns", "gamma": 1.0, "progress": False}
        assert compute(unread, **how)["returns"].to_pylist() == [1.0, 2.0, 3.0, 4.0]
        assert compute(unread, rewards="success:-1:9", **how)["returns"].to_pylist() == [0.0, -1.0, -2.0, -3.0]
    table = pa.table({"env": [1] * 4, "step": [0, 1, 0, 1], "rewards": [1.0] * 4, "values": [0.0] * 4})
    table = table.append_column("terminated", pa.array([False, True, False, True]))
    assert on_table(table, gamma=1.0, gae_lambda=1.0)["advantages"].to_pylist() == [2.0, 1.0, 2.0, 1.0]


def test_any_order_at_every_memory():
    """The results, or whether there are any, do not depend on how many rows are in memory at once."""
    rng = np.random.default_rng(0)
    for trial in range(9):
        lengths = rng.integers(2, 5, 1 + trial // 5)
        rows, steps = np.arange(lengths.sum()), np.concatenate([np.arange(length) for length in lengths])
        flags = np.isin(rows, np.cumsum(lengths) - 1) & (rng.random(len(rows)) < 0.9)  # now and then one is missing
        table = {"episode": np.repeat(rng.permutation(len(lengths)), lengths), "step": steps, "terminated": flags}
        table |= {name: rng.normal(size=len(rows)) for name in ("rewards", "values")}
        if trial < 3:
            del table["episode"]
        order = (rows[::-1], np.roll(rows, rng.integers(len(rows))), rng.permutation(rows))[trial % 3]
        found = set()
        for memory in (8, limit(3), "1GB"):  # one row at once is slow, and right
            try:
                got = compute(pa.table(table).take(order), memory=memory, progress=False)
                found.add(got["advantages"].to_numpy().tobytes())
            except DataError:
                found.add("refused")
        assert len(found) == 1, (trial, found)


def test_envs_and_no_rows():
    """Columns of envs stay such columns, and no rows have the columns and types of others."""
    numbers = np.arange(8, dtype=np.float32).reshape(4, 2)
    ends = pa.FixedShapeTensorArray.from_numpy_ndarray(np.array([[0, 0], [0, 0], [0, 0], [1, 1]], np.uint8))
    column = pa.FixedShapeTensorArray.from_numpy_ndarray(numbers)
    table = pa.table({"rewards": column, "values": column, "terminated": ends})
    got = on_table(table)
    results = compute(table, progress=False)
    assert all(got[name].equals(results[name]) for name in ("advantages", "returns"))
    assert on_table(table.slice(0, 0)).schema == got.schema
    success = {"rewards": "success:-1:10", "ends": "terminated"}
    table = pa.table({"episode": [0, 0], "values": np.float32([0, 0]), "success": [0, 1]})
    assert on_table(table.slice(0, 0), **success).schema == on_table(table, **success).schema


def test_a_truncated_episode_whose_rows_have_no_steps():
    """They are sorted, and then the end has no value as before."""
    table = pa.table({"episode": [1, 0, 1, 2], "rewards": np.ones(4), "values": np.ones(4)})
    for flag, ends in (("terminated", [True, False, True, False]), ("truncated", [False, True, False, True])):
        table = table.append_column(flag, pa.array(ends))
    for memory in (limit(1), "1GB"):
        with pytest.raises(DataError, match="the episode is truncated, and there is no value of the state after it"):
            compute(table, memory=memory, progress=False)
    for function in (compute, on_table):  # one without a flag may be two, also where all end for good
        with pytest.raises(DataError, match="ends without a flag, and its rows do not follow each other: name a colu"):
            function(table.drop("truncated"), ends="terminated")


def test_bad_rows(recorded):
    rewards = recorded.rewards.copy()
    rewards[77] = np.nan
    episode, step = recorded.episode[77], recorded.step[77]
    for table, message in (
        (recorded.table(rewards=rewards), f"^episode {episode}, step {step}, row 77: rewards is NaN"),
        (recorded.table().take(np.delete(np.arange(3000), 77)), rf"^episode {episode}, step .* is followed by step"),
    ):
        with pytest.raises(DataError, match=message):
            on_table(table)
    with pytest.raises(ValueError, match=r"format must be one of auto, table, rllib, .*, got 'csv'"):
        on_table(recorded.table(), format="csv")


def test_names_show_the_format():
    table = pa.table({"rewards": np.ones(3), "values": np.zeros(3), "terminals": [False, True, False]})
    for function, format in product((on_table, partial(compute, progress=False)), ("auto", "d4rl")):  # noqa: A001
        got = function(table, format=format, ends="terminated", gamma=1.0, gae_lambda=1.0)
        assert got["advantages"].to_pylist() == [2.0, 1.0, 1.0]


def test_episodes_of_several_files_have_the_same_names():
    """The advice works for a table, too, of which ``compute`` reads no files."""
    twice = {"episode": [0] * 4, "step": [0, 1, 0, 1], "rewards": [1.0] * 4, "values": [0.0] * 4, "origin": [*"aabb"]}
    with pytest.raises(
        DataError, match=r"of several files, pass columns=\{'file': NAME\}, or, where compute reads the"
    ):
        on_table(pa.table(twice), ends="terminated")
    got = on_table(pa.table(twice), ends="terminated", columns={"file": "origin"}, gamma=1.0, gae_lambda=1.0)
    assert got["returns"].to_pylist() == [2.0, 1.0, 2.0, 1.0]


def test_an_episode_that_is_cut(recorded):
    """The rest of it may be in another batch, so a flag must tell its end; V' would hide that rows are missing."""
    cut = int(recorded.first[3]) - 2
    assert not recorded.last[cut - 1]
    tables = {
        "in order": recorded.table().slice(0, cut),
        "scattered": recorded.table().slice(0, cut).take(np.random.default_rng(0).permutation(cut)),
        "no steps": recorded.table("episode", *ROLES).slice(0, cut),
        "no names": recorded.table(*ROLES).slice(0, cut),
        "no truncated": recorded.table("episode", *ROLES[:4]).slice(0, cut),
        "no next values": recorded.table("episode", *ROLES[:2], *ROLES[3:]).slice(int(recorded.first[2]), 5),
    }
    for kind, table in tables.items():
        with pytest.raises(DataError, match=r"row \d+: the episode ends without a flag, .*bring all its rows into one"):
            on_table(table)
        assert len(on_table(table, ends="terminated")) == len(table), kind
    flags = recorded.truncated[:cut].copy()
    flags[-1] = True  # as the error says: the episode was recorded only so far
    table = tables["in order"].set_column(6, "truncated", pa.array(flags))
    expected = recorded.rewards[cut - 1] + 0.99 * recorded.next_values[cut - 1]
    assert on_table(table)["returns"][-1].as_py() == pytest.approx(expected)


def test_batches_of_huggingface(recorded):
    """``Dataset.map(batched=True)`` cuts episodes; a batch of whole episodes is right."""
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset(recorded.table()).with_format("arrow")
    with pytest.raises(DataError, match="the episode ends without a flag"):
        rows.map(on_table, batched=True, batch_size=1000)
    got = rows.map(on_table, batched=True, batch_size=None)
    assert np.array_equal(got.with_format("numpy")["advantages"][:], recorded.result.advantages)
