"""Which backend runs: proved in fresh interpreters, by recording calls at the border of every backend."""

import importlib
import json
import os

import numpy as np
import pytest

import fastgae
from support.backends import BACKENDS
from support.programs import BROKEN_CORE, CALL, NO_CORE, NO_NUMBA, NO_TRITON

NAMES = ("cpp", "numba", "numpy", "triton")
AVAILABLE = [info.name for info in fastgae.backends() if info.available and info.device == "CPU"]
CPP_TARGETS = next(info.targets for info in fastgae.backends() if info.name == "cpp")
ALL_CPP_TARGETS = ("avx512", "avx2", "baseline")

# Every backend that a call loads reports its calls: its name, the CPU target, the threads it may use.
RECORD = (
    CALL
    + """
import functools
from fastgae import _dispatch
calls, load = [], _dispatch._import

@functools.cache
def loaded(name):
    module = load(name)
    if hasattr(module, "gae"):
        recording(name, module)
    return module

_dispatch._import = loaded

def recording(name, module):
    gae, short_cut = module.gae, getattr(module, "short_cut", None)
    def recorded(rollout, num_threads, target):
        calls.append([name, target, num_threads])
        gae(rollout, num_threads, target)
    def recorded_short_cut(call, num_threads, target):
        result = short_cut(call, num_threads, target)
        if result is not None:
            calls.append([name, target, num_threads])
        return result
    module.gae = recorded
    if short_cut is not None:
        module.short_cut = recorded_short_cut
"""
)
REPORT = "\nprint(json.dumps(calls))"


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
    assert list(CPP_TARGETS) == [target for target in ALL_CPP_TARGETS if target in CPP_TARGETS], "best first"
    if CPP_TARGETS:
        assert CPP_TARGETS[-1] == "baseline"


def split(name):
    backend, _, target = name.partition(":")
    return [backend, target or None]


@pytest.mark.parametrize("variable", [None, "", "nonsense", BACKENDS[-1]])
def test_argument_then_environment_then_the_best(python, variable):
    """With every environment: the argument wins; without an argument the environment does, or the best there is."""
    environment = {} if variable is None else {"FASTGAE_BACKEND": variable}
    without_argument = "" if variable == "nonsense" else "call(); call(plain=False)"
    names = BACKENDS if variable in (None, "nonsense") else [name for name in BACKENDS if name != variable][:1]
    code = f"{RECORD}\nfor name in {names}: call(backend=name); call(plain=False, backend=name)\n{without_argument}"
    calls = [call[:2] for call in json.loads(python(code + REPORT, **environment))]
    expected = [split(name) for name in names for _ in range(2)]
    if without_argument:
        expected += [split(variable or BACKENDS[0])] * 2
    assert calls == expected


@pytest.mark.parametrize("variable", BACKENDS)
def test_the_environment_may_name_any_backend(variable, monkeypatch):
    monkeypatch.setitem(fastgae._dispatch.SETTINGS, "FASTGAE_BACKEND", variable)
    module, target = fastgae._dispatch.resolve_backend(None)
    assert [module.__name__.removeprefix("fastgae._backends."), target] == split(variable)


@pytest.mark.parametrize("name", BACKENDS)
def test_only_the_chosen_backend_runs(name, monkeypatch):
    """The functions of all the others fail."""

    def poisoned(*arguments):
        raise AssertionError("another backend ran")

    for other in AVAILABLE:
        if other != split(name)[0]:
            module = importlib.import_module(f"fastgae._backends.{other}")
            for function in ("gae", "short_cut"):
                monkeypatch.setattr(module, function, poisoned, raising=False)
    fastgae._dispatch.resolve.cache_clear()
    ones = np.ones((2, 2))
    for gamma in (0.9, np.float32(0.9)):  # a plain call, and one that must be converted first
        fastgae.gae(ones, ones, ones.astype(bool), last_values=ones[0], gamma=gamma, backend=name)


@pytest.mark.parametrize("target", CPP_TARGETS)
def test_fastgae_cpu_chooses_the_target(python, target):
    others = [other for other in CPP_TARGETS if other != target]
    code = "call(); call(backend='cpp'); call(plain=False)" + "".join(f"; call(backend='cpp:{t}')" for t in others)
    calls = [call[:2] for call in json.loads(python(RECORD + code + REPORT, FASTGAE_CPU=target))]
    assert calls == [["cpp", target]] * 3 + [["cpp", other] for other in others]


