import math

import pytest
import torch
from pytorch_metric_learning.losses import BaseMetricLossFunction, MultiSimilarityLoss
from pytorch_metric_learning.regularizers import LpRegularizer, RegularFaceRegularizer

from bspml.errors import InputError, SampleIndexError
from bspml.losses.bspml_loss import BSPMLLoss
from bspml.losses.miners.bspml_miner import BSPMLMiner
from bspml.losses.pairs import prepare_batch
from bspml.losses.reducers import GradientRescaling, SuperLoss
from bspml.weights.batch import look_up
from bspml.weights.state import SampleWeights
from helpers import reducer_kit as kit

N = 30  # samples of the data set; the batch is 12 of them
ROWS = torch.randperm(N, generator=torch.Generator().manual_seed(5))[:12]


def table():
    labels = torch.arange(N) % 4
    labels[ROWS] = torch.arange(12) // 3  # those of the batch
    weights = SampleWeights(labels)
    weights.update(torch.rand(N, generator=torch.Generator().manual_seed(1)))
    return weights


# ---------------------------------------------------------------------- the product rule


@pytest.mark.parametrize("name", ["MultiSimilarityLoss", "NTXentLoss", "TripletMarginLoss"])
@pytest.mark.parametrize("wrapper", [SuperLoss, GradientRescaling])
def test_sample_weights_multiply_beside_the_confidence(name, wrapper):
    """An element by w_i, a pair by w_a w_p, a triplet by w_a w_p w_n; the divisor follows."""
    embeddings, labels = kit.batch()
    weights = table()
    settings = {"tau": 0.3} if wrapper is SuperLoss else {}
    bare = wrapper(kit.make(name), **settings)
    bare.reducer.eval()
    bare(embeddings, labels)
    loss = wrapper(kit.make(name), sample_weights=weights, **settings)
    value = loss(embeddings, labels, sample_index=ROWS)
    seen = loss.reducer.confidences["loss"]
    terms = kit.elements(kit.make(name), embeddings, labels)["loss"]
    product = torch.stack([weights.weights[ROWS][rows] for rows in seen.indices]).prod(0)
    sigma = bare.reducer.confidences["loss"].values
    torch.testing.assert_close(seen.values, sigma)  # the confidence judges the loss alone
    if wrapper is SuperLoss:
        each = sigma * (terms - 0.3) + 0.25 * sigma.log() ** 2
    else:
        each = sigma * terms
        if loss.reducer.kind != "hinge":
            each = each / (2 * -torch.expm1(-terms)).clamp(min=2e-4)
    kept = terms > 0 if name == "TripletMarginLoss" else torch.ones_like(terms, dtype=torch.bool)
    product = product[kept].double()
    torch.testing.assert_close(value.detach(), (product * each[kept]).sum() / product.sum())


def test_tau_is_the_weighted_mean():
    embeddings, labels = kit.batch()
    weights = table()
    loss = SuperLoss(kit.make("NCALoss"), sample_weights=weights)
    terms = kit.elements(loss, embeddings, labels)["loss"]
    loss(embeddings, labels, sample_index=ROWS)
    w = weights.weights[ROWS].double()
    assert loss.reducer.tau.item() == pytest.approx((w * terms).sum().item() / w.sum().item())


def test_the_index_may_be_announced_instead():
    embeddings, labels = kit.batch()
    weights = table()
    loss = SuperLoss(kit.make("MultiSimilarityLoss"), tau=0.3, sample_weights=weights)
    told = loss(embeddings, labels, sample_index=ROWS)
    weights.set_batch(ROWS)
    assert torch.equal(loss(embeddings, labels), told)


def test_references_have_the_weights_of_their_own_rows():
    embeddings, labels = kit.batch()
    references, ref_labels = kit.batch(rows=8, seed=9)
    weights = table()
    loss = SuperLoss(kit.make("NTXentLoss"), tau=0.3, sample_weights=weights)
    call = (embeddings, labels, None, references, ref_labels)

    def product(value):
        seen = loss.reducer.confidences["loss"]
        losses = kit.make("NTXentLoss").compute_loss(*call)["loss"]["losses"].detach()
        each = seen.values * (losses - 0.3) + 0.25 * seen.values.log() ** 2
        return seen.indices, each, value.detach()

    pairs, each, value = product(loss(*call, sample_index=ROWS))
    w = weights.weights.double()
    own = w[ROWS][pairs[0]]
    torch.testing.assert_close(value, (own * each).sum() / own.sum())  # references weigh 1
    rows = torch.arange(8)
    pairs, each, value = product(loss(*call, sample_index=ROWS, ref_sample_index=rows))
    both = own * w[rows][pairs[1]]
    torch.testing.assert_close(value, (both * each).sum() / both.sum())


