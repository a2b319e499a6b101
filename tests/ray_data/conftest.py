"""One local cluster of two workers for all tests here, because it takes seconds to start."""

import pytest

ray = pytest.importorskip("ray")
pytest.importorskip("ray.data")


@pytest.fixture(scope="session", autouse=True)
def cluster():
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.default_hash_shuffle_parallelism = 3
    yield
    ray.shutdown()
