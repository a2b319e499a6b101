"""The natural mistakes of a user who comes from another library, and what each message must contain."""

from functools import partial

import numpy as np

import fastgae
from fastgae._interop.arrays import BFLOAT16
from fastgae.compat import cleanrl
from support.bad_arguments import InCupy, InNumba, InWarp

STEPS, ENVS = 4, 3
SHAPE = (STEPS, ENVS)
ONES = np.ones(SHAPE, np.float32)
LONGER = np.ones((STEPS + 1, ENVS), np.float32)
ROW = np.ones(ENVS, np.float32)
FLAGS = np.zeros(SHAPE, bool)
TRUNCATED = FLAGS.copy()
TRUNCATED[1, 1] = TRUNCATED[3, 0] = True
LENGTHS = np.array([4, 2, 3])
RESULT = fastgae.gae(ONES, LONGER, FLAGS)
ARE_LENGTHS = "if these are lengths, pass mask=np.arange(4)"
AN_ARRAY = "expected an array of NumPy, torch or JAX, or a list"
IN_COMPAT = "as in the library of that name, it is in fastgae.compat"


def call(**changes):
    good = {"rewards": ONES, "values": ONES, "terminated": FLAGS, "last_values": ROW}
    return partial(fastgae.gae, **{**good, **changes})


def env_major(**changes):
    return call(**{"rewards": ONES.T, "values": ONES.T, "time_axis": 1, **changes})


def get(name):
    return lambda: getattr(fastgae, name)


def estimate(function, **changes):
    return lambda: getattr(fastgae, function)(ONES, ONES, FLAGS, last_values=ROW, **changes)


def square(**changes):
    """Return a call in which a vector could be of the steps or of the envs."""
    ones = np.ones((4, 4))
    good = {"rewards": ones, "values": ones, "terminated": ones == 0, "last_values": 0.0}
    return partial(fastgae.gae, **{**good, **changes})


def imported(module, name):
    return lambda: exec(f"from {module} import {name}")


def packed(boundaries, steps=9, **changes):
    return lambda: fastgae.gae_packed(np.ones(steps), np.ones(steps), boundaries, **{"gamma": 1.0, **changes})


def tree(**changes):
    given = {"rewards": np.zeros(5), "values": np.zeros(5), "parents": [-1, 0, 1, 1, 0], "terminated": None}
    return partial(fastgae.gae_tree, **{**given, "gamma": 0.9, **changes})


def normalize(**changes):
    return lambda: fastgae.normalize(ONES, **changes)


def groups(labels=(0, 0, 1, 1), **changes):
    return lambda: fastgae.group_advantages(np.ones(4), labels, **changes)


