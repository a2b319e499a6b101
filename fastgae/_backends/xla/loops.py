"""Loops over time, from the last step to the first: ``lax.scan``, or one kernel of Pallas on a GPU or a TPU.

A program of the kernel computes a block of envs. On a TPU it gets some steps at a time, and a result that nobody reads
keeps what they pass to the steps before them. ``lax.scan`` computes what a kernel cannot: derivatives, arrays that may
be spread over devices, programs that are stored, and, because a kernel counts in 32 bits, very large arrays.
"""

import contextlib
import functools
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir

from fastgae._interop.jax import numpys_promotion

UNROLLED = 16  # steps in one iteration of a loop, because each iteration costs a GPU or a TPU some microseconds
MOST = 2**31 - 1
# The envs of a program, the steps that it gets at a time, and the bytes that a number may have.
SIZES = {"cuda": (32, MOST, 8), "tpu": (128, 512, 4)}

Step = Callable[[Any, Any], tuple[Any, Any]]


def loop(step: Step, *given: Any) -> Any:
    """Return the rows that a step makes of its row and of what the next step passes. A single row is that of all."""
    return lax.platform_dependent(*given, **_loops(step, *given))


def _loops(step: Step, *given: Any) -> dict[str, Any]:
    """Return the loop of each platform. JAX traces and differentiates them all, so no two of them are the same."""
    scan = functools.partial(_scan, step, UNROLLED)
    loops = {"cpu": functools.partial(_scan, step, 1), "default": scan}
    steps, itemsize = max(map(len, given[1:])), max(each.dtype.itemsize for each in given)
    # Before JAX 0.8, Pallas was another one.
    if steps > UNROLLED and 0 < steps * given[0].size < MOST and jax.__version_info__ >= (0, 8):
        for platform, (*_, widest) in SIZES.items():
            if itemsize <= widest:
                loops[platform] = functools.partial(_kernel_or_scan, functools.partial(_kernel, step, platform), scan)
    return loops


def _scan(step: Step, unrolled: int, first: Any, *rows: Any) -> Any:
    return lax.scan(step, first, tuple(jnp.broadcast_arrays(*rows)), reverse=True, unroll=unrolled)[1]


def _kernel_or_scan(kernel: Any, scan: Any, *given: Any) -> Any:
    return _loop.bind(*given, kernel=kernel, scan=jax.make_jaxpr(scan)(*given))


def _kernel(step: Step, platform: str, first: Any, *rows: Any, interpret: bool = False) -> Any:
    from jax.experimental import pallas

    parameters = None
    if platform == "cuda":
        from jax.experimental.pallas import triton

        parameters = triton.CompilerParams(num_warps=1)
    (most_envs, most_steps, _), steps, envs = SIZES[platform], max(map(len, rows)), first.size
    lanes, length = min(most_envs, 1 << (envs - 1).bit_length()), min(most_steps, steps)
    blocks, turns = pallas.cdiv(envs, lanes), pallas.cdiv(steps, length)
    given = [jnp.pad(each.reshape(-1, envs), ((0, 0), (0, -envs % lanes))) for each in (first, *rows)]

    def program(first: Any, *refs: Any) -> None:
        *rows, results, passed = refs
        turn = pallas.program_id(1)

        def some(count: int, end: Any, carry: Any) -> Any:
            """Compute steps after all their numbers have been asked for."""
            asked = [tuple(row[0 if len(row) == 1 else end - 1 - i] for row in rows) for i in range(count)]
            for i, row in enumerate(asked):
                carry, results[end - 1 - i] = step(carry, row)
            return carry

        end = jnp.minimum(length, steps - (turns - 1 - turn) * length).astype(np.int32)
        whole, carry = lax.div(end, np.int32(UNROLLED)), jnp.where(turn == 0, first[0], passed[0])
        carry = lax.fori_loop(np.int32(0), whole, lambda k, carry: some(UNROLLED, end - k * UNROLLED, carry), carry)
        left = end - whole * UNROLLED
        passed[0] = lax.fori_loop(np.int32(0), left, lambda k, carry: some(1, left - k, carry), carry)

    of_turn = pallas.BlockSpec((length, lanes), lambda block, turn: (turns - 1 - turn, block))
    of_all = pallas.BlockSpec((1, lanes), lambda block, turn: (np.int32(0), block))
    results, _ = pallas.pallas_call(
        program,
        out_shape=[jax.eval_shape(lambda n=n: jnp.broadcast_to(given[0], (n, blocks * lanes))) for n in (steps, 1)],
        grid=(blocks, turns),
        in_specs=[of_all if len(each) == 1 else of_turn for each in given],
        out_specs=[of_turn, of_all],
        compiler_params=parameters,
        interpret=interpret,
    )(*given)
    return results[:, :envs].reshape(steps, *first.shape)


# A loop of which only its lowering knows whether a kernel can compute it. `kernel` is a function that is traced there,
# because that takes most of the time of a trace, and a program for a CPU needs no kernel.


def _lowered(context: Any, *given: Any, kernel: Callable[..., Any], scan: Any) -> Any:
    module = context.module_context
    devices, mesh = module.axis_context, getattr(module.axis_context, "mesh", None)
    spread = getattr(devices, "num_devices", 0) != 1 if mesh is None else {*mesh.axis_names} - {*devices.manual_axes}
    chosen = scan
    with warnings.catch_warnings():  # of Pallas for Triton, since JAX 0.11
        warnings.simplefilter("ignore", DeprecationWarning)
        if not (spread or module.lowering_parameters.for_export):
            shapes = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in context.avals_in]
            # JAX 0.12 says that its Pallas of Triton will be removed.
            with contextlib.suppress(ImportError), numpys_promotion():
                chosen = jax.make_jaxpr(kernel)(*shapes)
        return mlir.lower_fun(jaxpr_as_fun(chosen), multiple_results=True)(context, *given)


def _batched(given: Any, axes: Any, kernel: Callable[..., Any], scan: Any) -> Any:
    over_batch = jax.make_jaxpr(jax.vmap(lambda *given: jaxpr_as_fun(scan)(*given)[0], axes))(*given)
    return _loop.bind(*given, kernel=jax.vmap(kernel, axes), scan=over_batch), 0


def _moved(given: Any, tangents: Any, kernel: Callable[..., Any], scan: Any) -> Any:
    moves = {k: tangent for k, tangent in enumerate(tangents) if not isinstance(tangent, ad.Zero)}
    still, moved = dict(enumerate(given)), {k: given[k] for k in moves}
    return jax.jvp(lambda moved: jaxpr_as_fun(scan)(*(still | moved).values())[0], (moved,), (moves,))


_loop = Primitive("fastgae_loop")
_loop.def_abstract_eval(lambda *given, kernel, scan: scan.out_avals[0])
mlir.register_lowering(_loop, _lowered)
batching.primitive_batchers[_loop] = _batched
ad.primitive_jvps[_loop] = _moved
