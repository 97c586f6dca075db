import copy
import itertools
import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from pytorch_metric_learning import distances, losses as pml_losses, reducers, regularizers
from pytorch_metric_learning.miners import MultiSimilarityMiner, TripletMarginMiner
from pytorch_metric_learning.utils import loss_and_miner_utils as lmu

from bspml.errors import InputError, SampleIndexError
from bspml.losses.bspml_loss import BSPMLLoss, WeightedMeanReducer, check_fits
from bspml.losses.miners.bspml_miner import BSPMLMiner
from bspml.weights.state import SampleWeights

EXACT = {"rtol": 0, "atol": 1e-12}  # float64 sums of a few hundred terms, in another order
WEIGHTINGS = ["inside", "paper"]


def batch(seed, rows=18, classes=4, columns=5, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (rows,), generator=generator)
    emb = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    return emb.to(dtype).requires_grad_(), labels


def table(values):
    weights = SampleWeights([0] * len(values))
    weights.update(values)
    return weights.double()


def draw_weights(seed, rows):
    values = torch.rand(rows, generator=torch.Generator().manual_seed(1000 + seed))
    values[::5] = 0
    return values


def value_and_grad(loss, emb, *args, **kwargs):
    emb = emb.detach().clone().requires_grad_()
    if args and args[-1] == "own references":  # stands for ref_emb = embeddings
        args = (*args[:-1], emb)
    value = loss(emb, *args, **kwargs)
    value.backward()
    return value.detach(), emb.grad


def elements(
    emb, pairs, w, ref=None, ref_w=None, alpha=2.0, beta=50.0, base=0.5, weighting="inside"
):
    """The (B,) elements by plain loops over the listed pairs, in float64."""
    ref = emb if ref is None else ref
    ref_w = w if ref_w is None else ref_w
    unit = lambda x: x / x.norm()  # noqa: E731
    out = []
    for i in range(len(emb)):
        total = 0.0
        for scale, anchors, others in ((-alpha, *pairs[:2]), (beta, *pairs[2:])):
            js = sorted({int(j) for a, j in zip(anchors, others, strict=True) if a == i})
            if not js:
                continue
            terms = [torch.exp(scale * (unit(emb[i]) @ unit(ref[j]) - base)) for j in js]
            if weighting == "inside":
                log_sum = torch.log(
                    1 + sum(float(ref_w[j]) * t for j, t in zip(js, terms, strict=True))
                )
            else:
                mean = sum(float(ref_w[j]) for j in js) / len(js)
                log_sum = mean * torch.log(1 + sum(terms))
            total = total + log_sum / abs(scale)
        out.append(float(w[i]) * total + 0 * emb[i].sum())
    return torch.stack(out)


# ------------------------------------------------------------------------------- the formulas


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10_000),
    st.sampled_from(WEIGHTINGS),
    st.sampled_from([0.3, 2.0, 10.0]),
    st.sampled_from([1.0, 50.0]),
    st.sampled_from([-0.5, 0.5, 1.0]),
    st.booleans(),
)
def test_agrees_with_plain_loops(seed, weighting, alpha, beta, base, mined):
    emb, labels = batch(seed, rows=10, classes=3)
    w = draw_weights(seed, 10)
    pairs = MultiSimilarityMiner()(emb, labels) if mined else lmu.get_all_pairs_indices(labels)
    settings_ = {"alpha": alpha, "beta": beta, "base": base, "weighting": weighting}
    loss = BSPMLLoss(table(w), **settings_)
    value, grad = value_and_grad(
        loss, emb, labels, pairs if mined else None, sample_index=torch.arange(10)
    )
    divisor = w.double().sum() if weighting == "inside" else 10

    def oracle(e):
        return elements(e, pairs, w, **settings_).sum() / divisor

    expected, expected_grad = value_and_grad(oracle, emb)
    torch.testing.assert_close(value, expected, **EXACT)
    torch.testing.assert_close(grad, expected_grad, **EXACT)


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_agrees_with_plain_loops_over_references(weighting):
    emb, labels = batch(0, rows=7)
    ref, ref_labels = batch(1, rows=11)
    values = draw_weights(2, 40)
    index, ref_index = torch.arange(7), torch.arange(20, 31)
    pairs = lmu.get_all_pairs_indices(labels, ref_labels)
    w = values[index]
    loss = BSPMLLoss(table(values), weighting=weighting)
    for known, ref_w in ((ref_index, values[ref_index]), (None, torch.ones(11))):
        value, grad = value_and_grad(
            loss, emb, labels, None, ref, ref_labels, sample_index=index, ref_sample_index=known
        )
        divisor = w.double().sum() if weighting == "inside" else 7
        expected, expected_grad = value_and_grad(
            lambda e, v=ref_w, d=divisor: (
                elements(e, pairs, w, ref, v, weighting=weighting).sum() / d
            ),
            emb,
        )
        torch.testing.assert_close(value, expected, **EXACT)
        torch.testing.assert_close(grad, expected_grad, **EXACT)


