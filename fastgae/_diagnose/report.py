"""Describe the findings of a diagnosis, as text, as JSON and in a notebook."""

import html
import shutil
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from fastgae._call import Array
from fastgae._support.pictures import BLUE, INK, PURPLE, VERMILION, new_figure, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = 4  # places of a finding
MOST_FINDINGS = 3  # in full, so that a report fits one screen
MOST_STEPS = 300  # in a picture


class Places(NamedTuple):
    """The places of a finding: how many there are, and the first few as (t, env) indices."""

    total: int = 0
    first: tuple[tuple[int, ...], ...] = ()
    times: tuple[int, ...] = ()  # of all places in the env of the first one
    marks: tuple[tuple[int, int], ...] = ()  # of the first thousands: the step and the number of the env

    def __str__(self) -> str:
        listed = ", ".join(_place(index) for index in self.first)
        more = self.total - len(self.first)
        return f"{listed}{f', and {more:,} more' if more else ''}"


class Finding(NamedTuple):
    """One mistake, or something that looks like one, as a named tuple. ``str`` gives its part of the report.

    Attributes
    ----------
    what : str
        The mistake, with its evidence: a count and a ratio.
    where : Places
        How many places there are (``total``), the first few as indices (``first``), and the ``times`` of all places in
        the env of the first one.
    why : str
        The effect of the mistake on the results.
    change : str
        What to pass instead.
    detector : str
        The name of the detector that found it, such as "flags_shifted".
    """

    what: str
    where: Places
    why: str
    change: str
    detector: str = ""

    def __str__(self) -> str:
        lines = [wrapped(f"  {name:<8}", text, 10) for name, text in self._lines().items()]
        return "\n".join([wrapped(f"{self.detector}: ", self.what, 2), *lines])

    def _repr_html_(self) -> str:
        return _table(f"{self.detector}: {self.what}", self._lines())

    def _lines(self) -> dict[str, str]:
        where = {"where": str(self.where)} if self.where.total else {}  # none: it is about the whole call
        return {**where, "why": self.why, "change": self.change}

    def as_dict(self) -> dict[str, Any]:
        """Return the finding as a dict that JSON can keep."""
        where = {"count": self.where.total, "first": [list(index) for index in self.where.first]}
        return {**self._asdict(), "where": where}


class Overview(NamedTuple):
    """The overview of a rollout. A number is None if there are no steps, or if it would not be finite."""

    steps: int
    envs: int
    tokens: int | None  # steps that exist, if each env is one sequence
    flags: bool  # whether flags were given
    episodes: int  # that end in the rollout
    truncated: int  # of them, and not terminated
    lengths: tuple[int, int, int] | None  # of episodes or sequences: the shortest, the median and the longest
    explained_variance: float | None  # 1 - Var(returns - values) / Var(returns); None if the returns do not vary
    mean_reward: float | None
    mean_value: float | None
    mean_td_error: float | None
    std_td_error: float | None

    @property
    def size(self) -> str:
        """Return the size of the rollout in words."""
        if self.tokens is None:
            # The rows of recorded data are one env here, whatever their envs were.
            of_envs = "" if self.envs == 1 else f" of {_counted(self.envs, 'environment')}"
            return _counted(self.steps, "step") + of_envs
        return f"{_counted(self.tokens, 'token')} of {_counted(self.envs, 'sequence')}"

    def lines(self) -> dict[str, str]:
        """Return the lines of the report: what each is about, and its text."""
        name, unit, parts = "episodes", "steps", [f"{self.episodes:,} ended"]
        if self.episodes:
            parts[0] += f", {self.truncated / self.episodes:.0%} of them truncated"
        if self.tokens is not None:
            name, unit, parts = "sequences", "tokens", [f"{self.envs:,}"]
            parts += ["no flags given: each env counts as one sequence"] * (not self.flags)
        if self.lengths is not None:
            shortest, typical, longest = self.lengths
            parts.append(
                f"each of {longest:,} {unit}"
                if shortest == longest
                else f"of {shortest:,} to {longest:,} {unit}, median {typical:,}"
            )
        explained = _shown(self.explained_variance)
        return {
            name: "; ".join(parts),
            "rewards": f"mean {_shown(self.mean_reward)}",
            "values": f"mean {_shown(self.mean_value)}; explained variance of the returns: {explained}",
            "TD errors": f"mean {_shown(self.mean_td_error)}, standard deviation {_shown(self.std_td_error)}",
        }


class Column(NamedTuple):
    """One env of a rollout: copies, because a training loop may write into its arrays before it draws."""

    env: tuple[int, ...]
    series: dict[str, Array]
    terminated: Array
    truncated: Array
    shape: tuple[int, int]  # of the rollout


