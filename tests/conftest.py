"""Every backend and CPU target, both dtypes, and the other fixtures that tests share."""

import atexit
import contextlib
import gc
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fastgae
from fastgae._engine import dispatch
from fastgae._support.project import DISTRIBUTION
from fastgae._support.threads import usable_cpus
from fastgae.cli.main import main
from support.backends import BACKENDS, DTYPES
from support.programs import python_path

# Python looks for garbage among all objects, those of every imported module included, in 0.2 s each time.
gc.set_threshold(*gc.get_threshold()[:2], 100)
os.environ.pop("COLUMNS", None)  # the width of a terminal, to which reports are wrapped


def pytest_configure(config):
    """Stop where `python -m pytest` imports the source folder in place of a compiled package that is installed."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        installed = importlib.metadata.files(DISTRIBUTION) or []
        compiled = any(file.match("fastgae/_core.*") and file.suffix != ".pyi" for file in installed)
        if compiled and importlib.util.find_spec("fastgae._core") is None:
            raise pytest.UsageError(
                f"The installed fastgae has the compiled backend, and {Path(fastgae.__file__).parent} has not. "
                "Install with `pip install -e .`, or run `python -m pytest FOLDER/tests` from another folder."
            )


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist, where that is installed, reads its options
def pytest_cmdline_main(config):
    """Spread the tests over the CPUs when all of them run. A few tests are done before the workers have started.

    There are at most four workers, because each takes up to 2 GB of memory.
    """
    everything = config.args_source is config.ArgsSource.TESTPATHS
    is_worker = hasattr(config, "workerinput")  # it has the same arguments, and must not start workers of its own
    if everything and not is_worker and getattr(config.option, "numprocesses", 0) is None:
        config.option.numprocesses, config.option.dist = min(usable_cpus(), 4), "worksteal"
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # threads that wait would take CPUs from the other workers


def pytest_collection_modifyitems(items):
    """Begin with the files that compile most kernels of Numba.

    Their tests then go to one worker. Another would compile the functions of which kernels are made once more.
    """
    compiling = ["numba", "exact", "large", "fuzz", "bad_arguments", "moments", "pieces", "trees"]
    items.sort(key=lambda item: item.path.stem.removeprefix("test_") not in compiling)


def pytest_collection_finish():
    gc.freeze()  # No later search for garbage reads what is imported by now, which stays.
    atexit.register(gc.unfreeze)  # Extensions of nanobind report what is not freed at the end.


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


@pytest.fixture(params=DTYPES, ids=str)
def dtype(request):
    return request.param


@pytest.fixture
def python(tmp_path):
    """Run code in a fresh interpreter with nothing of fastgae's in its environment but what is given; its output."""

    def run(code, *arguments, check=True, **environment):
        settings = ("FASTGAE_", "OMP_", "NUMBA_")
        ours = {name: value for name, value in os.environ.items() if not name.startswith(settings)}
        done = subprocess.run(
            [sys.executable, "-P", "-c", code, *arguments],
            env={**ours, "PYTHONPATH": python_path(), **environment},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
        )
        if check:
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout.strip()
        return done

    return run


@pytest.fixture
def under(monkeypatch):
    """Put settings where the import of fastgae puts those of the environment."""

    def put(**settings):
        for name in dispatch.SETTINGS:
            monkeypatch.setitem(dispatch.SETTINGS, name, settings.get(name))
        dispatch.resolve.cache_clear()

    put()
    yield put
    dispatch.resolve.cache_clear()


@pytest.fixture
def ran(capsys):
    """Run a command that must end with this status, and return what it prints, as ``out`` and ``err``."""

    def run(*arguments, status=0):
        try:
            ended = main([*map(str, arguments)])
        except SystemExit as error:
            ended = error.code
        printed = capsys.readouterr()
        assert ended == status, (arguments, printed)
        return printed

    return run


@pytest.fixture
def failure(ran):
    """Run a command that must fail, and return the one line that it prints."""

    def run(*arguments, status=2):
        printed = ran(*arguments, status=status)
        assert (printed.out, printed.err.count("\n")) == ("", 1), (arguments, printed)
        return printed.err

    return run


@pytest.fixture
def collected():
    """Collect a rollout, as the demo does."""
    from fastgae.cli import rollout  # here, for it needs Gymnasium and most tests do not

    def collect(env_id, num_envs, num_steps, seed=0):
        with contextlib.closing(rollout.make_envs(env_id, num_envs)) as envs:
            return rollout.collect(envs, num_steps, seed)

    return collect


@pytest.fixture(scope="session")
def recorded():
    """The rows of recorded data that tests of files, URLs and clusters share."""
    from data.recorded import Recorded  # here, for it needs pyarrow

    return Recorded()
