"""Tensors of torch: the bits of NumPy's arrays, in the same memory, and in what torch compiles."""

import contextlib
import enum
import inspect
import warnings

import numpy as np
import pytest

import fastgae
from fastgae._call import NUMBERS, Role, names_of
from fastgae._interop.libraries import FUNCTIONS
from support.cases import assert_same_bits, make_case
from support.drawn import drawn
from support.functions import arrays_of, converted, split

torch = pytest.importorskip("torch")
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode  # noqa: E402
from torch._subclasses.functional_tensor import dispatch_functionalize  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from fastgae._interop.torch import from_numpy, to_numpy  # noqa: E402

CASE = make_case((17, 6), np.float32, bootstrap="last_values")
FLAGS = names_of(Role.STEP_FLAGS, Role.ENV_FLAGS)
ROLLOUT = CASE.arguments()


def tensor(array):
    return torch.from_numpy(np.array(array, order="C"))


def tensors(arguments):
    return converted(arguments, tensor)


def assert_answers(got, expected):
    assert type(got) is (fastgae.GAEResult if isinstance(expected, tuple) else torch.Tensor)
    for result, array in zip(arrays_of(got), arrays_of(expected), strict=True):
        assert isinstance(result, torch.Tensor)
        assert not result.requires_grad
        if array.dtype == bool:
            assert np.array_equal(result.numpy(), array)
        else:
            assert_same_bits(result.numpy(), array)


def test_every_function_takes_tensors():
    not_in_programs = {"backends", "diagnose", "gae_tree", "group_advantages", "moments"}
    assert set(FUNCTIONS) == {name for name in fastgae.__all__ if name[0].islower()} - not_in_programs


def test_backends(backend, dtype):
    calls = drawn("gae", dtype)[:3]
    for function, arguments in calls[:1] if backend == "numba" else calls:  # which would compile a kernel for each
        assert_answers(function(**tensors(arguments), backend=backend), function(**arguments, backend="numpy"))


def test_diagnose():
    assert fastgae.diagnose(**tensors(ROLLOUT)).as_dict() == fastgae.diagnose(**ROLLOUT).as_dict()


def test_moments():
    mask = ROLLOUT["terminated"]
    given, exists = tensor(ROLLOUT["rewards"]), tensor(mask)
    moments = fastgae.moments(ROLLOUT["rewards"], mask)
    assert fastgae.moments(given.requires_grad_(), exists) == moments
    assert_answers(moments.normalize(given, exists), moments.normalize(ROLLOUT["rewards"], mask))
    out = torch.empty(given.shape)
    assert moments.normalize(given, out=out) is out
    assert_same_bits(out.numpy(), moments.normalize(ROLLOUT["rewards"]))
    assert fastgae.moments(torch.ones(3, dtype=torch.bfloat16)) == fastgae.moments([1.0, 1.0, 1.0])


def test_moments_are_not_compiled():
    compiled = torch.compile(lambda given: fastgae.moments(given), fullgraph=True, backend="eager")
    with pytest.raises(Exception, match=r"needs the numbers themselves: .*torch\.compile"):
        compiled(torch.ones(3))


def test_a_small_call_goes_no_way_round(monkeypatch):
    """It is NumPy's call with other arrays: by the way of traced calls it takes 10 us more."""
    monkeypatch.delattr("fastgae._engine.run.with_tensors")
    assert_answers(fastgae.gae(**tensors(ROLLOUT)), fastgae.gae(**ROLLOUT))
    given = {name: each for name, each in ROLLOUT.items() if name != "gae_lambda"}
    assert_answers(fastgae.td_lambda(**tensors(given)), fastgae.td_lambda(**given))


def test_memory_is_shared():
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        given = torch.ones(4, 6, dtype=dtype)[::2, 1:]
        array = to_numpy("rewards", given)
        assert array.ctypes.data == given.data_ptr()
        assert array.strides == tuple(given.itemsize * stride for stride in given.stride())
    memory = np.zeros(3, np.float32)
    from_numpy(memory, torch.empty(0))[1] = 5
    assert memory[1] == 5


