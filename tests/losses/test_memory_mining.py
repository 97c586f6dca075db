"""A miner in a memory chooses as if rows of weight 0, and a sample's own rows, were not there."""

import copy

import pytest
import torch
from pytorch_metric_learning import losses as pml_losses, miners
from pytorch_metric_learning.distances import LpDistance
from pytorch_metric_learning.utils import loss_and_miner_utils as lmu

import bspml
from bspml.losses.miners import DistanceWeightedMiner

SAMPLES, CLASSES, COLUMNS = 40, 5, 4
LABELS = torch.arange(SAMPLES) % CLASSES
MINERS = {
    "BatchHard": miners.BatchHardMiner,
    "easy positives": lambda: miners.BatchEasyHardMiner("easy", "hard"),
    "semihard": lambda: miners.BatchEasyHardMiner("easy", "semihard"),
    "all positives": lambda: miners.BatchEasyHardMiner("all", "hard"),
    "MultiSimilarity": miners.MultiSimilarityMiner,
    "MultiSimilarity, L2": lambda: miners.MultiSimilarityMiner(0.3, distance=LpDistance()),
    "TripletMargin": miners.TripletMarginMiner,
    "PairMargin": miners.PairMarginMiner,
    "Angular": miners.AngularMiner,
    "HDC": miners.HDCMiner,
    "UniformHistogram": miners.UniformHistogramMiner,
}
ROW_BY_ROW = [name for name in MINERS if name not in ("HDC", "UniformHistogram")]
RANDOM = {"DistanceWeighted": miners.DistanceWeightedMiner, "ours": DistanceWeightedMiner}
LOSSES = {
    "BSPML": bspml.BSPMLLoss,
    "Contrastive": lambda w: bspml.Weighted(pml_losses.ContrastiveLoss(), w),
    "TripletMargin": lambda w: bspml.Weighted(pml_losses.TripletMarginLoss(), w),
    "MultiSimilarity": lambda w: bspml.Weighted(pml_losses.MultiSimilarityLoss(), w),
    "SuperLoss": lambda w: bspml.SuperLoss(bspml.Weighted(pml_losses.NTXentLoss(), w)),
}


def make_miner(name, weights):
    by_us = {
        "none": lambda: None,
        "BSPMLMiner": lambda: bspml.BSPMLMiner(weights),
        "BSPMLMiner without a table": bspml.BSPMLMiner,
    }
    return {**MINERS, **RANDOM, **by_us}[name]()


def rows(seed=0, number=SAMPLES):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(number, COLUMNS, generator=generator, dtype=torch.float64)


def step(memory, emb, index):
    torch.manual_seed(0)  # two of the miners draw
    emb = emb.clone().requires_grad_()
    value = memory(emb, LABELS[index], sample_index=index)
    value.backward()
    return value.detach(), emb.grad


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(
    "miner", [*MINERS, *RANDOM, "none", "BSPMLMiner", "BSPMLMiner without a table"]
)
@pytest.mark.parametrize("lost", ["before", "after"])
def test_weight_zero_is_absence_whatever_mines(loss, miner, lost):
    weights = bspml.SampleWeights(LABELS)
    values = torch.ones(SAMPLES)
    values[torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(1))[:14]] = 0
    keep = values > 0
    if lost == "before":
        weights.update(values)
    full, thinned = (
        bspml.CrossBatchMemory(LOSSES[loss](weights), COLUMNS, 64, make_miner(miner, weights))
        for _ in range(2)
    )
    emb, learned = rows(), False
    for number, index in enumerate(torch.arange(SAMPLES).split(10)):
        left = index[keep[index]]
        if lost == "after" and number < 2:  # queued while they weigh 1
            full(emb[index], LABELS[index], sample_index=index)
            thinned(emb[left], LABELS[left], sample_index=left)
            continue
        weights.update(values)
        value, grad = step(full, emb[index], index)
        expected, expected_grad = step(thinned, emb[left], left)
        if loss != "SuperLoss" or lost == "before":  # whose threshold remembers the first batches
            torch.testing.assert_close(value, expected, rtol=0, atol=1e-12)
            torch.testing.assert_close(grad[keep[index]], expected_grad, rtol=0, atol=1e-12)
        assert (grad[~keep[index]] == 0).all()
        learned |= bool(expected_grad.any())
    assert learned


