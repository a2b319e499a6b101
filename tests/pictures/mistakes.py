"""Plant mistakes in real rollouts, and draw and report what comes of them, for docs/why-does-my-ppo-not-learn.md."""

import functools
import hashlib
import json
import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from matplotlib.ticker import MaxNLocator

import fastgae
from fastgae._support.pictures import BLUE, INK, NOTE, VERMILION, new_figure, style, svg
from support import mistakes
from support.real_rollouts import fitted_value, record


class Planted(NamedTuple):
    """A mistake, and the rollout of 8 environments in which it is planted."""

    plant: Callable | None
    env_id: str
    num_steps: int
    mode: str = "same_step"
    form: str = "arguments"

    def call(self):
        recorded, value = record(self.env_id, self.mode, 8, self.num_steps, 0), fitted_value(self.env_id)
        arguments = getattr(recorded, self.form)(value)
        if self.plant is not None:
            self.plant(arguments, recorded, value)
        return arguments

    def without(self):
        return self._replace(plant=None)


CARTPOLE, PENDULUM = ("CartPole-v1", 256), ("Pendulum-v1", 512)
PLANTED = {
    "nothing": Planted(None, *PENDULUM),
    "late": Planted(mistakes.late, *CARTPOLE),
    "values_early": Planted(mistakes.values_early, *CARTPOLE),
    "unflagged": Planted(mistakes.unflagged, *CARTPOLE),
    "inverted": Planted(mistakes.inverted, *CARTPOLE),
    "merged": Planted(mistakes.merged, *PENDULUM),
    "of_next_episode": Planted(mistakes.of_next_episode, *PENDULUM),
    "no_bootstrap": Planted(mistakes.no_bootstrap, *PENDULUM),
    "no_autoreset": Planted(mistakes.no_autoreset, *CARTPOLE, "next_step"),
    "wrong_autoreset": Planted(mistakes.wrong_autoreset, *CARTPOLE),
    "no_prev_done": Planted(mistakes.no_prev_done, *CARTPOLE, "next_step"),
    "padded": Planted(mistakes.padded, *CARTPOLE),
    "swapped_axes": Planted(mistakes.swapped_axes, *CARTPOLE, form="arguments_with_next_values"),
    "values_of_other_envs": Planted(mistakes.values_of_other_envs, *PENDULUM),
    "rewards_late": Planted(mistakes.rewards_late, *PENDULUM, "next_step"),
    "other_gamma": Planted(mistakes.other_gamma, *PENDULUM),
    "rescaled": Planted(mistakes.rescaled, *PENDULUM),
    "clipped": Planted(mistakes.clipped, *PENDULUM),
    "whitened": Planted(mistakes.whitened, "TaxiParts-v1", 512),
    "rounded_gamma": Planted(mistakes.rounded_gamma, *PENDULUM),
    "not_a_number": Planted(mistakes.not_a_number, *PENDULUM),
}
REPORT = re.compile(r"(<!-- report: (\w+) -->\n```text\n).*?(^```$)", re.DOTALL | re.MULTILINE)


@functools.cache
def report(name):
    """Return what diagnose says of a planted mistake, without the overview; the whole report where there is none."""
    planted = PLANTED[name]
    found = fastgae.diagnose(**planted.call())
    return str(found) if planted.plant is None else "\n\n".join(map(str, found))


def filled(page):
    """Return a page with the reports behind their marks written anew."""
    return REPORT.sub(lambda found: f"{found[1]}{report(found[2])}\n{found[3]}", page)


class Picture(NamedTuple):
    """A result of env 0 over some rows, as it should be and after mistakes, by their names in ``PLANTED``."""

    result: str
    rows: tuple[int, int]
    wrong: dict[str, str]  # label: name


PICTURES = {
    "flags": Picture("advantages", (0, 64), {"flags one step late": "late", "no flags": "unflagged"}),
    "limits": Picture(
        "returns", (0, 330), {"limit flagged as terminated": "merged", "V' of the next episode": "of_next_episode"}
    ),
    "last_row": Picture("returns", (420, 512), {"last_values = 0": "no_bootstrap"}),
    "reset_rows": Picture("advantages", (0, 64), {"reset rows taken for steps": "no_autoreset"}),
    "axes": Picture("advantages", (0, 64), {"axes swapped": "swapped_axes"}),
    "envs": Picture("advantages", (0, 330), {"values of another env": "values_of_other_envs"}),
    "rewards": Picture("advantages", (20, 80), {"rewards one step late": "rewards_late"}),
    "gamma": Picture(
        "advantages", (0, 330), {"gamma 0.9 in place of 0.99": "other_gamma", "rewards times 0.1": "rescaled"}
    ),
    "nan": Picture("returns", (150, 450), {"one NaN in values": "not_a_number"}),
}
RIGHT, WRONG = (BLUE, "-", 2.4), ((VERMILION, "-", 1.4), (INK, ":", 1.4))


def lines_of(name):
    """Return the numbers of every line of a picture, and at which of them an episode ends."""
    picture = PICTURES[name]
    planted = [PLANTED[wrong] for wrong in picture.wrong.values()]
    right = planted[0].without().call()
    ends = right["terminated"] | right["truncated"]
    rows = slice(*picture.rows)
    calls = {"correct": right, **{label: each.call() for label, each in zip(picture.wrong, planted, strict=True)}}
    lines = {label: getattr(fastgae.gae(**call), picture.result)[rows, 0] for label, call in calls.items()}
    if right["autoreset"] == "next_step":
        lines["correct"] = np.where(fastgae.valid_steps(ends)[rows, 0], lines["correct"], np.nan)
    return lines, np.flatnonzero(ends[rows, 0])


def draw(name):
    picture, (lines, ends) = PICTURES[name], lines_of(name)
    rows = np.arange(*picture.rows)
    figure = new_figure(8, 2.7)
    panel = figure.subplots()
    style(panel)
    if picture.result == "advantages":
        panel.axhline(0, color=NOTE, linewidth=0.8)
    for t in rows[ends]:
        panel.axvline(t + 0.5, color=NOTE, linewidth=0.8, linestyle=(0, (2, 2)))
    for (label, numbers), (color, linestyle, width) in zip(lines.items(), (RIGHT, *WRONG), strict=False):
        # A gap behind each end, because the next row is of another episode.
        x, y = (np.insert(array.astype(float), ends + 1, np.nan) for array in (rows, numbers))
        panel.plot(x, y, linestyle, color=color, linewidth=width, label=label)
    panel.set(xlabel="row t of env 0" + (" (dashed: an episode ends)" if len(ends) else ""), ylabel=picture.result)
    panel.set_xlim(rows[0] - 0.5, rows[-1] + 0.5)
    panel.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 5, 10]))
    panel.yaxis.set_major_locator(MaxNLocator(5))
    figure.legend(loc="outside upper left", ncols=3, frameon=False, labelcolor=INK)
    return svg(figure, digest(lines))


def digest(lines):
    """Return the digest that a picture carries. It takes two digits of each number: machines may round the last ones
    in different ways.
    """
    drawn = [[label, *(f"{number:.2g}" for number in numbers)] for label, numbers in lines.items()]
    return hashlib.sha256(json.dumps(drawn).encode()).hexdigest()
