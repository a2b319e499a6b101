"""The tests that libraries publish pass with fastgae in place as they do without it: `pytest tests/suites`.

Libraries that are not installed are skipped, and those whose tests are in a repository that is not there.
"""

import pytest

from .libraries import LIBRARIES
from .run import compared


@pytest.mark.parametrize("name", LIBRARIES)
def test_the_same_tests_pass(name):
    try:
        before, after = compared(name)
    except ModuleNotFoundError as missing:
        pytest.skip(f"{name}: {missing}")
    assert before.passed
    assert after.passed == before.passed
    assert after.calls, "no test reached fastgae: it is not in place"
