"""Lengths of episodes: exact, wherever the rows are cut and in whichever order the parts are joined."""

import json
from dataclasses import asdict
from functools import reduce
from itertools import pairwise
from operator import add

import numpy as np
import pytest

from fastgae.data.lengths import Lengths


def counted(last):
    """Return how many episodes there are of each length, by the definition."""
    lengths = [np.diff(np.append(-1, np.flatnonzero(env))) for env in last.reshape(len(last), -1).T]
    return np.unique(np.concatenate(lengths), return_counts=True)


@pytest.mark.parametrize("shape", [(1,), (1, 3), (60,), (60, 1), (60, 4)])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.3, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_parts_in_any_order(shape, share, seed):
    rng = np.random.default_rng(seed)
    last = rng.random(shape) < share
    last[-1] = True
    cuts = sorted(rng.choice(np.arange(1, shape[0]), min(7, shape[0] - 1), replace=False).tolist())
    parts = [Lengths.of(last[begin:end]) for begin, end in pairwise([0, *cuts, shape[0]])]
    forwards = reduce(add, parts)
    backwards = reduce(lambda later, earlier: earlier + later, reversed(parts))
    assert forwards == backwards == Lengths.of(last) == Lengths() + forwards + Lengths()
    assert Lengths.from_dict(json.loads(json.dumps(asdict(forwards)))) == forwards
    for got, expected in zip(forwards.whole(), counted(last), strict=True):
        assert np.array_equal(got, expected)
