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


@pytest.fixture(params=WORKFLOWS)
def workflow(request):
    return WORKFLOWS[request.param]


def jobs(workflow):
    return re.split(r"^  (?=[\w-]+:$)", workflow.partition("\njobs:\n")[2], flags=re.MULTILINE)[1:]


def steps(workflow):
    return re.split(r"^ +- (?=\w)", workflow, flags=re.MULTILINE)[1:]


def test_actions_are_pinned_to_a_commit_and_say_its_version(workflow):
    for used in re.findall(r"uses: (?!\./)(.*)", workflow):
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", used), used


def test_one_action_has_one_version():
    used = {pin for workflow in WORKFLOWS.values() for pin in re.findall(r"uses: (?!\./)(.*)", workflow)}
    assert len(used) == len({pin.partition("@")[0] for pin in used})


def test_no_token_stays_in_a_clone(workflow):
    for step in steps(workflow):
        assert "actions/checkout@" not in step or "persist-credentials: false" in step


def test_pull_requests_write_nothing(workflow):
    assert "pull_request_target" not in workflow
    assert "\npermissions:\n  contents: read\n" in workflow
    for job in jobs(workflow):
        if "  pull_request:" in workflow and ": write" in job:
            assert "\n    if: github.event_name == 'push'\n" in job


PUBLISHERS = [  # the actions of a job, and the beginnings of its commands
    (["actions/download-artifact", "pypa/gh-action-pypi-publish"], []),
    (["actions/download-artifact"], ["gh release create"]),
    (["actions/deploy-pages"], []),
]


def test_what_may_publish_runs_nothing_else(workflow):
    for job in jobs(workflow):
        if ": write" in job:
            commands = re.findall(r"run: (\S+ \S+ \S+|.*)", job)
            assert (re.findall(r"uses: ([\w/-]+)@", job), commands) in PUBLISHERS


def test_what_publishes_is_there():
    assert sum(": write" in job for workflow in WORKFLOWS.values() for job in jobs(workflow)) == len(PUBLISHERS)


def test_release_tools_are_pinned(workflow):
    for command in re.findall(r"pip install (.*)", workflow):
        of_ours = re.fullmatch(r"(-e )?\.(\[\w+\])?( \"numpy==1\.26\.\*\")?|dist/\*\.tar\.gz", command)
        assert of_ours or command == "--requirement .github/tools.txt", command
    for file in ("release.txt", "tools.txt"):
        for line in (ROOT / ".github" / file).read_text().splitlines():
            assert line.startswith("#") or re.fullmatch(r"[\w-]+==[\d.]+", line), line


def test_every_step_of_the_night_runs_at_night():
    (steps,) = re.findall(r"^NIGHTLY := (.*)$", (ROOT / ".ci" / "steps.mk").read_text(), re.MULTILINE)
    assert re.findall(r"^          - ([\w-]+)$", WORKFLOWS["nightly.yml"], re.MULTILINE) == steps.split()


RELEASE = WORKFLOWS["wheels.yml"]


def test_a_release_needs_the_tests_the_version_and_every_part():
    (publish,) = (job for job in jobs(RELEASE) if job.startswith("publish:"))
    assert "\n    needs: [version, tests, wheels, sdist]\n" in publish
    (release,) = (job for job in jobs(RELEASE) if job.startswith("release:"))
    assert "\n    needs: publish\n" in release
    assert "\n    uses: ./.github/workflows/tests.yml " in RELEASE


@pytest.mark.skipif(sys.platform != "linux", reason="the job runs on Ubuntu")
@pytest.mark.parametrize(
    ("event", "ref", "goes_on"),
    [
        ("push", "v0.1.0", True),
        ("push", "v0.1.1", False),
        ("push", "v0.2.0", False),
        ("workflow_dispatch", "main", True),
    ],
)
def test_the_tag_is_the_version_and_has_notes(tmp_path, event, ref, goes_on):
    (script,) = re.findall(r"has notes on it\n        run: \|\n((?: {10}.*\n)+)", RELEASE)
    (tmp_path / "fastgae").mkdir()
    version = "0.2.0" if ref == "v0.2.0" else "0.1.0"  # there are no notes on 0.2.0
    (tmp_path / "fastgae" / "__init__.py").write_text(f'"""fastgae"""\n__version__ = "{version}"\n')
    (tmp_path / "CHANGELOG.md").write_text(
        "## [Unreleased]\n\n- a\n\n## [0.1.0] - 2026-12-01\n\n- b\n\n## [0.0.1]\n\n- c\n"
    )
    environment = {**os.environ, "GITHUB_EVENT_NAME": event, "GITHUB_REF_NAME": ref}
    done = subprocess.run(["bash", "-ec", textwrap.dedent(script)], cwd=tmp_path, env=environment)
    assert (done.returncode == 0) == goes_on
    if version == "0.1.0":
        assert (tmp_path / "notes.md").read_text().split() == ["-", "b"]
