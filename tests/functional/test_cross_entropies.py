"""Absolute error, generalised cross-entropy and its truncation against their formulas in p."""

import math

import mpmath
import pytest
import torch
from hypothesis import given, strategies as st
from torch.autograd import gradcheck, gradgradcheck

from bspml.errors import InputError
from bspml.functional import gce, mae, truncated_gce
from helpers.comparisons import label_probability
from helpers.draws import logits_and_labels as random_batch

SIX_DIGITS = 1e-6


def two_class(p, dtype=torch.float64):
    """Logits (1, 2) that give class 0 the probability p, and its label."""
    return (
        torch.tensor([[math.log(p), math.log1p(-p)]], dtype=dtype),
        torch.zeros(1, dtype=torch.long),
    )


def gradient_norm(loss, logits, labels):
    logits = logits.clone().requires_grad_()
    loss(logits, labels).sum().backward()
    return logits.grad.abs().sum(1)


def test_mae_is_the_absolute_error_of_the_softmax():
    logits, labels = random_batch()
    one_hot = torch.nn.functional.one_hot(labels, 4)
    expected = (logits.softmax(1) - one_hot).abs().sum(1)
    torch.testing.assert_close(mae(logits, labels), expected, rtol=1e-12, atol=1e-15)
    p = label_probability(logits, labels)
    torch.testing.assert_close(mae(logits, labels), 2 - 2 * p, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(gradient_norm(mae, logits, labels), 4 * p * (1 - p))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("q", "expected"),
    [(0.7, 0.813555), (1, 0.7), (0, 1.203973), (1e-8, 1.203973), (1e-4, 1.203900)],
)
def test_gce_of_three_tenths(q, expected, dtype):
    assert gce(*two_class(0.3, dtype), q).item() == pytest.approx(expected, abs=SIX_DIGITS)


@pytest.mark.parametrize("q", [0, 5e-324, 1e-300, 1e-45, 1e-38, 1e-8, 1e-3, 0.3, 0.7, 1])
@pytest.mark.parametrize("gap", [-80.0, -20.0, -1.0, 0.0, 1.0, 20.0, 80.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gce_keeps_its_digits_for_every_q_and_gap(q, gap, dtype):
    logits = torch.tensor([[0.0, gap]], dtype=dtype, requires_grad=True)
    value = gce(logits, torch.tensor([0]), q)
    value.backward()
    with mpmath.workdps(400):  # p^q differs from 1 in the 324th digit
        p = 1 / (1 + mpmath.exp(mpmath.mpf(gap)))
        exact = (1 - p ** mpmath.mpf(q)) / mpmath.mpf(q) if q else -mpmath.log(p)
        slope = p ** mpmath.mpf(q) * (1 - p)
    relative = 100 * torch.finfo(dtype).eps  # e^{-q a} carries the error of q a, up to 80
    assert abs(value.item() - exact) <= relative * exact + 1e-37
    assert abs(logits.grad[0, 1].item() - slope) <= relative * slope + 1e-37


@pytest.mark.parametrize("gap", [-80.0, -30.0, -1.0, 0.0, 1.0, 30.0, 80.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_mae_keeps_its_digits_and_those_of_its_gradient(gap, dtype):
    logits = torch.tensor([[0.0, gap]], dtype=dtype, requires_grad=True)
    value = mae(logits, torch.tensor([0]))
    value.backward()
    with mpmath.workdps(50):
        p = 1 / (1 + mpmath.exp(mpmath.mpf(gap)))
        relative = 100 * torch.finfo(dtype).eps
        assert abs(value.item() - 2 * (1 - p)) <= relative * 2 * (1 - p)
        assert abs(logits.grad[0, 1].item() - 2 * p * (1 - p)) <= relative * 2 * p * (1 - p)


def test_gce_of_a_gap_that_overflows_has_its_limit():
    logits, labels = torch.tensor([[-3e38, 3e38]]), torch.tensor([0])
    for q, limit in ((0, math.inf), (1e-300, math.inf), (0.5, 2.0), (1, 1.0)):
        assert gce(logits, labels, q).item() == limit


def test_gce_at_its_ends_is_cross_entropy_and_half_the_mae():
    logits, labels = random_batch(1)
    entropy = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    torch.testing.assert_close(gce(logits, labels, 0), entropy)
    torch.testing.assert_close(gce(logits, labels, 1), mae(logits, labels) / 2)


@given(st.floats(0, 1), st.integers(0, 50))
def test_gce_weight_is_the_published_one(q, seed):
    logits, labels = random_batch(seed)
    p = label_probability(logits, labels)
    norm = gradient_norm(lambda z, y: gce(z, y, q), logits, labels)
    torch.testing.assert_close(norm, 2 * p**q * (1 - p), rtol=1e-9, atol=1e-12)


@given(st.floats(0, 0.99), st.floats(0.001, 0.999))
def test_gce_falls_with_q_and_lies_between_its_ends(q, p):
    here = gce(*two_class(p), q).item()
    assert 1 - p - 1e-12 <= here <= -math.log(p) + 1e-12
    assert gce(*two_class(p), q + 0.01).item() <= here + 1e-12


@pytest.mark.parametrize("q", [0.0, 1e-6, 0.5, 1.0])
def test_gradcheck_passes_twice(q):
    logits, labels = random_batch(3, rows=4)
    logits.requires_grad_()
    for loss in (lambda z: gce(z, labels, q), lambda z: mae(z, labels)):
        assert gradcheck(loss, logits)
        assert gradgradcheck(loss, logits)


def test_truncation_is_constant_up_to_k_and_never_negative():
    for q in (0.0, 0.3, 0.7, 1.0):
        constant = (1 - 0.5**q) / q if q else math.log(2)
        for p in (0.01, 0.3, 0.5):
            logits, labels = two_class(p)
            logits.requires_grad_()
            value = truncated_gce(logits, labels, q, k=0.5)
            value.backward()
            assert value.item() == pytest.approx(constant, rel=1e-14)
            assert logits.grad.abs().max() <= 2e-16 * (p == 0.5)  # p = 0.5 is itself rounded
        for p in (0.51, 0.99, 1 - 1e-9):
            value = truncated_gce(*two_class(p), q, k=0.5)
            assert torch.equal(value, gce(*two_class(p), q))
            assert value.item() >= 0


def test_truncation_leaves_out_exactly_the_samples_at_or_below_k():
    logits, labels = torch.tensor([[0.0, 0.0], [1e-9, 0.0]], dtype=torch.float64), torch.zeros(2)
    logits.requires_grad_()
    truncated_gce(logits, labels.long(), 0.7, k=0.5).sum().backward()
    assert logits.grad[0].tolist() == [0, 0]
    assert (logits.grad[1] != 0).all()


def test_truncation_at_zero_and_one():
    logits, labels = random_batch(4)
    assert torch.equal(truncated_gce(logits, labels, 0.7, k=0), gce(logits, labels, 0.7))
    assert truncated_gce(logits, labels, 0.7, k=1).abs().max() == 0


@pytest.mark.parametrize("q", [-0.1, 1.1, math.nan, math.inf])
def test_q_outside_zero_to_one_is_refused(q):
    logits, labels = random_batch()
    for loss in (gce, truncated_gce):
        with pytest.raises(InputError, match=r"`q` must be in \[0, 1\]"):
            loss(logits, labels, q)
    with pytest.raises(InputError, match=r"`k` must be in \[0, 1\]"):
        truncated_gce(logits, labels, 0.7, k=q)