def test_a_batch_without_any_weight_is_zero_whatever_mines():
    weights = bspml.SampleWeights(LABELS)
    weights.update(torch.zeros(SAMPLES))
    for name in MINERS:
        loss = bspml.Weighted(pml_losses.ContrastiveLoss(), weights)
        memory = bspml.CrossBatchMemory(loss, COLUMNS, 64, MINERS[name]())
        value, grad = step(memory, rows()[:8], torch.arange(8))
        assert value == 0
        assert not grad.any()


def test_a_miner_that_found_nothing_may_say_so_by_empty_tensors_of_any_kind():
    class Finds(torch.nn.Module):
        def forward(self, *_):
            return (torch.tensor([]),) * 3

    weights = bspml.SampleWeights([0, 0, 1, 1])
    weights.update([1, 1, 0, 1])
    for loss in (bspml.Weighted(pml_losses.TripletMarginLoss(), weights), bspml.BSPMLLoss(weights)):
        memory = bspml.CrossBatchMemory(loss, 3, 8, miner=Finds())
        assert memory(torch.eye(4)[:, :3] + 1, weights.codes, sample_index=range(4)) == 0


@pytest.mark.parametrize("miner", MINERS)
@pytest.mark.parametrize("loss", ["BSPML", "Contrastive", "TripletMargin"])
def test_a_first_batch_is_mined_as_within_itself(miner, loss):
    """There the miner knows which row is the anchor itself; in the queue it saw another in it."""
    weights = bspml.SampleWeights(LABELS)
    emb, index = rows()[:16], torch.arange(16)
    memory = bspml.CrossBatchMemory(LOSSES[loss](weights), COLUMNS, 64, MINERS[miner]())
    value, _ = step(memory, emb, index)
    torch.manual_seed(0)
    pairs = MINERS[miner]()(emb, LABELS[:16])
    expected = LOSSES[loss](weights)(emb, LABELS[:16], pairs, sample_index=index)
    assert expected > 0
    torch.testing.assert_close(value, expected, rtol=0, atol=1e-12)


def mined(miner, batches):
    """The pairs that a loss gets for the last of these batches, and the memory."""

    class Spy(pml_losses.ContrastiveLoss):
        def compute_loss(self, emb, labels, pairs, ref_emb, ref_labels):
            seen.append(pairs)
            return super().compute_loss(emb, labels, pairs, ref_emb, ref_labels)

    Spy.__name__ = "ContrastiveLoss"
    seen = []
    loss = bspml.Weighted(Spy(), bspml.SampleWeights(LABELS))
    memory = bspml.CrossBatchMemory(loss, COLUMNS, 64, miner)
    for emb, index in batches:
        step(memory, emb, index)
    return seen[-1], memory


def listed(pairs):
    halves = [pairs] if len(pairs) == 3 else [pairs[:2], pairs[2:]]
    return [sorted(zip(*(i.tolist() for i in half), strict=True)) for half in halves]


def again():
    """A batch whose samples are in the queue already, elsewhere, some twice."""
    return [
        (rows(0)[:16], torch.arange(16)),
        (rows(1)[:8], torch.arange(8)),
        (rows(2)[:12], torch.tensor([*range(4, 15), 4])),
    ]


