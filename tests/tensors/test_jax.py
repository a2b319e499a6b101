"""Arrays of JAX: the bits of NumPy's arrays, and in what JAX traces. Its float64 is off, as it is by default."""

import contextlib
import functools

import numpy as np
import pytest

import fastgae
from fastgae._call import NUMBERS
from fastgae._interop.libraries import FUNCTIONS
from fastgae._support import memory
from fastgae.compat import rlax
from support.cases import assert_same_bits, make_case
from support.drawn import drawn
from support.functions import arrays_of, converted, split

jax = pytest.importorskip("jax")
jnp = jax.numpy
from fastgae._interop import jax_xla  # noqa: E402
from fastgae._interop.jax import from_numpy, to_numpy  # noqa: E402

NAMES = tuple(FUNCTIONS)
CASE = make_case((17, 6), np.float32, bootstrap="last_values")
ROLLOUT = CASE.arguments()
OF_ENVS = jax.sharding.PartitionSpec(None, "envs")
VTRACE = {name: given for name, given in ROLLOUT.items() if name != "gae_lambda"} | {"ratios": np.exp(CASE.values)}


def jax_arrays(arguments):
    return converted(arguments, jax.device_put)  # jnp.asarray compiles a program for each shape


def split_call(arguments):
    """The arrays, of JAX, and the other arguments."""
    return split(jax_arrays(arguments), jax.Array)


def jitted(function, arguments):
    """A program of a call, and the arrays that it takes."""
    arrays, others = split_call(arguments)
    return jax.jit(lambda arrays: function(**arrays, **others)), arrays


def stacked(results):
    if isinstance(results[0], np.ndarray):
        return np.stack(results)
    return fastgae.GAEResult(*map(np.stack, zip(*results, strict=True)))


def mesh():
    return jax.sharding.Mesh(np.array(jax.devices()), ("envs",))


def sharded(array):
    """Return a matrix of which each of two devices has half of the envs."""
    return jax.device_put(array, jax.sharding.NamedSharding(mesh(), OF_ENVS))


def of_shards(call):
    """Return a function that makes a call on each device, with its shard."""
    if not hasattr(jax, "shard_map"):
        pytest.skip("this JAX has no jax.shard_map")
    return jax.shard_map(call, mesh=mesh(), in_specs=OF_ENVS, out_specs=OF_ENVS)


def lowered(program, *arrays, platform):
    """Return the text of a program for a platform. JAX 0.12 asks for the kind of a GPU that is not here."""
    kind = contextlib.nullcontext()
    if platform == "cuda" and jax.__version_info__ >= (0, 12):
        gpu = jax.sharding.AbstractDevice("NVIDIA H100 80GB HBM3", num_cores=132, platform="gpu")
        kind = jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), (), abstract_device=gpu))
    with kind:
        return program.trace(*arrays).lower(lowering_platforms=(platform,)).as_text()


def assert_answers(got, expected):
    assert type(got) is type(expected) or isinstance(got, jax.Array)
    for result, array in zip(arrays_of(got), arrays_of(expected), strict=True):
        assert isinstance(result, jax.Array)
        assert_same_bits(result, array if array.dtype == bool or jax.config.jax_enable_x64 else np.float32(array))


@pytest.mark.parametrize("name", NAMES)
def test_the_bits_of_numpy_without_float64(name):
    """Of 16 bits, too, also in arrays of NumPy, to which JAX brings ml_dtypes. Coefficients keep their dtype."""
    for function, arguments in drawn(name):
        assert_answers(function(**jax_arrays(arguments)), function(**arguments))
        numbers = [each for each in arguments.keys() & NUMBERS if isinstance(arguments[each], np.ndarray)]
        narrow = arguments | {each: arguments[each].astype(jnp.bfloat16) for each in numbers}
        expected = function(**arguments | {each: narrow[each].astype(np.float32) for each in numbers})
        assert_answers(function(**jax_arrays(narrow)), expected)
        swapped = narrow | {each: narrow[each].astype(narrow[each].dtype.newbyteorder("S")) for each in numbers}
        for given in (narrow, swapped):
            assert_same_bits(function(**given), expected)


