"""The reference: the equations with the operations of NumPy, each rounded on its own."""

import numpy as np

from fastgae._call import MOMENT_STEPS, Array, Call
from fastgae._equation import arrays as equation
from fastgae._equation.exact_sums import sums_by_numpy
from fastgae._equation.trees import Trees

RECURSIONS = equation.RECURSIONS
exact_sums = sums_by_numpy


def version() -> str:
    return f"numpy {np.__version__}"


def targets() -> tuple[str, ...]:
    return ()


def gae(call: Call, num_threads: int, target: str | None) -> None:
    """Fill ``out``."""
    with np.errstate(all="ignore"):  # NaN and infinity are data here
        equation.fill(Trees(call, tree_scan) if call.recursion == "tree" else equation.Library(call.rewards, 0), call)


def tree_scan(
    parents: Array,
    shares: Array,
    terms: Array,
    decay: Array,
    gate: Array,
    exists: Array | None,
    follows: Array,
    sums: Array,
) -> tuple[Array, Array]:
    """Compute level by level, from the deepest. ``np.add.at`` adds in the order of its indices: the last node first."""
    y, depths = np.empty_like(terms), [0] * len(parents)
    for node, parent in enumerate(parents.tolist()):
        depths[node] = depths[parent] + 1 if parent >= 0 else 0
    order = np.argsort(-np.array(depths[::-1]), kind="stable")
    nodes_of = np.split(len(depths) - 1 - order, np.cumsum(np.bincount(depths)[::-1])[:-1])
    for nodes in nodes_of:
        goes_on = gate[nodes] & follows[nodes]
        y[nodes] = terms[nodes]
        y[nodes[goes_on]] += (decay[nodes] * sums[nodes])[goes_on]
        if exists is not None:
            y[nodes] = np.where(exists[nodes], y[nodes], sums[nodes])
            follows[nodes] |= exists[nodes]
        else:
            follows[nodes] = True
        handed = nodes[(parents[nodes] >= 0) & follows[nodes]]
        np.add.at(sums, parents[handed], shares[handed] * y[handed])
        follows[parents[handed]] = True
    return y, sums


def block_sums(matrix: Array, mask: Array | None, center: Array | None, num_threads: int, target: str | None) -> Array:
    """Sum x, or (x - center)^2, over each MOMENT_STEPS steps."""
    steps, envs = matrix.shape
    sums = np.zeros((-(-steps // MOMENT_STEPS), envs))
    for i in range(min(MOMENT_STEPS, steps)):
        terms = matrix[i::MOMENT_STEPS].astype(np.float64)
        if center is not None:
            terms -= center
            terms *= terms
        total = sums[: len(terms)]
        np.add(total, terms, out=total, where=True if mask is None else mask[i::MOMENT_STEPS])
    return sums


def rescale(
    matrix: Array, mask: Array | None, center: Array, scale: Array, num_threads: int, target: str | None
) -> None:
    """Compute x = (x - center) scale in place."""
    with np.errstate(all="ignore"):  # NaN and infinity are data here
        scaled = (matrix.astype(np.float64) - center) * scale
        np.copyto(matrix, scaled, casting="same_kind", where=True if mask is None else mask)
