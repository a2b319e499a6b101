"""What is shipped: one version, the licence, types, and documents that agree with the code."""

import ast
import contextlib
import inspect
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
from importlib import metadata, resources
from pathlib import Path

import pytest

import fastgae
from fastgae._engine import dispatch
from fastgae._support import project

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SETTINGS = (ROOT / "docs" / "backends.md").read_text(encoding="utf-8")
CI = (ROOT / ".ci" / "steps.mk").read_text()


def readme_blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_one_version():
    assert "version" in PROJECT["dynamic"]
    holders = [
        path.relative_to(ROOT).as_posix()
        for path in [*ROOT.glob("*.py"), *ROOT.glob("*.toml"), *(ROOT / "fastgae").rglob("*.py")]
        if fastgae.__version__ in path.read_text(encoding="utf-8")
    ]
    assert holders == ["fastgae/__init__.py"]


def test_metadata():
    try:
        distribution = metadata.distribution(project.DISTRIBUTION)
    except metadata.PackageNotFoundError:
        pytest.skip("fastgae is not installed: this is a source tree on the path")
    assert distribution.version == fastgae.__version__
    assert distribution.metadata["License-Expression"] == "MIT"
    assert distribution.metadata["License-File"] == "LICENSE"
    assert distribution.metadata["Requires-Python"] == ">=3.11"
    run_time = [r for r in distribution.requires if "extra ==" not in r]
    assert [re.match(r"[\w-]+", r).group() for r in run_time] == ["numpy"]
    (command,) = (e for e in distribution.entry_points if e.group == "console_scripts")
    assert command.name == "fastgae"
    assert callable(command.load())


in_a_clone = pytest.mark.skipif(not (ROOT / ".git").exists() or not shutil.which("git"), reason="this is no clone")


def tracked_files():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return {name for name in listed.split("\0") if (ROOT / name).is_file()}


def source_distribution(tree, folder):
    """Build one from a tree without isolation; return its file and the names in it, without the first folder."""
    code = "import sys; from setuptools import build_meta; print(build_meta.build_sdist(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", code, folder], cwd=tree, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    file = folder / done.stdout.split()[-1]
    with tarfile.open(file) as opened:
        return file, {member.name.partition("/")[2] for member in opened if member.isfile()}


@in_a_clone
def test_the_source_distribution_is_what_git_tracks(tmp_path):
    pytest.importorskip("pybind11")
    pytest.importorskip("setuptools", minversion="77")
    clone, unpacked = tmp_path / "clone", tmp_path / "unpacked"
    tracked = tracked_files()
    for name in tracked:
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, clone / name)
    for command in (["init", "--quiet"], ["add", "--all"]):
        subprocess.run(["git", *command], cwd=clone, check=True)
    planted = ["tests/.netrc", "tests/secret.py", "docs/secret.txt", "docs/secret.md", "fastgae/secret.py"]
    planted += [".ci/secret"]
    for name in planted:
        (clone / name).write_text("password")

    file, packed = source_distribution(clone, tmp_path)
    with tarfile.open(file) as opened:
        opened.extractall(unpacked, filter="data")
    (tree,) = unpacked.iterdir()
    assert not packed & set(planted)
    assert tracked - packed == {".gitignore"}
    made = {name for name in packed - tracked if not name.startswith("fastgae_rl.egg-info/")}
    assert made == {"PKG-INFO", "setup.cfg"}

    (tree / "tests" / ".netrc").write_text("password")
    assert source_distribution(tree, unpacked)[1] == packed

    # The index shows the long description without the files beside it.
    here = f"{PROJECT['urls']['Source']}/"
    links = re.findall(r'\]\(([^)]+)\)|(?:href|src|srcset)="([^"]+)"', (tree / "PKG-INFO").read_text(encoding="utf-8"))
    ours = [re.sub("#.*", "", link).removeprefix(here) for link in map("".join, links) if link.startswith(here)]
    assert all(link.startswith(("https://", "#")) for link in map("".join, links))
    kinds = {path.partition(f"/v{fastgae.__version__}/")[::2] for path in ours}
    assert {path for _, path in kinds} <= packed
    suffixes = {"blob": {"", ".ipynb", ".md"}, "raw": {".svg"}}
    assert {kind: {Path(path).suffix for of, path in kinds if of == kind} for kind, _ in kinds} == suffixes


