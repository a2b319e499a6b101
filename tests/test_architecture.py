"""The rules of the house: who may import whom, who may look outside, and what an import may cost."""

import ast
import functools
import graphlib
import importlib
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fastgae
from fastgae._engine import dispatch
from support.backends import BACKENDS, ONE_TARGET, no_short_cut
from support.functions import ways_of

PACKAGE = Path(fastgae.__file__).parent
CSRC = Path(__file__).parents[1] / "csrc"

# Data walks one way, and so do imports: a layer may import those after it, never those before it.
LAYERS = ["", "cli", "ray", "data", "compat", "testing", "_diagnose", "estimators", "_engine", "_backends"]
LAYERS += ["_canonical", "_equation", "_interop", "_support", "_call", "_typing", "_core"]
SOURCES = sorted(path for path in PACKAGE.rglob("*.py"))


def module_name(path):
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def imports(path):
    """The modules that a file imports, at its top or inside functions."""
    return tuple(imported_by(path))


def imported_by(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            for name in node.names:
                inner = f"{node.module}.{name.name}"
                path_of_inner = PACKAGE.parent.joinpath(*inner.split("."))
                is_module = path_of_inner.is_dir() or path_of_inner.with_suffix(".py").exists()
                yield inner if is_module else node.module


def layer(module):
    """Its place in LAYERS; None for what is not of this package. Files beside the package itself are its front door."""
    package, _, rest = module.partition(".")
    if package != "fastgae":
        return None
    first = rest.partition(".")[0]
    return LAYERS.index(first) if first in LAYERS else 0


def test_imports_never_run_back():
    for path, imported in ((each, name) for each in SOURCES for name in imports(each)):
        ours = layer(module_name(path))
        theirs = layer(imported)
        # Running as a program, the command line and recorded data are users of the public package, at its front door.
        if theirs is None or ours == LAYERS.index("cli") or path.name == "__main__.py":
            continue
        if imported == "fastgae" and LAYERS[ours] in ("ray", "data"):
            continue
        assert theirs >= ours, f"{path.name} imports {imported}"


@pytest.mark.parametrize("backend", ONE_TARGET)
def test_a_call_passes_few_files(backend):
    """docs/design.md shows the way of a call. Files that help on the way, and return to it, do not go deep either."""
    rewards, values = np.ones((2, 6, 3), np.float32)  # another test compiles this kernel of Numba
    flags = np.zeros((6, 3), bool)

    def call():
        fastgae.gae(rewards, values, flags, last_values=0.0, mask=flags[:, ::-1], backend=backend)

    with no_short_cut(backend):
        ways = ways_of(call)
    way = ("estimators/gae.py", "_engine/run.py")
    if backend in ("numba", "numpy"):  # a compiled module is no file
        way += ("_backends/numba/__init__.py" if backend == "numba" else "_backends/numpy.py",)
    assert way in ways
    assert max(map(len, ways)) <= 6


def test_no_imports_in_a_circle():
    """Two files that need each other are read as one. The front door is left out: data and the commands use it."""
    files = {module_name(path): path for path in SOURCES}
    needed = {name: {*imports(path)} & files.keys() - {"fastgae", name} for name, path in files.items()}
    graphlib.TopologicalSorter(needed).prepare()  # raises CycleError


def test_only_dispatch_knows_backends():
    """A backend is chosen by name, in one place; no estimator and no other backend reaches for one."""
    for path in SOURCES:
        name = module_name(path)
        own = ".".join(name.split(".")[:3])  # a backend may be a package
        reached = {imported for imported in imports(path) if imported.startswith("fastgae._backends.")}
        reached -= {imported for imported in reached if f"{imported}.".startswith(f"{own}.")}
        assert not reached or name == "fastgae._engine.dispatch", f"{name} imports {reached}"


def test_only_canonical_checks_arrays():
    """Estimators and the way of a call ask _canonical; they look at no dtype, strides or flags of an array."""
    for path in SOURCES:
        if LAYERS[layer(module_name(path))] in ("estimators", "_engine"):
            looks = re.findall(r"\.(?:dtype|strides|flags(?!\()|itemsize|ndim)\b", path.read_text(encoding="utf-8"))
            assert not looks, path.name


def test_only_dispatch_reads_the_environment_and_its_table_has_every_variable():
    texts = {module_name(path): path.read_text(encoding="utf-8") for path in SOURCES}
    reading = {name for name, text in texts.items() if re.search(r"\bos\.environ|\bgetenv\b|\benviron\b", text)}
    assert reading == {"fastgae._engine.dispatch"}
    mentioned = {name for text in texts.values() for name in re.findall(r"\bFASTGAE_[A-Z_]+", text)}
    assert mentioned - {"FASTGAE_BUILD_EXT"} <= set(dispatch.ENVIRONMENT)


def test_only_bindings_know_python():
    assert CSRC.is_dir()
    for path in CSRC.iterdir():
        text = path.read_text(encoding="utf-8")
        knows = re.search(r"#\s*include\s*[<\"](pybind11|Python\.h|numpy)", text)
        assert bool(knows) == (path.name.startswith(("bindings", "python", "new_arrays"))), path.name


def test_no_unsafe_compiler_settings():
    """-ffast-math would flush denormals in the whole process; attributes and pragmas can ask for it too."""
    for path in [*CSRC.iterdir(), CSRC.parent / "setup.py"]:
        text = re.sub(r"(#|//).*never.*", "", path.read_text(encoding="utf-8"))
        assert not re.search(r"(?<!no-)fast-math|-Ofast|-march=native|fp:fast|fp_contract\s*\(?\s*on|-mfma", text, re.I)


@pytest.mark.skipif(not shutil.which("c++"), reason="needs a compiler")
def test_unsafe_compiler_settings_of_the_caller_are_refused():
    """They may stand in CFLAGS, before those of setup.py. x87 rounds twice, and 32 bits do not count every step."""
    compiler, said = "c++", {"-O2": "", "-ffast-math": "IEEE 754", "-Ofast": "IEEE 754"}
    if shutil.which("g++") and (sys.platform, platform.machine()) == ("linux", "x86_64"):  # options of GCC on x86
        compiler = "g++"
        said |= {"-mfpmath=387": "IEEE 754", "-m32": "64-bit", "-m32 -msse2 -mfpmath=sse": "64-bit"}
    command = [compiler, "-std=c++17", "-fsyntax-only", "-x", "c++", str(CSRC / "architecture.hpp")]
    for options, why in said.items():
        done = subprocess.run([*command, *options.split()], capture_output=True, text=True)
        assert bool(done.returncode) == bool(why), options
        assert why in done.stderr, options


@pytest.mark.parametrize("name", sorted({backend.partition(":")[0] for backend in BACKENDS}))
def test_every_backend_offers_the_contract(name):
    contract = importlib.import_module("fastgae._backends").Backend
    offered = {name for name in dir(contract) if not name.startswith("_")}
    assert {"version", "targets", "gae", "block_sums", "rescale", "exact_sums"} <= offered
    module = importlib.import_module(f"fastgae._backends.{name}")
    assert all(callable(getattr(module, name)) for name in offered - {"RECURSIONS"})
    assert "gae" in module.RECURSIONS
    assert hasattr(module, "short_cut") == (name != "numpy"), "a backend without a short cut has no stub"
    assert isinstance(module.version(), str)
    assert isinstance(module.targets(), tuple)


def test_import_loads_only_numpy(python):
    code = "import sys, numpy; before = set(sys.modules); import fastgae; print(*set(sys.modules) - before)"
    loaded = set(python(code).split())
    roots = {name.partition(".")[0] for name in loaded}
    assert roots - sys.stdlib_module_names == {"fastgae"}
    assert not roots & {"asyncio", "argparse"}
    assert not loaded & {"fastgae._backends.numba", "fastgae.cli", "fastgae.data", "fastgae.ray", "fastgae.testing"}


def test_a_call_loads_only_its_backend(python):
    code = "import sys, fastgae; print([fastgae.gae([1.0], [1.0, 1.0], [0], backend=each) for each in sys.argv[1:]])"
    loaded = python(f"{code}; print(*sys.modules)", *({name.partition(":")[0] for name in BACKENDS} - {"numba"}))
    assert not {*loaded.split()} & {"numba", "gymnasium", "torch", "rich", "matplotlib"}


def test_submodules_are_found_at_first_use(python):
    """`import fastgae` is enough for the lines of the documentation, and dir() shows the public names."""
    peers = sorted(path.stem for path in PACKAGE.joinpath("compat").glob("[!_]*.py"))
    assert fastgae.compat.__all__ == dir(fastgae.compat) == peers
    assert python("import fastgae; print(fastgae.compat.tianshou.__name__)") == "fastgae.compat.tianshou"
    assert dir(fastgae) == sorted([*fastgae.__all__, "compat", "data", "ray", "testing"])
    for owner in (fastgae, fastgae.compat):
        with pytest.raises(AttributeError, match="no attribute 'qqq'"):
            owner.qqq  # noqa: B018
    without = "import sys; sys.modules.update(pyarrow=None, ray=None); import fastgae; help(fastgae); fastgae.data"
    failed = python(without, check=False)
    assert failed.stderr.rstrip().endswith("pip install '.[data]' in a clone of fastgae")


def test_denormals_survive(python):
    """A library built with -ffast-math flushes them to zero in the whole process as soon as it is loaded."""
    code = """
import sys
import numpy as np

def halves():
    tiny = np.full(64, 1e-38, np.float32)
    return [np.float32(1e-38) * np.float32(.5), np.float64(1e-308) * .5, *(tiny * np.float32(.5))]

before = halves()
import fastgae
assert min(before) > 0 and before == halves(), "after the import"
ones = np.ones((300, 4096), np.float32)
for backend in sys.argv[1:]:
    fastgae.gae(ones, ones, ones, last_values=ones[0], backend=backend)
    assert before == halves(), backend
"""
    python(code, *ONE_TARGET)
