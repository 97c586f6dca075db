import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from pytorch_metric_learning import losses as pml_losses
from pytorch_metric_learning.distances import (
    CosineSimilarity,
    DotProductSimilarity,
    LpDistance,
    SNRDistance,
)
from pytorch_metric_learning.miners import MultiSimilarityMiner

from bspml.errors import InputError, SampleIndexError
from bspml.losses.miners.bspml_miner import BSPMLMiner, keep_informative
from bspml.losses.pairs import finite_or_nan
from bspml.weights.state import SampleWeights

DISTANCES = [
    CosineSimilarity(),
    DotProductSimilarity(normalize_embeddings=False),
    LpDistance(),
    LpDistance(normalize_embeddings=False, power=2),
    SNRDistance(),
]


def batch(seed, rows=24, classes=5, dtype=torch.float32, columns=6):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (rows,), generator=generator)
    centres = torch.randn(classes, columns, generator=generator)
    emb = centres[labels] + 1.2 * torch.randn(rows, columns, generator=generator)
    return emb.to(dtype), labels


def table(values):
    weights = SampleWeights([0] * len(values))
    weights.update(values)
    return weights


def as_sets(pairs):
    a1, p, a2, n = (t.tolist() for t in pairs)
    positives, negatives = list(zip(a1, p, strict=True)), list(zip(a2, n, strict=True))
    assert len(set(positives)) == len(positives)
    assert len(set(negatives)) == len(negatives)
    return set(positives), set(negatives)


def oracle(emb, labels, weight, epsilon, ref_emb=None, ref_labels=None, ref_weight=None, same=None):
    """Double loop over cosine similarities, eq. (4) and (5), among positive weights."""
    ref_emb = emb if ref_emb is None else ref_emb
    ref_labels = labels if ref_labels is None else ref_labels
    ref_weight = weight if ref_weight is None else ref_weight
    same = (lambda i, j: i == j) if same is None else same
    S = (
        torch.nn.functional.normalize(emb.double())
        @ torch.nn.functional.normalize(ref_emb.double()).T
    )
    positives, negatives = set(), set()
    for i in range(len(emb)):
        if weight[i] == 0:
            continue
        usable = [j for j in range(len(ref_emb)) if ref_weight[j] > 0 and not same(i, j)]
        P = [j for j in usable if labels[i] == ref_labels[j]]
        Q = [j for j in usable if labels[i] != ref_labels[j]]
        if not P or not Q:
            continue
        lowest, highest = min(S[i, p] for p in P), max(S[i, n] for n in Q)
        positives |= {(i, p) for p in P if S[i, p] - epsilon < highest}
        negatives |= {(i, n) for n in Q if S[i, n] + epsilon > lowest}
    return positives, negatives


# ------------------------------------------------------------------------------- against pml


@pytest.mark.parametrize("distance", DISTANCES, ids=lambda d: type(d).__name__)
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.5, 3.0])
@pytest.mark.parametrize("with_ref", [False, True])
def test_weight_one_mines_what_pml_mines(distance, epsilon, with_ref):
    theirs = MultiSimilarityMiner(epsilon, distance=distance)
    for seed in range(3):
        emb, labels = batch(seed)
        references = batch(seed + 50, rows=31) if with_ref else (None, None)
        expected = as_sets(theirs(emb, labels, *references))
        plain = BSPMLMiner(epsilon=epsilon, distance=distance)
        assert as_sets(plain(emb, labels, *references)) == expected
        ours = BSPMLMiner(table([1.0] * 24), epsilon, distance=distance)
        assert as_sets(ours(emb, labels, *references, sample_index=torch.arange(24))) == expected


