"""GAE of nodes of trees: the equation of arrays, whose recursions are scans over the nodes, from the last.

Every parent comes before its children, so a tree is complete before the node that it hangs on.
"""

from collections.abc import Callable
from typing import Any

from fastgae._call import Call
from fastgae._equation import arrays as equation

# tree_scan(parents, shares, terms, decay, gate, exists, follows, sums), where all but ``exists`` are arrays of one
# element per node, returns y and the sums. It may overwrite follows and sums. For each node, from the last:
#   y = terms, or terms + decay sums where gate and follows are set; or, at a node that does not exist, sums
#   follows |= exists; and if follows: sums and follows of the parent get share y and True
# None for ``exists``: all nodes do. Every product and sum is rounded on its own.
TreeScan = Callable[..., tuple[Any, Any]]


class Trees(equation.Library):
    """Nodes in place of steps: after a node come its children, and what counts is the sum of their shares.

    NumPy's way, and with ``Arrays`` of ``_backends/xla.py``, JAX's.
    """

    def __init__(self, call: Call, tree_scan: TreeScan):
        super().__init__(call.rewards, 0)
        self.parents, self.tree_scan = self.array(call.parents), tree_scan
        nodes, xp = self.parents.shape[0], self.xp
        self.none, zeros, ones = xp.zeros(nodes, bool), self.wide(xp.zeros(nodes)), self.wide(xp.ones(nodes))

        def totals_of(weights: Any) -> Any:
            """Return the sum of the weights of the children of each node."""
            return self._scan(ones, weights, ones, self.none, None, ~self.none, zeros)[1]

        totals = children = totals_of(ones)
        self.leaves, weights = children == 0, ones
        if not isinstance(call.weights, str):
            weights = self.wide(self.array(call.weights))
            totals = totals_of(weights)
        elif call.weights == "leaves":  # one at a leaf, and elsewhere the sum of those of the children
            weights, totals = self._scan(ones, self.wide(self.leaves), ones, ~self.none, None, self.none, zeros)
        self.shares = (weights / xp.where(self.parents >= 0, totals[self.parents], 1.0)).astype(self.dtype)
        self.nothing = -xp.zeros_like(self.shares)  # to which a number can be added without a change, -0.0 too
        self.after = xp.where(self.leaves, self.after_leaves(call), self.nothing)

    def after_leaves(self, call: Call) -> Any:
        """Return V after each leaf, at its node."""
        return call.last_values

    def envs(self, given: Any, like: Any, dtype: Any = None) -> Any:
        """Return V after the leaves as it is, because ``after_leaves`` reads it."""
        return given

    def next_existing(self, rows: Any, last: Any, exists: Any) -> Any:
        """Return V' of each node. A node that does not exist hands on its own V'."""
        _, sums = self._scan(self.shares, rows, rows, self.none, exists, ~self.none, self.after)
        return sums.reshape(rows.shape)

    def scan(self, terms: Any, decay: Any, gate: Any, exists: Any, last: Any) -> Any:
        """Return y_i = plus(gate_i, x_i, decay_i, sum of share_c y_c). A node that does not exist hands on its sum."""
        decay, gate = (self.xp.array(self.xp.broadcast_to(each, terms.shape)) for each in (decay, gate))
        return self._scan(self.shares, terms, decay, gate, exists, self.none, self.nothing)[0].reshape(terms.shape)

    def _scan(self, *each: Any) -> tuple[Any, Any]:
        flat: list[Any] = [None if given is None else given.reshape(-1) for given in each]
        flat[-2:] = (array.copy() for array in flat[-2:])  # the only ones that may be overwritten
        return self.tree_scan(self.parents, *flat)
