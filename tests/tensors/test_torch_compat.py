"""fastgae.compat in code that torch compiles: one graph, with the bits of the eager call."""

import pytest

from support.cases import assert_same_bits
from support.compat_calls import IN_TORCH, assert_same_tensors, prepared, tensor_of
from support.functions import arrays_of, split

torch = pytest.importorskip("torch")
LIBRARIES = tuple(dict.fromkeys(name.split()[0] for name in IN_TORCH))


@pytest.mark.parametrize("library", LIBRARIES)
def test_compiled(library, compiled):
    """One program for a library, for which torch looks at the code of fastgae once.

    One library's by the compiler that users have, which does not fuse a product and a sum on a CPU.
    """
    calls = {name: prepared(call, convert=tensor_of) for name, call in IN_TORCH.items() if name.split()[0] == library}
    expected = {name: function(**given) for name, (function, given) in calls.items()}
    both = {name: split(given, torch.Tensor) for name, (_, given) in calls.items()}

    def program(arrays):
        return {name: function(**arrays[name], **both[name][1]) for name, (function, _) in calls.items()}

    way = "inductor" if library == "sample_factory" else "aot_eager"
    results = compiled(program, way)({name: arrays for name, (arrays, _) in both.items()})
    for name, result in results.items():
        assert_same_tensors(name, result, expected[name])


@pytest.mark.parametrize("name", IN_TORCH)
def test_tensors_that_are_not_on_the_default_device(name):
    function, given = prepared(IN_TORCH[name], convert=tensor_of)
    expected = arrays_of(function(**given))
    with torch.device("meta"):
        results = arrays_of(function(**given))
    assert_same_bits(results, expected)


@pytest.mark.parametrize("name", IN_TORCH)
def test_no_derivative_flows_in_transformations(name):
    function, given = prepared(IN_TORCH[name], convert=tensor_of)
    floats = {each: array for each, array in given.items() if getattr(array, "dtype", None) == torch.float32}

    def total(floats):
        return sum((result**2).sum() for result in arrays_of(function(**{**given, **floats})))

    batch = {each: array[None] for each, array in floats.items()}
    gradients = torch.func.grad(lambda batch: torch.vmap(total)(batch).sum())(batch)
    assert not any(gradient.any() for gradient in gradients.values())
    assert torch.func.jvp(total, (floats,), (floats,))[1] == 0


def test_actions_of_8_bits_are_no_mask():
    function, given = prepared(IN_TORCH["rlax retrace"], convert=tensor_of)
    batch = {name: each.byte() if name.startswith("a_") else each for name, each in given.items()}
    got = torch.vmap(lambda r_t: function(**{**batch, "r_t": r_t}))(given["r_t"][None])[0]
    assert_same_bits(got.numpy(), function(**given).numpy())
