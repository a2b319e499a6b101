"""The yardstick judges by the right reference. These tests give it numbers and time nothing."""

from dataclasses import replace

import numpy as np
import pytest

from speed import caches, measured, table
from speed.calls import Prepared
from speed.contenders import ADD, AS_ADDS, COPIES, LIMIT, Contender, Goal, runs_here, without_reference
from speed.measured import Measured, Result
from speed.rollouts import GIVEN, PAGE, block_for_outputs, outputs_apart
from speed.rows import CASES, FRESH, SIBLINGS, Row, case
from speed.yardstick import findings, goals, shapes

ROW = case("plain", 10, 10)  # 100 steps
MEMORY_GOAL = Goal(1.2, LIMIT, in_cache=1.6)


def one_result(goal, seconds, *others, backend="cpp", **settings):
    results = [Result(Contender(backend, backend, goal=goal), True, [(1.0, seconds)]), *others]
    return Measured(ROW, 1200, 1700, results, **settings)


@pytest.mark.parametrize(("last_level", "seconds", "met"), [(1699, 3.4, True), (1699, 3.41, False)])
def test_a_row_from_memory_is_judged_by_its_bytes_at_the_speed_of_a_streaming_addition(
    monkeypatch, last_level, seconds, met
):
    monkeypatch.setattr(caches, "last_level", lambda: last_level)
    entry = one_result(MEMORY_GOAL, seconds, references={LIMIT: 2.0})
    assert entry.limit == pytest.approx(2.0 * 17 / 12)
    assert entry.met(entry.results[0]) == met
    assert entry.judged(entry.results[0]) == pytest.approx(seconds / entry.limit)


@pytest.mark.parametrize("last_level", [1700, None])
@pytest.mark.parametrize(("seconds", "met"), [(1.6, True), (1.61, False)])
def test_a_row_in_cache_is_judged_by_np_add(monkeypatch, last_level, seconds, met):
    monkeypatch.setattr(caches, "last_level", lambda: last_level)
    entry = one_result(MEMORY_GOAL, seconds)
    assert entry.goal(entry.results[0]).over == ADD
    assert entry.met(entry.results[0]) == met


@pytest.mark.parametrize(
    ("goal", "references", "allowed"),
    [
        (Goal(0, "", seconds=8.0), {}, 8.0),
        (Goal(1, COPIES, seconds=8.0), {COPIES: 2.0}, 10.0),
        (Goal(4, ADD), {}, 4.0),
        (Goal(3, "other"), {}, 9.0),
        (Goal(2, AS_ADDS), {AS_ADDS: 0.6}, 0.6 * 3.0 * 2),
        (Goal(2, AS_ADDS), {AS_ADDS: 1.5}, 3.0 * 2),  # two streams of np.add move no more than one
    ],
)
def test_a_goal_is_times_something_and_seconds_more(goal, references, allowed):
    other = Result(Contender("other", "cpp"), True, [(1.0, 3.0)])
    for seconds, met in ((allowed * 0.999, True), (allowed * 1.001, False)):
        entry = one_result(goal, seconds, other, references=references)
        entry.results[0].contender = entry.results[0].contender._replace(num_threads=2)
        assert entry.met(entry.results[0]) == met


def test_the_slowest_offset_counts_and_a_wrong_one_counts_more():
    who = Contender("cpp", "cpp", offsets=(0, 16, 32))
    fast, slow, noisy = ([(1.0, 1.0)], [(1.0, 3.0)], [(1.0, 9.0), (1.0, 2.0)])
    results = [Result(who, True, samples, 16 * i) for i, samples in enumerate((fast, slow, noisy))]
    assert measured.slowest(results) == [results[1]]
    results[0].right = False
    assert measured.slowest(results) == [results[0]]


@pytest.mark.parametrize("offset", [0, 272, 4080])
def test_outputs_lie_so_many_bytes_apart(offset):
    rewards = np.zeros((16, 256), np.float32)
    advantages, returns = outputs_apart(rewards, block_for_outputs(rewards), offset)
    assert advantages.ctypes.data % PAGE == 0
    assert returns.ctypes.data - advantages.ctypes.data == advantages.nbytes + offset
    assert not np.shares_memory(advantages, returns)


def test_calls_with_outputs_apart_are_checked_and_keep_their_inputs():
    prepared = Prepared(ROW)
    other = prepared.apart(272)
    assert other.arguments is prepared.arguments
    assert other.right(Contender("best", runs_here()[0]))


