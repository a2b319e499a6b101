"""What a computation over recorded data found."""

from dataclasses import dataclass
from typing import Any

import fastgae
from fastgae.data.steps import Computed


@dataclass(frozen=True)
class Report:
    """Episodes and steps that were computed."""

    episodes: int
    steps: int
    seconds: float
    file: str


@dataclass(frozen=True)
class Sums:
    runs: int = 0
    steps: int = 0
    episodes: int = 0

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(self.runs + other.runs, self.steps + other.steps, self.episodes + other.episodes)

    @classmethod
    def of(cls, computed: Computed) -> "Sums":
        return cls(1, len(computed.last), int(computed.last.sum()))

    def as_dict(self) -> dict[str, Any]:
        return vars(self)

    @classmethod
    def from_dict(cls, kept: dict[str, Any]) -> "Sums":
        return cls(**kept)

    def report(self, file: str, seconds: float) -> Report:
        return Report(self.episodes, self.steps, seconds, file)
