"""Sources, values and results behind URLs: a real S3 server on this machine, and fsspec's memory."""

import os
import re
import socket
import threading
import traceback
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from gcp_storage_emulator.server import create_server
from gcsfs import GCSFileSystem
from moto.server import ThreadedMotoServer
from s3fs import S3FileSystem
from s3fs import core as s3fs_core
from upath import UPath

from data.recorded import NEXT, ROWS, Recorded, assert_same_bits, computed, limit, names, refused, write
from fastgae.data import DataError, WriteError, compute
from fastgae.data.errors import on_the_command_line, without_secrets
from fastgae.data.state import State

RUN = {"memory": limit(500), "progress": False}


class Wire:
    """Pass connections on to a server, and count and cut the bytes."""

    def __init__(self, port):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._server = ("127.0.0.1", port)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.heal()
        threading.Thread(target=self._accept, daemon=True).start()

    def heal(self):
        self.passed, self.limits = {"up": 0, "down": 0}, {"up": None, "down": None}
        self.cuts = 0

    def cut(self, way, after, times=10**6):
        """Break so many connections, as soon as so many more bytes have passed."""
        self.limits, self.cuts = {"up": None, "down": None, way: after}, times

    def _accept(self):
        while True:
            try:
                ours, _ = self._listener.accept()
            except OSError:
                return
            theirs = socket.create_connection(self._server)
            for way, source, target in (("up", ours, theirs), ("down", theirs, ours)):
                threading.Thread(target=self._pass, args=(way, source, target), daemon=True).start()

    def _pass(self, way, source, target):
        try:
            while data := source.recv(2**14):
                left = self.limits[way]
                if left is not None:
                    self.limits[way] = left = max(left - len(data), 0)
                    if left == 0 and self.cuts:
                        self.cuts -= 1
                        break
                target.sendall(data)
                self.passed[way] += len(data)
        except OSError:
            pass
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def close(self):
        self._listener.close()


@pytest.fixture(scope="module")
def wire(tmp_path_factory):
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    wire = Wire(port)
    settings = {
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": "the secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": wire.url,
        "AWS_MAX_ATTEMPTS": "1",
        "AWS_CONFIG_FILE": "/nonexistent",
        "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
    }
    with pytest.MonkeyPatch.context() as patched:
        for name, value in settings.items():
            patched.setenv(name, value)
        patched.setattr(S3FileSystem, "retries", 2)
        # Small files arrive in several parts too.
        patched.setattr(s3fs_core, "calculate_chunksize", lambda size, chunksize=None: 2**14)
        patched.setattr("moto.s3.models.S3_UPLOAD_PART_MIN_SIZE", 1)
        S3FileSystem.clear_instance_cache()
        yield wire
        S3FileSystem.clear_instance_cache()
    wire.close()
    server.stop()


@pytest.fixture
def bucket(wire, tmp_path, monkeypatch):
    """Return an empty bucket; unfinished results lie in a folder of the test."""
    wire.heal()
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    found = UPath(f"s3://{tmp_path.name.replace('_', '-')}")
    found.fs.mkdir(found.path)
    return found


def put(table, path, rows=250):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        pq.write_table(table, file, row_group_size=rows)
    return str(path)


def got(path):
    with UPath(path).open("rb") as file:
        return pq.read_table(file)


@pytest.fixture(scope="module")
def few():
    return Recorded(rows=600)


def test_as_on_this_machine(bucket, tmp_path, few):
    assert_as_on_this_machine(str(bucket).rstrip("/"), tmp_path, few)
    assert names(tmp_path / "temporary") == []


def test_google_cloud(tmp_path, few, monkeypatch):
    server = create_server("127.0.0.1", 0, in_memory=True, default_bucket="bucket")
    server.start()
    try:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{server._api._httpd.server_port}")
        GCSFileSystem.clear_instance_cache()
        assert_as_on_this_machine("gs://bucket", tmp_path, few)
    finally:
        GCSFileSystem.clear_instance_cache()
        server.stop()  # or its thread keeps the process from ending


def assert_as_on_this_machine(root, tmp_path, few):
    """Every kind of file, of values and of results, in order and scattered."""
    order, folder = np.random.default_rng(0).permutation(len(few.rewards)), UPath(root)
    local = write(few.table().take(order), tmp_path / "a.parquet", 100)
    expected = computed(local, tmp_path / "a.advantages.parquet", normalize="global", **RUN)
    put(few.table().take(order), folder / "a.parquet")
    report = compute(f"{root}/a.parquet", normalize="global", **RUN)
    assert report.file.endswith("a.advantages.parquet"), root
    assert got(f"{root}/a.advantages.parquet").equals(expected)
    with (folder / "v.npy").open("wb") as file:
        np.save(file, few.values)
    put(few.table(), folder / "runs" / "x=1" / "a.parquet")
    (folder / "runs" / "_hidden.parquet").write_bytes(b"no data")
    for number, (source, values) in enumerate((("runs", "v.npy"), ("runs/*/*.parquet", "runs/x=1/a.parquet"))):
        compute(f"{root}/{source}", f"{root}/{number}.parquet", values=f"{root}/{values}", **NEXT, **RUN)
        assert_same_bits(got(f"{root}/{number}.parquet"), few.result)


