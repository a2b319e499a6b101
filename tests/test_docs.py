"""Every snippet of the README and of docs/ runs, and every link between them leads somewhere."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TENSORS = ROOT / "docs" / "tensors.md"  # its snippets need torch and JAX: tests/tensors runs them
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def snippets(pages):
    """(page, preamble, code, its line): the first block of a page is the preamble of the others, which are run."""
    found = []
    for page in pages:
        text = page.read_text(encoding="utf-8")
        blocks = list(BLOCK.finditer(text))
        preamble = blocks.pop(0)[1] if len(blocks) > 1 else ""
        for block in blocks:
            line = text.count("\n", 0, block.start(1)) + 1
            found.append(pytest.param(page, preamble, block[1], line, id=f"{page.stem}:{line}"))
    return found


def run(page, preamble, code, line):
    if page.parent.name == "docs":
        assert any(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(code))), "it asserts nothing"
    names = {}
    exec(preamble, names)
    exec(compile("\n" * (line - 1) + code, page, "exec"), names)  # errors name the line of the page


@pytest.mark.parametrize(("page", "preamble", "code", "line"), snippets([page for page in PAGES if page != TENSORS]))
def test_snippet(page, preamble, code, line):
    if "gymnasium" in preamble + code:
        pytest.importorskip("gymnasium")
    run(page, preamble, code, line)


def anchor(title):
    """As GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


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


def test_the_readme_leads_to_every_page():
    readme = PAGES[0].read_text(encoding="utf-8")
    for page in PAGES[1:]:
        assert f"]({page.relative_to(ROOT).as_posix()}" in readme
