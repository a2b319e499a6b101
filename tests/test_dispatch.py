"""Which backend runs: proved by recording calls at the border of every backend; what imports do, in new processes."""

import importlib
import json
import os
import sys
import warnings
from itertools import product

import numpy as np
import pytest

import fastgae
from fastgae._engine import dispatch
from fastgae._support import threads
from support.backends import BACKENDS, needs_cpp
from support.programs import BROKEN_CORE, CALL, NO_CORE, NO_NUMBA, NO_TRITON

NAMES = ("cpp", "numba", "numpy", "triton")
AVAILABLE = [info.name for info in fastgae.backends() if info.available and info.device == "CPU"]
CPP_TARGETS = next(info.targets for info in fastgae.backends() if info.name == "cpp")


def test_exactly_the_expected_backends_are_there():
    """Where the machine is known to have them all, nothing may silently go untested."""
    expected = os.environ.get("FASTGAE_TEST_EXPECT")
    if expected is not None:
        assert set(AVAILABLE) == set(expected.split(","))
    assert "numpy" in AVAILABLE


def test_backends_lists_every_backend():
    infos = fastgae.backends()
    assert [info.name for info in infos] == list(NAMES)
    for info in infos:
        assert info.available == (info.why_missing is None) == bool(info.version)
        assert (info.name == "cpp" and info.available) == bool(info.targets)
    assert list(CPP_TARGETS) == [target for target in dispatch.CPU_TARGETS if target in CPP_TARGETS], "best first"
    assert CPP_TARGETS[-1:] in ((), ("baseline",))


def split(name):
    backend, _, target = name.partition(":")
    return [backend, target or None]


def module_of(name):
    return importlib.import_module(f"fastgae._backends.{name}")


@pytest.fixture
def called(under, monkeypatch):
    """Make a plain call, which may take a short cut, and one that is converted first. Return what each backend saw.

    That is its name, the CPU target, and the number of threads that it may use.
    """
    seen = []

    def recording(name, function):
        def recorded(given, num_threads, target):
            result = function(given, num_threads, target)
            if result is not None or function.__name__ == "gae":
                seen.append([name, target, num_threads])
            return result

        return recorded

    for name in AVAILABLE:
        for function in ("gae", "short_cut"):
            if theirs := getattr(module_of(name), function, None):
                monkeypatch.setattr(module_of(name), function, recording(name, theirs))

    def make(**options):
        seen.clear()
        ones = np.ones((2, 2))
        for gamma in (0.99, np.float32(0.9)):
            got = fastgae.gae(ones, ones, ones.astype(bool), last_values=ones[0], gamma=gamma, **options)
            assert (got.returns == 1).all()
        (*plain, threads), converted = seen
        assert plain == converted[:2]
        assert threads in (0, converted[2])  # 0 stands for all CPUs until they are counted
        return converted

    return make


def test_argument_then_environment_then_the_best(under, called):
    for variable in (None, "nonsense", *BACKENDS):
        under(FASTGAE_BACKEND=variable)
        for name in BACKENDS:
            assert called(backend=name)[:2] == split(name)
        if variable != "nonsense":
            assert called()[:2] == split(variable or BACKENDS[0])


def test_fastgae_cpu_chooses_the_target(under, called):
    """It says nothing about other backends, and the target in the argument wins over it."""
    for target in CPP_TARGETS:
        under(FASTGAE_CPU=target)
        assert called()[:2] == called(backend="cpp")[:2] == ["cpp", target]
    under(FASTGAE_CPU="nonsense")
    for name in BACKENDS:
        if name != "cpp":
            assert called(backend=name)[:2] == split(name)
    for name in AVAILABLE:
        if name != "cpp":
            under(FASTGAE_CPU="nonsense", FASTGAE_BACKEND=name)
            assert called()[0] == name


@needs_cpp
def test_the_compiled_module_is_given_the_target(under, monkeypatch):
    """Below the backend module the name reaches the compiled table by all ways, and an unknown one is refused."""
    seen, cpp = [], module_of("cpp")

    def watching(function):
        def watched(given, num_threads, target):
            seen.append(target)
            with pytest.raises(ValueError, match="nonsense"):
                function(given, num_threads, "nonsense")
            return function(given, num_threads, target)

        return watched

    ones = np.ones((2, 2))
    monkeypatch.setattr(cpp, "gae", watching(cpp._core.gae))
    for target in CPP_TARGETS:
        for short_cut in (watching(cpp._core.short_cut), lambda *arguments: None):
            monkeypatch.setattr(cpp, "short_cut", short_cut)
            under()
            fastgae.gae(ones, ones, ones.astype(bool), last_values=ones[0], backend=f"cpp:{target}")
    assert seen == [target for target in CPP_TARGETS for _ in range(2)]


