"""What identify says of the loops of the corpus that are written in torch and JAX."""

from loops import in_jax, in_torch
from test_loops import check


def test_loops_in_torch():
    check(in_torch.corpus)


def test_loops_in_jax():
    check(in_jax.corpus)
