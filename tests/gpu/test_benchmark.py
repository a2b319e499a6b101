"""Those that `python benchmarks gpu` measures compute what fastgae does; the times need a GPU."""

import json

import pytest
import torch

from speed.gpu import command, contenders

from .device import DEVICE

NEEDS = {"torchrl": "torchrl", "scan": "jax", "associative": "jax"}


@pytest.mark.parametrize("name", [name for name in contenders.CONTENDERS if name != "compiled"])
@pytest.mark.parametrize("time_axis", [0, 1])
def test_contenders(monkeypatch, name, time_axis):
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    monkeypatch.setattr(contenders, "LAMBDA", 0.9)
    command.check(contenders.CONTENDERS[name], contenders.made(9, 5, time_axis, DEVICE))


def test_packed_answers():
    command.check(contenders.CONTENDERS["fastgae"], contenders.packed(5, 12, DEVICE))


def test_a_wrong_answer_is_seen():
    def wrong(rollout):
        advantages, returns = contenders.loop(rollout)
        return advantages, returns + 1

    with pytest.raises(AssertionError, match="not close"):
        command.check(contenders.Contender("wrong", wrong), contenders.made(9, 5, 0, DEVICE))


def test_a_dry_run(monkeypatch, capsys, tmp_path):
    """Every row is printed and written; a contender that fails loses its rows and no other."""

    def broken(rollout):
        raise MemoryError("too large")

    monkeypatch.setattr(command, "LONGEST", 0.0)  # one call
    monkeypatch.setattr(command, "SMALLER", 8192)
    monkeypatch.setitem(contenders.CONTENDERS, "loop", contenders.Contender("broken", broken))
    file = tmp_path / "rows.jsonl"
    assert command.main(["--dry", "--rows", str(file), "fastgae", "loop"]) == 0
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    names = [row.name for row in command.ROWS]
    for label in ("one torch.add", "fastgae on the GPU"):
        assert [row["row"] for row in rows if row["contender"] == label and row["call"] > 0] == names
    failed = [row["failed"] for row in rows if row["contender"] == "broken"]
    assert failed == ["MemoryError: too large"] * (len(names) - 1)  # it takes no packed sequences
    assert capsys.readouterr().out.count("\n") == 2 + len(rows)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu(capsys):
    assert command.main([]) == 2
    assert "no GPU" in capsys.readouterr().err
