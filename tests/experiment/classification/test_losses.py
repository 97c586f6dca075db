"""The losses by name: against the formulas, and how much each trusts a label."""

import math

import pytest
import torch
from torch.nn import functional

from bspml.experiment.classification.losses import SampleLoss, plain_losses
from bspml.experiment.config.names import CLASS_LOSSES
from bspml.experiment.config.sample_loss import SampleLossConfig
from helpers.comparisons import gradient
from helpers.draws import logits_and_labels


def loss_of(name, classes=3, **settings):
    return SampleLoss(SampleLossConfig(name=name, **settings), classes)


@pytest.fixture
def batch():
    return logits_and_labels(rows=40, classes=3, scale=2.0)


def own_probability(outputs, targets):
    return outputs.softmax(1)[torch.arange(len(targets)), targets]


def test_every_loss_is_unreduced_and_finite_with_a_gradient(batch):
    for name in CLASS_LOSSES:
        assert loss_of(name)(*batch).shape == (40,)
        assert gradient(loss_of(name), *batch).isfinite().all(), name


def test_values_are_the_papers_formulas(batch):
    p = own_probability(*batch)
    torch.testing.assert_close(loss_of("ce")(*batch), -p.log())
    torch.testing.assert_close(loss_of("mae")(*batch), 2 - 2 * p)
    torch.testing.assert_close(loss_of("gce", q=0.5)(*batch), (1 - p**0.5) / 0.5)


@pytest.mark.parametrize(
    ("name", "settings", "weight"),
    [
        ("ce", {}, lambda p: 2 * (1 - p)),
        ("mae", {}, lambda p: 4 * p * (1 - p)),
        ("gce", {"q": 0.3}, lambda p: 2 * p**0.3 * (1 - p)),
        ("truncated-gce", {"q": 0.3, "k": 0.4}, lambda p: 2 * p**0.3 * (1 - p) * (p > 0.4)),
        ("imae", {"T": 8.0}, lambda p: torch.exp(8 * p * (1 - p))),
        ("gr", {"beta": 8.0, "lam": 0.5}, lambda p: torch.exp(8 * p.sqrt() * (1 - p))),
        ("gr", {"beta": 3.0, "g": "identity"}, lambda p: 3 * p.sqrt() * (1 - p)),
    ],
)
def test_the_weight_is_the_l1_norm_of_the_gradient_at_the_logits(batch, name, settings, weight):
    loss = loss_of(name, **settings)
    loss.epoch = 10  # truncated-gce truncates
    norms = gradient(loss, *batch).abs().sum(1)
    expected = weight(own_probability(*batch))
    torch.testing.assert_close(norms, expected)
    torch.testing.assert_close(loss.weights(*batch)[0].double(), expected, rtol=1e-5, atol=1e-6)


def test_truncation_begins_after_some_epochs_of_plain_gce(batch):
    loss = loss_of("truncated-gce", truncate_after=2)
    low = own_probability(*batch) <= 0.5
    assert low.any()
    loss.epoch = 1
    torch.testing.assert_close(loss(*batch), loss_of("gce")(*batch))
    for found, expected in zip(loss.weights(*batch), loss_of("gce").weights(*batch), strict=True):
        assert torch.equal(found, expected)
    loss.epoch = 2
    assert (loss.weights(*batch)[1][low] == 0).all()
    assert (gradient(loss, *batch)[low] == 0).all()
    assert (gradient(loss, *batch)[~low] != 0).any(1).all()


# --- trust ----------------------------------------------------------------------------------------


def logits_of(p):
    """(N, 2) logits whose first class has probability p."""
    return torch.stack([torch.logit(p), torch.zeros_like(p)], 1)


def test_cross_entropy_trusts_every_label(batch):
    assert (loss_of("ce").weights(*batch)[1] == 1).all()
    assert (loss_of("gr", beta=0.0).weights(*batch)[1] == 1).all()


@pytest.mark.parametrize("name", CLASS_LOSSES)
def test_trust_is_a_share_that_rises_with_the_probability_of_the_label(name):
    loss = loss_of(name, classes=2)
    p = torch.linspace(1e-4, 1 - 1e-4, 501, dtype=torch.float64)
    targets = torch.zeros(501, dtype=torch.int64)
    loss(logits_of(p), targets)  # tau learns
    trust = loss.weights(logits_of(p), targets)[1]
    assert ((trust >= 0) & (trust <= 1)).all()
    assert (trust.diff() >= 0).all()
    assert trust[-1] == 1


