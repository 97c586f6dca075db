"""Weights around every loss: absence, the loss itself at 1, what lies between, compositions."""

import warnings

import pytest
import pytorch_metric_learning.losses as pml_losses
import torch
from pytorch_metric_learning import miners, reducers
from pytorch_metric_learning.utils.distributed import DistributedLossWrapper

import bspml
from bspml.errors import InputError, SampleIndexError
from bspml.losses.bspml_loss import BSPMLLoss
from bspml.losses.filtered import FilteredLoss
from bspml.losses.reducers import GradientRescaling, SuperLoss
from bspml.losses.reducers.catalogue import CATALOGUE
from bspml.losses.weighted import Weighted
from helpers import reducer_kit as kit

EXACT = 1e-12
TAKEN = [name for name, entry in CATALOGUE.items() if not entry.refused_weights]
FRACTIONAL = [name for name in TAKEN if CATALOGUE[name].weighting != "exclude"]
EXCLUDING = [name for name in TAKEN if CATALOGUE[name].weighting == "exclude"]
# In their values a sample's weight is found nowhere but in front: each couples all samples of the
# batch in a way of its own (a histogram, a mean, a softmax over the batch).
COUPLED = {"FastAPLoss", "InstanceLoss", "IntraPairVarianceLoss", "NPairsLoss", "RankedListLoss"}
# Divides by the number of hinges above 0, of which a triplet has two.
HINGES = {"MarginLoss"}
UNLABELLED = {"ManifoldLoss"}
ABSENT = [0, 5, 11]
ROWS = torch.arange(12)


def table(labels, weights):
    made = bspml.SampleWeights(labels)
    made.update(weights)
    return made


def without(value=0.0, rest=1.0, rows=ABSENT):
    weights = torch.full((12,), rest, dtype=torch.float64)
    weights[rows] = value
    return weights


