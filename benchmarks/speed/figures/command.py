"""Charts and tables of README.md and docs/: measured, kept in docs/figures/results.json, and drawn.

  python benchmarks figures                    all of it: ten to fifteen minutes, needs the extras "peers" and "demo"
  python benchmarks figures threads peers      only these; the others are drawn from what was kept
  python benchmarks figures --print limits     measure and print; no file changes
  python benchmarks figures --redraw           nothing is measured

A section whose libraries are missing here stays as it was, with the machine it was measured on.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from fastgae._support.pictures import save
from speed import memory, table
from speed.calls import prepared
from speed.contenders import Contender, compiled_here, one_thread, runs_here, thread_counts
from speed.machine import describe_machine, usable_cpus
from speed.measured import measure
from speed.places import ROOT
from speed.rows import Row
from speed.text import track

from . import apart, corners, in_jax, training
from .charts import card, home_chart, overhead_chart, peers_chart, throughput_chart
from .tables import filled, machine_of, render

DRAWN = ROOT / "docs" / "figures"
RESULTS = DRAWN / "results.json"
ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # two would wait for each other on small networks
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))


def of_rows(rows: Sequence[Row], contenders: Sequence[Contender], seconds: float) -> dict[str, Any]:
    return {"machine": describe_machine(), "rows": [measure(row, contenders, seconds) for row in track(rows)]}


def of_memory() -> dict[str, Any]:
    contenders = one_thread(compiled_here())
    rows = []
    for row in track(table.PEAK_MEMORY):
        ready = prepared(row)
        assert all(ready.right(contender) for contender in contenders)
        found = {each.name: memory.bytes_per_step(ready, each) for each in contenders}
        rows.append({"name": row.name, "bytes_per_step": found})
    return {"machine": describe_machine(), "rows": rows}


def of_limits() -> dict[str, Any]:
    """Measure the default target, and AVX2's, beside the limit of the machine."""
    contenders = one_thread([name for name in ("cpp", "cpp:avx2") if name in {"cpp", *runs_here(every_target=True)}])
    limits = {limit.row: limit for limit in table.LIMITS}
    rows = [
        {**measure(row, contenders, 0.5, limits[row].over), "over": limits[row].over, "goal": limits[row].times}
        for row in track(list(limits))
    ]
    return {"machine": describe_machine(), "rows": rows}


SECTIONS: dict[str, Callable[[], dict[str, Any]]] = {
    "throughput": lambda: of_rows(table.THROUGHPUT, one_thread(runs_here()), 0.8),
    "limits": of_limits,
    "overhead": lambda: of_rows(table.OVERHEAD, one_thread(runs_here()), 0.5),
    "threads": lambda: of_rows(table.THREADS, thread_counts(usable_cpus()), 1.5),
    "corners": corners.measure,
    "memory": of_memory,
    "peers": partial(apart.found_by, "speed.figures.peers", **ONE_THREAD),  # which binds its process to one CPU
    "tokens": partial(apart.found_by, "speed.figures.tokens", **ONE_THREAD),
    "jax": in_jax.measure,
    "training": training.measure,
    "hooks": partial(apart.found_by, "speed.figures.hooks", **ONE_THREAD),
    "trainers": partial(apart.found_by, "speed.figures.trainers", **ONE_THREAD),
    "suites": partial(apart.found_by, "suites"),
}
CHARTS: dict[str, Callable[[Mapping[str, Any]], bytes]] = {  # docs/figures/NAME.svg shows the section NAME
    "throughput": throughput_chart,
    "overhead": overhead_chart,
    "peers": peers_chart,
}


def main(arguments: Sequence[str] | None = None) -> int:
    args = parse(arguments)
    kept = json.loads(RESULTS.read_text(encoding="utf-8"))
    for name in () if args.redraw else args.sections or SECTIONS:
        print(f"measuring {name}", file=sys.stderr)
        try:
            kept[name] = SECTIONS[name]()
        except ImportError as error:
            print(f"{name} is not measured: {error}", file=sys.stderr)
            continue
        if args.print:
            print(f"{render(name, kept)}\n\n{machine_of(name, kept)}".rstrip(), end="\n\n", flush=True)
        else:
            keep(kept)  # now, because a later section may fail
    if not args.print:
        draw(kept)
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)}; none: all")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--print", action="store_true", help="print the tables and write nothing")
    how.add_argument("--redraw", action="store_true", help="measure nothing")
    args = parser.parse_args(arguments)
    unknown = set(args.sections) - set(SECTIONS)
    if unknown:
        parser.error(f"no such section: {', '.join(sorted(unknown))}")
    if args.redraw and args.sections:
        parser.error("--redraw draws all sections: leave their names out")
    return args


def keep(results: Mapping[str, Any]) -> None:
    new = RESULTS.with_suffix(".new")
    new.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    new.replace(RESULTS)


def draw(results: Mapping[str, Any]) -> None:
    """Write the charts and the tables of all pages."""
    for name, drawn in CHARTS.items():
        if name in results:
            (DRAWN / f"{name}.svg").write_bytes(drawn(results[name]))
    (DRAWN / "home.svg").write_bytes(home_chart(results))
    save(card(results), ROOT / "docs" / "assets" / "card.png")
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8"), results), encoding="utf-8")
