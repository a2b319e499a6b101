"""Ctrl-C and fork at a bad moment: the calls that follow are right, and as fast as before."""

import os
import signal
import sys
import threading

import numpy as np
import pytest

import fastgae
from fastgae._engine import dispatch
from support.backends import WITH_KERNELS, needs_numba
from support.cases import assert_same_bits, make_case

# The helper sees by the last row, which is computed first, that the call is running.
CTRL_C = """
import os, signal, threading
import numpy as np
import fastgae

backend = {backend!r}
rng = np.random.default_rng(0)
rewards, values = rng.normal(size=(2048, 4096)).astype(np.float32), rng.normal(size=(2049, 4096)).astype(np.float32)
done = rng.random(rewards.shape) < 0.1
small = fastgae.gae(rewards[:64], values[:65], done[:64], backend=backend)  # whatever is compiled is compiled here
parallel = []
if backend == "numba":
    from fastgae._backends import numba as module
    of_kernel = module.parallel
    module.parallel = lambda *given: parallel.append(threading.get_ident()) or of_kernel(*given)
expected = fastgae.gae(rewards, values, done, backend=backend, num_threads=2)
out = np.full((2, *rewards.shape), np.nan, np.float32)

def interrupt():
    while np.isnan(out[0, -1, 0]):
        pass
    os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # which a job in the background ignores
helper = threading.Thread(target=interrupt)
helper.start()
try:
    fastgae.gae(rewards, values, done, out=tuple(out), backend=backend, num_threads=2)
    helper.join()
except KeyboardInterrupt:
    helper.join()
    assert all(map(np.array_equal, out, expected)), "a call ends what it began"
else:
    raise SystemExit("KeyboardInterrupt did not come")
before = len(parallel)
after = [fastgae.gae(rewards, values, done, backend=backend, num_threads=2)]
threads = [threading.Thread(target=lambda: after.append(fastgae.gae(rewards, values, done, backend=backend)))]
for thread in threads:
    thread.start()
    thread.join()
assert all(np.array_equal(*pair) for got in after for pair in zip(got, expected))
print(len(after), len(parallel) - before)
"""


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="this platform has other signals")
@pytest.mark.parametrize("backend", WITH_KERNELS)  # NumPy stops between two operations
def test_ctrl_c_during_a_call(python, backend):
    calls, parallel = map(int, python(CTRL_C.format(backend=backend)).split())
    assert calls == 2
    if backend == "numba" and fastgae._support.threads.usable_cpus() > 1:
        assert parallel == 2


CTRL_C_IN_AN_IMPORT = """
import os, signal, sys
import fastgae

def pressed(event, arguments):
    if event == "import" and arguments[0] == "numba.core":
        os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.addaudithook(pressed)
try:
    fastgae.reverse_scan([1.0, 2.0], 0.5, backend="numba")
except KeyboardInterrupt:
    print(fastgae.reverse_scan([1.0, 2.0], 0.5, backend="numba"), signal.getsignal(signal.SIGINT).__name__)
"""


@needs_numba
def test_ctrl_c_during_the_first_import_of_numba(python):
    assert python(CTRL_C_IN_AN_IMPORT).split() == ["[2.", "2.]", "default_int_handler"]


def test_the_handler_of_ctrl_c_is_changed_only_under_the_lock_that_a_fork_waits_for(monkeypatch):
    """Otherwise a child may begin with the handler that makes Ctrl-C wait, and nothing takes it away there."""
    seen = []

    class Lock:
        def __enter__(self):
            seen.append(signal.getsignal(signal.SIGINT))

        def __exit__(self, *error):
            seen.append(signal.getsignal(signal.SIGINT))

    monkeypatch.setattr(dispatch, "_importing", Lock())
    dispatch._import.__wrapped__("numpy")
    assert seen == [signal.getsignal(signal.SIGINT)] * 2


