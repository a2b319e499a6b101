"""The recursion over the nodes of trees, in Numba; fastgae/_equation/trees.py describes its arguments."""


def tree_scan(first, last, parents, shares, terms, decay, gate, exists, follows, sums, y):
    """Compute the nodes from ``first`` to before ``last``, from the last; ``y`` is filled, too."""
    for node in range(last - 1, first - 1, -1):
        y[node] = terms[node] + decay[node] * sums[node] if gate[node] and follows[node] else terms[node]
        if exists is not None and not exists[node]:
            y[node] = sums[node]
        else:
            follows[node] = True
        if parents[node] >= 0 and follows[node]:
            sums[parents[node]] += shares[node] * y[node]
            follows[parents[node]] = True
