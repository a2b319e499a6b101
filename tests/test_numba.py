"""The Numba backend takes what a rollout has, compiles each kernel once, and cuts long trajectories."""

import importlib
import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

import fastgae
from fastgae._call import MOMENT_STEPS
from support.backends import BACKENDS
from support.bad_arguments import read_only
from support.cases import assert_same_bits, env_major, make_case
from test_pieces import HOSTILE, not_numbers, spikes

if "numba" not in BACKENDS:
    pytest.skip("numba is not installed", allow_module_level=True)

from fastgae._backends import numba as module
from fastgae._backends.numba.arguments import FEWEST_STEPS
from fastgae._backends.numba.compiled import compiled, config, signature


def touched(array):
    """A kernel that compiles fast."""


SIGNATURE = signature((np.ones(1),), 0)


def damaged(content):
    """Every way in which a file may be damaged: what is left of it."""
    flipped = bytearray(content)
    flipped[-len(content) // 3] ^= 4
    return b"", content[:1], content[: len(content) // 2], bytes(flipped), b"another file"


def test_a_damaged_cache_is_compiled_again(monkeypatch, tmp_path):
    """A file of the cache that was cut off or damaged, by a full disk or a crash, has no effect on results."""
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    hits = lambda: sum(compiled(touched, SIGNATURE).stats.cache_hits.values())  # noqa: E731
    assert [hits(), hits()] == [0, 1]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".nbi", ".nbc"}
    for path in files:
        for content in damaged(path.read_bytes()):
            path.write_bytes(content)
            assert [hits(), hits()] == [0, 1], (path.suffix, content[:20])
    monkeypatch.setattr(importlib.import_module(compiled.__module__), "_SOURCE", "other kernels")
    assert hits() == 0


def test_a_cache_that_cannot_be_mended_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    compiled(touched, SIGNATURE)
    index = next(tmp_path.rglob("*.nbi"))
    index.unlink()
    index.mkdir()
    with pytest.raises(fastgae.BackendUnavailableError, match=re.escape(f"the folder of its cache, {index.parent}")):
        compiled(touched, SIGNATURE)


def test_without_a_folder_for_the_cache(python):
    call = 'fastgae.gae_tree([1.0, 2.0], 0.0, [-1, 0], None, gamma=0.5, gae_lambda=1.0, backend="numba")'
    nowhere = "from numba.core.caching import FunctionCache; FunctionCache._impl_class._locator_classes = []"
    assert python(f"{nowhere}; import fastgae; print(*{call}.returns)") == "2.0 2.0"


@pytest.fixture
def arguments_of(monkeypatch):
    """Return the arguments with which a call reaches its kernel."""
    seen, run = [], module._run
    monkeypatch.setattr(module, "_run", lambda *given: seen.append(given[3]) or run(*given))

    def arguments(**call):
        seen.clear()
        fastgae.gae(**call, backend="numba")
        return seen[0]

    return arguments


def test_a_kernel_has_one_signature_whatever_is_given(arguments_of):
    """A kernel is compiled for the options of its first call, and must take the arguments of every call with those."""
    case = make_case((5, 3), np.float32)
    call = {"rewards": case.rewards, "values": case.values[:5], "terminated": case.terminated}
    last, one = case.values[0], np.ones((5, 3), np.float32)
    plain = [
        call | {"last_values": last},
        call | {"last_values": 0.5, "terminated": None},
        call | {"last_values": read_only(last), "out": (None, one.copy())},
        call | {"next_values": case.values[:5], "truncated": ~case.terminated},
        call | {"values": np.ones((6, 3), np.float32), "last_advantages": last},
    ]
    final = [call | {"last_values": last, "truncated": ~case.terminated, "final_values": one * k} for k in (1, 2)]
    mask = [
        call | {"last_values": last, "mask": case.terminated},
        call | {"last_values": last, "mask": case.terminated, "carry_over": True, "out": (one.copy(), None)},
        call | {"last_values": last, "mask": case.terminated, "truncated": ~case.terminated, "final_values": one},
    ]
    arrays = [mask[0] | {"gamma": one[:1], "gae_lambda": one[:, :1]}, mask[2] | {"gae_lambda": one}]
    rows = {"gamma": one[:, :1]}
    second = [mask[0] | rows | {"returns_lambda": 0.5}, mask[1] | rows | {"returns_lambda": one[:, :1]}]
    alike = plain, final, mask, arrays, second
    kernels = [{module.signature(arguments_of(**each), 2) for each in calls} for calls in alike]
    assert list(map(len, kernels)) == [1] * 5
    assert len(set.union(*kernels)) == 5


EPISODES = "rewards values terminated truncated last_values final_values mask"


@pytest.mark.parametrize(
    ("function", "dtype", "axis", "names"),
    [
        ("gae", "f4", 0, f"{EPISODES} rows returns_lambda carry_over"),
        ("gae", "f4", 1, f"{EPISODES} gamma returns_lambda carry_over"),
        ("gae", "f8", 0, "rewards values terminated last_values tail_normalized"),
        ("gae", "f4", 1, f"{EPISODES} tail_normalized"),
        ("vtrace", "f4", 0, "rewards values terminated last_values rows ratios leaky"),
        ("vtrace", "f4", 1, f"{EPISODES} ratios rho_clip c_clip advantage_clip"),
        ("discounted_returns", "f4", 0, "rewards terminated last_values mask"),
        ("reverse_scan", "f4", 1, "x decay initial"),
    ],
)
def test_every_option_in_both_layouts(function, dtype, axis, names):
    """In few kernels, for each takes a second to compile; random calls in .ci/run ask for all. A run has 512 steps."""
    for steps, envs in ((1100, 11), (3, 2)):
        case = make_case((steps, envs), dtype)
        some = np.random.default_rng(0).random((steps, envs)).astype(dtype)
        given = case.arguments() | {"mask": some < 0.8, "gamma": some, "rows": some[:, :1], "x": case.rewards}
        given |= {"decay": some, "initial": case.last_values, "ratios": np.exp(case.values), "carry_over": True}
        given |= {"returns_lambda": 0.5, "tail_normalized": True, "leaky": 0.25, "c_clip": 0.8, "advantage_clip": 1.5}
        given["rho_clip"] = 0.7 if steps > 3 else 1e300  # which is infinite in float32
        call = {"gamma" if name == "rows" else name: given[name] for name in names.split()}
        compute = partial(getattr(fastgae, function), **env_major(call) if axis else call)
        assert_same_bits(compute(backend="numba"), compute(backend="numpy"), f"{steps} steps of {envs} envs")


def test_a_parallel_loop_takes_constants_and_coefficients_of_rows(monkeypatch):
    if module.config.NUMBA_NUM_THREADS < 2:
        pytest.skip("numba has one thread")
    monkeypatch.setattr(module, "STEPS_PER_THREAD", 1)
    loops, parallel = [], module.parallel
    monkeypatch.setattr(module, "parallel", lambda *given: loops.append(given) or parallel(*given))
    case = make_case((9, 130), np.float32, bootstrap="last_values")
    call = case.arguments() | {"ratios": np.exp(case.rewards), "gamma": np.linspace(0.5, 1, 9)[:, np.newaxis]}
    call["lambda_"] = call.pop("gae_lambda")
    threads = module.get_num_threads()
    module.set_num_threads(1)  # as the caller may for kernels of his own
    got, expected = (fastgae.vtrace(**call, backend=name, num_threads=2) for name in ("numba", "numpy"))
    assert_same_bits(got, expected)
    assert module.get_num_threads() == 1
    module.set_num_threads(threads)
    assert loops or not module._pool_is_safe()
    used = len(loops)
    with ThreadPoolExecutor(1) as pool:  # another thread may use Numba's pool next, unless two at once would abort
        for layer in ("omp", "workqueue"):
            monkeypatch.setattr(module, "threading_layer", lambda layer=layer: layer)
            assert_same_bits(pool.submit(fastgae.vtrace, **call, backend="numba", num_threads=2).result(), expected)
            assert len(loops) == 2 * used


@pytest.mark.parametrize("backend", sorted({name.partition(":")[0] for name in BACKENDS}))
def test_moments_add_up_the_same_number_of_steps_in_every_backend(backend):
    """The bits of ``normalize`` depend on this number, which Python and C++ each have."""
    module = importlib.import_module(f"fastgae._backends.{backend}")
    target = next(iter(module.targets()), None)
    for ones in (np.ones((MOMENT_STEPS + 1, 3)), np.ones((3, MOMENT_STEPS + 1)).T):
        sums = np.asarray(module.block_sums(ones, None, None, 1, target))
        assert np.array_equal(sums, [[MOMENT_STEPS] * 3, [1] * 3])


def spy_on_pieces(monkeypatch):
    """Return the list that tells of each later call whether its pieces were right."""
    told, runs, compute, run = [], [], module._compute, module._run

    def spy(*given):
        runs.clear()
        results = compute(*given)
        told.append(len(runs) == 2)  # pieces take two runs, and a third one if they were wrong
        return results

    monkeypatch.setattr(module, "_run", lambda *given: runs.append(given) or run(*given))
    monkeypatch.setattr(module, "_compute", spy)
    return told


@pytest.mark.parametrize("bootstrap", ["last_values", "longer_values", "next_values", "final_dense"])
def test_a_long_trajectory_is_computed_in_pieces(monkeypatch, dtype, bootstrap):
    told = spy_on_pieces(monkeypatch)
    for steps in (FEWEST_STEPS - 1, FEWEST_STEPS, FEWEST_STEPS + 1, FEWEST_STEPS + 4321):
        case = make_case((steps, 1), dtype, "none" if steps % 2 else "last_row", bootstrap, gae_lambda=0.9).arguments()
        expected = fastgae.gae(**case, backend="numpy")
        for wanted in ((True, True), (True, False), (False, True)):
            out = tuple(np.full((steps, 1), np.nan, dtype) if each else None for each in wanted)
            fastgae.gae(**case, backend="numba", out=out)
            for array, right in zip(out, expected, strict=True):
                if array is not None:
                    assert_same_bits(array, right)
    assert told == [False] * 3 + [True] * 9
    rewards = {"rewards": case["rewards"], "terminated": None, "last_values": 0.5, "gamma": 0.9}
    assert_same_bits(*(fastgae.discounted_returns(**rewards, backend=name) for name in ("numba", "numpy")))
    for decay in (1.0, 0.993):  # nothing decays, or so slowly that most of the steps would be computed twice
        fastgae.gae(**case | {"gamma": 1.0, "gae_lambda": decay}, backend="numba")
        assert not told[-1]


@pytest.mark.parametrize("make", HOSTILE, ids=lambda make: make.__name__)
def test_pieces_that_did_not_forget_their_start_are_computed_again(monkeypatch, dtype, make):
    told, rng = spy_on_pieces(monkeypatch), np.random.default_rng(3)
    case = make_case((FEWEST_STEPS + 77, 1), dtype, "none", "last_values", gae_lambda=0.9)
    with np.errstate(all="ignore"):
        case = case.mapped(lambda name, array: array if array.dtype == bool else make(rng, array)).arguments()
        got, expected = (fastgae.gae(**case, backend=backend) for backend in ("numba", "numpy"))
        alone = fastgae.gae(**case, backend="numba", out=(None, np.empty_like(expected.returns))).returns
    assert_same_bits(got, expected)
    assert_same_bits(alone, expected.returns)
    assert told == [make not in (spikes, not_numbers)] * 2
