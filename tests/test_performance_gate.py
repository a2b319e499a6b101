"""The performance gate calls the right rows red. These tests give it numbers and time nothing."""

import json
from timeit import Timer

import pytest

import fastgae
from speed import table, timing
from speed.contenders import one_thread
from speed.gate import ab, choices, command, floors, instructions
from speed.gate.verdicts import RED, Line, Report
from speed.measured import Measured, Result
from support.backends import BACKENDS


@pytest.mark.parametrize(("ratio", "floor", "red"), [(0.9, 1.0, True), (1.0, 1.0, False), (0.1, None, False)])
def test_a_ratio_below_its_floor_is_red(ratio, floor, red):
    assert floors.line("row", "cpp over numpy", ratio, floor).red == red


def test_a_row_below_its_floor_is_measured_again_and_its_best_sample_counts(monkeypatch):
    row, times = floors.SHORT[0], [4.0, 3.0, 1.0, 2.0, 3.0, 4.0]

    def once(row, others=()):
        return Measured(row, 0, 0, [Result(one_thread(["cpp"])[0], True, [(1.0, times.pop(0))])])

    monkeypatch.setattr(floors, "measured_once", once)
    monkeypatch.setattr(floors, "ratios", lambda measured: {"cpp": 1 / min(measured.results[0].seconds)})
    assert floors.best_ratios(row, {"cpp": 0.9}) == {"cpp": 1.0}
    assert not times
    times += [2.0]
    assert floors.best_ratios(row, {"cpp": 0.3}) == {"cpp": 0.5}


@pytest.mark.parametrize(
    ("flags", "best"),
    [
        ("fpu sse2 avx2 avx512f avx512bw avx512vl avx512dq", "avx512"),
        ("fpu sse2 avx2 avx512f", "avx2"),
        ("fpu sse2", "baseline"),
    ],
)
def test_a_target_that_is_not_the_best_of_the_cpu_is_red(monkeypatch, flags, best):
    monkeypatch.setattr(floors.Path, "read_text", lambda path, **_: f"model name : x\nflags : {flags}\n")
    assert floors.target_of_cpu() == best
    for target in ("avx512", "avx2", "baseline"):
        info = fastgae.BackendInfo("cpp", True, "gcc", (target,), None, "CPU")
        monkeypatch.setattr(fastgae, "backends", lambda info=info: (info,))
        assert floors.best_target().red == (target != best)


@pytest.mark.parametrize(
    ("before", "now", "verdict"),
    [(1000, 1020, ""), (1000, 1021, "RED"), (1000, 900, "fewer: accept them"), (None, 5, "")],
)
def test_two_per_cent_more_instructions_are_red(before, now, verdict):
    assert instructions.compare("row", "cpp:avx2", before, now).verdict == verdict


def test_calls_that_choose_another_target_than_the_best_are_red_without_accepted_counts():
    counts = {"cpp": {"row": 828_000}, "cpp:avx2": {"row": 286_000}, "cpp:baseline": {"row": 828_000}}
    assert [line.red for line in instructions.dispatch(counts)] == [True]
    assert [line.red for line in instructions.dispatch({**counts, "cpp": {"row": 286_000}})] == [False]


@pytest.mark.parametrize(
    ("base", "head", "verdict"),
    [
        ([1.0, 1.2], [1.1, 2.0], ""),  # they overlap
        ([1.0, 1.2], [1.25, 2.0], ""),  # too little between them
        ([1.0, 1.2], [1.3, 2.0], "RED"),
        ([1.3, 2.0], [1.0, 1.2], "faster"),
        ([], [1.0], "only one of them has it"),
    ],
)
def test_ranges_that_do_not_overlap_are_red(base, head, verdict):
    assert ab.line("row", base, head).verdict == verdict


