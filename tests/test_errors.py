"""Errors say what was given, what is expected, and what to write; test_bad_arguments.py has every bad argument."""

from functools import partial

import numpy as np
import pytest

import fastgae
from fastgae.cli.main import main
from fastgae.compat import cleanrl
from support.backends import ONE_TARGET
from support.bad_arguments import InCupy, InNumba, InWarp

STEPS, ENVS = 4, 3
SHAPE = (STEPS, ENVS)
ONES = np.ones(SHAPE, np.float32)
LONGER = np.ones((STEPS + 1, ENVS), np.float32)
ROW = np.ones(ENVS, np.float32)
FLAGS = np.zeros(SHAPE, bool)
TRUNCATED = FLAGS.copy()
TRUNCATED[1, 1] = TRUNCATED[3, 0] = True
RESULT = fastgae.gae(ONES, LONGER, FLAGS)


def good(**changes):
    return {"rewards": ONES, "values": LONGER, "terminated": FLAGS, **changes}


def call(**changes):
    return partial(fastgae.gae, **{**good(values=ONES, last_values=ROW), **changes})


def get(name):
    return lambda: getattr(fastgae, name)


def imported(module, name):
    return lambda: exec(f"from {module} import {name}")


def packed(boundaries, steps=9, **changes):
    return lambda: fastgae.gae_packed(np.ones(steps), np.ones(steps), boundaries, **{"gamma": 1.0, **changes})


