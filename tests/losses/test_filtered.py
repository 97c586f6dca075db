"""A filtered loss is the loss of the batch without the dropped rows."""

import pytest
import torch
from pytorch_metric_learning import losses as pml_losses
from pytorch_metric_learning.miners import MultiSimilarityMiner, TripletMarginMiner
from torch import nn

from bspml.distributed import DistributedLossWrapper
from bspml.errors import InputError, SampleIndexError
from bspml.losses.bspml_loss import BSPMLLoss
from bspml.losses.cross_batch_memory import CrossBatchMemory
from bspml.losses.filtered import FilteredLoss
from bspml.losses.miners.bspml_miner import BSPMLMiner
from bspml.losses.neighbour_vote import NeighbourVote
from bspml.losses.prism import PRISMFilter
from bspml.losses.reducers import SuperLoss
from bspml.losses.weighted import Weighted
from bspml.weights.state import SampleWeights
from helpers.draws import normal_batch

EXACT = {"rtol": 0, "atol": 1e-12}
KEEP = torch.tensor([True, True, False, True, True, False, True, True])


class Keep(nn.Module):
    """Keeps what it was told to."""

    def __init__(self, mask=KEEP):
        super().__init__()
        self.mask = mask

    def forward(self, embeddings, labels):
        return self.mask


def batch():
    return normal_batch(8, 3, 1)[0], torch.arange(8) // 2 % 3


@pytest.mark.parametrize(
    ("loss", "miner"),
    [
        (BSPMLLoss(miner=BSPMLMiner()), None),
        (pml_losses.MultiSimilarityLoss(), MultiSimilarityMiner()),
        (pml_losses.TripletMarginLoss(), TripletMarginMiner(0.3)),
        (pml_losses.ContrastiveLoss(), None),
        (pml_losses.FastAPLoss(), None),
    ],
)
def test_it_is_the_loss_without_the_dropped_rows(loss, miner):
    emb, labels = batch()
    value = FilteredLoss(loss, Keep(), miner)(emb, labels)
    rows, codes = emb[KEEP], labels[KEEP]
    expected = loss(rows, codes, None if miner is None else miner(rows, codes))
    torch.testing.assert_close(value, expected, **EXACT)
    value.backward()
    assert torch.equal(emb.grad[~KEEP], torch.zeros_like(emb.grad[~KEEP]))
    assert emb.grad[KEEP].abs().sum() > 0


def test_nothing_kept_is_0_with_a_gradient_of_0():
    emb, labels = batch()
    loss = FilteredLoss(pml_losses.ContrastiveLoss(), Keep(torch.zeros(8, dtype=torch.bool)))
    value = loss(emb, labels)
    value.backward()
    assert value == 0
    assert torch.equal(emb.grad, torch.zeros_like(emb))
    assert (loss.num_kept, loss.num_dropped) == (0, 8)
    # Whose sum exceeds what half precision holds, or that are no numbers.
    for entry in (50.0, torch.inf, torch.nan):
        wide = torch.full((8, 512), entry, dtype=torch.float16, requires_grad=True)
        value = loss(wide, labels)
        value.backward()
        assert value == 0
        assert torch.equal(wide.grad, torch.zeros_like(wide))


def test_weights_inside_the_loss_follow_the_kept_rows():
    emb, labels = batch()
    index = torch.tensor([3, 1, 4, 15, 9, 2, 6, 5])
    of_data_set = torch.zeros(20, dtype=torch.int64)
    of_data_set[index] = labels
    weights = SampleWeights(of_data_set)
    weights.update(torch.linspace(0, 1, 20))
    inner = BSPMLLoss(weights)
    value = FilteredLoss(inner, Keep(), weights=weights)(emb, labels, sample_index=index)
    expected = inner(emb[KEEP], labels[KEEP], sample_index=index[KEEP])
    torch.testing.assert_close(value, expected, **EXACT)


def test_which_samples_were_kept_is_noted_by_data_set_row():
    emb, labels = batch()
    weights = SampleWeights(list(range(10)))
    loss = FilteredLoss(BSPMLLoss(), Keep(), weights=weights)
    weights.set_batch(torch.arange(8) + 2)
    loss(emb, labels)
    assert loss.as_weights().tolist() == [1, 1, 1, 1, 0, 1, 1, 0, 1, 1]
    loss.eval()
    weights.set_batch(torch.arange(8))
    loss(emb, labels)
    assert loss.as_weights().tolist() == [1, 1, 1, 1, 0, 1, 1, 0, 1, 1]
    again = FilteredLoss(BSPMLLoss(), Keep(), weights=SampleWeights(list(range(10))))
    again.load_state_dict(loss.state_dict())
    assert again.as_weights().tolist() == loss.as_weights().tolist()


def test_train_and_eval_reach_the_filter():
    loss = FilteredLoss(BSPMLLoss(), PRISMFilter(3, 3, 0.2))
    assert not loss.eval().sample_filter.training


def test_what_cannot_be_filtered_is_refused():
    emb, labels = batch()
    loss = FilteredLoss(BSPMLLoss(), Keep())
    with pytest.raises(InputError, match="Let the filtered loss mine"):
        loss(emb, labels, MultiSimilarityMiner()(emb, labels))
    with pytest.raises(InputError, match="`ref_emb` is not filtered"):
        loss(emb, labels, None, emb, labels)
    with pytest.raises(InputError, match="make the loss with `weights=SampleWeights"):
        loss.as_weights()
    with pytest.raises(SampleIndexError, match="sample indices are missing"):
        FilteredLoss(BSPMLLoss(), Keep(), weights=SampleWeights([0, 1]))(emb, labels)


