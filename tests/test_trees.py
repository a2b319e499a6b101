"""Rollouts that branch: threads, and the line that sorts nodes; ``fuzz`` compares random trees with an oracle."""

from functools import partial

import numpy as np
import pytest

import fastgae
from fastgae._canonical import tree
from support.backends import BACKENDS, CPP, WITH_KERNELS
from support.cases import assert_same_bits


def forest(trees, nodes):
    """Return the parents of trees of so many nodes each, whose branches are a few nodes long."""
    rng, node = np.random.default_rng(0), np.arange(nodes)
    parents = np.maximum(node - 1 - rng.integers(0, 4, (trees, nodes)), np.minimum(node - 1, 0))
    return (parents + np.where(parents < 0, 0, nodes * np.arange(trees)[:, np.newaxis])).reshape(-1)


@pytest.mark.parametrize(
    "parents",
    [forest(trees=40, nodes=4000), np.arange(160_000) - 1, np.array([-1, -1, *range(159_998)])],
    ids=["many", "one", "alternating"],
)
def test_threads_take_whole_trees(parents):
    """One tree, and trees whose nodes alternate, cannot be cut. Each thread knows how many leaves come before it."""
    rewards, values = np.random.default_rng(1).normal(size=(2, len(parents))).astype(np.float32)
    leaves = np.setdiff1d(np.arange(len(parents)), parents)
    for options in ({"last_values": values[leaves]}, {"weights": "leaves", "mask": values < 1, "last_values": values}):
        call = partial(fastgae.gae_tree, rewards, values, parents, None, **options, gamma=0.99)
        assert_same_bits(call(num_threads=1), call(num_threads=3))


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_flag_of_a_node_that_does_not_exist_is_not_read(backend):
    call = partial(fastgae.gae_tree, np.ones(3), 0.0, [-1, 0, 1], mask=[1, 0, 1], gamma=0.5, backend=backend)
    assert_same_bits(call([0, 1, 1]), call([0, 0, 1]))
    with pytest.raises(ValueError, match="terminated is True at node 0, which has children"):
        call([1, 1, 1])


def test_lists_without_nodes_give_no_results():
    assert fastgae.gae_tree([], [], [], None, gamma=1.0).advantages.shape == (0,)
    with pytest.raises(ValueError, match=r"parents has shape \(0,\); expected rewards' shape, \(1,\)"):
        fastgae.gae_tree([1.0], [0.0], [], None, gamma=1.0)


def test_the_line_that_sorts_is_right():
    """Nodes in any order, sorted by the line of the error, are the same tree."""
    order, parents, rewards = np.array([3, 0, 4, 2, 1]), np.array([-1, 0, 1, 1, 0]), np.float32([0, 0, 1, 3, 5])
    shuffled = np.append(np.argsort(order), -1)[parents[order]]
    with pytest.raises(ValueError, match="must come before its children") as raised:
        fastgae.gae_tree(rewards[order], 0.0, shuffled, None, gamma=1.0)
    names = {"np": np, "parents": shuffled.tolist()}
    exec(str(raised.value).partition("sort the nodes: ")[2].partition(", and index")[0], names)
    given = rewards[order][names["order"]], 0.0, names["parents"], None
    got = fastgae.gae_tree(*given, gamma=1.0, gae_lambda=1.0)
    assert sorted(got.returns.tolist()) == [1, 2, 3, 3.5, 5]
    assert_same_bits(got.advantages, got.returns)


@pytest.mark.parametrize("backend", sorted({*WITH_KERNELS} - {*CPP}))
def test_another_thread_changes_parents(monkeypatch, backend):
    """What is computed is what was checked. NumPy checks every index, and C++ every parent, as it computes."""
    parents, ones = np.arange(5) - 1, np.ones(5)
    call = partial(fastgae.gae_tree, ones, ones, parents, None, last_values=0.0, gamma=1.0, backend=backend)
    expected, check = call(), tree._check_parents

    def changed(checked):
        check(checked)
        parents[:] = 2**40

    monkeypatch.setattr(tree, "_check_parents", changed)
    assert_same_bits(call(), expected)
