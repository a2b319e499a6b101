"""Calls in programs that JAX compiles for the CPU: XLA calls the compiled module, and Python only looks on once."""

import contextlib
import functools
import itertools
import os
import shutil
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import fastgae
from fastgae._call import ROLES
from fuzz.calls import PER_ENV
from support.cases import assert_same_bits, make_case
from support.drawn import drawn

jax = pytest.importorskip("jax")
pytest.importorskip("fastgae._core")
jnp = jax.numpy
from fastgae._interop import jax_xla  # noqa: E402

from .test_jax import NAMES, OF_ENVS, assert_answers, jitted, of_shards, sharded, split_call  # noqa: E402

ERRORS = (ValueError, jax.errors.JaxRuntimeError)  # which one depends on who waits for the results
CSRC = Path(__file__).parents[2] / "csrc"
CASE = make_case((17, 6), np.float32, bootstrap="final_dense")
ROLLOUT = CASE.arguments()
# Functions that fill no arrays of the caller, and packed sequences, which Python turns into one env.
IN_PYTHON = ("valid_steps", "normalize", "gae_packed")


def taken_by_the_short_cut(function, arguments):
    """Whether flags have the shape of rewards, and arrays as many axes, or one less if per env; no reset rows."""
    (_, first), *_ = arguments.items()
    per_env = {name for name in arguments if ROLES[name] in PER_ENV}
    ranks = {name: given.ndim for name, given in arguments.items() if isinstance(given, np.ndarray)}
    whole = all(ranks[name] == first.ndim - (name in per_env) for name in ranks) and per_env <= ranks.keys()
    known = per_env or "values" in arguments  # otherwise Python looks for an env without an end
    known = known and not (function is fastgae.discounted_returns and "next_values" in arguments)
    flags = (arguments.get(name) for name in ("terminated", "truncated", "mask"))
    known = known and all(each.shape == first.shape for each in flags if isinstance(each, np.ndarray))
    return function.__name__ not in IN_PYTHON and whole and known and first.ndim < 3 and "autoreset" not in arguments


@pytest.fixture
def no_python(monkeypatch):
    """Return a function after which a compiled program that needs Python raises an error."""
    return lambda: monkeypatch.setattr(jax_xla, "Batch", None)


def test_it_is_ready():
    assert jax_xla.is_ready()


def test_only_the_first_execution_needs_python(no_python):
    programs = []
    for function, arguments in itertools.chain(*(drawn(name, fits=taken_by_the_short_cut) for name in NAMES)):
        program, arrays = jitted(function, arguments)
        assert_answers(program(arrays), function(**arguments))
        programs.append((program, arrays, function(**arguments)))
    assert len(programs) > 20
    no_python()
    for program, arrays, expected in programs:
        assert_answers(program(arrays), expected)


def test_denormal_numbers():
    """XLA's threads flush them to 0."""
    rewards = np.zeros(2000, np.float32)
    rewards[-1] = 1
    values, flag = np.zeros_like(rewards), np.float32(1e-40)
    expected = fastgae.gae(rewards, values, None, last_values=0.0)
    assert (expected.advantages[:500] > 0).any()
    assert (expected.advantages < np.finfo(np.float32).tiny).any()
    program = jax.jit(lambda rewards, values: fastgae.gae(rewards, values, None, last_values=0.0))
    for _ in range(2):  # the first execution makes an ordinary call
        assert_answers(program(rewards, values), expected)
    ended = jnp.asarray(np.where(rewards, flag, 0))
    with pytest.raises(ERRORS, match="terminated must hold 0 or 1"):
        jax.block_until_ready(jax.jit(lambda r, ended: fastgae.gae(r, r, ended, last_values=0.0))(rewards, ended))


def test_a_thread_that_flushes_or_rounds_otherwise(python):
    """A user's thread may, and it stays so."""
    pytest.importorskip("torch")
    python(
        "import torch, jax, numpy as np, fastgae\n"
        "rewards = np.float32([0, 0, 1e-30])\n"
        "call = lambda rewards: fastgae.gae(rewards, rewards, None, last_values=0.0, gamma=1e-5).advantages\n"
        "program, expected = jax.jit(call), call(rewards)\n"
        "torch.set_flush_denormal(True)\n"
        "for _ in range(2): assert np.asarray(program(rewards)).tobytes() == expected.tobytes()\n"
        "assert call(rewards).tobytes() != expected.tobytes()\n"
        "assert (torch.tensor(1e-30) * 1e-10).item() == 0\n"
    )