def test_fastgae_cpu_matters_only_where_no_target_is_named(python):
    """A CPU target of cpp says nothing about other backends, and the target in the argument wins over it."""
    names = [name for name in BACKENDS if name != "cpp"]
    code = RECORD + f"for name in {names}: call(backend=name)" + REPORT
    assert [call[:2] for call in json.loads(python(code, FASTGAE_CPU="nonsense"))] == [split(name) for name in names]


@pytest.mark.parametrize("name", [name for name in AVAILABLE if name != "cpp"])
def test_fastgae_cpu_has_no_say_where_fastgae_backend_names_another(python, name):
    code = NO_CORE + RECORD + "call(); call(plain=False)" + REPORT
    calls = json.loads(python(code, FASTGAE_BACKEND=name, FASTGAE_CPU="nonsense"))
    assert [call[:2] for call in calls] == [[name, None]] * 2


@pytest.mark.parametrize(
    ("block", "cause"), [(NO_CORE, ["ModuleNotFoundError", "not built"]), (BROKEN_CORE, ["ImportError", "undefined"])]
)
def test_fastgae_cpu_asks_for_cpp(python, block, cause):
    """Where cpp cannot run, no other backend takes its place."""
    quiet = "import warnings; warnings.simplefilter('ignore')"
    failing = "\nerrors = [failing(), failing(plain=False), failing(backend='cpp')]"
    report = "\nassert not calls, calls\nprint(json.dumps(errors))"
    errors = json.loads(python(quiet + block + RECORD + failing + report, FASTGAE_CPU="baseline"))
    for (error, message, *chained), words in zip(errors, [[], [], ["backend='cpp'"]], strict=True):
        assert error == "BackendUnavailableError"
        for word in ("FASTGAE_CPU='baseline'", "cpp", chained[1], *words):
            assert word in message
        assert chained[0] == cause[0]
        assert cause[1] in chained[1]


@pytest.mark.skipif(not CPP_TARGETS, reason="the compiled module is not there")
def test_the_compiled_module_is_given_the_target(python):
    """Below the backend module the name reaches the compiled table by all ways, and an unknown one is refused."""
    code = f"""
import fastgae._backends.cpp as cpp

core, seen = cpp._core, []

def watching(function):
    def watched(given, num_threads, target):
        seen.append(target)
        try:
            function(given, num_threads, "nonsense")
        except ValueError as error:
            seen.append("nonsense" in str(error))
        return function(given, num_threads, target)
    return watched

cpp.gae = watching(core.gae)
for target in {CPP_TARGETS}:
    for cpp.short_cut in (watching(core.short_cut), lambda *arguments: None):
        fastgae._dispatch.resolve.cache_clear()
        call(backend="cpp:" + target)
print(json.dumps(seen))
"""
    assert json.loads(python(CALL + code)) == [each for target in CPP_TARGETS for each in [target, True] * 2]


def test_an_unknown_backend_in_the_environment(python):
    names = ["cuda", "CPP", "cpp:", "cpp:avx9", "numba:avx2", " numpy"]
    for name, (error, message, *_) in zip(names, failures(python, "FASTGAE_BACKEND", names), strict=True):
        assert error == "ValueError"
        for word in ("FASTGAE_BACKEND", repr(name), "cpp", "numba", "numpy", "cpp:avx512", "cpp:avx2", "cpp:baseline"):
            assert word in message


def failures(python, variable, texts, options=({},)):
    """Return the error of each call: with each of these texts in a variable, with each of these options.

    One process makes all calls, and puts each text where the import of fastgae puts what the environment says.
    """
    code = f"""
def error(text, options):
    fastgae._dispatch.SETTINGS[{variable!r}] = text
    return failing(**options)

print(json.dumps([error(text, options) for text in {texts} for options in {options}]))
"""
    return json.loads(python(CALL + code))


