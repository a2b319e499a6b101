"""Each library as it is and with its hook of fastgae.compat: `pytest tests/peers`. Those not installed are skipped."""

import importlib
import warnings

import numpy as np
import pytest

from .compare import LIBRARIES, Comparison
from .lines import HOOKS


@pytest.mark.parametrize("library", LIBRARIES)
def test_hook(library, monkeypatch):
    compat = importlib.import_module(f"fastgae.compat.{library}")
    computed = []

    def counted(estimator):
        return lambda *given, **named: computed.append(1) or estimator(*given, **named)

    for name in {"gae", "reverse_scan", "discounted_returns"} & vars(compat).keys():
        monkeypatch.setattr(compat, name, counted(getattr(compat, name)))
    # What a library warns of is not ours to mend.
    with warnings.catch_warnings(action="ignore"):
        try:
            hooks = list(importlib.import_module(f".hook_{library}", __package__).hooks(np.random.default_rng(0)))
        except ImportError as missing:
            if missing.name is not None and missing.name.startswith("fastgae"):
                raise
            pytest.skip(f"{library} is not installed: {missing}")
        claimed = {each.library.lower().replace("-", "_"): each.tolerance for each in HOOKS}
        assert max(each.tolerance for each in hooks) == claimed[library]
        for hooked in hooks:
            before = hooked.before()
            assert not computed, f"{hooked.name}: fastgae computes it without the hook"
            with hooked.install():
                compared = Comparison(hooked.name, before, hooked.after(), hooked.tolerance)
            assert compared.holds(), f"{hooked.name}: differs by {compared.largest_difference()}"
            assert bool(computed) != hooked.declined, f"{hooked.name}: who computed it?"
            computed.clear()
