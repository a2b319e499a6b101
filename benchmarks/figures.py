"""Every chart and table about speed in README.md and docs/: measured, kept in docs/figures/results.json, and drawn.

  python benchmarks/figures.py                    all of it: five to ten minutes, needs the extras "peers" and "demo"
  python benchmarks/figures.py threads peers      only these; the others are drawn from what was kept
  python benchmarks/figures.py --redraw           nothing is measured

What cannot run here, because its libraries are missing, stays as it was, with the machine it was measured on.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import hooks
import memory
import peers
import training_share
from calls import one_thread, prepared, runs_here, thread_counts
from charts import overhead_chart, peers_chart, threads_chart, throughput_chart
from report import as_document, describe_machine, track
from rows import CASES, FRESH, Contender, Row, case
from tables import filled
from timing import measure

ROOT = Path(__file__).parents[1]
DRAWN = ROOT / "docs" / "figures"
RESULTS = DRAWN / "results.json"
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))

THROUGHPUT = [
    *(case("plain", *size) for size in ((128, 8), (128, 1024), (2048, 64), (1024, 4096))),
    *(case("plain", *size, env_major=True) for size in ((128, 1024), (1024, 4096))),
    *(case("plain", *size, dtype="float64") for size in ((128, 1024),)),
    case("plain", 65536, 1),
    *(case(name, 128, 1024) for name in CASES if name != "plain"),
]
OVERHEAD = [case(name, 8, 1, outputs=FRESH) for name in CASES]
THREADS = [
    case("plain", *size, env_major=env_major) for size in ((1024, 4096), (4096, 4096)) for env_major in (False, True)
]


def of_rows(rows: Sequence[Row], contenders: Sequence[Contender], seconds: float) -> dict[str, Any]:
    return as_document([measure(row, contenders, seconds) for row in track(rows)], describe_machine())


def of_memory() -> dict[str, Any]:
    contenders = one_thread([name for name in runs_here() if name != "numpy"])
    rows = []
    for row in track(memory.ROWS):
        ready, size = prepared(row), row.steps * row.envs
        assert all(ready.right(contender) for contender in contenders)
        found = {each.name: max(0, *(peak or 0 for peak in memory.peaks(ready, each))) / size for each in contenders}
        rows.append({"name": row.name, "bytes_per_step": found})
    return {"machine": describe_machine(), "rows": rows}


SECTIONS: dict[str, Callable[[], dict[str, Any]]] = {
    "throughput": lambda: of_rows(THROUGHPUT, one_thread(runs_here()), 0.8),
    "overhead": lambda: of_rows(OVERHEAD, one_thread(runs_here()), 0.5),
    "threads": lambda: of_rows(THREADS, thread_counts(runs_here()), 1.5),
    "memory": of_memory,
    "peers": peers.measure,
    "training": training_share.measure,
    "hooks": hooks.measured_apart,
}
CHARTS: dict[str, Callable[[Mapping[str, Any]], bytes]] = {  # docs/figures/NAME.svg, of the section of that name
    "throughput": throughput_chart,
    "overhead": overhead_chart,
    "threads": threads_chart,
    "peers": peers_chart,
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)}; none: all")
    parser.add_argument("--redraw", action="store_true", help="measure nothing")
    parser.add_argument("--from", type=Path, dest="source", default=RESULTS, metavar="FILE", help="what was kept")
    args = parser.parse_args(arguments)
    unknown = set(args.sections) - set(SECTIONS)
    if unknown:
        parser.error(f"no such section: {', '.join(sorted(unknown))}")

    results = json.loads(args.source.read_text(encoding="utf-8")) if args.source.exists() else {}
    for name in () if args.redraw else args.sections or SECTIONS:
        print(f"measuring {name}", file=sys.stderr)
        try:
            results[name] = SECTIONS[name]()
        except ImportError as error:
            print(f"{name} stays as it was: {error}", file=sys.stderr)
    DRAWN.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for name, draw in CHARTS.items():
        if name in results:
            (DRAWN / f"{name}.svg").write_bytes(draw(results[name]))
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8"), results), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
