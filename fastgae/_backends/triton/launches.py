"""The only place that starts kernels."""

from typing import Any

# One warp per program spreads the envs of a usual rollout, some thousand, over all multiprocessors.
LANES = 32
# Steps that a program loads before it computes them. Of a tile, each lane reads whole lines of float32.
STEPS, TILE_STEPS = 16, 32


def blocks_of(count: int, size: int) -> int:
    """Return how many blocks of ``size`` items are needed for ``count`` items."""
    return -(-count // size)


def launch(kernel: Any, grid: tuple[int, ...], *given: Any, **constants: Any) -> None:
    """Start a kernel. Fusing a product and a sum is forbidden, because each must be rounded on its own."""
    kernel[grid](*given, **constants, num_warps=1, enable_fp_fusion=False)