def test_the_first_argument_decides():
    rewards, others = ROLLOUT["rewards"], {name: given for name, given in ROLLOUT.items() if name != "rewards"}
    others["values"] = tensor(others["values"]).requires_grad_()
    got = fastgae.gae(rewards, **others)
    assert all(type(array) is np.ndarray for array in got)
    assert_same_bits(got.advantages, fastgae.gae(**ROLLOUT).advantages)
    assert_answers(fastgae.gae(tensor(rewards), **{**others, "values": ROLLOUT["values"]}), fastgae.gae(**ROLLOUT))


@pytest.mark.parametrize("how", [{"dtype": torch.bfloat16}, {"requires_grad": True}], ids=str)
def test_one_number_is_read_as_arrays_are(how):
    call = {name: given for name, given in ROLLOUT.items() if name != "gae_lambda"} | {"ratios": ROLLOUT["rewards"]}
    expected, clip = fastgae.vtrace(**call, rho_clip=0.5), torch.tensor(0.5, **how)
    assert_same_bits(fastgae.vtrace(**call, rho_clip=clip), expected)
    assert_answers(fastgae.vtrace(**tensors(call), rho_clip=clip), expected)


def test_out_is_filled():
    expected = fastgae.gae(**ROLLOUT)
    out = torch.full((2, 17, 6), torch.nan)
    advantages, returns = out
    got = fastgae.gae(**tensors(ROLLOUT), out=(advantages, returns))
    assert got.advantages is advantages
    assert got.returns is returns
    assert_same_bits(out, expected)
    got = fastgae.gae(**tensors(ROLLOUT), out=(None, returns.fill_(0)))
    assert got == (None, returns)
    assert_same_bits(returns.numpy(), expected.returns)
    assert fastgae.normalize(advantages, out=advantages) is advantages
    assert_same_bits(advantages.numpy(), fastgae.normalize(expected.advantages))


def test_autograd_knows_that_out_was_filled():
    saved = torch.ones(17, 6)
    loss = (torch.ones(17, 6, requires_grad=True) * saved).sum()
    fastgae.gae(**tensors(ROLLOUT), out=(None, saved))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    with torch.inference_mode():
        fastgae.gae(**tensors(ROLLOUT), out=(None, out := torch.ones(17, 6)))
    fastgae.gae(**tensors(ROLLOUT), out=(None, out))


@pytest.mark.parametrize(
    ("out", "error", "what"),
    [
        (torch.zeros(17, 6, requires_grad=True), ValueError, r"out requires grad.*detach"),
        (torch.zeros(17, 6, dtype=torch.bfloat16), TypeError, "out has dtype torch.bfloat16"),
        (torch.zeros(17, 6, dtype=torch.float64), TypeError, "float64; expected the working dtype float32"),
        (torch.zeros(17), ValueError, "shape"),
        (torch.zeros(1, 6).expand(17, 6), ValueError, "broadcast view"),
    ],
)
def test_out_that_cannot_be_filled(out, error, what):
    before = out.clone()
    with pytest.raises(error, match=what):
        fastgae.gae(**tensors(ROLLOUT), out=(None, out))
    assert torch.equal(out, before)


class OnAnotherDevice(torch.Tensor):
    """As far as anybody can see without one."""

    is_cpu = False
    device = torch.device("cuda:0")


def shrunk(view, nbytes):
    """Return a function to a view of the numbers of a tensor, in a storage of which only some bytes are left."""

    def place(tensor):
        cut = view(torch.empty(2, *tensor.shape).copy_(tensor))
        cut.untyped_storage().resize_(nbytes)
        return cut

    return place