# What a user may well write, and what the message says to write instead.
CALLS = [
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
    (call(mask=LENGTHS), f"{ARE_LENGTHS}[:, None] < mask"),
    (
        env_major(terminated=None, last_values=0.0, mask=LENGTHS),
        f"{ARE_LENGTHS} < mask[:, None]",
    ),
    (call(terminated=LENGTHS), "it has one number per env, and one per step is needed"),
    (
        lambda: fastgae.gae(ONES.T, ONES.T, None, last_values=0.0, mask=ROW[:, None] == 1, time_axis=1),
        "it has one number per env, and one per step is needed",
    ),
    (
        lambda: fastgae.gae(ONES[:1], ONES[:1], ONES[:1], ONES[:1]),
        "the value after the last step is missing: pass last_values, next_values, or values with one more row along",
    ),
    (call(last_values=None), "; where that step terminated an episode, the value is not read: pass 0"),
    (packed(LENGTHS), "these are lengths: pass np.cumsum([0, *lengths])"),
    (packed(np.array([0, 4, 6])), "pass np.append(cu_seqlens, 9)"),
    (packed(np.array([0, 4, 6]), SHAPE), "gae takes a padded batch, with mask and time_axis=1"),
    (packed([0, 1, 9], last_values=np.ones(4)), "expected one number, or one per sequence, (2,)"),
    (packed([0, 1, 9], gae_lambda=np.ones(2)), "one number, one per step, (9,), or one per sequence, (2, 1)"),
    (packed(np.r_[0, 1, 9], normalize="per_env"), 'normalize must be "global" or None: packed sequences are not envs'),
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
    (call(rewards=ONES[..., None], values=ONES[..., None]), "squeeze the last axis of rewards: rewards[..., 0]"),
    (partial(fastgae.gae, ONES[:, :1], ONES[:, :1], FLAGS[:, :1], last_values=ONES[:, 0]), "it fits time_axis=1"),
    (call(terminated=LONGER), "pass terminated[1:], else terminated[:-1]"),
    (env_major(terminated=LONGER.T), "terminated[:, 1:], else terminated[:, :-1]"),
    (call(mask=LONGER), "it has a row too many: pass mask[1:] or mask[:-1]"),
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
    (lambda: fastgae.gae(ONES, ONES, None, last_values=None), "if each env is one sequence, pass last_values"),
    (call(truncated=TRUNCATED), "pass final_values (V of the final observations), or next_values"),
    (call(terminated=None, truncated=TRUNCATED), "terminated is all False if no episode ended for good"),
    (call(truncated=TRUNCATED, final_values=ROW), "expected (2,), one per True of truncated"),
    (call(final_values=ROW), "final_values is given without truncated"),
    (call(final_values=ROW), "pass truncated too, or leave final_values out"),
    (call(autoreset=True), "do you mean 'next_step', Gymnasium's default?"),
    (call(autoreset="next-step"), "do you mean 'next_step'?"),
    (call(autoreset="same"), "do you mean 'same_step'?"),
    (call(gamma=99), "gamma must be in [0, 1]"),
    (call(gamma=np.full(ENVS, 0.9)), "(1, 3) is one per env, (4, 1) one per step"),
    (call(lam=0.95), "pass gae_lambda"),
    (call(dones=FLAGS), "pass terminated, the flags that env.step returned"),
    (call(next_done=ROW), "np.concatenate([dones[1:], next_done[np.newaxis]])"),
    (get("compute_gae"), f"call fastgae.gae; {IN_COMPAT}.brax and"),
    (get("GAE"), "call fastgae.gae; "),
    (get("lambda_returns"), "call fastgae.td_lambda; "),
    (get("compute_returns"), "call fastgae.discounted_returns; "),
    (get("whiten"), "call fastgae.normalize; "),
    (get("diagnos"), "call fastgae.diagnose"),
    (get("identify"), "call fastgae.testing.identify; "),
    (call(rewards=1.0), "rewards is a scalar; expected an array with a time axis"),
    (call(rewards=np.ma.masked_array(ONES, FLAGS)), "its mask would be lost: pass a plain array"),
    (call(rewards=InCupy()), "is an array of cupy: pass a tensor, torch.from_dlpack(rewards)"),
    (call(values=InWarp()), "is an array of warp: pass a tensor, torch.from_dlpack(values)"),
    (call(values=InNumba()), "is an array of numba: pass a tensor, torch.as_tensor(values, device='cuda')"),
    (call(values=ONES[1:]), "expected rewards' shape (4, 3), or (5, 3) with V after the last step"),
    (call(values=LONGER), "given more than once: values with one extra row and last_values; keep one"),
    (call(values=LONGER, last_values=None, next_values=ONES), "one extra row and next_values; keep one"),
    (call(next_values=ONES), "given more than once: last_values and next_values; keep one"),
    (call(last_values=np.ones(4)), "one number, or rewards' shape with one step, (1, 3), or without time, (3,)"),
    (call(terminated=None, values=LONGER, last_values=None), "pass terminated, the flags of the steps that ended"),
    (call(terminated=None, last_values=None), "last_values is missing: pass terminated"),
    (call(terminated=None, autoreset="next_step"), "pass terminated, because the reset rows follow its flags"),
    (call(terminated=FLAGS + 0.5), "terminated must hold 0 or 1, got 0.5 at index (0, 0)"),
    (call(truncated=FLAGS), "values[t + 1] may belong to another episode"),
    (call(truncated=FLAGS, final_values=ONES, last_values=None, next_values=ONES), "after a truncated step: keep one"),
    (call(gamma=[[0.9, 1.5, 1]]), "gamma must be in [0, 1], got 1.5 at index (0, 1)"),
    (call(gamma=np.full(3, 0.9, np.float16)), "is another number: pass float32 or float64"),
    (call(gamma=np.zeros(3, BFLOAT16)), "in which 0.99 is another number: pass float32 or float64"),
    (call(returns_lambda=1.0, last_advantages=ROW), "and returns_lambda is another: call once for each"),
    (call(returns_lambda=1.0, tail_normalized=True), "returns_lambda has no tail-normalized form: call once for each"),
    (call(tail_normalized=True, last_advantages=ROW), "pass them, and leave last_advantages out"),
    (call(carry_over=True, normalize="global"), "call fastgae.normalize afterwards"),
    (call(carry_over=True, tail_normalized=True), "carry_over has no tail-normalized form: call once for each"),
    (call(normalize="global", out=(None, ONES.copy())), "normalize changes only the advantages, and out has no array"),
    (call(autoreset="never"), "autoreset must be one of 'next_step', 'same_step', 'disabled', the member of"),
    (call(truncated=FLAGS, final_values=ONES, autoreset="next_step"), "in values: leave final_values out"),
    (call(prev_done=ROW), 'row 0 is a reset row, and only autoreset="next_step" has reset rows'),
    (call(time_axis=2), "time_axis=2 is out of range for rewards with 2 dimensions"),
    (call(num_threads=0), "num_threads must be a positive integer, got 0"),
    (call(backend="cpp:avx9"), "numba, numpy, cpp:avx512, cpp:avx2, cpp:baseline; do you mean 'cpp:avx2'?"),
    (call(backend="numpy:avx2"), "do you mean 'numpy'?"),
    (lambda: fastgae.gae(ONES, ONES), "terminated': pass the flags of the steps that ended an episode"),
    (lambda: fastgae.gae(ONES, ONES), "or None if no step ends one, as among the tokens of an answer"),
    (lambda: fastgae.gae_packed(ROW, ROW, [0, 3]), "gamma': pass the discount factor, which is 1.0 in most trainers"),
    (lambda: fastgae.gae(ONES, FLAGS != 0, ONES / 2, last_values=0.0), "did you swap values and terminated?"),
    (lambda: fastgae.gae(ONES, np.eye(4, 3), ONES / 2, last_values=0.0), "did you swap values and terminated?"),
    (lambda: fastgae.discounted_returns(ONES, 0.99), "terminated is one number, 0.99"),
    (lambda: fastgae.discounted_returns(ONES, FLAGS, 0.99), "expected rewards' shape, (4, 3): pass numbers by name"),
    (lambda: fastgae.normalize(ONES, 0.5), "expected advantages' shape, (4, 3): pass numbers by name"),
    (lambda: fastgae.discounted_returns(ONES, FLAGS, FLAGS), "truncated is given, but the value after a truncated"),
    (call(rewards={"rewards": ONES}), f"rewards is of type dict; {AN_ARRAY}"),
    (call(values=len), f"{AN_ARRAY}: call it, and pass what it returns"),
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
    (get("RolloutBuffer"), f"{IN_COMPAT}.stable_baselines3"),
    (get("compute_gae_advantage_return"), f"call fastgae.gae; {IN_COMPAT}.verl"),
    (imported("fastgae", "GAE"), "it is in fastgae.compat.labml and fastgae.compat.torchrl"),
    (imported("fastgae", "compute_gae"), "call fastgae.gae; as in the library of that name, it is in"),
    (imported("fastgae.compat", "sb3"), "use fastgae.compat.stable_baselines3"),
    # names of other libraries, and words that are no arguments
    (call(done=FLAGS), "pass terminated, the flags that env.step returned with rewards"),
    (call(next_value=ROW), "pass last_values, V after the last step"),
    (call(lambda_=0.9), "pass gae_lambda"),
    (call(nonterminal=FLAGS), "pass terminated, which is 1 - nonterminal"),
    (call(last_done=ROW), "np.concatenate([dones[1:], last_done[np.newaxis]])"),
    (call(gae_gamma=0.9), "pass gamma"),
    (call(gama=0.9), "do you mean gamma?"),
    (call(tim=0), "it takes rewards, values, terminated"),
    (call(time_limits=FLAGS), "pass truncated"),
    (call(next_obs=ROW), "pass V of the next observations, as next_values"),
    (call(infos=[]), "pass V of the final observations of truncated steps, as final_values"),
    (call(final_observation=ROW), "pass V of the final observations of truncated steps, as final_values"),
    (call(episode_starts=FLAGS), "pass the flags of row t + 1"),
    (call(bad_masks=FLAGS), "pass truncated, where the bad_masks of row t + 1 are 0, and V after these steps as"),
    (call(value_normalizer=None), "pass values in units of the rewards, scaled back"),
    (call(length=2), "for padded arrays, pass mask=np.arange(T)[:, None] < lengths; "),
    (call(masks=FLAGS), "pass mask, True where the step exists. If masks is 1 - done"),
    (call(attention_mask=FLAGS), "pass mask, True where the policy wrote the token"),
    (call(batch_first=True), "pass time_axis, 1 for arrays of shape (N, T)"),
    (call(advantages=ONES), "it is a result; out takes arrays to fill"),
    (call(returns=ONES), "it is a result; out takes arrays to fill"),
    (call(log_probs=ONES), "vtrace and retrace take ratios, exp of a difference"),
    (call(n_steps=4), "rewards say how many steps there are; n_step_returns takes n"),
    (call(num_envs=3), "rewards say how many envs there are"),
    (call(eps=1e-5), "fastgae.normalize takes another eps"),
    (call(num_workers=4), "pass num_threads"),
    (call(dtype=np.float32), "results have the dtype of the arguments"),
    (lambda: fastgae.td_lambda(ONES, ONES, FLAGS, gae_lambda=0.9), "pass lambda_"),
    (lambda: fastgae.upgo(ONES, ONES, FLAGS, done=FLAGS), "pass terminated"),
    (estimate("upgo", gae_lambda=0.9), "there is no lambda in it; gae, td_lambda and vtrace have"),
    (lambda: fastgae.retrace(ONES, ONES, FLAGS, last_values=ROW), "is the last row of next_values"),
    (lambda: fastgae.discounted_returns(ONES, FLAGS, values=ONES), "it needs no values; gae, td_lambda and n_step"),
    (lambda: fastgae.vtrace(ONES, ONES, FLAGS, log_rhos=ONES), "pass ratios, exp of the logarithms"),
    (lambda: fastgae.valid_steps(FLAGS, done=FLAGS), "pass terminated"),
    (lambda: fastgae.valid_steps(FLAGS, qqq=1), "it takes terminated, truncated, prev_done, time_axis"),
    (lambda: fastgae.diagnose(ONES, LONGER, FLAGS, discount=0.9), "pass gamma"),
    (lambda: fastgae.moments(ONES, response_mask=FLAGS), "pass mask"),
    (packed([0, 9], lengths=[9]), "pass cu_seqlens, where each sequence begins"),
    (normalize(axis=0), "pass time_axis"),
    (normalize(correction=0), "pass ddof"),
    (normalize(unbiased=True), "pass ddof, 1 for True and 0 for False"),
    (groups(num_generations=2), "a label for each answer: np.arange(len(rewards)) // num_generations"),
    (groups(prompts=[0, 0, 1, 1]), "pass groups"),
    (groups(index=[0, 0, 1, 1]), "pass groups"),
    (groups(epsilon=1e-4), "pass eps"),
    (tree(parent_idx=[-1, 0, 1, 1, 0]), "pass parents"),
    (groups(scale_rewards=True), "pass scale"),
    (get("grpo"), "call fastgae.group_advantages; "),
    (get("vtrace_returns"), "call fastgae.vtrace; "),
    (imported("fastgae.compat", "ppo"), "it has brax, cleanrl, envpool"),
    (lambda: fastgae.testing.check, "it has ROLES, Identified, assert_gae, identify"),
    # missing and None
    (lambda: fastgae.gae(), "'rewards', 'values', 'terminated': pass the reward of every step"),
    (lambda: fastgae.gae(ONES), "'values', 'terminated': pass V of the observation of every step"),
    (call(values=None), "'values': pass V of the observation of every step; without a critic, call discounted_returns"),
    (lambda: fastgae.n_step_returns(ONES, ONES, FLAGS, 5, last_values=ROW), "'n': pass the number of rewards in each"),
    (estimate("vtrace"), "'ratios': pass exp(log_prob - log_prob of the policy"),
    (lambda: fastgae.retrace(ONES, ONES, FLAGS, ratios=ONES), "'next_values': pass V of the next observation"),
    (lambda: fastgae.retrace(ONES), "'values', 'terminated', 'next_values', 'ratios': pass Q of the action of every"),
    (lambda: fastgae.group_advantages(), "'rewards', 'groups': pass the reward of every answer"),
    (tree(parents=[None, 0, 1, 1, 0]), "expected integers, with -1 at a root"),
    (tree(values=None), "'values': pass V before every node, or 0.0 if there is no critic"),
    (lambda: fastgae.reverse_scan(ONES), "'decay': pass what y_{t+1} is multiplied by"),
    (lambda: fastgae.group_advantages(ROW), "'groups': pass one label per answer"),
    (lambda: fastgae.normalize(), "'advantages': pass the advantages of every step"),
    (packed(None), "'cu_seqlens': pass where each sequence begins and the last one ends"),
    (packed([0, 9], gamma=None), "'gamma': pass the discount factor"),
    (call(gamma=None), "gamma must be a number in [0, 1], or an array of them, got None"),
    (lambda: fastgae.discounted_returns(ONES, FLAGS), "pass last_values, V of the state after it, or next_values"),
    # shapes
    (call(last_values=LONGER), "it has one number per step: pass one row, such as last_values[-1]"),
    (call(last_values=ONES), "it has one number per step: pass one row, such as last_values[-1]"),
    (call(next_values=ROW, last_values=None), "it has one number per env, and one per step is needed"),
    (call(next_values=LONGER, last_values=None), "a row too many: pass next_values[1:] or next_values[:-1]"),
    (tree(values=np.zeros(6)), "it has a row too many: pass values[:-1]"),
    (call(terminated=FLAGS[:, 0]), "for all envs together: pass terminated[:, None]"),
    (call(terminated=False), "if it holds for all steps, pass np.full((4, 3), False)"),
    (call(truncated=True), "if it holds for all steps, pass np.full((4, 3), True)"),
    (call(values=0.0), "if all are alike, pass np.full((4, 3), values)"),
    (call(autoreset="next_step", prev_done=FLAGS), "it has one number per step: pass one row, such as prev_done[-1]"),
    (
        call(rewards=[[1.0, 2.0], [1.0]]),
        "rewards has rows of different lengths: pad them and pass mask, or join them with np.concatenate(rewards), as",
    ),
    (packed([[0, 9]]), "cu_seqlens has shape (1, 2); expected (sequences + 1,)"),
    (packed([0, 5, 3, 9]), "cu_seqlens must rise from 0 to the number of steps, 9, got [0, 5, 3, 9]"),
    (packed([0, 9], mask=np.ones(4)), "mask has shape (4,); expected rewards' shape, (9,)"),
    (groups(2), "for groups of this size, pass np.arange(4) // groups"),
    (lambda: fastgae.group_advantages(ONES, 3), "of this size, pass np.arange(12).reshape((4, 3)) // groups"),
    # types and numbers
    (call(rewards="rewards.npy"), f"rewards is text, 'rewards.npy'; {AN_ARRAY}"),
    (
        call(rewards=ONES.astype(object)),
        "rewards has dtype object; expected floats of 16, 32 or 64 bits, or integers: ",
    ),
    (call(rewards=[[1, "a", 2]] * 4), "convert it first, np.array(rewards, float)"),
    (call(rewards=[{"a": 1.0, "b": 0.0}] * 4), "rewards holds dicts: pass one array, [each['a'] for each in rewards]"),
    (
        lambda: fastgae.group_advantages(np.ones((2, 3)), [0, 1]),
        "groups has shape (2,); expected rewards' shape, (2, 3); if a row of rewards holds the tokens of one answer,",
    ),
    (lambda: fastgae.group_advantages(np.ones((2, 3)), [0, 1]), "to one prompt, np.repeat(groups, 3).reshape((2, 3))"),
    (call(values=iter([1.0])), f"values is of type list_iterator; {AN_ARRAY}"),
    (call(terminated=np.full(SHAPE, np.nan)), "terminated must hold 0 or 1, got nan at index (0, 0)"),
    (call(gamma=95.0), "do you mean 0.95?"),
    (call(gae_lambda=-0.1), "gae_lambda must be in [0, 1], got -0.1"),
    (call(time_axis="time"), "time_axis must be an integer, got 'time'"),
    (call(num_threads="4"), "num_threads must be a positive integer, got '4'"),
    (call(stop_gradients="no"), "stop_gradients must be True or False, got 'no'"),
    (call(out=(ONES.copy(),)), "out must be a pair (advantages, returns), of which either may be None, got tuple of 1"),
    (call(out=np.ones((2, *SHAPE), np.float32)), "of which either may be None, got one array"),
    (call(out=(RESULT.returns, RESULT.returns)), "out[0] and out[1] share memory: pass two arrays"),
    (call(out=(np.ones(SHAPE), None)), "out[0] has dtype float64; expected the working dtype float32"),
    (call(normalize=False), "do you mean None?"),
    (call(normalize="none"), "do you mean None?"),
    (call(autoreset=False), "do you mean None?"),
    (call(autoreset="partial"), "do you mean 'disabled'?"),
    (call(backend=np), "backend must be one of cpp, numba, numpy"),
    (groups(baseline="loo"), "do you mean 'leave_one_out'?"),
    (groups(baseline=True), "baseline must be one of 'mean', 'leave_one_out', 'none', got True"),
    (groups(scale=True), "do you mean 'std'?"),
    (groups([0.0, 0.0, 1.0, 1.0]), "groups has a label of type float: pass integers or strings"),
    (groups([np.float32(1), 1, 2, 2]), "groups has a label of type float32"),
    (groups([[1], [1], [2], [2]]), "groups has a label"),
    (groups(baseline=[0.5, 0.1]), "baseline has shape (2,); expected one number, or rewards' shape, (4,)"),
    (normalize(eps=-1), "eps must be a finite number >= 0, got -1.0"),
    (normalize(out=ONES.T.copy()), "out has shape (3, 4); expected advantages' shape, (4, 3)"),
    (estimate("n_step_returns", n=2.0), "n must be a positive integer, got 2.0"),
    (estimate("vtrace", ratios=ONES, rho_clip=-1), "rho_clip must be a number >="),
    (
        lambda: fastgae.discounted_returns(ONES, FLAGS, last_values=ROW, next_values=ONES),
        "given more than once: last_values and next_values; keep one",
    ),
    (lambda: fastgae.testing.identify(3), "identify takes a function, and got int"),
]