MACHINES = {
    ("linux", "x86_64"): ["manylinux_x86_64", "musllinux_x86_64"],
    ("linux", "aarch64"): ["manylinux_aarch64", "musllinux_aarch64"],
    ("macos", "x86_64"): ["macosx_x86_64"],
    ("macos", "arm64"): ["macosx_arm64"],
    ("windows", "AMD64"): ["win_amd64"],
    ("windows", "ARM64"): ["win_arm64"],
}


def pythons():
    """Those of the classifiers, and free-threaded ones from 3.14 on: 3.13t was an experiment."""
    minors = [int(minor) for minor in re.findall(r":: Python :: 3\.(\d+)'", str(PROJECT["classifiers"]))]
    return [f"cp3{minor}" for minor in minors] + [f"cp3{minor}t" for minor in minors if minor >= 14]


def test_there_is_a_wheel_for_every_python():
    pytest.importorskip("cibuildwheel")
    for (system, machine), kinds in MACHINES.items():
        command = [sys.executable, "-m", "cibuildwheel", "--print-build-identifiers"]
        command += ["--platform", system, "--archs", machine, str(ROOT)]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        assert sorted(printed) == sorted(f"{python}-{kind}" for python in pythons() for kind in kinds)


def test_a_runner_builds_the_wheels_of_every_machine():
    workflow = (ROOT / ".github" / "workflows" / "wheels.yml").read_text(encoding="utf-8")
    (runners,) = re.findall(r"os: \[(.*)\]", workflow)
    assert len(runners.split(", ")) == len(MACHINES)
    for system in ("ubuntu", "macos", "windows"):
        assert len(re.findall(system, runners)) == 2
    (built,) = re.findall(r"python: \[(.*)\]", workflow)
    assert sorted(re.findall(r"(cp\d+t?)-\*", built)) == sorted(pythons())


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python always has a GIL")
def test_the_compiled_module_leaves_the_gil_off(python):
    pytest.importorskip("fastgae._core")
    assert python("import fastgae._core, sys; print(sys._is_gil_enabled())") == "False"


# The files that name the package on the index, the repository or the site. A new one needs a reason: it has to be
# changed by hand when one of the three changes.
NAMING = {
    ".github/ISSUE_TEMPLATE/config.yml",
    "CITATION.cff",
    "docs/install.md",
    "examples/find_the_bug.ipynb",
    "examples/tokens.ipynb",
    "fastgae/_support/project.py",
    "pyproject.toml",
}
OUR_NAME = re.compile(r"(?<![\w/.-])fastgae-\w+")
OUR_ADDRESS = re.compile(r"https?://[\w./-]*fastgae[\w./-]*")


@in_a_clone
def test_every_file_names_the_index_the_repository_and_the_site_of_pyproject():
    repository, site = PROJECT["urls"]["Source"], PROJECT["urls"]["Documentation"]
    within = f"/{repository.partition('://')[2].replace('.com', '')}"  # as Colab names it
    naming = set()
    for path in tracked_files():
        with contextlib.suppress(UnicodeDecodeError):  # a picture
            text = (ROOT / path).read_text(encoding="utf-8")
            names, addresses = OUR_NAME.findall(text), OUR_ADDRESS.findall(text)
            assert {*names} <= {PROJECT["name"]}, path
            for address in addresses:
                assert address.startswith((repository, site)) or within in address, (path, address)
            if names or addresses:
                naming.add(path)
    assert naming == NAMING | ({"README.md"} if project.RELEASED else set())


def test_what_installs_fastgae_is_said_once():
    """Until there is a release, no page and no message says what fails. docs/install.md alone speaks of a release."""
    extras = {project.pip_install(extra) for extra in ("", *PROJECT["optional-dependencies"])}
    sources = [path for path in (ROOT / "fastgae").rglob("*.py") if path.name != "project.py"]
    for path in [*sources, *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]:
        text = path.read_text(encoding="utf-8").replace(" -e ", " ")
        assert project.RELEASED or f"{project.DISTRIBUTION}[" not in text, path
        if path.suffix == ".py":
            assert "pip install '" not in text, path
        commands = re.findall(r"^(python -m pip install (?:'[^']*'|\.))", text, re.MULTILINE)
        assert extras >= {*commands}, path


