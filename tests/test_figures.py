"""Every chart and table about speed in README.md and docs/ is what one command makes of what it measured."""

import json
import re
from pathlib import Path

import pytest

from speed.figures import command
from speed.figures.charts import digest, home_bars
from speed.figures.command import CHARTS
from speed.figures.tables import DRAWN_FROM, TABLES, filled, machine_of

ROOT = Path(__file__).parents[1]
DRAWN = ROOT / "docs" / "figures"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


RESULTS = json.loads((DRAWN / "results.json").read_text(encoding="utf-8"))


def test_tables_are_those_of_the_results():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert filled(text, RESULTS) == text, f"{page.name}: run: python benchmarks figures --redraw"


def test_a_section_is_kept_though_a_later_one_fails(tmp_path, monkeypatch):
    def broken():
        raise FileNotFoundError("cc")

    kept = tmp_path / "results.json"
    kept.write_text("{}", encoding="utf-8")
    monkeypatch.setattr(command, "RESULTS", kept)
    monkeypatch.setattr(command, "SECTIONS", {"hooks": lambda: {"rows": []}, "limits": broken})
    with pytest.raises(FileNotFoundError):
        command.main([])
    assert json.loads(kept.read_text(encoding="utf-8")) == {"hooks": {"rows": []}}


def test_every_table_names_its_machine():
    """A page names it where it changes, and a table that shows a part of another section names that one's."""
    timed = {*TABLES, *DRAWN_FROM} - {"suites"}  # which counts tests
    assert all(machine_of(name, RESULTS) for name in timed)
    assert machine_of("rollouts", RESULTS) == machine_of("throughput", RESULTS)


def test_charts_are_drawn_from_the_results_and_shown():
    charts = {**{name: RESULTS[name] for name in CHARTS}, "home": home_bars(RESULTS)}
    assert {path.stem for path in DRAWN.glob("*.svg")} == {*charts}
    for name, numbers in charts.items():
        text = (DRAWN / f"{name}.svg").read_text(encoding="utf-8")
        assert digest(numbers) in text, f"{name}.svg is of other numbers"
    shown = {
        (page.parent / target).resolve()
        for page in PAGES
        for target in re.findall(r"!\[[^\]]*\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
        if "://" not in target
    }
    assert {path for path in shown if path.parent == DRAWN} == {*DRAWN.glob("*.svg")}
    assert all(path.is_file() for path in shown)


def test_the_start_page_shows_answers_once_they_are_measured():
    row = {"answers": 1, "tokens": 131072, "values": "float32", "library": "verl"}
    verl = {**row, "before_seconds": 2.0, "after_seconds": 0.1}
    rows = [
        verl,
        {**verl, "library": "TRL", "before_seconds": 1.0, "after_seconds": 0.2},
        {**verl, "values": "float16"},
    ]
    groups = home_bars({**RESULTS, "tokens": {"rows": rows}})
    assert groups["one answer of 131,072 tokens"] == {"fastgae": 0.2, "verl's function": 2.0, "TRL's function": 1.0}
    assert all(bars["fastgae"] == min(bars.values()) for bars in groups.values())
