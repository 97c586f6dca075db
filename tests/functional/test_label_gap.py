"""The gap between the label's logit and the others, against fifty digits and plain softmax."""

import math
from functools import partial

import mpmath
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from bspml.errors import InputError
from bspml.functional import gce, gr_cross_entropy, imae, mae, truncated_gce
from bspml.functional.label_gap import cross_entropy_of_gap, error_of_gap, label_gap
from helpers.draws import logits_and_labels

random_batch = partial(logits_and_labels, rows=12, classes=5, scale=4.0)


def test_gap_and_gradient_are_those_of_the_definition():
    logits, labels = random_batch()
    logits.requires_grad_()
    label_gap(logits, labels).sum().backward()
    assert logits.grad.shape == (12, 5)
    for z, y, gradient in zip(logits.tolist(), labels.tolist(), logits.grad.tolist(), strict=True):
        others = {j: math.exp(v) for j, v in enumerate(z) if j != y}
        gap = label_gap(torch.tensor([z], dtype=torch.float64), torch.tensor([y]))
        assert gap.item() == pytest.approx(math.log(sum(others.values())) - z[y], rel=1e-13)
        for j, slope in enumerate(gradient):
            expected = -1 if j == y else others[j] / sum(others.values())
            assert slope == pytest.approx(expected, rel=1e-13)


def test_gap_passes_gradcheck_twice():
    logits, labels = random_batch(1)
    assert gradcheck(lambda z: label_gap(z, labels), logits.requires_grad_())
    assert gradgradcheck(lambda z: label_gap(z, labels), logits)


@pytest.mark.parametrize("gap", [-700.0, -100.0, -30.0, -1.0, 0.0, 1.0, 30.0, 100.0, 700.0])
def test_entropy_and_error_keep_their_digits_at_both_ends(gap):
    with mpmath.workdps(50):
        x = mpmath.mpf(gap)
        entropy, error = mpmath.log1p(mpmath.exp(x)), 1 / (1 + mpmath.exp(-x))
    value = torch.tensor([gap], dtype=torch.float64)
    assert cross_entropy_of_gap(value).item() == pytest.approx(float(entropy), rel=1e-14)
    assert error_of_gap(value).item() == pytest.approx(float(error), rel=1e-13)


def test_an_offset_common_to_all_logits_costs_no_digits():
    logits = torch.tensor([[1.0, 0.25, -0.5]])
    moved = logits + 4096.0  # exact in float32
    labels = torch.tensor([1])
    assert torch.equal(label_gap(moved, labels), label_gap(logits, labels))


@pytest.mark.parametrize(
    "loss",
    [mae, gce, truncated_gce, imae, lambda z, y: gr_cross_entropy(z, y, 8, 0.5)],
    ids=["mae", "gce", "truncated_gce", "imae", "gr"],
)
def test_every_loss_is_finite_in_its_gradient_for_all_finite_logits(loss):
    top = 3e38
    logits = torch.tensor(
        [[top, -top, 0], [-top, top, 0], [top, top, top], [0, 200, 0], [0, -200, 0], [0, 0, 0]],
        requires_grad=True,
    )
    value = loss(logits, torch.ones(6, dtype=torch.long))
    value.sum().backward()
    assert not value.isnan().any()
    assert (value >= 0).all()
    assert logits.grad.isfinite().all()
    # Nothing changes when all logits of a row do by the same amount.
    torch.testing.assert_close(logits.grad.sum(1), torch.zeros(6), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "loss", [mae, gce, truncated_gce, imae, lambda z, y: gr_cross_entropy(z, y, 8, 0.5)]
)
class TestRefusals:
    def test_labels_out_of_range_are_named(self, loss):
        logits = torch.zeros(4, 3)
        with pytest.raises(InputError, match=r"\[0, 3\).*got 3 \(rows 1, 2\)"):
            loss(logits, torch.tensor([0, 3, 7, 2]))
        with pytest.raises(InputError, match=r"got -100 \(rows 3\).*drop such rows"):
            loss(logits, torch.tensor([0, 1, 2, -100]))

    def test_shapes_and_types_that_do_not_fit_are_refused(self, loss):
        logits, labels = torch.zeros(4, 3), torch.zeros(4, dtype=torch.long)
        with pytest.raises(InputError, match=r"`logits` must be \(B, C\).*two; got \(4, 1\)"):
            loss(torch.zeros(4, 1), labels)
        with pytest.raises(InputError, match=r"got \(4,\)"):
            loss(torch.zeros(4), labels)
        with pytest.raises(InputError, match=r"`logits` must be floats; got torch.int64"):
            loss(logits.long(), labels)
        with pytest.raises(InputError, match=r"class numbers; got torch.float32"):
            loss(logits, labels.float())
        with pytest.raises(InputError, match=r"\(B,\) = \(4,\).*torch.int64, \(3,\)"):
            loss(logits, labels[:3])
        with pytest.raises(InputError, match=r"\(4, 1\)"):
            loss(logits, labels[:, None])
        with pytest.raises(InputError, match=r"torch.bool"):
            loss(logits, labels.bool())


def test_half_precision_is_computed_and_returned_in_float32():
    logits, labels = random_batch(2, dtype=torch.float32)
    for dtype in (torch.float16, torch.bfloat16):
        half = logits.to(dtype).requires_grad_()
        for loss in (mae, gce, truncated_gce, imae):
            value = loss(half, labels)
            assert value.dtype == torch.float32
            assert torch.equal(value, loss(half.detach().float(), labels))
            value.sum().backward()
        assert half.grad.dtype == dtype
        assert half.grad.isfinite().all()


def test_small_integer_labels_are_accepted():
    logits, labels = random_batch(3)
    for dtype in (torch.uint8, torch.int16, torch.int32):
        assert torch.equal(mae(logits, labels.to(dtype)), mae(logits, labels))


def test_an_empty_batch_has_empty_losses():
    logits = torch.zeros(0, 3, requires_grad=True)
    mae(logits, torch.zeros(0, dtype=torch.long)).sum().backward()
    assert logits.grad.shape == (0, 3)