@pytest.mark.parametrize(
    ("S_pos", "S_neg", "expected"),
    [
        # 1/2 log(1 + e^{-2 (.8 - .5)}) + 1/50 log(1 + e^{50 (.3 - .5)})
        (0.8, 0.3, 0.218744 + 9.08e-7),
        # 1/2 log(1 + e^3) + 1/50 log(1 + e^25)
        (-1.0, 1.0, 1.524294 + 0.5),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_pair_of_each_kind_by_hand(S_pos, S_neg, expected, dtype):
    # pytorch-metric-learning gives 0 here: its pair losses drop a single pair.
    rows = [[1.0, 0.0], *([S, math.sqrt(1 - S * S)] for S in (S_pos, S_neg))]
    triplet = tuple(torch.tensor([i]) for i in range(3))
    loss = BSPMLLoss(reducer=reducers.SumReducer())
    value = loss(torch.tensor(rows, dtype=dtype), indices_tuple=triplet)
    assert value.item() == pytest.approx(expected, abs=6e-7)
    if dtype == torch.float64:
        exact = math.log1p(math.exp(1 - 2 * S_pos)) / 2 + math.log1p(math.exp(50 * S_neg - 25)) / 50
        assert value.item() == pytest.approx(exact, abs=1e-12)


def test_a_small_negative_term_survives_single_precision():
    # 1/50 log(1 + e^{-20}) = 4.1e-11: log(1 + x) in float32 would give 0.
    emb = torch.tensor([[1.0, 0.0], [0.1, math.sqrt(0.99)]])
    none = torch.tensor([], dtype=torch.long)
    pairs = (none, none, torch.tensor([0]), torch.tensor([1]))
    value = BSPMLLoss(reducer=reducers.SumReducer())(emb, indices_tuple=pairs)
    assert value.item() == pytest.approx(math.exp(-20) / 50, rel=1e-4)


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("distance", [distances.CosineSimilarity(), distances.LpDistance()])
def test_gradcheck_at_fractional_weights(weighting, distance):
    emb, labels = batch(3, rows=6, classes=2, columns=3)
    ref, ref_labels = batch(4, rows=5, classes=2, columns=3)
    values = draw_weights(3, 6)
    loss = BSPMLLoss(table(values), beta=8, weighting=weighting, distance=distance)
    index = torch.arange(6)
    assert torch.autograd.gradcheck(
        lambda e, r: loss(e, labels, None, r, ref_labels, sample_index=index), (emb, ref)
    )
    loss.distance = distances.CosineSimilarity()  # a distance of 0 to oneself has no derivative
    assert torch.autograd.gradcheck(lambda e: loss(e, labels, sample_index=index), (emb,))
    assert torch.autograd.gradgradcheck(lambda e: loss(e, labels, sample_index=index), (emb,))


# ------------------------------------------------------------------------------- against pml


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("given_table", [False, True])
@pytest.mark.parametrize("with_ref", [False, True, "own references"])
@pytest.mark.parametrize(
    "make_distance",
    [
        distances.CosineSimilarity,
        distances.LpDistance,
        distances.SNRDistance,
        lambda: distances.DotProductSimilarity(normalize_embeddings=False),
    ],
)
def test_weight_one_is_pml_s_loss(weighting, given_table, with_ref, make_distance):
    settings_ = {"alpha": 1.5, "beta": 20, "base": 0.4}
    weights = table([1.0] * 18) if given_table else None
    for seed in range(2):
        emb, labels = batch(seed)
        ref, ref_labels = batch(seed + 50, rows=23)
        references = {
            False: (),
            True: (ref.detach(), ref_labels),
            "own references": ("own references",),
        }[with_ref]
        ours = BSPMLLoss(weights, weighting=weighting, distance=make_distance(), **settings_)
        theirs = pml_losses.MultiSimilarityLoss(distance=make_distance(), **settings_)
        mined_ref = references if with_ref is True else ()
        for pairs in (
            None,
            MultiSimilarityMiner(distance=make_distance())(emb, labels, *mined_ref),
            BSPMLMiner(distance=make_distance())(emb, labels, *mined_ref),
            TripletMarginMiner(0.2, distance=make_distance())(emb, labels, *mined_ref),
        ):
            if pairs is None and with_ref == "own references":
                continue
            value, grad = value_and_grad(
                ours, emb, labels, pairs, *references, sample_index=torch.arange(18)
            )
            expected, expected_grad = value_and_grad(theirs, emb, labels, pairs, *references)
            torch.testing.assert_close(value, expected, **EXACT)
            torch.testing.assert_close(grad, expected_grad, **EXACT)


@pytest.mark.parametrize("with_ref", [False, True])
def test_the_whole_step_is_pml_s_step(with_ref):
    for seed in range(10):
        emb, labels = batch(seed, rows=30)
        ref, ref_labels = batch(seed + 90, rows=12)
        references = (ref.detach(), ref_labels) if with_ref else ()
        index = {"sample_index": torch.arange(30)}
        weights = table([1.0] * 30)
        pairs = BSPMLMiner(weights)(emb, labels, *references, **index)
        value, grad = value_and_grad(BSPMLLoss(weights), emb, labels, pairs, *references, **index)
        theirs = MultiSimilarityMiner()(emb, labels, *references)
        expected, expected_grad = value_and_grad(
            pml_losses.MultiSimilarityLoss(), emb, labels, theirs, *references
        )
        torch.testing.assert_close(value, expected, **EXACT)
        torch.testing.assert_close(grad, expected_grad, **EXACT)


def test_gradients_reach_the_references_as_in_pml():
    emb, labels = batch(0)
    ref, ref_labels = batch(1)
    grads = []
    for loss in (BSPMLLoss(), pml_losses.MultiSimilarityLoss()):
        ref.grad = None
        loss(emb, labels, None, ref, ref_labels).backward()
        grads.append(ref.grad.clone())
    torch.testing.assert_close(*grads, **EXACT)


def test_pml_s_own_angles_over_dtypes():
    # The distribution's own test: points by angle, every pair, by double loop.
    angles = torch.arange(0, 180, 20)[:7] * math.pi / 180
    labels = torch.tensor([0, 0, 1, 1, 1, 2, 3])
    alpha, beta, base = 0.1, 40, 0.5
    total = 0.0
    for i in range(7):
        for scale, others in (
            (-alpha, [j for j in range(7) if j != i and labels[j] == labels[i]]),
            (beta, [j for j in range(7) if labels[j] != labels[i]]),
        ):
            terms = [
                math.exp(scale * (math.cos(float(angles[i] - angles[j])) - base)) for j in others
            ]
            total += math.log(1 + sum(terms)) / abs(scale)
    for dtype, tolerance in ((torch.float16, 1e-2), (torch.float32, 1e-5), (torch.float64, 1e-6)):
        emb = torch.stack([angles.cos(), angles.sin()], 1).to(dtype).requires_grad_()
        loss = BSPMLLoss(alpha=alpha, beta=beta, base=base)
        for ref in ((), (emb.detach().clone(), labels)):  # the same labels object: self pairs known
            value = loss(emb, labels, None, *ref)
            value.backward()
            assert value.item() == pytest.approx(total / 7, rel=tolerance)


# ------------------------------------------------------------------------------- weight laws


@pytest.mark.parametrize("mine", [False, True])
def test_weight_zero_is_the_absence_of_the_sample(mine):
    emb, labels = batch(5)
    values = torch.rand(18, generator=torch.Generator().manual_seed(0))
    values[[0, 4, 9]] = 0
    keep = values > 0
    weights, index = table(values), torch.arange(18)
    miner = BSPMLMiner(weights)
    for reducer in (None, reducers.SumReducer()):
        loss = BSPMLLoss(weights, reducer=reducer)
        pairs = miner(emb, labels, sample_index=index) if mine else None
        value, grad = value_and_grad(loss, emb, labels, pairs, sample_index=index)
        pairs = miner(emb[keep], labels[keep], sample_index=index[keep]) if mine else None
        without, grad_without = value_and_grad(
            loss, emb[keep], labels[keep], pairs, sample_index=index[keep]
        )
        torch.testing.assert_close(value, without, **EXACT)
        torch.testing.assert_close(grad[keep], grad_without, **EXACT)
        assert (grad[~keep] == 0).all()


def test_weight_zero_of_a_reference_is_its_absence():
    emb, labels = batch(6, rows=6)
    ref, ref_labels = batch(7, rows=9)
    values = torch.ones(15)
    values[[8, 14]] = 0
    index, ref_index = torch.arange(6), torch.arange(6, 15)
    keep = values[ref_index] > 0
    loss = BSPMLLoss(table(values))
    value, grad = value_and_grad(
        loss, emb, labels, None, ref, ref_labels, sample_index=index, ref_sample_index=ref_index
    )
    without, grad_without = value_and_grad(
        loss,
        emb,
        labels,
        None,
        ref[keep],
        ref_labels[keep],
        sample_index=index,
        ref_sample_index=ref_index[keep],
    )
    torch.testing.assert_close(value, without, **EXACT)
    torch.testing.assert_close(grad, grad_without, **EXACT)


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("how", ["pairs", "mined", "fused"])
def test_all_weights_zero_give_zero_with_a_gradient_of_zero(weighting, how):
    emb, labels = batch(8)
    weights, index = table([0.0] * 18), torch.arange(18)
    miner = BSPMLMiner(weights)
    loss = BSPMLLoss(weights, weighting=weighting, miner=miner if how == "fused" else None)
    pairs = miner(emb, labels, sample_index=index) if how == "mined" else None
    value = loss(emb, labels, pairs, sample_index=index)
    assert value.item() == 0
    assert value.grad_fn is not None
    value.backward()
    assert (emb.grad == 0).all()


def test_all_weights_halved_keep_the_mean_s_scale():
    # The divisor is the weight in the batch, so one common factor changes only the log-sums.
    emb, labels = batch(9)
    pairs = lmu.get_all_pairs_indices(labels)
    value = BSPMLLoss(table([0.5] * 18))(emb, labels, sample_index=torch.arange(18))
    expected = elements(emb, pairs, [1.0] * 18, ref_w=[0.5] * 18).mean()
    torch.testing.assert_close(value, expected, **EXACT)


def test_a_tiny_weight_gives_a_tiny_and_finite_pull():
    emb, labels = batch(10, dtype=torch.float32)
    values = torch.ones(18)
    values[0] = 1e-38
    value, grad = value_and_grad(BSPMLLoss(table(values)), emb, labels, sample_index=range(18))
    assert torch.isfinite(value)
    assert torch.isfinite(grad).all()
    assert float(grad[0].norm()) < 1e-30


@pytest.mark.parametrize("weight", [1e-45, 1e-42, 1e-39, 1e-37])
@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_only_tiny_weights_are_finite(weight, weighting):
    # The reciprocal of their sum, and so the gradient of the mean, may be beyond float32.
    emb, labels = batch(10, dtype=torch.float32)
    weights = SampleWeights([0] * 18)
    weights.update([weight] * 18)
    assert float(weights.weights.max()) > 0
    value, grad = value_and_grad(
        BSPMLLoss(weights, weighting=weighting), emb, labels, sample_index=range(18)
    )
    assert torch.isfinite(value)
    assert torch.isfinite(grad).all()


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("fused", [False, True])
def test_a_collapsed_batch_is_finite(weighting, fused):
    emb = torch.full((18, 5), 0.3, requires_grad=True)
    loss = BSPMLLoss(weighting=weighting, miner=BSPMLMiner() if fused else None)
    value = loss(emb, batch(0)[1])
    value.backward()
    assert torch.isfinite(value)
    assert value > 0
    # All rows point one way, and no pair pulls a row along itself: nothing can move.
    assert float(emb.grad.abs().max()) < 1e-6


@pytest.mark.parametrize("scale", [1e-20, 1e20])
def test_a_tiny_or_huge_batch_has_the_loss_of_its_directions(scale):
    emb, labels = batch(40)
    expected = BSPMLLoss(miner=BSPMLMiner())(emb, labels)
    value, grad = value_and_grad(
        BSPMLLoss(miner=BSPMLMiner()), (scale * emb.detach()).float(), labels
    )
    assert value.item() == pytest.approx(expected.item(), rel=1e-5)
    assert torch.isfinite(grad).all()
    assert (grad != 0).any()


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_permuting_the_batch_changes_nothing(weighting):
    emb, labels = batch(11)
    loss = BSPMLLoss(table(draw_weights(11, 18)), weighting=weighting)
    order = torch.randperm(18, generator=torch.Generator().manual_seed(0))
    value, grad = value_and_grad(loss, emb, labels, sample_index=torch.arange(18))
    permuted, permuted_grad = value_and_grad(loss, emb[order], labels[order], sample_index=order)
    torch.testing.assert_close(value, permuted, **EXACT)
    torch.testing.assert_close(grad[order], permuted_grad, **EXACT)


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_scaling_and_renaming_change_nothing(weighting):
    emb, labels = batch(12)
    loss = BSPMLLoss(table(draw_weights(12, 18)), weighting=weighting)
    index = torch.arange(18)
    expected = loss(emb, labels, sample_index=index)
    torch.testing.assert_close(loss(10 * emb, labels, sample_index=index), expected, **EXACT)
    renamed = torch.tensor([7, 1_000_003, -5, 12], dtype=torch.int32)[labels]
    torch.testing.assert_close(loss(emb, renamed, sample_index=index.int()), expected, **EXACT)


def test_new_weights_are_seen_at_the_next_call():
    emb, labels = batch(13)
    weights = table([1.0] * 18)
    loss = BSPMLLoss(weights, reducer=reducers.SumReducer())
    index = torch.arange(18)
    before = loss(emb, labels, sample_index=index)
    weights.update(torch.full((18,), 0.5))
    assert loss(emb, labels, sample_index=index) < before


def test_calls_leave_the_weights_untouched():
    emb, labels = batch(14)
    weights = table(draw_weights(14, 18))
    before = copy.deepcopy(weights.state_dict())
    loss = BSPMLLoss(weights).eval()
    index = torch.arange(18)
    with torch.no_grad():
        evaluated = loss(emb, labels, sample_index=index)
    trained = loss.train()(emb, labels, sample_index=index)
    trained.backward()
    assert torch.equal(evaluated, trained)
    assert not evaluated.requires_grad
    assert all(torch.equal(before[k], v) for k, v in weights.state_dict().items())


# ------------------------------------------------------------------------------- mining inside


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("with_ref", [False, True])
@pytest.mark.parametrize("skip_zero", [False, True])
def test_a_loss_that_mines_is_the_loss_on_mined_pairs(weighting, with_ref, skip_zero):
    emb, labels = batch(15)
    ref, ref_labels = batch(16, rows=9)
    references = (ref.detach(), ref_labels) if with_ref else ()
    weights = table(draw_weights(15, 18))
    index = {"sample_index": torch.arange(18)}
    if with_ref:
        index["ref_sample_index"] = torch.arange(9, 18)
    for miner in (BSPMLMiner(weights, skip_zero=skip_zero), BSPMLMiner(skip_zero=skip_zero)):
        pairs = miner(emb, labels, *references, **index)
        two_calls = value_and_grad(
            BSPMLLoss(weights, weighting=weighting), emb, labels, pairs, *references, **index
        )
        fused = value_and_grad(
            BSPMLLoss(weights, weighting=weighting, miner=miner),
            emb,
            labels,
            None,
            *references,
            **index,
        )
        torch.testing.assert_close(fused, two_calls, **EXACT)


def test_given_pairs_beat_the_loss_s_own_miner():
    emb, labels = batch(17)
    pairs = lmu.get_all_pairs_indices(labels)
    plain, mining = BSPMLLoss(), BSPMLLoss(miner=BSPMLMiner())
    assert torch.equal(mining(emb, labels, pairs), plain(emb, labels, pairs))
    assert not torch.equal(mining(emb, labels), plain(emb, labels))


@pytest.mark.parametrize(
    ("miner", "message"),
    [
        (MultiSimilarityMiner(), "must be a BSPMLMiner; got MultiSimilarityMiner"),
        (BSPMLMiner(SampleWeights([0])), "must share the loss's weights"),
        (BSPMLMiner(distance=distances.LpDistance()), "distance, CosineSimilarity; got LpDistance"),
        (BSPMLMiner(distance=distances.CosineSimilarity(power=2)), "or other settings"),
    ],
)
def test_a_miner_that_would_be_ignored_is_refused(miner, message):
    with pytest.raises(InputError, match=message):
        check_fits(miner, SampleWeights([0]), distances.CosineSimilarity())


# ------------------------------------------------------------------------------- self pairs


def test_a_memory_that_holds_the_batch_adds_no_self_pair():
    emb, labels = batch(18, rows=8)
    memory = emb.detach().clone()
    index = torch.arange(8)
    loss = BSPMLLoss()
    expected = loss(emb, labels)
    for pairs in (None, MultiSimilarityMiner(epsilon=9)(emb, labels, memory, labels.clone())):
        value = loss(
            emb,
            labels,
            pairs,
            memory,
            labels.clone(),
            sample_index=index,
            ref_sample_index=index,
        )
        torch.testing.assert_close(value, expected, **EXACT)


def test_a_listed_self_pair_does_not_count():
    emb, labels = batch(19, rows=5)
    a1, p, a2, n = lmu.get_all_pairs_indices(labels)
    diagonal = torch.arange(5)
    listed = (torch.cat([a1, diagonal]), torch.cat([p, diagonal]), a2, n)
    assert torch.equal(BSPMLLoss()(emb, labels, listed), BSPMLLoss()(emb, labels))


def test_two_views_of_a_sample_in_one_batch_are_a_pair():
    # What SelfSupervisedLoss does, with weights: both views stacked, every index twice.
    emb, _ = batch(20, rows=8)
    labels = torch.arange(4).repeat(2)
    index = torch.arange(4).repeat(2)
    value = BSPMLLoss(table([1.0] * 4))(emb, labels, sample_index=index)
    expected = pml_losses.SelfSupervisedLoss(pml_losses.MultiSimilarityLoss())(emb[:4], emb[4:])
    torch.testing.assert_close(value, expected, **EXACT)


# ------------------------------------------------------------------------------- odd batches


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(
    "labels", [[0, 1, 2], [4, 4, 4], [0], [], [0, 0, 1, 2]], ids=lambda v: f"labels{v}"
)
def test_odd_batches_are_finite(weighting, fused, labels):
    emb = torch.eye(4)[: len(labels)].requires_grad_()
    loss = BSPMLLoss(weighting=weighting, miner=BSPMLMiner() if fused else None)
    value = loss(emb, torch.tensor(labels, dtype=torch.long))
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(emb.grad).all()


def test_an_anchor_without_positives_has_only_its_negative_term():
    emb, _ = batch(21, rows=3)
    labels = torch.tensor([0, 0, 1])
    losses = BSPMLLoss(reducer=reducers.DoNothingReducer())(emb, labels)["loss"]["losses"]
    unit = torch.nn.functional.normalize(emb)
    S = (unit @ unit.T)[2, :2]
    expected = torch.log(1 + torch.exp(50 * (S - 0.5)).sum()) / 50
    torch.testing.assert_close(losses[2], expected, **EXACT)


def test_no_valid_pairs_give_zero_and_backward_works():
    emb = torch.tensor([[1.0, 0.0]], requires_grad=True)
    empty = [torch.tensor([], dtype=torch.long)] * 4
    for pairs in (None, empty):
        value = BSPMLLoss()(emb, torch.tensor([0]), pairs)
        value.backward()
        assert value.item() == 0
    assert (emb.grad == 0).all()


def test_an_empty_memory_gives_zero():
    emb, labels = batch(22)
    value = BSPMLLoss()(emb, labels, None, emb.detach()[:0], labels[:0])
    value.backward()
    assert value.item() == 0


def test_a_duplicate_under_another_label_has_a_finite_gradient():
    emb = torch.tensor([[0.6, 0.8], [0.6, 0.8]], requires_grad=True)
    losses = BSPMLLoss(reducer=reducers.DoNothingReducer())(emb, torch.tensor([0, 1]))
    losses = losses["loss"]["losses"]
    torch.testing.assert_close(losses, torch.full((2,), 0.5), rtol=0, atol=1e-6)  # 1/50 log(1+e^25)
    losses.sum().backward()
    assert torch.isfinite(emb.grad).all()


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_a_zero_embedding_gives_a_finite_loss_and_gradient(weighting):
    emb, labels = batch(23, dtype=torch.float32)
    emb = emb.detach()
    emb[3] = 0
    emb[5] = 0
    loss = BSPMLLoss(weighting=weighting)
    for pairs in (None, BSPMLMiner()(emb, labels)):
        value, grad = value_and_grad(loss, emb, labels, pairs)
        assert torch.isfinite(value)
        assert torch.isfinite(grad).all()


def test_a_large_beta_does_not_overflow():
    # 1/beta log(1 + e^beta) with beta = 156.61: e^beta is beyond float32.
    emb = torch.tensor([[0.6, 0.8], [0.6, 0.8]], requires_grad=True)
    value = BSPMLLoss(beta=156.61, base=0)(emb, torch.tensor([0, 1]))
    value.backward()
    assert value.item() == pytest.approx(1.0, abs=1e-6)
    assert torch.isfinite(emb.grad).all()


def test_a_row_that_is_not_a_number_raises_and_is_not_dropped():
    emb, labels = batch(24, dtype=torch.float32)
    pairs = MultiSimilarityMiner()(emb, labels)
    emb = emb.detach()
    emb[2, 0] = math.nan
    with pytest.raises(InputError, match="rows 2 hold NaN"):
        BSPMLLoss()(emb, labels, pairs)


# ------------------------------------------------------------------------------- precision


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_half_precision_is_computed_in_float32(dtype, weighting):
    emb, labels = batch(25, dtype=torch.float32)
    emb = emb.detach().to(dtype)
    weights, index = table(draw_weights(25, 18)), torch.arange(18)
    loss = BSPMLLoss(weights, weighting=weighting, miner=BSPMLMiner(weights))
    expected = loss(emb.float(), labels, sample_index=index)
    held = emb.clone().requires_grad_()
    value = loss(held, labels, sample_index=index)
    value.backward()
    assert value.dtype == torch.float32
    assert torch.equal(value, expected)
    assert held.grad.dtype == dtype


def test_autocast_changes_nothing():
    emb, labels = batch(26, dtype=torch.float32)
    loss = BSPMLLoss(miner=BSPMLMiner(), embedding_regularizer=regularizers.LpRegularizer())
    expected, expected_grad = value_and_grad(loss, emb, labels)
    with torch.autocast("cpu", torch.bfloat16):
        value, grad = value_and_grad(loss, emb, labels)
    assert torch.equal(value, expected)
    assert torch.equal(grad, expected_grad)


def test_a_network_under_autocast_trains_within_a_percent_of_float32():
    emb, labels = batch(27, columns=16, dtype=torch.float32)
    layer = torch.nn.Linear(16, 8)
    torch.nn.init.normal_(layer.weight, generator=torch.Generator().manual_seed(0))
    loss = BSPMLLoss()
    expected = loss(layer(emb), labels)
    with torch.autocast("cpu", torch.bfloat16):
        value = loss(layer(emb), labels)
    value.backward()
    assert value.item() == pytest.approx(expected.item(), rel=1e-2)


# ------------------------------------------------------------------------------- reducers


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_elements_are_one_number_per_row(weighting):
    emb, labels = batch(28)
    weights = table(draw_weights(28, 18))
    loss = BSPMLLoss(weights, weighting=weighting, reducer=reducers.DoNothingReducer())
    out = loss(emb, labels, sample_index=torch.arange(18))["loss"]
    assert out["losses"].shape == (18,)
    assert torch.equal(out["indices"], torch.arange(18))
    assert out["reduction_type"] == "element"
    torch.testing.assert_close(out["divisor"], weights.weights.sum())
    assert (out["losses"][weights.weights == 0] == 0).all()


@pytest.mark.parametrize(
    ("reducer", "reduce"),
    [
        (reducers.SumReducer(), torch.sum),
        (reducers.MeanReducer(), torch.mean),
        (reducers.ThresholdReducer(low=0.3), lambda x: x[x > 0.3].mean()),
        (reducers.AvgNonZeroReducer(), lambda x: x[x > 0].mean()),
        (reducers.MultipleReducers({"loss": reducers.SumReducer()}), torch.sum),
        (
            reducers.ClassWeightedReducer(torch.tensor([1.0, 2.0, 0.0, 5.0])),
            lambda x: (x * torch.tensor([1.0, 2.0, 0.0, 5.0])[batch(29)[1]]).mean(),
        ),
    ],
    ids=lambda v: type(v).__name__,
)
def test_the_user_s_reducer_reduces(reducer, reduce):
    emb, labels = batch(29)
    weights, index = table(draw_weights(29, 18)), torch.arange(18)
    raw = BSPMLLoss(weights, reducer=reducers.DoNothingReducer())
    losses = raw(emb, labels, sample_index=index)["loss"]["losses"]
    value = BSPMLLoss(weights, reducer=reducer)(emb, labels, sample_index=index)
    torch.testing.assert_close(value, reduce(losses), **EXACT)


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_an_embedding_regularizer_adds_its_share(weighting):
    emb, labels = batch(30)
    weights, index = table(draw_weights(30, 18)), torch.arange(18)
    plain = BSPMLLoss(weights, weighting=weighting)(emb, labels, sample_index=index)
    loss = BSPMLLoss(
        weights,
        weighting=weighting,
        embedding_regularizer=regularizers.LpRegularizer(),
        embedding_reg_weight=0.1,
    )
    value = loss(emb, labels, sample_index=index)
    counted = weights.weights > 0 if weighting == "inside" else slice(None)
    torch.testing.assert_close(value, plain + 0.1 * emb[counted].norm(dim=1).mean(), **EXACT)
    weights.update(torch.zeros(18))
    assert weighting == "paper" or loss(emb, labels, sample_index=index) == 0


def test_the_default_reducer_divides_by_the_weight_and_never_by_zero():
    reducer = WeightedMeanReducer()
    losses = torch.tensor([1.0, 2.0], requires_grad=True)
    value = reducer.sum_and_divide(losses, losses, torch.tensor(1.5))
    assert value.item() == 2.0
    assert float(reducer.sum_and_divide(0 * losses, losses, torch.tensor(0.0))) == 0.0


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("regularized", [False, True])
def test_a_trainer_may_scale_the_loss_in_place(weighting, regularized):
    emb, labels = batch(31)
    extra = {"embedding_regularizer": regularizers.LpRegularizer()} if regularized else {}
    for reducer in (None, reducers.SumReducer(), reducers.MeanReducer()):
        loss = BSPMLLoss(weighting=weighting, reducer=reducer, **extra)
        grads = []
        for scale in (1, 3):
            emb.grad = None
            value = loss(emb, labels)
            value *= scale  # as pytorch-metric-learning's LossTracker does
            value.backward()
            grads.append(emb.grad.clone())
        torch.testing.assert_close(3 * grads[0], grads[1], **EXACT)


# ------------------------------------------------------------------------------- seams


def test_labels_are_not_needed_with_pairs():
    emb, labels = batch(32)
    ref, ref_labels = batch(33)
    for references in ((), (ref, ref_labels)):
        pairs = lmu.get_all_pairs_indices(labels, *references[1:])
        triplets = TripletMarginMiner(0.5)(emb, labels, *references)
        for indices in (pairs, triplets):
            bare = BSPMLLoss()(emb, indices_tuple=indices, ref_emb=ref if references else None)
            torch.testing.assert_close(bare, BSPMLLoss()(emb, labels, indices, *references))


def test_neither_labels_nor_pairs_is_refused():
    emb, _ = batch(34)
    with pytest.raises(InputError, match="`labels` is needed to form pairs"):
        BSPMLLoss()(emb)


def test_missing_indices_are_named_before_anything_else_happens():
    emb, labels = batch(35)
    weights = table([1.0] * 18)
    loss = BSPMLLoss(weights)
    with pytest.raises(SampleIndexError, match="set_batch"):
        loss(emb, labels)
    with pytest.raises(SampleIndexError, match=r"in \[0, 18\); got 18"):
        loss(emb, labels, sample_index=torch.arange(1, 19))
    assert weights.batch_index is None


@pytest.mark.parametrize("announced", [False, True])
def test_a_column_or_a_part_of_the_indices_never_broadcasts(announced):
    # A gathered batch of two ranks meets the indices of one.
    emb, labels = batch(36)
    weights = table(draw_weights(36, 18))
    loss = BSPMLLoss(weights)
    for index in (torch.arange(9), torch.arange(1)):
        arguments = {"sample_index": index}
        if announced:
            weights.set_batch(index)
            arguments = {}
        with pytest.raises(InputError, match=rf"\(18,\) like the embeddings; got \({len(index)},"):
            loss(emb, labels, **arguments)
    with pytest.raises(InputError, match="flatten"):
        loss(emb, labels, sample_index=torch.arange(18)[:, None])


def test_wrappers_of_pml_reach_it_with_the_announced_batch():
    emb, labels = batch(37)
    weights = table(draw_weights(37, 18))
    loss = BSPMLLoss(weights)
    expected = loss(emb, labels, sample_index=torch.arange(18))
    weights.set_batch(torch.arange(18))
    both = pml_losses.MultipleLosses([loss, loss], weights=[1, 2])
    torch.testing.assert_close(both(emb, labels), 3 * expected, **EXACT)
    inner = loss.compute_loss(emb, labels, None, emb, labels)["loss"]["losses"]
    torch.testing.assert_close(inner.sum() / weights.weights.sum(), expected, **EXACT)


def test_losses_of_pml_that_know_names_refuse_it():
    for wrapper in (
        lambda: pml_losses.SelfSupervisedLoss(BSPMLLoss()),
        lambda: pml_losses.CrossBatchMemory(BSPMLLoss(), 5),
    ):
        with pytest.raises(Exception, match="not supported for BSPMLLoss"):
            wrapper()


def test_the_weights_are_saved_with_the_loss():
    weights = table(draw_weights(38, 18))
    loss = BSPMLLoss(weights)
    assert loss.weights is weights
    other = BSPMLLoss(table([1.0] * 18))
    other.load_state_dict(loss.state_dict())
    assert torch.equal(other.weights.weights, weights.weights)


def test_only_numbers_are_recorded():
    loss = BSPMLLoss(table([1.0] * 18), collect_stats=True)
    emb, labels = batch(39)
    loss(emb, labels, sample_index=torch.arange(18))
    names = itertools.chain(loss._record_these, getattr(loss, "_record_these_stats", []))
    assert all(isinstance(getattr(loss, name), int | float) for name in names)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"weighting": "outside"}, "`weighting` must be one of inside, paper"),
        ({"alpha": 0}, r"`alpha` must be in \(0, inf\); got 0"),
        ({"beta": -1}, "`beta`"),
        ({"base": math.nan}, "`base`"),
        ({"alpha": math.inf}, "`alpha` must be finite; got inf"),
        ({"beta": math.inf}, "`beta` must be finite; got inf"),
        ({"base": math.inf}, "`base` must be finite; got inf"),
        ({"base": -math.inf}, "`base` must be finite; got -inf"),
    ],
)
def test_settings_out_of_range_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        BSPMLLoss(**arguments)
