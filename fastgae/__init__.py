"""fastgae: advantages and value targets from reinforcement-learning rollouts.

Right in every convention, the same bits on every backend, as cheap as touching the memory once.
"""

from fastgae._canonical import GAEResult
from fastgae._dispatch import BackendInfo, BackendUnavailableError, backends
from fastgae.estimators.gae import gae

__version__ = "0.1.0"

__all__ = ["BackendInfo", "BackendUnavailableError", "GAEResult", "__version__", "backends", "gae"]