def normalize(**changes):
    return lambda: fastgae.normalize(ONES, **changes)


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
    (normalize(by=True), "do you mean 'global'?"),
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
        lambda: fastgae.gae(ONES.T, ONES.T, None, last_values=0.0, mask=np.array([4, 2, 3]), time_axis=1),
        "if these are lengths, pass mask=np.arange(4) < mask[:, None]",
    ),
    (packed(np.array([4, 2, 3])), "these are lengths: pass np.cumsum([0, *lengths])"),
    (packed(np.array([0, 4, 6])), "pass np.append(cu_seqlens, 9)"),
    (packed(np.array([0, 4, 6]), SHAPE), "gae takes a padded batch, with mask and time_axis=1"),
    (packed([0, 1, 9], last_values=np.ones(4)), "expected one number, or one per sequence, (2,)"),
    (packed([0, 1, 9], gae_lambda=np.ones(2)), "one number, one per step, (9,), or one per sequence, (2, 1)"),
    (packed([0, 1, 9], normalize="per_env"), 'normalize must be "global" or None: packed sequences are not envs'),
    (normalize(mean=0.0), "mean is given without std: pass both, or neither"),
    (normalize(std=1.0), "std is given without mean: pass both, or neither"),
    (normalize(mean=0.0, std=-1.0), "std must not be negative, got -1.0"),
    (normalize(mean=0.0, std=1.0, by="per_env"), "and both are given: leave by out"),
    (normalize(mean=0.0, std=1.0, ddof=1), "and both are given: leave ddof out"),
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
    (
        lambda: fastgae.gae(ONES, ONES, None, last_values=None),
        "if each env is one sequence, pass last_values",
    ),
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
    (get("compute_gae"), "call fastgae.gae; as in the library of that name, it is in fastgae.compat.brax and"),
    (get("GAE"), "call fastgae.gae; "),
    (get("lambda_returns"), "call fastgae.td_lambda; "),
    (get("compute_returns"), "call fastgae.discounted_returns; "),
    (get("whiten"), "call fastgae.normalize; "),
    (get("diagnos"), "call fastgae.diagnose"),
    (call(rewards=1.0), "rewards is a scalar; expected an array with a time axis"),
    (call(rewards=np.ma.masked_array(ONES, FLAGS)), "its mask would be lost: pass a plain array"),
    (call(rewards=InCupy()), "is an array of cupy: pass a tensor, torch.from_dlpack(rewards)"),
    (call(values=InWarp()), "is an array of warp: pass a tensor, torch.from_dlpack(values)"),
    (call(values=InNumba()), "is an array of numba: pass a tensor, torch.as_tensor(values, device='cuda')"),
    (call(values=ONES[1:]), "expected rewards' shape (4, 3), or (5, 3) with V after the last step"),
    (call(values=LONGER), "given more than once: values with one extra row and last_values; keep one"),
    (call(values=LONGER, last_values=None, next_values=ONES), "one extra row and next_values; keep one"),
    (call(next_values=ONES), "given more than once: last_values and next_values; keep one"),
    (
        call(last_values=np.ones(4)),
        "one number, or rewards' shape with one step, (1, 3), or without time, (3,)",
    ),
    (call(terminated=None, values=LONGER, last_values=None), "pass terminated, the flags of the steps that ended"),
    (call(terminated=None, last_values=None), "last_values is missing: pass terminated"),
    (call(terminated=None, autoreset="next_step"), "pass terminated, because the reset rows follow its flags"),
    (call(terminated=FLAGS + 0.5), "terminated must hold 0 or 1, got 0.5 at index (0, 0)"),
    (call(truncated=FLAGS), "values[t + 1] may belong to another episode"),
    (call(truncated=FLAGS, final_values=ONES, last_values=None, next_values=ONES), "after a truncated step: keep one"),
    (call(gamma=[[0.9, 1.5, 1]]), "gamma must be in [0, 1], got 1.5 at index (0, 1)"),
    (call(gamma=np.full(3, 0.9, np.float16)), "is another number: pass float32 or float64"),
    (call(returns_lambda=1.0, last_advantages=ROW), "and returns_lambda is another: call once for each"),
    (call(returns_lambda=1.0, tail_normalized=True), "returns_lambda has no tail-normalized form: call once for each"),
    (call(carry_over=True, normalize="global"), "call fastgae.normalize afterwards"),
    (call(carry_over=True, tail_normalized=True), "carry_over has no tail-normalized form: call once for each"),
    (call(normalize="global", out=(None, ONES.copy())), "normalize changes only the advantages, and out has no array"),
    (call(autoreset="never"), "autoreset must be one of 'next_step', 'same_step', 'disabled', the member of"),
    (call(truncated=FLAGS, final_values=ONES, autoreset="next_step"), "in values: leave final_values out"),
    (call(prev_done=ROW), 'row 0 is a reset row, and only autoreset="next_step" has reset rows'),
    (call(time_axis=2), "time_axis=2 is out of range for rewards with 2 dimensions"),
    (call(num_threads=0), "num_threads must be a positive integer, got 0"),
    (
        call(backend="cpp:avx9"),
        "numba, numpy, cpp:avx512, cpp:avx2, cpp:baseline, triton; do you mean 'cpp:avx2'?",
    ),
    (call(backend="numpy:avx2"), "do you mean 'numpy'?"),
    (lambda: fastgae.gae(ONES, ONES), "terminated': pass the flags of the steps that ended an episode"),
    (lambda: fastgae.gae(ONES, ONES), "or None if no step ends one, as among the tokens of an answer"),
    (
        lambda: fastgae.gae_packed(ROW, ROW, [0, 3]),
        "gamma': pass the discount factor, which is 1.0 in most trainers of",
    ),
    (lambda: fastgae.gae(ONES, FLAGS != 0, ONES / 2, last_values=0.0), "did you swap values and terminated?"),
    (lambda: fastgae.gae(ONES, np.eye(4, 3), ONES / 2, last_values=0.0), "did you swap values and terminated?"),
    (lambda: fastgae.discounted_returns(ONES, 0.99), "terminated is one number, 0.99"),
    (lambda: fastgae.discounted_returns(ONES, FLAGS, 0.99), "pass numbers such as gamma=... by name"),
    (call(rewards={"rewards": ONES}), "rewards is of type dict; expected an array of NumPy, torch or JAX, or a list"),
    (call(values=lambda states: states), "values is of type function; expected an array of NumPy, torch or JAX, or"),
    (call(values=lambda states: states), "call it, and pass what it returns"),
    (call(terminated={1.0}), "terminated is of type set; expected an array"),
    (call(values=RESULT), "values is a GAEResult, which holds two arrays: pass one, such as result.advantages"),
    (lambda: fastgae.normalize(RESULT), "advantages is a GAEResult, which holds two arrays: pass one, such as"),
    (lambda: fastgae.moments(RESULT), "advantages is a GAEResult, which holds two arrays: pass one, such as"),
    (lambda: fastgae.diagnose(RESULT), "'values': pass the arguments of a call of gae, and not its result"),
    (lambda: fastgae.group_advantages(ONES, ROW), "groups has shape (3,); expected rewards' shape, (4, 3)"),
    (lambda: cleanrl.compute_gae(ONES), "compute_gae() is missing the arguments 'values', 'dones', 'next_value'"),
    (
        lambda: fastgae.gae(ONES, LONGER, None, mask=FLAGS == 0),
        "pass it instead of next_values or of the last row of values",
    ),
    (get("torch"), "functions take and return arrays of NumPy, torch and JAX as they are"),
    (get("RolloutBuffer"), "as in the library of that name, it is in fastgae.compat.stable_baselines3"),
    (
        get("compute_gae_advantage_return"),
        "call fastgae.gae; as in the library of that name, it is in fastgae.compat.verl",
    ),
    (imported("fastgae", "GAE"), "it is in fastgae.compat.labml and fastgae.compat.torchrl"),
    (imported("fastgae", "compute_gae"), "call fastgae.gae; as in the library of that name, it is in"),
    (imported("fastgae.compat", "sb3"), "use fastgae.compat.stable_baselines3"),
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
            assert advice in command(mistake, capsys), advice
            continue
        of_any_backend = isinstance(mistake, partial) and "backend" not in mistake.keywords
        for how in [{"backend": each} for each in ONE_TARGET] if of_any_backend else [{}]:
            with pytest.raises((TypeError, ValueError, AttributeError, ImportError)) as caught:
                mistake(**how)
            assert advice in str(caught.value), advice
    assert "do you mean" not in command("zzz", capsys)
    with pytest.raises(AttributeError, match=r"^module 'fastgae' has no attribute 'zzz'$"):
        get("zzz")()