def test_stub_is_the_module():
    assert resources.files("fastgae").joinpath("py.typed").is_file()
    core = pytest.importorskip("fastgae._core")
    stub = ast.parse(resources.files("fastgae").joinpath("_core.pyi").read_text())
    functions = {node.name: node for node in stub.body if isinstance(node, ast.FunctionDef)}
    variables = {node.target.id for node in stub.body if isinstance(node, ast.AnnAssign)}
    assert {*functions, *variables} == {name for name in dir(core) if not name.startswith("_")}
    for name, node in functions.items():
        function = getattr(core, name)
        if function.__text_signature__:
            names = [*inspect.signature(function).parameters]
        else:  # pybind11 writes the signature into the first line of the documentation
            names = re.findall(r"(\w+): ", inspect.getdoc(function).splitlines()[0])
        given = node.args
        assert names == [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)], name


def test_the_folder_of_a_clone_does_not_hide_the_package(tmp_path):
    """Users start Python in the folder above their clone, which has a folder of this name."""
    (tmp_path / "fastgae").mkdir()
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONSAFEPATH")}
    subprocess.run([sys.executable, "-c", "import fastgae; fastgae.gae"], cwd=tmp_path, env=environment, check=True)


def test_a_missing_extension_says_why():
    cpp = next(backend for backend in fastgae.backends() if backend.name == "cpp")
    if cpp.available:
        assert not resources.files("fastgae").joinpath("_build_failure.txt").is_file()
    else:
        assert cpp.why_missing


def test_a_page_lists_the_backends_and_the_environment_variables():
    section = SETTINGS.partition("## Environment variables")[2]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == list(dispatch.ENVIRONMENT)
    section = SETTINGS.partition("## Backends")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == [*dispatch.BACKENDS, dispatch.ON_DEVICES]
    assert re.findall(r"`cpp:(\w+)`", section) == list(dispatch.CPU_TARGETS)


def test_readme_starts_with_two_commands_and_ci_runs_the_tests_one():
    demo, test = readme_blocks("sh")
    assert demo == f"{project.pip_install('demo', '-e')} && python -m fastgae demo\n"
    assert test in CI


def test_the_readme_calls_gae_on_a_rollout_and_shows_what_diagnose_prints(capsys):
    pytest.importorskip("gymnasium")
    first, collected, diagnosed, *_ = readme_blocks("python")
    assert all(len(block.replace("\n\n", "\n").splitlines()) <= 7 for block in (first, collected))
    names = {}
    exec(first, names)
    assert capsys.readouterr().out.strip() == first.rpartition("# ")[2].strip()
    exec(collected, names)
    assert names["advantages"].shape == names["returns"].shape == (512, 8)
    exec(diagnosed, names)
    (shown,) = readme_blocks("text")
    whole, ellipsis, after = shown.partition("...\n")
    assert (ellipsis, after) == ("...\n", "")
    assert capsys.readouterr().out.startswith(whole)
    assert not fastgae.diagnose(**names["arguments"])


def test_readme_is_short_and_names_an_address_once_it_exists():
    assert len(README.split()) <= 700
    for address in ("Source", "Documentation"):
        assert (PROJECT["urls"][address] in README) == project.RELEASED


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the instructions are those of x86")
@pytest.mark.skipif(not shutil.which("objdump"), reason="there is no objdump here")
def test_the_compiler_keeps_the_prefetches():
    """GCC drops calls of a function that only prefetches. Each place has as many into L2 as into L1, but for 192.

    The share of L2 is 0.89. It is 0.82 without those of the flat kernel, and 0.80 without those of rows.
    """
    core = pytest.importorskip("fastgae._core", exc_type=ImportError)
    listing = subprocess.run(["objdump", "-d", core.__file__], capture_output=True, text=True, check=True).stdout
    first, second = (listing.count(f"prefetcht{level}") for level in (0, 1))
    assert first >= second > 0.85 * first