@pytest.mark.parametrize("given", GIVEN)
def test_what_fastgae_converts_is_what_its_copies_are_timed_on(given):
    plain, prepared = Prepared(ROW), Prepared(replace(ROW, given=given, outputs=FRESH))
    assert not plain.converted
    assert prepared.converted
    for array, kind in prepared.converted:
        copy = np.array(array, kind)
        assert copy.flags.c_contiguous
        assert copy.dtype.isnative
        assert copy.dtype.kind in "fb"
    assert all((got == right).all() for got, right in zip(prepared.expected, plain.expected, strict=True))


def test_every_goal_names_something_that_is_measured():
    backends = ["cpp", "cpp:avx2", "cpp:baseline", "numba", "numpy"]
    for entry in table.YARDSTICK:
        who = goals.contenders(entry, backends, 1)
        names = {each.name for each in who} | {"", ADD, LIMIT, COPIES, AS_ADDS}
        assert {each.goal.over for each in who if each.goal} <= names, entry.row.name
        assert not entry.offsets or "numpy" not in {each.name for each in who}
        baseline = [each for each in who if each.backend == "cpp:baseline" and not entry.two_threads]
        assert not any(each.goal for each in baseline)
    assert without_reference(backends) == backends[:-1]


def test_rows_have_one_name_each_and_every_case_can_be_called():
    names = [entry.row.name for entry in table.YARDSTICK]
    assert len(set(names)) == len(names)
    cases = [case(name, 8, 2, outputs=FRESH) for name in CASES]
    siblings = [Row(name, 16, 1, outputs=FRESH, **arguments) for name, arguments in SIBLINGS.items()]
    for row in cases + siblings:
        prepared = Prepared(row)
        assert prepared.right(Contender("numpy", "numpy"))
        assert prepared.expected is not None


def test_a_target_that_beats_the_default_one_is_named():
    def result(name, backend, seconds, right=True):
        return Result(Contender(name, backend), right, [(1.0, seconds)])

    slow = Measured(ROW, 0, 0, [result("cpp", "cpp", 1.2), result("cpp:avx2", "cpp:avx2", 1.0)])
    assert findings.slower_defaults([slow])[1:] == [f"  1.20 × cpp:avx2: {ROW.name}"]
    for other in (result("cpp:avx2", "cpp:avx2", 1.19), result("cpp:avx2", "cpp:avx2", 1.0, right=False)):
        entry = Measured(ROW, 0, 0, [result("cpp", "cpp", 1.2), other])
        assert len(findings.slower_defaults([entry])) <= 1
    threads = [result("cpp, 2 threads", "cpp", 3.0), result("cpp:avx2, 2 threads", "cpp:avx2", 1.0)]
    assert findings.slower_defaults([Measured(ROW, 0, 0, threads)])[1:] == [
        f"  3.00 × cpp:avx2: {ROW.name} (2 threads)"
    ]


def test_a_shape_is_compared_with_the_four_around_it():
    assert shapes.against_neighbours([1, 1, 3, 1, 1, 1]) == [1, 1, 3, 1, 1, 1]
    assert shapes.against_neighbours([5, 1, 1, 1, 1, 1])[0] == 5
    assert shapes.against_neighbours([1, 2, 4])[2] == 4 / 1.5


@pytest.mark.parametrize("env_major", [False, True])
def test_random_shapes_fit_into_their_block(env_major):
    drawn = shapes.drawn(10_000, env_major)
    assert len(drawn) == shapes.SHAPES
    assert any(shape.padding for shape in drawn)
    assert any(shape.offset % 16 for shape in drawn)
    for shape in drawn:
        cut = shape.cut(np.zeros(max(each.room for each in drawn), np.float32))
        assert cut.shape == ((shape.envs, shape.steps) if env_major else (shape.steps, shape.envs))
        assert 0.5 * 10_000 < cut.size <= 10_000
        assert cut.strides == (4 * (cut.shape[1] + shape.padding), 4)


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
        assert caches.from_memory((64 << 20) + 1)
        assert not caches.from_memory(64 << 20)
        monkeypatch.setattr(caches, "available_memory", lambda: 400 << 20)
        assert caches.beyond_caches(4) == 100 << 20
    finally:
        caches.caches.cache_clear()


def test_nothing_is_from_memory_where_no_cache_is_known(monkeypatch):
    monkeypatch.setattr(caches, "caches", dict)
    assert not caches.from_memory(1 << 60)
    assert caches.described() == "unknown"


def test_a_row_of_a_sibling_takes_only_its_arguments():
    assert set(Row("", 4, 2, **SIBLINGS["discounted_returns"]).arguments()) == {"rewards", "terminated", "last_values"}
    assert set(Row("", 4, 2, **SIBLINGS["reverse_scan"]).arguments()) == {"x", "decay"}
