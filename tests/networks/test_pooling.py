import itertools

import pytest
import torch
from hypothesis import given, strategies as st

from bspml.errors import InputError
from bspml.networks import GeM
from bspml.networks.pooling import make_pooling


def maps(*shape, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def gem(p=3.0):
    return GeM(p).double()


def slow(x, p):
    """The formula, position by position."""
    out = torch.zeros(*x.shape[:2], 1, 1, dtype=x.dtype)
    for b, c in itertools.product(range(x.shape[0]), range(x.shape[1])):
        values = [max(v, 1e-6) ** p for v in x[b, c].flatten().tolist()]
        out[b, c] = (sum(values) / len(values)) ** (1 / p)
    return out


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, 6.5])
def test_gem_is_its_formula(p):
    x = maps(2, 3, 4, 5)
    torch.testing.assert_close(gem(p)(x), slow(x, p), rtol=1e-10, atol=0)


def test_gem_of_a_hand_worked_map():
    # p = 3: (1 + 8 + 0 + 27) / 4 = 9.
    x = torch.tensor([[[[1.0, 2.0], [-5.0, 3.0]]]], dtype=torch.float64)
    assert gem()(x).item() ** 3 == pytest.approx(9.0)


@pytest.mark.parametrize("p", [1.5, 3.0])
def test_gradients_of_maps_and_exponent(p):
    pool = gem(p)
    x = maps(2, 2, 3, 3).abs().add(0.1).requires_grad_()
    exponent = pool.p.detach().clone().requires_grad_()

    def call(x, exponent):
        return torch.func.functional_call(pool, {"p": exponent}, (x,))

    assert torch.autograd.gradcheck(call, (x, exponent))


@given(st.floats(1, 20), st.floats(1, 20), st.integers(0, 100))
def test_gem_grows_with_p_from_the_average_to_the_maximum(p, q, seed):
    x = maps(1, 2, 3, 3, seed=seed).abs() + 1e-3
    low, high = gem(min(p, q))(x), gem(max(p, q))(x)
    assert (low <= high * (1 + 1e-9)).all()
    assert (x.mean((2, 3), keepdim=True) <= low * (1 + 1e-9)).all()
    assert (high <= x.amax((2, 3), keepdim=True) * (1 + 1e-9)).all()


def test_gem_scales_with_its_map_and_forgets_positions():
    x = maps(2, 3, 4, 4).abs() + 0.1
    torch.testing.assert_close(gem()(7 * x), 7 * gem()(x))
    torch.testing.assert_close(gem()(x.flip(2)), gem()(x))
    torch.testing.assert_close(gem(1.0)(x), make_pooling("avg")(x))


def test_large_maps_in_half_precision_do_not_overflow():
    x = torch.full((1, 1, 2, 2), 30_000.0, dtype=torch.float16)
    assert GeM()(x).item() == 30_000
    assert GeM()(x).dtype == torch.float16
    x = torch.full((1, 1, 2, 2), 1e30)
    assert GeM(8.0)(x).item() == pytest.approx(1e30)


def test_maps_without_anything_positive_give_finite_gradients():
    x = torch.zeros(1, 2, 3, 3, requires_grad=True)
    pool = GeM()
    pool(x).sum().backward()
    assert x.grad.isfinite().all()
    assert pool.p.grad.isfinite()


def test_an_exponent_that_training_took_below_1_acts_as_1():
    pool, x = gem(), maps(1, 2, 3, 3)
    pool.p.data.fill_(-2.0)
    torch.testing.assert_close(pool(x), slow(x, 1.0))
    with pytest.raises(InputError, match=r"`p` must be in \[1, inf\); got 0.5"):
        GeM(0.5)


def test_poolings_have_names():
    assert isinstance(make_pooling("gem"), GeM)
    assert "p=3" in repr(make_pooling("gem"))
    with pytest.raises(InputError, match="`pooling` must be one of avg, gem; got 'max'"):
        make_pooling("max")
