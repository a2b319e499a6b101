"""The hooks of fastgae.compat: each library's own call, by itself and in training, as it is and with the hook."""

import os
from collections.abc import Mapping
from typing import Any

from speed.figures import apart
from speed.shown import duration


def measure(sample: str = "hooks_sample") -> dict[str, Any]:
    """Measure with one thread, in a process of its own; ImportError names the libraries that are missing.

    ``sample`` is the module that does it: "hooks_sample", or "trainers_sample" for calls inside running trainers.
    """
    return apart.found_by(f"speed.figures.{sample}", {**os.environ, "OMP_NUM_THREADS": "1"})


def table(found: Mapping[str, Any]) -> str:
    """Write the times as Markdown, the largest gain first."""
    rows = [
        f"| {row['library']}: {row['call']} | {duration(row['before_seconds'])} | {duration(row['after_seconds'])} | "
        f"{row['times_faster']:.2g} |"
        for row in sorted(found["rows"], key=lambda row: -row["times_faster"])
    ]
    return "\n".join(["| the library's call | before | after | times faster |", "|---|---:|---:|---:|", *rows])
