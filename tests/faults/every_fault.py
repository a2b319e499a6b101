"""Run one call with every fault that it can meet, in a process into which faults.cpp is preloaded.

``python every_fault.py LIBRARY THREADS`` prints each call and how many faults it met, or fails.
``python every_fault.py LIBRARY side_by_side THREADS`` does so with as many Python threads, all of which make calls.
"""

import ctypes
import itertools
import sys
import threading

import numpy as np

import fastgae

STEPS, ENVS = 1040, 512  # work for four threads
rng = np.random.default_rng(0)
POISON = -1.2345e30


def rollout(steps=STEPS, envs=ENVS, dtype=np.float32):
    shape = (steps, envs)
    rewards, values = rng.normal(size=shape).astype(dtype), rng.normal(size=(steps + 1, envs)).astype(dtype)
    return {"rewards": rewards, "values": values, "terminated": rng.random(shape) < 0.01}


def env_major(given):
    return {name: np.ascontiguousarray(array.T) for name, array in given.items()} | {"time_axis": 1}


def truncated(given):
    cut = rng.random(given["terminated"].shape) < 0.01
    finals = rng.normal(size=np.count_nonzero(cut)).astype(given["rewards"].dtype)
    return given | {"truncated": cut, "final_values": finals}


def masked(given):
    return given | {"mask": rng.random(given["terminated"].shape) < 0.9}


def one_trajectory(steps=600_000):
    return {name: array[:, 0] for name, array in rollout(steps, 1).items()}


def strided(given):
    return {name: np.repeat(array, 2, axis=1)[:, ::2] for name, array in given.items()}


def with_integer_flags(given):
    return given | {"terminated": given["terminated"].astype(int)}


def ratios(given):
    return given | {"ratios": rng.random(given["rewards"].shape, np.float32) * 2}


def trees(nodes=80_000):
    numbers, node = rng.normal(size=(2, nodes)), np.arange(nodes)
    parents = np.where(node % 10, node - 1, -1)
    return dict(zip(("rewards", "values", "parents"), (*numbers, parents), strict=True), terminated=None, gamma=0.9)


def normalized(rewards, mask, out=None, **how):
    """``normalize`` with one output, as a function with a pair of them."""
    return (fastgae.normalize(rewards, mask, by="per_env", out=out and out[0], **how),)


def of_normalize(given):
    return {"rewards": given["rewards"], "mask": rng.random(given["rewards"].shape) < 0.9}


CALLS = {
    "plain": lambda: (fastgae.gae, rollout()),
    "env_major": lambda: (fastgae.gae, env_major(rollout())),
    "float64": lambda: (fastgae.gae, rollout(dtype=np.float64)),
    "pieces": lambda: (fastgae.gae, one_trajectory()),
    "sparse_finals": lambda: (fastgae.gae, truncated(rollout())),
    "sparse_finals_env_major": lambda: (fastgae.gae, truncated(env_major(rollout()))),
    "mask": lambda: (fastgae.gae, masked(rollout())),
    "mask_env_major": lambda: (fastgae.gae, env_major(masked(rollout()))),
    "mask_pieces": lambda: (fastgae.gae, masked(one_trajectory())),
    "next_step": lambda: (fastgae.gae, rollout() | {"autoreset": "next_step"}),
    "gamma_per_step": lambda: (fastgae.gae, rollout() | {"gamma": rng.random((STEPS, 1))}),
    "tail": lambda: (fastgae.gae, rollout() | {"tail_normalized": True}),
    "returns_lambda": lambda: (fastgae.gae, env_major(rollout()) | {"returns_lambda": 0.9}),
    "vtrace": lambda: (fastgae.vtrace, ratios(rollout())),
    "vtrace_env_major": lambda: (fastgae.vtrace, env_major(ratios(rollout()))),
    "normalize_global": lambda: (fastgae.gae, rollout() | {"normalize": "global"}),
    "normalize_per_env_masked": lambda: (fastgae.gae, masked(rollout()) | {"normalize": "per_env"}),
    "normalize_env_major": lambda: (fastgae.gae, env_major(masked(rollout())) | {"normalize": "global"}),
    "normalize": lambda: (normalized, of_normalize(rollout())),
    "normalize_strided": lambda: (normalized, of_normalize(strided(rollout()))),
    "trees": lambda: (fastgae.gae_tree, trees()),
    "strided": lambda: (fastgae.gae, strided(rollout())),
    "strided_normalize": lambda: (fastgae.gae, strided(rollout()) | {"normalize": "global"}),
    "mixed_dtypes": lambda: (fastgae.gae, rollout() | {"values": rollout(dtype=np.float64)["values"]}),
    "mixed_normalize": lambda: (fastgae.gae, with_integer_flags(masked(rollout())) | {"normalize": "per_env"}),
}  # fmt: skip


