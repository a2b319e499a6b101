"""Libraries that not every user has: loaded where they are needed, and their extra is named where they are missing."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

from fastgae._support.project import how_to_install
from fastgae.data import compute
from fastgae.data.errors import EXTRAS, brought_by

WITHOUT = """
import sys, fastgae.data, pyarrow
print({"h5py", "matplotlib", "minari", "pandas", "pyarrow.dataset", "torch"} & {*sys.modules})
turns = {"episode": [0, 1, 0, 1], "step": [0, 0, 1, 1], "rewards": [1.0] * 4, "values": [0.0] * 4}
for library in sys.argv[1:]:
    imported = {name for name in sys.modules if name.startswith("fastgae.data") or name.partition(".")[0] == library}
    kept = {name: sys.modules.pop(name) for name in imported}
    sys.modules[library] = None
    try:
        import fastgae.data
        fastgae.data.compute(pyarrow.table(turns), ends="terminated", progress=library == "tqdm")
    except ModuleNotFoundError as error:
        print(error)
    sys.modules.pop(library)
    sys.modules.update(kept)
"""
NEEDED = {"filelock": "fastgae.data", "pyarrow": "fastgae.data", "tqdm": "a progress bar", "duckdb": "sorting rows"}


def test_the_extra_of_the_package(python):
    """Its import reads no other libraries, and says how to install what is missing."""
    way = f"which is not installed: run {how_to_install('data')}"
    messages = [f"{NEEDED[library]} needs {library}, {way}" for library in EXTRAS["data"]]
    assert python(WITHOUT, *EXTRAS["data"]).splitlines() == ["set()", *messages]


def test_the_extra_of_hdf5(tmp_path, monkeypatch):
    (tmp_path / "a.hdf5").touch()
    monkeypatch.setitem(sys.modules, "h5py", None)
    message = rf"^reading .*a\.hdf5 needs h5py, which is not installed: run {re.escape(how_to_install('hdf5'))}$"
    with pytest.raises(ModuleNotFoundError, match=message):
        compute(tmp_path / "a.hdf5")


def test_what_a_library_needs_and_a_mistake_of_no_library_stay_what_they_are():
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'no_such_library'$"), brought_by("hdf5", "it"):
        import no_such_library  # noqa: F401
    with pytest.raises(ZeroDivisionError), brought_by("hdf5", "it"):
        1 / 0  # noqa: B018


FIRST_LINES = {  # of a package that is installed, and how the message names what its import raises
    "raise ImportError('libarrow.so: cannot open')": "ImportError: libarrow.so: cannot open",
    "import numpy; numpy.no_such_name": "AttributeError: module 'numpy' has no attribute 'no_such_name'",
    "import no_such_library": "ModuleNotFoundError: No module named 'no_such_library'",
}
OF_SYSTEM, OF_NUMPY, OF_OTHERS = FIRST_LINES
BROKEN = [  # a library, its first line, and the message
    *(("pyarrow", each, "needs pyarrow, which is installed but does not load: {}\n") for each in FIRST_LINES),
    ("filelock", OF_SYSTEM, "needs filelock, which is installed but does not load: {}\n"),
    ("matplotlib", OF_NUMPY, "needs matplotlib, which is installed but does not load: {}\n"),
    ("upath", OF_SYSTEM, "needs upath, which is installed but does not load: {}\n"),
    ("s3fs", OF_NUMPY, "needs a library that does not load: {}\n"),
    ("s3fs", OF_OTHERS, "Install s3fs"),  # fsspec says so
    ("h5py", OF_OTHERS, "needs h5py, which is installed but does not load: {}\n"),  # last, for s3fs is loaded then
]
# One process for all, because most of its time goes into imports of what is not broken. Only fastgae.data comes anew.
COMMANDS = """
import sys
from pathlib import Path
from fastgae.cli.main import main
Path("a.hdf5").touch()
for package in sys.argv[1:]:
    library = Path(package).name
    imported = {name for name in sys.modules if name.startswith("fastgae.data") or name.partition(".")[0] == library}
    kept = {name: sys.modules.pop(name) for name in imported}
    sys.path.insert(0, str(Path(package).parent))
    for source in ("a.hdf5", "s3://bucket/a.parquet"):
        assert main(["compute", source, "--quiet", "--plot", "a.png"]) == 2
    print("====", file=sys.stderr)
    sys.path.pop(0)
    sys.modules.update(kept)
"""


def test_a_library_that_is_installed_and_broken_is_named(tmp_path, python):
    """One line, and no traceback, as after an update of NumPy or of the system."""
    packages = [tmp_path / str(number) / library for number, (library, *_) in enumerate(BROKEN)]
    for package, (_, first_line, _) in zip(packages, BROKEN, strict=True):
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(first_line)
    done = python(COMMANDS, *map(str, packages), check=False)
    assert done.returncode == 0, done.stderr
    for (library, first_line, message), said in zip(BROKEN, done.stderr.split("====\n")[:-1], strict=True):
        assert message.format(FIRST_LINES[first_line]) in said, library


PROJECTS = {"upath": "universal-pathlib"}  # where a library has another name than its project


def test_the_extras_bring_them():
    file = Path(__file__).parents[2] / "pyproject.toml"
    extras = tomllib.loads(file.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for extra, libraries in EXTRAS.items():
        for library in libraries:
            assert any(requirement.startswith(PROJECTS.get(library, library)) for requirement in extras[extra])
