"""What the tests of both libraries share."""

import warnings

import pytest


@pytest.fixture
def compiled():
    torch = pytest.importorskip("torch")

    def made(function, backend="aot_eager", **options):
        return torch.compile(function, fullgraph=True, backend=backend, **options)

    torch._dynamo.reset()
    # What torch's compiler warns of is not ours to mend.
    with warnings.catch_warnings(action="ignore"):
        yield made