@pytest.mark.parametrize("block", ["", NO_CORE], ids=["", "no core"])
def test_an_unknown_target_in_the_environment(python, block):
    error, message, *_ = json.loads(python(block + CALL + "print(json.dumps(failing()))", FASTGAE_CPU="avx9"))
    assert error == "ValueError"
    for word in ("FASTGAE_CPU", "'avx9'", *ALL_CPP_TARGETS):
        assert word in message


@pytest.mark.parametrize("missing", [t for t in ALL_CPP_TARGETS if CPP_TARGETS and t not in CPP_TARGETS])
def test_a_target_that_the_cpu_lacks(python, missing):
    for code, environment, source in (
        (f"failing(backend='cpp:{missing}')", {}, "backend"),
        ("failing()", {"FASTGAE_CPU": missing}, "FASTGAE_CPU"),
        ("failing()", {"FASTGAE_BACKEND": f"cpp:{missing}"}, "FASTGAE_BACKEND"),
    ):
        error, message, cause, _ = json.loads(python(CALL + f"print(json.dumps({code}))", **environment))
        assert error == "BackendUnavailableError"
        assert cause != "NoneType"
        assert source in message
        assert missing in message
        assert "baseline" in message, "what this machine can run"


@pytest.mark.parametrize(
    ("block", "name", "cause"),
    [(NO_NUMBA, "numba", "no numba"), (NO_CORE, "cpp", "no core"), (NO_CORE, "cpp:avx2", "no core")],
)
def test_a_forced_backend_never_falls_back(python, block, name, cause):
    report = f"\nerrors = [failing(), failing(backend={name!r})]\nassert not calls, calls\nprint(json.dumps(errors))"
    errors = json.loads(python(block + RECORD + report, FASTGAE_BACKEND=name))
    for (error, message, cause_type, _), by in zip(errors, ("FASTGAE_BACKEND=", "backend="), strict=True):
        assert error == "BackendUnavailableError"
        assert cause_type == "ModuleNotFoundError"
        assert by in message
        assert repr(name) in message
        assert cause in message or "not built" in message


CAUGHT = """
import warnings
caught = warnings.catch_warnings(record=True).__enter__()
warnings.simplefilter("always")
"""
REPORT_CAUGHT = "\nprint(json.dumps([calls, [[w.category.__name__, str(w.message), w.filename] for w in caught]]))"


def test_auto_falls_back_to_numpy_with_one_warning(python):
    """It says what to run, however many calls there are, and `info` says the same."""
    code = CAUGHT + NO_CORE + NO_NUMBA + RECORD + "call(); call(num_threads=2); call(plain=False)" + REPORT_CAUGHT
    calls, caught = json.loads(python(code))
    assert [c[0] for c in calls] == ["numpy"] * 3
    ((category, message, file),) = caught
    assert file == "<string>", "the program's own line"
    assert category == "RuntimeWarning"
    for word in ("'numpy'", "cpp", "numba", "fastgae info", "pip install", "FASTGAE_BACKEND=numpy"):
        assert word in message
    info = json.loads(python(NO_CORE + NO_NUMBA + "from fastgae.cli.main import main; main(['info', '--json'])"))
    assert info["problems"] == [message]
    assert "pip install" in info["backends"][0]["why_missing"]


@pytest.mark.parametrize(
    ("blocked", "environment", "options"),
    [
        (NO_CORE + NO_NUMBA, {"FASTGAE_BACKEND": "numpy"}, ""),
        (NO_CORE + NO_NUMBA, {}, "backend='numpy'"),
        pytest.param(NO_CORE, {}, "", marks=pytest.mark.skipif("numba" not in AVAILABLE, reason="no Numba")),
        pytest.param(NO_NUMBA, {}, "", marks=pytest.mark.skipif("cpp" not in AVAILABLE, reason="not built")),
    ],
    ids=["chosen for all calls", "chosen for a call", "numba", "cpp"],
)
def test_no_warning_where_numpy_was_chosen_or_something_fast_runs(python, blocked, environment, options):
    code = CAUGHT + blocked + RECORD + f"call({options}); call({options})" + REPORT_CAUGHT
    calls, caught = json.loads(python(code, **environment))
    assert len(calls) == 2
    assert caught == []