def test_two_hundred_random_batches_with_duplicates_agree_with_pml():
    theirs, ours = MultiSimilarityMiner(), BSPMLMiner()
    for seed in range(200):
        emb, labels = batch(seed, rows=12, classes=4)
        emb[3], emb[7] = emb[2], emb[6]
        pairs = ours(emb, labels)
        assert as_sets(pairs) == as_sets(theirs(emb, labels))
        a1, p, a2, n = pairs
        assert (labels[a1] == labels[p]).all()
        assert (labels[a2] != labels[n]).all()
        assert (a1 != p).all()


def test_without_skip_zero_the_weights_do_not_matter():
    emb, labels = batch(0)
    ours = BSPMLMiner(table([0.0] * 24), skip_zero=False)
    assert as_sets(ours(emb, labels)) == as_sets(MultiSimilarityMiner()(emb, labels))


def test_pml_s_own_angles_over_epsilons_and_dtypes():
    # One point per 20 degrees; the similarity of two is the cosine of the angle between them.
    angles = torch.arange(0, 180, 20) * math.pi / 180
    labels = torch.tensor([0, 0, 1, 1, 1, 2, 2, 3, 3])
    for dtype in (torch.float16, torch.float32, torch.float64):
        emb = torch.stack([angles.cos(), angles.sin()], 1).to(dtype)
        for epsilon in (0.05, 0.12, 0.31, 0.77, 1.9):
            ours = BSPMLMiner(epsilon=epsilon)
            assert as_sets(ours(emb, labels)) == oracle(emb, labels, [1] * 9, epsilon)


# ------------------------------------------------------------------------------- by hand


@pytest.mark.parametrize(
    ("epsilon", "positives", "negatives"),
    [(0.1, {2}, {3}), (0.3, {1, 2}, {3, 4})],
)
def test_a_worked_anchor(epsilon, positives, negatives):
    # Anchor 0 with positives at .9 and .5, negatives at .7 and .3.
    # eps .1: positives below .7 + .1, negatives above .5 - .1.  eps .3: below 1, above .2.
    S = torch.tensor([[1, 0.9, 0.5, 0.7, 0.3]])
    P = torch.tensor([[False, True, True, False, False]])
    Q = torch.tensor([[False, False, False, True, True]])
    kept = keep_informative(S, P, Q, epsilon)
    assert set(kept[0][0].nonzero()[:, 0].tolist()) == positives
    assert set(kept[1][0].nonzero()[:, 0].tolist()) == negatives


def test_a_pair_exactly_on_the_margin_is_left_out_as_in_pml():
    # Similarities .75 and .5 and epsilon .25 are exact in binary: S_p - epsilon = S_n.
    emb = torch.tensor([[1.0, 0.0], [0.75, 0.0], [0.5, 0.0]])
    labels = torch.tensor([0, 0, 1])
    distance = DotProductSimilarity(normalize_embeddings=False)
    for miner in (BSPMLMiner(epsilon=0.25, distance=distance), MultiSimilarityMiner(0.25)):
        miner.distance = distance
        pairs = miner(emb[:1], labels[:1], emb[1:], labels[1:])
        assert all(len(t) == 0 for t in pairs)


@pytest.mark.parametrize(
    "labels", [[0, 1, 2, 3], [5, 5, 5, 5], [0], []], ids=["singletons", "one class", "B=1", "B=0"]
)
def test_batches_without_informative_pairs_give_four_empty_lists(labels):
    emb = torch.eye(4)[: len(labels)]
    pairs = BSPMLMiner()(emb, torch.tensor(labels, dtype=torch.long))
    assert len(pairs) == 4
    assert all(t.dtype == torch.int64 and len(t) == 0 for t in pairs)


def test_an_empty_memory_gives_empty_lists():
    emb, labels = batch(0)
    assert all(len(t) == 0 for t in BSPMLMiner()(emb, labels, emb[:0], labels[:0]))


