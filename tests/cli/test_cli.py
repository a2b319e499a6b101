"""The command itself; test_cli_*.py hold what each file of fastgae/cli/ adds."""

import os
import subprocess
import sys

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
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_leaves_is_no_error(unbuffered):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "fastgae", "info"]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, env=environment, timeout=300)
    os.close(writer)
    assert done.stderr == b""
    assert done.returncode == 141
