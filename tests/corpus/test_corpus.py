"""``fastgae diagnose`` on some thousand broken files: status 0, 1 or 2, and one line on stderr."""

from collections import Counter

import pytest

from fastgae import cli
from fastgae._support import archive

from .mutants import SOURCES, check, said_of


def test_the_files_that_are_broken_later_are_well_formed(tmp_path):
    path = tmp_path / "source.npz"
    said = []
    for source in SOURCES:
        path.write_bytes(source)
        said.append(said_of(path))
    assert {status for status, _ in said} == {0, 1}, said


def statuses(folder):
    return Counter(check(20240607, number, folder / "mutant.npz") for number in range(3000))


def test_broken_files(tmp_path):
    assert set(statuses(tmp_path)) == {0, 1, 2}


@pytest.mark.parametrize(("module", "name"), [(cli.diagnose, "FILE_ERRORS"), (archive, "HEADER_ERRORS")])
def test_this_can_fail(module, name, tmp_path, monkeypatch):
    monkeypatch.setattr(module, name, (ValueError,))
    with pytest.raises(AssertionError, match=r"--seed 20240607 --only \d+ .* was not caught"):
        statuses(tmp_path)
