"""The command itself; the other files here test what each file of fastgae/cli/ adds."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fastgae
from fastgae.cli import info
from fastgae.cli.main import main


def test_version_help_and_examples(ran):
    for arguments, shown in (
        (["--version"], f"fastgae {fastgae.__version__}\n"),
        *(([command, "--help"], f"examples:\n  fastgae {command}") for command in ("info", "demo", "diagnose")),
    ):
        assert shown in ran(*arguments).out
    help_text = ran(status=2).err
    assert all(word in help_text for word in ("info", "demo", "examples:"))


@pytest.fixture
def written_to(tmp_path):
    """Run `fastgae` with this stdout, and return status, stderr and stdout; `diagnose` prints, and does not exit."""
    zeros = np.zeros((4, 2), np.float32)
    np.savez(tmp_path / "a.npz", rewards=zeros, values=zeros, last_values=zeros[0], 报酬=zeros)

    def written(stdout, argument, **environment):
        command = [sys.executable, "-m", "fastgae", argument, *([str(tmp_path / "a.npz")] * (argument == "diagnose"))]
        env = {**os.environ, "PYTHONUNBUFFERED": "", **environment}
        done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, env=env, text=True, timeout=300)
        return done.returncode, done.stderr, done.stdout

    return written


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has another error for a pipe without a reader")
@pytest.mark.parametrize(("argument", "unbuffered"), [("diagnose", "1"), ("--help", "")])
def test_a_reader_that_leaves_is_no_error(written_to, argument, unbuffered):
    reader, writer = os.pipe()
    os.close(reader)
    done = written_to(writer, argument, PYTHONUNBUFFERED=unbuffered)
    os.close(writer)
    assert done == (141, "", None)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this platform has no /dev/full")
def test_a_full_disk_is_one_line(written_to):
    with Path("/dev/full").open("w") as full:
        message = "fastgae: cannot write to stdout: No space left on device\n"
        assert written_to(full, "diagnose") == (1, message, None)


def test_a_closed_stdout_is_no_error(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(info, "LARGE_CALLS", 0)
    assert main(["info"]) <= 1
    assert capsys.readouterr().err == ""


COMPLETED = """
source fastgae.bash
COMP_WORDS=(fastgae {typed})
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_shtab_fastgae
echo "${{COMPREPLY[@]}}"
"""


@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("bash"), reason="needs a bash of this century")
def test_completion_in_bash(tmp_path, ran):
    pytest.importorskip("shtab")
    (tmp_path / "fastgae.bash").write_text(ran("--print-completion", "bash").out)
    (tmp_path / "rollout.npz").touch()
    for typed, completed in (
        ('""', "info compute demo diagnose"),
        ('diagnose --autoreset ""', "next_step same_step disabled"),
        ("diagnose roll", "rollout.npz"),
        ("compute --memory 1GB -o roll", "rollout.npz"),
    ):
        code = COMPLETED.format(typed=typed)
        done = subprocess.run(["bash", "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.stdout.split() == completed.split()


def test_completion_without_shtab(monkeypatch, failure):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert "pip install '.[completion]'" in failure("--print-completion", "zsh")


BROKEN_BY_NUMPY = """
import sys
from fastgae.cli.main import main

class Broken:
    def find_spec(self, name, path, target=None):
        if name == library:
            raise AttributeError("module 'numpy' has no attribute 'bool8'")

sys.meta_path.insert(0, Broken())
for library, *command in map(str.split, sys.argv[1:]):
    try:
        print(main(command))
    except SystemExit as ended:
        print(ended.code)
"""


def test_a_library_that_is_installed_and_broken(python):
    """In one process, where each command imports what the ones before it have asked for, and fails at the next."""
    pytest.importorskip("rich")
    commands = ["shtab --print-completion bash", "gymnasium demo", "rich demo", "matplotlib demo --plot a.png"]
    done = python(BROKEN_BY_NUMPY, *commands, check=False)
    assert done.stdout.split() == ["2", "1", "1", "1"], done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == len(commands), lines
    assert all("AttributeError: module 'numpy' has no attribute 'bool8'" in line for line in lines), lines


def test_a_report_that_stdout_cannot_encode(written_to):
    """As on Windows, where what is redirected has the encoding of the system."""
    *done, report = written_to(subprocess.PIPE, "diagnose", PYTHONIOENCODING="cp1252")
    assert done == [0, ""]
    assert r"\u62a5\u916c" in report