def test_trust_below_the_focus_is_the_weight_over_its_largest():
    # MAE: 4 p (1 - p), largest at p = 1/2; beyond it a sample is learnt, not doubted.
    p = torch.tensor([0.1, 0.25, 0.5, 0.9], dtype=torch.float64)
    trust = loss_of("mae", 2).weights(logits_of(p), torch.zeros(4, dtype=torch.int64))[1]
    torch.testing.assert_close(trust, torch.tensor([0.36, 0.75, 1.0, 1.0]))


def test_superloss_trust_is_the_confidence_capped_at_one(batch):
    loss = loss_of("superloss", tau=1.0, lam=0.5)
    losses = plain_losses("ce", *batch)
    sigma, trust = loss.weights(*batch)
    assert (sigma[losses < 1] > 1).all()
    assert (trust[losses < 1] == 1).all()
    torch.testing.assert_close(trust[losses > 1], sigma[losses > 1])


def test_a_plain_regression_trusts_every_target():
    values = torch.tensor([1.0, 2.0])
    both = SampleLoss(SampleLossConfig(name="mse"), 1).weights(values, values)
    assert [weights.tolist() for weights in both] == [[1, 1], [1, 1]]


# --- SuperLoss ------------------------------------------------------------------------------------


def test_superloss_multiplies_the_gradient_by_its_confidence(batch):
    loss = loss_of("superloss", tau="log-classes", lam=0.7)
    sigma = loss.weights(*batch)[0].double()
    plain = gradient(loss_of("ce"), *batch)
    torch.testing.assert_close(gradient(loss, *batch), sigma[:, None] * plain, rtol=1e-5, atol=1e-7)
    assert float(loss.tau) == pytest.approx(math.log(3))


@pytest.mark.parametrize("tau", ["ema", "mean"])
@pytest.mark.parametrize("scale", [0.01, 3.0, 1e4])
def test_homogeneity_lemma_with_a_running_tau(tau, scale):
    # Lemma 2 of the supplement: SL of (scale * loss, scale * lambda) is scale * SL, as tau follows.
    draw = torch.Generator().manual_seed(1)
    small = loss_of("superloss", 1, base="mse", tau=tau, lam=0.5)
    large = loss_of("superloss", 1, base="mse", tau=tau, lam=0.5 * scale)
    for _ in range(5):
        outputs, targets = torch.randn(2, 30, generator=draw, dtype=torch.float64)
        root = math.sqrt(scale)  # squared errors grow by `scale`
        expected = scale * small(outputs, targets)
        torch.testing.assert_close(large(root * outputs, root * targets), expected)
    weights = small.weights(outputs, targets)[0]
    torch.testing.assert_close(large.weights(root * outputs, root * targets)[0], weights)


def test_with_a_large_lambda_superloss_is_the_plain_loss_less_tau(batch):
    # Lemma 1 of the supplement.
    loss = loss_of("superloss", tau=0.5, lam=1e8)
    plain = plain_losses("ce", *batch)
    torch.testing.assert_close(loss(*batch), plain - 0.5, rtol=0, atol=1e-6)
    torch.testing.assert_close(
        gradient(loss, *batch), gradient(loss_of("ce"), *batch), rtol=1e-6, atol=1e-7
    )


def test_tau_learns_in_train_mode_only_and_is_saved(batch):
    loss = loss_of("superloss")
    loss(*batch)
    learnt = float(loss.tau)
    loss.eval()(batch[0] * 5, batch[1])
    loss.weights(batch[0] * 5, batch[1])
    assert float(loss.tau) == learnt
    other = loss_of("superloss")
    other.load_state_dict(loss.state_dict())
    assert float(other.tau) == learnt


@pytest.mark.parametrize("name", ["mse", "smooth-l1"])
def test_regression_losses_are_torchs(name):
    outputs, targets = torch.tensor([0.0, 3.0, 1.0]), torch.tensor([0.5, 0.0, 1.0])
    wanted = {"mse": functional.mse_loss, "smooth-l1": functional.smooth_l1_loss}[name]
    loss = SampleLoss(SampleLossConfig(name=name), 1)
    torch.testing.assert_close(loss(outputs, targets), wanted(outputs, targets, reduction="none"))
    torch.testing.assert_close(loss.plain(outputs, targets), loss(outputs, targets))


def test_half_precision_is_computed_in_float32():
    outputs = torch.tensor([[20.0, -20.0], [0.0, 1.0]], dtype=torch.bfloat16)
    for name in CLASS_LOSSES:
        assert loss_of(name, 2)(outputs, torch.tensor([1, 0])).dtype == torch.float32, name
