"""Compare a dataset with its own description, to notice a missing or half-written file."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fastgae.data.errors import DataError

NAMED = 10  # at most this many missing episodes in a message


def description(path: Path) -> Mapping[str, Any]:
    """Return the object in a JSON file; an empty one if the file is missing or holds no JSON object."""
    try:
        said = json.loads(path.read_bytes() if path.is_file() else b"{}")
    except (OSError, ValueError):
        return {}
    return said if isinstance(said, dict) else {}


def check_totals(path: Path, said: Mapping[str, Any], episodes: Collection[int] | None, steps: int) -> None:
    """Check total_episodes and total_steps of a description, where it has them; None: the episodes are not known."""
    total = said.get("total_episodes")
    if episodes is not None and total is not None and total != len(episodes):
        missing = _missing(episodes, total)
        raise DataError(f"{path} says that there are {total} episodes; there are {len(episodes)}{missing}")
    total = said.get("total_steps")
    if total is not None and total != steps:
        raise DataError(f"{path} says that there are {total} steps; the episodes have {steps}")


def _missing(episodes: Collection[int], total: Any) -> str:
    """Name the numbers below the total that no episode has."""
    known = isinstance(total, int | np.integer)
    missing = [str(number) for number in range(total if known else 0) if number not in episodes]
    named = ", ".join([*missing[:NAMED], *["…"] * (len(missing) > NAMED)])
    return f", without {named}" if missing else ""