def test_trajectories_become_environments(no_python):
    """Also where some arguments are the same for all, and with numbers of each trajectory."""
    given = {**CASE.arguments(), "gamma": np.linspace(0.5, 1, 6, dtype=np.float32)}
    given.update(terminated=CASE.terminated[:, 0], gae_lambda=np.full(17, 0.9, np.float32))
    of_each = {"rewards": 1, "values": 1, "truncated": 1, "final_values": 1, "last_values": 0, "gamma": 0}
    arrays, others = split_call(given)
    axes = ({name: of_each.get(name) for name in arrays},)
    program = jax.jit(jax.vmap(lambda arrays: fastgae.gae(**arrays, **others), axes, 1))
    text = program.lower(arrays).as_text()
    assert text.count("custom_call @fastgae") == 1
    assert "-> (tensor<17x6xf32>, tensor<17x6xf32>)" in text.partition("custom_call @fastgae")[2].partition("\n")[0]
    each = [
        {name: np.take(a, i, of_each[name]) if name in of_each else a for name, a in given.items()} for i in range(6)
    ]
    expected = [fastgae.gae(**one) for one in each]
    for _ in range(2):
        assert_answers(program(arrays), fastgae.GAEResult(*(np.stack(pair, 1) for pair in zip(*expected, strict=True))))
        no_python()


def test_parents_of_trees_are_checked_when_the_program_runs(no_python):
    parents, (rewards, values, _) = np.array([-1, 0, 1, 1, 0]), np.float32(np.arange(15).reshape(3, 5))
    options = {"terminated": None, "weights": "leaves", "gamma": 0.9}
    program = jax.jit(functools.partial(fastgae.gae_tree, **options))
    expected = fastgae.gae_tree(rewards, values, parents, **options)
    assert_answers(program(rewards, values, parents), expected)
    with pytest.raises(ERRORS, match="parents has 1 at node 1, and each parent must come before its children"):
        jax.block_until_ready(program(rewards, values, np.array([-1, 1, 0, 0, 0])))
    two = jax.vmap(program)(np.stack([rewards, rewards]), np.stack([values, values]), np.stack([parents, parents]))
    assert_answers(jax.tree.map(lambda each: each[1], two), expected)
    no_python()
    assert_answers(program(rewards, values, parents), expected)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"gamma": 1.5}, "gamma must be in"),
        ({"terminated": np.full((3, 2), 2.0)}, "terminated must hold 0 or 1"),
        ({"final_values": np.ones(4, np.float32)}, "final_values has shape"),
    ],
)
def test_wrong_numbers_end_a_program_of_derivatives(wrong, said):
    flags = np.array([[1, 0], [0, 1], [0, 1]], bool)
    given = {"terminated": ~flags & flags, "truncated": flags, "final_values": np.ones(3, np.float32), "gamma": 0.9}

    @jax.jit
    @jax.value_and_grad
    def loss(rewards, given):
        results = fastgae.gae(rewards, rewards, **given, last_values=0.0, stop_gradients=False)
        return (results.advantages**2).sum()

    rewards = jnp.ones((3, 2))
    jax.block_until_ready(loss(rewards, given))
    with pytest.raises(ERRORS, match=said):
        jax.block_until_ready(loss(rewards, given | wrong))


def test_wrong_numbers_end_the_program():
    """The message is the usual one, and the next execution is right again."""
    program = jax.jit(lambda rewards, ended, gamma: fastgae.gae(rewards, rewards, ended, last_values=0.0, gamma=gamma))
    rewards, right = jnp.ones((4, 2)), jnp.zeros((4, 2))
    ones = np.ones((4, 2), np.float32)
    expected = fastgae.gae(ones, ones, np.zeros((4, 2)), last_values=0.0, gamma=np.float32(0.9))
    for _ in range(2):
        assert_answers(program(rewards, right, 0.9), expected)
        with pytest.raises(ERRORS, match=r"gamma must be in \[0, 1\], got 1.5"):
            jax.block_until_ready(program(rewards, right, 1.5))
        with pytest.raises(ERRORS, match=r"terminated .*0\.5"):
            jax.block_until_ready(program(rewards, right.at[1, 1].set(0.5), 0.9))


