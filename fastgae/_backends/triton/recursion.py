"""The arguments of the recursion's kernel, and into which pieces envs are cut."""

import functools
import math
from typing import Any, NamedTuple

import torch
import triton.language as tl

from fastgae._backends.triton.kernels import n_step, recursion
from fastgae._backends.triton.kernels.step import FIRST_COEFFICIENT, FIRST_FLAG, How, Inputs
from fastgae._backends.triton.kernels.views import Rows
from fastgae._backends.triton.matrices import Matrices
from fastgae._backends.triton.plan import INTERPRETED, Strided, blocks_of
from fastgae._call import CONSTANTS, ROLES, Call, Role

REAL = {torch.float32: tl.float32, torch.float64: tl.float64}
# One warp per program spreads the envs of a usual rollout, some thousand, over all multiprocessors.
LANES = 64 if torch.version.hip else 32
STEPS = 16  # of a turn
FEWER_STEPS, FEWEST_STEPS = 8, 4  # of a turn of which each step has many numbers
HEAD = 16  # where a multiple of so many steps begins, 16 bytes of any dtype can be read at once
# How many turns are under way: one is computed, and the numbers of the others have been asked for. Measured on an H200.
STAGES, FEWER_STAGES = 4, 3
# What the kernels read of the arguments as it is, and what they read unless it is one number.
PER_STEP = [each for each in Inputs._fields if ROLES.get(each) in (Role.STEPS, Role.STEP_FLAGS) and each != "mask"]
COEFFICIENTS = Inputs._fields[FIRST_COEFFICIENT.value :]
SEQUENCE_STEPS = 1024  # of a packed sequence, stored at once

# After WARM_UP times as many steps as the decay takes to lose all bits of a number, the rounded recursion has forgotten
# where it began: of a million pieces of random numbers in float32, 20 had not after 1.6, and 2 after 1.7.
WARM_UP = 1.7
BITS = {torch.float32: 24, torch.float64: 53}
LANES_OF_A_MULTIPROCESSOR = 128  # one warp for each of its four schedulers
SHORTEST_PIECE = 256
# Warps of the program that mends an env, and the pieces that it compares at once: of an env of few pieces, and of many.
FEW_PIECES, MANY_PIECES = (1, 128), (8, 8192)
WORTHWHILE = 0.6  # the largest share of an env's steps that a lane may compute with its warm-up

# Where gamma lambda is 1, nothing is forgotten: lanes so few for each multiprocessor, and so long, compute in stages.
MOST_STAGED, STAGED_STEPS = 16, 1024
STAGED_PIECE = 128  # a multiple of HEAD: the last piece in time must have a step that exists


class Cut(NamedTuple):
    """How many pieces an env has, how many steps a piece has, and how many steps its warm-up has."""

    pieces: int
    piece: int
    warm: int


