"""Arrays in .npz and .npy files: rollouts of several envs, and nothing is unpickled."""

import pickle
from itertools import product

import numpy as np
import pyarrow as pa
import pytest

import fastgae
from fastgae.data import Critic, compute
from fastgae.data.rows import Rows, column_of

from .recorded import ROLES, ROWS, assert_same_bits, bits, computed, limit, put, read_arrays, refused, save, write

T, N = 120, 7


def test_episode_ends(tmp_path, recorded):
    source, flat = tmp_path / "a.npz", recorded.arrays(*ROLES)
    np.savez(source, **flat, episode_ends=np.append(recorded.first[1:], ROWS))
    got = computed(source, tmp_path / "out.parquet", ends="terminated")
    for key in ("episode", "step"):
        assert np.array_equal(got[key], getattr(recorded, key))
    for ends in ([5, 4, ROWS], [5, 5, ROWS], [5, ROWS + 1], [0, ROWS], [], [5.0, ROWS], [[5], [4], [ROWS]]):
        np.savez(source, **flat, episode_ends=np.array(ends))
        refused(f"a.npz: episode_ends must be integers that rise to {ROWS}", source)


@pytest.fixture
def grid():
    """Return a time-major rollout of N envs."""
    rng = np.random.default_rng(5)
    rewards, values, next_values = rng.normal(size=(3, T, N)).astype(np.float32)
    terminated, truncated = rng.random((2, T, N)) < 0.05
    flags = {"terminated": terminated, "truncated": truncated & ~terminated}
    return {"rewards": rewards, "values": values, "next_values": next_values, **flags}


def test_time_major(tmp_path, grid, monkeypatch):
    """The memory counts all envs. In place of next values there may be last values, or one more row of values."""
    most, backwards, source = [], Rows.backwards, tmp_path / "a.npz"
    monkeypatch.setattr(Rows, "backwards", lambda *given: most.append(given[4]) or backwards(*given))
    advantages, returns = fastgae.gae(**grid)
    values = np.concatenate([grid["values"], grid["next_values"][-1:]])
    one_more = {"rewards": grid["rewards"], "values": values, "terminated": grid["terminated"]}
    last = one_more | {"values": grid["values"], "last_values": values[-1]}
    final = last | {"truncated": grid["truncated"], "final_values": grid["next_values"]}
    final_and_one_more = {name: array for name, array in final.items() if name != "last_values"} | {"values": values}
    one, wide = np.array(0.1), {"final_values": grid["next_values"] / np.float64(3)}  # which make the results float64
    for arrays, normalize, expected in (
        (grid, "global", (fastgae.moments(advantages).normalize(advantages), returns)),
        (one_more, None, fastgae.gae(*one_more.values())),
        (last, None, fastgae.gae(**last)),
        (final, None, fastgae.gae(**final)),
        (final_and_one_more, None, fastgae.gae(**final_and_one_more)),
        *((each | {"last_values": one}, None, fastgae.gae(**each | {"last_values": one})) for each in (last, final)),
        (final | wide, None, fastgae.gae(**final | wide)),
    ):
        np.savez(source, **arrays)
        report = compute(source, normalize=normalize, memory=limit(11 * N), overwrite=True, progress=False)
        ends = arrays["terminated"] | arrays.get("truncated", False)
        assert report.unread == ()
        assert (report.steps, report.episodes) == (T * N, np.count_nonzero(ends[:-1]) + N)
        assert list(map(bits, read_arrays(tmp_path / "a.advantages.parquet").values())) == list(map(bits, expected))
    assert set(most) == {11}
    np.savez(source, rewards=grid["rewards"], terminated=grid["terminated"])
    np.savez(tmp_path / "v.npz", values=grid["values"])
    np.save(tmp_path / "v.npy", grid["values"])
    write(pa.table({"values": column_of(grid["values"])}), tmp_path / "v.parquet", 50)
    ended = grid["terminated"] | (np.arange(T)[:, None] == T - 1)
    expected = fastgae.gae(grid["rewards"], grid["values"], ended, last_values=0.0)
    for name in ("v.npz", "v.npy", "v.parquet"):
        how = {"values": str(tmp_path / name), "ends": "terminated", "memory": limit(11 * N)}
        compute(source, tmp_path / "a.advantages.parquet", overwrite=True, progress=False, **how)
        assert list(map(bits, read_arrays(tmp_path / "a.advantages.parquet").values())) == list(map(bits, expected))


