"""The contract of a backend: a module with the functions of ``Backend``, and perhaps a short cut.

If a backend cannot run, importing it raises: ModuleNotFoundError if its optional module is not installed, and any other
exception if something is broken. A backend may define ``FORK_WAITS_FOR``: locks that a fork waits for, because the
child could never take them if another thread held them.
"""

from collections.abc import Callable
from typing import Any, Protocol, get_args

from fastgae._call import Array, Call, GAEResult
from fastgae._typing import BackendName

CPU_TARGETS = tuple(name.removeprefix("cpp:") for name in get_args(BackendName) if name.startswith("cpp:"))

# ``short_cut(call, num_threads, target)`` computes a call, a tuple in the order of ``Call``, directly from the caller's
# arguments. If anything is unusual, it writes nothing and returns None. num_threads 0: usable_cpus().
ShortCut = Callable[[tuple[Any, ...], int, str | None], GAEResult | None]


class AnyBackend(Protocol):
    """What every backend has."""

    __name__: str

    @property
    def RECURSIONS(self) -> tuple[str, ...]:  # noqa: N802
        """The recursions that ``gae`` computes, "gae" among them."""

    def version(self) -> str:
        """Return what the backend is built on, for people to read."""


class Backend(AnyBackend, Protocol):
    """The functions of every backend of the CPU. ``short_cut`` is optional and therefore not listed."""

    def targets(self) -> tuple[str, ...]:
        """Return the CPU targets that this machine can run, best first; empty if the backend has none."""

    def gae(self, call: Call, num_threads: int, target: str | None) -> object:
        """Fill ``out`` of a call as ``in_one_layout`` makes it; ``target`` is one of ``targets()``, None if empty."""

    def block_sums(
        self, matrix: Array, mask: Array | None, center: Array | None, num_threads: int, target: str | None
    ) -> Array:
        """Return (blocks, N) float64 sums of x, or of (x - center)^2, each over MOMENT_STEPS steps in order of time.

        Only the steps in the mask count.
        """

    def rescale(
        self, matrix: Array, mask: Array | None, center: Array, scale: Array, num_threads: int, target: str | None
    ) -> None:
        """Compute x = (x - center) scale for the steps in the mask, in float64 and in place. The others are 0."""

    def exact_sums(self, matrix: Array, mask: Array | None) -> tuple[Array, tuple[int, int, int, int]]:
        """Return (exponents, digits) int64 sums of the digits of the numbers in the mask (_equation/exact_sums.py).

        The second result has the counts of all these numbers, of NaN, of +infinity and of -infinity.
        """


class DeviceBackend(AnyBackend, Protocol):
    """The functions of a backend of ``OnDevice`` arrays: triton and xla. autograd needs only ``takes`` and ``gae``.

    A call with a recursion that is not in ``RECURSIONS`` is refused.
    """

    def takes(self, array: Any) -> bool:
        """Return whether the backend reaches the memory of an array."""

    def gae(self, call: Call) -> GAEResult:
        """Compute a checked call whose arrays are ``OnDevice``, or plan it. None stands for ABSENT."""

    def normalized(self, call: Call, moments: tuple[Any, Any] | None) -> Any:
        """Return the rewards of a checked call, shifted and scaled by their own or by given moments."""

    def steps_without_resets(self, terminated: Any, truncated: Any, prev_done: Any, time_axis: int) -> Any:
        """Return where a step exists: the step before it ended no episode."""


class BackendUnavailableError(RuntimeError):
    """The chosen backend cannot run here; the cause is chained."""
