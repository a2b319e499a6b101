"""How large rollouts scale with threads: one, two, four … up to the CPUs that this process may use."""

from collections.abc import Callable

from calls import runs_here, thread_counts
from rows import Contender, Row, case

ROWS = [case("plain", *size, env_major=env_major) for size in ((1024, 4096), (65536, 4)) for env_major in (False, True)]
CONTENDERS = thread_counts(runs_here())


def test_threads(bench: Callable[[Row, Contender], None], row: Row, contender: Contender) -> None:
    bench(row, contender)