def test_ctrl_c_while_python_looks_on(monkeypatch):
    """XLA knows no KeyboardInterrupt, and its own error would end in `except Exception`."""

    def pressed(*given, **named):
        raise KeyboardInterrupt

    def call(rewards):
        return fastgae.gae(rewards, rewards, None, last_values=0.0, gamma=0.515)  # of no other test

    program = jax.jit(call).lower(jnp.ones(7)).compile()
    monkeypatch.setattr(jax_xla, "Batch", pressed)

    def careless():
        for _ in range(1000):
            with contextlib.suppress(Exception):
                jax.block_until_ready(program(jnp.ones(7)))

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # which a job in the background ignores
    with pytest.raises(KeyboardInterrupt):
        careless()
    signal.signal(signal.SIGINT, before)


def test_threads():
    program, arrays = jitted(fastgae.gae, ROLLOUT | {"carry_over": False})
    expected = fastgae.gae(**ROLLOUT)
    with ThreadPoolExecutor(4) as pool:
        for results in pool.map(lambda _: [np.asarray(program(arrays)) for _ in range(50)], range(4)):
            assert all(np.array_equal(got, expected) for got in results)


def test_devices():
    """Large arrays, of which one device has half."""
    rewards = np.random.default_rng(0).normal(size=(2000, 512)).astype(np.float32)

    def call(rewards):
        return fastgae.gae(rewards, rewards, None, last_values=0.0).advantages

    expected = call(rewards)
    for _ in range(2):
        assert_same_bits(jax.jit(call, donate_argnums=0)(jnp.asarray(rewards) + 0), expected)
    program = jax.jit(of_shards(call))
    for _ in range(2):
        assert_same_bits(program(sharded(rewards)), expected)


def test_trajectories_on_two_devices():
    """Each result varies over the devices, as the loops of JAX beside the call say of theirs."""
    rewards, values = np.random.default_rng(0).normal(size=(2, 9, 4)).astype(np.float32)

    def call(rewards, last=0.0):
        return fastgae.gae(rewards, rewards, None, last_values=last).advantages

    got = jax.jit(of_shards(jax.vmap(call, 1, 1)))(sharded(rewards))
    assert_same_bits(got, call(rewards))
    got = jax.jit(of_shards(lambda r: jax.vmap(call, (1, None), 1)(r, values[0, 0])))(sharded(rewards))
    assert_same_bits(got, call(rewards, values[0, 0]))

    numbers = np.random.default_rng(0).random((9, 4), np.float32)
    same, none = jnp.asarray(numbers[:, 1:3]), np.zeros((9, 2), bool)

    def of_one_argument(numbers, flags):  # only one differs, and in some calls only in the flags of a loop
        return {
            "x": fastgae.reverse_scan(numbers, 0.5, initial=2.0),
            "decay": fastgae.reverse_scan(same, numbers, initial=2.0),
            "values": fastgae.td_lambda(same, numbers, None, mask=~none, last_values=0.5),
            "mask": fastgae.td_lambda(same, same, None, mask=flags, last_values=0.5),
            "truncated": fastgae.gae(same, same, none, flags, next_values=same, last_advantages=0.5).advantages,
            "n_step_returns": fastgae.n_step_returns(same, same, none, flags, next_values=same, n=3),
        }

    given, halves = (numbers, numbers > 0.7), (slice(2), slice(2, 4))
    got = jax.jit(of_shards(of_one_argument))(*map(sharded, given))
    each = [of_one_argument(*(array[:, half] for array in given)) for half in halves]
    for name, result in got.items():
        assert_same_bits(result, np.concatenate([one[name] for one in each], 1), name)


