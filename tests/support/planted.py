"""Print what diagnose says of mistakes planted in real rollouts, and of correct ones: ``python -m support.planted``.

The correct calls include those of a PPO while its critic learns. Run it in the folder ``tests``; it takes minutes.
"""

import functools
import itertools
import sys
from collections import Counter

import numpy as np

import fastgae
from support import mistakes
from support.ppo import PPO
from support.real_rollouts import MODES, fitted_value, make, random_value, record

# Environment -> how many steps are recorded.
ENVS = {"CartPole-v1": 512, "CartPoleCut-v1": 256, "Pendulum-v1": 512, "Acrobot-v1": 640, "TaxiParts-v1": 512}
UPDATES = 100
ALL, LIMITED = tuple(ENVS), tuple(ENVS)[1:]
AT_RANDOM = ("CartPoleCut-v1", "Pendulum-v1", "TaxiParts-v1")  # PPO learns to do the same in all episodes of these
# Mistake -> the detectors that may name it, the mode and the form of the correct call, and the environments.
MISTAKES = {
    "merged": ("truncation_as_termination terminated_by_limit", "same_step", "arguments", LIMITED),
    "no_bootstrap": ("last_row_bootstrap", "same_step", "arguments", ALL),
    "own_bootstrap": ("last_row_bootstrap", "same_step", "arguments", ALL),
    "no_autoreset": ("reset_rows", "next_step", "arguments", ALL),
    "swapped_axes": ("axes_swapped", "same_step", "arguments_with_next_values", ALL),
    "late": ("flags_shifted", "same_step", "arguments", ALL),
    "of_next_episode": ("truncation_bootstrap", "same_step", "arguments", LIMITED),
    "other_gamma": ("gamma_or_scale", "same_step", "arguments", ALL),
    "rescaled": ("gamma_or_scale", "same_step", "arguments", ALL),
    "whitened": ("gamma_or_scale rewards_whitened", "same_step", "arguments", ALL),
    "clipped": ("gamma_or_scale rewards_whitened", "same_step", "arguments", ("Pendulum-v1", "TaxiParts-v1")),
    "values_late": ("values_shifted flags_shifted", "same_step", "arguments", ALL),
    "padded": ("padding", "same_step", "arguments", ("CartPole-v1", "CartPoleCut-v1", "Acrobot-v1")),
    "unflagged": ("flags_missing", "same_step", "arguments", ALL),
    "values_of_other_envs": ("envs_shuffled", "same_step", "arguments", ALL),
}
OF_LIMITS = ("merged", "of_next_episode")  # in Acrobot, a good policy meets no limit


@functools.cache
def trained(env, mode="same_step"):
    """Train a PPO, and return it with what diagnose found in each update."""
    with make(env, mode, 8) as envs:
        agent = PPO(envs, seed=0)
        return agent, [fastgae.diagnose(**call) for call in agent.updates(envs, UPDATES, 128, seed=0)]


@functools.cache
def rollout(env, mode, at_random):
    """Return a real rollout, and a critic that was fitted to others of the same policy."""
    of = () if at_random else (trained(env)[0].act,)
    return record(env, mode, 8, ENVS[env], 7, *of), fitted_value(env, *of)


def planted(mistake, env):
    """Return what diagnose finds of a mistake."""
    _, mode, form, _ = MISTAKES[mistake]
    recorded, value = rollout(env, mode, env in AT_RANDOM or mistake in OF_LIMITS)
    call = getattr(recorded, form)(value)
    getattr(mistakes, mistake)(call, recorded, value)
    return fastgae.diagnose(**call)


def correct():
    """Yield the name of each correct call, and what diagnose finds in it."""
    for env in ENVS:
        for mode in MODES:
            for at_random, form in itertools.product((False, True), ("arguments", "arguments_with_next_values")):
                recorded, fitted = rollout(env, mode, at_random)
                for critic, value in (("fitted", fitted), ("random", random_value(env)), ("zero", zero)):
                    name = f"{env}, {mode}, {form}, {critic} critic, {'random' if at_random else 'trained'} policy"
                    yield name, fastgae.diagnose(**getattr(recorded, form)(value))

    for env in ENVS:
        for number, diagnosis in enumerate(trained(env)[1]):
            yield f"{env}, update {number}", diagnosis


def zero(observations):
    return np.zeros(observations.shape[:-1], np.float32)


def main():
    found = Counter()
    for mistake, (names, _, _, envs) in MISTAKES.items():
        told = {env: [each.detector for each in planted(mistake, env)] for env in envs}
        right = [env for env, detectors in told.items() if {*detectors} & {*names.split()}]
        found["planted"] += len(envs)
        found["found"] += len(right)
        wrong = [f"{env}: {', '.join(detectors) or 'nothing'}" for env, detectors in told.items() if env not in right]
        print(f"{mistake:22} {len(right)}/{len(envs)}  {'; '.join(wrong)}", flush=True)
    print(f"{found['found']} of {found['planted']} planted mistakes are found")
    for name, diagnosis in correct():
        found["correct"] += 1
        for finding in diagnosis:
            found["false"] += 1
            print(f"{name}: {finding}")
    print(f"{found['false']} false findings in {found['correct']} correct calls")
    sys.exit(found["false"] > 0 or found["found"] < 60)


if __name__ == "__main__":
    main()