# What raises a ValueError.
WRONG_VALUES = [
    (lambda: fastgae.diagnose(ONES, ONES, None), "last_values is missing: pass terminated"),
    (lambda: fastgae.diagnose(ONES, ONES, None, next_values=ONES), "pass it instead of next_values"),
    (lambda: fastgae.discounted_returns(ONES, None), "V of the state after its last step: 0 if it ended for good"),
    (
        lambda: fastgae.discounted_returns(ONES, None, truncated=FLAGS, final_values=ONES, last_values=0.0),
        "terminated=None says that no step ends an episode, but truncated is given",
    ),
    (square(gamma=np.ones(4)), "(1, 4) is one per env, (4, 1) one per step"),
    (square(gae_lambda=[0.5] * 4, time_axis=1), "(4, 1) is one per env, (1, 4) one per step"),
    (square(terminated=np.zeros((1, 4))), "terminated has shape (1, 4)"),  # flags are of every step
    (square(mask=np.ones((4, 1)), time_axis=1), "mask has shape (4, 1)"),
    (square(last_values=np.ones((4, 1))), "one number, or rewards' shape with one step, (1, 4), or without time, (4,)"),
    (lambda: fastgae.reverse_scan(np.ones((4, 4)), np.full(4, 2.0)), "decay has shape (4,)"),
    (tree(parents=[-1, 0, 3, 1, 0]), "parents has 3 at node 2, and each parent must come before its children; sort"),
    (tree(parents=[0, 0, 1, 1, 0]), "each parent must come before its children; pass -1 at a root"),
    (tree(rewards=ONES), "rewards has shape (4, 3); expected one dimension, all nodes of all trees"),
    (tree(parents=[-1, 0, 5, 1, 0]), "indices of nodes, 0 to 4, got 5 at node 2"),
    (tree(parents=[-1, 0, -2, 1, 0]), "got -2 at node 2"),
    (tree(terminated=[0, 1, 0, 0, 0]), "terminated is True at node 1, which has children"),
    (tree(weights=[1, 1, 0, 0, 1]), "weights are 0 at all children of node 1"),
    (tree(weights=[1, 1e308, 1, 1, 1e308]), "weights are too large to add up at the children of node 0"),
    (tree(weights=[1, 1, -1, 0, 1]), "weights must be finite and not negative, got -1.0 at node 2"),
    (tree(weights="visits"), "weights must be one of 'children', 'leaves', or an array with one number per node"),
    (tree(last_values=[1.0, 2.0]), "expected one number, or one per node, (5,), or one per leaf, (3,)"),
    (tree(normalize="per_env"), 'normalize must be "global" or None: the nodes of trees are not envs'),
]

