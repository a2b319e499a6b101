"""fastgae.testing names the convention of libraries' own functions whose names of arguments no hook checks.

Of other libraries, test_peers.py compares the numbers, and tests/test_readings.py identifies the functions of compat.
"""

import importlib
import warnings

import pytest

from fastgae.testing import identify
from support.identified import PEERS

THEIRS = {
    "brax": ("brax.training.agents.ppo.losses", "compute_gae"),
    "rlax": ("rlax", "truncated_generalized_advantage_estimation"),
    "rlax lambda_returns": ("rlax", "lambda_returns"),
}


@pytest.mark.parametrize("name", THEIRS)
def test_their_own_function(name):
    peer, (module, function) = PEERS[name], THEIRS[name]
    with warnings.catch_warnings(action="ignore"):
        try:
            theirs = getattr(importlib.import_module(module), function)
        except ModuleNotFoundError as missing:
            pytest.skip(f"{name} is not installed: {missing}")
        found = identify(peer.adapted(theirs), names=peer.names)
    assert [finding.detector for finding in found.findings] == peer.findings.split()
    assert found.call == peer.call
    assert [*found.outputs.values()] == peer.outputs
    assert found.error < 1e-5
