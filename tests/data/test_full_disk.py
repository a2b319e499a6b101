"""A disk that takes no more: a clear error, nothing that looks whole, and a run that goes on with room again."""

import errno
import os
import re
import signal

import numpy as np
import pytest

from fastgae.data import WriteError

from .recorded import NEXT, ROWS, assert_same_bits, computed, limit, names, refused, write

resource = pytest.importorskip("resource", reason="this platform has no limit on the size of files")

# A limit on the size of files stands for the disk. ROWS take some 72 KB in one file, and a run of 100 rows some 4.
SPOOLED, WHOLE = 3_000, 20_000
RUN = {"memory": limit(100)}


@pytest.fixture
def full_at():
    """Let no file grow beyond so many bytes while a source is computed, which is an error then."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # As Python begins: the write fails in place of the process.
    assert signal.getsignal(signal.SIGXFSZ) == signal.SIG_IGN

    def full(size, *given, message=r"cannot write .*File too large", **options):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            return str(refused(message, *given, error=WriteError, **RUN, **options))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    return full


@pytest.mark.parametrize(("suffix", "scattered"), [(".parquet", False), (".arrow", True)])
def test_full_disk(tmp_path, recorded, full_at, suffix, scattered):
    order = np.random.default_rng(0).permutation(ROWS) if scattered else np.arange(ROWS)
    source = write(recorded.table().take(order), tmp_path / "source.parquet", 100)
    for size, place in ((10, "unfinished"), (SPOOLED, "unfinished"), (WHOLE, "out")):
        out = tmp_path / f"out{size}{suffix}"
        message = full_at(size, source, out)
        assert ("; the finished part is kept: make" in message) == (size == WHOLE and not scattered)
        assert place in message or scattered
        assert not out.exists()
        assert_same_bits(computed(source, out, resume=True, **RUN), recorded.result, order)
    assert names(tmp_path) == [*(f"out{size}{suffix}" for size in (10, WHOLE, SPOOLED)), source.name]


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="this platform cannot ask for the space of a file")
def test_full_disk_before_a_file_is_mapped(tmp_path, recorded, monkeypatch):
    """A write to the mapping would end the process. The file is as long as it will be, and takes no space yet."""

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    order = np.random.default_rng(0).permutation(ROWS)
    source = write(recorded.table().take(order), tmp_path / "source.parquet", 100)
    refused(r"cannot write .*No space left on device", source, tmp_path / "out.arrow", error=WriteError, **RUN)


@pytest.mark.parametrize("copied", ["row group", "text", "values"])
def test_full_disk_while_a_file_is_copied(tmp_path, recorded, full_at, copied):
    """It is the disk that is full, and not the source that is damaged."""
    source = write(recorded.table(), tmp_path / ("a.csv" if copied == "text" else "a.parquet"), ROWS)
    given = {"values": source, **NEXT} if copied == "values" else {}
    size = SPOOLED if given else WHOLE
    message = full_at(size, source, tmp_path / "out.arrow", **given)
    assert re.search(r"^cannot write .*out\.arrow\.unfinished: File too large$", message)
    assert names(tmp_path) == [source.name]
    got = computed(source, tmp_path / "out.arrow", **given, **RUN)
    assert np.allclose(got["advantages"], recorded.result.advantages, atol=1e-5)
    for size in (SPOOLED, WHOLE):  # ``resume`` needs files, so nothing is kept for a table in memory
        full_at(size, recorded.table(), message=r"cannot write .*: File too large$")


def test_full_disk_where_earlier_results_are(tmp_path, recorded, full_at):
    source, out = write(recorded.table(), tmp_path / "source.parquet", 100), tmp_path / "out.parquet"
    computed(source, out, gamma=0.5)
    old = out.read_bytes()
    full_at(WHOLE, source, out, overwrite=True)
    assert out.read_bytes() == old
    assert_same_bits(computed(source, out, resume=True, **RUN), recorded.result)
    assert names(tmp_path) == [out.name, source.name]