# Lines of the command, which fail before any file is read.
COMMANDS = [
    ("comput episodes.parquet", "do you mean 'compute'?"),
    ("gae episodes.parquet", "do you mean 'compute'?"),
    ("lint rollout.npz", "do you mean 'diagnose'?"),
    ("-v", "do you mean '--version'?"),
    ("compute", "the following arguments are required: SOURCE, as in `fastgae compute "),
    ("diagnose", "the following arguments are required: SOURCE, as in `fastgae diagnose "),
    ("--json info", "put it behind 'fastgae info'"),
    ("compute episodes.parquet --lam 0.9", "do you mean '--gae-lambda'?"),
    ("compute episodes.parquet --gae_lambda 0.9", "do you mean '--gae-lambda'?"),
    ("compute episodes.parquet --output=x.parquet", "do you mean '--out'?"),
    ("compute episodes.parquet --o x.parquet", "do you mean '--out'?"),
    ("compute episodes.parquet --columns rewards=r", "do you mean '--column'?"),
    ("compute episodes.parquet --dones done", "do you mean '--column terminated=NAME'?"),
    ("compute episodes.parquet --backend numba", "set FASTGAE_BACKEND"),
    ("compute episodes.parquet --num-threads 4", "set FASTGAE_NUM_THREADS"),
    ("compute episodes.parquet --gamma 0,99", "argument --gamma: expected a number in [0, 1], got '0,99'"),
    ("compute episodes.parquet --gamma", "argument --gamma: expected one argument"),
    ("compute episodes.parquet --normalize yes", "invalid choice: 'yes' (choose from"),
    ("compute episodes.parquet --normalize advantages", "choose from 'global') (see fastgae compute --help)"),
    ("compute episodes.parquet --ends done", "argument --ends: invalid choice: 'done' (choose from"),
    ("compute episodes.parquet --estimator n_step_returns --n five", "--n: expected a positive integer, got 'five'"),
    ("diagnose rollout.npz --discount 0.9", "do you mean '--gamma'?"),
    ("diagnose rollout.npz --normalize per-env", "do you mean 'per_env'?"),
    ("diagnose rollout.npz --autoreset same", "do you mean 'same_step'?"),
    ("diagnose rollout.npz --batch-first", "do you mean '--time-axis'?"),
    ("diagnose rollout.npz --time-axis one", "argument --time-axis: invalid int value: 'one'"),
    ("info --jsn", "do you mean '--json'?"),
    ("info cpp", "it lists every backend, and FASTGAE_BACKEND=cpp chooses one"),
    ("demo CartPole-v1", "do you mean '--env CartPole-v1'?"),
    ("demo --game CartPole-v1", "do you mean '--env'?"),
    ("demo --steps 5", "do you mean '--num-steps'?"),
    ("--print-completion powershell", "invalid choice: 'powershell' (choose from"),
]