def test_numbers_beyond_float32_become_infinity_in_silence():
    """Warnings are errors in these tests."""
    rewards, beyond = jnp.asarray(ROLLOUT["rewards"]), ROLLOUT["values"].astype(np.float64) * 1e300
    call = functools.partial(fastgae.gae, values=beyond, terminated=None, last_values=0.0)
    results = call(rewards), jax.jit(call)(rewards)
    of_rlax = rlax.lambda_returns(rewards[:, 0], np.ones(17), beyond[:, 0], 0.5)
    with np.errstate(over="ignore"):
        for result in results:
            assert_answers(result, call(ROLLOUT["rewards"]))
        assert_answers(of_rlax, rlax.lambda_returns(ROLLOUT["rewards"][:, 0], np.ones(17), beyond[:, 0], 0.5))


def test_backends(backend):
    assert_answers(fastgae.gae(**jax_arrays(ROLLOUT), backend=backend), fastgae.gae(**ROLLOUT, backend="numpy"))


def test_diagnose():
    assert fastgae.diagnose(**jax_arrays(ROLLOUT)).as_dict() == fastgae.diagnose(**ROLLOUT).as_dict()
    with pytest.raises(TypeError, match=r"diagnose needs the numbers themselves: .*jax\.jit"):
        jax.jit(fastgae.diagnose)(**jax_arrays(ROLLOUT))


def test_moments():
    given = jnp.asarray(ROLLOUT["rewards"])
    moments = fastgae.moments(given)
    assert moments == fastgae.moments(ROLLOUT["rewards"])
    assert_answers(moments.normalize(given), moments.normalize(ROLLOUT["rewards"]))
    assert_answers(jax.jit(moments.normalize)(given), moments.normalize(ROLLOUT["rewards"]))
    with pytest.raises(TypeError, match=r"needs the numbers themselves: .*jax\.jit"):
        jax.jit(fastgae.moments)(given)


def test_a_small_call_goes_no_way_round(monkeypatch):
    """It is NumPy's call with other arrays: by the way of traced calls it takes 10 us more."""
    monkeypatch.delattr("fastgae._engine.run.with_tensors")
    assert_answers(fastgae.gae(**jax_arrays(ROLLOUT)), fastgae.gae(**ROLLOUT))
    given = {name: each for name, each in ROLLOUT.items() if name != "gae_lambda"}
    assert_answers(fastgae.td_lambda(**jax_arrays(given)), fastgae.td_lambda(**given))


def test_memory_is_shared(monkeypatch):
    given = jnp.ones((4, 6))
    assert to_numpy("rewards", given).ctypes.data == given.unsafe_buffer_pointer()
    filled = []
    kept = "fastgae._interop.jax_calls.from_numpy"
    monkeypatch.setattr("fastgae._interop.jax.SMALL", 0)  # which are copied
    monkeypatch.setattr(kept, lambda given, like: filled.extend(arrays_of(given)) or from_numpy(given, like))
    large = make_case((300, 64), np.float32, bootstrap="last_values")  # a small array is copied, which takes less time
    calls = {fastgae.gae: large.arguments(), fastgae.reverse_scan: {"x": large.rewards, "decay": 0.5}}
    for function, arguments in calls.items():
        filled.clear()
        results = arrays_of(function(**jax_arrays(arguments)))
        for array, result in zip(filled, results, strict=True):
            assert array.ctypes.data == result.block_until_ready().unsafe_buffer_pointer()


def test_memory_is_recycled():
    pytest.importorskip("fastgae._core")
    rewards = jax.numpy.ones((512, 512))
    call = functools.partial(fastgae.gae, rewards, rewards, None, last_values=0.0)
    for _ in range(2):  # the first call in a process begins to keep memory
        jax.block_until_ready(call())
    before = memory.recycled()["hits"]
    jax.block_until_ready(call())
    assert memory.recycled()["hits"] == before + 2


