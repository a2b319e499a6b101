"""What the workflows may do: code of a pull request gets no token, and nothing in them moves by itself."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WORKFLOWS = {
    path.name: path.read_text(encoding="utf-8") for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))
}


def jobs(workflow):
    return re.split(r"^  (?=[\w-]+:$)", workflow.partition("\njobs:\n")[2], flags=re.MULTILINE)[1:]


def test_actions_are_pinned_to_a_commit_and_say_its_version():
    used = {pin for workflow in WORKFLOWS.values() for pin in re.findall(r"uses: (?!\./)(.*)", workflow)}
    for pin in used:
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", pin), pin
    assert len(used) == len({pin.partition("@")[0] for pin in used}), "one action has one version"


PUBLISHERS = [  # the actions of a job, and the beginnings of its commands
    (["actions/deploy-pages"], []),
    (["actions/download-artifact"], ["gh release create", "gh release upload"]),
    (["actions/download-artifact", "pypa/gh-action-pypi-publish"], []),
]


def test_pull_requests_write_nothing_and_what_may_publish_runs_nothing_else():
    publishers = []
    for name, workflow in WORKFLOWS.items():
        assert "pull_request_target" not in workflow, name
        assert "\npermissions:\n  contents: read\n" in workflow, name
        for step in re.split(r"^ +- (?=\w)", workflow, flags=re.MULTILINE)[1:]:
            assert "actions/checkout@" not in step or "persist-credentials: false" in step, name
        for job in jobs(workflow):
            if ": write" in job:
                assert "  pull_request:" not in workflow or "\n    if: github.event_name == 'push'\n" in job, name
                scripts = re.findall(r"run: (?:\|\n((?: {10,}.*\n)+)|(.*))", job)
                commands = [" ".join(line.split()[:3]) for script in scripts for line in "".join(script).splitlines()]
                publishers.append((re.findall(r"uses: ([\w/-]+)@", job), commands))
    assert sorted(publishers) == PUBLISHERS


def test_tools_of_releases_are_pinned():
    for command in re.findall(r"pip install (.*)", "\n".join(WORKFLOWS.values())):
        of_ours = re.fullmatch(r"(-e )?\.(\[[\w-]+\])?( \"numpy==1\.26\.\*\")?|dist/\*\.tar\.gz", command)
        assert of_ours or command == "--requirement .github/tools.txt", command
    for file in ("release.txt", "tools.txt"):
        for line in (ROOT / ".github" / file).read_text().splitlines():
            assert line.startswith("#") or re.fullmatch(r"[\w-]+==[\d.]+", line), line


def test_every_step_of_the_night_runs_at_night():
    makefile = (ROOT / ".ci" / "steps.mk").read_text().replace("\\\n", "")
    (steps,) = re.findall(r"^NIGHTLY := (.*)$", makefile, re.MULTILINE)
    assert re.findall(r"^          - ([\w-]+)$", WORKFLOWS["nightly.yml"], re.MULTILINE) == steps.split()


def test_steps_run_where_their_counts_were_accepted():
    """`gate` compares instructions, which depend on the compiler and the C library, and `slower` plants them."""
    images = {
        re.search(r"^      image: (\S+)", WORKFLOWS[name], re.MULTILINE)[1] for name in ("tests.yml", "nightly.yml")
    }
    assert images == {"python:3.11-bookworm"}


RELEASE = WORKFLOWS["wheels.yml"]


def test_a_release_needs_the_tests_the_version_and_every_part():
    (publish,) = (job for job in jobs(RELEASE) if job.startswith("publish:"))
    assert "\n    needs: [version, tests, wheels, sdist]\n" in publish
    (release,) = (job for job in jobs(RELEASE) if job.startswith("release:"))
    assert "\n    needs: publish\n" in release
    assert "\n    uses: ./.github/workflows/tests.yml " in RELEASE


@pytest.mark.skipif(sys.platform != "linux", reason="the job runs on Ubuntu")
def test_the_tag_is_the_version_and_has_notes(tmp_path):
    (script,) = re.findall(r"has notes on it\n        run: \|\n((?: {10}.*\n)+)", RELEASE)
    (tmp_path / "fastgae").mkdir()
    (tmp_path / "CHANGELOG.md").write_text(
        "## [Unreleased]\n\n- a\n\n## [0.1.0] - 2026-12-01\n\n- b\n\n## [0.0.1]\n\n- c\n"
    )
    for event, ref, version, goes_on in (
        ("push", "v0.1.0", "0.1.0", True),
        ("push", "v0.1.1", "0.1.0", False),
        ("push", "v0.2.0", "0.2.0", False),  # there are no notes on it
        ("workflow_dispatch", "main", "0.1.0", True),
    ):
        (tmp_path / "fastgae" / "__init__.py").write_text(f'"""fastgae"""\n__version__ = "{version}"\n')
        environment = {**os.environ, "GITHUB_EVENT_NAME": event, "GITHUB_REF_NAME": ref}
        done = subprocess.run(["bash", "-ec", textwrap.dedent(script)], cwd=tmp_path, env=environment)
        assert (done.returncode == 0) == goes_on, ref
        if goes_on:
            assert (tmp_path / "notes.md").read_text().split() == ["-", "b"]


@pytest.mark.skipif(sys.platform != "linux", reason="the job runs on Ubuntu")
@pytest.mark.parametrize("exists", [False, True])
def test_a_later_run_on_the_same_tag_adds_to_the_release(tmp_path, exists):
    (script,) = re.findall(r"could not build\n        run: \|\n((?: {10}.*\n)+)", RELEASE)
    (tmp_path / "made").mkdir()
    for name in ("a.whl", "b.tar.gz", "notes.md"):
        (tmp_path / "made" / name).touch()
    gh = tmp_path / "gh"
    gh.write_text(f'#!/bin/sh\necho "$@" >>calls\n[ "$2" != create ] || exit {int(exists)}\n')
    gh.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "GITHUB_REF_NAME": "v1"}
    subprocess.run(["bash", "-ec", textwrap.dedent(script)], cwd=tmp_path, env=environment, check=True)
    create, *upload = (tmp_path / "calls").read_text().splitlines()
    assert create == "release create v1 --verify-tag --notes-file made/notes.md made/a.whl made/b.tar.gz"
    assert upload == ["release upload v1 --clobber made/a.whl made/b.tar.gz"] * exists