def test_a_missing_or_unfitting_index_is_refused():
    embeddings, labels = kit.batch()
    loss = SuperLoss(kit.make("NCALoss"), sample_weights=table())
    before = {k: v.clone() for k, v in loss.state_dict().items()}
    with pytest.raises(SampleIndexError, match="sample_index="):
        loss(embeddings, labels)
    with pytest.raises(InputError, match=r"\(12,\) like the embeddings; got \(3,\)"):
        loss(embeddings, labels, sample_index=[0, 1, 2])
    with pytest.raises(SampleIndexError, match=r"must lie in \[0, 30\)"):
        loss(embeddings, labels, sample_index=ROWS + 30)
    assert all(torch.equal(v, before[k]) for k, v in loss.state_dict().items())


def test_an_index_without_weights_is_refused():
    embeddings, labels = kit.batch()
    loss = SuperLoss(kit.make("NCALoss"))
    with pytest.raises(InputError, match="`sample_index` names rows of the sample weights"):
        loss(embeddings, labels, sample_index=ROWS)


# ---------------------------------------------------------------------- losses with weights


@pytest.mark.parametrize("weighting", ["inside", "paper"])
def test_a_bspml_loss_has_its_weights_applied_once(weighting):
    embeddings, labels = kit.batch()
    weights = table()
    plain = BSPMLLoss(weights, weighting=weighting)
    value, gradient = kit.value_and_gradient(plain, embeddings, labels, sample_index=ROWS)
    loss = SuperLoss(BSPMLLoss(weights, weighting=weighting), lam=1e12, tau=0.0)
    ours, our_gradient = kit.value_and_gradient(loss, embeddings, labels, sample_index=ROWS)
    torch.testing.assert_close(ours, value)
    torch.testing.assert_close(our_gradient, gradient)


def test_a_bspml_loss_is_judged_without_its_weight():
    embeddings, labels = kit.batch()
    weights = table()
    loss = SuperLoss(BSPMLLoss(weights), tau=0.3)
    value = loss(embeddings, labels, sample_index=ROWS)
    w = weights.weights[ROWS].double()
    weighted = BSPMLLoss(weights).element_losses  # w_i x_i
    batch = prepare_batch(embeddings, labels, None, None)
    terms = weighted(batch, None, look_up(weights, embeddings, None, ROWS))["loss"]["losses"]
    bare = (terms / w).detach()
    sigma = loss.reducer.confidences["loss"].values
    expected = (w * (sigma * (bare - 0.3) + 0.25 * sigma.log() ** 2)).sum() / w.sum()
    torch.testing.assert_close(value.detach(), expected)


