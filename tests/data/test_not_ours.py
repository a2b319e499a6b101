"""What a user has put at a name that fastgae writes or removes: an error, and nothing of the user's changes."""

import importlib.util
import os
import shutil
import stat
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fastgae.data import DataError, WriteError, compute, state, walk

from . import recorded
from .recorded import NEXT, assert_same_bits, computed, limit, names, write

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this platform has no pipes")


OUT, UNFINISHED = "out.parquet", "out.parquet.unfinished"
NO_FILES = {
    "link to a file": lambda path, users: path.symlink_to(users / "file"),
    "link to a folder": lambda path, users: path.symlink_to(users),
    "dangling link": lambda path, users: path.symlink_to(users / "nowhere"),
    "folder": lambda path, users: shutil.copytree(users, path),
    "pipe": lambda path, users: os.mkfifo(path),
    "socket": lambda path, users: os.mknod(path, stat.S_IFSOCK | 0o600),
}
PLANTED = NO_FILES | {
    "read-only folder": lambda path, users: shutil.copytree(users, path).chmod(0o500),
    "hard link": lambda path, users: path.hardlink_to(users / "file"),
    "file": lambda path, users: path.write_bytes(b"the user's"),
}
TABLE = pa.table({"a": [1]}).replace_schema_metadata({"fastgae": "5"})  # of another program
LOCK = state.LOCK
INSIDE = [state.JOURNAL, state.RESULTS, state.SORTED, "duckdb_temp_0", "notes.txt"]


def contents(folder):
    """Return everything below a folder, without following links."""
    found = {}
    for path in folder.rglob("*"):
        about = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(about.st_mode) else path.is_symlink() and path.readlink()
        found[path] = content, about.st_mode, not path.is_dir() and (about.st_mtime_ns, about.st_nlink)
    return found


def refused(tmp_path, source, match=None, error=(DataError, WriteError), **options):
    before = contents(tmp_path)
    recorded.refused(match, source, tmp_path / "run" / OUT, error=error, memory=limit(20), **options)
    assert contents(tmp_path) == before


@pytest.fixture
def places(tmp_path, few):
    """Return a function that makes a folder for results, and one of the user's with a file."""
    source = write(few.table().take(np.random.default_rng(0).permutation(60)), tmp_path / "a.parquet", 30)

    def made(name):
        at = tmp_path / name
        (at / "users").mkdir(parents=True)
        (at / "users" / "file").write_bytes(b"the user's")
        (at / "run").mkdir()
        return at, at / "run", at / "users"

    return source, made


@pytest.mark.parametrize("option", [None, "resume", "overwrite"])
def test_at_the_names_beside_the_source(places, option):
    """Only results of an earlier run are overwritten."""
    source, made = places
    for kind, plant in (PLANTED | {"table": lambda path, users: pq.write_table(TABLE, path)}).items():
        for name in (OUT, UNFINISHED):
            message = f"{name} is not from fastgae: move it elsewhere, or pass another path"
            at, run, users = made(f"{kind} {name}")
            plant(run / name, users)
            refused(at, source, message, **({option: True} if option else {}))


def test_in_the_folder_of_unfinished_results(places):
    """A folder without our lock is the user's, whatever the names in it; and one with it holds only files of ours."""
    source, made = places
    for number, (kind, plant) in enumerate(PLANTED.items()):
        resume = number % 2 == 1
        at, run, users = made(f"lock {kind}")
        (run / UNFINISHED).mkdir()
        plant(run / UNFINISHED / LOCK, users)
        message = r"unfinished(/fastgae.lock)? is not from fastgae: move it elsewhere, or pass another path"
        refused(at, source, message, resume=resume)
        for name in INSIDE:
            at, run, users = made(f"{name} {kind}")
            unfinished = run / UNFINISHED
            unfinished.mkdir()
            plant(unfinished / name, users)
            refused(at, source, "unfinished is not from fastgae", resume=resume)
            (unfinished / LOCK).touch()
            if (kind != "file" and (kind, name) != ("hard link", state.RESULTS)) or name == "notes.txt":
                refused(at, source, f"{name}(/file)? is not from fastgae", resume=resume)
            elif kind == "hard link":  # as a run leaves it that was killed after it had moved the results
                before = contents(users)
                compute(source, run / OUT, memory=limit(20), resume=resume, progress=False)
                assert contents(users)[users / "file"][:2] == before[users / "file"][:2]
                assert names(run) == [OUT]


@pytest.mark.parametrize("resume", [False, True])
def test_an_empty_folder_is_used_and_removed(places, few, resume):
    """A run that was killed before it made its lock, or after it removed it, leaves one."""
    source, made = places
    _, run, _ = made("empty")
    for _ in range(2):  # the second time after a finished run
        (run / UNFINISHED).mkdir()
        compute(source, run / OUT, memory=limit(20), resume=resume, progress=False)
        assert names(run) == [OUT]
        if not resume:
            (run / OUT).unlink()


