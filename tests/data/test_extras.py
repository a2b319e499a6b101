"""Libraries that not every user has: loaded where they are needed, and their extra is named where they are missing."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

from fastgae._support.project import how_to_install
from fastgae.data import compute
from fastgae.data.errors import EXTRAS, brought_by

MISSING = """
import sys

class Missing:
    def find_spec(name, path=None, target=None):
        if name == sys.argv[1]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing)
"""


def test_an_import_reads_no_files(python):
    loaded = python("import sys, fastgae.data; print(*sys.modules)").split()
    assert not {"h5py", "matplotlib", "minari", "pandas", "pyarrow.dataset", "torch"} & set(loaded)


TURNS = {"episode": [0, 1, 0, 1], "step": [0, 0, 1, 1], "rewards": [1.0] * 4, "values": [0.0] * 4}
NEEDED = {"filelock": "fastgae.data", "pyarrow": "fastgae.data", "tqdm": "a progress bar", "duckdb": "sorting rows"}


@pytest.mark.parametrize("library", EXTRAS["data"])
def test_the_extra_of_the_package(python, library):
    sort = "import pyarrow\nfastgae.data.compute(pyarrow.table({TURNS}), ends='terminated', progress={bar})"
    sort = sort.format(TURNS=TURNS, bar=library == "tqdm")
    done = python(f"{MISSING}import fastgae.data\n{sort}", library, check=False)
    message = f"{NEEDED[library]} needs {library}, which is not installed: run {how_to_install('data')}"
    assert done.stderr.strip().endswith(f"ModuleNotFoundError: {message}")


def test_the_extra_of_hdf5(tmp_path, monkeypatch):
    (tmp_path / "a.hdf5").touch()
    monkeypatch.setitem(sys.modules, "h5py", None)
    message = rf"^reading .*a\.hdf5 needs h5py, which is not installed: run {re.escape(how_to_install('hdf5'))}$"
    with pytest.raises(ModuleNotFoundError, match=message):
        compute(tmp_path / "a.hdf5")


def test_what_a_library_needs_is_no_extra_of_ours():
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'no_such_library'$"), brought_by("hdf5", "it"):
        import no_such_library  # noqa: F401


PROJECTS = {"upath": "universal-pathlib"}  # where a library has another name than its project


def test_the_extras_bring_them():
    file = Path(__file__).parents[2] / "pyproject.toml"
    extras = tomllib.loads(file.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for extra, libraries in EXTRAS.items():
        for library in libraries:
            assert any(requirement.startswith(PROJECTS.get(library, library)) for requirement in extras[extra])
