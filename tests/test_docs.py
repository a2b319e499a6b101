"""Every snippet of the README and of docs/ runs in the order of its page, and every link leads somewhere."""

import ast
import contextlib
import doctest
import functools
import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fastgae._engine.dispatch import CHOICES, ENVIRONMENT
from fastgae.cli.main import COMMANDS
from support import pages
from support.pages import SNIPPET, snippets
from support.programs import python_path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
SNIPPETS = [(page, line, code) for page in [*PAGES, *NOTEBOOKS] for line, code in snippets(page)]
NAMES = {page: page.relative_to(ROOT).as_posix() for page in [*PAGES, *NOTEBOOKS]}


@pytest.fixture(scope="module")
def outcomes(pytestconfig):
    """From a page to what became of its snippets. A page is run once, in a new process, with pytest's warnings."""
    warnings = [*pytestconfig.getini("filterwarnings"), *(pytestconfig.getoption("pythonwarnings") or ())]
    warnings.append("ignore:This process:DeprecationWarning")  # which has threads of its libraries, and is forked
    process = subprocess.Popen(
        [sys.executable, "-P", *(f"-W{each}" for each in warnings), pages.__file__],
        env={**os.environ, "PYTHONPATH": python_path()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    @functools.cache
    def run(page):
        process.stdin.write(f"{page}\n")
        process.stdin.flush()
        found = process.stdout.readline()
        assert found, f"the process of {page} died"
        return json.loads(found)

    with process:
        yield run


@pytest.mark.parametrize(
    ("page", "line"),
    [pytest.param(page, line, id=f"{NAMES[page].removesuffix('.md')}:{line}") for page, line, _ in SNIPPETS],
)
def test_snippet(page, line, outcomes):
    outcome = outcomes(page)[str(line)]
    if "skipped" in outcome:
        pytest.skip(outcome["skipped"])
    assert "failed" not in outcome, outcome["failed"]


def test_examples_of_docstrings():
    for path in (ROOT / "fastgae" / "estimators").glob("[!_]*.py"):
        failed, tried = doctest.testmod(importlib.import_module(f"fastgae.estimators.{path.stem}"))
        assert tried, path.stem
        assert not failed, path.stem


def test_a_page_goes_on_from_snippet_to_snippet(tmp_path):
    """A missing library skips its snippet and those that need its names, and they alone."""
    page = tmp_path / "page.md"
    blocks = [
        "first = 1",
        "import no_such_library as library\nfirst = library.second = 2",
        "first + 1",
        "import json\nassert first == 1",
        "third = 3",
        "assert third == 3\nassert third == 4",
        "print(fourth)",
    ]
    page.write_text("".join(f"```python\n{block}\n```\n" for block in blocks))
    found = pages.outcomes(page)
    assert [*map(list, found.values())] == [[], ["skipped"], ["skipped"], ["skipped"], [], ["failed"], ["failed"]]
    sixth, seventh = list(found.items())[5:]
    assert f'page.md", line {sixth[0] + 1}' in sixth[1]["failed"]
    assert "name 'fourth' is not defined" in seventh[1]["failed"]


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent == DOCS], ids=NAMES.get)
def test_snippets_assert_something(page):
    """All but the first, which may only prepare the others."""
    for line, code in list(snippets(page))[1:]:
        assert any(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(code))), f"line {line} asserts nothing"


def anchor(title):
    """As GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=NAMES.get)
def test_what_a_page_shows_and_links_is_there(page):
    text = page.read_text(encoding="utf-8")
    for shown in re.findall(r"^```py\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        assert any(shown in code for code in SNIPPET.findall(text)), f"no snippet runs what is shown to copy:\n{shown}"
    for file, section in re.findall(r"\]\((?![^)\s]*://)([^)\s#]*)#?([^)\s]*)\)", text):
        linked = page.parent / file if file else page
        assert linked.exists(), file
        if section:
            titles = re.findall(r"^#+ (.*)$", linked.read_text(encoding="utf-8"), re.MULTILINE)
            assert section in map(anchor, titles), (file, section)
    # Blocks that show a change are not run; what they import of fastgae has to be there.
    for module, name in re.findall(r"^\+from (fastgae[\w.]*) import (\w+)$", text, re.MULTILINE):
        imported = importlib.import_module(module)
        with contextlib.suppress(ModuleNotFoundError):  # a class of a library that is not installed
            assert hasattr(imported, name), name


def navigation():
    """The pages of the site, in its order. They have no titles there: it shows the titles of the pages."""
    return re.findall(r"^ +- ([\w./-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)


def test_the_start_page_and_the_navigation_lead_to_every_page():
    """On GitHub, docs/index.md is the table of contents; on the site, the navigation in mkdocs.yml is."""
    assert "](docs/index.md)" in PAGES[0].read_text(encoding="utf-8")
    assert len(navigation()) == (ROOT / "mkdocs.yml").read_text(encoding="utf-8").count(".md")
    start = (DOCS / "index.md").read_text(encoding="utf-8")
    pages = {page.relative_to(DOCS).as_posix() for page in PAGES[1:]}
    assert pages == {page for page in navigation() if (DOCS / page).exists()}
    assert {page for page in pages if f"]({page})" in start} == pages - {"index.md"}


def public_names():
    """The names of fastgae and of its modules."""
    for module in ("", "compat.", "data.", "ray.", "testing."):  # read, because some need packages
        path = ROOT / "fastgae" / f"{module.replace('.', '/')}__init__.py"
        source = (path if path.exists() else path.parent.with_suffix(".py")).read_text(encoding="utf-8")
        names = ast.literal_eval(re.search(r"^__all__ = (\[.*?\])", source, re.DOTALL | re.MULTILINE)[1])
        yield from (f"{module}{name}" for name in names)


def test_every_public_name_has_a_page_of_the_api():
    described = re.findall(r"^api/(?:types/)?fastgae\.(.+)\.md$", "\n".join(navigation()), re.MULTILINE)
    assert sorted(described) == sorted({"compat", *public_names()} - {"__version__", "testing.ROLES"})


def test_a_page_says_of_every_public_name_whether_it_is_frozen():
    page, install = ((DOCS / name).read_text(encoding="utf-8") for name in ("api/stability.md", "install.md"))
    rows, extras = re.findall(r"(?m)^\| (`.*?) \| (\w+) \|", page), re.findall(r"(?m)^\| (`.*?) \|", install)
    listed = [f"[{name}]" for cell in extras for name in re.findall(r"`([\w-]+)`", cell)]
    listed += [*public_names(), *CHOICES, *ENVIRONMENT, *(f"fastgae {name}" for name in COMMANDS)]
    assert {frozen for _, frozen in rows} == {"yes", "no"}
    assert sorted(name for cell, _ in rows for name in re.findall(r"`(.+?)`", cell)) == sorted(listed)
