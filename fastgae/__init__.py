"""Compute advantages and value targets from reinforcement-learning rollouts, with the same bits on every backend."""

import importlib
import typing

from fastgae._backends import BackendUnavailableError
from fastgae._call import GAEResult
from fastgae._engine.dispatch import BackendInfo, backends
from fastgae._interop.stored_programs import tell_jax
from fastgae._support.misnamed import no_name
from fastgae.estimators.discounted_returns import discounted_returns
from fastgae.estimators.gae import gae
from fastgae.estimators.gae_packed import gae_packed
from fastgae.estimators.gae_tree import gae_tree
from fastgae.estimators.group_advantages import group_advantages
from fastgae.estimators.n_step_returns import n_step_returns
from fastgae.estimators.normalize import normalize
from fastgae.estimators.retrace import retrace
from fastgae.estimators.reverse_scan import reverse_scan
from fastgae.estimators.td_lambda import td_lambda
from fastgae.estimators.upgo import upgo
from fastgae.estimators.valid_steps import valid_steps
from fastgae.estimators.vtrace import vtrace

if typing.TYPE_CHECKING:
    from fastgae import compat as compat
    from fastgae import data as data
    from fastgae import ray as ray
    from fastgae import testing as testing
    from fastgae._diagnose.diagnose import diagnose
    from fastgae._diagnose.report import Diagnosis, Finding
    from fastgae.estimators.moments import Moments, moments

__version__ = "0.1.0.dev0"

__all__ = [
    "BackendInfo",
    "BackendUnavailableError",
    "Diagnosis",
    "Finding",
    "GAEResult",
    "Moments",
    "__version__",
    "backends",
    "diagnose",
    "discounted_returns",
    "gae",
    "gae_packed",
    "gae_tree",
    "group_advantages",
    "moments",
    "n_step_returns",
    "normalize",
    "retrace",
    "reverse_scan",
    "td_lambda",
    "upgo",
    "valid_steps",
    "vtrace",
]

# These take a third of the time of `import fastgae`, and training needs none of them: they are imported at first use.
_AT_FIRST_USE = {
    "Diagnosis": "fastgae._diagnose.report",
    "Finding": "fastgae._diagnose.report",
    "Moments": "fastgae.estimators.moments",
    "diagnose": "fastgae._diagnose.diagnose",
    "moments": "fastgae.estimators.moments",
}
_SUBMODULES = ("compat", "data", "ray", "testing")

tell_jax()

if not typing.TYPE_CHECKING:  # otherwise a type checker would accept every name, also a misspelled one

    def __getattr__(name: str) -> typing.Any:
        if name in _SUBMODULES:
            try:
                return importlib.import_module(f"fastgae.{name}")
            except ModuleNotFoundError as error:  # help() asks for every name, and skips those with an AttributeError
                raise AttributeError(str(error)) from error
        if name not in _AT_FIRST_USE:
            raise no_name(__name__, name, __all__)
        globals()[name] = getattr(importlib.import_module(_AT_FIRST_USE[name]), name)
        return globals()[name]


def __dir__() -> list[str]:
    return sorted({*__all__, *_SUBMODULES})
