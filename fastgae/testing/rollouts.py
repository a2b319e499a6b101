"""Small rollouts: of random numbers, of one episode in each env, and as few steps as possible."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from fastgae._call import Array

# What a flag says -> of which ends, whether it is 1 where the episode goes on, and whether row t is about the step
# before, because it says that observation t begins an episode.
FLAGS = {
    "terminated": ("terminated", False, False),
    "truncated": ("truncated", False, False),
    "not_truncated": ("truncated", True, False),
    "done": ("done", False, False),
    "going_on": ("done", True, False),
    "starts": ("done", False, True),
    "not_starts": ("done", True, True),
}


class Probe(NamedTuple):
    """Rewards, values and flags of shape (T, N), with one more row of values, and the numbers of a call."""

    rewards: Array
    values: Array
    terminated: Array
    truncated: Array
    final_values: Array  # V of the next observation where an episode ends
    mask: Array
    ratios: Array
    gamma: float
    gae_lambda: float
    n: int = 3
    begins: bool = False  # the step before row 0 ended an episode
    other: str = ""  # an argument that is not what the rest of the rollout says

    def map(self, function: Callable[[Array], Array]) -> "Probe":
        """Return the rollout with a function applied to each array."""
        changed: dict[str, Any] = {name: function(getattr(self, name)) for name in Probe._fields[:7]}
        return self._replace(**changed)

    def arguments(self, longer_values: bool = False, longer_flags: bool = False) -> dict[str, Any]:
        """Return all that a function may ask for. Longer flags have a row for the step before the rollout."""
        done = self.terminated | self.truncated
        ends = {"terminated": self.terminated, "truncated": self.truncated, "done": done}
        first = np.full_like(done[:1], self.begins)
        before = {name: np.concatenate([first, each]) for name, each in ends.items()}
        flags = {}
        for role, (name, inverted, begins) in FLAGS.items():
            flag = before[name] if longer_flags else before[name][:-1] if begins else ends[name]
            flags[role] = ~flag if inverted else flag
        given = {
            **self._asdict(),
            **flags,
            "values": self.values if longer_values else self.values[:-1],
            "last_values": self.values[-1],
            "next_values": np.where(done, self.final_values, self.values[1:]),
            "next_done": done[-1],
            "next_going_on": ~done[-1],
            "discounts": (self.gamma * ~self.terminated).astype(np.float32),
            "log_ratios": np.log(self.ratios),
            "steps": len(self.rewards),
        }
        return {name: (1 - each).astype(each.dtype) if name == self.other else each for name, each in given.items()}


class Kind(NamedTuple):
    """What the rollouts of a function must have."""

    envs: int
    ends: int  # in how many ways an episode may end: none, by one flag or by two
    masked: bool
    open_end: bool  # no argument says whether the last step ends an episode
    only_last: bool = False  # no argument says whether other steps end one
    episodes: bool = False  # each env is one episode; if masked, with rows of padding after it


def random_rollout(seed: int, steps: int, kind: Kind, coefficients: Any, scale: float = 1.0) -> Probe:
    """Return a rollout of random numbers."""
    rng = np.random.default_rng(seed)
    shape = steps, kind.envs
    rewards, final_values = (scale * rng.normal(size=(2, *shape))).astype(np.float32)
    values = (scale * rng.normal(size=(steps + 1, kind.envs))).astype(np.float32)
    which = rng.choice(5, size=shape)
    mask = rng.random(shape) < 0.7 if kind.masked else np.ones(shape, bool)
    mask[0] = True  # each env has a step
    if kind.episodes:
        row, last = np.arange(steps)[:, np.newaxis], np.arange(kind.envs) % (kind.ends + 1)
        padded = (last < kind.ends) | (kind.ends == 0)  # any answer of a call without flags
        lengths = np.where(padded & kind.masked, rng.integers(1, steps + 1, kind.envs), steps)
        mask = row < lengths
        rewards *= mask
        which = np.where(row == lengths - 1, last, kind.ends)
    elif kind.open_end:
        which[-1] = 2
    elif kind.only_last:
        which[:-1] = 2
    ratios = np.exp(rng.normal(size=shape)).astype(np.float32)
    ended = (which == 0) & (kind.ends > 0), (which == 1) & (kind.ends > 1)
    probe = Probe(rewards, values, *ended, final_values, mask, ratios, *coefficients)
    return probe._replace(begins=kind.episodes)


def tiny_rollouts(kind: Kind, coefficients: Any) -> Iterator[Probe]:
    """Yield all patterns of flags of 1 to 3 steps of one env, the shortest first."""
    for steps in (1, 2, 3):
        for pattern in itertools.product(range(kind.ends + 1), repeat=steps):
            ended = np.array(pattern)[:, np.newaxis]
            if (kind.open_end and ended[-1]) or (kind.only_last and ended[:-1].any()):
                continue
            count = np.arange(1, steps + 2, dtype=np.float32)[:, np.newaxis]
            ones = np.ones((steps, 1), np.float32)
            yield Probe(count[:-1], 10 + count, ended == 1, ended == 2, 20 + count[:-1], ones > 0, ones, *coefficients)
