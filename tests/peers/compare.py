"""What a peer's own code computes beside what fastgae.compat computes, on the same random rollouts.

Each module peer_*.py in this folder says PACKAGE, what to install, and comparisons(rng), which yields Comparison.
`pytest tests/peers` asserts the claims; `python -m peers.table`, in the folder `tests`, writes them down in
docs/my-library.md.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

Function = Callable[..., Any]
LIBRARIES = sorted(path.stem.removeprefix("hook_") for path in Path(__file__).parent.glob("hook_*.py"))


class Comparison(NamedTuple):
    """One call of the peer and of fastgae.compat; arrays in the same order."""

    name: str  # the peer's function, and the setting
    theirs: tuple[Any, ...]
    ours: tuple[Any, ...]
    tolerance: float = 0.0  # 0: the same bits; else relative to the largest number of theirs
    by: str = ""  # our function; "": its name is that of theirs

    def largest_difference(self) -> float:
        pairs = zip(self.theirs, self.ours, strict=True)
        return max(
            float(np.max(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)), initial=0.0)) for a, b in pairs
        )

    def same_bits(self) -> bool:
        pairs = [(np.asarray(a), np.asarray(b)) for a, b in zip(self.theirs, self.ours, strict=True)]
        return all(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in pairs)

    def holds(self) -> bool:
        if self.tolerance == 0.0:
            return self.same_bits()
        scale = max(float(np.max(np.abs(np.asarray(a, np.float64)), initial=0.0)) for a in self.theirs)
        return self.largest_difference() <= self.tolerance * scale


def called(
    name: str, theirs: Function, ours: Function, *given: Any, tolerance: float = 0.0, by: str = "", **named: Any
) -> Comparison:
    """Call both functions with the same arguments."""
    results = [function(*given, **named) for function in (theirs, ours)]
    pairs = [result if isinstance(result, tuple) else (result,) for result in results]
    return Comparison(name, *pairs, tolerance, by)


def normal(rng: np.random.Generator, *shape: int) -> Any:
    """Return a tensor of normal numbers in float32."""
    import torch  # here, because some peers do without it

    return torch.from_numpy(rng.normal(size=shape)).float()


def flags(rng: np.random.Generator, share: float, *shape: int) -> Any:
    """Return a tensor of bools, of which this share is True."""
    import torch

    return torch.from_numpy(rng.random(shape) < share)


class Hooked(NamedTuple):
    """A call of the library, and the same with the hook of fastgae.compat; each gives its results."""

    name: str  # what is called, and the size
    before: Callable[[], tuple[Any, ...]]
    after: Callable[[], tuple[Any, ...]]
    install: Callable[[], AbstractContextManager[Any]] = nullcontext  # what `after` is called in
    tolerance: float = 0.0
    timed: bool = False  # of the size of a training run: `python benchmarks figures hooks` measures it
    declined: bool = False  # the hook leaves this one to the library
