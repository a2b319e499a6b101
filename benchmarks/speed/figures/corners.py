"""Every case and option in both layouts, and in float64, as a multiple of the plain call on arrays of the same kind."""

from typing import Any

from speed.calls import Prepared
from speed.contenders import Contender
from speed.machine import describe_machine
from speed.rollouts import GIVEN
from speed.rows import CASES, FRESH, case
from speed.table import CACHED, SMALL
from speed.text import duration, markdown
from speed.timing import best

COLUMNS: dict[str, tuple[tuple[int, int], dict[str, Any]]] = {
    "128×8": (SMALL, {}),
    "128×8 env-major": (SMALL, {"env_major": True}),
    "128×1024": (CACHED, {}),
    "128×1024 env-major": (CACHED, {"env_major": True}),
    "128×1024 float64": (CACHED, {"dtype": "float64"}),
}
TIME_MAJOR = ("packed", "packed, mask", *GIVEN)
SECONDS = 0.1  # of samples of each


def measure() -> dict[str, Any]:
    ours, rows = Contender("cpp", "cpp"), []
    for name in CASES:
        found = {}
        for column, (size, settings) in COLUMNS.items():
            if not (settings.get("env_major") and name in TIME_MAJOR):
                prepared = {each: Prepared(case(each, *size, outputs=FRESH, **settings)) for each in ("plain", name)}
                found[column] = best({each: ready.timer(ours) for each, ready in prepared.items()}, SECONDS)
        rows.append({"case": name, "seconds": found})
    return {"machine": describe_machine(), "rows": rows}


def table(measured: dict[str, Any]) -> str:
    def cell(row: dict[str, Any], column: str) -> str:
        seconds = row["seconds"].get(column)
        if seconds is None:
            return ""
        return (
            duration(seconds["plain"]) if row["case"] == "plain" else f"{seconds[row['case']] / seconds['plain']:.2g}"
        )

    return markdown(
        ("case", *COLUMNS), [(row["case"], *(cell(row, each) for each in COLUMNS)) for row in measured["rows"]]
    )