# Lines of the command with files, which the test writes.
ON_FILES = [
    ("compute *.json", "source '*.json' does not exist"),
    (
        "compute table.csv",
        "there is no column 'rewards' for rewards; there are reward, values, done: pass --column rewards=reward",
    ),
    (
        "compute table.csv --estimator vtrace",
        "--estimator must be one of gae, discounted_returns, n_step_returns, got 'vtrace'",
    ),
    ("compute table.csv --estimator n_step_returns", "--n must be a positive integer with --estimator n_step_returns"),
    ("diagnose rollout.npz --memory lots", "argument --memory: expected an amount of memory such as 256MB, got 'lots'"),
    ("compute table.csv --column rewards=a --column rewards=b", "--column rewards=NAME is given 2 times: pass it once"),
    (
        "compute table.csv --format sb3",
        "--format must be one of auto, table, rllib, lerobot, minari, d4rl, robomimic, got 'sb3'",
    ),
    ("compute table.csv --rewards r", "--rewards must be COLUMN:STEP:FAILURE, such as success:-1:100"),
    ("compute text.parquet", "text.parquet cannot be read: "),
    ("compute .", "pass files of one kind"),
    ("diagnose nothing.npz", "cannot read nothing.npz: No such file"),
    ("diagnose swapped.npz", "its axes are in another order than those of rewards"),
    ("diagnose rollout.npz --time-axis 5", "time_axis=5 is out of range for rewards with 2 dimensions"),
]


