"""Which calls are computed on a GPU, which are refused and with which words, and what torch compiles."""

import json
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_map_only

import fastgae
from fastgae._backends import triton as backend
from fastgae._backends.triton import plan
from fastgae._interop import torch_devices
from fastgae._interop.torch_devices import call
from support.cases import assert_same_bits, make_case
from support.functions import converted, ways_of
from support.programs import NO_TRITON

from .device import DEVICE, assert_bits, called, check, tensor, tensors, transposed

ROLLOUT = make_case((17, 6), np.dtype(np.float32)).arguments()


def small_rollout(steps=5, seed=0):
    return make_case((steps, 6), np.dtype(np.float32), bootstrap="last_values", seed=seed).arguments()


def test_backends_lists_it():
    info = fastgae.backends()[-1]
    assert (info.name, info.device, info.available, info.why_missing) == ("triton", "GPU", True, None)
    assert "triton" in info.version
    assert "torch" in info.version


def test_diagnose_reads_the_numbers():
    with pytest.raises(TypeError, match=rf"rewards is on {DEVICE}.*, and diagnose computes on the CPU: pass"):
        call(fastgae.diagnose, {"rewards": torch.ones(3, device=DEVICE)})


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
def test_moments_are_exact(kind):
    rng = np.random.default_rng(1)
    numbers = torch.from_numpy(rng.normal(size=(9, 7)) * np.exp(20 * rng.normal(size=(9, 7)))).to(kind)
    if kind.is_floating_point:
        numbers[3:7, 3] = torch.tensor([torch.nan, torch.inf, -torch.inf, 1e-40], dtype=kind)
    mask = torch.from_numpy(rng.random((9, 7)) < 0.8)
    for exists in (None, mask.float(), mask[:, :1].mT):
        for some in (numbers, numbers.nan_to_num(0, 1, 2) if kind.is_floating_point else numbers.mT[:2]):
            given = {"advantages": some, "mask": exists if exists is None or exists.shape == some.shape else None}
            on_the_device = {name: t if t is None else t.to(DEVICE) for name, t in given.items()}
            assert call(fastgae.moments, on_the_device) == fastgae.moments(**given)


def test_a_recursion_that_it_does_not_know(monkeypatch):
    monkeypatch.setattr("fastgae._backends.triton.RECURSIONS", ("gae",))
    match = rf"rewards is an array on {DEVICE}.*, and upgo computes on the CPU: pass rewards\.cpu\(\)"
    given = {name: each for name, each in tensors(ROLLOUT).items() if name != "gae_lambda"}
    with pytest.raises(TypeError, match=match):
        call(fastgae.upgo, given)


class Elsewhere(torch.Tensor):
    """A tensor on another device, as far as anybody can see without one."""

    is_cpu = False
    device = torch.device("cuda:7")


ONES = torch.ones(17, 6)
MEMORY = torch.zeros(18, 6, device=DEVICE)


