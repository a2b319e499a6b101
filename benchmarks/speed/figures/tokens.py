"""Print as JSON the times of trainers of language models on long answers: by their own functions, and by fastgae's.

Their functions come from the files that are installed (the package ``peers`` is tests/peers). Those of fastgae.compat
have the same arguments. Answers end at random tokens, and a mask leaves out what follows.
"""

from collections.abc import Callable, Iterator
from functools import partial
from timeit import Timer
from types import SimpleNamespace
from typing import Any

from speed.text import duration, markdown
from speed.timing import Clock, in_turn

from .apart import print_rows

ANSWERS = [(1, 131072), (8, 32768), (64, 4096), (512, 2048)]  # answers, tokens
GAMMA, LAMBDA = 1.0, 0.95
SECONDS = 1.0  # of samples of each
Functions = tuple[Callable[..., Any], Callable[..., Any]]  # theirs and ours, of rewards, values and mask


def verl() -> Functions:
    from fastgae.compat import verl as ours
    from peers import peer_verl

    theirs = peer_verl.theirs("compute_gae_advantage_return")
    return (
        lambda rewards, values, mask: theirs(rewards, values, mask, GAMMA, LAMBDA),
        lambda rewards, values, mask: ours.compute_gae_advantage_return(rewards, values, mask, GAMMA, LAMBDA),
    )


def openrlhf() -> Functions:
    import torch

    from fastgae.compat import openrlhf as ours
    from peers import peer_openrlhf
    from peers.installed import function

    theirs = function("openrlhf", peer_openrlhf.FILE, "get_advantages_and_returns", torch=torch)
    return (
        lambda rewards, values, mask: theirs(None, values, rewards, mask, GAMMA, LAMBDA),
        lambda rewards, values, mask: ours.get_advantages_and_returns(values, rewards, mask, GAMMA, LAMBDA),
    )


def trl() -> Functions:
    from fastgae.compat import trl as ours
    from peers import peer_trl

    theirs = peer_trl.theirs()
    settings = {"gamma": GAMMA, "lam": LAMBDA, "whiten_rewards": False}
    trainer = SimpleNamespace(config=SimpleNamespace(**settings))
    return (
        lambda rewards, values, mask: theirs(trainer, values, rewards, mask),
        lambda rewards, values, mask: ours.compute_advantages(values, rewards, mask, **settings),
    )


def measure(library: str, functions: Callable[[], Functions], values_dtypes: tuple[str, ...]) -> Iterator[Any]:
    import torch

    from peers.compare import Comparison

    theirs, ours = functions()
    random = torch.Generator().manual_seed(0)
    for answers, tokens in ANSWERS:
        rewards, values = torch.randn(2, answers, tokens, generator=random)
        lengths = torch.randint(tokens // 2, tokens + 1, (answers, 1), generator=random)
        mask = (torch.arange(tokens) < lengths).long()
        for dtype in values_dtypes:
            given = rewards, values.to(getattr(torch, dtype)), mask
            compared = Comparison(library, theirs(*given), ours(*given), tolerance=1e-5)
            assert compared.holds(), f"{library}, {answers} × {tokens}: {compared.largest_difference()}"
            clocks = {"before": Clock(Timer(partial(theirs, *given))), "after": Clock(Timer(partial(ours, *given)))}
            best = {f"{when}_seconds": min(samples) for when, samples in in_turn(clocks, SECONDS).items()}
            yield {"library": library, "answers": answers, "tokens": tokens, "values": dtype, **best}


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


if __name__ == "__main__":
    print_rows(
        {
            "verl": partial(measure, "verl", verl, ("float32", "bfloat16")),
            "openrlhf": partial(measure, "OpenRLHF", openrlhf, ("float32",)),
            "trl": partial(measure, "TRL", trl, ("float32",)),
        }
    )
