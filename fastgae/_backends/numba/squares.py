"""The recursion on squares: LANES envs side by side, as many steps at a time as a vector has numbers.

LLVM does not vectorise a recursion, so this file uses explicit vectors, as wide as the CPU's.
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
    """Write the gates of one env in a square as one integer, as wide as a number.

    Its lowest bits tell where a gate is not 0, the bits after those where it is 2 or more.
    """

    def convert(context, builder, signature, arguments):
        number = words.dtype
        steps, word = _steps(number), ir.IntType(number.bitwidth)
        gate = ir.VectorType(ir.IntType(8), steps)
        loaded = builder.load(builder.bitcast(arguments[0], gate.as_pointer()), align=1)

        def bits(operator, other):
            found = builder.icmp_unsigned(operator, loaded, gate([other] * steps))
            return builder.zext(builder.bitcast(found, ir.IntType(steps)), word)

        both = builder.or_(bits("!=", 0), builder.shl(bits(">=", 2), word(steps)))
        builder.store(both, builder.bitcast(arguments[1], word.as_pointer()))
        return context.get_dummy_value()

    return types.none(gates, words), convert


@intrinsic
def scan(typing_context, lines, line, words, squares, decay, carried):
    """Compute y_t = x_t + decay y_{t+1} in place, or y_t = x_t where a gate is not 0.

    The x of each env stand in a line of their own, ``line`` elements apart. So do the decays, whose gates of 2 or more
    skip a step: y_t = y_{t+1}. One decay for all steps may be given instead, and then no step is skipped. ``carried``
    holds the y that follows the last step of each env, and then the y of the first step.
    """
    number = lines.dtype
    steps, size = _steps(number), number.bitwidth // 8
    groups = [slice(first, first + steps) for first in range(0, LANES, steps)]  # the envs of one vector
    per_step = isinstance(decay, types.CPointer)

    def compute(context, builder, signature, arguments):
        lines, line, words, squares, decay, carried = arguments
        vector = ir.VectorType(context.get_data_type(number), steps)
        word = ir.VectorType(ir.IntType(number.bitwidth), steps)
        index = line.type

        def place(pointer, offset, kind=vector):
            return builder.bitcast(builder.gep(pointer, [offset]), kind.as_pointer())

        def shuffle(one, other, lanes):
            return builder.shuffle_vector(one, other, ir.Constant(ir.VectorType(ir.IntType(32), steps), lanes))

        def columns(places):
            rows = [builder.load(each, align=size) for each in places]
            return [transposed(rows[group], CHUNK_BYTES // size, shuffle) for group in groups]

        def is_set(bits, bit):
            return builder.icmp_unsigned("!=", builder.and_(bits, word([1 << bit] * steps)), word(None))

        if not per_step:
            first = builder.insert_element(vector(ir.Undefined), decay, ir.IntType(32)(0))
            repeated = shuffle(first, first, [0] * steps)
        handed_on = [place(carried, index(group.start)) for group in groups]
        following = [cgutils.alloca_once_value(builder, builder.load(each, align=size)) for each in handed_on]
        with cgutils.for_range(builder, squares) as loop:
            square = builder.sub(builder.sub(squares, loop.index), index(1))
            start = builder.mul(square, index(steps))
            offsets = [builder.add(start, builder.mul(line, index(lane))) for lane in range(LANES)]
            y = columns([place(lines, offset) for offset in offsets])
            decays = columns([place(decay, offset) for offset in offsets]) if per_step else [[repeated] * steps] * LANES
            first_word = builder.mul(square, index(LANES))
            bits = [
                builder.load(place(words, builder.add(first_word, index(group.start)), word), align=size)
                for group in groups
            ]
            next_y = [builder.load(each) for each in following]
            for t in reversed(range(steps)):
                for i in range(len(groups)):
                    x = y[i][t]
                    traced = builder.fadd(x, builder.fmul(decays[i][t], next_y[i]))
                    result = builder.select(is_set(bits[i], t), x, traced)
                    if per_step:
                        result = builder.select(is_set(bits[i], steps + t), next_y[i], result)
                    y[i][t] = next_y[i] = result
            rows = [row for square in y for row in transposed(square, CHUNK_BYTES // size, shuffle)]
            for row, offset in zip(rows, offsets, strict=True):
                builder.store(row, place(lines, offset), align=size)
            for each, number_after in zip(following, next_y, strict=True):
                builder.store(number_after, each)
        for each, last in zip(handed_on, following, strict=True):
            builder.store(builder.load(last), each, align=size)
        return context.get_dummy_value()

    return types.none(lines, types.intp, words, types.intp, decay, carried), compute
