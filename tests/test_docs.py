"""Every snippet of the README and of docs/ runs, and every link between them leads somewhere."""

import ast
import contextlib
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def snippets():
    """(page, preamble, code, its line): the first block of a page is the preamble of the others, which are run."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        blocks = list(BLOCK.finditer(text))
        preamble = blocks.pop(0)[1] if len(blocks) > 1 else ""
        for block in blocks:
            line = text.count("\n", 0, block.start(1)) + 1
            found.append(pytest.param(page, preamble, block[1], line, id=f"{page.stem}:{line}"))
    return found


@pytest.mark.parametrize(("page", "preamble", "code", "line"), snippets())
def test_snippet(page, preamble, code, line):
    if page.parent.name == "docs":
        assert any(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(code))), "it asserts nothing"
    names = {}
    try:
        exec(preamble, names)
        exec(compile("\n" * (line - 1) + code, page, "exec"), names)  # errors name the line of the page
    except ImportError as missing:
        # Names of fastgae come first in a snippet, so that they are checked where the library is not installed.
        if missing.name is not None and missing.name.startswith("fastgae"):
            raise
        pytest.skip(str(missing))


def anchor(title):
    """As GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lines_to_copy_are_run(page):
    """A block that is marked ``py`` only shows what a snippet of the page runs."""
    text = page.read_text(encoding="utf-8")
    for shown in re.findall(r"^```py\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        assert any(shown in block[1] for block in BLOCK.finditer(text)), shown


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        file, _, section = target.partition("#")
        linked = page.parent / file if file else page
        assert linked.exists(), target
        if section:
            titles = re.findall(r"^#+ (.*)$", linked.read_text(encoding="utf-8"), re.MULTILINE)
            assert section in map(anchor, titles), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_in_diffs(page):
    """Blocks that show a change are not run; what they import of fastgae has to be there."""
    text = page.read_text(encoding="utf-8")
    for module, name in re.findall(r"^\+from (fastgae[\w.]*) import (\w+)$", text, re.MULTILINE):
        imported = importlib.import_module(module)
        with contextlib.suppress(ModuleNotFoundError):  # a class of a library that is not installed
            assert hasattr(imported, name), name


def test_the_readme_leads_to_every_page():
    readme = PAGES[0].read_text(encoding="utf-8")
    for page in PAGES[1:]:
        assert f"]({page.relative_to(ROOT).as_posix()}" in readme
