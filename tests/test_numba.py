"""The Numba backend takes what a rollout has, compiles each kernel once, and reads the record for names."""

import ast
import importlib
import re
from pathlib import Path

import numpy as np
import pytest

import fastgae
from fastgae._canonical import MOMENT_STEPS, CanonicalRollout
from support.backends import BACKENDS
from support.cases import assert_same_bits, make_case
from test_long import HOSTILE, not_numbers, spikes

if "numba" not in BACKENDS:
    pytest.skip("numba is not installed", allow_module_level=True)

from fastgae._backends import numba as module
from fastgae._backends.numba.compiled import compiled, config, signature
from fastgae._backends.numba.pieces import FEWEST_STEPS


def touched(first, last, arguments):
    """A kernel that compiles fast."""


SIGNATURE = signature((np.ones(1),))


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


def test_a_cache_that_cannot_be_mended_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    compiled(touched, SIGNATURE)
    index = next(tmp_path.rglob("*.nbi"))
    index.unlink()
    index.mkdir()
    with pytest.raises(
        fastgae.BackendUnavailableError, match=f"empty the folder of its cache, {re.escape(str(index.parent))}"
    ):
        compiled(touched, SIGNATURE)


@pytest.fixture
def arguments_of(monkeypatch):
    """Return the arguments with which a call reaches its kernel."""
    seen, run = [], module._run
    monkeypatch.setattr(module, "_run", lambda *given: seen.append(given[2]) or run(*given))

    def arguments(**call):
        seen.clear()
        fastgae.gae(**call, backend="numba")
        return seen[0]

    return arguments


def read_only(array):
    array.flags.writeable = False
    return array


def test_a_kernel_has_one_signature_whatever_is_given(arguments_of):
    """A kernel is compiled for the options of its first call, and must take the arguments of every call with those."""
    case = make_case((5, 3), np.float32)
    call = {"rewards": case.rewards, "values": case.values[:5], "terminated": case.terminated}
    last, one = case.values[0], np.ones((5, 3), np.float32)
    plain = [
        call | {"last_values": last},
        call | {"last_values": 0.5, "terminated": None},
        call | {"last_values": read_only(last.copy()), "out": (None, one.copy())},
        call | {"next_values": case.values[:5], "truncated": ~case.terminated},
        call | {"last_values": last, "truncated": ~case.terminated, "final_values": one},
    ]
    options = [
        call | {"last_values": last, "mask": case.terminated},
        call | {"last_values": last, "gamma": one[:1], "gae_lambda": one[:, :1]},
        call | {"last_values": last, "last_advantages": last, "truncated": ~case.terminated, "final_values": one},
        call | {"last_values": last, "mask": case.terminated, "carry_over": True, "out": (one.copy(), None)},
    ]
    second = [options[0] | {"returns_lambda": 0.5}, options[1] | {"returns_lambda": one}]
    kernels = [{module.signature(arguments_of(**each)) for each in calls} for calls in (plain, options, second)]
    assert list(map(len, kernels)) == [1, 1, 1]
    assert len(set.union(*kernels)) == 3


def test_every_field_of_a_rollout_reaches_the_kernels(arguments_of):
    case = make_case((5, 3), np.float32, bootstrap="last_values")
    assert len(arguments_of(**case.arguments(), mask=~case.terminated)) == len(CanonicalRollout._fields)


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
    told, runs, compute, sweep = [], [], module._compute, module._run_sweep

    def spy(*given):
        runs.clear()
        compute(*given)
        told.append(len(runs) == 2)  # pieces take two sweeps, and a third one if they were wrong

    monkeypatch.setattr(module, "_run_sweep", lambda *given: runs.append(given) or sweep(*given))
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


@pytest.mark.parametrize("make", HOSTILE, ids=lambda make: make.__name__)
def test_pieces_that_did_not_forget_their_start_are_computed_again(monkeypatch, dtype, make):
    told, rng = spy_on_pieces(monkeypatch), np.random.default_rng(3)
    case = make_case((FEWEST_STEPS + 77, 1), dtype, "none", "last_values", gae_lambda=0.9)
    with np.errstate(all="ignore"):
        case = case.mapped(lambda name, array: array if array.dtype == bool else make(rng, array)).arguments()
        got, expected = (fastgae.gae(**case, backend=backend) for backend in ("numba", "numpy"))
    for array, right in zip(got, expected, strict=True):
        assert_same_bits(array, right)
    assert told == [make not in (spikes, not_numbers)]


def test_a_slow_decay_is_not_computed_in_pieces(monkeypatch, dtype):
    told = spy_on_pieces(monkeypatch)
    case = make_case((FEWEST_STEPS, 1), dtype, bootstrap="last_values").arguments()
    fastgae.gae(**case | {"gamma": 1.0, "gae_lambda": 1.0}, backend="numba")
    assert told == [False]


KERNELS = [
    function
    for path in Path(module.__file__).parent.glob("*.py")
    for function in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    if isinstance(function, ast.FunctionDef) and [each.arg for each in function.args.args][:2] == ["first", "last"]
]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_kernels_keep_the_arrays_that_they_make(kernel):
    """Numba frees an array after its last use, and what is done at an address in it is none."""
    made = {
        name.id
        for statement in ast.walk(kernel)
        if isinstance(statement, ast.Assign)
        for name, value in assigned(statement.targets[0], statement.value)
        if re.match(r"np\.(?:empty|zeros|ones|full)\(", ast.unparse(value))
    }
    kept = ast.unparse(kernel.body[-1])
    assert kept.startswith("keep(")
    assert made == set(kept.removeprefix("keep(").removesuffix(")").split(", "))


def assigned(target, value):
    """Return each name of an assignment with its value."""
    return zip(target.elts, value.elts, strict=True) if isinstance(target, ast.Tuple) else [(target, value)]
