"""Bad input: the error names the argument, what was given and what was expected, and nothing is written before it."""

import numpy as np
import pytest

import fastgae
from fastgae.cli.main import main
from support.backends import ONE_TARGET
from support.bad_arguments import InCupy, InNumba, InWarp
from support.cases import assert_same_bits

STEPS, ENVS = 4, 3
SHAPE = (STEPS, ENVS)
ONES = np.ones(SHAPE, np.float32)
LONGER = np.ones((STEPS + 1, ENVS), np.float32)
ROW = np.ones(ENVS, np.float32)
FLAGS = np.zeros(SHAPE, bool)
TRUNCATED = FLAGS.copy()
TRUNCATED[1, 1] = TRUNCATED[3, 0] = True
WITH_FINAL = {"truncated": TRUNCATED, "final_values": np.ones(2)}
MASKED = np.ma.masked_array(ONES, FLAGS)


def flags_with(number, dtype=np.float32):
    flags = np.zeros(SHAPE, dtype)
    flags[2, 1] = number
    return flags


# (what differs from a good call, error, words of its message)
BAD = {
    "rewards: scalar": ({"rewards": 1.0}, ValueError, ["rewards", "scalar", "time axis"]),
    "rewards: None": ({"rewards": None}, TypeError, ["rewards", "None"]),
    "rewards: text": ({"rewards": np.full(SHAPE, "a")}, TypeError, ["rewards", "<U1", "32 or 64 bits"]),
    "rewards: complex": ({"rewards": ONES.astype(complex)}, TypeError, ["rewards", "complex128", "32 or 64 bits"]),
    "rewards: ragged": ({"rewards": [[1.0], [1.0, 2.0]]}, ValueError, ["rewards"]),
    "rewards: of CuPy": ({"rewards": InCupy()}, TypeError, ["array of cupy", "torch.from_dlpack(rewards)"]),
    "values: of Warp": ({"values": InWarp()}, TypeError, ["array of warp", "torch.from_dlpack(values)"]),
    "values: of Numba": (
        {"values": InNumba()},
        TypeError,
        ["array of numba", "torch.as_tensor(values, "],
    ),
    "rewards: masked": ({"rewards": MASKED}, TypeError, ["rewards", "mask"]),
    "values: one shorter": ({"values": ONES[1:]}, ValueError, ["values", "(3, 3)", "(4, 3)", "(5, 3)"]),
    "values: two longer": ({"values": np.ones((6, 3))}, ValueError, ["values", "(6, 3)", "(4, 3)", "(5, 3)"]),
    "values: longer along envs": ({"values": np.ones((4, 4))}, ValueError, ["(4, 4)", "(5, 3)", "fits time_axis=1"]),
    "values: another rank": ({"values": LONGER[..., None]}, ValueError, ["values", "(5, 3, 1)", "(5, 3)"]),
    "bootstrap: missing": ({"values": ONES}, ValueError, ["missing", "last_values", "next_values", "values"]),
    "bootstrap: longer and last_values": ({"last_values": ROW}, ValueError, ["values", "last_values", "keep one"]),
    "bootstrap: longer and next_values": ({"next_values": ONES}, ValueError, ["values", "next_values", "keep one"]),
    "bootstrap: last_values and next_values": (
        {"values": ONES, "last_values": ROW, "next_values": ONES},
        ValueError,
        ["last_values", "next_values", "keep one"],
    ),
    "last_values: shape": (
        {"values": ONES, "last_values": np.ones(4)},
        ValueError,
        ["last_values", "(4,)", "one number", "without time", "(3,)", "it fits time_axis=1"],
    ),
    "last_values: rank": ({"values": ONES, "last_values": ROW[:, None]}, ValueError, ["last_values", "(3, 1)", "(3,)"]),
    "last_values: as the fourth argument": (
        {"values": ONES, "truncated": ROW},
        ValueError,
        ["last_values", "truncated", "fourth", "last_values=..."],
    ),
    "next_values: shape": ({"values": ONES, "next_values": LONGER}, ValueError, ["next_values", "(5, 3)", "(4, 3)"]),
    "next_values: text": ({"values": ONES, "next_values": "abcd"}, TypeError, ["next_values", "<U4"]),
    "terminated: left out": ({"terminated": None}, ValueError, ["pass terminated", "all False"]),
    "terminated: left out, and the value after the last step": (
        {"terminated": None, "values": ONES},
        ValueError,
        ["terminated and last_values are both missing"],
    ),
    "terminated: left out beside truncated": (
        {**WITH_FINAL, "terminated": None, "truncated": FLAGS},
        ValueError,
        ["truncated is given without terminated", "pass both"],
    ),
    "terminated: left out beside reset rows": (
        {"terminated": None, "values": ONES, "last_values": 0.0, "autoreset": "next_step"},
        ValueError,
        ["next_step", "without terminated"],
    ),
    "terminated: shape": ({"terminated": FLAGS[1:]}, ValueError, ["terminated", "(3, 3)", "(4, 3)"]),
    "terminated: 2": ({"terminated": flags_with(2, int)}, ValueError, ["terminated", "0 or 1", "2", "(2, 1)"]),
    "terminated: -1": ({"terminated": flags_with(-1, np.int8)}, ValueError, ["terminated", "0 or 1", "-1", "(2, 1)"]),
    "terminated: 0.5": ({"terminated": flags_with(0.5)}, ValueError, ["terminated", "0 or 1", "0.5", "(2, 1)"]),
    "terminated: NaN": ({"terminated": flags_with(np.nan)}, ValueError, ["terminated", "0 or 1", "nan", "(2, 1)"]),
    "terminated: text": ({"terminated": np.full(SHAPE, "n")}, TypeError, ["terminated", "<U1", "0 or 1"]),
    "terminated: masked": ({"terminated": np.ma.masked_array(FLAGS)}, TypeError, ["terminated", "mask"]),
    "truncated: shape": ({**WITH_FINAL, "truncated": FLAGS[:, 1:]}, ValueError, ["truncated", "(4, 2)", "(4, 3)"]),
    "truncated all False: no value of the next state": (
        {"truncated": FLAGS},
        ValueError,
        ["truncated", "values[t + 1] may belong to another episode", "final_values", "next_values", "autoreset"],
    ),
    "final_values: no truncated": ({"final_values": ONES}, ValueError, ["final_values", "truncated"]),
    "final_values: too few": ({**WITH_FINAL, "final_values": ROW[:1]}, ValueError, ["final_values", "(1,)", "(2,)"]),
    "final_values: and next_values": (
        {**WITH_FINAL, "values": ONES, "next_values": ONES},
        ValueError,
        ["final_values", "next_values", "keep one"],
    ),
    "gamma: -0.1": ({"gamma": -0.1}, ValueError, ["gamma", "[0, 1]", "-0.1"]),
    "gamma: 1.1": ({"gamma": 1.1}, ValueError, ["gamma", "[0, 1]", "1.1"]),
    "gamma: huge integer": ({"gamma": 10**400}, ValueError, ["gamma", "[0, 1]"]),
    "gamma: None": ({"gamma": None}, TypeError, ["gamma", "number", "None"]),
    "gamma: text": ({"gamma": "0.9"}, (TypeError, ValueError), ["gamma", "number", "'0.9'"]),
    "gamma: a vector": (
        {"gamma": np.full(3, 0.9)},
        ValueError,
        ["gamma", "(3,)", "(4, 3)", "(1, 3) is one per env", "(4, 1) one per step"],
    ),
    "gamma: array of a higher rank": ({"gamma": np.full((1, 4, 3), 0.9)}, ValueError, ["gamma", "(1, 4, 3)", "(4, 3)"]),
    "gamma: array with 1.5": ({"gamma": np.array([[0.9, 1.5, 1]])}, ValueError, ["gamma", "[0, 1]", "1.5", "(0, 1)"]),
    "gamma: float16": ({"gamma": np.full(3, 0.9, np.float16)}, TypeError, ["gamma", "float16"]),
    "gae_lambda: list": ({"gae_lambda": [[0.9, -1, 0]]}, ValueError, ["gae_lambda", "[0, 1]", "-1", "(0, 1)"]),
    "returns_lambda: and last_advantages": (
        {"returns_lambda": 1.0, "last_advantages": ROW},
        ValueError,
        ["returns_lambda", "last_advantages", "call once for each"],
    ),
    "returns_lambda: and tail_normalized": (
        {"returns_lambda": 1.0, "tail_normalized": True},
        ValueError,
        ["returns_lambda", "tail-normalized", "call once for each"],
    ),
    "carry_over: and normalize": (
        {"carry_over": True, "normalize": "global"},
        ValueError,
        ["carry_over", "normalize", "fastgae.normalize"],
    ),
    "carry_over: and tail_normalized": (
        {"carry_over": True, "tail_normalized": True},
        ValueError,
        ["carry_over", "tail-normalized"],
    ),
    "carry_over: 1": ({"carry_over": 1}, TypeError, ["carry_over", "True or False", "1"]),
    "terminated: a vector": ({"terminated": FLAGS[:, 0]}, ValueError, ["terminated", "(4,)", "(4, 3)"]),
    "terminated: one step": ({"terminated": FLAGS[:1]}, ValueError, ["terminated", "(1, 3)", "(4, 3)"]),
    "mask: a leading axis": ({"mask": FLAGS[None]}, ValueError, ["mask", "(1, 4, 3)", "(4, 3)"]),
    "last_advantages: shape": ({"last_advantages": ONES}, ValueError, ["last_advantages", "(4, 3)", "(3,)"]),
    "autoreset: unknown": ({"autoreset": "never"}, ValueError, ["autoreset", "'never'", "'next_step'", "'disabled'"]),
    "autoreset: number": ({"autoreset": 1}, ValueError, ["autoreset", "1", "'same_step'"]),
    "autoreset: next_step and final_values": (
        {**WITH_FINAL, "autoreset": "next_step"},
        ValueError,
        ["autoreset", "final_values", "leave"],
    ),
    "prev_done: no autoreset": ({"prev_done": ROW}, ValueError, ["prev_done", "next_step"]),
    "prev_done: shape": (
        {"prev_done": FLAGS, "autoreset": "next_step"},
        ValueError,
        ["prev_done", "(4, 3)", "without time", "(3,)"],
    ),
    "mask: shape": ({"mask": FLAGS[1:]}, ValueError, ["mask", "(3, 3)", "(4, 3)"]),
    "normalize: unknown": ({"normalize": "env"}, ValueError, ["normalize", "'env'", "'global'", "'per_env'"]),
    "normalize: True": ({"normalize": True}, ValueError, ["normalize", "True", "'global'"]),
    "normalize: no advantages": ({"normalize": "global", "out": (None, ONES.copy())}, ValueError, ["normalize", "out"]),
    "time_axis: 2": ({"time_axis": 2}, ValueError, ["time_axis", "2", "2 dimensions"]),
    "time_axis: 0.0": ({"time_axis": 0.0}, TypeError, ["time_axis", "integer", "0.0"]),
    "time_axis: the other one": ({"time_axis": 1}, ValueError, ["values", "(5, 3)", "(4, 3)", "(4, 4)"]),
    "num_threads: 0": ({"num_threads": 0}, ValueError, ["num_threads", "positive", "0"]),
    "num_threads: 1.5": ({"num_threads": 1.5}, (TypeError, ValueError), ["num_threads", "positive", "1.5"]),
    "backend: unknown": ({"backend": "cuda"}, ValueError, ["backend", "'cuda'", "leave it out"]),
    "backend: empty": ({"backend": ""}, ValueError, ["backend", "''", "cpp", "numba", "numpy"]),
    "backend: no such target": ({"backend": "cpp:avx9"}, ValueError, ["backend", "'cpp:avx9'", "cpp:baseline"]),
    "backend: target of numpy": ({"backend": "numpy:avx2"}, ValueError, ["backend", "'numpy:avx2'", "numpy"]),
    "backend: a number": ({"backend": 3}, (TypeError, ValueError), ["backend", "3", "cpp", "numba", "numpy"]),
}


