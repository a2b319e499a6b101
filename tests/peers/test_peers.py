"""Each peer's own function beside that of fastgae.compat: `pytest tests/peers`. Peers not installed are skipped."""

import warnings
from importlib.metadata import PackageNotFoundError
from operator import attrgetter

import numpy as np
import pytest

from fastgae import compat
from speed.figures import tokens

from .table import PAGE, PEERS, load, of_peer, table


@pytest.mark.parametrize("name", PEERS)
def test_peer(name):
    # What a peer warns of is not ours to mend.
    with warnings.catch_warnings(action="ignore"):
        try:
            peer = load(name)
        except (PackageNotFoundError, ModuleNotFoundError) as missing:
            if missing.name is not None and missing.name.startswith("fastgae"):
                raise
            pytest.skip(f"{name} is not installed: {missing}")
        compared = list(peer.comparisons(np.random.default_rng(0)))
    assert compared
    for comparison in compared:
        for theirs, ours in zip(comparison.theirs, comparison.ours, strict=True):
            assert np.shape(theirs) == np.shape(ours), comparison.name
        assert comparison.holds(), f"{comparison.name}: differs by {comparison.largest_difference()}"
    rows = of_peer(peer, compared)
    assert all(callable(attrgetter(ours.strip("`"))(compat)) for _, _, ours, _ in rows)
    assert table("", rows).split("\n", 2)[2] in PAGE.read_text(encoding="utf-8"), "run python -m peers.table"


@pytest.mark.parametrize("library", tokens.LIBRARIES)
def test_trainers_that_are_timed_agree(library, monkeypatch):
    """Measuring compares their results."""
    monkeypatch.setattr(tokens, "ANSWERS", [(3, 8)])
    monkeypatch.setattr(tokens, "SECONDS", 1e-3)
    try:
        rows = list(tokens.LIBRARIES[library]())
    except PackageNotFoundError as missing:
        pytest.skip(f"{library} is not installed: {missing}")
    assert {row["library"].lower() for row in rows} == {library}
