"""The recursion over the nodes of trees, in Numba."""

from typing import Any

import numpy as np
from numba import njit


@njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def tree_scan(
    parents: Any, shares: Any, terms: Any, decay: Any, gate: Any, exists: Any, follows: Any, sums: Any
) -> Any:
    y = np.empty_like(terms)
    for node in range(len(parents) - 1, -1, -1):
        y[node] = terms[node] + decay[node] * sums[node] if gate[node] and follows[node] else terms[node]
        if exists is not None and not exists[node]:
            y[node] = sums[node]
        else:
            follows[node] = True
        if parents[node] >= 0 and follows[node]:
            sums[parents[node]] += shares[node] * y[node]
            follows[parents[node]] = True
    return y, sums