def same(got, expected):
    return all(np.array_equal(a, b) for a, b in zip(got, expected, strict=True))


def meet_every_fault(library, function, given, num_threads):
    """Return how many faults were met: first of allocations, then of threads."""
    call = lambda out: function(**given, out=out, backend="cpp", num_threads=num_threads)  # noqa: E731
    expected = function(**given, backend="numpy")
    poisoned = [np.full_like(array, POISON) for array in expected]
    assert same(call(tuple(array.copy() for array in poisoned)), expected)  # what is imported later is imported now
    met = []
    for which, has_out in itertools.product(("allocation", "thread"), (True, False)):
        for k in itertools.count(1):
            out = tuple(array.copy() for array in poisoned) if has_out else None
            library.arm(k if which == "allocation" else 0, k if which == "thread" else 0)
            try:
                got = call(out)
            except MemoryError:
                got = None
            faults = library.disarm()
            where = f"{which} {k}, out={has_out}"
            assert got is not None or faults, f"{where}: MemoryError without a fault"
            assert got is None or same(got, expected), f"{where}: other bits"
            if got is None and has_out:
                assert same(out, poisoned) or same(out, expected), f"{where}: out is half written"
            assert same(call(None), expected), f"{where}: the next call is wrong"
            if not faults:
                break
        met.append(k - 1)
    return met


def meet_faults_side_by_side(library, num_threads, calls=30_000):
    """Return how many large calls found no memory, in one of several Python threads; the small calls must succeed."""
    small, large = rollout(64, 512), rollout(1040, 512)
    expected = fastgae.gae(**small, backend="numpy")
    assert same(fastgae.gae(**small, backend="cpp"), expected)  # what is imported later is imported now
    fastgae._core.set_recycled_limit(1)  # results go through the store, which keeps none of them
    library.refuse_from(large["rewards"].nbytes)
    sys.setswitchinterval(1e-6)  # the interpreter changes threads whenever it may
    errors, done = [], threading.Event()

    def make_small_calls():
        while not done.is_set():
            try:
                assert same(fastgae.gae(**small, backend="cpp", num_threads=1), expected)
            except Exception as error:
                errors.append(repr(error))

    threads = [threading.Thread(target=make_small_calls) for _ in range(num_threads - 1)]
    for thread in threads:
        thread.start()
    refused = 0
    for _ in range(calls):
        try:
            fastgae.gae(**large, backend="cpp", num_threads=1)
        except Exception as error:
            refused += isinstance(error, MemoryError) and "Unable to allocate" in str(error)
    done.set()
    for thread in threads:
        thread.join()
    assert not errors, f"{len(errors)} small calls failed: {errors[0]}"
    return refused


if __name__ == "__main__":
    path, *side_by_side, num_threads = sys.argv[1:]
    library = ctypes.CDLL(path)
    if side_by_side:
        print("refused", meet_faults_side_by_side(library, int(num_threads)))
    for name, make in {} if side_by_side else CALLS.items():
        print(name, end=" ", flush=True)
        print(*meet_every_fault(library, *make(), int(num_threads)))