@pytest.mark.parametrize(
    ("changed", "error", "match"),
    [
        ({"values": torch.ones(2, 6)}, ValueError, r"values has shape \(2, 6\); expected rewards' shape"),
        ({"gamma": torch.ones(6)}, ValueError, r"gamma has shape \(6,\); .* \(1, 6\) is one per env"),
        ({"final_values": None}, ValueError, "pass final_values"),
        ({"final_values": torch.ones(3)}, ValueError, "to count the flags of truncated, the program would have"),
        ({"num_threads": 0}, ValueError, "num_threads must be a positive integer"),
        ({"values": ONES.to(torch.complex64)}, TypeError, "values has dtype complex64"),
        ({"values": ONES.to(torch.float8_e4m3fn)}, TypeError, r"values has dtype torch\.float8_e4m3fn"),
        ({"values": ONES.to_sparse()}, TypeError, r"values has layout .*: pass values\.to_dense\(\)"),
        ({"values": ROLLOUT["values"]}, TypeError, rf"values is not a tensor, and rewards is on {DEVICE}"),
        ({"values": ONES.tolist()}, TypeError, r"values is not a tensor, .*torch\.as_tensor\(values"),
        ({"values": ONES.as_subclass(Elsewhere)}, TypeError, r"on cuda:7, and .* on .*: pass values\.to\(rewards\.dev"),
        ({"backend": "cpp"}, TypeError, "and backend='cpp' computes on the CPU: leave it out"),
        ({"out": ONES}, TypeError, "out must be a pair"),
        ({"out": (None, None)}, ValueError, "nothing to compute"),
        ({"out": (1, None)}, TypeError, r"out\[0\] must be a tensor on the device of rewards, got int"),
        ({"out": "no array"}, TypeError, "out must be a pair .*, got str"),
        ({"out": (torch.ones(3, 6), None)}, ValueError, r"out\[0\] has shape \(3, 6\)"),
        ({"out": (None, ONES.double())}, TypeError, r"out\[1\] has dtype float64; expected"),
        ({"out": (None, torch.ones(1, 6, device=DEVICE).expand(17, 6))}, ValueError, "broadcast view"),
        ({"out": (ONES.clone().requires_grad_(), None)}, ValueError, "out requires grad"),
        ({"out": (ONES.bfloat16(), None)}, TypeError, "out has dtype torch.bfloat16"),
        ({"out": (torch.complex(MEMORY[1:], MEMORY[1:]).conj().imag, None)}, TypeError, "a view of negated numbers"),
        ({"out": (MEMORY[1:], MEMORY[:-1])}, ValueError, "share memory"),
        ({"out": (MEMORY[1:],) * 2}, ValueError, "share memory"),
    ],
)
def test_mistakes(changed, error, match):
    """Also after right calls with outputs that are alike, whose plan is made without more checks."""
    for out in (torch.empty(17, 6, device=DEVICE), None):
        call(fastgae.gae, {**tensors(ROLLOUT), "out": (torch.empty(17, 6, device=DEVICE), out)})
    changed = tree_map_only(torch.Tensor, lambda each: each.to(DEVICE), changed)
    with pytest.raises(error, match=match):
        call(fastgae.gae, {**tensors(ROLLOUT), **changed})


def test_more_steps_than_32_bits_count():
    """The numbers of such a rollout take no memory here, and it is only planned."""
    rewards = torch.zeros(1, dtype=torch.int8, device=DEVICE).expand(2**31)
    with pytest.raises(ValueError, match="has 2,147,483,648 steps, and a GPU computes at most 2,147,482,624"):
        torch_devices._checked(fastgae.reverse_scan, {"x": rewards, "decay": 0.5}, ())


def test_outputs_may_lie_between_each_other():
    """Autograd knows that they were filled. Values are negated by torch when it reads them."""
    twice, given = torch.zeros(17, 12, device=DEVICE), tensors(ROLLOUT)
    given["values"] = torch.complex(given["values"], -given["values"]).conj().imag
    got = called(fastgae.gae, {**given, "out": (twice[:, ::2], twice[:, 1::2])})
    assert_bits(got, fastgae.gae(**ROLLOUT))
    assert twice._version


def test_a_number_on_the_cpu_is_a_number():
    given = {name: t.to("meta") for name, t in tensors(ROLLOUT).items() if isinstance(t, torch.Tensor)}
    with pytest.raises(TypeError, match=r"rewards is on meta, where a tensor has no numbers"):
        fastgae.gae(**given)
    got = called(fastgae.gae, {**tensors(ROLLOUT), "gamma": torch.tensor(0.9, dtype=torch.float64)})
    assert_bits(got, fastgae.gae(**{**ROLLOUT, "gamma": 0.9}))
    with pytest.raises(TypeError, match=r"values is on cpu, .*: pass values\.to\(rewards\.device\)"):
        torch_devices.check_place("values", ONES, "rewards", ONES.as_subclass(Elsewhere))


def test_arrays_of_numpy_are_refused():
    with pytest.raises(TypeError, match="backend='triton': this backend computes only torch tensors on a GPU"):
        fastgae.gae(**ROLLOUT, backend="triton")


def test_an_episode_that_goes_on_after_the_last_step_has_a_value_of_0():
    """On the CPU that is an error, which only the flags show."""
    rewards = np.ones((5, 2), np.float32)
    ends = np.zeros((5, 2), bool)
    got = called(fastgae.discounted_returns, tensors({"rewards": rewards, "terminated": ends}))
    expected = fastgae.discounted_returns(rewards, ends, last_values=np.zeros(2, np.float32))
    assert_same_bits(got.cpu().numpy(), expected)


