"""The command `diagnose`: its exit status, its two outputs, and what it says of files that it cannot use."""

import json
import os
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

import fastgae
from fastgae._engine import dispatch
from fastgae.cli import diagnose


@pytest.fixture
def saved(tmp_path):
    """Save a correct call, changed as given, and its path; what is None is left out."""

    def save(**changed):
        rewards, values = np.random.default_rng(0).normal(size=(2, 32, 4))
        call = {"rewards": rewards, "values": values, "terminated": np.zeros((32, 4), bool), "last_values": np.ones(4)}
        path = tmp_path / "rollout.npz"
        np.savez(path, **{name: array for name, array in {**call, **changed}.items() if array is not None})
        return str(path)

    return save


@pytest.fixture
def written(tmp_path):
    """Write an archive of these members, and return its path."""

    def write(members, method=zipfile.ZIP_STORED):
        with zipfile.ZipFile(tmp_path / "written.npz", "w", method) as opened:
            for name, content in members.items():
                opened.writestr(name, content)
        return tmp_path / "written.npz"

    return write


@pytest.fixture
def refused(failure):
    """Return what the command says of a file that it must refuse: status 2 and one line of printable text."""

    def line(path):
        message = failure("diagnose", path)
        assert message.startswith("fastgae diagnose: error: ")
        assert str(path) in message
        assert message[:-1].isprintable()
        assert len(message) < 2000
        assert "pickle" not in message
        return message

    return line


def test_other_arrays_are_not_read(saved, ran, monkeypatch):
    others = {"observations": np.zeros((32, 4, 99)), "infos": np.array([{}, None]), "a\x1b[31mb": np.zeros(2)}
    path = saved(**others)
    monkeypatch.setattr(diagnose, "usable_memory", lambda: 100_000)
    lines = ran("diagnose", path).out.splitlines()
    assert lines[0].startswith("Nothing found in 32 steps of 4 environments.")
    assert [line.split()[0] for line in lines[2:6]] == ["episodes", "rewards", "values", "TD"]
    assert lines[6:] == ["", "Not used, because they are not arguments: observations, infos, a\\x1b[31mb"]
    facts = json.loads(ran("diagnose", path, "--json").out)
    assert facts["unused"] == list(others)
    assert (facts["steps"], facts["envs"], facts["episodes"], facts["lengths"]) == (32, 4, 0, None)


def test_settings_are_options_and_not_read_from_the_file(saved, refused, ran):
    path = saved(autoreset=np.array("next_step"))
    assert "holds autoreset, which is an option here: pass --autoreset" in refused(path)
    assert "holds time_axis, which is an option here: pass --time-axis, or leave it out" in refused(saved(time_axis=0))
    path = saved(autoreset=np.array("next_step"))
    assert "Not used" not in ran("diagnose", path, "--autoreset", "next_step").out


def test_several_rollouts(saved, ran):
    """A pattern names files of recorded data, but a file whose name looks like one is a rollout."""
    path = Path(saved())
    for name in ("b.npz", "a[0].npz"):
        (path.parent / name).write_bytes(path.read_bytes())
    assert "32 steps" in ran("diagnose", path.parent / "a[0].npz", "--autoreset", "disabled").out
    pytest.importorskip("pyarrow")
    assert "64 steps" in ran("diagnose", path.parent / "[br]*.npz").out


def test_a_report_fits_the_terminal(saved, ran, monkeypatch):
    reports = []
    for columns in (200, 60, 5):
        monkeypatch.setenv("COLUMNS", str(columns))
        reports.append(ran("diagnose", saved(gamma=float(np.float16(0.99))), status=1).out)
    assert len({tuple(report.split()) for report in reports}) == 1
    wide, narrow = (max(map(len, report.splitlines())) for report in reports[:2])
    assert 60 >= narrow < wide <= 100


