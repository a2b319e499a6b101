"""What the tests of both libraries share."""

import os
import subprocess
import sys
import warnings

import pytest

from support.programs import python_path

# Before JAX starts. Its arrays lie on the first device unless a test says otherwise.
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"
# With each error and each line of a program, JAX looks for files of its own among all frames.
os.environ.update(JAX_TRACEBACK_FILTERING="off", JAX_TRACEBACK_IN_LOCATIONS_LIMIT="0")


@pytest.fixture
def two_ranks():
    """Return a function that runs a program in two processes at a time; its first argument is 0 or 1."""

    def run(program, *arguments):
        ranks = [
            subprocess.Popen(
                [sys.executable, "-P", "-c", program, str(rank), *arguments],
                env={**os.environ, "PYTHONPATH": python_path(), "XLA_FLAGS": ""},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank in range(2)
        ]
        try:
            printed = [rank.communicate(timeout=300)[0] for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()  # if one failed, the other waits for it
        assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(printed)

    return run


@pytest.fixture
def compiled():
    torch = pytest.importorskip("torch")

    def made(function, backend="aot_eager", **options):
        torch._dynamo.reset()  # or it would refuse to compile one function again and again
        return torch.compile(function, fullgraph=True, backend=backend, **options)

    # What torch's compiler warns of is not ours to mend.
    with warnings.catch_warnings(action="ignore"):
        yield made