class Kernel:
    """A kernel that notes how it is compiled and with what it is started."""

    function, packed_metadata = "function", "metadata"

    def __init__(self, loaded=True):
        self.compiled, self.started, self.module = [], [], loaded or None

    def warmup(self, *given, **options):
        self.compiled.append((given, options))
        return self

    def _init_handles(self):
        self.run = lambda *given: self.started.append(given)


LAUNCHED = [torch.ones(7, dtype=torch.bool)]


@pytest.fixture
def launched(monkeypatch):
    """Return a function that launches a kernel as on a GPU."""
    monkeypatch.setattr(plan, "INTERPRETED", False)
    active = SimpleNamespace(get_current_stream=lambda device: "stream")
    monkeypatch.setattr(plan, "driver", SimpleNamespace(active=active))

    def launch(kernel, runs=1):
        made = plan.Plan(torch.device("cpu"))
        views = (made.scratch(4, torch.float32), 5), (plan.Memory(0, 1, torch.uint8),)
        made.launch(kernel, 3, (views,), ("constant",), warps=2)
        for _ in range(runs):
            made.run(LAUNCHED)
        return made

    return launch


def test_a_kernel_cannot_be_loaded_while_a_graph_is_captured(launched, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    launched(Kernel())
    with pytest.raises(RuntimeError, match=r"a CUDA graph is being captured, .*: make the same call once before"):
        launched(Kernel(loaded=False))


def test_a_thread_never_starts_a_kernel_that_another_one_is_loading(launched):
    """The plan is shared, and its second run begins while the first one still asks for what a start needs."""

    class Loading(Kernel):
        @property
        def packed_metadata(self):
            if len(self.compiled) == 1:
                other = threading.Thread(target=made.run, args=(LAUNCHED,))
                other.start()
                other.join()
            return "metadata"

    kernel = Loading()
    made = launched(kernel, runs=0)
    made.run(LAUNCHED)
    assert [given[:6] for given in kernel.started] == 2 * [(3, 1, 1, "stream", "function", "metadata")]


def test_calls_that_are_alike_have_one_plan(monkeypatch):
    made = []
    gae = backend.gae
    monkeypatch.setattr(torch_devices, "_plans", plans := {})
    monkeypatch.setattr(torch_devices, "MOST_PLANS", 5)
    monkeypatch.setattr(backend, "gae", lambda call: made.append(call) or gae(call))
    given = tensors(small_rollout())
    for seed in (0, 1):
        check(fastgae.gae, small_rollout(seed=seed))
    assert len(made) == 1
    out = torch.zeros(5, 6, device=DEVICE), torch.zeros(5, 6, device=DEVICE)
    memory = torch.zeros(61, device=DEVICE)
    for changed in (
        *({"gamma": each} for each in (1.0, 0.0, -0.0, np.float64(0.97), np.float64(0.98), np.float32(0.98))),
        {"rewards": given["rewards"].double()},
        {"values": transposed(given["values"])},
        {"rewards": memory[1:31].view(5, 6)},  # at an address that 16 bytes do not divide
        *({"out": out, "rewards": each} for each in (given["rewards"], out[0])),
        {"out": (None, out[1])},
        {"num_threads": 1},
    ):
        for _ in range(2):
            called(fastgae.gae, {**given, **changed})
        made.pop()
        assert len(made) == 1, changed
    assert len(plans) <= 5
    with pytest.raises(TypeError, match="carry_over must be True or False"):  # and no plan of False stands for 0
        called(fastgae.gae, {**given, "carry_over": 0})


def test_arguments_of_other_names_have_another_plan():
    flags = {"terminated": tensor(np.zeros((1, 2), bool))}
    ended = tensor(np.array([[True, False]]))
    assert call(fastgae.valid_steps, {**flags, "truncated": ended}).tolist() == [[True, True]]
    assert call(fastgae.valid_steps, {**flags, "prev_done": ended}).tolist() == [[False, True]]


def test_no_plan_reads_memory_that_was_freed():
    given = tensors(small_rollout())
    given["values"] = given["values"].clone()  # because the storage of a NumPy array cannot be freed
    called(fastgae.gae, given)
    given["values"].untyped_storage().resize_(0)
    with pytest.raises(TypeError, match="values has no memory"):
        called(fastgae.gae, given)


def test_a_call_passes_few_files():
    """From the function to the kernel, once the call is planned."""
    given = tensors(small_rollout())
    ways = ways_of(lambda: called(fastgae.gae, given))
    assert max(map(len, ways)) <= 7
    way = "_interop/calls.py", "_interop/torch_devices.py", "_backends/triton/plan.py"
    assert ("estimators/gae.py", "_engine/run.py", *way) in ways


def test_out_is_copied_only_where_it_overlaps():
    arguments, memory = small_rollout(9), torch.zeros(18, 6, device=DEVICE)
    given = {**tensors(arguments), "rewards": memory[:9]}
    for first, copies in ((9, 0), (8, 1), (3, 1), (0, 1)):
        memory[:9].copy_(tensor(arguments["rewards"]))
        out = memory[first : first + 9], None
        planned = torch_devices._checked(fastgae.gae, {**given, "out": out}, out).advantages.plan
        assert len([step for step in planned.steps if not isinstance(step, plan.Launch)]) == copies
        got = called(fastgae.gae, {**given, "out": out})
        assert_same_bits(got.advantages.cpu().numpy(), fastgae.gae(**arguments).advantages)


CALL = """
import functools, json, sys, torch, fastgae
ones = torch.ones(3, 2)
call = functools.partial(fastgae.gae, ones, ones, ones.bool(), last_values=ones[0])
call()
assert "fastgae._backends.triton" not in sys.modules  # which tensors on the CPU do not need
try:
    call(backend="triton")
except Exception as error:
    print(json.dumps([type(error).__name__, str(error)]))
"""


def unavailable(printed, *words):
    error, message = json.loads(printed)
    assert error == "BackendUnavailableError"
    assert [each for each in words if each not in message] == []


@pytest.mark.skipif(DEVICE == "cuda", reason="there is a GPU")
def test_without_a_gpu_and_without_triton(python):
    words = "triton backend cannot run here", "torch finds no GPU", "TRITON_INTERPRET=1", "'.[gpu]' in a clone"
    unavailable(python(CALL, TRITON_INTERPRET="0"), *words)
    unavailable(python(NO_TRITON + CALL, TRITON_INTERPRET="0"), "no triton")


def test_an_old_triton_is_refused_by_its_version(python):
    old = "import triton; triton.__version__ = '3.3.1'; del triton.knobs; "
    said = "triton 3.3.1 is too old: this backend needs Triton 3.4 or newer"
    unavailable(python(old + CALL, TRITON_INTERPRET="1"), said)


def test_compiled_code():
    """The whole function is one graph, with the bits of the call by itself."""

    def advantages(rewards, values, terminated, last_values):
        got = fastgae.gae(rewards * 1, values, terminated, last_values=last_values, backend="triton")
        return got.advantages * 2

    arguments = small_rollout()
    given = [tensor(arguments[name]) for name in ("rewards", "values", "terminated", "last_values")]
    got = torch.compile(advantages, fullgraph=True, backend="eager")(*given)
    assert torch.equal(got, advantages(*given))


def test_fake_tensors_of_a_gpu():
    """The operation that stands for a call knows shape, dtype and device of the results, without a GPU."""
    from torch._subclasses import FakeTensorMode

    from fastgae._interop.torch_ops import OPERATIONS, operands

    with FakeTensorMode():
        given = converted(ROLLOUT, lambda array: torch.empty(array.shape, device="cuda:0"))
        results = OPERATIONS["gae"](**operands({**fastgae.gae.__kwdefaults__, **given}))
    for result in results:
        assert (result.shape, result.dtype) == ((17, 6), torch.float32)
        assert result.device == torch.device("cuda:0")


def test_values_after_sequences_count_for_the_dtype():
    rewards, last = np.arange(5, dtype=np.float32), np.array([1.1, 2.2])
    given = {"rewards": rewards, "values": rewards, "cu_seqlens": np.array([0, 2, 5]), "gamma": 1.0}
    given["last_values"] = last
    assert_bits(called(fastgae.gae_packed, tensors(given)), fastgae.gae_packed(**given), "float64")