@pytest.mark.parametrize("kind", ["Auto", "Explicit"])
def test_shards_of_some_axes(kind):
    """The other axis is the compiler's, or explicit."""
    if not hasattr(jax, "set_mesh"):
        pytest.skip("this JAX has no explicit axes")
    rewards = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
    mesh = jax.make_mesh((2, 1), ("envs", "other"), axis_types=(jax.sharding.AxisType[kind],) * 2)

    def call(rewards):
        return fastgae.gae(rewards, rewards, rewards > 1, last_values=0.0).advantages

    with jax.set_mesh(mesh):
        given = jax.device_put(rewards, jax.sharding.NamedSharding(mesh, OF_ENVS))
        each = jax.shard_map(call, in_specs=OF_ENVS, out_specs=OF_ENVS, axis_names={"envs"})
        assert_same_bits(jax.jit(each)(given), call(rewards))


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system pins no process to a CPU")
def test_devices_on_one_cpu(python):
    """Where a callback would wait for ever."""
    python(
        f"import os, sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from tensors import test_jax_xla; test_jax_xla.test_devices()"
    )


def test_the_structs_are_those_of_the_installed_jaxlib(tmp_path):
    compiler = shutil.which("g++") or pytest.skip("no compiler")
    header = Path(jax.ffi.include_dir(), "xla", "ffi", "api", "c_api.h").read_text(encoding="utf-8")
    known = "XLA_FFI_InternalExtension", "XLA_FFI_Extension_Base"  # since JAX 0.11, and before
    pairs = {
        "Extension": (next(name for name in known if f"struct {name} {{" in header), {"type": "type", "next": "next"}),
        "MetadataExtension": ("XLA_FFI_Metadata_Extension", {"metadata": "metadata"}),
        "Metadata": ("XLA_FFI_Metadata", {"version": "api_version", "traits": "traits"}),
        "Version": ("XLA_FFI_Api_Version", {"major": "major_version", "minor": "minor_version"}),
        "NewError": ("XLA_FFI_Error_Create_Args", {"message": "message", "code": "errc"}),
        "Api": ("XLA_FFI_Api", {"create_error": "XLA_FFI_Error_Create"}),
        "Buffer": ("XLA_FFI_Buffer", {"dtype": "dtype", "data": "data", "rank": "rank", "shape": "dims"}),
        "Buffers": ("XLA_FFI_Args", {"size": "size", "items": "args"}),
        "Attributes": ("XLA_FFI_Attrs", {"size": "size", "types": "types", "names": "names", "items": "attrs"}),
        "Text": ("XLA_FFI_ByteSpan", {"begin": "ptr", "size": "len"}),
        "Frame": (
            "XLA_FFI_CallFrame",
            {"api": "api", "stage": "stage", "arguments": "args", "results": "rets", "attributes": "attrs"},
        ),
    }
    asserted = [
        f'static_assert(offsetof(xla::{ours}, {field}) == offsetof({theirs}, {name}), "{ours}.{field}");'
        for ours, (theirs, fields) in pairs.items()
        for field, name in fields.items()
    ]
    numbers = {
        "xla::kMetadataExtension": "XLA_FFI_Extension_Metadata",
        "xla::kExecute": "XLA_FFI_ExecutionStage_EXECUTE",
        "xla::kString": "XLA_FFI_AttrType_STRING",
        "xla::kInvalidArgument": "XLA_FFI_Error_Code_INVALID_ARGUMENT",
        "xla::kResourceExhausted": "XLA_FFI_Error_Code_RESOURCE_EXHAUSTED",
        "int(xla::stored_as(XLA_FFI_DataType_PRED))": "int(Stored::boolean)",
        "int(xla::stored_as(XLA_FFI_DataType_S32))": "int(Stored::i32)",
        "int(xla::stored_as(XLA_FFI_DataType_U8))": "int(Stored::u8)",
        "int(xla::stored_as(XLA_FFI_DataType_F16))": "int(Stored::f16)",
        "int(xla::stored_as(XLA_FFI_DataType_F64))": "int(Stored::f64)",
        "int(xla::stored_as(XLA_FFI_DataType_BF16))": "int(Stored::bf16)",
    }
    asserted += [f'static_assert(int({ours}) == int({theirs}), "{ours}");' for ours, theirs in numbers.items()]
    source = tmp_path / "same.cpp"
    source.write_text(
        '#include "xla.hpp"\n#include "xla/ffi/api/c_api.h"\nusing namespace fastgae;\n' + "\n".join(asserted)
    )
    flags = ["-std=c++17", "-fsyntax-only", "-Wno-invalid-offsetof", f"-I{CSRC}", f"-I{jax.ffi.include_dir()}"]
    done = subprocess.run([compiler, *flags, str(source)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
