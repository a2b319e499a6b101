"""`python -m peers.table`, in the folder `tests`, writes the tables of hooks and of functions in docs/my-library.md."""

import importlib
import warnings
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType

import numpy as np

from .compare import Comparison
from .lines import HOOKS, MARKED, PAGE, Hook

PEERS = sorted(path.stem for path in Path(__file__).parent.glob("peer_*.py"))


def table(titles: str, rows: Iterable[Iterable[str]]) -> str:
    lines = [titles.split(" | "), ["---"] * len(titles.split(" | ")), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def numbers(tolerance: float, note: str = "") -> str:
    return (f"to {tolerance:.0e}" if tolerance else "✓") + (f": {note}" if note else "")


def of_hook(hook: Hook) -> tuple[str, ...]:
    name = (hook.section or hook.library).lower()
    known = getattr(importlib.import_module(f"fastgae.compat.{name.replace('-', '_')}"), "LIBRARY", None)
    versions = hook.versions or " to ".join(dict.fromkeys([known.oldest, known.newest]))
    line = hook.line if "`" in hook.line else f"`{hook.line}`"
    return f"[{hook.library}](hooks.md#{name})", line, numbers(hook.tolerance, hook.note), versions


def of_peer(peer: ModuleType, compared: Iterable[Comparison]) -> list[tuple[str, ...]]:
    """Return a row for each function of a peer, with our function and its claims."""
    module = getattr(peer, "COMPAT", peer.__name__.rpartition("peer_")[2])
    claims: dict[tuple[str, str], set[float]] = {}
    for each in compared:
        theirs = each.name.partition(",")[0]
        ours = f"{module}.{each.by or theirs.rpartition('.')[2]}"
        claims.setdefault((theirs, ours), set()).add(each.tolerance)
    package = f"{name_of(peer)} {version(name_of(peer))}"
    return [
        (package, f"`{theirs}`", f"`{ours}`", "; ".join(map(numbers, sorted(found))))
        for (theirs, ours), found in claims.items()
    ]


def name_of(peer: ModuleType) -> str:
    name: str = peer.PACKAGE.partition("==")[0]
    return name


def load(name: str) -> ModuleType:
    """The module, if its package is installed: PackageNotFoundError or ModuleNotFoundError if not."""
    peer = importlib.import_module(f".{name}", __package__)
    version(name_of(peer))
    return peer


def functions() -> Iterator[tuple[str, ...]]:
    for name in PEERS:
        try:
            peer = load(name)
        except (PackageNotFoundError, ModuleNotFoundError) as missing:
            raise SystemExit(f"the page is of all peers, and {name} is not installed: {missing}") from None
        yield from of_peer(peer, peer.comparisons(np.random.default_rng(0)))


TABLES = {
    "hooks": lambda: table("library | the line | its numbers | versions", map(of_hook, HOOKS)),
    "functions": lambda: table("package | function | in `fastgae.compat` | its numbers", functions()),
}

if __name__ == "__main__":
    warnings.simplefilter("ignore")  # what a peer warns of is not ours to mend
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(
        MARKED.sub(lambda found: found[1] + TABLES.get(found[2], lambda: found[3])(), page), encoding="utf-8"
    )