def good(**changes):
    return {"rewards": ONES, "values": LONGER, "terminated": FLAGS, **changes}


def call(**changes):
    return lambda: fastgae.gae(**{**good(values=ONES, last_values=ROW), **changes})


def get(name):
    return lambda: getattr(fastgae, name)


def packed(boundaries, steps=9):
    return lambda: fastgae.gae_packed(np.ones(steps), np.ones(steps), boundaries)


def command(line, capsys):
    with pytest.raises(SystemExit):
        main(line.split())
    return capsys.readouterr().err


# What a user may well write, and what the message says to write instead.
NATURAL = [
    (call(normalize=True), "do you mean 'global'?"),
    (call(normalize="batch"), "do you mean 'global'?"),
    (call(normalize="env"), "do you mean 'per_env'?"),
    (call(normalize="per-env"), "do you mean 'per_env'?"),
    (call(normalize="GLOBAL"), "do you mean 'global'?"),
    (lambda: fastgae.normalize(ONES, by=True), "do you mean 'global'?"),
    (call(normalize_advantages=True), 'pass normalize, with "global" or "per_env"'),
    (call(backend="cuda"), "leave it out: fastgae chooses a backend for tensors on a GPU"),
    (call(backend="gpu"), "leave it out: fastgae chooses a backend for tensors on a GPU"),
    (call(backend="triton"), "fastgae chooses it for them: leave it out"),
    (call(backend="torch"), "leave it out: fastgae chooses a backend for torch tensors and JAX arrays"),
    (call(backend="jax"), "leave it out: fastgae chooses a backend for torch tensors and JAX arrays"),
    (call(backend="auto"), "leave it out: fastgae chooses a backend for NumPy arrays"),
    (call(backend="C++"), "do you mean 'cpp'?"),
    (call(backend="NumPy"), "do you mean 'numpy'?"),
    (call(backend="avx2"), "do you mean 'cpp:avx2'?"),
    (call(device="cuda"), "results are on the device of the first argument"),
    (call(mask=np.array([4, 2, 3])), "if these are lengths, pass mask=np.arange(4)[:, None] < mask"),
    (
        lambda: fastgae.gae(ONES.T, ONES.T, last_values=0.0, mask=np.array([4, 2, 3]), time_axis=1),
        "if these are lengths, pass mask=np.arange(4) < mask[:, None]",
    ),
    (packed(np.array([4, 2, 3])), "these are lengths: pass np.cumsum([0, *lengths])"),
    (packed(np.array([0, 4, 6])), "pass np.append(cu_seqlens, 9)"),
    (packed(np.array([0, 4, 6]), SHAPE), "gae takes a padded batch, with mask and time_axis=1"),
    (call(values=ONES[..., None]), "squeeze its last axis: values[..., 0]"),
    (call(values=LONGER[..., None], last_values=None), "squeeze its last axis: values[..., 0]"),
    (call(next_values=ONES[..., None], last_values=None), "squeeze its last axis: next_values[..., 0]"),
    (call(last_values=ROW[:, None]), "squeeze its last axis: last_values[..., 0]"),
    (call(rewards=ONES[..., None]), "squeeze the last axis of rewards: rewards[..., 0]"),
    (call(terminated=LONGER), "pass terminated[1:], else terminated[:-1]"),
    (
        call(rewards=ONES.T, values=ONES.T, terminated=LONGER.T, time_axis=1),
        "terminated[:, 1:], else terminated[:, :-1]",
    ),
    (call(truncated=LONGER, final_values=ONES), "pass truncated[1:], else truncated[:-1]"),
    (call(terminated=FLAGS.T), "its axes are in another order than those of rewards"),
    (call(values=ONES.T), "its axes are in another order than those of rewards"),
    (call(rewards=ONES.T, values=ONES.T, terminated=FLAGS.T), "it fits time_axis=1"),
    (call(terminated=np.full(SHAPE, 0.99)), "if these are discounts, pass terminated=discounts == 0 and their gamma"),
    (call(last_values=None), "pass last_values, next_values, or values with one more row"),
    (lambda: fastgae.gae(ONES, ONES, FLAGS, ROW), "pass last_values=..., and numbers such as gamma=..., by name"),
    (lambda: fastgae.gae(ONES, ONES, FLAGS, 0.99), "pass last_values=..., and numbers such as gamma=..., by name"),
    (lambda: fastgae.gae(ONES, ONES, FLAGS, None, ROW), "pass the others by name, which are last_values, next_values"),
    (lambda: fastgae.vtrace(ONES, ONES, FLAGS, None, ONES), "pass the others by name, which are ratios, last_values"),
    (lambda: fastgae.normalize(ONES, None, 0.0), "takes 2 positional arguments (advantages, mask), and 3 are given"),
    (call(lengths=ROW), "pass mask=np.arange(T)[:, None] < lengths; for sequences end to end, call gae_packed with"),
    (call(cu_seqlens=ROW), "call gae_packed, which takes sequences end to end"),
    (lambda: fastgae.gae(ONES, ONES, last_values=None), "if each env is one sequence, pass last_values"),
    (call(truncated=TRUNCATED), "pass final_values (V of the final observations), or next_values"),
    (call(terminated=None, truncated=TRUNCATED), "terminated is all False if no episode ended for good"),
    (call(truncated=TRUNCATED, final_values=ROW), "expected (2,), one per True of truncated"),
    (call(final_values=ROW), "final_values is given without truncated"),
    (call(autoreset=True), "do you mean 'next_step', Gymnasium's default?"),
    (call(autoreset="next-step"), "do you mean 'next_step'?"),
    (call(autoreset="same"), "do you mean 'same_step'?"),
    (call(gamma=99), "gamma must be in [0, 1]"),
    (call(gamma="0.99"), "gamma must be a number in [0, 1]"),
    (call(gamma=np.full(ENVS, 0.9)), "(1, 3) is one per env, (4, 1) one per step"),
    (call(lam=0.95), "pass gae_lambda"),
    (call(dones=FLAGS), "pass terminated, the flags that env.step returned"),
    (call(next_done=ROW), "np.concatenate([dones[1:], next_done[np.newaxis]])"),
    (call(out=ONES.copy()), "out must be a pair (advantages, returns)"),
    (get("compute_gae"), "call fastgae.gae; fastgae.compat has the functions of other libraries"),
    (get("GAE"), "call fastgae.gae; "),
    (get("lambda_returns"), "call fastgae.td_lambda; "),
    (get("compute_returns"), "call fastgae.discounted_returns; "),
    (get("whiten"), "call fastgae.normalize; "),
    (get("diagnos"), "call fastgae.diagnose"),
    ("comput episodes.parquet", "do you mean 'compute'?"),
    ("gae episodes.parquet", "do you mean 'compute'?"),
    ("compute episodes.parquet --lam 0.9", "do you mean '--gae-lambda'?"),
    ("compute episodes.parquet --output=x.parquet", "do you mean '--out'?"),
    ("diagnose rollout.npz --discount 0.9", "do you mean '--gamma'?"),
    ("diagnose rollout.npz --normalize per-env", "do you mean 'per_env'?"),
]