def cut(matrices: Matrices, decay: float, turn: int) -> Cut:
    """Return pieces of whole turns that keep the GPU busy, or one piece where cutting does not pay."""
    steps, uncut = matrices.steps, Cut(1, matrices.steps, 0)
    if not 0.0 <= decay < 1.0:
        return uncut
    forgotten = WARM_UP * BITS[matrices.dtype] * math.log(2) / -math.log(decay) if decay else 1.0
    warm = blocks_of(math.ceil(forgotten), turn) * turn
    lanes = _multiprocessors(matrices.plan.device) * LANES_OF_A_MULTIPROCESSOR
    piece = max(SHORTEST_PIECE, warm // 2, blocks_of(steps, max(1, lanes // matrices.envs)))
    piece = blocks_of(piece, turn) * turn
    aligned = blocks_of(steps, HEAD) * HEAD
    return Cut(blocks_of(aligned - warm, piece), piece, warm) if piece + warm <= WORTHWHILE * steps else uncut


@functools.cache
def _multiprocessors(device: torch.device) -> int:
    return 132 if INTERPRETED else torch.cuda.get_device_properties(device).multi_processor_count


def walk(call: Call, matrices: Matrices, mask: Any, exists: Any, advantages: Any, returns: Any) -> None:
    """Plan the recursion of ``gae``, or of an estimator whose recursion differs."""
    kind = call.recursion
    if kind == "gae":
        kind = "tail_normalized" if call.tail_normalized else "gae" if call.ratios is None else "vtrace"
    values, last_values, last_value = _values_of(call, matrices)
    last_advantages, last_advantage = matrices.of_envs(call.last_advantages)
    per_step = {name: matrices.of_steps(getattr(call, name)) for name in PER_STEP}
    coefficients = {name: matrices.of_coefficients(getattr(call, name)) for name in COEFFICIENTS}
    views = {name: view for name, (view, _) in coefficients.items()}
    gamma, gae_lambda, returns_lambda = (number for _, number in coefficients.values())
    inputs = Inputs(**per_step, **views, value=values, mask=mask, exists=exists)
    boundaries, lanes = (), matrices.envs
    if call.cu_seqlens is not None:
        boundaries, _ = matrices.of_envs(call.cu_seqlens)
        lanes = len(call.cu_seqlens) - 1
        inputs = _in_sequences(call, matrices, inputs, lanes, (boundaries, last_values), last_value)
        last_values = ()
    if call.values is None and call.next_values is not None:  # of rewards alone, A after the last step is V'
        last_advantages = _last_next_values(call, matrices)
        inputs = inputs._replace(final_values=inputs.next_values if inputs.truncated else (), next_values=())
    if kind == "n_step_returns":
        size = matrices.steps, matrices.envs, call.n, last_value, gamma
        programs = blocks_of(matrices.envs, LANES) * matrices.steps
        arguments = inputs._replace(exists=exists or mask), (last_values, returns), *size
        matrices.plan.launch(n_step.n_step_returns, programs, arguments, (REAL[matrices.dtype], LANES))
        return
    one_lambda = call.returns_lambda is None
    steps = _steps_of_a_turn(inputs, matrices)
    closes = bool(inputs.last) or kind == "upgo"
    kept = True, not one_lambda, bool(mask), closes, kind == "tail_normalized", kind == "retrace"
    how = How(
        kind,
        bool(call.rewards.dtype.type(call.leaky or 0.0)),
        gamma == gae_lambda == 1.0 and kind != "retrace",
        not one_lambda,
        call.carry_over,
        "sequence" if boundaries else "env",
        REAL[matrices.dtype],
        LANES,
        steps,
        min(steps, FEWER_STEPS),
        HEAD,
        STAGES,
        sum(needed << k for k, needed in enumerate(kept)),
    )
    constants = (0.0 if each is None else each for each in (getattr(call, name) for name in CONSTANTS))  # -0.0 stays
    numbers = last_value, last_advantage, gamma, gae_lambda, returns_lambda, *constants

    def launch(how: How, lanes: int, pieces: Cut, *views: Any, warps: int = 1) -> None:
        arguments = *views, matrices.steps, matrices.envs, *pieces, *numbers
        launched = (How(*map(tl.constexpr, how)),)
        matrices.plan.launch(recursion.recursion, blocks_of(lanes, how.lanes), arguments, launched, warps=warps)

    whole = Cut(lanes, matrices.steps, 0)
    decay = gae_lambda if kind == "tail_normalized" else gamma * max(gae_lambda, returns_lambda)
    pieces = whole if any(views.values()) else cut(matrices, decay, max(steps, HEAD))
    ends, outputs, unkept = (last_values, last_advantages, boundaries), (advantages, returns), ((), ())
    sums_deltas = how.undiscounted and kind == "gae" and one_lambda and bool(values) and not (mask or exists)
    few = lanes <= MOST_STAGED * _multiprocessors(matrices.plan.device)
    if pieces.warm:
        lanes = matrices.envs * pieces.pieces
        states = tuple(Rows(matrices.plan.scratch(len(kept) * lanes, torch.float64), lanes, 1) for _ in range(2))
        launch(how._replace(lane="piece"), lanes, pieces, inputs, ends, outputs, states)
        warps, compared = FEW_PIECES if pieces.pieces <= 4 * FEW_PIECES[1] else MANY_PIECES
        mend = how._replace(lane="piece", mend=True, steps=how.tail, compared=compared)
        launch(mend, matrices.envs * LANES, pieces, inputs, ends, outputs, states, warps=warps)
    elif sums_deltas and few and matrices.steps * matrices.envs >= STAGED_STEPS * lanes:
        # Only the sum of the deltas depends on the order of time. All multiprocessors compute what is before and after.
        sums = advantages or matrices.view(matrices.new(matrices.dtype))
        gated = inputs.terminated or inputs.truncated  # a packed sequence is a lane, which begins with A = 0
        summed = Inputs(sums, terminated=matrices.view(matrices.new(torch.uint8)) if gated else ())
        deltas = Cut(blocks_of(matrices.steps + HEAD - 1, STAGED_PIECE), STAGED_PIECE, 0)
        how = how._replace(stages=FEWER_STAGES)
        everywhere = how._replace(kind="deltas", lane="piece")
        launch(everywhere, matrices.envs * deltas.pieces, deltas, inputs, ends, (sums, summed.terminated), unkept)
        in_order = how._replace(steps=2 * _steps_of_a_turn(summed, matrices))
        launch(in_order, lanes, whole, summed, ((), *ends[1:]), (sums, ()), unkept)
        if returns:
            terms = map(matrices.strided, (returns, sums, values))
            matrices.plan.call(lambda out, *both: torch.add(*both, out=out), *terms)
    else:
        launch(how, lanes, whole, inputs, ends, outputs, unkept)


def _values_of(call: Call, matrices: Matrices) -> tuple[Any, Any, float]:
    """Return V of all steps, and V after the last step: of each env, or one number for all."""
    if call.values is None:
        return (), (), 0.0
    values, last = matrices.matrix(call.values), matrices.of_envs(call.last_values)
    if values.shape[0] > matrices.steps:
        last = matrices.row(values), 0.0
    return matrices.view(values), *last


def _last_next_values(call: Call, matrices: Matrices) -> Rows:
    """Return V' of the last step that exists, of each env."""
    next_values = matrices.matrix(call.next_values)
    if call.mask is None:
        return matrices.row(next_values)

    def fill(out: torch.Tensor, given: torch.Tensor, mask: torch.Tensor) -> None:
        steps = torch.arange(len(mask), device=mask.device).unsqueeze(1)
        torch.gather(given, 0, (steps * (mask != 0)).argmax(0, keepdim=True), out=out)

    envs = matrices.envs
    last = Strided(matrices.plan.scratch(envs, next_values.memory.dtype), (1, envs), (envs, 1))
    matrices.plan.call(fill, last, next_values, matrices.matrix(call.mask))
    return matrices.row(last)


def _steps_of_a_turn(inputs: Inputs, matrices: Matrices) -> int:
    """Return how many steps a turn has, so that its numbers fit into the registers of a lane."""
    size, flags, coefficients = matrices.dtype.itemsize // 4, FIRST_FLAG.value, FIRST_COEFFICIENT.value
    words = sum(size if k < flags else 1 if k < coefficients else 2 for k, view in enumerate(inputs) if view)
    return STEPS if words <= 5 else FEWER_STEPS if words <= 10 else FEWEST_STEPS


def _in_sequences(
    call: Call, matrices: Matrices, inputs: Inputs, sequences: int, views: tuple[Any, ...], last_value: float
) -> Inputs:
    """Plan for each step of packed sequences whether it is the last one, V after it, and its coefficients."""
    last = matrices.view(matrices.new(torch.uint8))
    final_values = () if call.last_values is None else matrices.view(matrices.new(matrices.dtype))
    coefficients = {
        name: matrices.view(matrices.new(torch.float64))
        for name in COEFFICIENTS
        if getattr(getattr(call, name), "ndim", 0) > matrices.rewards.ndim
    }
    given = tuple(getattr(inputs, name) for name in coefficients)
    arguments = views, given, (last, final_values), tuple(coefficients.values()), matrices.steps, last_value
    constants = REAL[matrices.dtype], SEQUENCE_STEPS
    matrices.plan.launch(recursion.sequence_steps, sequences, arguments, constants, warps=4)
    return inputs._replace(last=last, final_values=final_values, **coefficients)
