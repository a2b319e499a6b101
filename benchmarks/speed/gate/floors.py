"""The first check of the gate: ratios inside one run, each against a floor that no noise can reach.

A ratio is speed over speed, best sample over best sample, of calls that take turns. Disturbances only ever add time, so
a row below its floor is measured again, and the best of all its samples counts. CPUs differ, so the floors stand far
below the typical ratios: they notice a collapse, or a microsecond more on the smallest calls. The other two checks
notice smaller losses.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import fastgae
from speed.contenders import one_thread, runs_here
from speed.measured import Measured, measure
from speed.rows import Row
from speed.table import DISPATCH, LONGER, SHORT

from .verdicts import RED, Line, Report

FILE = Path(__file__).with_name("floors.json")
SECONDS, RETRIES = 0.2, 5  # for each contender of a row; for each row below a floor

# A floor is this part of the typical ratio. On arrays that fill a cache, np.add alone varies by a factor of two.
MARGIN_SHORT = {"np.add": 0.7, "numpy": 0.4}
MARGIN = {"np.add": 0.3, "numpy": 0.3, "cpp:baseline": 0.72}

# The flags in /proc/cpuinfo of a CPU that can run a target, best target first.
CPU_FLAGS = {"avx512": {"avx512f", "avx512bw", "avx512vl", "avx512dq"}, "avx2": {"avx2"}}


def check() -> Report:
    floors: dict[str, dict[str, float]] = json.loads(FILE.read_text(encoding="utf-8"))
    lines = [best_target()]
    for row in rows_here():
        expected = floors.get(row.name, {})
        ratios = best_ratios(row, expected)
        lines += [line(row.name, name, ratio, expected.get(name)) for name, ratio in ratios.items()]
    return Report("floors", ("row", "speed of", "measured", "floor"), lines)


def accept() -> str:
    """Write floors for this machine; return the old and the new ones.

    The slowest of the wide CPU targets sets a floor, so that it also holds on a CPU without the widest one.
    """
    old: dict[str, dict[str, float]] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    new, changes = {}, []
    wide = [name for name in runs_here(every_target=True) if name.startswith("cpp:") and name != "cpp:baseline"]
    for row in rows_here():
        measured = again(row, wide, RETRIES)
        slowest = {name: min(ratios(measured, best)[name] for best in ["cpp", *wide]) for name in ratios(measured)}
        new[row.name] = {name: floor_of(row, name, ratio) for name, ratio in slowest.items()}
        for name, floor in new[row.name].items():
            before = old.get(row.name, {}).get(name)
            changes.append(f"{row.name}, {name}: {'none' if before is None else f'{before:g}'} -> {floor:g}")
    FILE.write_text(json.dumps(new, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return "\n".join(changes)


def floor_of(row: Row, name: str, ratio: float) -> float:
    margin = MARGIN_SHORT if row in SHORT else MARGIN
    return float(f"{ratio * margin[name.partition(' over ')[2]]:.2g}")


def rows_here() -> list[Row]:
    """Leave out DISPATCH where cpp has no target to choose but its baseline."""
    cpp = fastgae.backends()[0]
    return [*SHORT, *LONGER, *([DISPATCH] if len(cpp.targets) > 1 else [])]


def best_target() -> Line:
    """Compare the target that calls use by themselves with the best one that /proc/cpuinfo allows."""
    chosen = (*fastgae.backends()[0].targets, "none")[0]
    expected = target_of_cpu()
    cells = ("CPU target of cpp", "", chosen, expected or "unknown")
    return Line(cells, RED if expected not in (None, chosen) else "")


def target_of_cpu() -> str | None:
    """Return the best target by /proc/cpuinfo, or None elsewhere than on Linux with x86-64."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return None
    flags = next((set(line.split()) for line in text.splitlines() if line.startswith("flags")), None)
    if flags is None:
        return None
    return next((target for target, needed in CPU_FLAGS.items() if needed <= flags), "baseline")


def measured_once(row: Row, others: Sequence[str] = ()) -> Measured:
    """Measure a row; DISPATCH is compared with the baseline target, the others with the slow backends."""
    names = ["cpp", "cpp:baseline", *others] if row == DISPATCH else [*runs_here(), *others]
    measured = measure(row, one_thread(names), SECONDS)
    wrong = [result.contender.name for result in measured.results if not result.right]
    assert not wrong, f"{row.name}: {wrong} differ from numpy"
    return measured


def best_ratios(row: Row, floors: Mapping[str, float]) -> dict[str, float]:
    """Return the ratios of one measurement, or of several where one does not reach all floors."""
    once = measured_once(row)
    found = ratios(once)
    if all(found[name] >= floor for name, floor in floors.items() if name in found):
        return found
    return ratios(again(row, (), RETRIES, once))


def again(row: Row, others: Sequence[str], times: int, before: Measured | None = None) -> Measured:
    """Measure so many times more; return all samples together."""
    measured = before or measured_once(row, others)
    for _ in range(times):
        for result, more in zip(measured.results, measured_once(row, others).results, strict=True):
            result.samples += more.samples
    return measured


def ratios(measured: Measured, cpp: str = "cpp") -> dict[str, float]:
    """Return speed over speed under "one over other"; ``cpp`` names the CPU target that stands for cpp."""
    best = {result.contender.name: min(result.seconds) for result in measured.results}
    best |= {"np.add": min(measured.add_seconds), "cpp": best.get(cpp, 0)}
    if measured.row == DISPATCH:
        pairs = [("cpp", "cpp:baseline")]
    else:
        pairs = [("cpp", "np.add"), ("cpp", "numpy"), ("numba", "numpy")]
    return {f"{one} over {other}": best[other] / best[one] for one, other in pairs if best.get(one)}


def line(row: str, name: str, ratio: float, floor: float | None) -> Line:
    if floor is None:
        return Line((row, name, f"{ratio:.3g}", "none"), "no floor: accept one")
    return Line((row, name, f"{ratio:.3g}", f"{floor:g}"), RED if ratio < floor else "")