def test_the_message_of_a_natural_mistake_says_what_to_write(capsys):
    for mistake, advice in NATURAL:
        if isinstance(mistake, str):
            message = command(mistake, capsys)
        else:
            with pytest.raises((TypeError, ValueError, AttributeError)) as caught:
                mistake()
            message = str(caught.value)
        assert advice in message
    assert "do you mean" not in command("zzz", capsys)
    with pytest.raises(AttributeError, match=r"^module 'fastgae' has no attribute 'zzz'$"):
        get("zzz")()


def read_only(array):
    array.flags.writeable = False
    return array


SHARED = np.empty((STEPS + 1, ENVS), np.float32)
BAD_OUT = {
    "an array": (lambda a: np.stack([a, a]), TypeError, ["out", "pair", "ndarray"]),
    "three": (lambda a: (a, a.copy(), a.copy()), TypeError, ["out", "pair"]),
    "nothing": (lambda a: (None, None), ValueError, ["out", "(None, None)"]),
    "a list as an array": (lambda a: (a, a.tolist()), TypeError, ["out[1]", "NumPy array", "list"]),
    "masked": (lambda a: (a, np.ma.masked_array(a.copy())), TypeError, ["out[1]", "MaskedArray"]),
    "shape": (lambda a: (a, np.empty((3, 4), a.dtype)), ValueError, ["out[1]", "(3, 4)", "(4, 3)"]),
    "longer": (lambda a: (np.empty((5, 3), a.dtype), a), ValueError, ["out[0]", "(5, 3)", "(4, 3)"]),
    "dtype": (lambda a: (a, a.astype(np.float64)), TypeError, ["out[1]", "float64", "float32"]),
    "integers": (lambda a: (np.zeros(SHAPE, int), a), TypeError, ["out[0]", "int64", "float32"]),
    "read-only": (lambda a: (a, read_only(a.copy())), ValueError, ["out[1]", "read-only"]),
    "broadcast": (
        lambda a: (a, np.lib.stride_tricks.as_strided(a.copy(), SHAPE, (0, 4))),
        ValueError,
        ["out[1]", "broadcast"],
    ),
    "twice the same": (lambda a: (a, a), ValueError, ["out[0]", "out[1]", "share memory"]),
    "overlapping": (lambda a: (SHARED[1:], SHARED[:-1]), ValueError, ["out[0]", "out[1]", "share memory"]),
}