@pytest.mark.parametrize(
    ("place", "what"),
    [
        (shrunk(lambda t: t[0], 0), "values has no memory, because its storage was freed"),
        (shrunk(lambda t: t[1], 4 * (17 * 6 + 1)), "values has no memory"),
        (shrunk(lambda t: t.permute(1, 2, 0)[..., 1], 4 * (2 * 17 * 6 - 1)), "values has no memory"),
        (lambda t: t.as_subclass(OnAnotherDevice), r"values is on cuda:0, .*pass values\.cpu\(\)"),
        (
            lambda t: torch.nested.nested_tensor(list(t), layout=torch.jagged),
            r"is a nested tensor: .* values\.offsets\(\)",
        ),
        (lambda t: t.to(torch.complex64), "values has dtype complex64"),
    ],
)
def test_what_is_refused(place, what):
    given = tensors(ROLLOUT)
    given["values"] = place(given["values"])
    with pytest.raises(TypeError, match=what):
        fastgae.gae(**given)
    with pytest.raises(TypeError, match=what):
        fastgae.gae(**{**given, "rewards": ROLLOUT["rewards"]})


def test_a_freed_out_is_refused():
    out = torch.empty(17, 6), torch.empty(17, 6)
    out[1].untyped_storage().resize_(0)  # as FSDP frees it
    with pytest.raises(TypeError, match="out has no memory"):
        fastgae.gae(**tensors(ROLLOUT), out=out)
    assert torch.empty(0, 6).untyped_storage().nbytes() == 0
    assert fastgae.gae(*torch.empty(3, 0, 6), last_values=torch.zeros(6)).returns.shape == (0, 6)


def test_distributed_tensors_are_refused():
    from torch.distributed.tensor import distribute_tensor

    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        mesh = torch.distributed.init_device_mesh("cpu", (1,))
        values = distribute_tensor(tensor(ROLLOUT["values"]), mesh)
        with pytest.raises(TypeError, match=r"pass values\.full_tensor\(\), or values\.to_local\(\)"):
            fastgae.gae(**{**tensors(ROLLOUT), "values": values})
    finally:
        torch.distributed.destroy_process_group()


def test_views_of_negated_numbers():
    """torch negates them when it reads them (https://pytorch.org/docs/stable/generated/torch.Tensor.is_neg.html)."""

    def negated(array):
        view = torch.complex(tensor(array), -tensor(array)).conj().imag
        assert view.is_neg()
        return view

    values = negated(ROLLOUT["values"])
    assert_answers(fastgae.gae(**{**tensors(ROLLOUT), "values": values}), fastgae.gae(**ROLLOUT))
    with pytest.raises(TypeError, match="out is a view of negated numbers"):
        fastgae.gae(**tensors(ROLLOUT), out=(values, None))


def test_lists_of_tensors_are_refused():
    """Results would be NumPy arrays, because a list belongs to no library."""
    rows = list(tensor(ROLLOUT["rewards"]))
    for name, given in (("rewards", rows), ("values", tuple(rows)), ("rewards", [list(row) for row in rows])):
        match = rf"{name} is a \w+ of torch arrays: pass one array, torch.stack\("
        with pytest.raises(TypeError, match=match) as error:
            fastgae.gae(**{**ROLLOUT, name: given})
        stacked = eval(str(error.value).partition("pass one array, ")[2], {"torch": torch, name: given})
        assert torch.equal(stacked, tensor(ROLLOUT["rewards"]))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_compiled(name, compiled):
    """Four calls in one program, for which torch looks at the code of fastgae once."""
    function, calls = FUNCTIONS[name], [arguments for _, arguments in drawn(name)[:4]]
    arrays, others = zip(*(split(tensors(given), torch.Tensor) for given in calls), strict=True)
    program = compiled(lambda arrays: [function(**a, **o) for a, o in zip(arrays, others, strict=True)])
    for got, arguments in zip(program(arrays), calls, strict=True):
        assert_answers(got, function(**arguments))


def test_compiled_in_a_loss(compiled):
    """By the compiler that users have, with code before and after, and gradients that end at the call."""

    def loss(rewards, values, terminated, last_values):
        targets = fastgae.gae(rewards / 2, values, terminated, last_values=last_values).returns
        return ((values - targets) ** 2).mean()

    given = [tensor(ROLLOUT[name]) for name in ("rewards", "values", "terminated", "last_values")]
    gradients = []
    for function in (loss, compiled(loss, "inductor")):
        given[1] = given[1].detach().requires_grad_()
        function(*given).backward()
        gradients.append(given[1].grad)
    assert gradients[0].abs().sum() > 0
    assert torch.allclose(*gradients)