def test_auto_warns_once_where_the_module_is_built_but_broken(python):
    code = BROKEN_CORE + CAUGHT + RECORD + "call(); call(); fastgae.backends()" + REPORT_CAUGHT
    calls, caught = json.loads(python(code))
    assert [c[0] for c in calls] == [next(name for name in AVAILABLE if name != "cpp")] * 2
    ((category, message, _),) = (each for each in caught if "does not load" in each[1])
    assert category == "RuntimeWarning"
    assert "cpp" in message
    assert "undefined symbol: nowhere" in message


def test_a_forced_backend_that_is_broken_is_an_error_with_the_cause(python):
    code = "import warnings; warnings.simplefilter('ignore')" + BROKEN_CORE + CALL
    error, message, cause_type, cause = json.loads(python(code + "print(json.dumps(failing(backend='cpp')))"))
    assert error == "BackendUnavailableError"
    assert "undefined symbol: nowhere" in message
    assert (cause_type, cause) == ("ImportError", "undefined symbol: nowhere")


def test_why_a_backend_is_missing(python):
    report = "import fastgae, json\nprint(json.dumps([(b.available, b.why_missing) for b in fastgae.backends()]))"
    cpp, numba, numpy, triton = json.loads(python(NO_NUMBA + NO_CORE + NO_TRITON + report))
    assert cpp[0] is False
    assert cpp[1].startswith("not built")
    assert numba == [False, "no numba"]
    assert numpy == [True, None]
    assert triton == [False, "no triton"]


THREADS = [
    ({"FASTGAE_NUM_THREADS": "5", "OMP_NUM_THREADS": "7"}, 5),
    ({"FASTGAE_NUM_THREADS": "", "OMP_NUM_THREADS": "7"}, 7),
    ({"OMP_NUM_THREADS": "7"}, 7),
    ({"OMP_NUM_THREADS": "4,3,2"}, 4),
]


@pytest.mark.parametrize(("environment", "threads"), THREADS)
def test_the_number_of_threads(python, environment, threads):
    code = RECORD + "for plain in (True, False): call(plain=plain); call(plain=plain, num_threads=3)"
    assert [call[2] for call in json.loads(python(code + REPORT, **environment))] == [threads, 3] * 2


def test_threads_default_to_the_usable_cpus(python):
    assert 1 <= json.loads(python(RECORD + "call(backend='numpy')" + REPORT))[0][2] <= os.cpu_count()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this platform has no affinity")
def test_threads_default_to_the_affinity_of_the_process(python):
    one_cpu = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
    assert json.loads(python(one_cpu + RECORD + "call(backend='numpy')" + REPORT))[0][2] == 1


@pytest.mark.parametrize("variable", ["FASTGAE_NUM_THREADS", "OMP_NUM_THREADS"])
def test_bad_numbers_of_threads_in_the_environment(python, variable):
    """By every backend, with and without a short cut: an error of one is an error of all."""
    texts, names = ["0", "2.5", "many"], [name for name in AVAILABLE if name != "numba"]
    options = [{"backend": name, "plain": plain} for name in names for plain in (True, False)]
    errors = failures(python, variable, texts, options)
    for text, (error, message, *_) in zip(np.repeat(texts, len(options)), errors, strict=True):
        assert error == "ValueError"
        for word in (variable, text, "positive integer"):
            assert word in message


def test_num_threads_wins_over_a_bad_environment(python):
    code = f"{CALL}\nfor name in {BACKENDS}: call(num_threads=2, backend=name)\nprint('right')"
    assert python(code, FASTGAE_NUM_THREADS="nonsense") == "right"


def test_a_bad_environment_does_not_break_the_import(python):
    everything = {"FASTGAE_BACKEND": "x", "FASTGAE_CPU": "x", "FASTGAE_NUM_THREADS": "x", "OMP_NUM_THREADS": "x"}
    assert python("import fastgae; print(len(fastgae.backends()))", **everything) == "4"


def test_what_is_remembered_of_calls_is_bounded():
    for num_threads in range(1, 500):
        fastgae.gae([1.0], [1.0, 1.0], [0], num_threads=num_threads, backend="numpy")
    assert fastgae._dispatch.resolve.cache_info().currsize < 200
