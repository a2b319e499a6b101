"""What the workflows may do: code of a pull request gets no token, and nothing in them moves by itself."""

import re
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
    for used in re.findall(r"uses: (.*)", workflow):
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", used), used


def test_one_action_has_one_version():
    used = {pin for workflow in WORKFLOWS.values() for pin in re.findall(r"uses: (.*)", workflow)}
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


PUBLISHERS = [["actions/download-artifact", "pypa/gh-action-pypi-publish"], ["actions/deploy-pages"]]


def test_what_may_publish_runs_nothing_else(workflow):
    for job in jobs(workflow):
        if ": write" in job:
            assert re.findall(r"uses: ([\w/-]+)@", job) in PUBLISHERS
            assert "run:" not in job


def test_what_publishes_is_there():
    assert sum(": write" in job for workflow in WORKFLOWS.values() for job in jobs(workflow)) == len(PUBLISHERS)


def test_release_tools_are_pinned(workflow):
    for command in re.findall(r"pip install (.*)", workflow):
        of_ours = re.fullmatch(r"(-e )?\.(\[\w+\])?( \"numpy==1\.26\.\*\")?", command)
        assert of_ours or command == "--requirement .github/tools.txt", command
    for file in ("release.txt", "tools.txt"):
        for line in (ROOT / ".github" / file).read_text().splitlines():
            assert line.startswith("#") or re.fullmatch(r"[\w-]+==[\d.]+", line), line


def test_every_step_of_the_night_runs_at_night():
    (steps,) = re.findall(r"^NIGHTLY := (.*)$", (ROOT / ".ci" / "steps.mk").read_text(), re.MULTILINE)
    assert re.findall(r"^          - ([\w-]+)$", WORKFLOWS["nightly.yml"], re.MULTILINE) == steps.split()
