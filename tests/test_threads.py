"""Calls from several threads at once have the bits of calls from one, also where no GIL keeps them apart."""

import random
from concurrent.futures import ThreadPoolExecutor

import fastgae
from support.functions import arrays_of, parameters
from support.good_calls import good_calls

LARGE = (300, 120)  # the compiled backend drops the GIL, and recycles the memory of results


def test_calls_from_several_threads(backend):
    calls = [
        (getattr(fastgae, name), {**arguments, "out": None, "backend": backend})
        for size in [(4, 3), LARGE]
        for name, kind, arguments in good_calls(size)
        if "out" in parameters(name)
        and (backend != "numba" or (name, kind) == ("gae", "plain"))  # it compiles too long
    ]
    expected = [bits(*call) for call in calls]

    def work(seed):
        order = random.Random(seed).sample(range(len(calls)), len(calls))
        return [calls[i][0].__name__ for i in order if bits(*calls[i]) != expected[i]]

    with ThreadPoolExecutor(8) as pool:
        assert [*pool.map(work, range(8))] == [[]] * 8


def bits(function, arguments):
    return [array.tobytes() for array in arrays_of(function(**arguments))]
