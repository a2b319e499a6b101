"""The corpus of ``identify``: loops as people write them, each in its smallest form, and what must be said of them."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any, NamedTuple

GIVEN = "gamma=gamma, gae_lambda=gae_lambda"
LAST = "last_values=last_values"
GAE = f"fastgae.gae(rewards, values, terminated, {LAST}, {GIVEN})"
LONGER = f"fastgae.gae(rewards, values, terminated, {GIVEN})"  # values have T + 1 rows
NO_LAST = f"fastgae.gae(rewards, values, terminated, last_values=0.0, {GIVEN})"
TOKENS = f"fastgae.gae(rewards, values, terminated=None, last_values=0.0, {GIVEN}, time_axis=1)"
BOTH = ("advantages", "returns")
BESSEL = "normalised advantages (mean 0, Bessel's std 1)"


class Loop(NamedTuple):
    """A function, and the call, the outputs and the findings that ``identify`` must name. No call: unknown."""

    function: Callable[..., Any]
    call: str
    outputs: tuple[str, ...]
    findings: list[str]
    names: dict[str, str | None] | None


class Corpus(dict[str, Loop]):
    """Loops by name."""

    def says(
        self, call: str, outputs: tuple[str, ...] | str = "advantages", findings: str = "", **names: str | None
    ) -> Any:
        """Add a function, and what must be said of it."""

        def add(function: Callable[..., Any]) -> Callable[..., Any]:
            told = (outputs,) if isinstance(outputs, str) else outputs
            self[function.__name__] = Loop(function, call, told, findings.split(), names or None)
            return function

        return add


def later(array, last):
    """Return an array or a tensor from its second row on, and then a last row."""
    result = deepcopy(array)
    result[:-1], result[-1] = array[1:], last
    return result


def swept(deltas, going_on, decay):
    """Return the sums along time that most loops have in common, of arrays or tensors."""
    sums, total = 0 * deltas, 0.0
    for t in reversed(range(len(deltas))):
        sums[t] = total = deltas[t] + decay * going_on[t] * total
    return sums
