"""robomimic's HDF5 files: a group data/demo_N for each episode."""

import numpy as np
import pytest

from fastgae.data import DataError, compute

from .recorded import assert_same_bits, limit, read

h5py = pytest.importorskip("h5py")


def write(path, recorded):
    """Write a file as robomimic does, whose order of demos is that of their names."""
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["total"] = len(recorded.rewards)
        for number, part in enumerate(np.split(np.arange(len(recorded.rewards)), recorded.first[1:])):
            demo = data.create_group(f"demo_{number}")
            demo.attrs["num_samples"] = len(part)
            demo["actions"] = np.zeros((len(part), 7))
            demo["rewards"], demo["dones"] = recorded.rewards[part], recorded.last[part].astype(np.int64)
            demo["values"], demo["next_values"] = recorded.values[part], recorded.next_values[part]
            demo["obs/object"] = recorded.values[part][:, None]
            demo["next_obs/object"] = recorded.next_values[part][:, None]
            demo["truncated"] = recorded.truncated[part]
        file["mask/train"] = np.array([b"demo_0"])


def test_demos(tmp_path, recorded):
    path = tmp_path / "demos.hdf5"
    write(path, recorded)
    for memory in (limit(50), "1GB"):
        report = compute(path, columns={"truncated": "truncated"}, memory=memory, progress=False)
        assert report.episodes == len(recorded.first)
        got = read(tmp_path / "demos.advantages.parquet")
        assert got.column_names == ["demo", "step", "advantages", "returns"]
        assert np.array_equal(got["demo"], recorded.episode)
        assert_same_bits(got, recorded.result)
        (tmp_path / "demos.advantages.parquet").unlink()
    with h5py.File(path, "a") as file:
        for demo in file["data"].values():
            del demo["next_values"]
    critic = {"values": lambda batch: batch["obs"]["object"][:, 0]}
    compute(path, columns={"truncated": "truncated"}, progress=False, **critic)
    assert_same_bits(read(tmp_path / "demos.advantages.parquet"), recorded.ended)


def test_broken_demos(tmp_path, recorded):
    path = tmp_path / "demos.hdf5"
    write(path, recorded)
    with pytest.raises(DataError, match=r"nothing says which episodes ended for good \(done may be a time limit\)"):
        compute(path, progress=False)
    with h5py.File(path, "a") as file:
        del file["data/demo_3/values"]
    with pytest.raises(DataError, match=r"demos\.hdf5: data/demo_3 has no values; there are"):
        compute(path, ends="terminated", progress=False)
    with h5py.File(path, "a") as file:
        del file["data"]
        file["data"] = h5py.ExternalLink(str(tmp_path / "others.hdf5"), "/data")
    with pytest.raises(DataError, match=r"demos\.hdf5: data is a link to another place: copy the numbers there"):
        compute(path, ends="terminated", progress=False)
    assert list(tmp_path.iterdir()) == [path]
