"""The performance gate calls the right rows red. These tests give it numbers and time nothing."""

import json

import pytest

from speed import caches, table, timing
from speed.calls import Prepared
from speed.contenders import Contender
from speed.gate import ab, accepted, choices, command, counts, floors, instructions, ratios
from speed.gate.accepted import Line
from speed.rows import CASES, FRESH, case
from support.backends import BACKENDS

PAIR = ("cpp", "numpy")


@pytest.fixture
def given(monkeypatch):
    """Give each of the clocks, by name, a list of samples for every turn; return how many turns are left."""

    def give(*turns):
        left = list(turns)
        monkeypatch.setattr(ratios, "Clock", lambda timer, **_: timer)
        monkeypatch.setattr(ratios, "in_turn", lambda clocks, seconds: left.pop(0))
        return left

    return give


@pytest.mark.parametrize(("speed", "red"), [(0.9, True), (1.0, False)])
def test_a_ratio_below_its_floor_is_measured_ten_times_and_red(given, speed, red):
    turn = {"cpp": [1 / speed] * 3, "numpy": [1.0] * 3}
    left = given(*[turn] * (1 + ratios.RETRIES))
    (line,) = ratios.compared("row", dict.fromkeys(PAIR), {PAIR: 1.0})
    assert line.red == red
    assert len(left) == (0 if red else ratios.RETRIES)


def test_samples_of_all_turns_count_but_not_two_of_a_clock_that_jumped(given):
    given({"cpp": [3.0, 3.0, 3.0], "numpy": [0.1, 0.1, 1.0]}, {"cpp": [0.5, 0.5, 0.5], "numpy": [1.0]})
    assert ratios.measured(dict.fromkeys(PAIR), {PAIR: 1.0}) == {PAIR: 2.0}


@pytest.mark.parametrize(
    ("flags", "best"),
    [
        ("fpu sse2 avx2 avx512f avx512bw avx512vl avx512dq", "avx512"),
        ("fpu sse2 avx2 avx512f", "avx2"),
        ("fpu sse2", "baseline"),
    ],
)
def test_a_target_that_is_not_the_best_of_the_cpu_is_red(monkeypatch, flags, best):
    monkeypatch.setattr(choices.Path, "read_text", lambda path, **_: f"model name : x\nflags : {flags}\n")
    for target in ("avx512", "avx2", "baseline"):
        assert choices.best_target((target,)).red == (target != best)


def test_more_instructions_and_missing_counts_are_red():
    known = {"cpp": {"row": {"instructions": 1000, "bytecodes": 50}}}

    def red(*numbers, row="row"):
        now = {"cpp": {row: dict(zip(("instructions", "bytecodes"), numbers, strict=True))}}
        return [line.red for line in instructions.compared(known, now)]

    assert red(1020, 50) == [False]
    assert red(1021, 50) == red(1000, 52) == red(1000, 50, row="another") == [True]


def test_a_machine_without_accepted_instructions_is_red(monkeypatch):
    monkeypatch.setattr(instructions, "why_not", lambda: None)
    monkeypatch.setattr(instructions, "count", dict)
    monkeypatch.setattr(instructions, "key", lambda: "another compiler")
    (line,) = instructions.check()
    assert line.red


@pytest.mark.parametrize(("variable", "red"), [("true", True), ("", False)])
def test_what_cannot_be_measured_is_red_in_ci(monkeypatch, variable, red):
    monkeypatch.setenv("CI", variable)
    monkeypatch.setattr(instructions, "why_not", lambda: "valgrind not installed")
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


@pytest.mark.parametrize(
    ("base", "head", "red"),
    [
        ([1.0, 1.2], [1.1, 2.0], False),  # they overlap
        ([1.0, 1.2], [1.25, 2.0], False),  # too little between them
        ([1.0, 1.2], [1.3, 2.0], True),
        ([], [1.0], False),
    ],
)
def test_ranges_that_do_not_overlap_are_red(base, head, red):
    assert ab.line("row", base, head).red == red