def in_torch(torch):
    """Yield mistakes with tensors."""
    ones, row, flags, meta = torch.ones(4, 3), torch.ones(3), torch.zeros(4, 3), torch.ones(4, 3, device="meta")
    given = {"rewards": ones, "values": ones, "terminated": flags, "last_values": row}
    tracked = {"values": ones.clone().requires_grad_(), "stop_gradients": False}
    yield {**given, "last_values": torch.ones(4)}, "expected one number, or rewards' shape with one step, (1, 3)"
    yield {**given, "values": meta}, "values is on meta, where a tensor has no numbers: pass one on the CPU or on a GPU"
    yield {**given, "device": "cuda"}, "results are on the device of the first argument"
    yield {**given, "rewards": [row] * 4}, "rewards is a list of torch arrays: pass one array, torch.stack(rewards)"
    yield {**given, "rewards": ones.to_sparse()}, "rewards has layout torch.sparse_coo: pass rewards.to_dense()"
    yield {**given, "terminated": flags - 1}, "terminated must hold 0 or 1, got -1.0 at index (0, 0)"
    yield {**given, "values": torch.nn.Linear(2, 1)}, f"{AN_ARRAY}: call it"
    yield {**given, "rewards": ONES, **tracked}, "convert rewards"


def in_jax(jax):
    """Yield mistakes with arrays of JAX, which a program computes."""
    traced = {"rewards": 0, "values": 0, "terminated": None, "last_values": 0.0}  # 0 stands for the traced array
    for changed, advice in (
        ({"gamma": 99}, "gamma must be in [0, 1], got 99.0; do you mean 0.99?"),
        ({"backend": "numpy"}, "JAX computes this call, and backend='numpy' does not: leave backend out"),
        ({"rewards": ONES}, "values is traced by JAX and has no numbers yet: call this outside of jax.jit, or"),
        ({"out": (ONES, None)}, "out cannot be filled, because JAX arrays never change: leave it out"),
        ({"terminated": FLAGS, "truncated": FLAGS}, "pass final_values (V of the final observations), or next_values"),
        ({"last_values": np.ones(4)}, "expected one number, or rewards' shape with one step, (1, 3)"),
    ):
        given = traced | changed
        yield (
            lambda x, given=given: fastgae.gae(**{k: x if type(v) is int and not v else v for k, v in given.items()}),
            advice,
        )
    yield (
        lambda x: fastgae.gae(x, x, x.sum(), last_values=0.0),
        "terminated has shape (); expected rewards' shape, (4, 3); if all are alike, broadcast it to this shape",
    )
    yield (
        lambda x: fastgae.diagnose(x, x, None, last_values=0.0),
        "diagnose needs the numbers themselves: call it outside",
    )
    yield (
        lambda x: jax.jit(lambda n: fastgae.n_step_returns(x, x, None, last_values=0.0, n=n))(3),
        "make it static, jax.jit(..., static_argnames='n')",
    )
