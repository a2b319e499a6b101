"""The performance gate calls the right rows red. These tests give it numbers and time nothing."""

import shutil
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import fastgae
from speed import table
from speed.gate import ab, accepted, command, counts, floors, instructions, planted, ratios
from speed.gate.accepted import Line
from speed.limit import streaming_add

PAIR = ("cpp", "numpy")


def test_a_ratio_below_its_floor_is_measured_ten_times_and_red(monkeypatch):
    monkeypatch.setattr(ratios, "Clock", lambda timer, **_: timer)
    for speed, red in ((0.9, True), (1.0, False)):
        turns = [{"cpp": [1 / speed] * 3, "numpy": [1.0] * 3}] * (1 + ratios.RETRIES)
        monkeypatch.setattr(ratios, "in_turn", lambda clocks, seconds, turns=turns: turns.pop())
        (line,) = ratios.compared("row", dict.fromkeys(PAIR), {PAIR: 1.0})
        assert line.red == red
        assert len(turns) == (0 if red else ratios.RETRIES)


def test_a_neighbour_who_slows_all_calls_of_most_turns_makes_nothing_red(monkeypatch):
    monkeypatch.setattr(ratios, "Clock", lambda timer, **_: timer)
    samples = {"cpp": [2.0] * 5, "numpy": [2.0] * 5 + [1.0] * 5}
    monkeypatch.setattr(ratios, "in_turn", lambda clocks, seconds: samples)
    (line,) = ratios.compared("row", dict.fromkeys(PAIR), {PAIR: 1.0})
    assert not line.red


def test_every_planted_regression_still_finds_its_text():
    for plant in planted.PLANTS:
        file = Path(fastgae.__file__).parent / plant.file
        assert file.read_text(encoding="utf-8").count(plant.old) == 1, plant.what


def test_more_instructions_and_missing_counts_are_red():
    known = {"cpp": {"row": {"instructions": 1000, "bytecodes": 50}}}

    def red(*numbers, row="row"):
        now = {"cpp": {row: dict(zip(("instructions", "bytecodes"), numbers, strict=True))}}
        return [line.red for line in instructions.compared(known, now)]

    assert red(1020, 50) == [False]
    assert red(1021, 50) == red(1000, 52) == red(1000, 50, row="another") == [True]


def test_instructions_of_the_heap_are_not_counted_but_its_calls_are(tmp_path):
    """What it takes for a block depends on all blocks before, such as the text of a path."""
    lines = ["ob=(1) /x/fastgae/_core.so", "fn=(1) gae", "10 100"]
    libraries = {"memcpy": "libc.so.6", "malloc": "libc.so.6", "operator new(unsigned long)": "libstdc++.so.6"}
    for function, library in libraries.items():
        number = len(lines)
        lines += [f"cob=({number}) /lib/{library}", f"cfn=({number}) {function}", "calls=2 50", "10 7"]
    lines += [
        "cfn=(1)",
        "calls=1 60",
        "10 1000",
        "+1 30",
        "cob=(99) /x/python",
        "cfn=(99) call",
        "calls=3 70",
        "* 5000",
    ]
    file = tmp_path / "counts"
    file.write_text("\n".join(lines))
    assert instructions.of_module(file) == (100 + 7 + 30, 2 + 2 + 3)


def test_a_row_that_raises_in_head_is_red_and_so_is_no_row_at_all(monkeypatch, capsys):
    for head in ({"row": 1.0}, {}):
        monkeypatch.setattr(ab, "of_process", lambda *_, place, head=head: {"row": 1.0} if place == "old" else head)
        lines = ab.times("old", "new")
        assert [(line.what, line.red) for line in lines] == [("row", not head)]
    assert accepted.judged([]) == 1
    assert "0 of 0 red" in capsys.readouterr().out


def test_a_machine_without_accepted_instructions_is_red(monkeypatch):
    monkeypatch.setattr(instructions, "why_not", lambda: None)
    monkeypatch.setattr(instructions, "count", dict)
    monkeypatch.setattr(instructions, "key", lambda: "another compiler")
    (line,) = instructions.check()
    assert line.red


