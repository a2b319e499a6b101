"""A line of the gate's report, and the files of numbers that were accepted."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
ADVICE = """\
The change, or this CPU? `python benchmarks ab main HEAD` times both commits here; it also sees losses of some percent,
which this gate leaves to it. Where the loss is the price of the change, or lies in this kind of CPU:
`python benchmarks gate CHECK --accept`, and say why in the commit."""


class Line(NamedTuple):
    what: str
    said: str
    red: bool = False

    def __str__(self) -> str:
        return f"{'RED' if self.red else 'ok ':4}{self.what}: {self.said}"


def left_out(what: str, why: object) -> Line:
    """Return the line of something that cannot be measured here, which is red where nobody would read it."""
    return Line(what, f"not measured: {why}", red=bool(os.environ.get("CI")))


def judged(lines: Iterable[Line]) -> int:
    """Print every line, and the red ones again at the end; return the exit status, which is 1 if there is no line."""
    every = []
    for line in lines:
        print(line, flush=True)
        every.append(line)
    red = [line for line in every if line.red]
    print("", *red, f"{len(red)} of {len(every)} red", *[ADVICE] * bool(red), sep="\n")
    return int(bool(red) or not every)


def read(name: str) -> dict[str, Any]:
    file = HERE / f"{name}.json"
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else {}


def write(name: str, accepted: Mapping[str, Any]) -> Iterator[str]:
    """Write the numbers; yield each that changed."""
    before = dict(_flat(read(name)))
    text = json.dumps(accepted, indent=1, ensure_ascii=False, sort_keys=True)
    (HERE / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    for what, number in _flat(accepted):
        if before.get(what) != number:
            yield f"{what}: {before.get(what)} -> {number}"


def _flat(numbers: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, float]]:
    for name, each in numbers.items():
        if isinstance(each, dict):
            yield from _flat(each, f"{above}{name}, ")
        else:
            yield above + name, each