# ------------------------------------------------------------------------------- weights


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10_000),
    st.lists(st.sampled_from([0.0, 0.0, 1e-30, 0.5, 1.0]), min_size=14, max_size=14),
    st.sampled_from([0.0, 0.1, 0.6]),
)
def test_weights_follow_the_double_loop(seed, values, epsilon):
    emb, labels = batch(seed, rows=14, classes=3, dtype=torch.float64)
    ours = BSPMLMiner(table(values), epsilon)
    mined = as_sets(ours(emb, labels, sample_index=torch.arange(14)))
    assert mined == oracle(emb, labels, values, epsilon)


def test_weight_zero_is_absence():
    emb, labels = batch(3)
    values = torch.ones(24)
    gone = torch.tensor([0, 5, 11, 12])
    values[gone] = 0
    mined = as_sets(BSPMLMiner(table(values))(emb, labels, sample_index=torch.arange(24)))
    rest = [i for i in range(24) if i not in gone.tolist()]
    without = as_sets(BSPMLMiner()(emb[rest], labels[rest]))
    for found, expected in zip(mined, without, strict=True):
        assert found == {(rest[i], rest[j]) for i, j in expected}


def test_weights_are_looked_up_by_index_and_not_by_row():
    emb, labels = batch(4)
    values = torch.ones(100)
    values[70] = 0
    index = torch.arange(60, 84)
    mined = as_sets(BSPMLMiner(table(values))(emb, labels, sample_index=index))
    assert all(10 not in pair for pairs in mined for pair in pairs)
    assert mined == oracle(emb, labels, values[index], 0.1)


def test_reference_weights_count_and_are_one_when_unknown():
    emb, labels = batch(5, rows=10)
    ref, ref_labels = batch(6, rows=15)
    weights = table([1.0] * 10 + [0.0, 1.0, 0.5] * 5)
    miner = BSPMLMiner(weights)
    index, ref_index = torch.arange(10), torch.arange(10, 25)
    known = miner(emb, labels, ref, ref_labels, index, ref_index)
    never = lambda i, j: False  # noqa: E731
    arguments = (emb, labels, [1] * 10, 0.1, ref, ref_labels)
    assert as_sets(known) == oracle(*arguments, weights[ref_index], never)
    unknown = miner(emb, labels, ref, ref_labels, index)
    assert as_sets(unknown) == oracle(*arguments, [1] * 15, never)


def test_the_announced_batch_serves_calls_without_an_index():
    emb, labels = batch(7)
    weights = table([0.0, 1.0] * 12)
    miner = BSPMLMiner(weights)
    with pytest.raises(SampleIndexError, match="set_batch"):
        miner(emb, labels)
    weights.set_batch(torch.arange(24))
    expected = oracle(emb, labels, weights.weights, 0.1)
    assert as_sets(miner(emb, labels)) == expected
    assert as_sets(miner.mine(emb, labels, emb, labels)) == expected


def test_another_number_of_indices_raises():
    emb, labels = batch(0)
    with pytest.raises(InputError, match=r"\(24,\) like the embeddings; got \(23,\)"):
        BSPMLMiner(table([1.0] * 24))(emb, labels, sample_index=torch.arange(23))


# ------------------------------------------------------------------------------- self pairs


def test_a_memory_that_holds_the_batch_gives_no_self_pair():
    emb, labels = batch(8, rows=16)
    older, older_labels = batch(9, rows=8)
    memory, memory_labels = torch.cat([older, emb]), torch.cat([older_labels, labels])
    index = torch.arange(16)
    memory_index = torch.cat([torch.arange(16, 24), index])
    same = lambda i, j: memory_index[j] == index[i]  # noqa: E731
    weights = table([1.0] * 24)
    for epsilon in (0.1, 3.0):
        for miner in (BSPMLMiner(weights, epsilon), BSPMLMiner(epsilon=epsilon)):
            mined = as_sets(miner(emb, labels, memory, memory_labels, index, memory_index))
            expected = oracle(emb, labels, [1] * 16, epsilon, memory, memory_labels, [1] * 24, same)
            assert mined == expected


