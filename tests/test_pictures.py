"""The pictures and reports of the documentation are those of the code."""

import importlib
import re
from pathlib import Path

import pytest

from fastgae._diagnose import diagnose

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "why-does-my-ppo-not-learn.md").read_text(encoding="utf-8")
TEXTS = re.compile("<text .*?>(.*?)</text>")


def test_every_finding_has_a_section():
    named = set(re.findall("`([a-z_]+)`", PAGE))
    assert set(diagnose.DETECTORS) | set(diagnose.OF_FIT) <= named


def module(name):
    pytest.importorskip("gymnasium")
    pytest.importorskip("matplotlib")
    return importlib.import_module(f"pictures.{name}")


def test_reports_and_pictures_are_what_diagnose_says():
    mistakes = module("mistakes")
    assert mistakes.filled(PAGE) == PAGE, "run, in the folder tests: python -m pictures"
    assert {found[2] for found in mistakes.REPORT.finditer(PAGE)} == set(mistakes.PLANTED)
    shown = set(re.findall(r"\]\(mistakes/(\w+)\.svg\)", PAGE))
    assert shown == set(mistakes.PICTURES) == {path.stem for path in (ROOT / "docs" / "mistakes").iterdir()}
    for name in shown:
        drawn = (ROOT / "docs" / "mistakes" / f"{name}.svg").read_text(encoding="utf-8")
        lines, _ = mistakes.lines_of(name)
        assert mistakes.digest(lines) in drawn, "run, in the folder tests: python -m pictures"
        assert set(lines) <= set(TEXTS.findall(drawn))


def test_the_picture_of_the_end_is_drawn_from_these_rollouts():
    drawn = (ROOT / "docs" / "pictures" / "episode_ends.svg").read_text(encoding="utf-8")
    assert TEXTS.findall(drawn) == TEXTS.findall(module("ends").draw().decode())
