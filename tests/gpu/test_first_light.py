"""The three commands for a new GPU come to their ends without one, and a page is drawn from what they wrote."""

import json
import sys

import pytest
import torch

from fastgae._backends.triton import recursion
from speed.gpu import first_light
from speed.gpu.oddities import ODDITIES, ON_A_GPU, SANITIZED, Place

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


@pytest.fixture
def few_processes(monkeypatch):
    """Let the oddities but one run in this process: each of their own would import torch and Triton."""
    run = first_light.Commands.run
    for name in ("WARM_UP", "SHORTEST_PIECE", "WORTHWHILE"):
        monkeypatch.setattr(recursion, name, getattr(recursion, name))  # which "pieces" changes

    def run_here(commands, *command, **how):
        *_, module, name, _ = command
        if module != "speed.gpu.oddities" or name == "large":
            return run(commands, *command, **how)
        ODDITIES[name](Place(dry=True))
        return 0, ""

    monkeypatch.setattr(first_light.Commands, "run", run_here)


@pytest.mark.usefixtures("few_processes")
def test_dry(tmp_path, capsys):
    file = tmp_path / "found.jsonl"
    for name in first_light.COMMANDS:
        assert first_light.main([name, str(file), "--dry"]) == 0, capsys.readouterr().out
    found = [json.loads(line) for line in file.read_text().splitlines()]
    passed = {each["check"]: each["passed"] for each in found if "check" in each}
    tried = {name for name in ODDITIES if name not in ON_A_GPU}
    assert {name for name, result in passed.items() if result} == {"tests", "times", *tried}
    assert sum(result is None for result in passed.values()) == 2 * len(SANITIZED)
    capsys.readouterr()
    assert first_light.main(["page", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("# a dry run, torch ")
    assert any(line.startswith("| large | passed | ") for line in lines)
    (row,) = (line for line in lines if line.startswith("| 128 × 4096 |"))
    assert row.split(" | ")[1] == "4.8"


def test_what_goes_wrong(tmp_path):
    """A check that fails or takes too long is a line, and so is what a killed contender leaves."""
    commands = first_light.Commands(60.0, tmp_path / "log")
    failed = first_light.told("one", *commands.run(sys.executable, "-c", "print('a | b'); raise SystemExit(3)"))
    slow = first_light.told(
        "two", *commands.run(sys.executable, "-c", "import signal; print('x', flush=True); signal.pause()", longest=2.0)
    )
    assert failed == {"check": "one", "passed": False, "said": "a | b"}
    assert "a | b" in (tmp_path / "log").read_text()
    assert slow == {"check": "two", "passed": False, "said": "too slow; x"}
    lost = {"row": "", "contender": "a loop in torch", "failed": "ended: -9"}
    row = {"row": "8 × 8", "contender": "a loop in torch", "h200": "1", "call": 2e-6, "device": "X", "torch": "2"}
    file = tmp_path / "found.jsonl"
    file.write_text("\n".join(map(json.dumps, (failed, slow, lost, row))))
    page = first_light.page(file).splitlines()
    assert "| one | **failed** | a \\| b |" in page
    assert "| 8 × 8 | 1 | 2.0 |" in page
    assert "| a loop in torch | ended: -9 |" in page
