"""The recursion on squares: LANES envs side by side, as many steps at a time as a vector has numbers.

LLVM vectorises no recursion by itself, so the vectors are explicit here, and as wide as the CPU has them.
"""

from llvmlite import binding, ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 16  # envs side by side; several vectors of them where a vector is narrower

_FEATURES = config.CPU_FEATURES or binding.get_host_cpu_features().flatten()
VECTOR_BYTES = 64 if "+avx512f" in _FEATURES else 32 if "+avx2" in _FEATURES else 16
CHUNK_BYTES = 16  # the parts of a vector within which an instruction interleaves numbers


def _rounds(size, chunk):
    """Yield the rounds that transpose a square: how far apart two rows are, and the lanes of their two shuffles.

    Shuffles interleave two rows within chunks, and beyond that they take every other chunk, because x86 has such
    instructions.
    """
    apart = 1
    while apart < size:
        if apart < chunk:
            starts = [start + group for start in range(0, size, chunk) for group in range(0, chunk // 2, apart)]
            halves = [
                [start + half + row + i for start in starts for row in (0, size) for i in range(apart)]
                for half in (0, chunk // 2)
            ]
        else:
            halves = [[i for i in range(2 * size) if i // chunk % 2 == odd] for odd in (0, 1)]
        yield apart, halves
        apart *= 2


def _shuffled(rows, chunk, shuffle):
    """Return the columns of a square, in the order in which the rounds leave them."""
    rows = list(rows)
    for apart, halves in _rounds(len(rows), chunk):
        for i in range(len(rows)):
            if not i & apart:
                pair = rows[i], rows[i + apart]
                rows[i], rows[i + apart] = (shuffle(*pair, half) for half in halves)
    return rows


def transposed(rows, chunk, shuffle):
    """Return the columns of a square of rows by ``shuffle(one, other, lanes)``."""
    labels = _shuffled(
        [range(len(rows))] * len(rows), chunk, lambda *given: [[*given[0], *given[1]][i] for i in given[2]]
    )
    columns = dict(zip((label[0] for label in labels), _shuffled(rows, chunk, shuffle), strict=True))
    return [columns[i] for i in range(len(rows))]


def _steps(number):
    """Return how many steps a square of these numbers has."""
    return VECTOR_BYTES * 8 // number.bitwidth


@intrinsic
def steps_of(typing_context, pointer):
    """Return how many steps a square has."""

    def constant(context, builder, signature, arguments):
        return context.get_constant(types.intp, _steps(pointer.dtype))

    return types.intp(pointer), constant


@intrinsic
def gates_to_bits(typing_context, gates, words):
    """Write the gates of one env in a square as the bits of one integer, as wide as a number."""

    def convert(context, builder, signature, arguments):
        number = words.dtype
        steps, word = _steps(number), ir.IntType(number.bitwidth)
        gate = ir.VectorType(ir.IntType(8), steps)
        loaded = builder.load(builder.bitcast(arguments[0], gate.as_pointer()), align=1)
        closed = builder.icmp_unsigned("!=", loaded, gate(None))
        bits = builder.zext(builder.bitcast(closed, ir.IntType(steps)), word)
        builder.store(bits, builder.bitcast(arguments[1], word.as_pointer()))
        return context.get_dummy_value()

    return types.none(gates, words), convert


@intrinsic
def scan(typing_context, lines, line, words, squares, decay, carried):
    """Compute y_t = x_t + decay y_{t+1} in place, or y_t = x_t where the gate is closed.

    The x of each env stand in a line of their own, ``line`` apart. ``carried`` holds the y_{t+1} of the last step, and
    then the y of the first. Envs of one square and another are independent, which hides how long each operation takes.
    """
    number = lines.dtype
    steps = _steps(number)
    groups = range(0, LANES, steps)

    def compute(context, builder, signature, arguments):
        lines, line, words, squares, decay, carried = arguments
        element, word = context.get_data_type(number), ir.VectorType(ir.IntType(number.bitwidth), steps)
        vector = ir.VectorType(element, steps)
        size = number.bitwidth // 8

        def place(pointer, index, kind=vector):
            return builder.bitcast(builder.gep(pointer, [index]), kind.as_pointer())

        def shuffle(one, other, lanes):
            return builder.shuffle_vector(one, other, ir.Constant(ir.VectorType(ir.IntType(32), steps), lanes))

        def repeated(scalar):
            first = builder.insert_element(vector(ir.Undefined), scalar, ir.IntType(32)(0))
            return shuffle(first, first, [0] * steps)

        index = line.type
        decays = repeated(decay)
        following = [
            cgutils.alloca_once_value(builder, builder.load(place(carried, index(first)), align=size))
            for first in groups
        ]
        with cgutils.for_range(builder, squares) as loop:
            square = builder.sub(builder.sub(squares, loop.index), index(1))
            start = builder.mul(square, index(steps))
            places = [place(lines, builder.add(start, builder.mul(line, index(lane)))) for lane in range(LANES)]
            rows = [builder.load(each, align=size) for each in places]
            bits = [
                builder.load(
                    place(words, builder.add(builder.mul(square, index(LANES)), index(first)), word), align=size
                )
                for first in groups
            ]
            columns = [transposed(rows[first : first + steps], CHUNK_BYTES // size, shuffle) for first in groups]
            y = [builder.load(each) for each in following]
            for t in reversed(range(steps)):
                bit = word([1 << t] * steps)
                for i in range(len(groups)):
                    x = columns[i][t]
                    closed = builder.icmp_unsigned("!=", builder.and_(bits[i], bit), word(None))
                    y[i] = columns[i][t] = builder.select(closed, x, builder.fadd(x, builder.fmul(decays, y[i])))
            for i in range(len(groups)):
                builder.store(y[i], following[i])
            results = [row for column in columns for row in transposed(column, CHUNK_BYTES // size, shuffle)]
            for result, each in zip(results, places, strict=True):
                builder.store(result, each, align=size)
        for i, first in enumerate(groups):
            builder.store(builder.load(following[i]), place(carried, index(first)), align=size)
        return context.get_dummy_value()

    return types.none(lines, types.intp, words, types.intp, number, carried), compute