@pytest.mark.parametrize("has_hard_links", [True, False])
def test_what_appears_during_the_computation(tmp_path, few, monkeypatch, has_hard_links):
    """A file at OUT is not replaced, and a file among the unfinished results is not removed."""
    if not has_hard_links:
        monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(PermissionError("no hard links")))
    table = few.table(also=few.values)
    source, out = write(table, tmp_path / "a.parquet", 30), tmp_path / OUT
    unfinished = tmp_path / UNFINISHED

    def critic(batch):
        out.write_bytes(b"the user's")
        (unfinished / "notes.txt").write_bytes(b"the user's")
        return batch["also"]

    message = r"cannot write .*out\.parquet: File exists; the finished part is kept"
    recorded.refused(message, source, out, error=WriteError, values=critic, **NEXT)
    assert out.read_bytes() == (unfinished / "notes.txt").read_bytes() == b"the user's"
    out.unlink()
    (unfinished / "notes.txt").rename(tmp_path / "notes.txt")
    assert_same_bits(computed(source, out, values=critic, **NEXT, resume=True, overwrite=False), few.result)
    assert names(tmp_path) == ["a.parquet", "notes.txt", OUT]
    out.unlink()

    def noted(batch):
        (unfinished / "notes.txt").write_bytes(b"the user's")
        return batch["also"]

    assert_same_bits(computed(source, out, values=noted, **NEXT), few.result)
    assert (unfinished / "notes.txt").read_bytes() == b"the user's"


def test_where_nothing_can_be_written(tmp_path, few):
    source = write(few.table(), tmp_path / "a.parquet", 60)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "file").write_bytes(b"the user's")
    before = contents(tmp_path)
    for parent in (tmp_path / "file", tmp_path / "dangling", Path("/sys")):
        message = r"^cannot write .*out\.parquet(\.unfinished: [A-Z][a-z -]*|: there is no folder .*dangling)$"
        recorded.refused(message, source, parent / OUT, error=WriteError)
    assert contents(tmp_path) == before
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")  # the user may keep results on another disk
    compute(source, tmp_path / "link" / OUT, progress=False)
    assert names(tmp_path / "elsewhere") == [OUT]


def test_pictures(places):
    pytest.importorskip("matplotlib")
    source, made = places
    for kind, plant in NO_FILES.items():
        at, run, users = made(kind)
        plant(run / "a.png", users)
        refused(at, source, r"a\.png' is (a link or a pipe|not writable)", ValueError, plot=run / "a.png")
    from fastgae._support.pictures import new_figure, save

    at, run, users = made("beside")
    for kind, plant in PLANTED.items():
        plant(run / f"{kind}.png.partial", users)
        before = contents(run)
        save(new_figure(1, 1), run / f"{kind}.png")
        assert contents(run).items() - before.items() == {(run / f"{kind}.png", contents(run)[run / f"{kind}.png"])}


def test_every_name_in_the_folder_is_known(tmp_path, few, monkeypatch):
    """Otherwise the folder that a killed run leaves would be refused."""
    found = set()

    def watched(function):
        def call(*arguments):
            found.update(path.relative_to(tmp_path / unfinished).as_posix() for path in unfinished.rglob("*"))
            return function(*arguments)

        return call

    unfinished = tmp_path / "out.arrow.unfinished"
    for module, name in ((os, "fsync"), (state.State, "add"), (walk, "compute_run"), (state, "_digest")):
        monkeypatch.setattr(module, name, watched(getattr(module, name)))
    values = write(few.table("episode", "step", "values"), tmp_path / "v.parquet", 60)
    for order in (np.arange(60), np.random.default_rng(0).permutation(60)):
        source = write(few.table().take(order), tmp_path / "a.parquet", 60)
        plot = {"plot": tmp_path / "a.png"} if importlib.util.find_spec("matplotlib") else {}
        computed(source, tmp_path / "out.arrow", values=values, memory=limit(20), **NEXT, **plot)
        (tmp_path / "out.arrow").unlink()
    written = {"journal.jsonl", "advantages", "sorted.parquet", "values", "results", "places", "large.arrow"}
    assert {LOCK, *written} <= found
    assert all(map(state.OWN.fullmatch, found))


def _is_open(path):
    """Return whether this process has a file open or mapped."""
    files = [each.readlink() for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    return path in files or str(path) in Path("/proc/self/maps").read_text("utf-8")


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="this system does not say which files are open")
@pytest.mark.parametrize("scattered", [False, True])
@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_no_open_file_is_removed_or_replaced(tmp_path, few, monkeypatch, scattered, suffix):
    """Windows would refuse it. Few rows at a time make copies of what does not fit."""
    order = np.random.default_rng(0).permutation(60) if scattered else np.arange(60)
    source, removed, wrong = write(few.table().take(order), tmp_path / f"a.{suffix}", 60), [], []
    for name in ("unlink", "replace"):
        theirs = getattr(Path, name)

        def checked(path, *given, theirs=theirs, **options):
            removed.append(path.name)
            wrong.extend([path.name] * _is_open(path))
            return theirs(path, *given, **options)

        monkeypatch.setattr(Path, name, checked)
    compute(source, tmp_path / OUT, memory=limit(20), progress=False)
    assert "large.arrow" in removed
    assert ("sorted.parquet" in removed) == scattered
    assert set(wrong) <= {state.LOCK}  # which filelock removes on Windows, once it is closed
