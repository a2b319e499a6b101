"""Results of torch that keep their gradients: the kernels' bits, and derivatives that agree with finite differences."""

import functools

import numpy as np
import pytest

import fastgae
from support.cases import assert_same_bits
from support.drawn import drawn
from support.functions import arrays_of, converted

from .test_gradients import KEEPING

torch = pytest.importorskip("torch")


def float64_in(given):
    return {each: array for each, array in given.items() if getattr(array, "dtype", None) == torch.float64}


@pytest.mark.parametrize("name", KEEPING)
def test_derivatives(name):
    for function, arguments in drawn(name, np.float64)[:4]:
        given = converted(arguments, torch.from_numpy)
        numbers = float64_in(given)
        names, numbers = [*numbers], tuple(array.requires_grad_() for array in numbers.values())

        def call(*numbers, stop=False, function=function, names=names, others=given):
            return function(**{**others, **dict(zip(names, numbers, strict=True)), "stop_gradients": stop})

        for kept, stopped in zip(*(arrays_of(call(*numbers, stop=stop)) for stop in (False, True)), strict=True):
            assert_same_bits(kept.detach().numpy(), stopped.numpy())
            assert kept.requires_grad
            assert not stopped.requires_grad
        how = {"fast_mode": True, "check_batched_grad": True}
        assert torch.autograd.gradcheck(call, numbers, check_forward_ad=True, check_batched_forward_grad=True, **how)
        assert torch.autograd.gradgradcheck(call, numbers, **how)


def test_transforms(compiled):
    terminated, leaves = torch.rand(6, 3) < 0.2, (torch.randn(6, 3), torch.randn(6, 3), torch.randn(3))

    def total(rewards, values, last_values, gae_lambda):
        given = {"last_values": last_values, "gae_lambda": gae_lambda, "stop_gradients": False}
        advantages, returns = fastgae.gae(rewards, values, terminated, **given)
        return (advantages**2).sum() + returns.sum()

    arguments = *leaves, torch.tensor(0.7)
    tracked = [each.clone().requires_grad_() for each in arguments]
    total(*tracked).backward()
    expected = [each.grad for each in tracked]
    every = range(len(arguments))
    torch.testing.assert_close(list(torch.func.grad(total, tuple(every))(*arguments)), expected)
    torch.testing.assert_close(list(torch.func.vjp(total, *arguments)[1](torch.ones(()))), expected)
    _, moved = torch.func.jvp(total, arguments, arguments)
    torch.testing.assert_close(moved, sum((one * other).sum() for one, other in zip(arguments, expected, strict=True)))
    one, other = (torch.func.hessian(total, 3)(*arguments), torch.func.jacfwd(torch.func.grad(total, 3), 3)(*arguments))
    torch.testing.assert_close(one, other)
    batch = torch.stack([leaves[0], 2 * leaves[0]])
    each = torch.func.vmap(torch.func.grad(total), (0, None, None, None))(batch, *arguments[1:])
    torch.testing.assert_close(each[0], expected[0])
    for array in tracked:
        array.grad = None
    with pytest.raises(Exception, match="differentiated"):  # torch breaks the graph there
        compiled(total)(*tracked)
    torch._dynamo.reset()
    torch.compile(total, backend="aot_eager")(*tracked).backward()
    torch.testing.assert_close([each.grad for each in tracked], expected)


@pytest.mark.parametrize("name", KEEPING)
@pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch has no rule for sparse final values
def test_a_batch_of_losses(name):
    """The gradients through ``vmap`` are those of its calls, also where results are constants in a loss."""
    for function, arguments in drawn(name, np.float64)[:2]:
        given = converted(arguments, torch.from_numpy)
        numbers = float64_in(given)

        def loss(numbers, stop, function=function, others=given):
            results = arrays_of(function(**{**others, **numbers, "stop_gradients": stop}))
            return sum(((result - next(iter(numbers.values()))) ** 2).sum() for result in results)

        for stop in (False, True):
            batch = {each: torch.stack([array, 0.9 * array]).requires_grad_() for each, array in numbers.items()}
            of_each = functools.partial(loss, stop=stop)
            one_by_one = sum(loss({each: array[i] for each, array in batch.items()}, stop) for i in range(2))
            expected = torch.autograd.grad(one_by_one, [*batch.values()], materialize_grads=True)
            got = torch.autograd.grad(torch.vmap(of_each)(batch).sum(), [*batch.values()], materialize_grads=True)
            torch.testing.assert_close(got, expected)
            again = torch.func.grad(lambda batch, of_each=of_each: torch.vmap(of_each)(batch).sum())(batch)
            torch.testing.assert_close([again[each] for each in batch], [*expected])