@pytest.mark.parametrize("name", ROW_BY_ROW)
def test_older_rows_of_a_sample_are_no_candidates_for_it(name):
    """A miner that looks at one anchor after the other, shown each without its own rows."""
    pairs, memory = mined(MINERS[name](), again())
    (emb, index), size = again()[-1], memory.queue_idx
    expected = []
    for row in range(len(index)):
        refs = (memory.index_memory[:size] != index[row]).nonzero()[:, 0]
        found = MINERS[name]()(
            *(emb[row : row + 1], LABELS[index[row]][None]),
            *(memory.embedding_memory[refs], memory.label_memory[refs]),
        )
        sides = (0, 1, 1) if len(found) == 3 else (0, 1, 0, 1)
        expected.append([(refs[i] if s else i + row) for i, s in zip(found, sides, strict=True)])
    columns = [torch.cat(parts) for parts in zip(*expected, strict=True)]
    assert listed(pairs) == listed(columns)
    assert len(pairs[0])


def test_a_share_of_all_pairs_is_one_of_those_without_oneself():
    pairs, memory = mined(miners.HDCMiner(0.5), again())
    (emb, index), size = again()[-1], memory.queue_idx
    other = index[:, None] != memory.index_memory[:size]
    same = LABELS[index][:, None] == memory.label_memory[:size]
    miner = miners.HDCMiner(0.5)
    outside = (*(same & other).nonzero(as_tuple=True), *(~same).nonzero(as_tuple=True))
    miner.set_idx_externally(outside, LABELS[index])
    queue = memory.embedding_memory[:size], memory.label_memory[:size]
    assert listed(pairs) == listed(miner(emb, LABELS[index], *queue))


@pytest.mark.parametrize("name", RANDOM)
def test_drawn_positives_are_never_the_sample_itself(name):
    pairs, memory = mined(RANDOM[name](), again())
    a, p = pairs[:2]
    assert len(a)
    assert (again()[-1][1][a] != memory.index_memory[p]).all()


def test_lists_of_other_labels_are_as_ever_while_a_miner_is_at_work():
    class Looks(miners.PairMarginMiner):
        def mine(self, emb, labels, ref_emb, ref_labels):
            seen.append([len(i) for i in lmu.get_all_pairs_indices(labels, labels.clone())])
            if len(emb) == 3:
                raise ValueError
            return super().mine(emb, labels, ref_emb, ref_labels)

    seen, before = [], lmu.get_matches_and_diffs
    _, memory = mined(Looks(), [(rows()[:10], torch.arange(10))])
    assert seen == [[20, 20, 80, 80]]
    with pytest.raises(ValueError, match=""):
        step(memory, rows()[:3], torch.arange(3))
    assert lmu.get_matches_and_diffs is before


def test_the_miner_s_counts_are_those_of_its_pairs():
    miner = miners.MultiSimilarityMiner()
    pairs, _ = mined(miner, again())
    assert (miner.num_pos_pairs, miner.num_neg_pairs) == (len(pairs[0]), len(pairs[2]))


def test_a_miner_told_to_see_everything_does():
    """And in the paper's loss a sample of weight 0 is there: it weighs on its pairs."""
    weights = bspml.SampleWeights(LABELS)
    weights.update((torch.arange(SAMPLES) % 3 > 0).float())
    emb, index = rows()[:16], torch.arange(16)
    for loss, miner in (
        (bspml.BSPMLLoss(weights), bspml.BSPMLMiner(weights, skip_zero=False)),
        (bspml.BSPMLLoss(weights, weighting="paper"), bspml.BSPMLMiner()),
        (bspml.BSPMLLoss(weights, weighting="paper"), miners.MultiSimilarityMiner()),
    ):
        memory = bspml.CrossBatchMemory(copy.copy(loss), COLUMNS, 64, miner)
        pairs = miners.MultiSimilarityMiner()(emb, LABELS[:16])
        expected = loss(emb, LABELS[:16], pairs, sample_index=index)
        torch.testing.assert_close(step(memory, emb, index)[0], expected, rtol=0, atol=1e-12)