def test_an_exception_that_ends_the_wait_of_a_fork_leaves_no_lock_locked(monkeypatch):
    class Waiting:
        def acquire(self):
            raise KeyboardInterrupt

    locks = [threading.Lock(), threading.Lock()]
    monkeypatch.setattr(dispatch, "_fork_waits_for", [*locks, Waiting()])
    with pytest.raises(KeyboardInterrupt):
        dispatch._before_fork()
    dispatch._after_fork()
    assert not any(lock.locked() for lock in locks)


class Interrupted:
    """Trace a function, and raise KeyboardInterrupt before its nth instruction."""

    def __init__(self, code, number):
        self.code, self.left = code, number

    def __call__(self, frame, event, argument):
        if frame.f_code is not self.code:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt
        return self


@needs_numba
def test_ctrl_c_between_any_two_instructions_leaves_later_calls_parallel(monkeypatch):
    from fastgae._backends import numba as module

    if module.config.NUMBA_NUM_THREADS < 2:
        pytest.skip("numba has one thread")
    case = make_case((33, 130), np.float32, bootstrap="last_values")
    expected = fastgae.gae(**case.arguments(), backend="numpy")
    monkeypatch.setattr(module, "STEPS_PER_THREAD", 1)
    parallel, of_kernel = [], module.parallel
    monkeypatch.setattr(module, "parallel", lambda *given: parallel.append(given) or of_kernel(*given))

    def runs_in_parallel():
        parallel.clear()
        assert_same_bits(fastgae.gae(**case.arguments(), backend="numba", num_threads=2), expected)
        return len(parallel) == 1

    def in_another_thread():
        seen = []
        thread = threading.Thread(target=lambda: seen.append(runs_in_parallel()))
        thread.start()
        thread.join()
        return seen == [True]

    if not runs_in_parallel():
        pytest.skip("numba has no safe pool here")
    anywhere = module.threading_layer() != "workqueue"
    number, before = 0, sys.gettrace()
    while True:
        sys.settrace(Interrupted(module._run_in_parallel.__code__, number))
        try:
            fastgae.gae(**case.arguments(), backend="numba", num_threads=2)
            break
        except KeyboardInterrupt:
            number += 1
        finally:
            sys.settrace(before)
        assert runs_in_parallel(), f"before instruction {number}"
        assert not anywhere or in_another_thread(), f"before instruction {number}"
    assert number > 50, "the function was traced"


FORK = """
import os, signal, sys, threading
import numpy as np
import fastgae

ones = np.ones((3, 2), np.float32)
began = threading.Event()

def call(dtype):
    array = ones.astype(dtype)
    got = fastgae.gae(array, array, array > 0, last_values=array[0], backend="numba")
    return bool((got.returns == 1).all())

def when_compiling():
    from fastgae._backends import numba
    from numba.core import event

    class Compiling(event.Listener):
        def on_start(self, _):
            began.set()

        def on_end(self, _):
            pass

    event.register("numba:run_pass", Compiling())

def when_importing():
    sys.addaudithook(lambda name, given: name == "import" and given[0].startswith("numba.") and began.set())

{"compiling": when_compiling, "importing": when_importing}[sys.argv[1]]()
thread = threading.Thread(target=call, args=[np.float32])
thread.start()
began.wait()
child = os.fork()
if child == 0:
    wrong = 1
    try:
        signal.alarm(100)  # ends a child that waits for ever
        wrong = int(not call(np.float64))
    finally:
        os._exit(wrong)
assert os.waitpid(child, 0)[1] == 0, "the child hung, died or was wrong"
thread.join()
assert call(np.float32)
print("done")
"""


@needs_numba
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform cannot fork")
@pytest.mark.parametrize("busy", ["importing", "compiling"])
def test_fork_while_another_thread_is(python, tmp_path, busy):
    quiet = "import warnings; warnings.simplefilter('ignore')\n"
    assert python(quiet + FORK, busy, NUMBA_CACHE_DIR=str(tmp_path)) == "done"