def refused(error, words, **options):
    with pytest.raises(error) as raised:
        fastgae.gae([1.0], [1.0], [0], last_values=0.0, **options)
    assert [word for word in words if word not in str(raised.value)] == []
    return raised.value


def test_unknown_names_in_the_environment(under):
    for name in ("cuda", "CPP", "cpp:", "cpp:avx9", "numba:avx2", " numpy"):
        under(FASTGAE_BACKEND=name)
        message = str(refused(ValueError, ["FASTGAE_BACKEND", repr(name), *dispatch.BACKENDS, *dispatch.CPU_TARGETS]))
        assert dispatch.ON_DEVICES not in message  # which the environment cannot choose
    under(FASTGAE_CPU="avx9")
    refused(ValueError, ["FASTGAE_CPU", "'avx9'", *dispatch.CPU_TARGETS])


@needs_cpp
def test_a_target_that_the_cpu_lacks(under, monkeypatch):
    monkeypatch.setattr(module_of("cpp"), "targets", lambda: ("baseline",))
    words = ["avx2", "baseline"]  # the second is what this machine can run
    for settings, options in (({}, {"backend": "cpp:avx2"}), ({"FASTGAE_CPU": "avx2"}, {})):
        under(**settings)
        assert refused(fastgae.BackendUnavailableError, [*words, *settings], **options).__cause__
    under(FASTGAE_BACKEND="cpp:avx2")
    refused(fastgae.BackendUnavailableError, [*words, "FASTGAE_BACKEND"])


def test_numpy_is_a_fallback_where_both_others_are_missing(under, monkeypatch):
    """So there is no warning where one of them runs, or where the environment chooses."""
    missing = set()
    monkeypatch.setattr(dispatch, "_import", lambda name: ImportError(name) if name in missing else module_of("numpy"))
    for names in ({"cpp"}, {"numba"}):
        missing = names
        assert dispatch.fallback() is None
    missing = {"cpp", "numba"}
    assert "'numpy'" in dispatch.fallback()
    for chosen in ("FASTGAE_BACKEND", "FASTGAE_CPU"):
        under(**{chosen: "any"})
        assert dispatch.fallback() is None


# What a process does whose imports fail: calls under these settings, what they raise, and all warnings.
FAILING = f"""
import warnings
caught = warnings.catch_warnings(record=True).__enter__()
warnings.simplefilter("always")
{CALL}
from fastgae._engine import dispatch

def under(*settings, **options):
    dispatch.SETTINGS.update({{**dict.fromkeys(dispatch.SETTINGS), **dict(settings)}})
    dispatch.resolve.cache_clear()
    dispatch._warn_of_fallback.cache_clear()
    return [failing(plain=plain, **options) for plain in (False, True)]
"""


def test_without_compiled_code_and_numba(python):
    """What is chosen is an error with its cause; what is not chosen falls back to NumPy with one warning.

    However many calls there are, it says what to run, and `info` says the same.
    """
    code = """
report = {
    "numba": under(("FASTGAE_BACKEND", "numba"))[0],
    "cpp": under(("FASTGAE_BACKEND", "cpp"))[0],
    "backend=": under(backend="cpp:avx2")[0],
    "FASTGAE_CPU": under(("FASTGAE_CPU", "baseline"))[0],
    "unknown": under(("FASTGAE_CPU", "avx9"))[0],
    "numpy": under(("FASTGAE_BACKEND", "numpy")) + under(backend="numpy"),
    "before": len(caught),
    "fallen back": under() + [failing(), failing(num_threads=2)],
    "why": {each.name: [each.available, each.why_missing] for each in fastgae.backends()},
}
dispatch.resolve.cache_clear()
dispatch._warn_of_fallback.cache_clear()
fastgae.moments([1.0])
report["warned"] = [[w.category.__name__, str(w.message), w.filename] for w in caught]
print(json.dumps(report))
from fastgae.cli.main import main
main(["info", "--json"])
"""
    lines = python(NO_CORE + NO_NUMBA + NO_TRITON + FAILING + code, check=False).stdout.split("\n", 1)
    report, info = map(json.loads, lines)
    reasons = {"numba": "no numba", "cpp": "not built", "backend=": "not built", "FASTGAE_CPU": "'baseline'"}
    for way, reason in reasons.items():
        error, message, cause_type, _ = report[way]
        assert (error, cause_type) == ("BackendUnavailableError", "ModuleNotFoundError")
        assert [word for word in (way, reason) if word not in message] == []
    assert report["unknown"][0] == "ValueError"
    assert report["numpy"] == report["fallen back"] == [None] * 4
    assert report["before"] == 0
    (category, message, file), of_moments = report["warned"]
    assert (category, file) == ("RuntimeWarning", "<string>"), "the program's own line"
    assert of_moments == [category, message, file]
    for word in ("'numpy'", "cpp", "numba", "fastgae info", "pip install", "FASTGAE_BACKEND=numpy"):
        assert word in message
    why = report["why"]
    assert why["cpp"][1].startswith("not built")
    assert [why[name] for name in NAMES[1:]] == [[False, "no numba"], [True, None], [False, "no triton"]]
    assert info["problems"] == [message]
    assert "pip install" in info["backends"][0]["why_missing"]