def test_compiled_for_any_size_and_gamma(compiled):
    function = compiled(lambda gamma, **arrays: fastgae.gae(**arrays, gamma=gamma), dynamic=True)
    for size in ((17, 6), (18, 6), (9, 4)):
        for gamma in (0.99, 0.9, 1, 0):  # torch.compile takes the last one for any integer
            arguments = {**make_case(size, np.float32, bootstrap="last_values").arguments(), "gamma": gamma}
            del arguments["gae_lambda"]
            assert_answers(function(**tensors(arguments)), fastgae.gae(**arguments))


def test_coefficients_as_tensors_are_compiled_once(compiled):
    from torch._dynamo.testing import CompileCounter

    function = compiled(lambda gamma, given: fastgae.gae(**{**given, "gamma": gamma}), counter := CompileCounter())
    for gamma in (0.99, 0.9, 0.8):
        of_number = fastgae.gae(**{**ROLLOUT, "gamma": gamma})
        assert_answers(function(torch.tensor(gamma, dtype=torch.float64), tensors(ROLLOUT)), of_number)
    assert counter.frame_count == 1


def test_numbers_of_numpy_promote_in_programs_too(compiled):
    rewards = tensor(ROLLOUT["rewards"])
    for last in (np.float64(0.3), np.float32(0.3), np.array(0.3)):
        call = lambda rewards, last=last: fastgae.gae(rewards, rewards, None, last_values=last, gamma=last)  # noqa: E731
        expected = call(ROLLOUT["rewards"])
        assert_answers(compiled(call)(rewards), expected)
        with torch.device("meta"):  # the default device, which is not that of the tensors
            assert_answers(fastgae.GAEResult(*(each[0] for each in torch.vmap(call)(rewards[None]))), expected)
    swapped = {"last_values": np.array(0.3, ">f4"), "autoreset": enum.Enum("AutoresetMode", "NEXT_STEP").NEXT_STEP}
    swapped["time_axis"] = enum.IntEnum("Axis", {"TIME": 0}).TIME
    call = lambda rewards: fastgae.gae(rewards, rewards, rewards > 1, **swapped).returns  # noqa: E731
    assert_same_bits(torch.vmap(call)(rewards[None])[0].numpy(), call(ROLLOUT["rewards"]))


def test_compiled_out(compiled):
    advantages, returns = torch.zeros(2, 17, 6)
    function = compiled(lambda out, **arrays: fastgae.gae(**arrays, out=out))
    got = function((advantages, returns), **tensors(ROLLOUT))
    assert got.returns is returns
    assert_answers(fastgae.GAEResult(advantages, returns), fastgae.gae(**ROLLOUT))
    got = function((None, returns.zero_()), **tensors(ROLLOUT))
    assert got.advantages is None
    assert_same_bits(returns.numpy(), fastgae.gae(**ROLLOUT).returns)
    assert function([None, returns], **tensors(ROLLOUT)).returns is returns
    for out, error in (
        ((returns, returns), r"out\[0\] and out\[1\] are one tensor"),
        ((returns,), "out must be a pair"),
        ((None, None), "there is nothing to compute"),
        ((None, returns.double()), "out has shape .*float64; expected .*float32"),
        ((None, torch.zeros(2, 17, 6)), "out has shape .*expected"),
    ):
        with pytest.raises(Exception, match=error):  # torch wraps the ValueError
            function(out, **tensors(ROLLOUT))
    first = torch.zeros(1, 17, 6)
    call = torch.vmap(lambda *out: fastgae.gae(**{**tensors(ROLLOUT), "rewards": out[0] + 1}, out=out))
    with pytest.raises(ValueError, match=r"out has shape .*float64; expected .*float32"):
        call(first, first.double())
    assert not first.any(), "wrote to an array"
    with pytest.raises(TypeError, match="out must be a tensor, got str"):
        torch.vmap(lambda rewards: fastgae.normalize(rewards, out="ab"))(first)