def test_weight_zero_is_the_same_as_leaving_the_sample_out():
    embeddings, labels = kit.batch()
    weights = SampleWeights(torch.arange(12) // 3)
    w = torch.ones(12)
    w[[2, 7]] = 0
    weights.update(w)
    rows = torch.arange(12)
    loss = SuperLoss(BSPMLLoss(weights))
    value = loss(embeddings, labels, sample_index=rows)
    left = w > 0
    rest = SuperLoss(BSPMLLoss(weights))
    expected = rest(embeddings[left], labels[left], sample_index=rows[left])
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(loss.reducer.tau, rest.reducer.tau)


def test_all_weights_zero_gives_zero_with_a_gradient():
    embeddings, labels = kit.batch()
    weights = SampleWeights(labels)
    weights.update(torch.zeros(12))
    for loss in (
        SuperLoss(BSPMLLoss(weights)),
        SuperLoss(kit.make("NCALoss"), sample_weights=weights),
    ):
        value, gradient = kit.value_and_gradient(
            loss, embeddings, labels, sample_index=torch.arange(12)
        )
        assert value == 0
        assert torch.equal(gradient, torch.zeros_like(gradient))


def test_another_table_than_the_losses_own_is_refused():
    loss = BSPMLLoss(table())
    with pytest.raises(InputError, match="must be the table the loss has already"):
        SuperLoss(loss, sample_weights=table())


# ---------------------------------------------------------------------- nothing to transform


@pytest.mark.parametrize(
    "name", ["MultiSimilarityLoss", "ContrastiveLoss", "TripletMarginLoss", "MarginLoss"]
)
@pytest.mark.parametrize("wrapper", [SuperLoss, GradientRescaling])
def test_a_miner_that_finds_nothing_gives_zero_with_a_gradient(name, wrapper):
    embeddings, labels = kit.batch()
    none = tuple(torch.zeros(0, dtype=torch.long) for _ in range(4))
    loss = wrapper(kit.make(name))
    value, gradient = kit.value_and_gradient(loss, embeddings, labels, none)
    assert value == 0
    assert not gradient.any()
    if wrapper is SuperLoss:
        taus = loss.reducer.tau
        values = list(taus.values()) if isinstance(taus, dict) else [taus]
        assert all(math.isnan(tau) for tau in values)


@pytest.mark.parametrize("name", ["NormalizedSoftmaxLoss", "ArcFaceLoss"])
@pytest.mark.parametrize("wrapper", [SuperLoss, GradientRescaling])
def test_regularisers_are_added_untouched(name, wrapper):
    embeddings, labels = kit.batch()
    bare = wrapper(kit.make(name))(embeddings, labels)
    regularised = kit.make(
        name,
        embedding_regularizer=LpRegularizer(),
        embedding_reg_weight=0.1,
        weight_regularizer=RegularFaceRegularizer(),
    )
    extra = 0.1 * embeddings.norm(dim=1).mean() + RegularFaceRegularizer()(regularised.W.t())
    torch.testing.assert_close(wrapper(regularised)(embeddings, labels), bare + extra)


@pytest.mark.parametrize("num_classes", [None, 4])
def test_a_learned_beta_keeps_its_regulariser(num_classes):
    embeddings, labels = kit.batch()
    settings = {"learn_beta": True, "num_classes": num_classes}
    free = SuperLoss(kit.make("MarginLoss", nu=0.0, **settings), tau=0.5)(embeddings, labels)
    loss = kit.make("MarginLoss", nu=0.3, **settings)
    plain = loss(embeddings, labels) - kit.make("MarginLoss", nu=0.0, **settings)(
        embeddings, labels
    )
    torch.testing.assert_close(SuperLoss(loss, tau=0.5)(embeddings, labels) - free, plain)


def test_already_reduced_values_of_an_unknown_loss_are_refused_when_they_come():
    class Mine(BaseMetricLossFunction):
        def compute_loss(self, embeddings, *_):
            value = embeddings.mean()
            return {"loss": {"losses": value, "indices": None, "reduction_type": "already_reduced"}}

    loss = SuperLoss(Mine())
    with pytest.raises(InputError, match=r"`loss` \(Mine\) returned 'loss' as 'already_reduced'"):
        loss(kit.batch()[0])


# ---------------------------------------------------------------------- numbers


@pytest.mark.parametrize(
    "name", ["MultiSimilarityLoss", "ContrastiveLoss", "NormalizedSoftmaxLoss"]
)
@pytest.mark.parametrize("wrapper", [SuperLoss, GradientRescaling])
def test_under_autocast_the_loss_is_that_of_float32(name, wrapper):
    embeddings, labels = kit.batch(dtype=torch.float32)
    expected = wrapper(kit.make(name).float())(embeddings, labels)
    with torch.autocast("cpu", torch.bfloat16):
        value, gradient = kit.value_and_gradient(
            wrapper(kit.make(name).float()), embeddings, labels
        )
    assert gradient.isfinite().all()
    # The similarities are bfloat16: 8 bits, and a rescaled loss multiplies their error.
    torch.testing.assert_close(value.float(), expected.detach(), rtol=0.1, atol=0.02)


@pytest.mark.parametrize("name", ["MultiSimilarityLoss", "CircleLoss", "TupletMarginLoss"])
def test_the_order_of_the_batch_does_not_matter(name):
    embeddings, labels = kit.batch()
    order = torch.randperm(12, generator=torch.Generator().manual_seed(2))
    a = SuperLoss(kit.make(name))(embeddings, labels)
    b = SuperLoss(kit.make(name))(embeddings[order], labels[order])
    torch.testing.assert_close(a, b)


# ---------------------------------------------------------------------- confidences


def test_the_confidences_of_the_last_batch_name_their_samples():
    embeddings, labels = kit.batch()
    loss = SuperLoss(kit.make("ContrastiveLoss"), sample_weights=table())
    loss(embeddings, labels, sample_index=ROWS)
    seen = loss.reducer.confidences
    assert set(seen) == {"pos_loss", "neg_loss"}
    positive = seen["pos_loss"]
    assert positive.indices.shape == (2, len(positive.values))
    assert torch.equal(labels[positive.indices[0]], labels[positive.indices[1]])
    assert torch.equal(positive.sample_index, ROWS[positive.indices[0]])
    assert not positive.values.requires_grad


def test_the_table_holds_the_mean_confidence_of_every_sample_met():
    embeddings, labels = kit.batch()
    loss = SuperLoss(kit.make("NTXentLoss"), tau=0.3, sample_weights=table())
    loss(embeddings, labels, sample_index=ROWS)
    seen = loss.reducer.confidences["loss"]
    sums: dict[int, list[float]] = {}
    for value, rows in zip(seen.values, seen.indices.T, strict=True):
        for row in rows:
            sums.setdefault(int(ROWS[row]), []).append(float(value))
    expected = torch.full((N,), math.nan)
    for sample, values in sums.items():
        expected[sample] = sum(values) / len(values)
    found = loss.reducer.sample_confidences()
    torch.testing.assert_close(found, expected, equal_nan=True)
    as_weights = loss.reducer.as_weights()
    assert ((as_weights >= 0) & (as_weights <= 1)).all()
    assert (as_weights[expected.isnan()] == 1).all()
    torch.testing.assert_close(as_weights[ROWS], expected[ROWS].clamp(max=1))  # usual: 1
    assert (expected[ROWS] > 1).any()
    assert (expected[ROWS] < 1).any()
    SampleWeights(torch.arange(N) % 4).update(as_weights)  # what audit and report take


def test_a_memory_of_unknown_rows_leaves_no_trace_in_the_table():
    embeddings, labels = kit.batch()
    references, ref_labels = kit.batch(rows=8, seed=9)
    loss = SuperLoss(kit.make("NTXentLoss"), tau=0.3, sample_weights=table())
    loss(embeddings, labels, None, references, ref_labels, sample_index=ROWS)
    met = loss.reducer.sample_confidences().isfinite().nonzero().flatten()
    assert set(met.tolist()) <= set(ROWS.tolist())


def test_gradient_rescaling_fills_the_table_too():
    embeddings, labels = kit.batch()
    loss = GradientRescaling(kit.make("NormalizedSoftmaxLoss"), sample_weights=table())
    loss(embeddings, labels, sample_index=ROWS)
    plain = kit.elements(kit.make("NormalizedSoftmaxLoss"), embeddings, labels)["loss"]
    p = torch.exp(-plain)
    w = torch.exp(8 * p.sqrt() * (1 - p))
    torch.testing.assert_close(loss.reducer.sample_confidences()[ROWS], w.float())
    peak = math.exp(8 * (1 / 3) ** 0.5 * (2 / 3))
    torch.testing.assert_close(loss.reducer.as_weights()[ROWS], (w / peak).float())


def test_without_sample_weights_there_is_no_table():
    loss = SuperLoss(kit.make("NCALoss"))
    with pytest.raises(InputError, match="wrap the loss with `sample_weights="):
        loss.reducer.sample_confidences()


def test_noisy_samples_end_with_the_lower_confidence():
    """Two clouds, a tenth of the labels wrong: the table ranks the wrong ones last."""
    generator = torch.Generator().manual_seed(0)
    true = torch.arange(60) % 2
    labels = true.clone()
    labels[:6] = 1 - labels[:6]
    embeddings = torch.nn.functional.one_hot(true, 2) + 0.3 * torch.randn(
        60, 2, generator=generator
    )
    weights = SampleWeights(labels)
    loss = SuperLoss(MultiSimilarityLoss(), sample_weights=weights)
    miner = BSPMLMiner(weights, epsilon=2.0)
    rows = torch.arange(60)
    loss(embeddings, labels, miner(embeddings, labels, sample_index=rows), sample_index=rows)
    confidences = loss.reducer.sample_confidences()
    assert confidences[:6].max() < confidences[6:].median()
