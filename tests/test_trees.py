"""Advantages on rollouts that branch: right by chains and by hand; ``fuzz`` compares random trees with an oracle."""

import re

import numpy as np
import pytest

import fastgae
from support.cases import assert_same_bits

PARENTS = np.array([-1, 0, 1, 1, 0])
REWARDS = np.array([0, 0, 1, 3, 5], np.float32)
VALUES = np.array([3.0, 2.5, 1.5, 2.0, 4.0], np.float32)


def forest(trees, nodes, seed=0):
    """Return the parents of trees of so many nodes each, whose branches are a few nodes long."""
    rng, node = np.random.default_rng(seed), np.arange(nodes)
    parents = np.maximum(node - 1 - rng.integers(0, 4, (trees, nodes)), np.minimum(node - 1, 0))
    return (parents + np.where(parents < 0, 0, nodes * np.arange(trees)[:, np.newaxis])).reshape(-1)


def numbers(size, dtype=np.float32, seed=1):
    return np.random.default_rng(seed).normal(size=(2, size)).astype(dtype)


@pytest.mark.parametrize(
    ("weights", "returns"),
    [("children", [3.5, 2, 1, 3, 5]), ("leaves", [3, 2, 1, 3, 5]), (np.array([0, 3, 1, 0, 1]), [2, 1, 1, 3, 5])],
)
def test_children_count_by_their_weights(backend, weights, returns):
    got = fastgae.gae_tree(REWARDS, 0.0, PARENTS, None, weights=weights, gamma=1.0, gae_lambda=1.0, backend=backend)
    np.testing.assert_allclose(got.returns, returns, rtol=1e-6)
    assert_same_bits(got.advantages, got.returns)


@pytest.mark.parametrize(
    "parents",
    [forest(trees=40, nodes=4000), np.arange(160_000) - 1, np.array([-1, -1, *range(159_998)])],
    ids=["many", "one", "alternating"],
)
def test_threads_take_whole_trees(parents):
    """One tree, and trees whose nodes alternate, cannot be cut. Each thread knows how many leaves come before it."""
    rewards, values = numbers(len(parents))
    leaves = np.setdiff1d(np.arange(len(parents)), parents)
    for options in ({"last_values": values[leaves]}, {"weights": "leaves", "mask": values < 1, "last_values": values}):
        calls = [
            fastgae.gae_tree(rewards, values, parents, None, **options, gamma=0.99, num_threads=threads)
            for threads in (1, 3)
        ]
        assert_same_bits(*calls)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"parents": [-1, 0, 3, 1, 0]}, "parents has 3 at node 2, and each parent must come before its children; sort"),
        ({"parents": [-1, 0, 5, 1, 0]}, "indices of nodes, 0 to 4, got 5 at node 2"),
        ({"parents": [-1, 0, -2, 1, 0]}, "got -2 at node 2"),
        ({"terminated": [0, 1, 0, 0, 0]}, "terminated is True at node 1, which has children"),
        ({"weights": [1, 1, 0, 0, 1]}, "weights are 0 at all children of node 1"),
        ({"weights": [1, 1e308, 1, 1, 1e308]}, "weights are too large to add up at the children of node 0"),
        ({"weights": [1, 1, -1, 0, 1]}, "weights must be finite and not negative, got -1.0 at node 2"),
        ({"weights": "visits"}, "weights must be 'children' or 'leaves', or an array with one number per node"),
        ({"last_values": [1.0, 2.0]}, "last_values has shape (2,)"),
        ({"normalize": "per_env"}, 'normalize must be "global" or None: the nodes of trees are not envs'),
    ],
)
def test_errors_name_the_node(backend, changed, message):
    given = {"rewards": REWARDS, "values": VALUES, "parents": PARENTS, "terminated": None, "gamma": 0.9}
    with pytest.raises(ValueError, match=re.escape(message)):
        fastgae.gae_tree(**given | changed, backend=backend)


def test_the_line_that_sorts_is_right():
    """Nodes in any order, sorted by the line of the error, are the same tree."""
    order = np.array([3, 0, 4, 2, 1])
    shuffled = np.append(np.argsort(order), -1)[PARENTS[order]]
    with pytest.raises(ValueError, match="must come before its children") as raised:
        fastgae.gae_tree(REWARDS[order], 0.0, shuffled, None, gamma=1.0)
    names = {"np": np, "parents": shuffled}
    exec(str(raised.value).partition("sort the nodes: ")[2].partition(", and index")[0], names)
    got = fastgae.gae_tree(
        REWARDS[order][names["order"]], 0.0, names["parents"], None, gamma=1.0, gae_lambda=1.0
    ).returns
    assert sorted(got.tolist()) == [1, 2, 3, 3.5, 5]
