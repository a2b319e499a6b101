"""The palette: it can be read, told apart by everyone, and is the only one."""

import contextlib
import importlib
import itertools
import re
from pathlib import Path

import numpy as np
import pytest

from fastgae import _pictures
from fastgae._diagnose import diagnose
from fastgae._pictures import BLUE, BLUE_TINT, INK, NOTE, PAPER, PURPLE, VERMILION, VERMILION_TINT

ROOT = Path(__file__).parents[1]
HEX = re.compile(r"#[0-9a-fA-F]{6}\b")
PALETTE = {color.lower() for color in HEX.findall(Path(_pictures.__file__).read_text(encoding="utf-8"))}
# What readers without red, green or blue cones see, in linear RGB, at severity 1: Machado, Oliveira and Fernandes,
# "A Physiologically-based Model for Simulation of Color Vision Deficiency", 2009.
SIGHT = {
    "all cones": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def linear(color):
    """Return linear RGB of a colour as sRGB defines it."""
    rgb = np.array([int(color[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def contrast(one, other):
    """Return the contrast ratio of WCAG 2."""
    darker, lighter = sorted(float(XYZ[1] @ linear(color)) for color in (one, other))
    return (lighter + 0.05) / (darker + 0.05)


def lab(rgb):
    """Return CIELAB, where about 2 is a difference that one can just see."""
    share = XYZ @ np.clip(rgb, 0, 1) / XYZ.sum(1)
    x, y, z = np.where(share > (6 / 29) ** 3, np.cbrt(share), share / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_contrast_of_black_and_white():
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21, abs=0.01)


@pytest.mark.parametrize("color", [INK, NOTE, BLUE, VERMILION, PURPLE])
def test_text_and_lines_can_be_read(color):
    assert min(contrast(color, ground) for ground in (PAPER, BLUE_TINT, VERMILION_TINT)) >= 4.5


@pytest.mark.parametrize("sight", SIGHT)
def test_everyone_can_tell_the_colours_apart(sight):
    seen = [lab(np.array(SIGHT[sight]) @ linear(color)) for color in (INK, BLUE, VERMILION, PURPLE)]
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 25


@pytest.mark.parametrize("path", sorted((ROOT / "docs").rglob("*.svg")), ids=lambda path: path.stem)
def test_pictures_have_the_colours_and_a_background(path):
    drawn = path.read_text(encoding="utf-8")
    assert {color.lower() for color in HEX.findall(drawn)} - {"#000000"} <= PALETTE
    first = drawn[: drawn.index(PAPER.lower() if PAPER.lower() in drawn else PAPER)]
    assert "<text" not in first, "no background is drawn before the text"


def test_there_is_one_palette():
    sources = [path for folder in ("fastgae", "benchmarks", "examples") for path in (ROOT / folder).rglob("*.py")]
    assert {path.name for path in sources if HEX.search(path.read_text(encoding="utf-8"))} == {"_pictures.py"}


PAGE = (ROOT / "docs" / "why-does-my-ppo-not-learn.md").read_text(encoding="utf-8")
TEXTS = re.compile("<text .*?>(.*?)</text>")


def test_every_finding_has_a_section():
    named = set(re.findall("`([a-z_]+)`", PAGE))
    assert set(diagnose.DETECTORS) | set(diagnose.OF_FIT) <= named


@pytest.fixture
def mistakes():
    pytest.importorskip("gymnasium")
    pytest.importorskip("matplotlib")
    return importlib.import_module("pictures.mistakes")


@pytest.fixture
def ends():
    pytest.importorskip("gymnasium")
    pytest.importorskip("matplotlib")
    return importlib.import_module("pictures.ends")


def test_reports_are_what_diagnose_says(mistakes):
    assert mistakes.filled(PAGE) == PAGE, "run, in the folder tests: python -m pictures"
    assert {found[2] for found in mistakes.REPORT.finditer(PAGE)} == set(mistakes.PLANTED)


def test_pictures_of_mistakes_are_of_these_rollouts(mistakes):
    shown = set(re.findall(r"\]\(mistakes/(\w+)\.svg\)", PAGE))
    assert shown == set(mistakes.PICTURES) == {path.stem for path in (ROOT / "docs" / "mistakes").iterdir()}
    for name in shown:
        drawn = (ROOT / "docs" / "mistakes" / f"{name}.svg").read_text(encoding="utf-8")
        lines, _ = mistakes.lines_of(name)
        assert mistakes.digest(lines) in drawn, "run, in the folder tests: python -m pictures"
        assert set(lines) <= set(TEXTS.findall(drawn))


@pytest.mark.parametrize("kind", ["truncated", "terminated"])
@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_the_end_of_an_episode(ends, mode, kind):
    """Episode A ends in row t, the third that is shown; A4 is the observation at which it ended."""
    end = ends.end_of(mode, kind)
    reset_row = mode == "next_step"
    assert end.observations == ["A1", "A2", "A3", *(["A4", "B0", "B1"] if reset_row else ["B0", "B1", "B2"])]
    assert end.rewards == [1, 1, 1, 0 if reset_row else 1, 1, 1]
    assert end.steps == [True, True, True, not reset_row, True, True]
    assert {True: "truncated", False: "terminated"}[end.truncated[2]] == kind
    assert (end.terminated, end.truncated)[kind == "terminated"] == [False] * 6
    assert np.flatnonzero(np.logical_or(end.terminated, end.truncated)).tolist() == [2]
    assert end.final == "A4"
    assert end.bootstrapped == (kind == "truncated")
    # The argument that the picture names holds V of A4; where the episode terminated, V' is 0 whatever it holds.
    _, call = ends.call_of(mode, kind)
    expected, t = ends.value(np.array([0, 4], np.float32)), ends.END
    held = {
        "next_step": lambda: call["values"][t + 1, 0],
        "same_step": lambda: call["final_values"].item() if kind == "truncated" else expected,
        "disabled": lambda: call["next_values"][t, 0],
    }
    assert held[mode]() == expected
    assert ends.next_values_used(call)[t, 0] == (expected if kind == "truncated" else 0)


@pytest.mark.parametrize(("mode", "returned", "in_info"), [("same_step", "B0", "A4"), ("disabled", "A4", None)])
def test_who_has_the_final_observation(ends, mode, returned, in_info):
    from gymnasium.vector import AutoresetMode

    kind = {"autoreset_mode": AutoresetMode[mode.upper()]}
    with contextlib.closing(ends.gymnasium.make_vec("Counting-truncated-v0", 1, "sync", vector_kwargs=kind)) as envs:
        envs.reset()
        for _ in range(ends.LENGTH):
            observations, _, _, truncated, info = envs.step(envs.action_space.sample())
    assert truncated.all()
    assert ends.name(observations[0]) == returned
    assert (ends.name(info["final_obs"][0]) if "final_obs" in info else None) == in_info


def test_the_picture_of_the_end_is_drawn_from_these_rollouts(ends):
    drawn = (ROOT / "docs" / "pictures" / "episode_ends.svg").read_text(encoding="utf-8")
    assert TEXTS.findall(drawn) == TEXTS.findall(ends.draw().decode())
