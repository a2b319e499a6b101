"""HDF5 files that point to others, or to other places: only numbers in the file itself are read."""

import numpy as np
import pytest

from fastgae.data import DataError, compute

h5py = pytest.importorskip("h5py")

ROWS = 8


def external_link(file, name, target, users):
    target[name] = h5py.ExternalLink(str(users), "/numbers")


def soft_link_through_an_external_one(file, name, target, users):
    file["outside"] = h5py.ExternalLink(str(users), "/")
    target[name] = h5py.SoftLink("/outside/numbers")


def raw_storage(file, name, target, users):
    target.create_dataset(name, (ROWS,), "f8", external=[("/etc/passwd", 0, 8 * ROWS)])


def virtual(file, name, target, users):
    layout = h5py.VirtualLayout((ROWS,), "f8")
    layout[:] = h5py.VirtualSource("gone.hdf5", "numbers", (ROWS,))
    target.create_virtual_dataset(name, layout)


def cyclic_links(file, name, target, users):
    target[name], file["there"] = h5py.SoftLink("/there"), h5py.SoftLink(f"{target.name}/{name}")


def dangling_link(file, name, target, users):
    target[name] = h5py.SoftLink("/nowhere")


LINK, ELSEWHERE = "is a link to another place: copy", "its numbers are in another file: copy them into this one"
LINKS = {
    external_link: LINK,
    soft_link_through_an_external_one: LINK,
    raw_storage: ELSEWHERE,
    virtual: ELSEWHERE,
    cyclic_links: LINK,
    dangling_link: LINK,
}
ARRAYS = {
    "": {"rewards": np.ones(ROWS), "values": np.ones(ROWS), "terminals": np.ones(ROWS, bool)},
    "episode_0": {"rewards": np.ones(ROWS), "values": np.ones(ROWS), "terminations": np.ones(ROWS, bool)},
}


@pytest.fixture
def users(tmp_path):
    with h5py.File(tmp_path / "users.hdf5", "w") as file:
        file["numbers"] = np.ones(ROWS)
    return tmp_path / "users.hdf5"


def write(path, group, left_out=()):
    with h5py.File(path, "w") as file:
        for name, array in ARRAYS[group].items():
            if name not in left_out:
                file[f"{group}/{name}"] = array
    return path


@pytest.mark.parametrize("group", ARRAYS)
def test_numbers_elsewhere(tmp_path, users, group):
    for link, message in LINKS.items():
        for name in ARRAYS[group]:
            path = write(tmp_path / "a.hdf5", group, [name])
            with h5py.File(path, "a") as file:
                link(file, name, file[group or "/"], users)
            with pytest.raises(DataError, match=rf"a\.hdf5: .*({name}|outside|there) .*{message}"):
                compute(path, progress=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.hdf5", "users.hdf5"]


def test_a_group_in_itself(tmp_path):
    path = write(tmp_path / "a.hdf5", "")
    with h5py.File(path, "a") as file:
        group = file.create_group("infos/qpos")
        group["again"] = file["infos"]
    with pytest.raises(DataError, match=r"a\.hdf5 cannot be read: maximum recursion depth exceeded"):
        compute(path, progress=False)


def test_two_names_of_one_array(tmp_path):
    """Hard links, and arrays in all layouts, and types."""
    path = write(tmp_path / "a.hdf5", "", ["values"])
    with h5py.File(path, "a") as file:
        file["more/numbers"] = np.arange(ROWS, dtype=float)
        file["values"], file["type"] = file["more/numbers"], np.dtype("f8")
        file.create_dataset("chunked", data=np.ones(ROWS), chunks=(3,), compression="gzip")
    assert compute(path, gamma=0.0, progress=False).mean == 1 - (ROWS - 1) / 2
