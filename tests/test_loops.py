"""What identify says of the corpus of loops: those in NumPy here, and those of torch and JAX in ``tensors``."""

import pytest

from fastgae.testing import identify
from loops import environments, tokens

LINES, COLUMNS = 40, 100  # of one screen


def check(corpus):
    for name, loop in corpus.items():
        found = identify(loop.function, names=loop.names)
        assert sorted(finding.detector for finding in found.findings) == sorted(loop.findings), f"{name}: {found}"
        assert found.known, f"{name}: {found}"
        assert found.call == loop.call or not loop.call, f"{name}: {found}"
        assert tuple(found.outputs.values()) == loop.outputs, f"{name}: {found}"
        assert found.error < 1e-5, f"{name}: {found}"
        lines = str(found).splitlines()
        assert len(lines) <= LINES, f"{name}: {found}"
        assert max(map(len, lines)) <= COLUMNS, f"{name}: {found}"
        assert loop.function.__name__ in found._repr_html_() if hasattr(loop.function, "__name__") else True


@pytest.mark.parametrize("corpus", [environments.corpus, tokens.corpus], ids=["environments", "tokens"])
def test_loops_in_numpy(corpus):
    check(corpus)