def test_compiled_gradients_end_at_the_call(compiled):
    values, others = torch.zeros(17, 6), {**tensors(ROLLOUT), "values": None}

    def gradient(values):
        targets = fastgae.gae(**{**others, "values": values}).returns
        return torch.func.grad(lambda values: ((values - targets) ** 2).sum())(values)

    inside = torch.func.grad(lambda values: ((values - fastgae.gae(**{**others, "values": values}).returns) ** 2).sum())
    assert_same_bits(compiled(inside)(values).numpy(), gradient(values).numpy())


def test_what_is_no_number_in_transforms():
    """Nor is text that spells one. Errors name the argument."""
    given = tensors({**ROLLOUT})
    for changed, error in (
        ({"gamma": "0.5"}, "gamma must be a tensor or a number in code that torch compiles or transforms"),
        ({"gamma": torch.tensor(0.5, dtype=torch.bfloat16)}, r"gamma has dtype torch\.bfloat16, in which 0\.99"),
        ({"last_values": "1e3"}, "last_values must be a tensor or a number"),
        ({"terminated": [0] * 17}, "terminated must be a tensor or a number"),
    ):
        call = torch.func.vmap(lambda rewards, c=changed: fastgae.gae(**{**given, "rewards": rewards, **c}).returns)
        with pytest.raises(TypeError, match=error):
            call(torch.zeros(2, *given["rewards"].shape))
    with pytest.raises(TypeError, match=r"values has no numbers in torch\.func"):
        torch.func.vmap(lambda values: fastgae.gae(np.ones(3), values, None, last_values=0.0))(torch.ones(2, 3))
    with pytest.raises(TypeError, match=r"gamma has no numbers in torch\.func"):
        torch.func.vmap(lambda gamma: fastgae.gae(**{**ROLLOUT, "gamma": gamma}))(torch.ones(2))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_vmap(name):
    for function, arguments in drawn(name):
        (first, given), *others = arguments.items()
        both, fixed = np.stack([given, given[::-1]], 1), tensors(dict(others))
        got = torch.func.vmap(lambda each, f=function, fixed=fixed: f(each, **fixed), in_dims=1)(tensor(both))
        calls = [arrays_of(function(**{**arguments, first: each})) for each in (given, given[::-1])]
        assert_same_bits(arrays_of(got), tuple(map(np.stack, zip(*calls, strict=True))))


def test_vmap_of_an_empty_batch():
    rewards = torch.zeros(4, 0, 2, 3, dtype=torch.int8)

    def advantages(rewards, last_values):
        return fastgae.gae(rewards, torch.zeros(4, 3), None, last_values=last_values).advantages

    batches = torch.vmap(torch.vmap(advantages, (1, 0)), (1, 0))
    got = batches(rewards, torch.zeros(0, 2, 3))
    assert (got.shape, got.dtype) == ((0, 2, 4, 3), torch.float32)
    flags = torch.vmap(fastgae.valid_steps)(torch.zeros(0, 4, 3, dtype=torch.bool))
    assert (flags.shape, flags.dtype) == ((0, 4, 3), torch.bool)


def test_transforms_of_transforms():
    """Gradients end at the call, in a batch of batches too."""
    given = tensors(ROLLOUT)
    rewards = given.pop("rewards")
    batch = torch.stack([rewards, -rewards, 2 * rewards, rewards / 2]).reshape(2, 2, *rewards.shape)

    def loss(rewards):
        return (fastgae.gae(rewards, **given).advantages * rewards).sum()

    got = torch.func.vmap(torch.func.vmap(torch.func.grad(loss)))(batch)
    for gradient, each in zip(got.flatten(0, 1), batch.flatten(0, 1), strict=True):
        assert_same_bits(gradient.numpy(), fastgae.gae(each, **given).advantages.numpy())


