"""Gradient rescaling against worked values, its members, and the integral that is its loss."""

import math
from functools import partial

import pytest
import torch
from hypothesis import given, strategies as st
from scipy.integrate import quad

from bspml.errors import InputError
from bspml.functional import gce, gr_cross_entropy, gr_weight, imae, mae
from helpers.comparisons import gradient, label_probability
from helpers.draws import logits_and_labels

random_batch = partial(logits_and_labels, rows=16, classes=5)

SIX_DIGITS = 1e-6


def entropy(logits, labels):
    return torch.nn.functional.cross_entropy(logits, labels, reduction="none")


def test_worked_gradient():
    logits, labels = torch.tensor([[1.0, 0.0, -1.0]], dtype=torch.float64), torch.tensor([1])
    weight = gr_weight(torch.tensor([0.244728], dtype=torch.float64), 8, 0.5)
    assert weight.item() == pytest.approx(19.867097, abs=1e-4)  # p is given with six digits
    slope = gradient(lambda z, y: gr_cross_entropy(z, y, 8, 0.5), logits, labels)
    expected = torch.tensor([[8.749440, -9.933548, 1.184108]], dtype=torch.float64)
    torch.testing.assert_close(slope, expected, rtol=0, atol=SIX_DIGITS)
    assert slope.abs().sum().item() == pytest.approx(19.867097, abs=SIX_DIGITS)


def test_worked_weights():
    assert gr_weight(0.5, 2, 1).item() == pytest.approx(1.648721, abs=SIX_DIGITS)
    p = torch.tensor([0.1, 0.9, 0.0, 1.0], dtype=torch.float64)
    expected = torch.tensor([9.745834, 2.136025, 1.0, 1.0], dtype=torch.float64)
    torch.testing.assert_close(gr_weight(p, 8, 0.5), expected, rtol=0, atol=SIX_DIGITS)
    # At lam = 0 the hardest sample weighs most: 0^0 is 1.
    assert gr_weight(0.0, 2).item() == pytest.approx(math.exp(2), rel=1e-6)
    assert gr_weight(0.25, 3, 0, "identity").item() == pytest.approx(2.25)


FAMILY = [(2, 0, "identity"), (4, 1, "identity"), (2, 0.7, "identity"), (0, 0, "exp"),
          (8, 0.5, "exp"), (8, 1, "exp"), (24, 2, "exp"), (2, 0, "exp")]  # fmt: skip


