"""The compared losses against their formulas and against pytorch-metric-learning."""

import pytest
import torch
from pytorch_metric_learning import losses as pml_losses
from pytorch_metric_learning.distances import LpDistance

from bspml import methods
from bspml.errors import InputError
from bspml.experiment.methods import MethodContext
from helpers.method_formulas import CLASSES, ROWS, WIDTH, assert_same, batch, build, unit

EXACT = {"rtol": 0, "atol": 1e-12}


def pairs(labels, same):
    n = len(labels)
    return [
        (i, j) for i in range(n) for j in range(n) if i != j and (labels[i] == labels[j]) == same
    ]


def triplets(labels):
    n = len(labels)
    return [
        (a, p, k)
        for a in range(n)
        for p in range(n)
        for k in range(n)
        if a != p and labels[a] == labels[p] and labels[a] != labels[k]
    ]


def mean_above_0(values):
    active = [value for value in values if value > 0]
    return torch.stack(active).mean() if active else torch.zeros((), dtype=torch.float64)


@pytest.mark.parametrize("margins", [(1.0, 0.0), (0.8, 0.1)])
def test_contrastive_is_the_hinges_of_cosine_similarities(margins):
    emb, labels = batch()
    s = unit(emb) @ unit(emb).T
    expected = mean_above_0([margins[0] - s[i, j] for i, j in pairs(labels, True)])
    expected = expected + mean_above_0([s[i, j] - margins[1] for i, j in pairs(labels, False)])
    loss = build("contrastive-paper", pos_margin=margins[0], neg_margin=margins[1]).loss
    assert_same(loss(emb, labels), expected, emb)


def test_contrastive_is_the_hinges_of_distances():
    emb, labels = batch()
    x = unit(emb)
    d = {(i, j): (x[i] - x[j]).norm() for i in range(ROWS) for j in range(ROWS) if i != j}
    expected = mean_above_0([d[pair] for pair in pairs(labels, True)])
    expected = expected + mean_above_0([1 - d[pair] for pair in pairs(labels, False)])
    assert_same(build("contrastive").loss(emb, labels), expected, emb)


def test_snr_is_the_hinges_of_the_variance_ratios():
    emb, labels = batch()
    x = unit(emb)
    d = {(i, j): (x[i] - x[j]).var() / x[i].var() for i in range(ROWS) for j in range(ROWS)}
    expected = mean_above_0([d[pair] for pair in pairs(labels, True)])
    expected = expected + mean_above_0([2 - d[pair] for pair in pairs(labels, False)])
    assert_same(build("snr").loss(emb, labels), expected, emb)


def test_snr_is_twice_contrastive_on_centred_embeddings():
    # var(x - y) / var(x) = |x - y|^2 / |x|^2 = 2 - 2 s for rows of mean 0 and norm 1.
    emb, labels = batch()
    emb = (emb - emb.mean(1, keepdim=True)).detach()
    contrastive = build("contrastive-paper").loss(emb, labels)
    torch.testing.assert_close(build("snr").loss(emb, labels), 2 * contrastive, **EXACT)


@pytest.mark.parametrize("name", ["contrastive-paper", "snr"])
def test_the_printed_margins_as_distances_would_never_push(name):
    # Why the margins are read as similarities: both signs of every negative are felt here.
    emb, labels = batch()
    kinds = {
        "contrastive-paper": pml_losses.ContrastiveLoss,
        "snr": pml_losses.SignalToNoiseRatioContrastiveLoss,
    }
    literal = kinds[name](pos_margin=1, neg_margin=0)
    negatives = [torch.tensor(rows) for rows in zip(*pairs(labels, False), strict=True)]
    none = torch.zeros(0, dtype=torch.int64)
    only_negatives = (none, none, *negatives)
    assert literal(emb, labels, only_negatives) == 0
    assert build(name).loss(emb, labels, only_negatives) > 0


def test_snr_can_ask_for_embeddings_of_mean_0():
    emb, labels = batch()
    plain, regularised = build("snr"), build("snr", zero_mean_weight=0.5)
    extra = 0.5 * emb.sum(1).abs().mean()
    expected = plain.loss(emb, labels) + extra
    torch.testing.assert_close(regularised.loss(emb, labels), expected, **EXACT)


@pytest.mark.parametrize("margin", [0.0, 0.1])
def test_smooth_triplets_are_softplus_of_the_distances(margin):
    emb, labels = batch()
    x = unit(emb)
    values = [
        torch.log1p(torch.exp((x[a] - x[p]).norm() - (x[a] - x[n]).norm() + margin))
        for a, p, n in triplets(labels)
    ]
    value = build("triplet-smooth", margin=margin).loss(emb, labels)
    assert_same(value, torch.stack(values).mean(), emb)


