"""Runs: the pieces in which kernels walk a rollout, so that the work on a piece stays in a first-level cache.

A run is contiguous in memory: envs of one step, or steps of one env.
"""

from numba import njit

from fastgae._backends.numba.language import element, restrict

# Elements. From memory, long runs of few pages win: env-major, 1024 x 16384 float32 runs at 0.22, 0.25, 0.35, 0.44 and
# 0.45 G steps/s with 64, 128, 256, 512 and 1024; in cache they are equal.
RUN = 512
LINE = RUN + 16  # a run of steps, and the number after the last one; not a power of two, because of cache sets
# Up to this many envs, one recursion after the other is used instead of squares that are mostly empty. Zen 5, whole
# calls of 8192 float32 steps per env, recursions and squares: 49 and 27 us for 2 envs with AVX-512, 32 and 35 with
# AVX2; 69 and 27 us for 3 envs with AVX-512, 42 and 37 with AVX2; with last_advantages, 113 and 77, 72 and 80.
FEW = 2
# Envs of one time-major sweep, so that a row finds the next row's results in the second-level cache. Plain
# 16 x 1M float32 takes 1.8 times as long as np.add with 4 K, 16 K or 64 K of them, and 2.5 times in whole rows.
SWEEP_ENVS = 16 * 1024


@njit
def fill(size, number, run):
    """Write one number to every element of a run."""
    for i in range(size):
        run[i] = number


@njit
def copy(size, source, target):
    """Copy a run."""
    restrict()
    for i in range(size):
        target[i] = source[i]


@njit
def add(size, one, other, total):
    """Add up two runs."""
    restrict()
    for i in range(size):
        total[i] = one[i] + other[i]


@njit
def choose(size, gates, wanted, otherwise, chosen):
    """Write ``wanted`` where a gate is not 0, and ``otherwise`` elsewhere.

    Both are loaded before one is chosen, because LLVM vectorises only that.
    """
    restrict()
    for i in range(size):
        one, other = wanted[i], otherwise[i]
        chosen[i] = one if gates[i] != 0 else other


def chain_of(scanned):
    """Return the recursion y_t = scanned(x_t, decay_t, y_{t+1}, gate_t) over one line, in place.

    Element ``size`` of the line holds the y that follows. ``decay`` may be one number for all.
    """

    @njit
    def chain(size, decay, gates, line):
        following = line[size]
        for t in range(size - 1, -1, -1):
            following = scanned(line[t], element(decay, t), following, gates[t])
            line[t] = following

    return chain
