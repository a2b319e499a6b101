"""The bits that the reference gives, and one way to compute that must give them too."""

import contextlib
import hashlib
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

import fastgae

from .backends import no_short_cut
from .cases import Case, assert_same_bits
from .layouts import LAYOUTS, Layout, poisoned

_answers: dict[bytes, Any] = {}


def answer(function, **arguments):
    """Return the results of the numpy backend, which all others must equal. It is slow, so each is computed once."""
    key = hashlib.blake2b(f"{function.__module__}.{function.__qualname__}".encode(), digest_size=16)
    for name, given in arguments.items():
        is_array = isinstance(given, np.ndarray)
        key.update(f"{name} {given.dtype} {given.shape}".encode() if is_array else f"{name} {given!r}".encode())
        if is_array:
            key.update(given.tobytes())
    if key.digest() not in _answers:
        _answers[key.digest()] = function(**arguments, backend="numpy")
    return _answers[key.digest()]


def reference(case: Case):
    """Return the results for the plain arrays of a case."""
    return answer(fastgae.gae, **case.arguments())


def memory_order(array):
    """Return shape, dtype and strides, without the strides of axes of length 1, which mean nothing."""
    return array.shape, array.dtype, [s for s, n in zip(array.strides, array.shape, strict=True) if n > 1]


@dataclass(frozen=True)
class Variant:
    """One way to compute: a backend on a CPU target, a dtype and a layout."""

    backend: str
    dtype: np.dtype
    layout: Layout

    def run(self, case: Case, **options):
        """Return the results as (T, N), and the plain case that was computed. A warning is an error."""
        arguments, plain = self.layout.arguments(case)
        with unwritten(arguments):
            return self.results(arguments, **options), plain

    def results(self, arguments, **options):
        """Return the results of a call in this layout as (T, N). They lie in memory as rewards do."""
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            result = fastgae.gae(**arguments, backend=self.backend, **options)
        if "out" not in options and 0 not in arguments["rewards"].strides:
            like_rewards = memory_order(np.empty_like(arguments["rewards"], self.dtype))
            assert [memory_order(array) for array in result] == [like_rewards] * 2
        return tuple(None if a is None else self.layout.plain("advantages", a) for a in result)

    def check(self, case: Case, **options):
        """Assert the bits of the reference: in new memory, in out, and without any short cut."""
        arguments, plain = self.layout.arguments(case)
        out = tuple(poisoned(arguments["rewards"].shape, self.dtype) for _ in range(2))
        expected = reference(plain)
        with unwritten(arguments):
            got = {
                "fresh": self.results(arguments, **options),
                "in out": self.results(arguments, out=out, **options),
            }
            with no_short_cut(self.backend):
                got["the long way"] = self.results(arguments, **options)
        for what, pair in got.items():
            where = f"{self.layout.name} {plain.rewards.shape}, {what}:"
            assert_same_bits(pair[0], expected.advantages, f"advantages, {where}")
            assert_same_bits(pair[1], expected.returns, f"returns, {where}")
        return got["fresh"]


@contextlib.contextmanager
def unwritten(arguments):
    """Assert that no array among these arguments is written to."""
    arrays = {name: a for name, a in arguments.items() if isinstance(a, np.ndarray)}
    before = {name: a.tobytes() for name, a in arrays.items()}
    yield
    for name, a in arrays.items():
        assert a.tobytes() == before[name], f"{name} was written to"


def variants(backend, dtype):
    """Yield a backend in each layout."""
    for layout in LAYOUTS:
        yield Variant(backend, dtype, layout)
