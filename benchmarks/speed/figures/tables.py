"""Write the tables of the documentation between the markers <!-- begin NAME --> and <!-- end NAME -->."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from speed.contenders import LIMIT
from speed.shown import duration

from . import hooks, peers, suites, training_share
from .charts import label_of, machine_line

Results = Mapping[str, Any]
MARKED = re.compile(r"(<!-- begin ([\w-]+) -->\n).*?(<!-- end \2 -->)", re.DOTALL)


def of_backends(measured: Results) -> str:
    """Write the best time of every contender, and in parentheses its ratio to np.add."""
    rows = measured["rows"]
    names = [result["name"] for result in rows[0]["results"]]
    lines = [f"| T×N | np.add | {' | '.join(names)} |", f"|---|---:|{'---:|' * len(names)}"]
    for row in rows:
        cells = [label_of(row), duration(row["add"]["best_seconds"])]
        cells += [f"{duration(each['best_seconds'])} ({each['ratio_to_add_best']:,.3g})" for each in row["results"]]
        lines.append(f"| {' | '.join(cells)} |")
    return _with_machine(lines, measured)


def of_limits(measured: Results) -> str:
    """Write the times of the yardstick, the ratio of every contender to it, and the goal."""
    rows = measured["rows"]
    names = [result["name"] for result in rows[0]["results"]]
    lines = [f"| | T×N | yardstick | {' | '.join(names)} | goal |", f"|---|---|---:|{'---:|' * len(names)}---:|"]
    group = ""
    for row in rows:
        goal = row["results"][0]["goal"]
        limit = row["limit_seconds"] if goal["over"] == LIMIT else row["add"]["best_seconds"]
        first = "" if row["group"] == group else row["group"]
        cells = [first, f"{row['steps']}×{row['envs']} {row['detail']}".strip(), f"{goal['over']} {duration(limit)}"]
        cells += [f"{each['ratio_judged']:.2f}" for each in row["results"]]
        lines.append(f"| {' | '.join(cells)} | {goal['times']:g} |")
        group = row["group"]
    return _with_machine(lines, measured)


def of_peers(measured: Results) -> str:
    return _with_machine(
        [peers.table(measured), "", *(f"Not run: {each}." for each in peers.missing(measured))], measured
    )


def of_memory(measured: Results) -> str:
    """Write the bytes per step that Python and NumPy allocate or the process grows by, whichever is more."""
    names = list(measured["rows"][0]["bytes_per_step"])
    lines = [f"| T×N | {' | '.join(names)} |", f"|---|{'---:|' * len(names)}"]
    for row in measured["rows"]:
        cells = [f"{row['bytes_per_step'][name]:.1f}" for name in names]
        lines.append(f"| {row['name']} | {' | '.join(cells)} |")
    return _with_machine(lines, measured)


def of_training(measured: Results) -> str:
    return _with_machine([training_share.table(measured)], measured)


def of_hooks(measured: Results) -> str:
    return _with_machine([hooks.table(measured)], measured)


def in_short(measured: Results) -> str:
    """Write two sentences for the README."""
    rows = {(row["steps"], row["envs"]): row["results"] for row in measured["peers"]["rows"]}
    small, large = rows[128, 8], rows[2048, 64]

    def times(results: Results, name: str) -> str:
        return f"{results[name]['best_seconds'] / results['fastgae, cpp']['best_seconds']:,.2g}"

    shares = [
        row["their_seconds"] / (row["their_seconds"] + row["rest_seconds"]) for row in measured["training"]["rows"]
    ]
    return (
        f"On one CPU, a call on 128×8 steps takes {duration(small['fastgae, cpp']['best_seconds'])} and one on 2048×64 "
        f"{duration(large['fastgae, cpp']['best_seconds'])}; a tuned Numba loop written by hand takes "
        f"{times(small, 'hand-written Numba loop')} and {times(large, 'hand-written Numba loop')} times as long, a "
        f"compiled JAX scan {times(small, 'JAX, lax.scan')} and {times(large, 'JAX, lax.scan')} times.\n"
        f"In a whole PPO run of Stable-Baselines3, GAE is {min(shares):.2%} to {max(shares):.2%} of the time even with "
        "its own loop."
    )


TABLES: dict[str, tuple[str | None, Callable[[Results], str]]] = {  # its section of the results, None for all of them
    "throughput": ("throughput", of_backends),
    "limits": ("limits", of_limits),
    "overhead": ("overhead", of_backends),
    "threads": ("threads", of_backends),
    "memory": ("memory", of_memory),
    "peers": ("peers", of_peers),
    "training": ("training", of_training),
    "hooks": ("hooks", of_hooks),
    "trainers": ("trainers", of_hooks),
    "suites": ("suites", suites.table),
    "speed-in-short": (None, in_short),
}


def render(name: str, results: Results) -> str:
    section, table = TABLES[name]
    return table(results[section] if section else results)


def filled(text: str, results: Results) -> str:
    """Return a page with the tables between its markers written anew."""
    return MARKED.sub(lambda found: f"{found[1]}{render(found[2], results)}\n{found[3]}", text)


def _with_machine(lines: list[str], measured: Results) -> str:
    return "\n".join([*lines, "", f"<sub>{machine_line(measured['machine'])}</sub>"])
