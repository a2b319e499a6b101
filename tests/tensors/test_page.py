"""The snippets of docs/tensors.md, which need torch and JAX."""

import warnings

import pytest

from test_docs import TENSORS, run, snippets

pytest.importorskip("torch")
pytest.importorskip("jax")


@pytest.mark.parametrize(("page", "preamble", "code", "line"), snippets([TENSORS]))
def test_snippet(page, preamble, code, line):
    with warnings.catch_warnings(action="ignore"):  # what torch's compiler warns of is not ours to mend
        run(page, preamble, code, line)