def test_what_cannot_be_measured_is_red_in_ci(monkeypatch):
    monkeypatch.setattr(instructions, "why_not", lambda: "valgrind not installed")
    for variable, red in (("true", True), ("", False)):
        monkeypatch.setenv("CI", variable)
        (line,) = instructions.check()
        assert line.red == red


def test_counts_above_the_accepted_ones_and_new_counts_are_red(monkeypatch):
    monkeypatch.setenv("CI", "")
    monkeypatch.setattr(accepted, "read", lambda name: {"bytes, a": 1.0, "launches, a": 1.0})
    found = [("bytes, a", 1.5), ("bytes, a", 2.0), ("launches, a", 1), ("launches, a", 2), ("new", 0)]
    monkeypatch.setattr(counts, "COUNTS", [lambda: found])
    assert [line.red for line in counts.check()] == [False, True, False, True, True]

    def without():
        raise ImportError("no torch")

    monkeypatch.setattr(counts, "COUNTS", [without])
    assert list(counts.check()) == [Line("without", "not measured: no torch")]


def test_ranges_that_do_not_overlap_are_red():
    for head, red in (([1.1, 2.0], False), ([1.25, 2.0], False), ([1.3, 2.0], True)):  # the second one is too near
        assert ab.line("row", [1.0, 1.2], head).red == red
    assert not ab.line("row", [], [1.0]).red


def test_red_rows_stand_at_the_end_and_give_exit_status_1(monkeypatch, capsys):
    lines = [Line("bad", "2", red=True), Line("good", "1")]
    monkeypatch.setattr(floors, "check", lambda: lines)
    assert command.main(["floors"]) == 1
    assert capsys.readouterr().out.endswith(f"\n\nRED bad: 2\n1 of 2 red\n{accepted.ADVICE}\n")
    del lines[0]
    assert command.main(["floors"]) == 0
    assert capsys.readouterr().out.endswith("\n0 of 1 red\n")


def test_only_floors_that_a_machine_misses_or_leaves_far_below_are_accepted_anew(monkeypatch):
    known = {row.name: dict.fromkeys(map(" over ".join, floors.PAIRS), 1.0) for row in floors.ROWS}
    speed = iter([0.9, 1.0, 3.9, 4.0])
    monkeypatch.setattr(floors, "runs_here", lambda **_: ["cpp", "cpp:avx2", "numba", "numpy"])
    monkeypatch.setattr(floors, "timers", lambda *_: {})
    monkeypatch.setattr(floors, "measured", lambda _, never: dict.fromkeys(never, next(speed, 1.0)))
    monkeypatch.setattr(accepted, "read", lambda _: known)
    written = {}
    monkeypatch.setattr(accepted, "write", lambda _, found: written.update(found) or [])
    list(floors.accept())
    first = [written[row.name]["cpp over numpy"] for row in table.SHORT[:4]]
    assert first == [0.45, 1.0, 1.0, 2.0]


def test_every_accepted_number_has_its_row_and_every_row_its_number():
    assert set(accepted.read("floors")) == {row.name for row in floors.ROWS}
    counted = {row.name for row in [*table.COUNTED, *table.COUNTED_BY_DEFAULT]}
    for key, targets in accepted.read("instructions").items():
        assert set().union(*targets.values()) == counted, key


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler here")
def test_the_addition_that_is_called_the_limit_adds_and_writes_nothing_else():
    for size, offset in product((0, 1, 15, 16, 17, 33, 1000), (0, 1, 15)):
        a, b = np.random.default_rng(size).standard_normal((2, size), np.float32)
        room = np.full(size + 64, np.nan, np.float32)
        out = room[offset:][:size]
        streaming_add()(a, b, out)
        assert np.array_equal(out, a + b)
        assert np.isnan(room).sum() == 64
