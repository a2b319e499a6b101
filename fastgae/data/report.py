"""What a computation over recorded data found."""

import io
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np

import fastgae
from fastgae.data.estimators import GAE_LAMBDA, How, gae_arguments
from fastgae.data.steps import Computed, RecordedSteps, carried_into, checked_rows, sampled

SAMPLE = 65_536  # rows for fastgae.diagnose


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
    def of(cls, computed: Computed) -> "Sums":
        return cls(
            computed.last.size,
            int(np.count_nonzero(computed.last)),
            fastgae.Moments() if computed.advantages is None else fastgae.moments(computed.advantages),
            fastgae.moments(computed.returns),
        )

    @classmethod
    def from_dict(cls, kept: Mapping[str, Any]) -> "Sums":
        """Return the sums from the dict that ``dataclasses.asdict`` made."""
        moments = {name: fastgae.Moments(**kept[name]) for name in ("advantages", "returns")}
        return cls(kept["steps"], kept["episodes"], **moments)

    @property
    def explained_variance(self) -> float:
        varies = self.returns.variance > 0
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
    threshold : float or None
        The quantile of the advantages, before normalisation, above which they are labelled positive.
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
    threshold: float | None = None

    def __str__(self) -> str:
        from rich.console import Console
        from rich.table import Table

        of_values = {
            "advantages": f"mean {self.mean:.6g}, standard deviation {self.std:.6g}",
            **({} if self.threshold is None else {"positive": f"advantages above {self.threshold:.6g}"}),
            "explained variance": f"{self.explained_variance:.4f}",
            "diagnose": "\n".join(self.findings) or f"found nothing in a sample of {min(SAMPLE, self.steps):,} steps",
        }
        rows = {
            "file": self.file,
            "episodes": f"{self.episodes:,}",
            "steps": f"{self.steps:,}",
            "returns": f"mean {self.returns_mean:.6g}, standard deviation {self.returns_std:.6g}",
            **(of_values if self.has_advantages else {}),
            "time": f"{self.seconds:.2f} s, {self.steps / self.seconds / 1e6:.1f} million steps/s",
        }
        table = Table(show_header=False, box=None)
        for name, value in rows.items():
            table.add_row(name, value)
        text = io.StringIO()
        Console(file=text, width=max(120, 22 + len(self.file))).print(table)  # a path in two lines cannot be copied
        return text.getvalue().rstrip()

    def to_json(self, indent: int | None = None) -> str:
        """Return one JSON object. NaN is null there."""
        return json.dumps({k: None if v != v else v for k, v in asdict(self).items()}, indent=indent)


def report_of(said: Mapping[str, Any], file: str, seconds: float) -> Report:
    """Return the report of what results say about themselves."""
    sums, findings = Sums.from_dict(said["sums"]), said["findings"]
    advantages, returns = sums.advantages, sums.returns
    numbers = (advantages.mean, advantages.std, returns.mean, returns.std, sums.explained_variance)
    threshold = said.get("threshold")
    return Report(file, sums.episodes, sums.steps, *numbers, advantages.count > 0, tuple(findings), seconds, threshold)


def findings_in(steps: RecordedSteps, how: How) -> list[str]:
    """Return what fastgae.diagnose finds in the first rows of the last run, if there are values."""
    return [] if steps.values is None else [finding.what for finding in diagnosis_of(steps, how)]


def diagnosis_of(steps: RecordedSteps, how: How) -> fastgae.Diagnosis:
    """Return what fastgae.diagnose says of the first rows."""
    sample, following = sampled(steps, SAMPLE)
    rows, last = checked_rows(sample, following, how)
    arguments = gae_arguments(rows, carried_into(last, following))
    decay = how.options.get("gae_lambda", GAE_LAMBDA)
    return fastgae.diagnose(**arguments, gamma=how.gamma, gae_lambda=decay)
