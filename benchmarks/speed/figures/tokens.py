"""Print as JSON the times of trainers of language models on long answers: by their own functions, and by fastgae's.

Their functions come from the files that are installed (the package ``peers`` is tests/peers). Those of fastgae.compat
have the same arguments. Answers end at random tokens, and a mask leaves out what follows.
"""

from collections.abc import Callable, Iterator
from functools import partial
from timeit import Timer
from typing import Any

from speed.text import duration, markdown
from speed.timing import best

from .apart import print_rows

ANSWERS = [(1, 131072), (8, 32768), (64, 4096), (512, 2048)]  # answers, tokens
GAMMA, LAMBDA = 1.0, 0.95
SECONDS = 1.0  # of samples of each
Function = Callable[..., Any]  # of values, rewards, a mask, gamma and lambda


def verl() -> tuple[Function, Function]:
    from fastgae.compat import verl as ours
    from peers import peer_verl

    def turned(of: Function) -> Function:
        return lambda values, rewards, *others: of(rewards, values, *others)

    name = "compute_gae_advantage_return"
    return turned(peer_verl.theirs(name)), turned(getattr(ours, name))


def openrlhf() -> tuple[Function, Function]:
    from fastgae.compat import openrlhf as ours
    from peers import peer_openrlhf

    return peer_openrlhf.theirs(), ours.get_advantages_and_returns


def trl() -> tuple[Function, Function]:
    from fastgae.compat import trl as ours
    from peers import peer_trl

    def compute_advantages(values: Any, rewards: Any, mask: Any, gamma: float, lam: float) -> Any:
        return ours.compute_advantages(values, rewards, mask, gamma=gamma, lam=lam)

    return peer_trl.theirs(), compute_advantages


def measure(
    library: str, functions: Callable[[], tuple[Function, Function]], values_dtypes: tuple[str, ...]
) -> Iterator[Any]:
    import torch

    from peers.compare import Comparison

    theirs, ours = functions()
    random = torch.Generator().manual_seed(0)
    for answers, tokens in ANSWERS:
        rewards, values = torch.randn(2, answers, tokens, generator=random)
        lengths = torch.randint(tokens // 2, tokens + 1, (answers, 1), generator=random)
        mask = (torch.arange(tokens) < lengths).long()
        for dtype in values_dtypes:
            given = values.to(getattr(torch, dtype)), rewards, mask, GAMMA, LAMBDA
            compared = Comparison(library, theirs(*given), ours(*given), tolerance=1e-5)
            assert compared.holds(), f"{library}, {answers} × {tokens}: {compared.largest_difference()}"
            calls = {"before_seconds": partial(theirs, *given), "after_seconds": partial(ours, *given)}
            found = best({when: Timer(call) for when, call in calls.items()}, SECONDS)
            yield {"library": library, "answers": answers, "tokens": tokens, "values": dtype, **found}


def table(found: dict[str, Any]) -> str:
    """Write a row for each size, and for each library its time, ours, and their ratio."""
    cells: dict[tuple[str, str], str] = {}
    for row in found["rows"]:
        before, after = row["before_seconds"], row["after_seconds"]
        size, column = f"{row['answers']} × {row['tokens']:,}", f"{row['library']}, {row['values']} values"
        cells[size, column] = f"{duration(before)} → {duration(after)} ({before / after:,.0f})"
    sizes, columns = (list(dict.fromkeys(key[i] for key in cells)) for i in (0, 1))
    rows = [(size, *(cells[size, column] for column in columns)) for size in sizes]
    return markdown(("answers × tokens", *columns), rows)


LIBRARIES = {
    "verl": partial(measure, "verl", verl, ("float32", "bfloat16")),
    "openrlhf": partial(measure, "OpenRLHF", openrlhf, ("float32",)),
    "trl": partial(measure, "TRL", trl, ("float32",)),
}

if __name__ == "__main__":
    print_rows(LIBRARIES)