def test_margin_is_the_hinges_on_both_sides_of_the_boundary():
    emb, labels = batch()
    parts = build("margin")
    found = parts.miner(emb, labels)
    assert len(found[0]) > 0
    x = unit(emb)
    total, active = 0, 0
    for a, p, n in zip(*(t.tolist() for t in found), strict=True):
        for term in (
            torch.relu((x[a] - x[p]).norm() - 1.2 + 0.2),
            torch.relu(1.2 - (x[a] - x[n]).norm() + 0.2),
        ):
            total, active = total + term, active + int(term > 0)
    # pytorch-metric-learning holds the boundary in float32.
    assert_same(parts.loss(emb, labels, found), total / active, emb, tolerance=1e-7)
    assert parts.miner.nonzero_loss_cutoff == pytest.approx(1.4)


def test_margin_draws_other_triplets_for_another_seed():
    emb, labels = batch()
    drawn = [
        methods.build("margin", MethodContext(CLASSES, WIDTH, seed=seed)).miner(emb, labels)
        for seed in (0, 0, 1)
    ]
    same = [all(map(torch.equal, drawn[0], other)) for other in drawn[1:]]
    assert same == [True, False]


def test_margin_can_learn_its_boundary():
    emb, labels = batch()
    assert not build("margin").loss_has_parameters
    parts = build("margin", learn_beta=True, beta_per_class=True, nu=0.1)
    assert parts.loss_has_parameters
    assert parts.loss.beta.shape == (CLASSES,)
    parts.loss(emb, labels, parts.miner(emb, labels)).backward()
    assert parts.loss.beta.grad.abs().sum() > 0
    for unread in ({"nu": 0.1}, {"beta_per_class": True}):
        with pytest.raises(InputError, match=r"nothing reads it while `hyper\.learn_beta` is"):
            build("margin", **unread)


def test_fast_ap_is_one_minus_the_histogram_precision():
    emb, labels = batch()
    x, bins = unit(emb), 10
    values = []
    for i in range(ROWS):
        positive, everyone = torch.zeros(bins + 1), torch.zeros(bins + 1)
        positive, everyone = positive.double(), everyone.double()
        for j in range(ROWS):
            if i != j:
                place = (x[i] - x[j]).square().sum() / (4 / bins)
                soft = torch.relu(1 - (place - torch.arange(bins + 1)).abs())
                everyone = everyone + soft
                positive = positive + soft * (labels[i] == labels[j])
        terms = positive * positive.cumsum(0) / everyone.cumsum(0).clamp(min=1e-300)
        values.append(1 - terms.sum() / (labels == labels[i]).sum().sub(1))
    assert_same(build("fast-ap").loss(emb, labels), torch.stack(values).mean(), emb)


def test_rdml_has_the_margin_and_the_squared_distance_of_its_paper():
    emb, labels = batch()
    hinge = pml_losses.TripletMarginLoss(margin=1.0, distance=LpDistance(power=2))
    torch.testing.assert_close(build("rdml", eta=0).loss(emb, labels), hinge(emb, labels), **EXACT)
    assert build("rdml").loss(emb, labels) < hinge(emb, labels)


def masks(labels):
    same = labels[:, None] == labels
    return same & ~torch.eye(len(labels), dtype=torch.bool), ~same


def test_supcon_is_the_mean_over_positives_of_their_log_shares():
    emb, labels = batch()
    s, (positive, negative) = unit(emb) @ unit(emb).T / 0.2, masks(labels)
    every = positive | negative
    values = [
        torch.stack(
            [s[i][every[i]].exp().sum().log() - s[i, p] for p in positive[i].nonzero()]
        ).mean()
        for i in range(ROWS)
    ]
    assert_same(build("supcon", temperature=0.2).loss(emb, labels), sum(values) / ROWS, emb)


def test_ntxent_is_each_positive_s_share_beside_the_negatives():
    emb, labels = batch()
    e, (positive, negative) = (unit(emb) @ unit(emb).T / 0.1).exp(), masks(labels)
    values = [-(e[i, p] / (e[i, p] + e[i][negative[i]].sum())).log() for i, p in positive.nonzero()]
    assert_same(build("ntxent").loss(emb, labels), sum(values) / len(values), emb)


def test_circle_paces_each_pair_by_its_distance_to_its_goal():
    emb, labels = batch()
    s, (positive, negative) = unit(emb) @ unit(emb).T, masks(labels)
    held = s.detach()
    pull = -80 * (1.4 - held).clamp(min=0) * (s - 0.6)
    push = 80 * (held + 0.4).clamp(min=0) * (s - 0.4)
    values = [
        torch.log1p(pull[i][positive[i]].exp().sum() * push[i][negative[i]].exp().sum())
        for i in range(ROWS)
    ]
    assert_same(build("circle").loss(emb, labels), sum(values) / ROWS, emb)
