"""Every measured chart and table of README.md and docs/: measured, kept in docs/figures/results.json, and drawn.

  python benchmarks/figures.py                    all of it: ten to fifteen minutes, needs the extras "peers" and "demo"
  python benchmarks/figures.py threads peers      only these; the others are drawn from what was kept
  python benchmarks/figures.py --print peers      measure and print; no file changes
  python benchmarks/figures.py --redraw           nothing is measured

A section whose libraries are missing here stays as it was, with the machine it was measured on.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from speed import memory, table
from speed.calls import prepared
from speed.contenders import ADD, LIMIT, Contender, one_thread, runs_here, thread_counts, without_reference
from speed.machine import describe_machine, usable_cpus
from speed.measured import measure
from speed.places import ROOT
from speed.rows import Row
from speed.shown import as_document, track
from speed.yardstick.goals import contenders

from . import hooks, peers, suites, training_share
from .charts import overhead_chart, peers_chart, throughput_chart
from .tables import filled, render

DRAWN = ROOT / "docs" / "figures"
RESULTS = DRAWN / "results.json"
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))


def of_rows(rows: Sequence[Row], contenders: Sequence[Contender], seconds: float) -> dict[str, Any]:
    return as_document([measure(row, contenders, seconds) for row in track(rows)], describe_machine())


def of_memory() -> dict[str, Any]:
    contenders = one_thread(without_reference(runs_here()))
    rows = []
    for row in track(table.PEAK_MEMORY):
        ready = prepared(row)
        assert all(ready.right(contender) for contender in contenders)
        found = {
            each.name: max(0, *(peak or 0 for peak in memory.peaks(ready, each))) / row.size for each in contenders
        }
        rows.append({"name": row.name, "bytes_per_step": found})
    return {"machine": describe_machine(), "rows": rows}


def of_limits() -> dict[str, Any]:
    """Measure the default target, and AVX2's, on the rows that have a goal over the yardstick itself."""
    backends = [name for name in ("cpp", "cpp:avx2") if name in {"cpp", *runs_here(every_target=True)}]
    entries = {entry.row: entry for entry in table.YARDSTICK if entry.goal and entry.goal.over in (ADD, LIMIT)}
    measured = [measure(row, contenders(entries[row], backends, 1), 0.5) for row in track(list(entries))]
    return as_document(measured, describe_machine())


SECTIONS: dict[str, Callable[[], dict[str, Any]]] = {
    "throughput": lambda: of_rows(table.SHOWN_THROUGHPUT, one_thread(runs_here()), 0.8),
    "limits": of_limits,
    "overhead": lambda: of_rows(table.SHOWN_OVERHEAD, one_thread(runs_here()), 0.5),
    "threads": lambda: of_rows(table.SHOWN_THREADS, thread_counts(runs_here(), usable_cpus()), 1.5),
    "memory": of_memory,
    "peers": peers.measure,
    "training": training_share.measure,
    "hooks": hooks.measure,
    "trainers": lambda: hooks.measure("trainers_sample"),
    "suites": suites.measure,
}
CHARTS: dict[str, Callable[[Mapping[str, Any]], bytes]] = {  # docs/figures/NAME.svg shows the section NAME
    "throughput": throughput_chart,
    "overhead": overhead_chart,
    "peers": peers_chart,
}


def main(arguments: Sequence[str] | None = None) -> int:
    args = parse(arguments)
    kept = json.loads(args.source.read_text(encoding="utf-8")) if args.source.exists() else {}
    measured = measure_sections(() if args.redraw else args.sections or list(SECTIONS))
    if args.print:
        print("\n\n".join(render(name, measured) for name in measured))
    else:
        write({**kept, **measured})
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)}; none: all")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--print", action="store_true", help="print the tables and write nothing")
    how.add_argument("--redraw", action="store_true", help="measure nothing")
    parser.add_argument("--from", type=Path, dest="source", default=RESULTS, metavar="FILE", help="the results to keep")
    args = parser.parse_args(arguments)
    unknown = set(args.sections) - set(SECTIONS)
    if unknown:
        parser.error(f"no such section: {', '.join(sorted(unknown))}")
    return args


def measure_sections(names: Sequence[str]) -> dict[str, Any]:
    results = {}
    for name in names:
        print(f"measuring {name}", file=sys.stderr)
        try:
            results[name] = SECTIONS[name]()
        except ImportError as error:
            print(f"{name} is not measured: {error}", file=sys.stderr)
    return results


def write(results: Mapping[str, Any]) -> None:
    """Write the results, the charts and the tables of all pages."""
    DRAWN.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for name, draw in CHARTS.items():
        if name in results:
            (DRAWN / f"{name}.svg").write_bytes(draw(results[name]))
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8"), results), encoding="utf-8")
