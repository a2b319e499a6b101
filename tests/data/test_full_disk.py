"""A disk that takes no more: a clear error, nothing that looks whole, and a run that goes on with room again."""

import signal

import numpy as np
import pytest

from fastgae.data import WriteError, compute

from .recorded import ROWS, limit, read, write
from .test_tables import assert_results

resource = pytest.importorskip("resource", reason="this platform has no limit on the size of files")

# A limit on the size of files stands for the disk. ROWS take some 72 KB in one file, and a run of 100 rows some 4.
SPOOLED, WHOLE = 3_000, 20_000


@pytest.fixture
def full_at():
    """Let no file grow beyond so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    assert (
        signal.getsignal(signal.SIGXFSZ) == signal.SIG_IGN
    )  # as Python begins: the write fails in place of the process
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
@pytest.mark.parametrize(("size", "refused"), [(SPOOLED, "unfinished"), (WHOLE, "out")])
@pytest.mark.parametrize("scattered", [False, True])
def test_full_disk(tmp_path, recorded, full_at, suffix, size, refused, scattered):
    order = np.random.default_rng(0).permutation(ROWS) if scattered else np.arange(ROWS)
    source = write(recorded.table().take(order), tmp_path / "source.parquet", 100)
    out = tmp_path / f"out{suffix}"
    full_at(size)
    with pytest.raises(WriteError, match=r"cannot write .*File too large") as caught:
        compute(source, out, memory=limit(100), progress=False)
    full_at(resource.RLIM_INFINITY)
    assert ("; the finished part is kept: make" in str(caught.value)) == (size == WHOLE and not scattered)
    assert refused in str(caught.value) or scattered
    assert not out.exists()
    compute(source, out, memory=limit(100), resume=True, progress=False)
    assert_results(read(out), recorded, order)
    assert sorted(path.name for path in tmp_path.iterdir()) == [out.name, source.name]


def test_full_disk_for_a_table_in_memory(recorded, full_at):
    """``resume`` needs files, so nothing is kept."""
    for size in (SPOOLED, WHOLE):
        full_at(size)
        with pytest.raises(WriteError, match=r"cannot write .*: File too large$"):
            compute(recorded.table(), memory=limit(100), progress=False)
        full_at(resource.RLIM_INFINITY)


def test_full_disk_where_earlier_results_are(tmp_path, recorded, full_at):
    source, out = write(recorded.table(), tmp_path / "source.parquet", 100), tmp_path / "out.parquet"
    compute(source, out, gamma=0.5, progress=False)
    old, options = out.read_bytes(), {"memory": limit(100), "overwrite": True, "progress": False}
    full_at(WHOLE)
    with pytest.raises(WriteError, match="File too large"):
        compute(source, out, **options)
    full_at(resource.RLIM_INFINITY)
    assert out.read_bytes() == old
    compute(source, out, resume=True, **options)
    assert_results(read(out), recorded)
    assert sorted(path.name for path in tmp_path.iterdir()) == [out.name, source.name]
