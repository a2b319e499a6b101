"""The compiled kernels: one source, compiled for several CPU targets. One target is chosen at run time."""

from importlib import resources

from fastgae._backends import CPU_TARGETS
from fastgae._call import ABSENT, EPS, NEW, Call, GAEResult
from fastgae._support.project import how_to_install
from fastgae._support.threads import usable_cpus

# pip keeps a wheel that it built without a compiler, and would install it again.
REBUILDING = "--force-reinstall --no-deps --no-cache-dir"
BUILD_IT = f"to build it, run where a C++17 compiler is: {how_to_install(options=REBUILDING)}"

try:
    import fastgae._core as _core
except ModuleNotFoundError as error:
    # setup.py leaves the compiler's message here if it built without the extension.
    failure = resources.files("fastgae").joinpath("_build_failure.txt")
    reason = (
        failure.read_text(encoding="utf-8").rstrip()
        if failure.is_file()
        else "this installation has no compiled module"
    )
    raise ModuleNotFoundError(f"not built: {reason}\n{BUILD_IT}", name=error.name) from error

if _core.arguments != Call._fields:  # it would take one argument for another
    raise ImportError(f"the compiled module was built from other sources than the rest of fastgae; {BUILD_IT}")

_core.connect(GAEResult, NEW, ABSENT, usable_cpus, EPS)

RECURSIONS = _core.recursions
gae = _core.gae
short_cut = _core.short_cut
block_sums = _core.block_sums
rescale = _core.rescale
exact_sums = _core.exact_sums


def version() -> str:
    return _core.compiler


def targets() -> tuple[str, ...]:
    return tuple(name for name in CPU_TARGETS if _core.supports(name))