@pytest.mark.parametrize("member", FAMILY)
def test_the_value_is_cross_entropy_and_the_norm_of_the_gradient_the_weight(member):
    logits, labels = random_batch()
    value = gr_cross_entropy(logits, labels, *member)
    torch.testing.assert_close(value, entropy(logits, labels), rtol=1e-12, atol=1e-15)
    slope = gradient(lambda z, y: gr_cross_entropy(z, y, *member), logits, labels)
    weight = gr_weight(label_probability(logits, labels), *member)
    torch.testing.assert_close(slope.abs().sum(1), weight, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(
        slope.sum(1), torch.zeros(16, dtype=torch.float64), atol=1e-12, rtol=0
    )


@pytest.mark.parametrize("member", FAMILY)
def test_the_gradient_points_where_that_of_cross_entropy_points(member):
    logits, labels = random_batch(1)
    ours = gradient(lambda z, y: gr_cross_entropy(z, y, *member), logits, labels)
    theirs = gradient(entropy, logits, labels)
    cosine = torch.nn.functional.cosine_similarity(ours, theirs, eps=0)
    torch.testing.assert_close(cosine, torch.ones_like(cosine), rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    ("member", "loss"),
    [
        ((2, 0, "identity"), entropy),
        ((4, 1, "identity"), mae),
        ((2, 0.7, "identity"), lambda z, y: gce(z, y, 0.7)),
        ((2, 0.25, "identity"), lambda z, y: gce(z, y, 0.25)),
        ((8, 1, "exp"), imae),
        ((0.5, 1, "exp"), lambda z, y: imae(z, y, T=0.5)),
    ],
    ids=["cross-entropy", "mae", "gce .7", "gce .25", "imae 8", "imae 0.5"],
)
def test_the_members_have_the_gradients_of_their_losses(member, loss):
    logits, labels = random_batch(2)
    ours = gradient(lambda z, y: gr_cross_entropy(z, y, *member), logits, labels)
    torch.testing.assert_close(ours, gradient(loss, logits, labels), rtol=1e-9, atol=1e-13)


def test_imae_is_gradient_rescaling_bit_for_bit():
    logits, labels = random_batch(3)
    assert torch.equal(imae(logits, labels, 8), gr_cross_entropy(logits, labels, 8, 1))
    assert torch.equal(
        gradient(imae, logits, labels),
        gradient(lambda z, y: gr_cross_entropy(z, y, 8, 1), logits, labels),
    )


def test_beta_zero_gives_every_sample_a_gradient_of_length_one():
    logits, labels = random_batch(4)
    slope = gradient(lambda z, y: gr_cross_entropy(z, y, 0, 1), logits, labels)
    torch.testing.assert_close(slope.abs().sum(1), torch.ones(16, dtype=torch.float64))


@pytest.mark.parametrize("member", [(8, 0.5, "exp"), (4, 1, "identity"), (2, 0, "exp")])
def test_the_gradient_is_that_of_the_integral(member):
    """d/dz of  integral from p(z) to 1/2 of w(s) / (2 s (1 - s)) ds,  by quadrature."""
    beta, lam, g = member

    def density(s):
        scaled = beta * s**lam * (1 - s)
        return (math.exp(scaled) if g == "exp" else scaled) / (2 * s * (1 - s))

    def loss(z, y):
        exponentials = [math.exp(v) for v in z]
        p = exponentials[y] / sum(exponentials)
        return quad(density, p, 0.5, epsabs=1e-13, epsrel=1e-13)[0]

    z, y, step = [0.8, -0.4, 1.1], 1, 1e-5
    slope = gradient(
        lambda a, b: gr_cross_entropy(a, b, *member),
        torch.tensor([z], dtype=torch.float64),
        torch.tensor([y]),
    )
    for j in range(3):
        up, down = z.copy(), z.copy()
        up[j], down[j] = z[j] + step, z[j] - step
        numeric = (loss(up, y) - loss(down, y)) / (2 * step)
        assert slope[0, j].item() == pytest.approx(numeric, rel=1e-7)


@pytest.mark.parametrize("member", FAMILY)
def test_the_second_derivative_is_that_of_the_rescaled_gradient(member):
    logits, labels = random_batch(5, rows=3, classes=4, scale=1.5)

    def slope(z):
        return gradient(lambda a, y: gr_cross_entropy(a, y, *member), z, labels)

    z = logits.clone().requires_grad_()
    (first,) = torch.autograd.grad(gr_cross_entropy(z, labels, *member).sum(), z, create_graph=True)
    step = 1e-6
    for row in range(3):
        for column in range(4):
            (second,) = torch.autograd.grad(first[row, column], z, retain_graph=True)
            up, down = logits.clone(), logits.clone()
            up[row, column] += step
            down[row, column] -= step
            numeric = (slope(up) - slope(down)) / (2 * step)
            # The loss has a potential, so the matrix is symmetric.
            torch.testing.assert_close(second, numeric, rtol=1e-6, atol=1e-6)


def test_cross_entropy_itself_passes_gradcheck():
    logits, labels = random_batch(6, rows=5)
    logits.requires_grad_()
    plain = lambda z: gr_cross_entropy(z, labels, 2, 0, "identity")  # noqa: E731
    assert torch.autograd.gradcheck(plain, logits)
    assert torch.autograd.gradgradcheck(plain, logits)


@pytest.mark.parametrize("gap", [-200.0, -88.0, -20.0, 20.0, 88.0, 200.0, 1e30, 3e38])
@pytest.mark.parametrize("member", [(8, 0.5, "exp"), (8, 1, "exp"), (3, 0, "exp")])
def test_in_float32_easy_and_hard_samples_keep_their_gradient(gap, member):
    logits = torch.tensor([[0.0, gap, gap]])
    slope = gradient(lambda z, y: gr_cross_entropy(z, y, *member), logits, torch.tensor([0]))
    assert slope[0, 1].item() == slope[0, 2].item()
    assert slope[0, 1].item() == pytest.approx(-slope[0, 0].item() / 2, rel=1e-6)
    if abs(gap) < 700:
        p = 1 / (1 + 2 * math.exp(gap))
        wanted = math.exp(member[0] * p ** member[1] * (1 - p))
    else:
        wanted = math.exp(member[0]) if member[1] == 0 else 1.0  # p = 0
    assert slope.abs().sum().item() == pytest.approx(wanted, rel=1e-5)
    if member[1]:
        limit = slope.abs().sum().item()
        assert limit == pytest.approx(1, rel=1e-3)


def test_a_hard_sample_has_a_finite_loss_and_a_weight_of_one():
    logits = torch.tensor([[0.0, -200.0, 0.0]], requires_grad=True)
    value = gr_cross_entropy(logits, torch.tensor([1]), 8, 0.5)
    value.sum().backward()
    assert value.item() == pytest.approx(200 + math.log(2), rel=1e-6)
    assert logits.grad.abs().sum().item() == pytest.approx(1, rel=1e-6)


@pytest.mark.parametrize(
    "member", [(8, 0.5, "exp"), (3, 0, "exp"), (3, 1e-60, "exp"), (2, 0, "identity")]
)
def test_a_gap_that_overflows_has_the_gradient_of_p_zero(member):
    logits = torch.tensor([[3e38, -3e38, 3e38], [3e38, -3e38, 0.0]])
    slope = gradient(lambda z, y: gr_cross_entropy(z, y, *member), logits, torch.tensor([1, 1]))
    weight = math.exp(3) if member[0] == 3 else gr_weight(0.0, *member).item()
    expected = weight / 2 * torch.tensor([[0.5, -1, 0.5], [1, -1, 0]])
    torch.testing.assert_close(slope, expected)


def test_repeating_a_batch_leaves_the_gradient_of_the_mean():
    logits, labels = random_batch(7)

    def mean_gradient(copies):
        z = logits.clone().requires_grad_()
        gr_cross_entropy(z.repeat(copies, 1), labels.repeat(copies), 8, 0.5).mean().backward()
        return z.grad

    torch.testing.assert_close(mean_gradient(1), mean_gradient(2))


@given(st.floats(0, 20), st.floats(0, 3), st.integers(0, 30))
def test_the_order_of_classes_and_samples_does_not_matter(beta, lam, seed):
    logits, labels = random_batch(seed, rows=6)
    generator = torch.Generator().manual_seed(seed)
    rows, columns = torch.randperm(6, generator=generator), torch.randperm(5, generator=generator)
    renamed = torch.argsort(columns)[labels]
    loss = lambda z, y: gr_cross_entropy(z, y, beta, lam)  # noqa: E731
    slope = gradient(loss, logits, labels)
    moved = gradient(loss, logits[rows][:, columns], renamed[rows])
    torch.testing.assert_close(moved, slope[rows][:, columns], rtol=1e-11, atol=1e-13)


@given(st.floats(0, 1), st.floats(0, 20), st.floats(0, 3))
def test_no_weight_exceeds_the_one_at_the_focus(p, beta, lam):
    focus = lam / (1 + lam)
    at_p = gr_weight(torch.tensor(p, dtype=torch.float64), beta, lam)
    top = gr_weight(torch.tensor(focus, dtype=torch.float64), beta, lam)
    assert at_p.item() <= top.item() * (1 + 1e-12)
    assert at_p.item() >= 1


def test_weights_carry_no_gradient_and_are_float32_at_least():
    p = torch.tensor([0.2], requires_grad=True)
    assert not gr_weight(p, 2, 0.5).requires_grad
    assert gr_weight(p.detach().half(), 2, 0.5).dtype == torch.float32


def test_arguments_outside_their_range_are_refused():
    logits, labels = random_batch()
    p = torch.tensor([0.5])
    calls = (
        lambda *member: gr_weight(p, *member),
        lambda *member: gr_cross_entropy(logits.float(), labels, *member),
    )
    for call in calls:
        with pytest.raises(InputError, match="`beta` must be in"):
            call(-1, 0)
        with pytest.raises(InputError, match="`lam` must be in"):
            call(1, -0.1)
        with pytest.raises(InputError, match="`g` must be one of exp, identity; got 'log'"):
            call(1, 0, "log")
        with pytest.raises(InputError, match=r"`beta` = 100 overflows torch.float32: at p = 0 "):
            call(100, 0)
        call(300, 1)  # exp(75) fits
    with pytest.raises(InputError, match="`T` must be in"):
        imae(logits, labels, T=-1)
    with pytest.raises(InputError, match=r"`p` must lie in \[0, 1\]; got 1.5 .*positions 1"):
        gr_weight(torch.tensor([0.5, 1.5]), 1)
    with pytest.raises(InputError, match=r"`p` must lie in \[0, 1\]; got nan"):
        gr_weight(torch.tensor([math.nan]), 1)