def call(loss, embeddings, labels, *args, name="", **kwargs):
    """Value and gradient; some losses draw at random, and one takes no labels."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # HistogramLoss indexes by a list
        labels = None if name in UNLABELLED else labels
        return kit.value_and_gradient(loss, embeddings, labels, *args, **kwargs)


@pytest.mark.parametrize("name", TAKEN)
def test_weight_0_is_absence(name):
    embeddings, labels = kit.batch()
    keep = without() > 0
    loss = Weighted(kit.make(name), table(labels, without()))
    value, gradient = call(loss, embeddings, labels, name=name, sample_index=ROWS)
    rest = embeddings.detach()[keep].requires_grad_()
    expected, its_gradient = call(kit.make(name), rest, labels[keep], name=name)
    assert expected != 0
    torch.testing.assert_close(value, expected, rtol=EXACT, atol=EXACT)
    torch.testing.assert_close(gradient[keep], its_gradient, rtol=EXACT, atol=EXACT)
    assert (gradient[~keep] == 0).all()


@pytest.mark.parametrize("name", [n for n in TAKEN if n != "BSPMLLoss"])
def test_weights_of_1_are_the_loss_itself(name):
    embeddings, labels = kit.batch()
    loss = Weighted(kit.make(name), bspml.SampleWeights(labels))
    value, gradient = call(loss, embeddings, labels, name=name, sample_index=ROWS)
    expected, its_gradient = call(kit.make(name), embeddings, labels, name=name)
    assert torch.equal(value, expected)
    assert torch.equal(gradient, its_gradient)


@pytest.mark.parametrize("name", [n for n in FRACTIONAL if n not in COUPLED | HINGES])
def test_a_vanishing_weight_tends_to_absence(name):
    embeddings, labels = kit.batch()
    gone = Weighted(kit.make(name), table(labels, without(0.0)))
    nearly = Weighted(kit.make(name), table(labels, without(1e-30)))
    for one, other in zip(
        call(gone, embeddings, labels, sample_index=ROWS),
        call(nearly, embeddings, labels, sample_index=ROWS),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", [n for n in FRACTIONAL if not CATALOGUE[n].log_sum])
def test_equal_weights_change_no_mean(name):
    embeddings, labels = kit.batch()
    halves = Weighted(kit.make(name), table(labels, without(rest=0.5, rows=[])))
    ours = call(halves, embeddings, labels, sample_index=ROWS)
    theirs = call(kit.make(name), embeddings, labels)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=EXACT, atol=EXACT)


@pytest.mark.parametrize("name", [n for n in FRACTIONAL if not CATALOGUE[n].log_sum])
def test_values_are_multiplied_and_the_divisor_follows(name):
    """Against a loop over the values, by the meaning of the loss's own reducer."""
    embeddings, labels = kit.batch()
    weights = torch.linspace(0.1, 1, 12, dtype=torch.float64)
    loss = kit.make(name)
    terms = loss.compute_loss(embeddings, labels, None, embeddings, labels)
    drops = type(loss.get_default_reducer()).__name__ == "AvgNonZeroReducer"
    expected = 0.0
    for key in CATALOGUE[name].sub_losses:
        given = terms[key]["indices"]
        rows = [given] if isinstance(given, torch.Tensor) else list(given)
        total = count = n = 0.0
        for i, value in enumerate(terms[key]["losses"].flatten()):
            factor = 1.0
            for r in rows:
                factor *= weights[r[i]].float().double()
            if value > 0 or not (drops or CATALOGUE[name].active_only):
                total, count, n = total + factor * value, count + factor, n + 1
        divisor = terms[key]["divisor"] if name in HINGES else n
        expected = expected + total / count * n / divisor
    weighted = Weighted(kit.make(name), table(labels, weights))
    value, _ = call(weighted, embeddings, labels, sample_index=ROWS)
    torch.testing.assert_close(value, expected.detach(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", EXCLUDING)
def test_losses_that_only_leave_out_refuse_weights_between(name):
    embeddings, labels = kit.batch()
    loss = Weighted(kit.make(name), table(labels, without(0.5)))
    with pytest.raises(InputError, match=f"{name} takes weights 0 and 1 only.*samples 0, 5, 11"):
        call(loss, embeddings, labels, name=name, sample_index=ROWS)


@pytest.mark.parametrize("name", ["SmoothAPLoss", "VICRegLoss"])
def test_losses_without_samples_to_leave_out_are_refused_by_name(name):
    with pytest.raises(InputError, match=f"Weighted cannot go around {name}: it "):
        Weighted(kit.make(name), bspml.SampleWeights([0, 1]))


@pytest.mark.parametrize("name", [n for n in FRACTIONAL if n != "BSPMLLoss"])
@pytest.mark.parametrize("wrap", [SuperLoss, GradientRescaling])
def test_superloss_inside_and_outside_are_one(name, wrap):
    if wrap is GradientRescaling and CATALOGUE[name].refused_gr:
        return
    embeddings, labels = kit.batch()
    weights = table(labels, without(rest=0.7))
    inside = Weighted(wrap(kit.make(name)), weights)
    outside = wrap(Weighted(kit.make(name), weights))
    assert outside.loss.reducer is not None
    one = call(inside, embeddings, labels, sample_index=ROWS)
    other = call(outside, embeddings, labels, sample_index=ROWS)
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    plain = call(Weighted(kit.make(name), weights), embeddings, labels, sample_index=ROWS)
    assert not torch.equal(one[1], plain[1])


@pytest.mark.parametrize("name", ["SupConLoss", "ContrastiveLoss", "ArcFaceLoss"])
def test_weight_0_is_absence_under_superloss(name):
    embeddings, labels = kit.batch()
    keep = without() > 0
    weights = table(labels, without())
    loss = Weighted(SuperLoss(kit.make(name), sample_weights=weights), weights)
    value, gradient = call(loss, embeddings, labels, sample_index=ROWS)
    rest = embeddings.detach()[keep].requires_grad_()
    expected, its_gradient = call(SuperLoss(kit.make(name)), rest, labels[keep])
    torch.testing.assert_close(value, expected, rtol=EXACT, atol=EXACT)
    torch.testing.assert_close(gradient[keep], its_gradient, rtol=EXACT, atol=EXACT)
    assert loss.loss.reducer.sample_confidences().isnan().nonzero()[:, 0].tolist() == ABSENT


@pytest.mark.parametrize("name", ["ContrastiveLoss", "SupConLoss", "TripletMarginLoss"])
def test_references_of_weight_0_are_absent_too(name):
    embeddings, labels = kit.batch(rows=8)
    ref_emb, ref_labels = (x.detach() for x in kit.batch(rows=8, seed=3))
    weights = table(torch.cat([labels, ref_labels]), [0, 1, 1, 1, 1, 1, 1, 1, *[1, 0] * 4])
    value, _ = call(
        Weighted(kit.make(name), weights), embeddings, labels, None, ref_emb, ref_labels,
        sample_index=torch.arange(8), ref_sample_index=torch.arange(8, 16),
    )  # fmt: skip
    expected, _ = call(kit.make(name), embeddings, labels, None, ref_emb, ref_labels)
    assert value != expected
    left = embeddings[1:], labels[1:], None, ref_emb[::2], ref_labels[::2]
    assert value == kit.make(name)(*left)


def test_a_miner_s_pairs_lose_those_of_absent_samples():
    embeddings, labels = kit.batch()
    keep = without() > 0
    pairs = miners.TripletMarginMiner(margin=0.5)(embeddings, labels)
    weighted = Weighted(kit.make("TripletMarginLoss"), table(labels, without()))
    with pytest.warns(UserWarning, match=r"mined pairs or triplets have a row of weight 0"):
        value = weighted(embeddings, labels, pairs, sample_index=ROWS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # said once
        weighted(embeddings, labels, pairs, sample_index=ROWS)
    place = keep.cumsum(0) - 1
    left = [place[row].tolist() for row in torch.stack(pairs, 1) if keep[row].all()]
    listed = tuple(torch.tensor(left).T)
    expected = kit.make("TripletMarginLoss")(embeddings[keep], labels[keep], listed)
    torch.testing.assert_close(value, expected, rtol=EXACT, atol=EXACT)


@pytest.mark.parametrize("miner", [miners.BatchHardMiner, miners.MultiSimilarityMiner])
@pytest.mark.parametrize("references", [False, True])
def test_a_miner_inside_sees_no_row_of_weight_0(miner, references):
    embeddings, labels = kit.batch()
    keep, name = without() > 0, "TripletMarginLoss"
    weighted = Weighted(kit.make(name), table(labels, without()), miner())
    refs = (embeddings[keep] + 0.1, labels[keep]) if references else ()
    value = weighted(embeddings, labels, None, *refs, sample_index=ROWS)
    left = embeddings[keep], labels[keep]
    expected = kit.make(name)(*left, miner()(*left, *refs), *refs)
    assert float(expected.detach()) > 0
    torch.testing.assert_close(value, expected, rtol=EXACT, atol=EXACT)
    pairs = miner()(*left)
    with pytest.raises(InputError, match="`indices_tuple` must be None where Weighted has"):
        weighted(embeddings, labels, pairs, sample_index=ROWS)
    for holder in (kit.make("BSPMLLoss"), pml_losses.MultipleLosses([kit.make(name)])):
        with pytest.raises(InputError, match="`miner` goes into"):
            Weighted(holder, table(labels, without()), miner())


def test_pairs_of_the_rows_that_weigh_something_are_nothing_to_tell_of():
    embeddings, labels = kit.batch()
    rows = (without() > 0).nonzero()[:, 0]
    pairs = miners.BatchHardMiner()(embeddings[rows], labels[rows])
    weighted = Weighted(kit.make("TripletMarginLoss"), table(labels, without()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        weighted(embeddings, labels, tuple(rows[i] for i in pairs), sample_index=ROWS)


@pytest.mark.parametrize("rest", [1.0, 0.6])
def test_the_order_of_the_batch_does_not_matter(rest):
    embeddings, labels = kit.batch()
    loss = Weighted(kit.make("SupConLoss"), table(labels, without(0.3, rest)))
    order = torch.randperm(12, generator=torch.Generator().manual_seed(1))
    one = loss(embeddings, labels, sample_index=ROWS)
    torch.testing.assert_close(
        loss(embeddings[order], labels[order], sample_index=ROWS[order]), one, rtol=1e-9, atol=1e-12
    )


def test_a_batch_without_weight_is_0_with_a_gradient_of_0():
    embeddings, labels = kit.batch()
    loss = Weighted(kit.make("ContrastiveLoss"), table(labels, torch.zeros(12)))
    value, gradient = call(loss, embeddings, labels, sample_index=ROWS)
    assert value == 0
    assert (gradient == 0).all()
    assert (loss.num_kept, loss.num_dropped) == (0, 12)
    broken = torch.full((12, 3), torch.inf).requires_grad_()
    broken.data[3] = torch.nan
    value, gradient = call(loss, broken, labels, sample_index=ROWS)
    assert value == 0
    assert torch.equal(gradient, torch.zeros(12, 3))


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_batch_without_weight_is_said_as_the_loss_says_it(wrapped):
    """Where nothing is reduced, a batch without pairs is a dictionary, too."""
    embeddings, labels = kit.batch()
    loss = kit.make("ContrastiveLoss", reducer=reducers.DoNothingReducer())
    loss = SuperLoss(loss) if wrapped else loss
    value = Weighted(loss, table(labels, torch.zeros(12)))(embeddings, labels, sample_index=ROWS)
    assert value == loss(embeddings[:0], labels[:0])
    assert set(value) == {"pos_loss", "neg_loss"}


@pytest.mark.parametrize("name", [n for n in FRACTIONAL if n != "BSPMLLoss"])
def test_what_is_not_reduced_is_as_the_loss_says_it(name):
    embeddings, labels = kit.batch()
    loss = kit.make(name, reducer=reducers.DoNothingReducer())
    for w in (torch.ones(12), (ROWS > 2).float()):
        found = Weighted(loss, table(labels, w))(embeddings, labels, sample_index=ROWS)
        expected = loss(embeddings[w > 0], labels[w > 0])
        assert found.keys() == expected.keys()
        for part, said in found.items():
            assert torch.equal(
                torch.as_tensor(said["losses"]), torch.as_tensor(expected[part]["losses"])
            )


@pytest.mark.parametrize("name", [n for n in TAKEN if n not in UNLABELLED])
def test_rows_without_a_positive_pair_are_no_nan(name):
    """One sample of each class, one of all, or none is left: a number, and a finite gradient."""
    embeddings, labels = kit.batch()
    alone = [labels.tolist().index(label) for label in labels.unique()]
    for rows in (alone, alone[:1], []):
        weights = torch.zeros(12, dtype=torch.float64)
        weights[rows] = 1.0
        loss = Weighted(kit.make(name), table(labels, weights))
        value, gradient = call(loss, embeddings, labels, name=name, sample_index=ROWS)
        assert torch.isfinite(value)
        assert torch.isfinite(gradient).all()
        if not rows or name == "NCALoss":
            assert value == 0
            assert not gradient.any()


def test_nca_takes_a_batch_without_positives_and_shows_a_broken_one():
    weights = table(range(8), [1.0] * 8)
    embeddings = torch.randn(8, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)
    loss = Weighted(pml_losses.NCALoss(), weights)
    with pytest.warns(UserWarning, match="no positive pair"):
        value = loss(embeddings, weights.codes, sample_index=range(8))
    value.backward()
    assert value == 0
    assert not embeddings.grad.any()
    labels = torch.arange(8) // 2
    broken = Weighted(pml_losses.NCALoss(), table(labels, [1.0] * 8))
    assert broken(torch.full((8, 4), torch.nan), labels, sample_index=range(8)).isnan()


def test_bspml_loss_weighs_by_itself():
    embeddings, labels = kit.batch()
    weights = table(labels, without(0.2, 0.9))
    ours = call(BSPMLLoss(weights), embeddings, labels, sample_index=ROWS)
    theirs = call(Weighted(BSPMLLoss(), weights), embeddings, labels, sample_index=ROWS)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    between = call(
        Weighted(pml_losses.MultiSimilarityLoss(), weights), embeddings, labels, sample_index=ROWS
    )
    torch.testing.assert_close(between, ours, rtol=1e-9, atol=1e-12)  # the same formula
    with pytest.raises(InputError, match='weighting="paper"'):
        Weighted(BSPMLLoss(weighting="paper"), weights)
    with pytest.raises(InputError, match="another one"):
        Weighted(BSPMLLoss(bspml.SampleWeights(labels)), weights)


def test_multiple_losses_hold_weighted_ones_or_stand_inside():
    embeddings, labels = kit.batch()
    keep = without() > 0
    weights = table(labels, without())
    weights.set_batch(ROWS)
    names = ["ContrastiveLoss", "SupConLoss"]
    each = pml_losses.MultipleLosses([Weighted(kit.make(n), weights) for n in names])
    whole = Weighted(pml_losses.MultipleLosses([kit.make(n) for n in names]), weights)
    expected = sum(kit.make(n)(embeddings[keep], labels[keep]) for n in names)
    torch.testing.assert_close(each(embeddings, labels), expected, rtol=EXACT, atol=EXACT)
    torch.testing.assert_close(whole(embeddings, labels), expected, rtol=EXACT, atol=EXACT)
    weights.update(without(0.5))
    with pytest.raises(InputError, match="MultipleLosses takes weights 0 and 1 only"):
        whole(embeddings, labels)
    with pytest.raises(InputError, match="SmoothAPLoss"):
        Weighted(pml_losses.MultipleLosses([kit.make("SmoothAPLoss")]), weights)


def test_what_goes_around_is_named():
    weights = bspml.SampleWeights([0, 1])
    loss = kit.make("ContrastiveLoss")
    memory = pml_losses.CrossBatchMemory(loss, kit.SIZE)
    for around, text in (
        (memory, r"bspml\.CrossBatchMemory\(Weighted"),
        (DistributedLossWrapper(loss), r"DistributedLossWrapper\(Weighted"),
        (Weighted(loss, weights), "one Weighted"),
        (torch.nn.MSELoss(), "must be a loss of pytorch-metric-learning"),
    ):
        with pytest.raises(InputError, match=text):
            Weighted(around, weights)
    with pytest.raises(InputError, match="got None"):
        Weighted(loss, None)
    with pytest.raises(InputError, match="another table"):
        Weighted(SuperLoss(loss, sample_weights=bspml.SampleWeights([0, 1])), weights)


def test_pytorch_metric_learning_s_distributed_wrapper_takes_it():
    embeddings, labels = kit.batch()
    weights = table(labels, without())
    weights.set_batch(ROWS)
    loss = Weighted(kit.make("ContrastiveLoss"), weights)
    with pytest.warns(UserWarning, match="non-distributed"):
        assert DistributedLossWrapper(loss)(embeddings, labels) == loss(embeddings, labels)


def test_rows_are_named_or_announced():
    embeddings, labels = kit.batch()
    loss = Weighted(kit.make("ContrastiveLoss"), table(labels, without()))
    with pytest.raises(SampleIndexError, match="sample indices are missing"):
        loss(embeddings, labels)
    loss.weights.set_batch(ROWS)
    assert loss(embeddings, labels) == loss(embeddings, labels, sample_index=ROWS)


def test_weights_and_proxies_are_saved_with_it():
    labels = kit.batch()[1]
    loss = Weighted(kit.make("ProxyAnchorLoss"), table(labels, without()))
    other = Weighted(kit.make("ProxyAnchorLoss"), bspml.SampleWeights(labels))
    with torch.no_grad():
        loss.loss.proxies.add_(1)
    other.load_state_dict(loss.state_dict())
    assert torch.equal(other.weights.weights, loss.weights.weights)
    assert torch.equal(other.loss.proxies, loss.loss.proxies)
    assert [p.shape for p in loss.parameters()] == [(kit.CLASSES, kit.SIZE)]


@pytest.mark.parametrize(
    ("reducer", "expected"),
    [
        (reducers.MeanReducer(), lambda w, x: (w * x).sum() / w.sum()),
        (reducers.SumReducer(), lambda w, x: (w * x).sum()),
        (
            reducers.ThresholdReducer(low=1.0),
            lambda w, x: (w * x)[x > 1].sum() / w[x > 1].sum(),
        ),
        (
            reducers.ClassWeightedReducer(torch.tensor([1.0, 3.0])),
            lambda w, x: (w * x * torch.tensor([1.0, 1, 3, 3])).sum() / w.sum(),
        ),
        (
            reducers.PerAnchorReducer(reducers.ClassWeightedReducer(torch.tensor([1.0, 3.0]))),
            lambda w, x: (w * x * torch.tensor([1.0, 1, 3, 3])).sum() / w.sum(),
        ),
    ],
)
def test_the_divisor_follows_under_every_reducer(reducer, expected):
    embeddings = kit.column(0.5, 1.5, 2.0, 4.0)
    labels = torch.tensor([0, 0, 1, 1])
    weights = table(labels, [1, 0.5, 0.25, 0.75])
    value = Weighted(kit.FirstColumn(reducer=reducer), weights)(
        embeddings, labels, sample_index=torch.arange(4)
    )
    torch.testing.assert_close(
        value.detach(), expected(weights.weights.double(), embeddings.detach()[:, 0])
    )


@pytest.mark.parametrize(("weight", "rtol"), [(1.0, 1e-7), (1 - 1e-6, 1e-4)])
@pytest.mark.parametrize("name", ["MultiSimilarityLoss", "CircleLoss", "ContrastiveLoss"])
def test_class_weights_are_those_of_the_anchor_whatever_samples_weigh(name, weight, rtol):
    """pytorch-metric-learning gives mean(c) * mean(l) of values (B, 1)."""
    labels = torch.arange(12) % 4
    embeddings = torch.randn(12, kit.SIZE, generator=torch.Generator().manual_seed(0)).double()
    classes = torch.tensor([0.0, 2.0, 0.0, 5.0]).double()
    weights = table(labels, [weight] * 12)
    rows = torch.arange(12)
    made = kit.make(name, reducer=reducers.ClassWeightedReducer(classes))
    found = Weighted(made, weights)(embeddings, labels, sample_index=rows)
    lone = kit.make(name, reducer=reducers.DoNothingReducer())
    expected = 0.0
    for part in lone(embeddings, labels).values():
        values, of = part["losses"].flatten(), part["indices"]
        anchors = of[0] if isinstance(of, tuple) else of
        expected += (values * classes[labels[anchors]]).mean()
    torch.testing.assert_close(found, expected, rtol=rtol, atol=0)


@pytest.mark.parametrize("name", ["ContrastiveLoss", "NTXentLoss", "TripletMarginLoss"])
def test_a_memory_looks_weights_up_when_it_uses_a_row(name):
    """Three batches; then a queued sample loses its weight, and counts no more."""
    weights = bspml.SampleWeights(torch.arange(24) % 4)
    made = [
        bspml.CrossBatchMemory(Weighted(kit.make(name), weights), kit.SIZE, memory_size=24),
        pml_losses.CrossBatchMemory(kit.make(name), kit.SIZE, memory_size=24),
    ]
    embeddings = torch.randn(24, kit.SIZE, generator=torch.Generator().manual_seed(0)).double()
    for start in (0, 8, 16):
        rows = torch.arange(start, start + 8)
        batch = embeddings[rows], weights.codes[rows]
        ours, theirs = made[0](*batch, sample_index=rows), made[1](*batch)
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)
    weights.update([0, 0, *[1] * 22])
    value = made[0](embeddings[:8], weights.codes[:8], sample_index=torch.arange(8))
    # The batch replaced rows 0 to 7 of the queue; what is left is compared with what is left.
    rest = torch.arange(2, 24)
    same = weights.codes[2:8, None] == weights.codes[rest]
    self_pair = torch.arange(2, 8)[:, None] == rest
    pairs = (*(same & ~self_pair).nonzero(as_tuple=True), *(~same).nonzero(as_tuple=True))
    expected = kit.make(name)(
        embeddings[2:8], weights.codes[2:8], pairs, embeddings[rest], weights.codes[rest]
    )
    torch.testing.assert_close(value, expected, rtol=1e-9, atol=1e-12)


def test_a_memory_refuses_a_weighted_loss_that_takes_no_references():
    weights = bspml.SampleWeights([0, 1])
    with pytest.raises(InputError, match="got ArcFaceLoss"):
        bspml.CrossBatchMemory(Weighted(kit.make("ArcFaceLoss"), weights), kit.SIZE)


@pytest.mark.parametrize("name", ["TripletMarginLoss", "ContrastiveLoss"])
def test_small_weights_do_not_vanish_in_half_precision(name):
    embeddings, labels = kit.batch(dtype=torch.float16)
    halves = Weighted(kit.make(name).half(), table(labels, without(rest=0.003, rows=[])))
    plain = kit.make(name).half()(embeddings, labels)
    value = halves(embeddings, labels, sample_index=ROWS)
    torch.testing.assert_close(value.float(), plain.float(), rtol=1e-2, atol=1e-3)
    assert value > 0


def test_labels_of_references_may_be_lists():
    embeddings, labels = kit.batch(rows=8)
    weights = table(labels, [0, 1, 1, 1, 1, 1, 1, 1])
    loss = Weighted(kit.make("ContrastiveLoss"), weights)
    refs = embeddings.detach().flip(0)
    listed = labels.flip(0).tolist()
    one = loss(embeddings, labels.tolist(), None, refs, listed, sample_index=torch.arange(8))
    other = loss(embeddings, labels, None, refs, torch.tensor(listed), sample_index=torch.arange(8))
    assert one == other


def test_a_filter_hands_the_rows_on():
    embeddings, labels = kit.batch()
    weights = table(labels, without(rest=1.0))

    class First(torch.nn.Module):
        def forward(self, embeddings, labels):
            return torch.arange(len(labels)) < 9

    loss = FilteredLoss(Weighted(kit.make("ContrastiveLoss"), weights), First(), weights=weights)
    expected = Weighted(kit.make("ContrastiveLoss"), weights)(
        embeddings[:9], labels[:9], sample_index=ROWS[:9]
    )
    assert loss(embeddings, labels, sample_index=ROWS) == expected


def test_losses_of_a_sum_that_look_weights_up_themselves_are_refused():
    weights = bspml.SampleWeights([0, 1])
    for part in (BSPMLLoss(weights), SuperLoss(kit.make("SupConLoss"), sample_weights=weights)):
        with pytest.raises(InputError, match="looks weights up itself"):
            Weighted(pml_losses.MultipleLosses([part]), weights)


@pytest.mark.parametrize(
    "name", ["BSPMLLoss", "ContrastiveLoss", "SupConLoss", "TripletMarginLoss"]
)
@pytest.mark.parametrize("announced", [True, False])
def test_one_label_object_on_both_sides_names_the_references_too(name, announced):
    """Row i is one sample, in another view: what weighs 0 is absent on either side."""
    embeddings, labels = kit.batch()
    refs = kit.batch(seed=3)[0].detach()
    weights, keep = table(labels, without(rest=0.7)), without() > 0
    loss = Weighted(kit.make(name), weights)
    rows = {"sample_index": ROWS, "ref_sample_index": ROWS}
    expected = loss(embeddings, labels, None, refs, labels, **rows)
    weights.set_batch(ROWS)
    named = {} if announced else {"sample_index": ROWS}
    assert loss(embeddings, labels, None, refs, labels, **named) == expected
    left = labels[keep]
    weights.set_batch(ROWS[keep])
    absent = loss(embeddings[keep], left, None, refs[keep], left)
    torch.testing.assert_close(absent, expected, rtol=EXACT, atol=EXACT)
    other = labels.clone()  # references of unknown rows, which weigh 1
    assert loss(embeddings[keep], left, None, refs, other) != expected


def test_a_batch_without_weight_is_0_where_only_proxies_learn():
    embeddings, labels = kit.batch()
    loss = Weighted(kit.make("ArcFaceLoss"), table(labels, torch.zeros(12)))
    value = loss(embeddings.detach(), labels, sample_index=ROWS)
    value.backward()
    assert value == 0
    assert torch.equal(loss.loss.W.grad, torch.zeros_like(loss.loss.W))


@pytest.mark.parametrize("name", ["ArcFaceLoss", "ProxyNCALoss", "SoftTripleLoss"])
@pytest.mark.parametrize("wrap", [lambda loss: loss, SuperLoss, GradientRescaling])
def test_labels_without_a_proxy_are_refused_unless_they_weigh_nothing(name, wrap):
    embeddings, _ = kit.batch()
    labels = torch.arange(12) % kit.CLASSES
    labels[ABSENT] = kit.CLASSES
    weights = table(labels, without(rest=1.0))
    loss = Weighted(wrap(kit.make(name)), weights)
    assert loss(embeddings, labels, sample_index=ROWS).isfinite()
    weights.reset()
    with pytest.raises(InputError, match=r"`labels` must lie in \[0, 4\).*got 4"):
        loss(embeddings, labels, sample_index=ROWS)


def test_references_of_a_sum_of_losses_are_refused():
    embeddings, labels = kit.batch()
    weights = bspml.SampleWeights(labels)
    loss = Weighted(pml_losses.MultipleLosses([kit.make("ContrastiveLoss")]), weights)
    with pytest.raises(InputError, match="`ref_emb` is not taken by MultipleLosses"):
        loss(embeddings, labels, None, embeddings.detach(), labels, sample_index=ROWS)