def test_reads_ranges(bucket, wire):
    """Columns that nobody needs stay where they are, and nothing is read twice."""
    few = Recorded(rows=2000)
    fat = pa.array([np.random.default_rng(row).bytes(5000) for row in range(2000)])
    put(few.table(fat=fat), bucket / "a.parquet", 500)
    size = (bucket / "a.parquet").stat().st_size
    wire.heal()
    compute(f"{bucket}a.parquet", **RUN)
    assert size > 10_000_000
    assert wire.passed["down"] < size / 20
    assert_same_bits(got(f"{bucket}a.advantages.parquet"), few.result)


def test_a_connection_that_breaks(bucket, wire, tmp_path, recorded):
    """The libraries try again; after that, an error that keeps the finished part, and nothing that looks whole."""
    source, out = put(recorded.table(), bucket / "a.parquet"), bucket / "out.parquet"
    wire.heal()
    compute(source, f"{bucket}whole.parquet", **RUN)
    ways = {"down": wire.passed["down"] * 0.7, "up": wire.passed["up"] - 30_000}  # in the middle of the rows
    whole = (bucket / "whole.parquet").read_bytes()
    for way, error in (("down", DataError), ("up", WriteError)):
        wire.cut(way, ways[way], times=1)
        compute(source, out, **RUN)
        assert wire.cuts == 0
        assert out.read_bytes() == whole
        out.unlink()
        wire.cut(way, ways[way])
        message = str(refused(r"(out|a)\.parquet(: | cannot be read: )", source, out, error=error, **RUN))
        assert not re.search("secret|make room", message)
        wire.heal()
        assert names(bucket) == ["a.parquet", "whole.parquet"]
        (kept,) = (tmp_path / "temporary").glob("*.unfinished")
        assert (kept / "advantages").stat().st_size
        for _ in range(2):  # the second time, all of it is there
            assert compute(source, out, resume=True, **RUN).steps == ROWS
            assert out.read_bytes() == whole
        out.unlink()
        assert names(tmp_path / "temporary") == []


async def denied(*_, **__):
    raise PermissionError("Access denied")


def test_missing_or_denied(bucket, tmp_path, recorded, monkeypatch):
    source, errors = put(recorded.table(), bucket / "a.parquet"), (DataError, WriteError)
    local = write(recorded.table(), tmp_path / "a.parquet", 100)
    for given, options, message in (
        (f"{bucket}b.parquet", {}, "source 's3://.*b.parquet' does not exist"),
        ("s3://no-such-bucket/a.parquet", {}, "source 's3://no-such-bucket/a.parquet' does not exist"),
        (local, {"out": "s3://no-such-bucket/a.parquet"}, "cannot write s3://no-such-bucket/a.parquet: .* bucket"),
        (source, {"values": f"{bucket}v.npy"}, "values '.*v.npy' does not exist, and no column"),
        ("s4://a/b", {}, "source 's4://a/b' cannot be used: "),
        (source, {"out": "https://a.b/c.parquet"}, "results cannot be written to https://a.b/c.parquet: expected"),
        (source, {"out": source}, "is a file of the source: pass another path"),
    ):
        refused(message, given, error=errors, **options)
    with on_the_command_line():
        refused("^--out 's4://a/b' cannot be used: ", local, out="s4://a/b")
    with monkeypatch.context() as patched:
        patched.setattr("s3fs.S3FileSystem._call_s3", denied)
        for given, options in ((source, {}), (local, {"out": f"{bucket}out.parquet"})):
            message = "(a|out).parquet cannot be read: Access denied"
            assert "the secret" not in repr(refused(message, given, error=errors, **options))
    assert names(bucket) == ["a.parquet"]


def test_secrets_in_urls_are_not_printed():
    for secret, query in (("user:hidden@", ""), ("", "?Signature=hidden:a&b=hidden"), ("user:hid/hidden@", "")):
        for name in ("a.parquet", "it's a.parquet", 'two "words".parquet'):
            message = "does not exist, or cannot be reached: Connect call failed|cannot be read: Invalid URL: port"
            error = refused(f"https://127.0.0.1:9/.*parquet.*({message})", f"https://{secret}127.0.0.1:9/{name}{query}")
            assert "hidden" not in "".join(traceback.format_exception(error))
    for plain in ("https://a.b:8000/c@d.parquet", "s3://bucket/c@d.parquet: is it there? pass out", "a@b.c"):
        assert without_secrets(plain) == plain


