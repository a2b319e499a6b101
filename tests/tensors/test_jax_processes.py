"""Programs of JAX in several processes: two that share one program, and a fork of one that has run a program."""

import os
import socket

import pytest

pytest.importorskip("jax")
pytest.importorskip("fastgae._core")

RANK = """
import sys
import jax, jax.numpy as jnp, numpy as np, fastgae
from jax.sharding import NamedSharding, PartitionSpec as P

rank = int(sys.argv[1])
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(sys.argv[2], 2, rank)
assert jax.device_count() == 2 and jax.local_device_count() == 1
rewards = np.random.default_rng(0).normal(size=(500, 64)).astype(np.float32)
expected = fastgae.gae(rewards, rewards, None, last_values=0.0)
mine = slice(32 * rank, 32 * rank + 32)
mesh = jax.make_mesh((2,), ("envs",))
shared = jax.make_array_from_process_local_data(NamedSharding(mesh, P(None, "envs")), rewards[:, mine])

def call(rewards):
    advantages, returns = fastgae.gae(rewards, rewards, None, last_values=0.0)
    return advantages, jax.lax.pmax(returns.max(), "envs")

program = jax.jit(jax.shard_map(call, mesh=mesh, in_specs=P(None, "envs"), out_specs=(P(None, "envs"), P())))
for _ in range(2):
    advantages, largest = program(shared)
    np.testing.assert_array_equal(advantages.addressable_data(0), expected.advantages[:, mine])
    assert float(largest) == expected.returns.max()
jax.distributed.shutdown()
"""
FORKS = """
import os, warnings
import jax, jax.numpy as jnp, numpy as np, fastgae

rewards = np.random.default_rng(0).normal(size=(500, 64)).astype(np.float32)
program = jax.jit(lambda rewards: fastgae.gae(rewards, rewards, None, last_values=0.0).advantages)
before = np.asarray(program(jnp.asarray(rewards)))
warnings.simplefilter("ignore")  # JAX warns of every fork
child = os.fork()
if child == 0:
    same = np.array_equal(fastgae.gae(rewards, rewards, None, last_values=0.0, num_threads=2).advantages, before)
    os._exit(0 if same else 1)
assert os.waitpid(child, 0)[1] == 0
np.testing.assert_array_equal(program(jnp.asarray(rewards)), before)
"""


def test_two_processes_share_a_program(two_ranks):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    two_ranks(RANK, address)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_of_a_process_that_has_run_a_program(python):
    """JAX itself does not work after a fork, but fastgae does, with NumPy arrays."""
    python(FORKS)


@pytest.mark.parametrize("first", ["jax", "fastgae", "fastgae, importlib.util; importlib.util.find_spec('jax')"])
def test_jax_knows_the_compiled_module(python, first):
    """Stored programs need it, whichever is imported first. A program may also look whether there is a JAX."""
    python(
        f"import {first}; import jax, fastgae, sys\n"
        "assert sys.modules['fastgae._interop.jax_xla'].is_ready.cache_info().currsize\n"
        "assert not any('fastgae' in type(each).__module__ for each in sys.meta_path)\n"
    )


def test_half_of_jax_is_imported(python):
    python("import sys, types; sys.modules['jax'] = types.ModuleType('jax'); import fastgae; fastgae.normalize([1, 2])")