def test_torch_has_no_forward_derivative_of_a_forward_derivative():
    """It would be 0, without a word."""

    def total(decay):
        given = {"last_values": 0.0, "gae_lambda": decay, "stop_gradients": False}
        return fastgae.gae(torch.ones(3), torch.zeros(3), None, gamma=1.0, **given).advantages.sum()

    def changed(decay):
        advantages = fastgae.reverse_scan(torch.ones(3), decay, stop_gradients=False)
        advantages *= decay  # the caller may change results
        return advantages.sum()

    decay = torch.tensor(0.5)
    assert torch.func.jacrev(torch.func.jacfwd(changed))(decay) == torch.func.hessian(changed)(decay) == 7.0
    assert torch.func.jacrev(torch.func.jacfwd(total))(decay) == torch.func.hessian(total)(decay) == 2.0
    with pytest.raises(NotImplementedError, match="a forward derivative of gae: take one of the two backward"):
        torch.func.jacfwd(torch.func.jacfwd(total))(decay)


def test_a_decay_of_0_has_a_derivative():
    decay = torch.zeros(2, requires_grad=True)
    fastgae.reverse_scan(torch.ones(2), decay, initial=3.0, stop_gradients=False).sum().backward()
    assert decay.grad.tolist() == [1.0, 3.0]


def test_other_kinds_of_arrays():
    values = torch.randn(4, 3, dtype=torch.bfloat16, requires_grad=True)
    ended = np.broadcast_to(False, (4, 3))  # which is read-only
    for rewards, dtype in ((torch.ones(4, 3), torch.float32), (torch.ones(4, 3, dtype=torch.int64), torch.float64)):
        advantages, _ = fastgae.gae(rewards, values, ended, last_values=np.ones(3, ">f4"), stop_gradients=False)
        assert advantages.dtype == dtype
        advantages += 1.0  # the caller may change results
        advantages.sum().backward()
        assert values.grad.dtype == torch.bfloat16
    for shape in ((0, 3), (3, 0), (0,), (4,), (2, 3, 4)):
        rewards = torch.ones(shape, requires_grad=True)
        how = {"last_values": 0.0, "mask": np.ones(shape, bool) if len(shape) == 2 else None, "stop_gradients": False}
        fastgae.gae(rewards, rewards, np.zeros(shape), **how).returns.sum().backward()
        assert rewards.grad.shape == shape
    with pytest.raises(ValueError, match=r"gamma must be in \[0, 1\]"):
        fastgae.gae(values, values, ended, last_values=0.0, gamma=torch.tensor(1.5), stop_gradients=False)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int16])
def test_sequences_with_boundaries_of_any_integers(dtype):
    rewards = torch.randn(5, requires_grad=True)
    call = functools.partial(fastgae.gae_packed, rewards, torch.zeros(5), gamma=1.0, gae_lambda=0.5)
    call(torch.tensor([0, 2, 5], dtype=dtype), stop_gradients=False).advantages.sum().backward()
    assert rewards.grad.tolist() == [1.0, 1.5, 1.0, 1.5, 1.75]


def test_tensors_that_are_not_on_the_default_device():
    values = torch.randn(5, requires_grad=True)
    with torch.device("meta"):  # where every result of torch would be an error
        returns = fastgae.n_step_returns(values, values, None, last_values=0.0, n=3, stop_gradients=False)
        for how in ({"last_values": 0.0}, {"last_values": 0.0, "mask": np.ones(5, bool)}):
            returns = returns + fastgae.gae(values, values, None, **how, stop_gradients=False).returns
    returns.sum().backward()
    assert values.grad.all()


def test_exported_programs_have_no_gradients():
    class Model(torch.nn.Linear):
        def forward(self, rewards):
            values = super().forward(rewards)
            return fastgae.gae(rewards, values, None, last_values=0.0, stop_gradients=False).advantages

    with pytest.raises(NotImplementedError, match=r"torch\.export cannot record gradients of gae"):
        torch.export.export(Model(3, 3), (torch.ones(4, 3),))


def test_final_values_of_more_axes_than_flags_have():
    (none, cut), final = torch.zeros(2, 4, 3, dtype=torch.bool), torch.ones(4, requires_grad=True)
    cut[1, 1:] = True  # in two envs, of each of which the last axis has two
    for flags in (cut, cut.float()):
        ends = {"terminated": none, "truncated": flags, "final_values": final, "last_values": 0.0, "gae_lambda": 1.0}
        final.grad = None
        fastgae.gae(*torch.zeros(2, 4, 3, 2), **ends, gamma=0.5, stop_gradients=False).advantages.sum().backward()
        assert final.grad.tolist() == [0.75] * 4