ABOUT_ROWS = {
    "a miner's": lambda w: {"loss": BSPMLLoss(w), "miner": BSPMLMiner(w)},
    "a miner's before a loss": lambda w: {
        "loss": Weighted(pml_losses.ContrastiveLoss(), w),
        "miner": BSPMLMiner(w),
    },
    "SuperLoss's": lambda w: {"loss": SuperLoss(pml_losses.ContrastiveLoss(), sample_weights=w)},
    "a sum's": lambda w: {"loss": pml_losses.MultipleLosses([BSPMLLoss(w), BSPMLLoss(w)])},
    "a memory's": lambda w: {"loss": CrossBatchMemory(BSPMLLoss(w), 3, 32)},
    "of all ranks": lambda w: {"loss": DistributedLossWrapper(BSPMLLoss(w))},
}


@pytest.mark.parametrize("whose", ABOUT_ROWS)
def test_whoever_looks_weights_up_is_told_the_kept_rows(whose):
    emb, labels = batch()
    index = torch.arange(8).flip(0)
    weights = SampleWeights(labels[index])
    weights.update(torch.linspace(0, 1, 8))
    weights.set_batch(index[KEEP])
    alone = ABOUT_ROWS[whose](weights)
    pairs = alone["miner"](emb[KEEP], labels[KEEP]) if "miner" in alone else None
    expected = alone["loss"](emb[KEEP], labels[KEEP], pairs)
    for named in ({}, {"sample_index": index}):
        weights.clear_batch()
        if not named:
            weights.set_batch(index)
        parts = ABOUT_ROWS[whose](weights)
        loss = FilteredLoss(parts["loss"], Keep(), parts.get("miner"), weights)
        torch.testing.assert_close(loss(emb, labels, **named), expected, **EXACT)
        # And nobody else: the batch is announced again, or not at all.
        assert named or torch.equal(weights.batch_index, index)
        assert not named or weights.batch_index is None


def test_a_memory_knows_the_kept_rows_from_their_older_embeddings():
    emb, labels = batch()
    filtered = FilteredLoss(
        CrossBatchMemory(BSPMLLoss(), 3, 32), Keep(), weights=SampleWeights(range(8))
    )
    memory = CrossBatchMemory(BSPMLLoss(), 3, 32)
    for _ in range(2):
        expected = memory(emb[KEEP], labels[KEEP], sample_index=torch.arange(8)[KEEP])
        torch.testing.assert_close(
            filtered(emb, labels, sample_index=torch.arange(8)), expected, **EXACT
        )


@pytest.mark.parametrize("kind", ["mean", "vmf", "vote"])
def test_filters_work_in_any_precision(kind):
    labels, kept = torch.arange(4).repeat_interleave(6), {}
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        rows = NeighbourVote(24, 8, 3) if kind == "vote" else PRISMFilter(4, 8, 0.2, score=kind)
        loss = FilteredLoss(BSPMLLoss(), rows, weights=SampleWeights(labels)).to(dtype)
        generator = torch.Generator().manual_seed(0)
        centres = torch.randn(4, 8, generator=generator)[labels]
        for _ in range(4):  # the first are remembered
            embeddings = centres + torch.randn(24, 8, generator=generator)
            loss(embeddings.bfloat16().to(dtype), labels, sample_index=torch.arange(24))
        kept[dtype] = loss.kept.tolist()
    assert 0 < sum(kept[torch.float32]) < 24
    assert all(found == kept[torch.float32] for found in kept.values())


class Judge(nn.Module):
    """Drops rows 0 and 1 of what it is shown, and notes which samples these were."""

    needs_sample_index = True

    def forward(self, embeddings, labels, sample_index):
        self.shown = sample_index.tolist()
        return torch.arange(len(labels)) > 1


def test_what_a_person_decided_is_not_left_to_the_filter():
    emb, labels = batch()
    weights = SampleWeights(labels)
    weights.fix([0, 2, 5], [1.0, 0.0, 0.0])
    judge, rows = Judge(), [0, 1, 3, 4, 6, 7]
    loss = FilteredLoss(pml_losses.ContrastiveLoss(), judge, weights=weights)
    value = loss(emb, labels, sample_index=torch.arange(8))
    assert judge.shown == rows
    stay = [0, 3, 4, 6, 7]  # 1 is dropped by the filter, 0 is not
    expected = pml_losses.ContrastiveLoss()(emb[stay], labels[stay])
    torch.testing.assert_close(value, expected, **EXACT)
    assert loss.as_weights().nonzero()[:, 0].tolist() == stay
    weights.fix(range(8), torch.zeros(8))
    assert loss(emb, labels, sample_index=torch.arange(8)).item() == 0


def test_labels_decided_to_be_wrong_do_not_reach_the_memory_of_prism():
    emb, labels = batch()
    weights = SampleWeights(labels)
    weights.fix([2, 5], [0.0, 0.0])
    prism = PRISMFilter(3, 3, noise_rate=0.2)
    FilteredLoss(BSPMLLoss(), prism, weights=weights)(emb, labels, sample_index=torch.arange(8))
    assert prism.rows_remembered == 6