class Diagnosis(Sequence[Finding]):
    """The findings of one call: a sequence that is true if there are any. ``str`` gives the report for people.

    Attributes
    ----------
    overview : Overview
        The numbers with which the report ends: ``steps``, ``envs``, ``tokens`` (None if the envs have episodes),
        ``flags``, ``episodes``, ``truncated``, ``lengths``, ``explained_variance``, ``mean_reward``, ``mean_value``,
        ``mean_td_error`` and ``std_td_error``.
    """

    def __init__(self, findings: Sequence[Finding], overview: Overview, columns: Sequence[Column] = ()) -> None:
        self._findings = tuple(findings)
        self.overview = overview
        self._columns = tuple(columns)

    @overload
    def __getitem__(self, index: int) -> Finding: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Finding, ...]: ...
    def __getitem__(self, index: int | slice) -> Finding | tuple[Finding, ...]:
        return self._findings[index]

    def __len__(self) -> int:
        return len(self._findings)

    def __repr__(self) -> str:
        return f"<Diagnosis: {', '.join(finding.detector for finding in self) or 'nothing found'}>"

    @property
    def _heading(self) -> str:
        size = self.overview.size
        if not self:
            return f"Nothing found in {size}. Only mistakes that leave traces in the arrays can be found."
        return f"{len(self)} finding{'s' * (len(self) > 1)} in {size}"

    def __str__(self) -> str:
        return as_text(self._heading, self, self.overview.lines())

    def _repr_html_(self) -> str:
        return as_html(self._heading, self, self.overview.lines())

    def plot(self, finding: int = 0) -> "Figure":
        """Draw where a finding is, in the rollout and in the env in which it begins. Needs matplotlib.

        Parameters
        ----------
        finding : int
            The index of the finding.

        Returns
        -------
        matplotlib.figure.Figure
            The places in the rollout, and rewards, values and TD errors of one env, with the ends of its episodes.
            Notebooks show it; ``savefig`` writes it to a file. If nothing was found, it shows the first env.
        """
        if not self:
            return draw(self._columns[0], "nothing found", (), ())
        if finding not in range(-len(self), len(self)):
            raise IndexError(f"finding must be the index of one of {len(self)} findings, got {finding!r}")
        where = self[finding].where
        return draw(self._columns[finding], self[finding].detector, where.times, where.marks)

    def as_dict(self) -> dict[str, Any]:
        """Return the overview and the findings as a dict that JSON can keep."""
        return {**self.overview._asdict(), "findings": [finding.as_dict() for finding in self]}

    def to_json(self, indent: int | None = None) -> str:
        """Return ``as_dict`` as JSON."""
        import json  # here, so that importing fastgae stays cheap

        return json.dumps(self.as_dict(), indent=indent)


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


def _shown(number: float | None) -> str:
    return "undefined" if number is None else format(number, ".3g")


def as_text(heading: str, findings: Sequence[Finding], about: dict[str, str]) -> str:
    """Return a report of one screen: what was found, and then what it is about."""
    more = [finding.detector for finding in findings[MOST_FINDINGS:]]
    parts = [heading, *map(str, findings[:MOST_FINDINGS])]
    parts += [wrapped("and also ", ", ".join(more), 2)] * bool(more)
    wide = max(map(len, about), default=0) + 2
    parts.append("\n".join(wrapped(f"  {name:<{wide}}", text, wide + 2) for name, text in about.items()))
    return "\n\n".join(parts)


def as_html(heading: str, findings: Sequence[Finding], about: dict[str, str]) -> str:
    """Return the same report for a notebook, with all findings."""
    return f"<p><b>{html.escape(heading)}</b></p>" + "".join(map(Finding._repr_html_, findings)) + _table("", about)


def _table(heading: str, rows: dict[str, Any]) -> str:
    lines = "".join(
        f'<tr><th style="text-align: left; vertical-align: top">{html.escape(name)}</th>'
        f'<td style="text-align: left">{html.escape(str(text))}</td></tr>'
        for name, text in rows.items()
    )
    return f"<p><b>{html.escape(heading)}</b></p>" * bool(heading) + f"<table>{lines}</table>"


def _place(index: tuple[int, ...]) -> str:
    time, *env = index
    return f"t={time}" + (f" n={','.join(map(str, env))}" if env else "")


def wrapped(heading: str, text: str, indent: int) -> str:
    """Return heading and text in lines of at most 100 characters that fit the terminal; the first is not indented."""
    width = min(100, shutil.get_terminal_size((100, 24)).columns)
    return textwrap.fill(heading + text, width, subsequent_indent=" " * indent, break_long_words=False)


def draw(column: Column, title: str, times: Sequence[int], marks: Sequence[tuple[int, int]]) -> "Figure":
    """Mark steps and envs in the rollout, and draw the steps of an env around the first of its times."""
    first = max(0, times[0] - MOST_STEPS // 10) if times else 0
    shown = np.arange(len(column.terminated))[first : first + MOST_STEPS]
    suspect = np.intersect1d(shown, np.array(times, int))
    figure = new_figure(9, 6.5, f"{title}, env {', '.join(map(str, column.env))}" if column.env else title)
    whole, *panels = figure.subplots(4)
    for panel in panels[1:]:
        panel.sharex(panels[0])
    whole.plot(*np.array(marks, int).reshape(-1, 2).T, "|", color=VERMILION, markersize=6, rasterized=True)
    whole.set(ylabel="env", xlim=(-0.5, max(1, column.shape[0]) - 0.5), ylim=(max(1, column.shape[1]) - 0.5, -0.5))
    style(whole)
    ends = ((column.terminated, "-", INK), (column.truncated & ~column.terminated, "--", PURPLE))
    for panel, (name, numbers), color in zip(panels, column.series.items(), (INK, BLUE, INK), strict=True):
        panel.plot(shown, numbers[shown], color=color, linewidth=1.2, marker=".", markersize=3, zorder=3)
        for flags, line, end_color in ends:
            places = {"ymin": 0, "ymax": 1, "transform": panel.get_xaxis_transform()}
            panel.vlines(shown[flags[shown]] + 0.5, linestyles=line, colors=end_color, linewidth=0.8, **places)
        panel.plot(suspect, numbers[suspect], "o", color=VERMILION, markersize=5, zorder=4, rasterized=True)
        panel.set_ylabel(name)
        style(panel)
        panel.margins(x=0.01)
    for axis in (whole.xaxis, whole.yaxis, panels[-1].xaxis):
        axis.get_major_locator().set_params(integer=True)
        axis.get_major_formatter().set_useOffset(False)  # steps have their own numbers
    panels[-1].set_xlabel("step; a circle: suspect; a line: the episode ends, dashed where it is truncated")
    figure.align_ylabels()
    return figure
