"""What `info` says, and that it can say it anywhere."""

import json
import platform

import numpy as np

import fastgae
from fastgae._engine import dispatch
from fastgae.cli import info

# Without what takes seconds: large rollouts, which test_info computes, and imports of all that may be missing, of
# which the command line itself imports nothing.
PROGRAM = """
import sys
from fastgae.cli import info, main
missing = ["rich", "gymnasium", "matplotlib", "numba", "torch", "triton", "jax"]
assert not {*missing} & {*sys.modules}
sys.modules.update(dict.fromkeys(missing))
info.LARGE_CALLS = 0
sys.exit(main.main())
"""


def test_info(ran, monkeypatch, under):
    """As JSON, which also says how large rollouts are prefetched, and as text, with the settings in force."""
    facts = json.loads(ran("info", "--json").out)
    assert (facts["fastgae"], facts["numpy"]) == (fastgae.__version__, np.__version__)
    for shown, backend in zip(facts["backends"], fastgae.backends(), strict=True):
        assert {**shown, "targets": tuple(shown["targets"])} == {**backend._asdict(), "target": shown["target"]}
        assert shown["target"] in ((*backend.targets,) or (None,))
    assert set(facts["environment"]) == set(dispatch.ENVIRONMENT)
    compiled = any(backend.name == "cpp" and backend.available for backend in fastgae.backends())
    names = "short rows|long rows|rows with next_values|rows with options|env-major with options|one array"
    sweeps = names.split("|") * (compiled and platform.machine() in ("x86_64", "AMD64"))
    assert {each["sweep"] for each in facts["prefetching"] if each["dtype"] == "float32"} == {*sweeps}
    for each in facts["prefetching"]:
        assert each["prefetches_into"] in {"nothing", "L1", "L2", "L2, short runs"}
        assert (each["gain"] == 1) == (each["prefetches_into"] == "nothing")

    monkeypatch.setattr(info, "LARGE_CALLS", 0)
    under(FASTGAE_BACKEND="numpy", FASTGAE_NUM_THREADS="3")
    text = ran("info").out
    shown = (fastgae.__version__, np.__version__, "default backend numpy", "threads 3", *dispatch.ENVIRONMENT)
    for words in (*shown, "FASTGAE_NUM_THREADS 3"):
        assert words in " ".join(text.split())
    rows = {line.split()[0]: line for line in text.splitlines() if line.split()[1:2] in (["yes"], ["no"])}
    assert list(rows) == [backend.name for backend in fastgae.backends()]
    for shown, backend in zip(facts["backends"], fastgae.backends(), strict=True):
        row = rows[backend.name]
        assert row.split()[1] == ("yes" if backend.available else "no")
        targets = {f"[{target}]" if target == shown["target"] else target for target in backend.targets}
        assert targets <= {*row.split()}
        assert ((backend.version if backend.available else backend.why_missing) or "").splitlines()[0] in row


def test_info_needs_numpy_alone(python):
    done = python(PROGRAM, "info", "--json", check=False)
    facts = json.loads(done.stdout)
    assert done.returncode == bool(facts["problems"])  # where nothing is compiled, NumPy stands in
    missing = {backend["name"]: backend["why_missing"] for backend in facts["backends"]}
    assert missing["numpy"] is None
    assert missing["numba"]


def test_info_reports_settings_that_cannot_be_honoured(under, ran, monkeypatch):
    monkeypatch.setattr(info, "LARGE_CALLS", 0)
    under(FASTGAE_BACKEND="fortran", FASTGAE_NUM_THREADS="0")
    facts = json.loads(ran("info", "--json", status=1).out)
    assert (facts["default_backend"], facts["num_threads"]) == (None, None)
    assert any("FASTGAE_BACKEND" in problem and "fortran" in problem for problem in facts["problems"])
    assert any("FASTGAE_NUM_THREADS" in problem for problem in facts["problems"])
    assert facts["environment"]["FASTGAE_BACKEND"]["value"] == "fortran"


def test_info_shows_the_rest_where_a_setting_of_the_compiled_module_is_wrong(python):
    done = python(PROGRAM, "info", check=False, FASTGAE_CPU="z80", FASTGAE_RECYCLE="much")
    assert done.returncode == 1
    for word in ("FASTGAE_CPU='z80'", "FASTGAE_RECYCLE='much'", fastgae.__version__):
        assert word in done.stdout
