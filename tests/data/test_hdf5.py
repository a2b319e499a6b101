"""HDF5 of D4RL and robomimic, and files that point to others: only numbers in the file itself are read."""

from pathlib import Path

import numpy as np
import pytest

from fastgae.data import compute

from .recorded import assert_same_bits, computed, limit, names, refused

h5py = pytest.importorskip("h5py")

ROWS = 8


def test_d4rl(tmp_path, recorded):
    """The first number of an observation is twice the value."""
    path, actions = tmp_path / "hopper.hdf5", np.zeros((len(recorded.rewards), 3), np.float32)
    arrays = {
        "rewards": recorded.rewards,
        "terminals": recorded.terminated,
        "timeouts": recorded.truncated,
        "actions": actions,
        "observations": np.stack([recorded.values * 2, recorded.values], axis=1),
        "next_observations": np.stack([recorded.next_values * 2, recorded.values], axis=1),
        "infos/qpos": actions,
        "infos/act": actions[:, :0],  # of a robot without actuators that have a state
        "act": actions[:, :0],
        "metadata/algorithm": np.bytes_("SAC"),
    }
    for changed, message in (
        ({}, None),
        ({"next_observations": None}, r"hopper.hdf5: row \d+: the episode is truncated, and there is no value of the "),
        ({"rewards": None}, "there is no column 'rewards' for rewards; there are actions, "),
        ({"rewards": 1.0}, r"hopper.hdf5: rewards is not an array with one number for each step"),
        ({"terminals": np.zeros(5)}, "terminals has 5 rows; expected 3,000"),
        ({"rewards": np.array([b"1"] * 3000, object)}, "there is no column 'rewards' for rewards"),
    ):
        with h5py.File(path, "w") as file:
            file.update({name: array for name, array in {**arrays, **changed}.items() if array is not None})
        critic = {"values": lambda batch: batch["observations"][:, 0] * np.float32(0.5), "memory": limit(400)}
        if message is None:
            got = computed(path, tmp_path / "out.parquet", **critic)
            assert got.column_names == ["advantages", "returns"]
            assert_same_bits(got, recorded.ended)
        else:
            refused(message, path, **critic)
    assert names(tmp_path) == ["hopper.hdf5", "out.parquet"]
    with h5py.File(path, "w") as file:
        rewards = file.create_dataset("rewards", data=recorded.rewards, compression="gzip")
        file["terminals"], at = recorded.last, rewards.id.get_chunk_info(0).byte_offset
    path.write_bytes(path.read_bytes()[:at] + b"damaged" + path.read_bytes()[at + 7 :])
    refused("hopper.hdf5 cannot be read: ", path, estimator="discounted_returns", ends="terminated")