def assert_raises(error, words, arguments):
    with pytest.raises(error) as caught:
        fastgae.gae(**arguments)
    missing = [word for word in words if word not in str(caught.value)]
    assert not missing, f"{missing} not in {caught.value}"


@pytest.fixture(params=ONE_TARGET)
def backend(request):
    """Return one CPU target of each backend, because kernels check nothing."""
    return request.param


@pytest.mark.parametrize("bad", BAD)
def test_bad_input(backend, bad):
    changes, error, words = BAD[bad]
    fastgae.gae(**good(backend=backend))
    assert_raises(error, words, {**good(backend=backend), **changes})
    out = np.full((2, *SHAPE), 7.0, np.float32)
    assert_raises(error, words, {**good(backend=backend, out=(out[0], out[1])), **changes})
    assert (out == 7.0).all()


@pytest.mark.parametrize("bad", BAD_OUT)
def test_bad_out(backend, bad):
    make, error, words = BAD_OUT[bad]
    array = np.full(SHAPE, 7.0, np.float32)
    SHARED[:] = 7.0
    arguments = good(backend=backend)
    assert_raises(error, words, {**arguments, "out": make(array)})
    assert (array == 7.0).all()
    assert (SHARED == 7.0).all()
    np.testing.assert_array_equal(arguments["rewards"], 1.0)


@pytest.mark.parametrize("number", [np.float32(0.5), np.float64(0.5), np.array(0.5), True, 0, 1, np.int64(1)], ids=repr)
def test_numbers_that_may_be_gamma(backend, number):
    got = fastgae.gae(**good(gamma=number, gae_lambda=number, backend=backend))
    expected = fastgae.gae(**good(gamma=float(number), gae_lambda=float(number)))
    assert_same_bits(got.advantages, expected.advantages)


def test_a_huge_num_threads_is_only_an_upper_bound(backend):
    """As with any other number of threads, no backend may fail where another works."""
    assert_same_bits(fastgae.gae(**good(num_threads=2**70, backend=backend)).returns, fastgae.gae(**good()).returns)
