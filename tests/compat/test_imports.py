"""Nobody pays for a library that is not used: fastgae.compat imports neither the peers nor torch nor JAX."""

import pkgutil

import fastgae.compat

NAMES = sorted(module.name for module in pkgutil.iter_modules(fastgae.compat.__path__))


def test_only_numpy_is_imported(python):
    modules = ", ".join(f"fastgae.compat.{name}" for name in NAMES)
    loaded = python(
        f"import sys, {modules}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    ).split()
    assert "numpy" in loaded
    assert not {"torch", "jax", "gymnasium", "ray", *NAMES} & set(loaded)