def test_compiled_errors(compiled):
    with contextlib.suppress(ImportError):
        import ml_dtypes  # noqa: F401  # as JAX does: NumPy then knows the name of each dtype
    with pytest.raises(ValueError, match="terminated must hold 0 or 1"):
        compiled(fastgae.gae)(**tensors({**ROLLOUT, "terminated": 2 * np.ones((17, 6), np.int64)}))
    given = tensors(ROLLOUT)
    with pytest.raises(Exception, match=r"values has dtype torch\.float8_e4m3fn; expected"):
        compiled(fastgae.gae)(**{**given, "values": given["values"].to(torch.float8_e4m3fn)})


def test_recorded_programs_compute_with_other_numbers():
    """What records a program would take the results of NumPy for constants."""
    cases = (make_case((17, 6), np.float32, bootstrap="last_values", seed=seed) for seed in (1, 2))
    given, others = (tensors(case.arguments()) for case in cases)
    coefficients = {name: given.pop(name) for name in ("gamma", "gae_lambda")}

    def targets(*arrays):
        return tuple(fastgae.gae(**dict(zip(given, arrays, strict=True)), **coefficients))

    expected = fastgae.gae(**others)
    with warnings.catch_warnings(action="ignore"):  # torch.jit.trace is deprecated
        traced = torch.jit.trace(targets, (*given.values(),))
    made = [make_fx(targets, tracing_mode=how)(*given.values()) for how in ("real", "symbolic")]
    for program in (traced, dispatch_functionalize(targets), *made):
        assert_answers(fastgae.GAEResult(*program(*(others[name] for name in given))), expected)
    with FakeTensorMode() as mode:
        fake = targets(*map(mode.from_tensor, given.values()))
    assert (type(fake[0]), fake[0].shape) == (FakeTensor, (17, 6))


RUN = """
import fastgae, sys, torch
torch.vmap(fastgae.normalize)(torch.ones(1, 1))
advantages, _ = torch.export.load(sys.argv[1]).module()(rewards := torch.ones(4, 3))
assert torch.equal(advantages, fastgae.gae(rewards, rewards, None, last_values=0.0).advantages)
"""


def test_an_exported_program_runs_in_a_new_process(python, tmp_path):
    class Targets(torch.nn.Module):
        def forward(self, rewards):
            return tuple(fastgae.gae(rewards, rewards, None, last_values=0.0))

    torch.export.save(torch.export.export(Targets(), (torch.ones(4, 3),)), tmp_path / "program.pt2")
    python(RUN, str(tmp_path / "program.pt2"))


def is_finite(function, arguments):
    return all(np.isfinite(each).all() for each in arrays_of(function(**arguments)))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_opcheck(name):
    """Of finite results, because to opcheck a NaN differs from every number."""
    from fastgae._interop.torch_ops import OPERATIONS, operands

    defaults = {each.name: each.default for each in inspect.signature(FUNCTIONS[name]).parameters.values()}
    for number, (_, arguments) in enumerate(drawn(name, fits=is_finite)[:3]):
        place = (tensor, lambda array: tensor(array.T).permute(tuple(range(array.ndim))[::-1]))[number % 2]
        with warnings.catch_warnings(action="ignore"):
            torch.library.opcheck(OPERATIONS[name], (), operands({**defaults, **converted(arguments, place)}))


def test_settings_have_the_types_of_their_annotations():
    from fastgae._interop.torch_ops import OPERATIONS

    schemas = {name: str(operation._opoverload._schema) for name, operation in OPERATIONS.items()}
    for typed in ("float? rho_clip", "str? autoreset", "str? normalize", "int time_axis", "int? num_threads"):
        assert f", {typed}," in schemas["vtrace"]
    assert ", int n," in schemas["n_step_returns"]
    assert ", bool tail_normalized," in schemas["gae"]


@pytest.mark.parametrize("narrow", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_16_bits_in_every_function(name, narrow):
    """They are computed in float32, and may be flags; coefficients keep their dtype."""
    for function, arguments in drawn(name):
        arrays = split(tensors(arguments), torch.Tensor)[0].items()
        numbers = {place: given.to(narrow) for place, given in arrays if place in (*NUMBERS, *FLAGS)}
        wide = {place: given.float().numpy() for place, given in numbers.items()}
        assert_answers(function(**{**tensors(arguments), **numbers}), function(**{**arguments, **wide}))