@pytest.mark.parametrize("file", ["a.npz", "a.hdf5"])
def test_last_values(tmp_path, grid, file):
    """A folder of arrays may have them too; it is read once, however many of its files are named."""
    given, folder = {name: grid[name] for name in ("rewards", "values", "terminated")}, tmp_path / "run"
    folder.mkdir()
    one_env = {name: array[:, 0] for name, array in given.items()} | {"last_values": np.float32(0.5)}
    for name, array in one_env.items():
        np.save(folder / f"{name}.npy", array)
    for source in (folder, f"{folder}/*.npy", [folder / "rewards.npy", folder]):
        assert_same_bits(computed(source, tmp_path / "out.parquet"), fastgae.gae(**one_env))
    (folder / "rewards.npy").rename(folder / "r.npy")
    got = computed(folder, tmp_path / "out.parquet", columns={"rewards": "r"})
    assert_same_bits(got, fastgae.gae(**one_env))
    last, one_more = grid["next_values"][-1], np.concatenate([grid["values"], grid["values"][:1]])
    for more, fault in (
        ({"last_values": last[1:]}, r"last_values has shape \(6,\) and dtype float32; expected \(7,\), as values have"),
        ({"last_values": last, "next_values": grid["next_values"]}, "both last_values and next_values: keep one"),
        ({"last_values": last, "values": one_more}, r"both last_values and values of shape \(121, 7\): keep one"),
        ({"autoreset": "next_step"}, "there is an array autoreset, which .*: call fastgae.gae with these arrays$"),
        ({"gamma": 0.9}, "there is an array gamma, which .*: leave it out, and pass it as an argument"),
        ({"prev_done": np.array(["no"], object)}, "there is an array prev_done, which fastgae.gae reads"),
        ({"final_values": grid["values"]}, "there are final_values, but no truncated"),
        (
            {"final_values": grid["values"][1:], "truncated": grid["truncated"], "last_values": last},
            r"final_values has shape \(119, 7\) and dtype float32; expected \(120, 7\), as values",
        ),
        (dict.fromkeys(given, 0) | {"last_values": 0}, r"both last_values and values of shape \(\): keep one"),
    ):
        save(tmp_path / file, **given | more)
        refused(f"{file} cannot be read: .*{fault}", tmp_path / file)
    np.save(folder / "last_values.npy", "0.5")
    refused(r"last_values has shape \(\) and dtype <U3; expected \(\), as values have, and numbers", folder)


def test_final_values_are_those_of_truncated_steps(tmp_path):
    """Where only a name, or ``episode_ends``, ends an episode, the next row says nothing of the state after it."""
    arrays = {"rewards": np.ones(4), "values": np.arange(4.0), "last_values": 5.0, "final_values": np.full(4, 7.0)}
    flags = {"terminated": np.zeros(4), "truncated": np.array([0, 1, 0, 0])}
    for keys in ({"episode": [0, 0, 1, 1]}, {"run": [0, 0, 1, 1]}, {"episode_ends": [2, 4]}):
        columns = {"episode": "run"} if "run" in keys else None
        for changed, message in (
            ({"truncated": np.zeros(4)}, "row 1: the episode ends without a flag, and there is no value"),
            ({"final_values": np.array([0, np.nan, 0, 0])}, "row 1: final_values is NaN"),
        ):
            np.savez(tmp_path / "a.npz", **arrays | flags | keys | changed)
            refused(message, tmp_path / "a.npz", columns=columns)
        for memory, names in product((limit(1), "1GB"), (flags, ("terminated", "done"), ("terminals", "timeouts"))):
            np.savez(tmp_path / "a.npz", **arrays | keys | dict(zip(names, flags.values(), strict=True)))
            got = computed(tmp_path / "a.npz", tmp_path / "out.parquet", columns=columns, memory=memory)
            assert_same_bits(got, fastgae.gae(**arrays, **flags))
    rewards, final = np.linspace(0, 1, 4, dtype=np.float32), np.linspace(0, 1, 4)
    np.savez(
        tmp_path / "a.npz", **flags | arrays | {"rewards": rewards, "final_values": final, "truncated": final > 0.9}
    )
    how = {"estimator": "discounted_returns", "columns": {"values": None}, "memory": limit(1)}
    got = computed(tmp_path / "a.npz", tmp_path / "out.parquet", **how)
    given = {"truncated": final > 0.9, "final_values": final, "last_values": 0.0}
    expected = fastgae.discounted_returns(rewards, flags["terminated"], **given, gamma=0.99)
    assert_same_bits(got, fastgae.GAEResult(None, expected))


