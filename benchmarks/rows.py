"""What the yardstick measures: rollouts, the function that is called on each, and how fast each backend should be."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rollouts import make_rollout

BOTH, ADVANTAGES, FRESH = "both outputs", "advantages only", "fresh outputs"
# What a row is beyond the plain case: one flag, last_values, scalars.
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "next_values": {"bootstrap": "next_values"},
    "final_values": {"bootstrap": "final_values"},
    "mask": {"extras": ("mask",)},
    "gamma per step": {"extras": ("gamma",)},
    "V-trace": {"extras": ("ratios",), "function": "vtrace"},
    "normalize": {"options": {"normalize": "global"}},
    "packed": {"function": "gae_packed", "bootstrap": "cu_seqlens"},
}


@dataclass(frozen=True)
class Row:
    """One call to time, and its rollout. Sizes are T×N in either layout."""

    group: str
    steps: int
    envs: int
    goal: float | None = None  # of cpp, in np.add, or in cpp on the plain row
    numba_goal: float | None = None  # of numba, in cpp
    detail: str = ""
    function: str = "gae"  # of fastgae
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)  # its arguments that are no arrays
    env_major: bool = False
    outputs: str = BOTH
    bootstrap: str = "last_values"
    extras: Sequence[str] = ()  # its arguments that are arrays, beyond those of the plain case
    dtype: str = "float32"
    ends: float = 0.01
    two_threads: bool = False
    plain: "Row | None" = None  # timed in turn with this one, and what its goal speaks of
    quick: bool = True

    @property
    def label(self) -> str:
        return f"{self.steps}×{self.envs} {self.detail}".strip()

    @property
    def name(self) -> str:
        return f"{self.group}: {self.label}"

    def matches(self, text: str) -> bool:
        return text.replace("×", "x").lower() in self.name.replace("×", "x").lower()

    def arguments(self) -> dict[str, Any]:
        """What the function is called with, by name: new arrays, and the options."""
        rollout = make_rollout(
            self.steps,
            self.envs,
            env_major=self.env_major,
            dtype=self.dtype,
            bootstrap=self.bootstrap,
            ends=self.ends,
            extras=self.extras,
        )
        return {**rollout, **self.options}


def case(name: str, steps: int, envs: int, **settings: Any) -> Row:
    """A row of that case; packed sequences hold as many steps end to end. Its name says all that is not usual."""
    size = (steps * envs, 1) if name == "packed" else (steps, envs)
    unusual = ("env-major" if settings.get("env_major") else "", settings.get("dtype", ""), settings.get("outputs", ""))
    return Row(name, *size, detail=" ".join(filter(None, unusual)), **CASES[name], **settings)


def rows() -> list[Row]:
    memory, cache = [(1024, 16384), (16, 1048576), (128, 65536), (16384, 1024)], [(128, 1024), (2048, 64)]
    first = memory[0]
    env_major: dict[str, Any] = {"env_major": True, "outputs": ADVANTAGES}
    return [
        *(
            Row(
                "time-major, from memory",
                *size,
                goal=1.15 if size == first else 1.25,
                numba_goal=2,
                quick=size == first,
            )
            for size in memory
        ),
        *(Row("time-major, in cache", *size, goal=1.5, numba_goal=2) for size in cache),
        *(
            Row("env-major, in cache, advantages only", *size, goal=2, numba_goal=2, **env_major)
            for size in [*cache, (1024, 128), (64, 2048)]
        ),
        *(
            Row(
                "env-major, from memory, advantages only",
                *size,
                goal=1.5,
                numba_goal=2,
                quick=size == first,
                **env_major,
            )
            for size in memory
        ),
        *(
            Row("one trajectory, no episode ends", steps, 1, goal=2.5, ends=0, quick=steps < 100_000)
            for steps in (65536, 1048576)
        ),
        Row("small call", 128, 8, goal=5, detail="fresh outputs", outputs=FRESH),
        Row("small call", 128, 8, goal=5, detail="out="),
        *(
            Row("other input", *size, detail=detail, quick=size != first, **options)
            for size in (cache[0], first)
            for detail, options in (
                ("next_values, two flags", CASES["next_values"]),
                ("final_values, two flags", CASES["final_values"]),
                ("float64", {"dtype": "float64"}),
                ("env-major, both outputs", {"env_major": True}),
            )
        ),
        *(
            # At most twice the plain case for each byte that is moved.
            Row(
                f"options, {group}",
                *size,
                goal=round(2 * moved / 17, 2),
                plain=case("plain", *size),
                detail=detail,
                quick=size != first,
                **CASES[detail],
            )
            for group, size in (("in cache", cache[0]), ("from memory", first))
            for detail, moved in (("mask", 18), ("gamma per step", 17), ("V-trace", 21), ("normalize", 33))
        ),
        *(
            Row(
                "packed sequences",
                steps,
                1,
                goal=2,
                plain=case("plain", steps, 1),
                detail="of 256 steps",
                quick=steps < 100_000,
                **CASES["packed"],
            )
            for steps in (65536, 1048576)
        ),
        Row("few long trajectories", 65536, 4),
        Row("env-major, T no power of two, advantages only", 2000, 64, **env_major),
        Row("env-major, T no power of two, advantages only", 1000, 16384, quick=False, **env_major),
        *(
            Row("two threads", *first, detail=detail, two_threads=True, quick=False, env_major=detail == "env-major")
            for detail in ("time-major", "env-major")
        ),
    ]


class Goal(NamedTuple):
    """At most ``limit`` times what ``over`` takes: np.add, or another contender of the row."""

    limit: float
    over: str

    def __str__(self) -> str:
        return f"{self.limit:g} × {self.over}"


class Contender(NamedTuple):
    """A backend on a row: what it is asked for, and what it should reach."""

    name: str
    backend: str
    num_threads: int
    goal: Goal | None
    row: Row | None = None  # called in place of the row that it is measured with


def contenders(row: Row, backends: Sequence[str], num_threads: int) -> list[Contender]:
    if row.two_threads:
        # One thread of the same backend is what two are measured against; the reference has no threads.
        threaded = [name for name in backends if name != "numpy"]
        return [
            contender
            for name in threaded
            for contender in (
                Contender(f"{name}, 1 thread", name, 1, None),
                Contender(f"{name}, 2 threads", name, 2, Goal(1 / 1.6, f"{name}, 1 thread")),
            )
        ]
    plain = [
        Contender(f"{name}, plain", name, num_threads, None, row.plain)
        for name in backends
        if row.plain and is_cpp(name)
    ]
    return plain + [Contender(name, name, num_threads, goal_of(row, name, backends, num_threads)) for name in backends]


def is_cpp(backend: str) -> bool:
    return backend.partition(":")[0] == "cpp"


def goal_of(row: Row, name: str, backends: Sequence[str], num_threads: int) -> Goal | None:
    if num_threads == 1 and row.goal and is_cpp(name):
        return Goal(row.goal, f"{name}, plain" if row.plain else "np.add")
    if num_threads == 1 and row.numba_goal and name == "numba" and "cpp" in backends:
        return Goal(row.numba_goal, "cpp")
    return None