def test_a_self_pair_does_not_stand_in_for_a_missing_positive():
    # Anchor 0 has no other positive: with its self pair as one, its negative at .96 would be mined.
    emb = torch.tensor([[1.0, 0.0], [0.96, 0.28]])
    labels = torch.tensor([0, 1])
    index = torch.tensor([0, 1])
    pairs = BSPMLMiner()(emb, labels, emb.clone(), labels.clone(), index, index)
    assert all(len(t) == 0 for t in pairs)


# ------------------------------------------------------------------------------- robustness


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_autocast_and_half_precision_mine_like_float32(dtype):
    emb, labels = batch(10, rows=48)
    emb = emb.to(dtype)
    expected = as_sets(BSPMLMiner()(emb.float(), labels))
    assert as_sets(BSPMLMiner()(emb, labels)) == expected
    with torch.autocast("cpu", torch.bfloat16):
        assert as_sets(BSPMLMiner()(emb, labels)) == expected


def test_a_row_that_is_not_a_number_raises():
    emb, labels = batch(0)
    emb[4, 1] = math.nan
    with pytest.raises(InputError, match="rows 4 hold NaN"):
        BSPMLMiner()(emb, labels)


def test_where_the_device_does_not_check_a_nan_pair_stays_in_sight():
    S = torch.tensor([[0.9, math.nan, 0.7, 0.3]])
    P = torch.tensor([[True, True, False, False]])
    positive, negative = keep_informative(S, P, ~P, 0.1)
    assert positive[0, 1]
    assert negative[0, 2:].all()
    assert math.isnan(finite_or_nan(S))


def test_labels_may_be_far_apart_and_narrow():
    emb, labels = batch(11)
    renamed = torch.tensor([7, 1_000_003, -4, 0, 12], dtype=torch.int32)[labels]
    assert as_sets(BSPMLMiner()(emb, renamed)) == as_sets(BSPMLMiner()(emb, labels))


def test_permuting_the_batch_permutes_the_pairs():
    emb, labels = batch(12)
    values = torch.tensor([0.0, 1.0, 0.5] * 8)
    order = torch.randperm(24, generator=torch.Generator().manual_seed(0))
    miner = BSPMLMiner(table(values))
    plain = as_sets(miner(emb, labels, sample_index=torch.arange(24)))
    permuted = as_sets(miner(emb[order], labels[order], sample_index=order))
    for found, expected in zip(permuted, plain, strict=True):
        assert {(int(order[i]), int(order[j])) for i, j in found} == expected


def test_its_pairs_work_with_the_losses_of_pml():
    emb, labels = batch(13)
    pairs, theirs = BSPMLMiner()(emb, labels), MultiSimilarityMiner()(emb, labels)
    for loss in (
        pml_losses.MultiSimilarityLoss(),
        pml_losses.ContrastiveLoss(),
        pml_losses.TripletMarginLoss(),
        pml_losses.NTXentLoss(),
        pml_losses.NCALoss(),
        pml_losses.ArcFaceLoss(5, 6),
    ):
        torch.testing.assert_close(loss(emb, labels, pairs), loss(emb, labels, theirs))


def test_mining_keeps_no_graph_and_counts_its_pairs():
    emb, labels = batch(14)
    miner = BSPMLMiner(collect_stats=True)
    pairs = miner(emb.requires_grad_(), labels)
    assert (miner.num_pos_pairs, miner.num_neg_pairs) == (len(pairs[0]), len(pairs[2]))
    assert not pairs.positive.requires_grad


def test_epsilon_must_be_a_number_of_at_least_0():
    for value in (math.nan, -0.1, -math.inf):
        with pytest.raises(InputError, match=r"`epsilon` must be in \[0, inf\)"):
            BSPMLMiner(epsilon=value)
    with pytest.raises(InputError, match="`epsilon` must be finite"):
        BSPMLMiner(epsilon=math.inf)
    assert BSPMLMiner(epsilon=0).epsilon == 0
