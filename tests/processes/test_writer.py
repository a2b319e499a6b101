"""Another process writes to flags, mask and cu_seqlens during calls: the results mean nothing, but nothing crashes.

Results have the right shape, or the call raises what it raises for such input.
"""

import subprocess
import sys

import pytest

from support.backends import BACKENDS, needs_cpp

# Flags of any byte, most of them 0 and 1; cu_seqlens that are right, wrong, and absurd by turns.
WRITER = """
import sys, threading
import numpy as np

flags = np.memmap(sys.argv[1], np.uint8, "r+")
starts = np.memmap(sys.argv[2], np.int64, "r+")
right, rng = starts.copy(), np.random.default_rng(1)
stop = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), stop.set())).start()  # until the reader is gone
print("ready", flush=True)
while not stop.is_set():
    some = rng.integers(flags.size, size=1000)
    flags[some] = rng.choice([0, 0, 0, 1, 1, 2, 255], size=1000)
    starts[rng.integers(starts.size)] = rng.choice([-4, 0, right[-1], 2**62, -(2**63)])
    starts[:] = right
"""
READER = """
import sys
import numpy as np, fastgae

backend, steps, envs = sys.argv[3], 300, 40
size = steps * envs
flags = np.asarray(np.memmap(sys.argv[1], np.bool_, "r")).reshape(3, steps, envs)
cu_seqlens = np.asarray(np.memmap(sys.argv[2], np.int64, "r"))
terminated, truncated, mask = flags
rng = np.random.default_rng(0)
rewards, values = rng.normal(size=(2, steps, envs))
finals, final_count = rng.normal(size=size), size // 4
last = {"last_values": values[0]}
options = [
    {},
    {"mask": mask},
    {"truncated": truncated, "final_values": values},
    {"truncated": truncated, "final_values": finals[:final_count]},
    {"truncated": truncated, "autoreset": "next_step"},
    {"mask": mask, "truncated": truncated, "autoreset": "next_step"},
    {"mask": mask, "normalize": "per_env"},
    {"mask": mask, "normalize": "global", "tail_normalized": True},
]
done = refused = 0
for round in range(30):
    for given in options:
        for time_axis in (0, 1):
            def oriented(array):
                return array.T if time_axis and getattr(array, "ndim", 0) == 2 else array
            arguments = {name: oriented(array) for name, array in (last | given).items()}
            if arguments.get("final_values") is not None and arguments["final_values"].ndim == 1:
                arguments["final_values"] = finals[: np.count_nonzero(truncated)]
            try:
                arrays = map(oriented, (rewards, values, terminated))
                got = fastgae.gae(*arrays, time_axis=time_axis, backend=backend, **arguments)
                assert [array.shape for array in got] == [oriented(rewards).shape] * 2
                done += 1
            except (ValueError, IndexError):
                refused += 1
    for given in ({}, {"mask": mask.reshape(-1)}):
        try:
            arrays, given = (rewards.reshape(-1), values.reshape(-1), cu_seqlens), {"gamma": 0.99, **given}
            got = fastgae.gae_packed(*arrays, last_values=finals[: len(cu_seqlens) - 1], backend=backend, **given)
            assert [array.shape for array in got] == [(size,)] * 2
            done += 1
        except (ValueError, IndexError):
            refused += 1
print(done, refused)
"""
STEPS, ENVS = 300, 40


@pytest.mark.parametrize("backend", BACKENDS)
def test_flags_and_lengths_change_during_calls(python, backend, tmp_path):
    flags, starts = tmp_path / "flags", tmp_path / "cu_seqlens"
    flags.write_bytes(bytes(3 * STEPS * ENVS))
    starts.write_bytes(b"".join(start.to_bytes(8, "little") for start in range(0, STEPS * ENVS + 1, STEPS)))
    command = [sys.executable, "-P", "-c", WRITER, str(flags), str(starts)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout.readline() == "ready\n"
        done, refused = map(int, python(READER, str(flags), str(starts), backend).split())
        assert writer.poll() is None  # it wrote until the end
        writer.stdin.close()
    assert done > 0
    assert done + refused == 30 * 18


RESHAPED = """
import threading
import numpy as np
import fastgae

steps, envs = 1024, 4096
rewards, values = np.ones((steps, envs), np.int64), np.zeros((steps + 1, envs))  # to convert them takes milliseconds
terminated, truncated = np.zeros((2, steps, envs), bool)
truncated[::7, ::9] = True
count, stop = int(truncated.sum()), threading.Event()
final_values = np.zeros(count)

def reshape():
    while not stop.is_set():
        final_values.shape = count, 1  # frees shape and strides, which the next array gets
        other = np.lib.stride_tricks.as_strided(np.zeros(8), (count,), (2**40,))
        stop.wait(0.001)
        del other
        final_values.shape = count
        stop.wait(0.001)

thread = threading.Thread(target=reshape)
thread.start()
for _ in range(150):
    try:
        fastgae.gae(rewards, values, terminated, truncated, final_values=final_values, backend="cpp", num_threads=1)
    except (TypeError, ValueError):
        pass
stop.set()
thread.join()
print("done")
"""


@needs_cpp
def test_a_thread_that_changes_a_shape(python):
    """NumPy frees the old shape, from which a call must not read then. It takes luck to see: every third time."""
    assert python("import warnings; warnings.simplefilter('ignore')\n" + RESHAPED) == "done"