def test_a_critic_is_also_called_behind_the_last_step(tmp_path, grid):
    one = {name: grid[name][:, 0] for name in ("rewards", "terminated")}
    values = np.append(grid["values"][:, 0], np.float32(0))
    one |= {"obs": values[:-1], "values": values}
    np.savez(tmp_path / "a.npz", **one)
    critic = Critic(lambda batch: batch["obs"], ["obs"])
    refused(f"obs has {T} rows; expected {T + 1}, for {T} rewards", tmp_path / "a.npz", values=critic)
    np.savez(tmp_path / "a.npz", **one, next_obs=values[1:])
    got = computed(tmp_path / "a.npz", tmp_path / "out.parquet", values=critic)
    assert_same_bits(got, fastgae.gae(one["rewards"], values, one["terminated"]))


class Opened:
    """Unpickled, it would leave a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_nothing_is_unpickled(tmp_path, recorded):
    trap, run = np.array([Opened(tmp_path / "trapped")], object), tmp_path / "run"
    np.savez(tmp_path / "a.npz", **recorded.arrays(rewards=trap))
    refused(r"a.npz cannot be read: rewards must hold numbers or bool, got dtype object", tmp_path / "a.npz")
    run.mkdir()
    np.save(run / "rewards.npy", trap)
    refused(r"rewards.npy cannot be read: Array can't be memory-mapped: Python objects", run)
    (run / "rewards.npy").write_bytes(pickle.dumps(Opened(tmp_path / "trapped")))
    refused(r"rewards.npy cannot be read: it does not begin as a .npy file does", run)
    assert {path.name for path in tmp_path.iterdir()} == {"a.npz", "run"}


FAULTS = {
    "NaN": ("rewards", put((7, 3), np.nan), r"a.npz: row 7: rewards is NaN in env 3"),
    **{
        f"flag {flag}": ("terminated", put((9, 1), flag), f"row 9: terminated is {flag}; expected 0 or 1 in env 1")
        for flag in (2.0, 0.5, -1.0)
    },
    "no V'": (
        "next_values",
        None,
        r"a.npz: row \d+: the episode is truncated in env \d, and there is no value .*store last_values.*every episode",
    ),
    **{
        f"shape of {name}": (
            name,
            lambda array: array[:, :3],
            rf"a row of {name} has the shape \(3,\), but a row of rew",
        )
        for name in ("values", "next_values", "truncated")
    },
    "one more": (
        "terminated",
        lambda array: array.repeat([1] * (T - 1) + [2], 0),
        "terminated has 121 rows; expected 120",
    ),
    **{
        f"{name}, one less": (name, lambda array: array[1:] > 9, f"{name} has 119 rows; expected 120, for 120 rewards")
        for name in ("truncated", "next_values", "mask")
    },
    "length": ("values", lambda array: array[:50], "values has 50 rows; expected 120, for 120 rewards"),
    "axes": ("rewards", lambda array: array[:, :, None], "the column of rewards holds .*; expected float32"),
}


def test_bad_arrays(tmp_path, grid):
    for name, change, message in FAULTS.values():
        others = {each: grid[each] for each in grid if each != name}
        np.savez(tmp_path / "a.npz", **others, **({name: change(grid.get(name, grid["rewards"]))} if change else {}))
        refused(message, tmp_path / "a.npz")
    for name in ("env", "episode", "step"):  # names of rows, which only rows of one env have
        np.savez(tmp_path / "a.npz", **{each: array[:, 0] for each, array in grid.items()}, **{name: np.arange(N)})
        refused(f"{name} has {N} rows; expected {T}, for {T} rewards", tmp_path / "a.npz")
        np.savez(tmp_path / "a.npz", **grid, **{name: np.arange(N)})
        computed(tmp_path / "a.npz", tmp_path / "out.arrow")
    np.save(tmp_path / "a.npy", np.ones(3, [("rewards", float), ("values", float)]))  # fields are no columns
    refused("there is no column 'rewards' for rewards; there are none", tmp_path / "a.npy")
