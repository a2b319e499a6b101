"""Let programs that ``jax.export`` has stored run in a process that imports fastgae, and calls nothing of it.

XLA must know the compiled module before it compiles such a program. fastgae cannot import JAX for that, and whether a
process imports JAX before or after fastgae is up to a sorter of import statements.
"""

import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


def tell_jax() -> None:
    """Tell JAX about fastgae now, or as soon as the process has imported JAX."""
    if "jax" in sys.modules:
        _register()
    else:
        sys.meta_path.insert(0, _UntilJax())


def _register() -> None:
    try:
        from fastgae._interop.jax_xla import is_ready
    except Exception:  # JAX is half imported, or too old for fastgae: a call will say so
        return
    is_ready()


class _UntilJax:
    """Find only JAX, until it has been imported: a program may look for it first, as importlib.util.find_spec does."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "jax" or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec("jax")
        finally:
            sys.meta_path.insert(0, self)
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def run_and_register(module: ModuleType) -> None:
            run(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            _register()

        spec.loader.exec_module = run_and_register  # type: ignore[method-assign]
        return spec