def test_the_first_argument_decides():
    given = {**ROLLOUT, "values": jnp.asarray(ROLLOUT["values"])}
    got = fastgae.gae(**given)
    assert all(type(array) is np.ndarray for array in got)
    assert_same_bits(got.advantages, fastgae.gae(**ROLLOUT).advantages)
    assert_answers(fastgae.gae(**{**ROLLOUT, "rewards": jnp.asarray(CASE.rewards)}), fastgae.gae(**ROLLOUT))
    with pytest.raises(TypeError, match="values is traced by JAX"):
        jax.jit(lambda values: fastgae.gae(**{**ROLLOUT, "values": values}))(given["values"])
    with pytest.raises(TypeError, match=r"gamma is traced by JAX .*pass a JAX array as the first argument"):
        jax.jit(lambda gamma: fastgae.gae(**{**ROLLOUT, "gamma": gamma}))(0.5)


def test_out_is_refused():
    out = jnp.zeros((2, 17, 6))
    with pytest.raises(TypeError, match="JAX arrays never change"):
        fastgae.gae(**jax_arrays(ROLLOUT), out=tuple(out))


def test_another_device(monkeypatch):
    given = jax_arrays(ROLLOUT)
    monkeypatch.setattr("fastgae._interop.jax.beyond_the_cpu", lambda sharding: ["CudaDevice(id=0)"])
    assert_answers(fastgae.gae(**given), fastgae.gae(**ROLLOUT))  # computed where the arrays are
    with pytest.raises(TypeError, match=r"rewards is on CudaDevice\(id=0\), .*pass jax\.device_get\(rewards\)"):
        fastgae.diagnose(**given)


def batches_of(function, arguments, number):
    """Return three calls that differ in some of their arrays, and each of these stacked along one of its axes."""
    rng, (first, *others) = np.random.default_rng(number), [n for n, a in arguments.items() if np.ndim(a)]
    fixed = {"cu_seqlens", *(() if "last_values" in arguments else ("terminated", "mask"))}  # where envs must end
    names = [name for name in others if name not in fixed and rng.random() < 0.5]
    names += [first] * (not names or rng.random() < 0.8)
    calls = [{**arguments, **{name: np.roll(arguments[name], i) for name in names}} for i in range(3)]
    axes = {name: int(rng.integers(-1, np.ndim(arguments[name]))) for name in names}
    return calls, axes, {name: np.stack([call[name] for call in calls], axes[name]) for name in names}


@pytest.mark.parametrize("name", NAMES)
def test_jit_and_vmap(name):
    """Of some of the arguments, each along an axis of its own, in vmap and in vmap of vmap."""
    for number, (function, arguments) in enumerate(drawn(name)[:4]):
        calls, axes, stacks = batches_of(function, arguments, number)
        arrays, others = split_call({name: given for name, given in arguments.items() if name not in axes})
        call = lambda batch, f=function, a=arrays, o=others: f(**batch, **a, **o)  # noqa: E731
        mapped = jax.vmap(call, (axes,))
        expected = stacked([function(**each) for each in calls])
        assert_answers((jax.jit(mapped) if number % 2 else mapped)(jax_arrays(stacks)), expected)
        if number % 4 == 0:
            twice = jax.vmap(mapped)({name: jnp.asarray(array)[np.newaxis] for name, array in stacks.items()})
            assert_answers(twice, jax.tree.map(lambda array: array[np.newaxis], expected))
        if number % 4 == 3:
            program, arrays = jitted(function, arguments)
            assert_answers(program(arrays), function(**arguments))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "gae_packed"])
def test_vmap_is_one_call(name, monkeypatch):
    """The batch becomes environments of one call, except in a packed call and where normalisation mixes them."""
    monkeypatch.setattr(jax_xla.Batch, "one_by_one", None)
    joined = 0
    for function, arguments in drawn(name):
        (_, given), *rest = arguments.items()
        settings, shapes = dict(rest), {each: np.shape(a) for each, a in rest if isinstance(a, np.ndarray)}
        if not jax_xla.may_join({"by": "global"} | settings if name == "normalize" else settings, shapes, given.shape):
            continue
        got = jax.vmap(lambda given, f=function, s=settings: f(given, **s))(jnp.asarray(np.stack([given, given[::-1]])))
        assert_answers(got, stacked([function(each, **settings) for each in (given, given[::-1])]))
        joined += 1
    assert joined


