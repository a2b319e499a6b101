"""GAE of nodes of trees: the equation of arrays, whose two recursions are scans over the nodes, from the last.

Every parent comes before its children, so a tree is complete before the node that it hangs on. Trees that lie side by
side are computed by threads.
"""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from fastgae._call import Array, Call
from fastgae._equation import arrays as equation

# tree_scan(parents, shares, terms, decay, gate, exists, follows, sums, y), where all but ``exists`` are arrays of one
# element per node, computes for each node, from the last:
#   y = terms, or terms + decay sums where gate and follows are set; or, at a node that does not exist, sums
#   follows |= exists; and if follows: sums and follows of the parent get share y and True
# None for ``exists``: all nodes do. Every product and sum is rounded on its own.
TreeScan = Callable[..., object]

NODES_PER_THREAD = 32_768  # which take a millisecond, many times longer than a thread takes to start


def gae(call: Call, tree_scan: TreeScan, num_threads: int) -> None:
    """Fill ``out``."""
    nodes, spans = len(call.parents), _spans(call.parents, num_threads)
    per_node = {
        name: each for name, each in call._asdict().items() if isinstance(each, np.ndarray) and len(each) == nodes
    }

    def compute(span: slice) -> None:
        part = call._replace(**{name: given[span] for name, given in per_node.items()})
        part = part._replace(parents=np.maximum(part.parents - span.start, -1))
        with np.errstate(all="ignore"):  # NaN and infinity are data here
            results = equation.gae(Trees(part, tree_scan), equation.given_only(part._replace(final_values=None)))
        for output, result in zip(call.out, results, strict=True):
            if output is not None:
                output[span] = result

    if len(spans) == 1:
        compute(spans[0])
        return
    from concurrent.futures import ThreadPoolExecutor  # the import takes as long as a small call

    with ThreadPoolExecutor(len(spans)) as threads:
        for _ in threads.map(compute, spans):  # raises what a thread has raised
            pass


def _spans(parents: Array, num_threads: int) -> list[slice]:
    """Return the nodes of each thread: whole trees, and no other node between them."""
    nodes = len(parents)
    spans = min(num_threads, nodes // NODES_PER_THREAD)
    if spans < 2:
        return [slice(0, nodes)]
    before = np.where(parents < 0, nodes, parents)
    lowest = np.minimum.accumulate(before[::-1])[::-1]  # the parents of this node and of all after it
    borders = np.flatnonzero((parents < 0) & (lowest >= np.arange(nodes)))
    places = np.searchsorted(borders, np.arange(1, spans) * (nodes // spans))
    cuts = sorted({0, *borders[places[places < len(borders)]].tolist(), nodes})
    return [slice(begin, end) for begin, end in itertools.pairwise(cuts)]


class Trees(equation.Library):
    """Nodes in place of steps: after a node come its children, and what counts is the sum of their shares."""

    def __init__(self, call: Call, tree_scan: TreeScan):
        super().__init__(call.rewards, 0)
        self.parents, self.after, self.tree_scan = call.parents, call.final_values, tree_scan
        self.shares = self._shares(call.weights).astype(self.dtype)

    def _shares(self, weights: Any) -> Array:
        """Return the weight of each node over the weights of its siblings and itself, in float64."""
        nodes, has_parent = len(self.parents), self.parents >= 0
        ones, closed = np.ones(nodes), np.zeros(nodes, bool)
        if isinstance(weights, str):
            word, weights = weights, ones
            if word == "leaves":  # one at a leaf, and elsewhere the sum of those of the children
                leaves = np.bincount(self.parents[has_parent], minlength=nodes) == 0
                weights = self._scan(ones, leaves * 1.0, ones, ~closed, None, closed.copy(), np.zeros(nodes))
        totals = np.zeros(nodes)
        self._scan(ones, weights, ones, closed, None, ~closed, totals)
        shares: Array = weights / np.where(has_parent, totals[self.parents], 1.0)
        return shares

    def next_existing(self, rows: Any, last: Any, exists: Any) -> Any:
        """Return V' of each node. A node that does not exist hands on its own V'."""
        closed, sums = np.zeros(rows.shape, bool), self.after.copy()
        self._scan(self.shares, rows, rows, closed, exists, ~closed, sums)
        return sums

    def scan(self, terms: Any, decay: Any, gate: Any, exists: Any, last: Any) -> Any:
        """Return y_i = plus(gate_i, x_i, decay_i, sum of share_c y_c). A node that does not exist hands on its sum."""
        decay, gate = (np.array(np.broadcast_to(each, terms.shape)) for each in (decay, gate))
        nothing = -np.zeros_like(terms)  # to which a number can be added without a change, -0.0 too
        return self._scan(self.shares, terms, decay, gate, exists, np.zeros(terms.shape, bool), nothing)

    def _scan(self, *each: Any) -> Any:
        y = np.empty_like(each[1])
        self.tree_scan(self.parents, *(None if given is None else given.reshape(-1) for given in (*each, y)))
        return y
