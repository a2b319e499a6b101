"""The messages of natural mistakes with arrays of torch and of JAX."""

import re

import pytest

import fastgae
from support import natural


def test_with_tensors():
    for given, advice in natural.in_torch(pytest.importorskip("torch")):
        with pytest.raises((TypeError, ValueError), match=re.escape(advice)):
            fastgae.gae(**given)


def test_in_programs_of_jax():
    jax = pytest.importorskip("jax")
    for function, advice in natural.in_jax(jax):
        with pytest.raises((TypeError, ValueError), match=re.escape(advice)):
            jax.jit(function)(jax.numpy.ones((4, 3)))