def test_red_rows_stand_in_sight_and_give_exit_status_1(monkeypatch, capsys, tmp_path):
    reports = [Report("floors", ("row", "floor"), [Line(("good", "1")), Line(("bad", "2"), RED)])]
    monkeypatch.setattr(command, "reports", lambda args: reports)
    tables = tmp_path / "tables.md"
    assert command.main(["floors", "--markdown", str(tables)]) == 1
    assert "1 of 2 RED" in capsys.readouterr().out
    assert "| bad | 2 | RED |" in tables.read_text(encoding="utf-8").partition("<details>")[0]
    reports[0] = Report("floors", ("row", "floor"), [Line(("good", "1"))])
    assert command.main([]) == 0


def test_every_accepted_number_has_its_row_and_every_row_its_number():
    accepted = json.loads(floors.FILE.read_text(encoding="utf-8"))
    assert set(accepted) == {row.name for row in [*table.SHORT, *table.LONGER, table.DISPATCH]}
    counted = {row.name for row, _ in [*table.COUNTED, table.COUNTED_REFERENCE]}
    for key, targets in instructions.read().items():
        assert set().union(*targets.values()) == counted, key


def test_calls_take_turns_until_each_has_used_its_seconds(monkeypatch):
    now, order = [0.0], []
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])

    class Fake:
        def __init__(self, name, seconds):
            self.name, self.seconds = name, seconds

        def sample(self):
            order.append(self.name)
            now[0] += self.seconds
            return self.seconds

    add, call, slow = Fake("add", 1.0), Fake("call", 2.0), Fake("slow", 50.0)
    assert timing.in_turn([(add, call), (slow,)], [5.0, 1.0]) == [[(1.0, 2.0)] * 2, [(50.0,)]]
    assert order == ["add", "call", "slow", "add", "call"]


@pytest.mark.parametrize(("seconds", "red"), [((1.0, 1.3, 1.4), False), ((1.0, 1.4, 1.29), True)])
def test_a_choice_that_gains_too_little_over_the_best_other_one_is_red(monkeypatch, seconds, red):
    monkeypatch.setattr(choices, "in_turn", lambda clocks, shares: [[(each,)] for each in seconds])
    timers = {name: Timer("pass") for name in ("chosen", "one", "other")}
    assert choices.compared("row", timers, 1.3).red == red


def test_a_choice_below_its_floor_is_measured_again_and_all_samples_count(monkeypatch):
    turns = [[[(2.0,)] * 3, [(1.5,)] * 3], [[(1.0,)] * 3, [(2.5,)] * 3], []]
    monkeypatch.setattr(choices, "in_turn", lambda clocks, shares: turns.pop(0))
    line = choices.compared("row", {"chosen": Timer("pass"), "other": Timer("pass")}, 1.4)
    assert line.cells[3] == "1.50"
    assert not line.red
    assert turns == [[]]


def test_two_samples_of_a_clock_that_jumped_do_not_count(monkeypatch):
    seconds = [[1.0, 1.0, 1.0, 9.0], [0.1, 0.1, 1.5, 1.6]]
    monkeypatch.setattr(choices, "in_turn", lambda clocks, shares: [[(each,) for each in some] for some in seconds])
    assert choices.compared("row", {"chosen": Timer("pass"), "other": Timer("pass")}, 1.4).cells[3] == "1.50"


needs_cpp = pytest.mark.skipif("cpp:baseline" not in BACKENDS, reason="no other backend streams its results")


@needs_cpp
@pytest.mark.parametrize(("seconds", "red"), [((1.0, 4.0, 1.0), False), ((1.0, 1.5, 1.0), True)])
def test_results_that_are_in_the_caches_after_a_large_call_are_red(monkeypatch, seconds, red):
    times = list(seconds) * choices.READINGS
    monkeypatch.setattr(choices, "read_seconds", lambda *_: times.pop(0))
    assert choices.streaming(choices.LAST_ROWS).red == red
    assert not times


@needs_cpp
def test_too_little_memory_leaves_streaming_out_and_says_so(monkeypatch):
    monkeypatch.setattr(choices, "targets", list)
    monkeypatch.setattr(choices, "threads", list)
    monkeypatch.setattr(choices, "steps_beyond", lambda: 1)
    monkeypatch.setattr(choices, "last_level", lambda: 1 << 30)
    report = choices.check()
    assert not report.lines
    assert "too little" in report.notes[-1]
