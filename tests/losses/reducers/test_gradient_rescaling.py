import math

import pytest
import torch
from pytorch_metric_learning import losses, reducers

from bspml.errors import InputError
from bspml.losses.reducers import IMAE, GradientRescaling
from bspml.losses.reducers.gradient_rescaling import DELTA
from helpers import reducer_kit as kit
from helpers.reducer_kit import FirstColumn, column


def weight(x, beta, lam, g):
    p = math.exp(-x)
    inner = beta * p**lam * (1 - p)
    return math.exp(inner) if g == "exp" else inner


LOSSES = (0.0, 1e-6, 1e-3, 1.0, 50.0)


@pytest.mark.parametrize("x", LOSSES)
@pytest.mark.parametrize(("beta", "lam", "g"), [(8, 0.5, "exp"), (2, 0, "identity"), (8, 1, "exp")])
@pytest.mark.parametrize("kind", ["log-probability", "softplus", "hinge"])
def test_the_factor_of_each_kind(kind, x, beta, lam, g):
    loss = GradientRescaling(FirstColumn(), beta=beta, lam=lam, g=g, kind=kind)
    embeddings = column(x)
    value = loss(embeddings)
    value.backward()
    w = weight(x, beta, lam, g)
    factor = w if kind == "hinge" or x == 0 else w / (2 * max(-math.expm1(-x), DELTA))
    assert embeddings.grad[0, 0].item() == pytest.approx(factor, rel=1e-9)
    assert value.item() == pytest.approx(factor * x, rel=1e-9)
    confidence = loss.reducer.confidences["loss"].values.item()
    assert confidence == pytest.approx(w, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("x", LOSSES)
def test_float32_agrees_with_float64(x):
    loss = GradientRescaling(FirstColumn(), kind="log-probability")
    exact, single = column(x), column(x, dtype=torch.float32)
    loss(exact).backward()
    loss(single).backward()
    torch.testing.assert_close(single.grad.double(), exact.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("x", [1e-12, 1e-8, 1e-6, 1e-3, 20.0])
def test_tiny_float32_losses_keep_the_digits_of_their_emphasis(x):
    loss = GradientRescaling(FirstColumn(), beta=1e4, lam=0.5, g="identity", kind="hinge")
    embeddings = column(x, dtype=torch.float32)
    loss(embeddings).backward()
    expected = 1e4 * math.exp(-x / 2) * -math.expm1(-x)
    assert embeddings.grad[0, 0].item() == pytest.approx(expected, rel=1e-5)


def test_delta_is_the_users_choice():
    loss = GradientRescaling(FirstColumn(), beta=0, lam=0, kind="softplus", delta=0.01)
    embeddings = column(1e-9)
    loss(embeddings).backward()
    assert embeddings.grad[0, 0].item() == pytest.approx(1 / 0.02)


def test_rounding_below_zero_does_no_harm():
    loss = GradientRescaling(FirstColumn(), kind="log-probability")
    assert loss(column(-1e-9)).isfinite()


def test_infinite_and_undefined_losses_pass_through():
    loss = GradientRescaling(FirstColumn(), kind="hinge")
    assert loss(column(math.nan)).isnan()
    assert loss(column(math.inf)).isinf()


@pytest.mark.parametrize("name", ["NormalizedSoftmaxLoss", "NTXentLoss", "ContrastiveLoss"])
def test_imae_is_the_member_with_lambda_one(name):
    embeddings, labels = kit.batch()
    a = kit.value_and_gradient(IMAE(kit.make(name), T=8), embeddings, labels)
    b = kit.value_and_gradient(GradientRescaling(kit.make(name), beta=8, lam=1), embeddings, labels)
    torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_weights_are_per_sample_so_a_repeated_batch_has_the_same_mean_gradient():
    embeddings, labels = kit.batch()
    loss = GradientRescaling(kit.make("NormalizedSoftmaxLoss"))
    once = kit.value_and_gradient(loss, embeddings, labels)[1]
    twice = torch.cat([embeddings, embeddings]).detach().requires_grad_()
    doubled = kit.value_and_gradient(loss, twice, torch.cat([labels, labels]))[1]
    torch.testing.assert_close(doubled[:12] + doubled[12:], once)


@pytest.mark.parametrize("name", ["NCALoss", "TripletMarginLoss", "MultiSimilarityLoss"])
def test_factors_are_constants_of_the_gradient(name):
    """The gradient is the average of factor times the plain gradients, with no other term."""
    embeddings, labels = kit.batch()
    plain = kit.make(name)
    loss = GradientRescaling(kit.make(name))
    _, gradient = kit.value_and_gradient(loss, embeddings, labels)
    losses = plain.compute_loss(embeddings, labels, None, embeddings, labels)["loss"]["losses"]
    losses = losses.flatten()
    w = loss.reducer.confidences["loss"].values
    factor = w if name == "TripletMarginLoss" else w / (2 * -torch.expm1(-losses.detach()))
    kept = losses > 0
    (expected,) = torch.autograd.grad((factor * losses)[kept].mean(), embeddings)
    torch.testing.assert_close(gradient, expected)


def test_a_log_probability_gets_the_length_w_at_its_logits():
    """The factor times the plain L1 at the logits, 2 (1 - p), is w."""
    beta, lam = 8.0, 0.5
    logits = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    logits.requires_grad_()
    losses = torch.nn.functional.cross_entropy(logits, torch.arange(5) % 4, reduction="none")
    loss = GradientRescaling(FirstColumn(), beta, lam, kind="log-probability")
    total = loss(torch.stack([losses, losses], 1)) * 5  # its reducer averages over 5
    (gradient,) = torch.autograd.grad(total, logits)
    p = torch.exp(-losses.detach())
    w = torch.exp(beta * p**lam * (1 - p))
    torch.testing.assert_close(gradient.abs().sum(1), w)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"beta": -1}, "`beta` must be in"),
        ({"lam": -0.5}, "`lam` must be in"),
        ({"g": "log"}, "`g` must be one of exp, identity"),
        ({"beta": 1000, "lam": 1}, "`beta`=1000 gives weights of up to e\\^250, beyond float32"),
        ({"delta": 0}, "`delta` must be in"),
        ({"kind": "softplus"}, "`kind` of NormalizedSoftmaxLoss is 'logits'; got 'softplus'"),
    ],
)
def test_impossible_settings_are_refused_and_change_nothing(kwargs, message):
    loss = kit.make("NormalizedSoftmaxLoss")
    before = (loss.reducer, loss.cross_entropy)
    with pytest.raises(InputError, match=message):
        GradientRescaling(loss, **kwargs)
    assert (loss.reducer, loss.cross_entropy) == before
    assert not loss._forward_pre_hooks


def test_a_loss_outside_the_catalogue_must_say_its_kind():
    with pytest.raises(InputError, match="does not know FirstColumn: pass `kind=`, one of logits"):
        GradientRescaling(FirstColumn())


@pytest.mark.parametrize("reducer", [reducers.MeanReducer, reducers.SumReducer])
def test_a_row_without_a_positive_has_no_gradient_and_spoils_none(reducer):
    points = torch.randn(7, 6, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 0, 0, 1, 2, 2, 2])
    gradients = []
    for dtype in (torch.float32, torch.float64):
        rows = points.clone().to(dtype).requires_grad_()
        loss = GradientRescaling(losses.SupConLoss(reducer=reducer()), beta=8.0, lam=0.5)
        loss(torch.nn.functional.normalize(rows), labels).backward()
        gradients.append(rows.grad.double())
    assert torch.isfinite(gradients[0]).all()
    assert torch.allclose(*gradients, rtol=1e-3, atol=1e-4)
