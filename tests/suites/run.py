"""Run the published tests of a library twice: as it is, and with fastgae in place."""

import os
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import distribution, version
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from .in_place import CALLS
from .libraries import LIBRARIES, Library

TESTS = Path(__file__).parents[1]
SECONDS = 2400  # for one run of the tests of one library, which takes 5 to 400 on one core, or for fetching them
NOT_PASSED = {"error", "failure", "skipped"}


class Outcome(NamedTuple):
    """The tests of a run that passed, and how many calls of fastgae all of them made."""

    passed: frozenset[str]
    calls: int


def compared(name: str) -> tuple[Outcome, Outcome]:
    """Run the tests of the installed version as it is, and with fastgae in place.

    Raise ModuleNotFoundError if the library or its tests are not there.
    """
    library = LIBRARIES[name]
    release = version(library.package)
    if library.release not in ("", release):
        raise ModuleNotFoundError(
            f"{library.package} {release} is installed, and the tests are those of {library.release}"
        )
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if library.where == "wheel":
            source = Path(str(distribution(library.package).locate_file("")))
        elif library.where == "sdist":
            source = unpacked(library.package, release, folder)
        else:
            source = fetched(library, folder)
        return run(name, source, folder), run(name, source, folder, "--in-place")


def fetched(library: Library, folder: Path) -> Path:
    """Fetch a commit and check out its tests alone; ModuleNotFoundError if nothing says where the repositories are.

    Without the library's own modules there, the tests import the installed ones.
    """
    hub = os.environ.get("FASTGAE_TEST_REPOSITORIES")
    if not hub:
        raise ModuleNotFoundError(f"FASTGAE_TEST_REPOSITORIES does not say where to fetch {library.where}")
    repository, _, commit = library.where.partition("@")
    top = library.tests[0].partition("/")[0]
    for arguments in (
        ["init", "--quiet"],
        ["fetch", "--quiet", "--depth=1", f"{hub}/{repository}", commit],
        ["checkout", "--quiet", "FETCH_HEAD", "--", top],
    ):
        subprocess.run(["git", "-C", folder, *arguments], check=True, timeout=SECONDS)
    return folder


def unpacked(package: str, release: str, folder: Path) -> Path:
    """Fetch a source distribution and return the folder that it unpacks to, with nothing but its tests."""
    fetch = ["download", "--quiet", "--no-deps", "--no-binary", package, "--dest", folder]
    subprocess.run([sys.executable, "-m", "pip", *fetch, f"{package}=={release}"], check=True, timeout=SECONDS)
    (packed,) = folder.glob("*.tar.gz")
    top = packed.name.removesuffix(".tar.gz")
    with tarfile.open(packed) as opened:
        tests = [member for member in opened if member.name.startswith(f"{top}/tests/")]
        opened.extractall(folder, tests, filter="data")
    return folder / top


def run(name: str, source: Path, folder: Path, *options: str) -> Outcome:
    """Run the tests with these options of the plugin."""
    library, report = LIBRARIES[name], folder / "report.xml"
    command = [
        *(sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"),
        *("-c", os.devnull, f"--rootdir={source}"),  # without settings, neither this repository's nor the library's
        *(("-k", library.selected) if library.selected else ()),
        *(f"--ignore={source / each}" for each in library.ignored),
        *("-p", "suites.in_place", "--library", name, *options),
        *(source / each for each in library.tests),
    ]
    places = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))  # where the plugin is
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": places}  # the networks are too small to share
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    if done.returncode not in (0, 1):  # 1 says that tests failed; after any other status the report is not whole
        raise RuntimeError(f"pytest could not run the tests of {library.package}:\n{done.stdout}{done.stderr}")
    print(done.stdout, file=sys.stderr)  # what a failing test of this repository shows
    return outcome(ElementTree.parse(report))


def outcome(report: ElementTree.ElementTree) -> Outcome:
    """Read what pytest reports in the format of JUnit."""
    passed = frozenset(
        f"{test.get('classname')}::{test.get('name')}"
        for test in report.iter("testcase")
        if NOT_PASSED.isdisjoint(part.tag for part in test)
    )
    calls = sum(int(each.get("value", 0)) for each in report.iter("property") if each.get("name") == CALLS)
    return Outcome(passed, calls)