@pytest.mark.parametrize(
    ("function", "arguments", "name"),
    [(fastgae.vtrace, VTRACE, "rho_clip"), (fastgae.normalize, {"advantages": CASE.rewards, "by": "per_env"}, "eps")],
)
def test_vmap_over_a_number_of_the_whole_call(function, arguments, name):
    numbers = np.array([0.25, 0.5], np.float32)
    arrays, others = split_call({**arguments, name: None})
    got = jax.vmap(lambda number: function(**arrays, **{**others, name: number}))(jnp.asarray(numbers))
    assert_answers(got, stacked([function(**{**arguments, name: number}) for number in numbers]))


@pytest.mark.parametrize("of_each_call", [False, True])
@pytest.mark.parametrize("time_axis", [0, -1])
def test_vmap_with_one_number_for_all_envs_is_one_call(monkeypatch, of_each_call, time_axis):
    monkeypatch.setattr(jax_xla.Batch, "one_by_one", None)
    numbers = np.array([0.25, -2.0], np.float32) if of_each_call else np.float32([0.37, 0.37])
    batch, values = np.stack([CASE.rewards, CASE.rewards[::-1]]), CASE.values

    def call(rewards, number):
        last = number if of_each_call else 0.37
        return fastgae.gae(rewards, values, None, last_values=last, mask=CASE.rewards > -1, time_axis=time_axis)

    mapped = jax.vmap(call)
    got = (jax.jit(mapped) if time_axis else mapped)(jnp.asarray(batch), jnp.asarray(numbers))
    assert_answers(got, stacked([call(*each) for each in zip(batch, numbers, strict=True)]))


def test_vmap_over_every_argument(monkeypatch):
    """The batch becomes environments of one call, whatever its axis, with coefficients that broadcast, and twice."""
    monkeypatch.setattr(jax_xla.Batch, "one_by_one", None)
    rng = np.random.default_rng(0)
    cases = [make_case((7, 3), np.float32, bootstrap="final_dense", seed=seed).arguments() for seed in range(4)]
    for seed, arguments in enumerate(cases):
        arguments.update(gamma=rng.random((1, 3)).astype(np.float32), mask=rng.random((7, 3)) < 0.8)
        arguments["gae_lambda"] = np.float32(0.9) - np.float32(seed) / 8
    expected = stacked([fastgae.gae(**arguments) for arguments in cases])
    batch = {name: jnp.asarray(np.stack([arguments[name] for arguments in cases])) for name in cases[0]}

    def function(arrays):
        return fastgae.gae(**arrays)

    assert_answers(jax.vmap(function)(batch), expected)
    two = {name: array.reshape(2, 2, *array.shape[1:]) for name, array in batch.items()}
    got = jax.jit(jax.vmap(jax.vmap(function)))(two)
    assert_answers(got, fastgae.GAEResult(*(array.reshape(2, 2, 7, 3) for array in expected)))
    moved = {name: jnp.moveaxis(array, 0, -1) for name, array in batch.items()}
    got = jax.vmap(function, in_axes=-1, out_axes=-1)(moved)
    assert_answers(got, fastgae.GAEResult(*(np.moveaxis(array, 0, -1) for array in expected)))


def test_vmap_beside_a_tensor_of_torch():
    torch = pytest.importorskip("torch")
    arguments = {**ROLLOUT, "values": torch.from_numpy(CASE.values)}
    rewards = arguments.pop("rewards")
    batch = np.stack([rewards, rewards[::-1]])
    got = jax.vmap(lambda rewards: fastgae.gae(rewards, **arguments))(jnp.asarray(batch))
    assert_answers(got, stacked([fastgae.gae(rewards, **arguments) for rewards in batch]))


def test_vmap_of_a_coefficient_for_each_call():
    """One number for each call, or one array; a vector in a call is refused as it is outside of vmap."""
    rewards, gammas = jnp.ones((3, 4, 2)), jnp.array([0.9, 0.5, 1.0])
    mapped = jax.vmap(lambda rewards, gamma: fastgae.discounted_returns(rewards, None, last_values=0.0, gamma=gamma))
    per_env = gammas[:, jnp.newaxis, jnp.newaxis] * jnp.array([1.0, 0.5])
    for given in (gammas, per_env):
        got = mapped(rewards, given)
        for one, gamma, result in zip(rewards, given, got, strict=True):
            expected = fastgae.discounted_returns(np.asarray(one), None, last_values=0.0, gamma=np.asarray(gamma))
            assert_same_bits(np.asarray(result), expected)
    with pytest.raises(Exception, match=r"gamma has shape \(2,\)"):
        mapped(rewards, per_env[:, 0])
    assert jax.vmap(fastgae.reverse_scan)(jnp.ones((2, 0)), jnp.ones((2, 0))).shape == (2, 0)


