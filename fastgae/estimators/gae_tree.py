"""GAE on rollouts that branch."""

from __future__ import annotations

from typing import Never, Unpack

from fastgae._call import GAEResult
from fastgae._engine.declared import estimator
from fastgae._engine.run import run
from fastgae._typing import ArrayLike, ArrayT, BackendName, Misnamed, Normalize, Numbers, Output, TreeWeights


@estimator(in_torch=False)
def gae_tree(
    rewards: ArrayT | Numbers,
    values: ArrayLike,
    parents: ArrayLike,
    terminated: ArrayLike | None,
    *unnamed: Never,
    last_values: ArrayLike | None = None,
    weights: TreeWeights | ArrayLike = "children",
    mask: ArrayLike | None = None,
    gamma: float | ArrayLike,
    gae_lambda: float | ArrayLike = 0.95,
    returns_lambda: float | ArrayLike | None = None,
    normalize: Normalize | None = None,
    out: Output[ArrayT] | None = None,
    num_threads: int | None = None,
    backend: BackendName | None = None,
    **misnamed: Unpack[Misnamed],
) -> GAEResult[ArrayT]:
    r"""Compute advantages and value targets of rollouts that branch, such as retries, sub-agents and tree search.

    ::

        V'_i = sum over children c of share_c V_c         at a leaf: the value after it, 0 where it terminated
        A_i  = ((r_i + gamma V'_i) - V_i) + gamma lambda (sum over children c of share_c A_c)
        R_i  = A_i + V_i

    A node is a token, a step or a turn. ``share_c`` is the weight of a child over the weights of all children of its
    parent: one division in float64, rounded once. Sums begin with the last child, and every product and sum is rounded
    on its own. So a tree without branches has the bits of ``gae_packed``.

    Parameters
    ----------
    rewards : array of shape (n,)
        Reward of each node. Libraries and dtypes as in ``gae``.
    values : array of shape (n,), or 0.0
        V before each node. 0.0: there is no critic, and then ``returns`` are the discounted returns of the tree.
    parents : integer array of shape (n,)
        The index of each node's parent, -1 at a root. Every parent comes before its children. There may be many roots.
    terminated : array of shape (n,), or None; bool, or numbers that are 0 or 1
        The episode ended for good with this leaf. None: with no leaf.
    last_values : array of shape (leaves,) or (n,), or one number, optional
        V after each leaf, in the order of the leaves; of an array of one per node, only the leaves are read. None: 0,
        because every branch ends for good.
    weights : "children", "leaves", or an array of shape (n,)
        How much each node counts among its siblings: as much as any other, by the number of leaves below it, or by
        these numbers, such as visits.
    mask : array of shape (n,), optional
        False: the node does not exist. It hands on to its parent what it gets from its children, times its own share; a
        leaf, the value after it. Its flag is not read.
    gamma, gae_lambda, returns_lambda : float in [0, 1], or arrays of shape (n,)
        As in ``gae``. ``gamma`` has no default. Arrays let turns and tokens discount differently.
    normalize : str, optional
        "global", as in ``gae``: over all nodes that exist.
    out, num_threads, backend
        As in ``gae``.

    Returns
    -------
    GAEResult
        ``(advantages, returns)``, arrays of shape (n,) in the working dtype, in the units of the rewards.

    Raises
    ------
    ValueError
        As ``gae``; a parent is no node, or does not come before its child; a terminated node has children; weights are
        negative, or 0 at all children of a node.
    TypeError, BackendUnavailableError
        As ``gae``.

    Examples
    --------
    >>> import numpy as np, fastgae
    >>> rewards = np.array([0, 0, 1, 3, 5], np.float32)  # node 0 has the children 1 and 4, and node 1 has 2 and 3
    >>> fastgae.gae_tree(rewards, 0.0, [-1, 0, 1, 1, 0], None, gamma=1.0, gae_lambda=1.0).returns
    array([3.5, 2. , 1. , 3. , 5. ], dtype=float32)
    """
    call = (
        rewards, values, terminated, None, last_values, None, None, None, None, mask, gamma, gae_lambda, 0, out,
        normalize, None, returns_lambda, False, False, None, None, "tree", None, parents, weights,
    )  # fmt: skip
    return run(gae_tree, call, backend, num_threads, True, unnamed, misnamed)
