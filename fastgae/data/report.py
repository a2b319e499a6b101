"""What a computation over recorded data found."""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np

import fastgae
from fastgae._call import Array, GAEResult
from fastgae.data.estimators import ESTIMATORS, GAE_LAMBDA, How, gae_arguments
from fastgae.data.steps import RecordedSteps, checked_rows

SAMPLE = 65_536  # rows for fastgae.diagnose
MANY = 20  # names in a line


@dataclass(frozen=True)
class Sums:
    """The statistics of a run of rows for the report; ``earlier + later`` merges two adjacent runs."""

    steps: int = 0
    episodes: int = 0
    advantages: fastgae.Moments = field(default_factory=fastgae.Moments)
    returns: fastgae.Moments = field(default_factory=fastgae.Moments)

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    @classmethod
    def of(cls, results: GAEResult[Any], last: Array) -> "Sums":
        """Return the sums of rows; ``last``: where episodes end."""
        advantages = fastgae.Moments() if results.advantages is None else fastgae.moments(results.advantages)
        return cls(last.size, int(np.count_nonzero(last)), advantages, fastgae.moments(results.returns))

    @classmethod
    def from_dict(cls, kept: Mapping[str, Any]) -> "Sums":
        """Return the sums from the dict that ``dataclasses.asdict`` made."""
        moments = {name: fastgae.Moments(**kept[name]) for name in ("advantages", "returns")}
        return cls(kept["steps"], kept["episodes"], **moments)

    @property
    def explained_variance(self) -> float:
        # The returns of a constant reward are A + V, and vary by the rounding of float32.
        varies = self.returns.variance > 1e-12 * self.advantages.variance
        return 1 - self.advantages.variance / self.returns.variance if varies else float("nan")


@dataclass(frozen=True)
class Report:
    """A summary of what was computed; ``str`` gives a table for people, and ``to_json`` the same for programs.

    Attributes
    ----------
    file : str
        The sidecar.
    episodes, steps : int
    mean, std : float
        Mean and standard deviation of the advantages before normalisation, in the units of the rewards, correctly
        rounded. NaN without advantages.
    returns_mean, returns_std : float
        The same for the returns.
    explained_variance : float
        1 - Var(A) / Var(R), where R - V = A: 1 if the values predict the returns exactly, 0 or less if a constant
        predicts them as well. NaN if the returns do not vary, and without advantages.
    has_advantages : bool
        False if there were no values, which only discounted returns do not need.
    findings : tuple of str
        The findings of ``fastgae.diagnose`` in a sample of the rows; it needs values.
    seconds : float
    threshold : float, dict or None
        The quantile of the advantages, before normalisation, above which they are labelled positive; with
        ``label_per``, the quantile of each group.
    columns : dict
        The column of each role.
    unread : tuple of str
        The columns of the source that were not read.
    """

    file: str
    episodes: int
    steps: int
    mean: float
    std: float
    returns_mean: float
    returns_std: float
    explained_variance: float
    has_advantages: bool
    findings: tuple[str, ...]
    seconds: float
    threshold: float | dict[str, float] | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    unread: tuple[str, ...] = ()

    def __str__(self) -> str:
        above = self.threshold if isinstance(self.threshold, dict) else {None: self.threshold}
        explained = "undefined" if math.isnan(self.explained_variance) else f"{self.explained_variance:.4f}"
        of_values = {
            "advantages": f"mean {self.mean:.6g}, standard deviation {self.std:.6g}",
            "positive": _few(
                f"{'' if name is None else f'{name}: '}advantages above {number:.6g}"
                for name, number in above.items()
                if number is not None
            ),
            "explained variance": explained,
            "diagnose": "\n".join(self.findings) or "found nothing in a sample of the last steps",
        }
        rows = {
            "file": self.file,
            "columns": _few(f"{role} = {name}" for role, name in self.columns.items()),
            "not read": _few(self.unread),
            "episodes": f"{self.episodes:,}",
            "steps": f"{self.steps:,}",
            "returns": f"mean {self.returns_mean:.6g}, standard deviation {self.returns_std:.6g}",
            **(of_values if self.has_advantages else {}),
            "time": f"{self.seconds:.2f} s, {self.steps / self.seconds:,.0f} steps/s",
        }
        width = max(map(len, rows))
        lines = (f"{name:{width}}  {line}" for name, text in rows.items() for line in text.split("\n") if text)
        # Names in files may hold characters that steer a terminal, or that it cannot show.
        return "\n".join("".join(c if c.isprintable() else ascii(c)[1:-1] for c in line) for line in lines)

    def to_json(self, indent: int | None = None) -> str:
        """Return one JSON object. A number that is not finite is null there."""

        def finite(said: Any) -> Any:
            if isinstance(said, dict):
                return {name: finite(each) for name, each in said.items()}
            return None if isinstance(said, float) and not math.isfinite(said) else said

        return json.dumps(finite(asdict(self)), indent=indent)


def report_of(said: Mapping[str, Any], file: str, seconds: float) -> Report:
    """Return the report of what results say about themselves."""
    sums, findings = Sums.from_dict(said["sums"]), said["findings"]
    advantages, returns = sums.advantages, sums.returns
    numbers = (advantages.mean, advantages.std, returns.mean, returns.std, sums.explained_variance)
    more = said["threshold"], said["columns"], tuple(said["unread"])
    return Report(file, sums.episodes, sums.steps, *numbers, advantages.count > 0, tuple(findings), seconds, *more)


def _few(items: Iterable[str]) -> str:
    """Return some of the items in one line."""
    listed = list(items)
    more = f" and {len(listed) - MANY:,} more" if len(listed) > MANY else ""
    return ", ".join(listed[:MANY]) + more


def diagnosis_of(steps: RecordedSteps, last: Array, how: How, row_of: Callable[[int], Any]) -> fastgae.Diagnosis:
    """Return what fastgae.diagnose says of a sample of the last rows, with the places in the source."""
    begin = max(0, len(steps.rewards) - SAMPLE)  # the last rows need nothing after them, wherever the run begins
    each = steps._asdict().items()
    arrays: dict[str, Any] = {name: array[begin:] for name, array in each if isinstance(array, np.ndarray)}
    sample = steps._replace(**arrays)
    rows = checked_rows(sample, last[begin:], how)
    if rows.next_values is not None and not ESTIMATORS[how.estimator].every_value:  # the others were not read
        rows = rows._replace(next_values=None, final_values=rows.next_values[rows.truncated])
    arguments = gae_arguments(rows, None)
    decay = how.options.get("gae_lambda", GAE_LAMBDA)
    found = fastgae.diagnose(**arguments, gamma=how.gamma, gae_lambda=decay)
    first = (tuple((int(row_of(begin + t)), *env) for t, *env in finding.where.first) for finding in found)
    findings = [
        finding._replace(where=finding.where._replace(first=each)) for finding, each in zip(found, first, strict=True)
    ]
    return fastgae.Diagnosis(findings, found.overview)