def test_options_are_those_of_gae(saved, ran, monkeypatch):
    rounded = float(np.float16(0.99))
    ran("diagnose", saved(gamma=rounded), status=1)
    ran("diagnose", saved(gamma=rounded), "--gamma", "0.99")
    for allowed, status in (("coefficient_rounded", 0), ("reset_rows", 1)):
        options = ("--allow", "prev_done", "--allow", allowed)
        assert "coefficient_rounded: " in ran("diagnose", saved(gamma=rounded), *options, status=status).out
    ran("diagnose", saved(), "--gae-lambda", rounded, status=1)
    terminated = np.zeros((32, 4))
    terminated[9] = 1
    assert "not_next_step" in ran("diagnose", saved(terminated=terminated), "--autoreset", "next_step", status=1).out
    ran("diagnose", saved(last_values=np.ones(32)), "--time-axis", "1")
    ran("diagnose", saved(mask=np.ones((32, 4))), "--carry-over", "--returns-lambda", "1")
    options = """--gamma 0 --gae-lambda 0 --returns-lambda 0 --autoreset disabled --normalize per_env --tail-normalized
        --carry-over --time-axis -2"""
    expected = {"gamma": 0, "gae_lambda": 0, "returns_lambda": 0, "autoreset": "disabled", "normalize": "per_env"}
    expected |= {"tail_normalized": True, "carry_over": True, "time_axis": -2}
    asked = {}
    monkeypatch.setattr(fastgae, "diagnose", lambda **given: asked.update(given) or "")
    ran("diagnose", saved(gamma=0.5, last_advantages=np.ones(4)), *options.split())
    assert asked.keys() - expected.keys() == {"rewards", "values", "terminated", "last_values", "last_advantages"}
    assert {name: asked[name] for name in expected} == expected


def test_files_with_the_wrong_arrays(saved, refused):
    for changed, said in (
        ({"values": None}, "has no values; it holds rewards, terminated, last_values"),
        ({"rewards": None, "values": None}, "has no rewards and no values"),
        ({"values": None, "last_values": None}, "; of recorded data, pass --column values=NAME"),
        ({"terminated": None, "dones": np.zeros(4)}, "holds dones and no terminated: save the array that gae takes as"),
        ({"last_values": None}, "the value after the last step is missing"),
        ({"rewards": np.array([None, 1])}, "rewards must hold numbers or bool, got dtype object"),
        ({"values": None, "a\x1b[31mb": np.zeros(4)}, r"it holds rewards, terminated, last_values, a\x1b[31mb"),
        ({"values": None, **{f"{i:02}" * 99: np.zeros(4) for i in range(40)}}, " and 31 more"),
    ):
        assert said in refused(saved(**changed))


def test_files_that_are_no_archive(tmp_path, refused):
    text, one, cut, empty = (tmp_path / name for name in ("text.npz", "one.npz", "cut.npz", "empty.npz"))
    text.write_text("rewards")
    with one.open("wb") as file:
        np.save(file, np.ones(3))
    np.savez(cut, rewards=np.ones(3))
    cut.write_bytes(cut.read_bytes()[:-30])
    empty.touch()
    assert "not an .npz archive" in refused(text)
    assert "not an .npz archive" in refused(cut)
    assert "it is empty" in refused(empty)
    assert "it holds one array; write several by name with numpy.savez" in refused(one)
    assert "No such file" in refused(tmp_path / "missing.npz")
    if hasattr(os, "mkfifo"):  # a pipe to which nobody writes
        os.mkfifo(tmp_path / "pipe.npz")
        assert "not a regular file" in refused(tmp_path / "pipe.npz")


def test_recorded_data_that_cannot_be_read(tmp_path, refused):
    pytest.importorskip("pyarrow")
    (tmp_path / "text.npz").write_text("rewards")
    assert "cannot be read" in refused(tmp_path)  # a folder, of which one file is broken
    assert "is not a file" in refused("/dev/zero")


def npy(header, data=b"", version=b"\x01\x00"):
    """Return an array as a file, with this text for its header."""
    return b"\x93NUMPY" + version + struct.pack("<H" if version[0] == 1 else "<I", len(header)) + header + data


