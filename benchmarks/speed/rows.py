"""What a row is: one call to time and the rollout it is made on. ``table.py`` lists them all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .rollouts import GIVEN, make_rollout

BOTH, ADVANTAGES, FRESH = "both outputs", "advantages only", "fresh outputs"
PACKED: dict[str, Any] = {"function": "gae_packed", "bootstrap": "cu_seqlens", "options": {"gamma": 1.0}}
NEXT_STEP: dict[str, Any] = {"options": {"autoreset": "next_step"}}
N_STEPS: dict[str, Any] = {"function": "n_step_returns", "options": {"n": 5}}
# How each case differs from the plain one, which has one flag, last_values, and scalars for gamma and lambda.
OPTIONS: dict[str, dict[str, Any]] = {
    "next_values": {"bootstrap": "next_values"},
    "final_values": {"bootstrap": "final_values"},
    "mask": {"extras": ("mask",)},
    "gamma per step": {"extras": ("gamma",)},
    "V-trace": {"extras": ("ratios",), "function": "vtrace"},
    "normalize": {"options": {"normalize": "global"}},
    "packed": PACKED,
}
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    **OPTIONS,
    "discounts": {"extras": ("discounts",)},
    "returns_lambda": {"options": {"returns_lambda": 0.9}},
    "td_lambda": {"function": "td_lambda"},
    "discounted_returns": {"function": "discounted_returns", "without": ("values",)},
    "reverse_scan": {"function": "reverse_scan", "bootstrap": "decay"},
    "upgo": {"function": "upgo"},
    "n_step_returns": N_STEPS,
    "n_step_returns, mask": {**N_STEPS, "extras": ("mask",)},
    "retrace": {"function": "retrace", "bootstrap": "next_values", "extras": ("ratios",)},
    "packed, mask": {**PACKED, "extras": ("mask",)},
    "next_step": NEXT_STEP,
    "next_step, mask": {**NEXT_STEP, "extras": ("mask",)},
    **{given: {"given": given} for given in GIVEN},
}


@dataclass(frozen=True)
class Row:
    """One call to time, and its rollout. A size is T×N in either layout."""

    group: str
    steps: int
    envs: int
    detail: str = ""
    function: str = "gae"  # the name of a public function of fastgae
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)  # its arguments that are not arrays
    env_major: bool = False
    outputs: str = BOTH
    bootstrap: str = "last_values"
    extras: Sequence[str] = ()  # its arrays beyond those of the plain case
    without: Sequence[str] = ()  # arrays of the plain case that the function does not take
    given: str = ""  # how the arrays are passed, by a name in GIVEN; else as fastgae reads them in place
    dtype: str = "float32"
    ends: float = 0.01
    cold: bool = False  # another rollout in every call, as in training, so that no cache holds its arrays

    @property
    def label(self) -> str:
        return f"{self.steps}×{self.envs} {self.detail}".strip()

    @property
    def name(self) -> str:
        """Return the row's key in the files of accepted numbers."""
        return f"{self.group}: {self.label}"

    @property
    def size(self) -> int:
        return self.steps * self.envs

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the function by name: new arrays, and the options."""
        settings = ("env_major", "dtype", "bootstrap", "ends", "extras")
        rollout = make_rollout(self.steps, self.envs, **{name: getattr(self, name) for name in settings})
        passed = {name: array for name, array in rollout.items() if name not in self.without}
        if self.given:
            passed = {name: GIVEN[self.given](name, array) for name, array in passed.items()}
        return {**passed, **self.options}


def case(name: str, steps: int, envs: int, **settings: Any) -> Row:
    """Return the row of a case; its name mentions every setting that is not the usual one.

    Packed sequences hold the same number of steps end to end.
    """
    size = (steps * envs, 1) if name.startswith("packed") else (steps, envs)
    unusual = (
        "env-major" if settings.get("env_major") else "",
        settings.get("dtype", ""),
        settings.get("outputs", ""),
        "cold" if settings.get("cold") else "",
    )
    return Row(name, *size, detail=" ".join(filter(None, unusual)), **CASES[name], **settings)
