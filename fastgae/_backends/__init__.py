"""One module per backend, all with the same names.

``version() -> str``
    What the backend is built on, for people to read.
``targets() -> tuple[str, ...]``
    The CPU targets this machine can run, best first; empty where the backend has no variants.
``gae(rollout, num_threads, target) -> None``
    Fill ``rollout.advantages`` and ``rollout.returns``; ``target`` is one of ``targets()`` or None for the best.
``gae_plain(...) -> GAEResult | None``
    A short cut for plain arrays, from the caller's arguments to the result, or None: take the long way.
``gae_optional(...) -> GAEResult | None``
    The same for a call with options.
``block_sums(matrix, mask, center, num_threads, target) -> (blocks, N) float64``
    Sums of x, or of (x - center)^2, over each BLOCK steps that exist, in the order of time.
``rescale(matrix, mask, center, scale, num_threads, target) -> None``
    x = (x - center) scale, in float64 and in place, of the steps that exist.

``FORK_WAITS_FOR``, if there is one
    Locks that a fork must not find held by another thread.

Importing a backend module raises where the backend cannot run: ModuleNotFoundError for the optional module that is not
installed, any other exception where something is broken.
"""

# The CPU targets of the compiled backend in order of preference. It may have been built with fewer.
CPU_TARGETS = ("avx512", "avx2", "baseline")


class BackendUnavailableError(RuntimeError):
    """The backend that was asked for cannot run here; its cause is chained."""