def header(descr="'<f8'", shape="(1,)"):
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}".encode()


NO_HEADER = "rewards has no header of an array of numbers"
MEMBERS = {
    "a huge shape and no data": (npy(header(shape="(1000000000000000000,)")), "rewards has 0 bytes, which is not what"),
    "more data than its shape": (npy(header(), bytes(16)), "rewards has 16 bytes"),
    "negative numbers": (npy(header(shape="(-1, -1)"), bytes(8)), "rewards has 8 bytes"),
    "a pickle": (npy(header("'|O'"), b"cos\nsystem\n"), "rewards must hold numbers or bool, got dtype object"),
    "fields": (npy(header("[('a', '<f8')]"), bytes(8)), "rewards must hold numbers or bool"),
    "deep parentheses": (npy(header(shape="(" * 300 + ")" * 300)), NO_HEADER),
    "deep expressions": (npy(header(shape="-" * 3900 + "1")), NO_HEADER),
    "a number of 5,000 digits": (npy(header(shape="(" + "9" * 5000 + ",)")), NO_HEADER),
    "half a header": (npy(header(shape="(")), NO_HEADER),
    "an escape that Python warns of": (npy(b"'\\d'"), NO_HEADER),
    "a header from Python 2": (npy(header(shape="(1L,)"), bytes(16)), "rewards has 16 bytes"),
    "a long header": (npy(header() + b" " * 20_000, bytes(8), b"\x02\x00"), NO_HEADER),
    "an unknown version": (npy(header(), bytes(8), b"\x09\x00"), NO_HEADER),
    "text": (b"text", NO_HEADER),
}


def test_members_that_are_no_arrays(written, refused):
    for content, said in MEMBERS.values():
        assert said in refused(written({"rewards.npy": content, "values.npy": b"", "terminated.npy": b""}))
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):  # which numpy does not write
        one = npy(header(), bytes(8))
        path = written({"rewards": one, "values": one, "terminated": one}, method)
        assert f"rewards is compressed by method {method}" in refused(path)


def test_names_that_are_there_twice_or_in_folders(written, refused):
    assert "it holds rewards twice" in refused(written({"rewards": b"", "rewards.npy": b""}))
    assert "it has no values; it holds rewards, ../values" in refused(written({"rewards": b"", "../values.npy": b""}))


def test_members_that_are_encrypted_or_damaged(saved, refused):
    path = Path(saved())
    encrypted, damaged = bytearray(path.read_bytes()), bytearray(path.read_bytes())
    for signature, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        encrypted[encrypted.index(signature) + flags] = 1
    path.write_bytes(encrypted)
    assert "rewards is encrypted" in refused(path)
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)
    assert "it is damaged (Bad CRC-32 for file 'values.npy')" in refused(path)


def test_a_file_that_would_fill_the_memory(saved, refused, monkeypatch):
    """Nothing is inflated: the headers say how large it would be."""
    path = saved(rewards=np.zeros((1 << 16, 8)))
    with monkeypatch.context() as patch:
        patch.setattr(diagnose, "usable_memory", lambda: 1 << 20)
        patch.setattr(np.lib.format, "read_array", None)
        assert "its arrays have 524,548 elements" in refused(path)
    assert diagnose.usable_memory() > 1 << 20


def test_a_wrong_setting_is_not_the_fault_of_the_file(saved, under, ran):
    under(FASTGAE_RECYCLE="lots")
    dispatch.recycle.cache_clear()
    said = ran("diagnose", saved(), status=2).err
    assert said.startswith("fastgae diagnose: error: FASTGAE_RECYCLE='lots' is not")


def test_memory_that_runs_out(saved, refused, monkeypatch):
    def allocate(*arguments, **options):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(np.lib.format, "read_array", allocate)
        assert "not enough memory" in refused(saved())
    monkeypatch.setattr(fastgae, "diagnose", allocate)
    assert "not enough memory" in refused(saved())
