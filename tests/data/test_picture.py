"""The picture of recorded data: the numbers in it, and that it is written whole or not at all."""

import numpy as np
import pyarrow as pa
import pytest

import fastgae
from fastgae.data import WriteError, compute, picture

from .recorded import ROWS, assert_same_bits, computed, interrupted, limit, names, refused, write

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure

STARTS = {".png": b"\x89PNG\r\n\x1a\n", ".svg": b"<?xml", ".pdf": b"%PDF"}


@pytest.fixture
def drawn(monkeypatch):
    """Return the numbers of each picture: lengths, advantages and returns. None is written, because that takes long."""
    calls, sampled = [], picture.sampled
    monkeypatch.setattr(picture, "sampled", lambda *given: calls.append(sampled(*given)) or calls[-1])
    monkeypatch.setattr(picture, "save", lambda figure, path: path.touch())
    return calls


def test_the_file(tmp_path, few):
    """The same bytes in any memory; an .svg could hold its time or random names. Other tests write .png."""
    source = write(few.table(), tmp_path / "a.parquet", 100)
    plots = [("b.svg", 20), ("c.svg", 10**6), ("d.pdf", 20)]
    for plot, rows in plots:
        computed(source, tmp_path / "out.parquet", plot=tmp_path / plot, memory=limit(rows))
        assert (tmp_path / plot).read_bytes().startswith(STARTS[plot[1:]])
    assert (tmp_path / "b.svg").read_bytes() == (tmp_path / "c.svg").read_bytes()
    assert names(tmp_path) == sorted([*(plot for plot, _ in plots), "a.parquet", "out.parquet"])


def test_the_numbers(tmp_path, recorded, drawn):
    rows, scattered = np.arange(ROWS), np.random.default_rng(1).permutation(ROWS)
    for most, order, normalize in ((70, rows, None), (70, scattered, "global"), (10**6, scattered, None)):
        source = write(recorded.table().take(order), tmp_path / "a.parquet", 100)
        how = {"memory": limit(most), "normalize": normalize, "plot": tmp_path / "a.png"}
        computed(source, tmp_path / "out.parquet", **how)
        lengths, advantages, returns = drawn[-1]
        assert np.array_equal(advantages, recorded.result.advantages)  # before they are normalized
        assert np.array_equal(returns, recorded.result.returns)
        assert np.array_equal(np.sort(lengths), np.sort(np.diff(np.append(recorded.first, ROWS))))


def test_envs(tmp_path, drawn, monkeypatch):
    monkeypatch.setattr(picture, "SLICE", 20)
    rng = np.random.default_rng(0)
    ends = rng.random((50, 3)) < 0.1
    rewards, values = rng.normal(size=(2, 50, 3))
    np.savez(tmp_path / "a.npz", rewards=rewards, values=values, terminated=ends)
    computed(tmp_path / "a.npz", tmp_path / "out.arrow", ends="terminated", plot=tmp_path / "a.png", memory=limit(21))
    ((lengths, _, returns),) = drawn
    ends[-1] = True
    assert np.array_equal(lengths, np.concatenate([np.diff(np.append(-1, np.flatnonzero(env))) for env in ends.T]))
    assert np.array_equal(returns, fastgae.gae(rewards, values, ends, last_values=np.zeros(3)).returns.ravel())


@pytest.mark.parametrize("scattered", [False, True])
def test_resumed(tmp_path, recorded, scattered, drawn):
    """A run that is killed, before the picture or behind it, draws the same when it goes on."""
    order = np.random.default_rng(1).permutation(ROWS) if scattered else np.arange(ROWS)
    source = write(recorded.table().take(order), tmp_path / "a.parquet", 100)
    out, right = tmp_path / "out.parquet", tmp_path / "right.parquet"
    how = {"memory": limit(200), "resume": True, "plot": tmp_path / "out.png"}
    computed(source, right, **how)
    for at in ("picture.sampled", "state.State.results"):
        interrupted(at, source, out, **how)
        journal = tmp_path / "out.parquet.unfinished" / "journal.jsonl"
        journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:5]))
    (tmp_path / "out.png").unlink()
    computed(source, out, **how)
    assert out.read_bytes() == right.read_bytes()
    assert all(map(np.array_equal, drawn[0], drawn[-1]))
    computed(source, out, **how)  # and all of it is there
    message = r"out.parquet is finished, and nothing is left to draw .*other.svg from"
    refused(message, source, out, **{**how, "plot": tmp_path / "other.svg"})


@pytest.mark.parametrize("plots", [(False, True), (True, False)])
def test_a_picture_that_is_asked_for_later(tmp_path, recorded, drawn, plots):
    """An interrupted run goes on, whether it was to draw or not."""
    source, out = write(recorded.table(), tmp_path / "a.parquet", 100), tmp_path / "out.parquet"
    first, second = ({"plot": tmp_path / "a.png"} if plots[number] else {} for number in range(2))
    interrupted("picture.sampled" if first else "state.State.results", source, out, memory=limit(200), **first)
    journal = tmp_path / "out.parquet.unfinished" / "journal.jsonl"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:5]))
    assert_same_bits(computed(source, out, memory=limit(200), resume=True, **second), recorded.result)
    assert (tmp_path / "a.png").exists() is bool(second)


