"""The command itself; test_cli_*.py hold what each file of fastgae/cli/ adds."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fastgae
from fastgae.cli.main import main


def test_version(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"fastgae {fastgae.__version__}\n"


def test_without_a_command_it_shows_the_commands(capsys):
    assert main([]) == 2
    help_text = capsys.readouterr().err
    assert "info" in help_text
    assert "demo" in help_text
    assert "examples:" in help_text


@pytest.mark.parametrize("command", ["info", "demo", "diagnose"])
def test_help_has_examples(command, capsys):
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert f"examples:\n  fastgae {command}" in capsys.readouterr().out


def test_the_command_line_imports_nothing_heavy(python):
    heavy = "{'numba', 'gymnasium', 'rich', 'matplotlib', 'torch'}"
    assert python(f"import sys, fastgae.cli.main; print(sorted({heavy} & set(sys.modules)))") == "[]"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has another error for a pipe without a reader")
@pytest.mark.parametrize(
    ("arguments", "unbuffered"),
    [(["info"], "1"), (["--help"], ""), (["demo", "--num-steps", "8"], "")],
)
def test_a_reader_that_leaves_is_no_error(arguments, unbuffered):
    if arguments[0] == "demo":
        pytest.importorskip("rich")
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "fastgae", *arguments]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, env=environment, timeout=300)
    os.close(writer)
    assert done.stderr == b""
    assert done.returncode == 141


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this platform has no /dev/full")
def test_a_full_disk_is_one_line():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "fastgae", "info"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=300
        )
    assert (done.returncode, done.stderr) == (1, "fastgae: cannot write to stdout: No space left on device\n")


def test_a_closed_stdout_is_no_error(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["info"]) <= 1
    assert capsys.readouterr().err == ""


COMPLETED = """
source {script}
COMP_WORDS=(fastgae {typed})
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_shtab_fastgae
echo "${{COMPREPLY[@]}}"
"""


@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("bash"), reason="needs a bash of this century")
@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ('""', "info compute demo diagnose"),
        ("diagnose --auto", "--autoreset"),
        ('diagnose --autoreset ""', "next_step same_step disabled"),
        ("diagnose roll", "rollout.npz"),
        ("compute --memory 1GB -o roll", "rollout.npz"),
    ],
)
def test_completion_in_bash(typed, completed, tmp_path, capsys):
    pytest.importorskip("shtab")
    with pytest.raises(SystemExit) as ended:
        main(["--print-completion", "bash"])
    assert ended.value.code == 0
    (tmp_path / "fastgae.bash").write_text(capsys.readouterr().out)
    (tmp_path / "rollout.npz").touch()
    code = COMPLETED.format(script="fastgae.bash", typed=typed)
    done = subprocess.run(["bash", "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == completed.split()


def test_completion_without_shtab(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "shtab", None)
    with pytest.raises(SystemExit) as ended:
        main(["--print-completion", "zsh"])
    assert ended.value.code == 2
    message = capsys.readouterr().err
    assert "pip install '.[completion]'" in message
    assert message.count("\n") == 1
