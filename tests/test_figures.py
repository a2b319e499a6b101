"""Every chart and table about speed in README.md and docs/ is what one command makes of what it measured."""

import json
import re
from pathlib import Path

import pytest

from speed.figures.charts import digest, home_bars
from speed.figures.command import CHARTS
from speed.figures.tables import filled

ROOT = Path(__file__).parents[1]
DRAWN = ROOT / "docs" / "figures"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.fixture(scope="module")
def results():
    return json.loads((DRAWN / "results.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tables_are_those_of_the_results(page, results):
    text = page.read_text(encoding="utf-8")
    assert filled(text, results) == text, "run: python benchmarks figures --redraw"


def test_charts_are_drawn_from_the_results(results):
    drawn = {path.stem for path in DRAWN.glob("*.svg")}
    shown = {**{name: results[name] for name in CHARTS}, "home": home_bars(results)}
    assert drawn == {*shown}
    for name, numbers in shown.items():
        text = (DRAWN / f"{name}.svg").read_text(encoding="utf-8")
        assert digest(numbers) in text, f"{name}.svg is of other numbers"


def test_the_start_page_shows_answers_once_they_are_measured(results):
    row = {"answers": 1, "tokens": 131072, "values": "float32", "library": "verl"}
    verl = {**row, "before_seconds": 2.0, "after_seconds": 0.1}
    rows = [
        verl,
        {**verl, "library": "TRL", "before_seconds": 1.0, "after_seconds": 0.2},
        {**verl, "values": "float16"},
    ]
    groups = home_bars({**results, "tokens": {"rows": rows}})
    assert groups["one answer of 131,072 tokens"] == {"fastgae": 0.2, "verl's function": 2.0, "TRL's function": 1.0}
    assert all(bars["fastgae"] == min(bars.values()) for bars in groups.values())


def test_every_picture_of_a_page_is_there_and_made_by_the_command():
    shown = {
        (page.parent / target).resolve()
        for page in PAGES
        for target in re.findall(r"!\[[^\]]*\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
        if "://" not in target
    }
    assert shown
    assert {path for path in shown if path.parent == DRAWN} == {*DRAWN.glob("*.svg")}
    assert all(path.is_file() for path in shown)
