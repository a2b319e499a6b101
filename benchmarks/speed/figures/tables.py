"""Write the tables of the documentation between the markers <!-- begin NAME --> and <!-- end NAME -->."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from speed.table import ADD
from speed.text import duration, markdown

from . import apart, corners, in_jax, peers, tokens, training
from .charts import contenders, in_times_of_ours, label_of, machine_line

Results = Mapping[str, Any]
MARKED = re.compile(r"(<!-- begin ([\w-]+) -->\n).*?(<!-- end \2 -->)", re.DOTALL)


def of_backends(measured: Results) -> str:
    """Write the best time of every contender, and in parentheses its ratio to np.add."""
    names = contenders(measured)
    rows = []
    for row in measured["rows"]:
        seconds = row["seconds"]
        ours = (f"{duration(seconds[name])} ({seconds[name] / seconds[ADD]:,.3g})" for name in names)
        rows.append((label_of(row), duration(seconds[ADD]), *ours))
    return markdown(("T×N", ADD, *names), rows)


USERS = {  # rows of "throughput", by what they are to a user
    "128×8": "8 envs",
    "2048×64": "64 envs, long rollouts",
    "128×1024": "1,024 envs of a compiled simulator",
    "128×1024 env-major": "the same, env-major",
    "1024×4096": "4,096 envs, more than the caches hold",
    "65536×1": "one long trajectory",
    "final_values 128×1024": "truncation, with `final_values`",
    "mask 128×1024": "`mask`",
    "normalize 128×1024": "`normalize`",
    "packed 131072×1": "131,072 tokens in packed sequences",
}


def of_users(results: Results) -> str:
    """Write the best time of every contender on the rollouts that users have."""
    measured = results["throughput"]
    rows = {label_of(row): row for row in measured["rows"]}
    names = contenders(measured)
    shown = []
    for label, what in USERS.items():
        row = rows[label]
        shown.append((what, row["label"], *(duration(row["seconds"][name]) for name in names)))
    return markdown(("rollout", "T×N", *names), shown, left=2)


def of_limits(measured: Results) -> str:
    """Write the times of the yardstick, the ratio of every contender to it, and the goal."""
    names = contenders(measured)
    rows, group = [], ""
    for row in measured["rows"]:
        seconds, over = row["seconds"], row["over"]
        first, group = "" if row["group"] == group else row["group"], row["group"]
        ratios = (f"{seconds[name] / seconds[over]:.2f}" for name in names)
        rows.append((first, row["label"], f"{over} {duration(seconds[over])}", *ratios, f"{row['goal']:g}"))
    return markdown(("", "T×N", "yardstick", *names, "goal"), rows, left=2)


def of_memory(measured: Results) -> str:
    """Write the bytes per step that Python and NumPy allocate or the process grows by, whichever is more."""
    names = list(measured["rows"][0]["bytes_per_step"])
    rows = [(row["name"], *(f"{row['bytes_per_step'][name]:.1f}" for name in names)) for row in measured["rows"]]
    return markdown(("T×N", *names), rows)


def in_short(measured: Results) -> str:
    """Write what the README says of speed."""
    small, large = (measured["peers"]["seconds"][shape] for shape in ("128×8", "2048×64"))
    rlax = " and ".join(f"{in_times_of_ours(each)['RLax, jit and vmap']:,.2g}" for each in (small, large))
    shares = [
        row["their_seconds"] / (row["their_seconds"] + row["rest_seconds"]) for row in measured["training"]["rows"]
    ]
    answer = next(row for row in measured["tokens"]["rows"] if row["library"] == "OpenRLHF")
    theirs, ours, of_small, of_large = (
        duration(seconds, ".3g")
        for seconds in (answer["before_seconds"], answer["after_seconds"], small["fastgae, cpp"], large["fastgae, cpp"])
    )
    cpus = [f"an {_cpu(measured[name])}" for name in ("tokens", "peers", "training")]
    machines = cpus[0] if len({*cpus}) == 1 else f"{', '.join(cpus)}, in this order"
    return (
        f"* **Tokens:** for one answer of {answer['tokens']:,}, OpenRLHF's own function takes {theirs}, and fastgae's "
        f"with the same arguments {ours}.\n"
        f"* **Steps:** on one CPU, 128×8 take {of_small} and 2048×64 take {of_large}; RLax, compiled by `jit` and "
        f"called from Python, takes {rlax} times as long.\n"
        f"* **Training:** in a PPO run of Stable-Baselines3, GAE is {min(shares):.2%} to {max(shares):.2%} of the time "
        "even with its own loop.\n\n"
        f"Measured on {machines}."
    )


def _cpu(section: Results) -> str:
    """Return the name of the CPU that measured a section."""
    return " ".join(section["machine"]["CPU"].replace("(R)", "").replace("Processor", "").split())


TABLES: dict[str, Callable[[Results], str]] = {  # of the section with this name
    "throughput": of_backends,
    "limits": of_limits,
    "overhead": of_backends,
    "threads": of_backends,
    "corners": corners.table,
    "memory": of_memory,
    "peers": peers.table,
    "tokens": tokens.table,
    "jax": in_jax.table,
    "training": training.table,
    "hooks": apart.table_of_hooks,
    "trainers": apart.table_of_hooks,
    "suites": apart.table_of_suites,
}

OF_SEVERAL: dict[str, Callable[[Results], str]] = {"speed-in-short": in_short, "rollouts": of_users}
DRAWN_FROM = {"rollouts": "throughput"}  # tables that show a part of another section


def render(name: str, results: Results) -> str:
    if name in OF_SEVERAL:
        return OF_SEVERAL[name](results)
    return TABLES[name](results[name]).rstrip()


def machine_of(name: str, results: Results) -> str:
    """Return the line about the machine of a table; nothing if the table names its own."""
    machine = results.get(DRAWN_FROM.get(name, name), {}).get("machine")
    return f"<sub>{machine_line(machine)}</sub>" if machine else ""


def filled(text: str, results: Results) -> str:
    """Return a page with the tables between its markers written anew; the machine is named where it changes."""
    last = ""

    def table(found: re.Match[str]) -> str:
        nonlocal last
        line = machine_of(found[2], results)
        under = f"\n\n{line}" if line not in ("", last) else ""
        last = line or last
        return f"{found[1]}{render(found[2], results)}{under}\n{found[3]}"

    return MARKED.sub(table, text)
