"""Runs and tiles: the pieces in which kernels walk a rollout, so that the work on a piece stays in a first-level cache.

A run is what lies side by side in memory: envs of one step, or steps of one env. A tile holds the runs of LANES envs,
transposed, so that a recursion along time computes LANES envs at once.
"""

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from fastgae._backends.numba.language import element, restrict

LANES = 8  # envs side by side, as many as a vector has float32
# Elements. From memory, long runs of few pages win: env-major, 1024 x 16384 float32 runs at 0.22, 0.25, 0.35, 0.44 and
# 0.45 G steps/s with 64, 128, 256, 512 and 1024; in cache they are equal.
RUN = 512
LINE = RUN + LANES  # a run of steps, and behind it what follows its last step
TILE = LANES * LINE
# 4 tiles go through the recursion together. With fewer, LLVM unrolls it instead of vectorising it, and a step takes
# 0.45 ns instead of 0.13.
TILES = 4
GROUP = TILES * LANES  # envs
# Up to this many envs, one recursion after the other beats tiles that are mostly empty: it runs at 0.5 G steps/s, which
# tiles reach with 7 envs.
FEW = 6
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
def choose(size, gates, wanted, otherwise, chosen):
    """Write ``wanted`` where a gate is not 0, and ``otherwise`` elsewhere.

    Both are loaded before one is chosen, because LLVM vectorises only that.
    """
    restrict()
    for i in range(size):
        one, other = wanted[i], otherwise[i]
        chosen[i] = one if gates[i] != 0 else other


@intrinsic
def transpose(typing_context, source, first, stride, target, target_first, target_stride):
    """Transpose LANES x LANES elements in three rounds of shuffles, each of which is one instruction of AVX2.

    LLVM makes several times as many from plain loops: advantages of 1024 x 128 float32 took 121 us, and take 106.
    """
    # For each round: how far apart the two rows are that are shuffled together, how much further right the second
    # shuffle takes its lanes than the first, and the lanes of the first.
    rounds = (
        (1, 2, (0, 8, 1, 9, 4, 12, 5, 13)),
        (2, 2, (0, 1, 8, 9, 4, 5, 12, 13)),
        (4, 4, (0, 1, 2, 3, 8, 9, 10, 11)),
    )
    result = (0, 2, 1, 3, 4, 6, 5, 7)  # the order in which the rounds leave the rows

    def shuffle(context, builder, signature, arguments):
        source_at, source_from, source_stride, target_at, target_from, target_stride = arguments
        element = context.get_data_type(source.dtype)
        vector, alignment = ir.VectorType(element, LANES), context.get_abi_sizeof(element)

        def row(pointer, begin, stride, i):
            index = builder.add(begin, builder.mul(stride, stride.type(i)))
            return builder.bitcast(builder.gep(pointer, [index]), vector.as_pointer())

        rows = [builder.load(row(source_at, source_from, source_stride, i), align=alignment) for i in range(LANES)]
        for pair, further, half in rounds:
            for i in range(LANES):
                if not i & pair:
                    halves = (
                        ir.Constant(ir.VectorType(ir.IntType(32), LANES), [lane + right for lane in half])
                        for right in (0, further)
                    )
                    upper, lower = rows[i], rows[i + pair]
                    rows[i], rows[i + pair] = (builder.shuffle_vector(upper, lower, mask) for mask in halves)
        for i, vector_row in zip(result, rows, strict=True):
            builder.store(vector_row, row(target_at, target_from, target_stride, i), align=alignment)
        return context.get_dummy_value()

    return types.none(source, types.intp, types.intp, target, types.intp, types.intp), shuffle


@njit
def to_lanes(size, lines, tile):
    """Transpose LANES lines into a tile, in whole squares: LINE is a multiple of LANES.

    The last square also holds what lies behind the last step. No kernel reads that.
    """
    for t in range(0, size, LANES):
        transpose(lines, t, LINE, tile, t * LANES, LANES)


@njit
def from_lanes(size, tile, lines):
    """Transpose a tile into LANES lines, in whole squares."""
    for t in range(0, size, LANES):
        transpose(tile, t * LANES, LANES, lines, t, LINE)


@njit
def flags_to_lanes(size, lines, tile):
    """Transpose LANES lines of bytes into a tile; LLVM vectorises this loop well."""
    restrict()
    for t in range(size):
        for n in range(LANES):
            tile[t * LANES + n] = lines[n * LINE + t]


def chains(scanned):
    """Return the recursion y_t = scanned(x_t, decay_t, y_{t+1}, gate_t), in place, over TILES tiles and over one line.

    Row ``size`` of a tile and element ``size`` of a line hold the y that follows. ``decay`` may be one number for all.
    """

    @njit
    def chain(size, decay, gates, tiles):
        restrict()
        for t in range(size - 1, -1, -1):
            for n in range(LANES):
                for tile in range(TILES):
                    i = tile * TILE + t * LANES + n
                    tiles[i] = scanned(tiles[i], element(decay, i), tiles[i + LANES], gates[i])

    @njit
    def chain_of_one(size, decay, gates, line):
        following = line[size]
        for t in range(size - 1, -1, -1):
            following = scanned(line[t], element(decay, t), following, gates[t])
            line[t] = following

    return chain, chain_of_one
