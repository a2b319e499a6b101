"""`python -m peers.table`, in the folder `tests`, compares fastgae.compat with its peers and writes docs/peers.md."""

import importlib
import warnings
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import ModuleType

import numpy as np

PEERS = sorted(path.stem for path in Path(__file__).parent.glob("peer_*.py"))
TABLE = Path(__file__).parents[2] / "docs" / "peers.md"
HEAD = """# fastgae.compat compared with the libraries

Each line compares one call of a library's own function with the one in `fastgae.compat`, on the same random rollouts.
`python -m peers.table`, in the folder `tests`, writes the table, and `pytest tests/peers` asserts the claims. The
largest difference is absolute; the claimed one is relative to the largest number of the result. If the bits differ but
the difference is 0, a zero has the other sign.

CleanRL, Spinning Up and GAE-Paper2Code are not packages, and PufferLib does not build without its own downloads and
CUDA's headers. For these four, `tests/compat` writes out the recursion and compares with that.

| package | function | largest difference | equal bits | claimed |
|---|---|---|---|---|
"""


def load(name: str) -> ModuleType:
    """The module, if its package is installed: PackageNotFoundError or ModuleNotFoundError if not."""
    peer = importlib.import_module(f".{name}", __package__)
    peer.VERSION()
    return peer


def lines(name: str) -> list[str]:
    try:
        peer = load(name)
    except (PackageNotFoundError, ModuleNotFoundError) as missing:
        raise SystemExit(f"the table is of all peers, and {name} is not installed: {missing}") from None
    package = f"{peer.PACKAGE.partition('==')[0]} {peer.VERSION()}"
    return [
        f"| {package} | {each.name} | {each.largest_difference():.1e} | {'yes' if each.same_bits() else 'no'} "
        f"| {f'to {each.tolerance:.0e}' if each.tolerance else 'the same bits'} |"
        for each in peer.comparisons(np.random.default_rng(0))
    ]


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # what a peer warns of is not ours to mend
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text(HEAD + "\n".join(line for name in PEERS for line in lines(name)) + "\n", encoding="utf-8")
