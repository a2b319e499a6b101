"""Those that `python benchmarks gpu` measures compute what fastgae does; the times need a GPU."""

import json
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch.utils import cpp_extension

from fastgae.compat.pufferlib import compute_puff_advantage
from speed.gpu import command, compiled, contenders

from .device import DEVICE

NEEDS = {"torchrl": "torchrl", "jax": "jax", "scan": "jax", "associative": "jax"}
HAS_KERNEL = "_dispatch_has_kernel_for_dispatch_key"


@pytest.fixture(autouse=True)
def _pufferlib(monkeypatch):
    """Stands for PufferLib, whose kernel fastgae.compat has."""
    library = ModuleType("pufferlib")
    library.__file__, library._C = "site/pufferlib/__init__.py", ModuleType("pufferlib._C")
    monkeypatch.setitem(sys.modules, "pufferlib", library)
    monkeypatch.setitem(sys.modules, "pufferlib._C", library._C)
    monkeypatch.setattr(torch.ops, "pufferlib", SimpleNamespace(compute_puff_advantage=compute_puff_advantage))
    has = getattr(torch._C, HAS_KERNEL)
    monkeypatch.setattr(torch._C, HAS_KERNEL, lambda name, device: name.startswith("pufferlib::") or has(name, device))
    contenders.kernel_of_pufferlib.cache_clear()


def instruction(name, stall, result=compiled.NONE, waits=()):
    waiting = sum(1 << each for each in waits)
    fields = stall << compiled.STALL | result << compiled.RESULT | compiled.NONE << compiled.OPERANDS
    return compiled.Instruction(name, "", "", fields | waiting << compiled.WAIT)


def test_a_turn_waits_for_the_loads_that_it_needs():
    load, other = instruction("LDG", 2, result=0), instruction("FADD", 4)
    needed = instruction("FADD", 5, waits=[0])
    assert compiled.cycles([load, other, needed], 280) == 280 + 5
    assert compiled.cycles([needed, load, *[other] * 100], 280) == 5 + 2 + 400
    assert compiled.cycles([needed, load, *[other] * 100], 800) == 800 + 5
    assert compiled.cycles([load, other, other], 280) == 2 + 4 + 4
    shared = instruction("LDS", 2, result=3)
    assert compiled.cycles([shared, instruction("FADD", 1, waits=[1]), instruction("FADD", 1, waits=[3])], 800) == 31


def test_nvcc_compiles_the_kernel_of_pufferlib(monkeypatch):
    sources_of = []
    monkeypatch.setattr(torch._C, HAS_KERNEL, lambda name, device: False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(cpp_extension, "load", lambda name, sources, **how: sources_of.extend(sources))
    assert contenders.kernel_of_pufferlib() is compute_puff_advantage
    assert [source.replace("\\", "/") for source in sources_of] == ["site/pufferlib/extensions/cuda/pufferlib.cu"]


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


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_dry_run(monkeypatch, capsys, tmp_path):
    """Every row is printed and written; a contender that fails loses its rows; an absent one is one line."""

    def broken(rollout):
        raise MemoryError("too large")

    monkeypatch.setitem(sys.modules, "pufferlib._C", None)
    monkeypatch.setitem(contenders.CONTENDERS, "loop", contenders.Contender("broken", broken))
    file = tmp_path / "rows.jsonl"
    for contender in ("fastgae", "add", "loop", "pufferlib"):
        assert command.main(["--dry", "--rows", str(file), "--answers", str(tmp_path), contender]) == 0
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    names = [row.name for row in command.ROWS]
    for label in ("one torch.add", "fastgae on the GPU"):
        assert [row["row"] for row in rows if row["contender"] == label and row["call"] > 0] == names
    assert [row["h200"] for row in rows[: len(names)]] == [row.h200 for row in command.ROWS]
    failed = [row["failed"] for row in rows if row["contender"] == "broken"]
    assert failed == ["MemoryError: too large"] * 7  # the plain rows: no packed sequences, options or other dtypes
    (absent,) = (row for row in rows if row["contender"] == "PufferLib's kernel")
    assert absent["failed"].startswith("ModuleNotFoundError: import of pufferlib._C")
    assert capsys.readouterr().out.count("\n") == len(rows)
    (tmp_path / "0.pt").unlink()
    torch.save((torch.zeros(2, 1), torch.zeros(2, 1)), tmp_path / "0.pt")
    assert command.main(["--dry", "--answers", str(tmp_path), "fastgae"]) == 1
    assert "AssertionError: these are not the bits of the CPU" in capsys.readouterr().out


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu(capsys):
    assert command.main([]) == 2
    assert "no GPU" in capsys.readouterr().err