def test_groups_of_other_projects(tmp_path):
    """Those of ManiSkill hold one observation more than rewards."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.update({"traj_0/rewards": np.ones(2), "traj_0/obs": np.ones((3, 4))})
    refused("a.h5: no array has a row for each step; there are traj_0", tmp_path / "a.h5")
    h5py.File(tmp_path / "b.h5", "w").close()
    refused("b.h5: no array has a row for each step; there are none", tmp_path / "b.h5")


def test_numbers_of_demos_with_zeros_before_them(tmp_path):
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        for number in range(11):
            file[f"data/demo_{number:03}/rewards"] = np.full(2, number)
            file[f"data/demo_{number:03}/values"] = np.zeros(2)
            file[f"data/demo_{number:03}/longer than float64"] = np.zeros(2, np.longdouble)
    got = computed(tmp_path / "a.hdf5", tmp_path / "out.parquet", ends="terminated", gamma=1.0, gae_lambda=1.0)
    assert got["demo"].to_pylist()[::2] == list(range(11))
    assert got["returns"].to_pylist()[::2] == [2 * number for number in range(11)]


def test_robomimic(tmp_path, recorded):
    """A group data/demo_N for each episode. The order of demos in a file is that of their names."""
    path, out = tmp_path / "demos.hdf5", tmp_path / "out.parquet"
    with h5py.File(path, "w") as file:
        file["mask/train"] = np.array([b"demo_0"])
        for number, part in enumerate(np.split(np.arange(len(recorded.rewards)), recorded.first[1:])):
            demo = file.create_group(f"data/demo_{number}")
            demo["rewards"], demo["dones"] = recorded.rewards[part], recorded.last[part].astype(np.int64)
            demo["values"], demo["truncated"] = recorded.values[part], recorded.truncated[part]
            demo["obs/object"] = recorded.values[part][:, None]
            demo["next_obs/object"] = recorded.next_values[part][:, None]
    refused(r"nothing says which episodes ended for good \(done may be a time limit\)", path)
    critic = {"values": lambda batch: batch["obs"]["object"][:, 0], "columns": {"truncated": "truncated"}}
    got = computed(path, out, **critic)
    assert np.array_equal(got["demo"], recorded.episode)
    assert_same_bits(got, recorded.ended)
    with h5py.File(path, "a") as file:
        del file["data/demo_3/values"]
    refused(r"demos\.hdf5: data/demo_3 has no values; there are", path, ends="terminated")
    with h5py.File(path, "a") as file:
        del file["data/demo_3/rewards"]
        file["data/demo_3/rewards"] = 1.0
    refused(r"demos\.hdf5: data/demo_3: rewards is not an array with one number for each step", path, ends="terminated")
    with h5py.File(path, "a") as file:
        del file["data"]
        file["data"] = h5py.ExternalLink(str(tmp_path / "others.hdf5"), "/data")
    refused(r"demos\.hdf5: data is a link to another place: copy the numbers there", path, ends="terminated")


def link(kind, target, name):
    """Put a name into a group of a file: a link to another place, or an array whose numbers are in another file."""
    file, users = target.file, str(Path(target.file.filename).with_name("users.hdf5"))
    match kind:
        case "external link":
            target[name] = h5py.ExternalLink(users, "/numbers")
        case "dangling link":
            target[name] = h5py.SoftLink("/nowhere")
        case "through an external link":
            file["outside"], target[name] = h5py.ExternalLink(users, "/"), h5py.SoftLink("/outside/numbers")
        case "cyclic":
            target[name], file["there"] = h5py.SoftLink("/there"), h5py.SoftLink(f"{target.name}/{name}")
        case "raw storage":
            target.create_dataset(name, (ROWS,), "f8", external=[("/etc/passwd", 0, 8 * ROWS)])
        case "virtual":
            layout = h5py.VirtualLayout((ROWS,), "f8")
            layout[:] = h5py.VirtualSource("gone.hdf5", "numbers", (ROWS,))
            target.create_virtual_dataset(name, layout)


ELSEWHERE = dict.fromkeys(
    ("external link", "dangling link", "through an external link", "cyclic"), "is a link to another place: copy"
)
ELSEWHERE |= dict.fromkeys(("raw storage", "virtual"), "its numbers are in another file: copy them into this one")
ARRAYS = {
    "": {"rewards": np.ones(ROWS), "values": np.ones(ROWS), "terminals": np.ones(ROWS, bool)},
    "episode_0": {"rewards": np.ones(ROWS), "values": np.ones(ROWS), "terminations": np.ones(ROWS, bool)},
}


def write(path, group, left_out=()):
    with h5py.File(path, "w") as file:
        file.update({f"{group}/{name}": array for name, array in ARRAYS[group].items() if name not in left_out})
    return path


@pytest.mark.parametrize("group", ARRAYS)
def test_numbers_elsewhere(tmp_path, group):
    with h5py.File(tmp_path / "users.hdf5", "w") as file:
        file["numbers"] = np.ones(ROWS)
    for kind, message in ELSEWHERE.items():
        for name in ARRAYS[group]:
            path = write(tmp_path / "a.hdf5", group, [name])
            with h5py.File(path, "a") as file:
                link(kind, file[group or "/"], name)
                file["last_values"] = 0.0
            refused(rf"a\.hdf5: .*({name}|outside|there) .*{message}", path)
    assert names(tmp_path) == ["a.hdf5", "users.hdf5"]


def test_hard_links(tmp_path):
    """Two names of one array, arrays in all layouts, and types; and a group in itself."""
    path = write(tmp_path / "a.hdf5", "", ["values"])
    with h5py.File(path, "a") as file:
        file["more/numbers"] = np.arange(ROWS, dtype=float)
        file["values"], file["type"] = file["more/numbers"], np.dtype("f8")
        file.create_dataset("chunked", data=np.ones(ROWS), chunks=(3,), compression="gzip")
    assert compute(path, gamma=0.0, progress=False).mean == 1 - (ROWS - 1) / 2
    with h5py.File(path, "a") as file:
        group = file.create_group("infos/qpos")
        group["again"] = file["infos"]
    refused(r"a\.hdf5 cannot be read: maximum recursion depth exceeded", path)
