"""Threads change nothing: however many, from several Python threads at once, and after fork."""

import threading
from itertools import product

import numpy as np
import pytest

import fastgae
from support.backends import WITH_KERNELS
from support.cases import LARGE_SIZES, THREADS_SIZE, assert_same_bits

NUM_THREADS = [1, 2, 3, 7]


@pytest.mark.parametrize(("size", "dtype"), [(THREADS_SIZE, np.float32), (LARGE_SIZES[1], np.float64)], ids=str)
def test_any_number_of_threads(dtype, size, large):
    case, expected = large(size, np.dtype(dtype))
    for backend, num_threads in product(WITH_KERNELS, [*NUM_THREADS, 1000]):
        got = fastgae.gae(**case.arguments(), backend=backend, num_threads=num_threads)
        for array, right in zip(got, expected, strict=True):
            assert_same_bits(array, right, f"{backend}, {num_threads} threads")


def test_env_major_with_any_number_of_threads(large):
    case, expected = large(LARGE_SIZES[0], np.dtype(np.float32))
    swapped = case.mapped(lambda name, a: a.T.copy())
    for backend, num_threads in product(WITH_KERNELS, NUM_THREADS):
        got = fastgae.gae(**swapped.arguments(), time_axis=1, backend=backend, num_threads=num_threads)
        for array, right in zip(got, expected, strict=True):
            assert_same_bits(array, right.T, f"{backend}, {num_threads} threads")


@pytest.mark.parametrize("backend", WITH_KERNELS)
def test_several_python_threads_at_once(backend, large):
    """Each with its own number of threads; none may see another's memory or settings."""
    case, expected = large(LARGE_SIZES[0], np.dtype(np.float32))
    together = threading.Barrier(len(NUM_THREADS))
    failures = []

    def work(num_threads):
        try:
            together.wait()
            for _ in range(3):
                got = fastgae.gae(**case.arguments(), backend=backend, num_threads=num_threads)
                for array, right in zip(got, expected, strict=True):
                    assert_same_bits(array, right)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=[n]) for n in NUM_THREADS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
