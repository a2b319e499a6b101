"""Nothing reads memory that was freed: here glibc fills it with other bytes as soon as it is."""

import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
RUN = "import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="MALLOC_PERTURB_ is of glibc")
def test_nothing_is_read_after_it_was_freed(python):
    chosen = [*(str(TESTS / name) for name in ("test_large.py", "test_tokens.py")), "-k", "many or tokens"]
    assert " passed" in python(RUN, "-q", "-p", "no:cacheprovider", *chosen, MALLOC_PERTURB_="85").splitlines()[-1]
