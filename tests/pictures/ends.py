"""Draw the end of an episode on a time line, in each of Gymnasium's autoreset modes, from real rollouts.

The environment's observations say which step of which episode they are of, so a rollout shows what lies where.
"""

from dataclasses import dataclass

import gymnasium
import numpy as np
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

import fastgae
from fastgae._support.pictures import BLUE, BLUE_TINT, GRID, INK, NOTE, VERMILION, VERMILION_TINT, new_figure, svg
from support.real_rollouts import MODES, record

KINDS = ("truncated", "terminated")
LENGTH = 4  # steps of an episode
END = LENGTH - 1  # the row t in which the first episode ends
SHOWN = range(END - 2, END + 4)


class Counting(gymnasium.Env):
    """An environment whose observation is (episode, step), and whose rewards are 1."""

    observation_space = gymnasium.spaces.Box(0, 99, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, ends):
        self.ends, self.episode = ends, -1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.now = self.episode + 1, 0
        return self._observation(), {}

    def step(self, action):
        self.now += 1
        return self._observation(), 1.0, self.ends and self.now == LENGTH, False, {}

    def _observation(self):
        return np.array([self.episode, self.now], np.float32)


gymnasium.register("Counting-truncated-v0", Counting, max_episode_steps=LENGTH, kwargs={"ends": False})
gymnasium.register("Counting-terminated-v0", Counting, kwargs={"ends": True})


def value(observations):
    """Return another number for every observation, none of them 0."""
    return observations @ np.array([10, 1], np.float32) + 1


def name(observation):
    episode, step = map(int, observation)
    return f"{'AB'[episode]}{step}"


@dataclass(frozen=True)
class End:
    """The rows around the end of an episode, and the value from which its last step bootstraps."""

    observations: list[str]  # those that the policy acted on, by their names
    rewards: list[int]
    terminated: list[bool]
    truncated: list[bool]
    steps: list[bool]  # False: a reset row
    final: str  # the observation that the last step led to
    bootstrapped: bool  # whether V' of the last step is V of that observation; otherwise it is 0


def call_of(mode, kind):
    """Return a real rollout, and the arguments with which the page calls ``gae`` in this mode."""
    recorded = record(f"Counting-{kind}-v0", mode, 1, SHOWN.stop, 0)
    form = recorded.arguments_with_next_values if mode == "disabled" else recorded.arguments
    return recorded, form(value)


def next_values_used(call):
    """Return V' of every step, as ``gae`` uses it: with gamma = 1 and lambda = 0, returns are r + V'."""
    return fastgae.gae(**call, gamma=1.0, gae_lambda=0.0).returns - call["rewards"]


def end_of(mode, kind):
    recorded, call = call_of(mode, kind)
    flags = call["terminated"], call["truncated"]
    steps = fastgae.valid_steps(*flags) if mode == "next_step" else np.ones_like(flags[0])
    shown = slice(SHOWN.start, SHOWN.stop)
    final = recorded.next_observations[END, 0]
    return End(
        [name(observation) for observation in recorded.observations[shown, 0]],
        *(array[shown, 0].tolist() for array in (call["rewards"].astype(int), *flags, steps)),
        name(final),
        bool(next_values_used(call)[END, 0] == value(final)),
    )


# Where V of the final observation is, who has that observation, and which argument takes it.
SOURCES = {
    "next_step": ("values[t + 1]", "", 'autoreset="next_step"'),
    "same_step": ("final_values", 'info["final_obs"]', "final_values"),
    "disabled": ("next_values[t]", "env.step returned it", "next_values"),
}
TINTS = {"A": BLUE_TINT, "B": VERMILION_TINT}
LINES = {"row": 2.0, "observation": 0.0, "rewards": -1.0, "terminated": -1.75, "truncated": -2.5}  # and their heights
ABOVE = 1.15  # the height of a final observation that is in no row, and of the name of V'


def draw():
    figure = new_figure(11, 8.8)
    panels = figure.subplots(len(MODES), len(KINDS), width_ratios=(1.22, 1))
    for row, mode in zip(panels, MODES, strict=True):
        for panel, kind in zip(row, KINDS, strict=True):
            _draw_end(panel, mode, kind, with_labels=kind == KINDS[0])
    return svg(figure)


def _draw_end(panel, mode, kind, with_labels):
    end, last = end_of(mode, kind), SHOWN.index(END)
    place, owner, argument = SOURCES[mode]
    panel.set(xlim=(-1.9 if with_labels else -0.6, 5.6), ylim=(-3.5, 3.4))
    panel.axis("off")
    then = f"pass {argument}" if end.bootstrapped else "nothing follows: V' = 0"
    panel.text(-0.45, 3.2, f"{mode.upper()}, {kind}", weight="bold", color=INK, va="center", fontsize=11)
    panel.text(-0.45, 2.65, then, color=INK, va="center")
    for column, offset in enumerate(step - END for step in SHOWN):
        _write(panel, column, LINES["row"], f"t{offset:+}".replace("-", "−") if offset else "t", NOTE)
        if not end.steps[column]:
            panel.add_patch(Rectangle((column - 0.5, -3), 1, 3.5, facecolor=GRID, zorder=0))
            _write(panel, column, -3.25, "reset row: no step", INK)
        _box(panel, column, LINES["observation"], end.observations[column])
        _write(panel, column, LINES["rewards"], end.rewards[column])
        for flag in KINDS:
            given = getattr(end, flag)[column]
            _write(panel, column, LINES[flag], *(("True", VERMILION, "bold") if given else ("·", NOTE)))
    if with_labels:
        for label, height in LINES.items():
            panel.text(-0.65, height, label, ha="right", va="center", color=NOTE)
    if owner:  # the final observation is in no row
        _box(panel, last + 0.5, ABOVE, end.final, "--")
        panel.text(last + 1, ABOVE, owner if end.bootstrapped else f"{owner}: not read", va="center", color=NOTE)
    if end.bootstrapped:
        tip, beside, align = (0.15, ABOVE), -0.1, "right"
        if not owner:  # it is in the next row
            tip, beside, align = (0.9, 0.36), 0.5, "center"
        _arrow(panel, (last, 0.36), (last + tip[0], tip[1]))
        panel.text(last + beside, ABOVE, f"V' = {place}", ha=align, va="center", color=BLUE, weight="bold")


def _write(panel, x, y, text, color=INK, weight="normal"):
    panel.text(x, y, text, ha="center", va="center", color=color, weight=weight)


def _box(panel, x, y, observation, linestyle="-"):
    corner, tint = (x - 0.28, y - 0.26), TINTS[observation[0]]
    panel.add_patch(FancyBboxPatch(corner, 0.56, 0.52, "round,pad=0.05", fc=tint, ec=NOTE, ls=linestyle, lw=0.8))
    _write(panel, x, y, observation)


def _arrow(panel, start, end):
    curve = FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=12, color=BLUE, linewidth=1.6)
    curve.set_connectionstyle("arc3,rad=-0.4")
    panel.add_patch(curve)