def test_red_rows_stand_at_the_end_and_give_exit_status_1(monkeypatch, capsys):
    lines = [Line("bad", "2", red=True), Line("good", "1")]
    monkeypatch.setattr(floors, "check", lambda: lines)
    assert command.main(["floors"]) == 1
    assert capsys.readouterr().out.endswith("\n\nRED bad: 2\n1 of 2 red\n")
    del lines[0]
    assert command.main(["floors"]) == 0


def test_every_accepted_number_has_its_row_and_every_row_its_number():
    assert set(accepted.read("floors")) == {row.name for row in [*table.SHORT, *table.LONGER]}
    counted = {row.name for row in [*table.COUNTED, *table.COUNTED_BY_DEFAULT]}
    for key, targets in accepted.read("instructions").items():
        assert set().union(*targets.values()) == counted, key


def test_accepted_numbers_that_changed_are_shown(monkeypatch, tmp_path):
    monkeypatch.setattr(accepted, "HERE", tmp_path)
    list(accepted.write("counts", {"same": 1, "rows": {"old": 1}}))
    assert list(accepted.write("counts", {"same": 1, "rows": {"old": 2}})) == ["rows, old: 1 -> 2"]
    assert json.loads((tmp_path / "counts.json").read_text()) == {"rows": {"old": 2}, "same": 1}


def test_calls_take_turns_until_each_has_used_its_seconds(monkeypatch):
    now, order = [0.0], []
    monkeypatch.setattr(timing, "perf_counter", lambda: now[0])

    class Call:
        def __init__(self, name, seconds):
            self.name, self.seconds = name, seconds

        def sample(self):
            order.append(self.name)
            now[0] += self.seconds
            return self.seconds

    samples = timing.in_turn({"add": Call("add", 1.0), "call": Call("call", 3.0)}, 5.0)
    assert samples == {"add": [1.0] * 5, "call": [3.0] * 2}
    assert order == ["add", "call", "add", "call", "add", "add", "add"]


@pytest.mark.parametrize("name", CASES)
def test_every_case_can_be_called(name):
    ready = Prepared(case(name, 8, 2, outputs=FRESH))
    assert all(ready.right(Contender(backend, backend)) for backend in BACKENDS if backend != "numpy")
    assert ready.expected is not None


@pytest.mark.parametrize(("own", "share"), [(1.0, 0.0), (0.5, 0.5)])
def test_the_work_of_other_threads_is_a_share_of_the_process(monkeypatch, own, share):
    monkeypatch.setattr(choices, "process_time", iter((10.0, 12.0)).__next__)
    monkeypatch.setattr(choices, "thread_time", iter((5.0, 5.0 + 2 * own)).__next__)
    assert choices.share_of_others(lambda: None) == share


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
    for name in ("targets", "threads"):
        monkeypatch.setattr(choices, name, lambda *_: [])
    monkeypatch.setattr(choices, "beyond_caches", lambda times: 1)
    monkeypatch.setattr(choices, "last_level", lambda: 1 << 30)
    *_, line = choices.check()
    assert line.what == "streaming stores"
    assert line.said.startswith("not measured")


def test_the_caches_are_those_that_the_system_reports(monkeypatch, tmp_path):
    for index, (kind, level, size) in enumerate([("Instruction", 2, "32K"), ("Data", 1, "48K"), ("Unified", 3, "64M")]):
        for cpu in range(64):
            place = tmp_path / f"cpu{cpu}" / "cache" / f"index{index}"
            place.mkdir(parents=True)
            for name, text in (("type", kind), ("level", level), ("size", size)):
                (place / name).write_text(f"{text}\n")
    monkeypatch.setattr(caches, "SYSFS", tmp_path)
    monkeypatch.setattr(caches.os, "sched_getaffinity", lambda _: {3}, raising=False)
    caches.caches.cache_clear()
    try:
        assert caches.caches() == {"L1": 48 * 1024, "L3": 64 << 20}
        assert caches.last_level() == 64 << 20
        assert caches.described() == "L1 48 KiB, L3 64 MiB"
        monkeypatch.setattr(caches, "available_memory", lambda: 400 << 20)
        assert caches.beyond_caches(4) == 100 << 20
    finally:
        caches.caches.cache_clear()