def test_a_sample(tmp_path, recorded, drawn, monkeypatch):
    """The same rows of the source wherever it is cut, spread over all of it."""
    monkeypatch.setattr(picture, "MOST", 500)
    monkeypatch.setattr(picture, "SLICE", 1100)
    source = write(recorded.table(), tmp_path / "a.parquet", 100)
    for rows in (60, 700, 10**6):
        computed(source, tmp_path / "out.parquet", plot=tmp_path / "a.png", memory=limit(rows))
        lengths, advantages, returns = drawn[-1]
        chosen = np.flatnonzero(np.isin(recorded.result.returns, returns))
        assert abs(len(chosen) - 500) <= 60
        assert np.diff(chosen).max() <= 60
        assert np.array_equal(advantages, recorded.result.advantages[chosen])
        assert np.array_equal(returns, drawn[0][2])
        assert len(lengths) == len(recorded.first)


EDGES = {
    "one step": ([1.0], [0.5]),
    "constant": ([1.0] * 9, [1.0] * 9),
    "zeros": ([0.0] * 9, [0.0] * 9),
    "infinite results": ([1.0, 1.7e308, 1.7e308, 2.0, 1.0, -1.7e308, -1.7e308] * 3, [-1.7e308, 1.0, 0.0] * 7),
    "hardly one that is finite": ([1.7e308] * 9, [0.0] * 9),
    "outliers": ([1e9, -1e6, *np.linspace(-1, 1, 1001)], [0.0] * 1003),
    "huge": ([1e308, -1e308, 1.0], [1e308, 0.0, 1e307]),
    "tiny": ([1e-320, 2e-320, 0.0], [0.0, 1e-320, 1e-320]),
}


@pytest.mark.parametrize(("name", "values"), [*((name, True) for name in EDGES), ("infinite results", False)])
def test_edges(tmp_path, name, values, monkeypatch):
    figures, new_figure = [], picture.new_figure
    monkeypatch.setattr(picture, "new_figure", lambda *given: figures.append(new_figure(*given)) or figures[-1])
    rewards, value = np.array(EDGES[name])
    columns = {"episode": [0] * len(rewards), "rewards": rewards, **({"values": value} if values else {})}
    source, plot = write(pa.table(columns), tmp_path / "$a_{$.parquet", 100), tmp_path / "a$b$.png"
    estimator = "gae" if values else "discounted_returns"
    compute(source, plot=plot, ends="terminated", estimator=estimator, progress=False)
    assert plot.read_bytes().startswith(STARTS[".png"])
    with_values = ["advantage A", "length of an episode", "value V"]
    expected = with_values if values else ["return R", "length of an episode"]
    assert [panel.get_xlabel() for panel in figures[0].axes] == expected
    assert figures[0].get_supxlabel().endswith("; all steps")
    if name == "one step":  # it is inside of the axes
        assert np.all(np.abs(np.subtract(figures[0].axes[2].get_xlim(), (0.5, 1.0))) > 0.01)
    if name == "outliers":
        panel = figures[0].axes[0]
        assert panel.get_xlim()[1] < 1e4
        assert panel.get_title(loc="right") == "2 further out"


def test_written_whole_or_not_at_all(tmp_path, recorded, monkeypatch):
    """A full disk: the old picture stays, the results that are done are kept, and the next run goes on."""
    source = write(recorded.table(), tmp_path / "a.parquet", 100)
    plot = tmp_path / "a.png"
    plot.write_bytes(b"old")

    def full(self, file, **options):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Figure, "savefig", full)
        message = r"cannot write .*a\.png: No space left on device; the finished part is"
        refused(message, source, error=WriteError, plot=plot, overwrite=True)
    assert plot.read_bytes() == b"old"
    assert names(tmp_path) == ["a.advantages.parquet.unfinished", "a.parquet", "a.png"]
    compute(source, plot=plot, resume=True, progress=False)
    assert plot.read_bytes().startswith(STARTS[".png"])
    assert names(tmp_path) == ["a.advantages.parquet", "a.parquet", "a.png"]


def test_each_bar_has_as_many_lengths_and_counts_are_whole():
    bars, counts = picture.new_figure(4.8, 4.8, "").subplots(2)
    picture._histogram(bars, "episodes", "length of an episode", np.arange(1, 131))
    assert set(bars.patches[0].xy[:, 1]) == {0, 2}
    picture._histogram(counts, "episodes", "length of an episode", np.array([1, 2, 2, 4]))
    assert (counts.get_yticks() % 1 == 0).all()