def test_a_compiled_module_that_does_not_load(python):
    """A call warns once and falls back; a call that asks for it gets an error with the cause."""
    code = """
fastgae.backends()
print(json.dumps([
    under() + under(), [under(backend="cpp")[0], under(("FASTGAE_CPU", "baseline"))[0]],
    [[w.category.__name__, str(w.message)] for w in caught if "does not load" in str(w.message)],
]))
"""
    calls, errors, ((category, message),) = json.loads(python(BROKEN_CORE + NO_TRITON + FAILING + code))
    assert calls == [None] * 4
    for error, said, *cause in errors:
        assert (error, *cause) == ("BackendUnavailableError", "ImportError", "undefined symbol: nowhere")
        assert "undefined symbol: nowhere" in said
    assert category == "RuntimeWarning"
    assert "cpp" in message
    assert "undefined symbol: nowhere" in message


@pytest.mark.parametrize("error", [OSError, RecursionError, MemoryError], ids=lambda error: error.__name__)
def test_what_fails_for_a_moment_is_tried_again(under, monkeypatch, error):
    """Where NumPy's own part cannot be imported, the process has too few files, memory or room on the stack."""

    def failing(name):
        raise error("for a moment")

    dispatch._import.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(importlib, "import_module", failing)
        for _ in range(2):
            with pytest.raises(error, match="for a moment"), warnings.catch_warnings(action="ignore"):
                fastgae.gae([1.0], [1.0, 1.0], [0])
    assert dispatch.resolve(None, None).module is module_of(split(BACKENDS[0])[0])


def test_the_environment_is_read_at_the_import(python):
    """Nonsense in it does not break the import, and an empty text is none."""
    everything = dict.fromkeys(dispatch.SETTINGS, "x") | {"FASTGAE_CPU": ""}
    code = "import json, fastgae; print(json.dumps([len(fastgae.backends()), fastgae._engine.dispatch.SETTINGS]))"
    assert json.loads(python(NO_NUMBA + NO_TRITON + code, **everything)) == [4, everything | {"FASTGAE_CPU": None}]


def test_the_number_of_threads(under, called):
    for ours, omp, expected in (("5", "7", 5), (None, "7", 7), (None, "4,3,2", 4)):
        under(FASTGAE_NUM_THREADS=ours, OMP_NUM_THREADS=omp)
        assert [called()[2], called(num_threads=3)[2]] == [expected, 3]


def test_threads_default_to_the_cpus_of_the_process(called, monkeypatch, tmp_path):
    assert 1 <= called(backend="numpy")[2] <= os.cpu_count()
    if hasattr(os, "sched_getaffinity"):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {7})
        assert threads.usable_cpus() == 1
    monkeypatch.setattr(threads, "Path", lambda _, file: tmp_path / file)
    for quota, expected in (("150000 100000", 2), ("200000 100000", 2), ("max 100000", sys.maxsize)):
        (tmp_path / "cpu.max").write_text(quota)
        assert threads._cgroup_cpus.__wrapped__() == expected  # a part of a CPU counts as one


def test_bad_numbers_of_threads_in_the_environment(under, called):
    """By every backend: an error of one is an error of all. A number in the call wins over it."""
    for variable, text, name in product(("FASTGAE_NUM_THREADS", "OMP_NUM_THREADS"), ("0", "2.5", "many"), AVAILABLE):
        under(**{variable: text})
        refused(ValueError, [variable, text, "positive integer"], backend=name)
        assert called(num_threads=2, backend=name)[2] == 2
        # Numba hands this recursion to NumPy.
        fastgae.upgo(np.zeros(2), np.zeros(3), [0, 0], num_threads=2, backend=name)


def test_what_is_remembered_of_calls_is_bounded_and_knows_types():
    for num_threads in range(1, 500):
        fastgae.gae([1.0], [1.0, 1.0], [0], num_threads=num_threads, backend="numpy")
    assert dispatch.resolve.cache_info().currsize < 200
    fastgae.gae([1.0], [1.0, 1.0], [0], num_threads=1)
    for equal in (True, 1.0):
        refused(ValueError, ["num_threads must be a positive integer", repr(equal)], num_threads=equal)
