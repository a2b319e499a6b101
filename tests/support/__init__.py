"""What the tests share: cases, layouts, options, oracles, backends and tables of calls."""

import pytest

# These compare for the tests: a failing assertion in them shows both sides.
pytest.register_assert_rewrite(*(f"{__name__}.{module}" for module in ("cases", "exactness", "kinds", "trajectories")))