def test_vmap_with_a_flag_of_the_only_env():
    """Such calls do not become environments of one call, which would need a flag for each."""

    def call(rewards):
        how = {"last_values": 0.0, "autoreset": "next_step", "prev_done": True}
        return fastgae.gae(rewards, rewards, rewards > 1, **how)

    batch = CASE.rewards.T
    assert_answers(jax.vmap(call)(jnp.asarray(batch)), stacked([call(rewards) for rewards in batch]))


def test_vmap_of_a_wrong_time_axis():
    with pytest.raises(Exception, match="time_axis=-3 is out of range"):
        jax.vmap(lambda rewards: fastgae.reverse_scan(rewards, 0.5, time_axis=-3))(jnp.ones((2, 3, 4)))


@pytest.mark.parametrize("jit", [False, True])
def test_gradients_end(jit):
    arrays, others = split_call(ROLLOUT)

    def loss(values):
        return (fastgae.gae(**{**arrays, "values": values}, **others).advantages * values).sum()

    gradient = jax.grad(loss)
    assert_same_bits((jax.jit(gradient) if jit else gradient)(arrays["values"]), fastgae.gae(**ROLLOUT).advantages)


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (None, "is missing the argument .values.: pass V of the observation of every step"),
        (np.ones((17, 6), complex), "values has dtype complex128"),
        (np.ma.ones((17, 6)), "values is masked"),
        (jax.random.key(0), "values has dtype key.*, a key of jax.random"),
    ],
)
def test_no_array_of_numbers_is_an_error_before_the_callback(given, what):
    with pytest.raises(TypeError, match=what):
        jax.jit(lambda rewards: fastgae.gae(**{**ROLLOUT, "rewards": rewards, "values": given}))(CASE.rewards)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_flags_of_8_bits_are_refused(dtype):
    """Also those that NumPy takes for floats, which XLA does not hand over."""
    call = functools.partial(fastgae.gae, CASE.rewards, CASE.values, last_values=0.0)
    of_jax = functools.partial(fastgae.gae, jnp.asarray(CASE.rewards), CASE.values, last_values=0.0)
    for program in (call, of_jax, jax.jit(of_jax)):
        with pytest.raises(TypeError, match=f"terminated must hold bool, .*{dtype}"):
            program(terminated=jnp.zeros((17, 6), dtype))


def test_a_guard_of_transfers():
    """Nobody could make the transfers of results explicit, so fastgae does."""
    given = jax_arrays(ROLLOUT)
    with jax.transfer_guard("disallow"):
        result = fastgae.gae(**given)
    assert_answers(result, fastgae.gae(**ROLLOUT))


def test_values_after_sequences_count_for_the_dtype():
    rewards, last = np.arange(5, dtype=np.float32), np.array([1.1, 2.2])
    given = {"rewards": rewards, "values": rewards, "cu_seqlens": np.array([0, 2, 5]), "last_values": last}
    call = functools.partial(fastgae.gae_packed, gamma=1.0)
    with jax.enable_x64(True):
        results = jax.jit(call)(**jax_arrays(given))
    assert_same_bits(results, call(**given))


def test_an_old_jax_is_refused_by_its_version(python):
    printed = python(
        "import jax; jax.__version__, jax.__version_info__ = '0.4.38', (0, 4, 38)\n"
        "import fastgae\n"
        "for call in (fastgae.discounted_returns, jax.jit(fastgae.discounted_returns)):\n"
        "    try:\n"
        "        call(jax.numpy.ones((3, 2)), jax.numpy.ones((3, 2), bool))\n"
        "    except ImportError as error:\n"
        "        print(error)\n"
    )
    assert printed.splitlines() == 2 * ["jax 0.4.38 is too old: fastgae needs JAX 0.5 or newer"]