class Pages(SimpleHTTPRequestHandler):
    """A web server that refuses requests without a signature; it may know times of files, and ranges."""

    dated = ranged = True

    def do_GET(self):
        name, _, signature = self.path.partition("?")
        if not signature:
            self.send_error(403)
            return
        data, asked = Path(self.directory, name[1:]).read_bytes(), self.headers["Range"]
        whole = not (asked and self.ranged)
        first, last = (0, len(data) - 1) if whole else map(int, asked.removeprefix("bytes=").split("-"))
        last = min(last, len(data) - 1)
        self.send_response(200 if whole else 206)
        self.send_header("Content-Length", str(last + 1 - first))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        if self.dated:
            self.send_header("Last-Modified", self.date_time_string(Path(self.directory, name[1:]).stat().st_mtime))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data[first : last + 1])

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *_):
        pass


@pytest.fixture
def pages(tmp_path):
    """Return a folder, its URL, and the class that answers."""
    kind = type("Own", (Pages,), {})
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(kind, directory=tmp_path)) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield tmp_path, f"http://127.0.0.1:{server.server_port}", kind
        server.shutdown()


@pytest.mark.parametrize("killed", [False, True])
def test_a_run_goes_on_with_another_signature(pages, few, monkeypatch, killed):
    """Also after an answer that the library does not expect: a proxy that sends the whole file in place of a range."""
    folder, url, server = pages
    write(few.table(), folder / "a.parquet", 99)
    np.save(folder / "v.npy", few.values)
    add, out, given = State.add, folder / "out.parquet", {"memory": limit(200), "progress": False, **NEXT}

    def broken(state, *given):
        add(state, *given)
        server.ranged = False
        if killed:
            raise KeyboardInterrupt

    monkeypatch.setattr(State, "add", broken)
    with pytest.raises(KeyboardInterrupt if killed else DataError):
        compute(f"{url}/a.parquet?X-Signature=one", out, values=f"{url}/v.npy?X-Signature=one", **given)
    monkeypatch.setattr(State, "add", add)
    server.ranged = True
    journal = folder / "out.parquet.unfinished/journal.jsonl"
    assert "X-Signature" not in journal.read_text()
    assert (journal.parent / "advantages").stat().st_size
    given |= {"values": f"{url}/v.npy?X-Signature=two", "resume": True}
    assert compute(f"{url}/a.parquet?X-Signature=two", out, **given).steps == 600
    assert_same_bits(got(out), few.result)


def test_a_changed_file_of_the_same_size(pages, recorded):
    """A web server without digests tells its time. Without one, a run cannot be resumed."""
    folder, url, server = pages
    source, out, asked = folder / "a.npz", folder / "out.parquet", f"{url}/a.npz?X-Signature=one"
    for time, rewards in enumerate((recorded.rewards, recorded.values)):
        np.savez(source, **recorded.arrays(rewards=rewards))
        os.utime(source, (time, time))
        if time:
            refused("exists already with results of other options or data", asked, out, resume=True)
        compute(asked, out, overwrite=True, **RUN)
        assert compute(asked, out, resume=True, **RUN).steps == ROWS
    server.dated = False
    refused("cannot resume: the server of http.*a.npz.* tells neither a digest nor a time", asked, out, resume=True)


def test_one_file_by_two_protocols(bucket, few):
    """s3a is s3. A source is not overwritten, and no folder of a source gets results, by either name."""
    put(few.table(), bucket / "runs/a.parquet")
    copy = compute(f"{bucket}runs/*.parquet", into=f"{bucket}copy.parquet", **RUN).file
    before = bucket.joinpath("copy.parquet").read_bytes()
    also = str(bucket).replace("s3:", "s3a:")
    refused("is a file of the source", copy, f"{also}copy.parquet", overwrite=True)
    refused("would", f"{bucket}runs", f"{also}runs/out.parquet")
    assert bucket.joinpath("copy.parquet").read_bytes() == before


def test_a_source_that_changes(bucket, few):
    source = put(few.table(also=few.values), bucket / "a.parquet")

    def critic(batch):
        put(few.table(), UPath(source, skip_instance_cache=True))  # as another process does
        return batch["also"]

    refused(r"a\.parquet (changed while it was read|cannot be read: )", source, values=critic, **RUN)
    assert names(bucket) == ["a.parquet"]


def test_a_table_with_deleted_rows(bucket, recorded, monkeypatch):
    """Rows that were deleted stay away. deltalake finds the credentials itself."""
    for folder in ("", "deeper/"):
        put(recorded.table(), bucket / f"runs/{folder}part.parquet")
        log = bucket / f"runs/{folder}_delta_log/00000000000000000000.json"
        log.write_text("{}")
        above = "runs" if folder else ""  # deltalake reads the folder of the table itself
        for source in (above, f"runs/{folder}part.parquet", f"runs/{folder}*.parquet"):
            refused("is a Delta table", f"{bucket}{source}", f"{bucket}out.parquet")
        log.unlink()
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    write_deltalake(f"{bucket}delta", recorded.table())
    DeltaTable(f"{bucket}delta").delete("episode = 0")
    report = compute(f"{bucket}delta", f"{bucket}delta.parquet", **RUN)
    assert report.steps == np.count_nonzero(recorded.episode)
    assert_same_bits(got(report.file), recorded.result, recorded.episode != 0)
