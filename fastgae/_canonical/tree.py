"""Check trees of nodes."""

from typing import Any, get_args

import numpy as np

from fastgae._call import Array, Call
from fastgae._canonical.arguments import as_integers, as_word, check_shape, end_to_end, one_for_each, refuse_per_env
from fastgae._canonical.frame import Frame
from fastgae._canonical.packed import of_one_env
from fastgae._interop.arrays import OnDevice
from fastgae._interop.libraries import as_numbers
from fastgae._typing import TreeWeights

SORT = (
    "sort the nodes: import graphlib; parents = np.asarray(parents); "
    "above = {i: [each] if each >= 0 else [] for i, each in enumerate(parents.tolist())}; "
    "order = list(graphlib.TopologicalSorter(above).static_order()); "
    "parents = np.append(np.argsort(order), -1)[parents[order]], and index the other arrays by order"
)


def as_one_tree(given: Call) -> tuple[Call, dict[str, Any]]:
    """Return the unchecked call of one env, from a call with ``parents``, and what to replace after its checks."""
    refuse_per_env(given.normalize, "the nodes of trees")
    rewards = end_to_end(given.rewards, "all nodes of all trees")
    no_critic = type(given.values) in (int, float) and given.values == 0
    values = np.zeros(len(rewards), rewards.dtype) if no_critic else given.values
    rewards, values, last = of_one_env(rewards, values, given.last_values)
    frame = Frame("rewards", rewards.shape, 0)
    none = np.zeros(len(rewards), bool)
    terminated = none if given.terminated is None else frame.flags("terminated", given.terminated)
    call = given._replace(
        rewards=rewards, values=values, terminated=terminated, last_values=0.0, parents=None, weights=None
    )
    is_empty = isinstance(given.parents, list) and not given.parents  # NumPy makes floats of an empty list
    parents = np.zeros(0, np.intp) if is_empty else given.parents
    parents = as_integers("parents", parents, "integers, with -1 at a root")
    check_shape("parents", parents, rewards.shape, frame.like)
    weights = _read_weights(given.weights, len(rewards))
    if isinstance(rewards, OnDevice):  # JAX computes it, which sees the numbers later
        if last is not None and last.ndim > 1:
            raise ValueError(
                f"last_values has shape {last.shape}; expected one number, or one per node, {rewards.shape}, or one "
                "per leaf"
            )
        return call, {"last_values": last, "parents": parents, "weights": weights}
    parents = parents.copy()  # another thread may change the array between this check and the recursion
    _check_parents(parents)
    parents = parents.astype(np.intp, copy=False)  # as bincount takes them, which is narrower on a 32-bit system
    leaves = np.bincount(parents[parents >= 0], minlength=len(rewards)) == 0
    if given.mask is not None:  # the flag of a node that does not exist is not read
        terminated = terminated & frame.flags("mask", given.mask)
    if (wrong := np.flatnonzero(terminated & ~leaves)).size:
        raise ValueError(
            f"terminated is True at node {wrong[0]}, which has children: nothing follows a terminated node"
        )
    after = np.zeros(rewards.shape, rewards.dtype) if last is None else _after_leaves(last, leaves)
    if not isinstance(weights, str):
        _check_weights(weights, parents)
    return call._replace(terminated=terminated), {"last_values": after, "parents": parents, "weights": weights}


def _check_parents(parents: Array) -> None:
    """Check that each parent comes before its children."""
    nodes = len(parents)
    wrong = np.flatnonzero((parents < -1) | (parents >= nodes))
    if wrong.size:
        raise ValueError(
            f"parents must hold -1 at roots and indices of nodes, 0 to {nodes - 1}, got {parents[wrong[0]]} at node "
            f"{wrong[0]}"
        )
    late = np.flatnonzero(parents >= np.arange(nodes))
    if late.size:
        node = late[0]
        way = "pass -1 at a root" if parents[node] == node else SORT
        raise ValueError(
            f"parents has {parents[node]} at node {node}, and each parent must come before its children; {way}"
        )


def _after_leaves(last: Array, leaves: Array) -> Array:
    """Return V after each leaf, at its node; from one number, one for each leaf, or one for each node."""
    if last.shape == leaves.shape:
        return last
    after, count = np.zeros(leaves.shape, last.dtype), int(np.count_nonzero(leaves))
    after[leaves] = one_for_each("last_values", last, (count,), f"one per node, {leaves.shape}, or one per leaf")
    return after


def _read_weights(weights: Any, nodes: int) -> Array | str:
    """Return a word, or numbers in float64."""
    if isinstance(weights, str):
        return as_word("weights", weights, get_args(TreeWeights), {}, ", or an array with one number per node")
    numbers = as_numbers("weights", weights).astype(np.float64)
    check_shape("weights", numbers, (nodes,), "rewards' shape")
    return numbers


def _check_weights(numbers: Array, parents: Array) -> None:
    """Check that the weights give each node a share."""
    wrong = np.flatnonzero(~((numbers >= 0) & (numbers < np.inf)))
    if wrong.size:
        raise ValueError(f"weights must be finite and not negative, got {numbers[wrong[0]]} at node {wrong[0]}")
    children = np.flatnonzero(parents >= 0)
    totals = np.bincount(parents[children], numbers[children], len(parents))[parents[children]]
    for wrong, what in ((totals == 0, "are 0 at all"), (totals == np.inf, "are too large to add up at the")):
        if wrong.any():
            raise ValueError(f"weights {what} children of node {parents[children][wrong][0]}, so none has a share")
