"""Announced rows are the batch's, or refused: by every loss, miner and memory that reads them."""

import numpy as np
import pandas as pd
import pytest
import torch
from pytorch_metric_learning import losses as pml_losses

import bspml
from bspml.errors import InputError, SampleIndexError
from bspml.losses.filtered import FilteredLoss
from helpers.draws import randn

Y = torch.arange(40) // 4
NAMES = [f"class {c}" for c in Y.tolist()]


class KeepAll(torch.nn.Module):
    def forward(self, embeddings, labels):
        return torch.ones(len(embeddings), dtype=torch.bool)


def consumers(weights):
    memory = bspml.CrossBatchMemory(bspml.BSPMLLoss(weights), 3, 64)
    return {
        "loss": bspml.BSPMLLoss(weights),
        "inner loss": lambda e, y: bspml.BSPMLLoss(weights).compute_loss(e, y, None, e, y),
        "miner": bspml.BSPMLMiner(weights),
        "miner of all": bspml.BSPMLMiner(weights, skip_zero=False),
        "weighted": bspml.Weighted(pml_losses.ContrastiveLoss(), weights),
        "reducer": bspml.SuperLoss(pml_losses.ContrastiveLoss(), sample_weights=weights),
        "memory": memory,
        "filtered": FilteredLoss(bspml.BSPMLLoss(), KeepAll(), weights=weights),
    }


CONSUMERS = list(consumers(bspml.SampleWeights(Y)))
WEIGHING = [name for name in CONSUMERS if name != "miner of all"]


@pytest.mark.parametrize("name", WEIGHING)
def test_rows_that_outlive_their_batch_are_refused(name):
    weights = bspml.SampleWeights(Y)
    call = consumers(weights)[name]
    emb = randn(8, 3)
    weights.set_batch(range(8))
    call(emb, Y[:8])
    # The next batch, of the same sizes and grouping, and nobody announced it.
    with pytest.raises(InputError, match=r"set_batch.* differ at 8 of 8 rows, first at row 0"):
        call(emb, Y[8:16])
    weights.clear_batch()
    with pytest.raises(SampleIndexError, match="set_batch"):
        call(emb, Y[8:16])
    weights.set_batch(range(8, 16))
    call(emb, Y[8:16])


def test_labels_are_the_given_ones_or_their_positions_and_repaired_ones_count():
    weights = bspml.SampleWeights(Y * 10 + 7)
    weights.set_batch([3, 4, 39])
    for labels in (torch.tensor([0, 1, 9]), torch.tensor([7, 17, 97]), [7.0, 17.0, 97.0]):
        assert weights.index_for_batch(3, labels=labels).tolist() == [3, 4, 39]
    with pytest.raises(InputError, match=r"1 of 3 rows, .* 2 .*row 39 is of 97, .*says 87"):
        weights.index_for_batch(3, labels=torch.tensor([7, 17, 87]))
    codes = weights.codes.clone()
    codes[39] = 2
    weights.relabel(codes)
    for last in (9, 2):
        weights.index_for_batch(3, labels=torch.tensor([0, 1, last]))
    named = bspml.SampleWeights(NAMES)
    named.set_batch([0, 39])
    named.index_for_batch(2, labels=torch.tensor([0, 9]))
    with pytest.raises(InputError, match="is of class 9, the batch says 1"):
        named.index_for_batch(2, labels=torch.tensor([0, 1]))


def test_announced_references_have_their_own_labels():
    weights = bspml.SampleWeights(Y)
    loss, emb = bspml.BSPMLLoss(weights), randn(4, 3)
    weights.set_batch(range(4), ref_sample_index=range(4, 12))
    loss(emb, Y[:4], None, randn(8, 3), Y[4:12])
    with pytest.raises(InputError, match="differ at 8 of 8 rows"):
        loss(emb, Y[:4], None, randn(8, 3), Y[12:20])


def test_on_an_accelerator_only_other_labels_under_one_announcement_are_looked_at():
    weights = bspml.SampleWeights(Y)
    labels = torch.tensor([5, 5], device="meta")  # whoever looked would raise
    weights.set_batch([0, 1])
    for _ in range(2):  # the miner's call, the loss's
        weights.announced(weights.batch_index, 2, labels)
    with pytest.raises((NotImplementedError, RuntimeError)):
        weights.announced(weights.batch_index, 2, labels.clone())


@pytest.mark.parametrize("labels", [[0] * 8, list(range(8))])
def test_tables_without_classes_are_not_compared(labels):
    weights = bspml.SampleWeights(labels)
    weights.set_batch(range(8))
    bspml.BSPMLLoss(weights)(randn(8, 3), Y[8:16])


NAMING = [name for name in WEIGHING if name != "inner loss"]


@pytest.mark.parametrize("name", NAMING)
def test_rows_that_are_named_have_the_labels_of_the_batch(name):
    weights = bspml.SampleWeights(NAMES)
    call = consumers(weights)[name]
    emb, one_off = randn(8, 3), [0, 1, 2, 20, 4, 5, 6, 7]
    call(emb, Y[:8], sample_index=range(8))
    call(emb, Y[:8], sample_index=[3, 2, 1, 0, 7, 6, 5, 4])  # of the same classes
    wrong = r"`sample_index` does not name.* 1 of 8 rows, first at row 3 \(data-set row 20 is of c"
    with pytest.raises(InputError, match=wrong):
        call(emb, Y[:8], sample_index=one_off)
    weights.relabel(torch.where(torch.arange(40) == 20, Y[3], weights.codes))
    call(emb, Y[:8], sample_index=one_off)  # under its repaired label


CURRENT = torch.cat([Y[:3], Y[4:5], Y[4:5], Y[:1], Y[6:]])  # rows 3 and 5 under other classes


@pytest.mark.parametrize("name", CONSUMERS)
def test_repaired_samples_are_trained_under_their_current_labels(name):
    emb, weights = randn(12, 3), bspml.SampleWeights(NAMES)
    weights.relabel(CURRENT)

    def value(table, labels):
        table.set_batch(range(12))
        found = consumers(table)[name](emb, labels[:12])
        if isinstance(found, dict):
            return found["loss"]["losses"]
        return torch.stack(found[:2]) if isinstance(found, tuple) else found

    expected = value(bspml.SampleWeights(CURRENT), CURRENT)  # as if these had been given
    assert torch.equal(value(weights, CURRENT), expected)
    if name == "reducer":  # comes after the loss, which saw the given ones
        with pytest.raises(InputError, match=r"ContrastiveLoss.*weights\.relabelled"):
            value(weights, Y)
    else:
        assert torch.equal(value(weights, Y), expected)


def test_pairs_that_were_mined_under_replaced_labels_are_refused():
    emb, weights = randn(12, 3), bspml.SampleWeights(NAMES)
    weights.relabel(CURRENT)
    rows = {"sample_index": range(12)}
    for loss in (bspml.BSPMLLoss(weights), bspml.Weighted(pml_losses.ContrastiveLoss(), weights)):
        given, current = (bspml.BSPMLMiner()(emb, y[:12]) for y in (Y, CURRENT))
        with pytest.raises(InputError, match=r"`indices_tuple`.*weights\.relabelled"):
            loss(emb, Y[:12], given, **rows)
        pairs = bspml.BSPMLMiner(weights)(emb, Y[:12], **rows)
        expected = loss(emb, CURRENT[:12], current, **rows)
        assert torch.equal(loss(emb, Y[:12], pairs, **rows), expected)


def test_references_are_paired_under_their_current_labels():
    emb, other = randn(12, 3), randn(9, 3, seed=1)
    for make in (bspml.BSPMLLoss, lambda w: bspml.Weighted(pml_losses.ContrastiveLoss(), w)):
        weights = bspml.SampleWeights(NAMES)
        weights.relabel(CURRENT)
        rows = {"sample_index": range(12), "ref_sample_index": range(9)}
        found = make(weights)(emb, Y[:12], None, other, Y[:9], **rows)
        fresh = bspml.SampleWeights(CURRENT)
        assert torch.equal(found, make(fresh)(emb, CURRENT[:12], None, other, CURRENT[:9], **rows))


def test_references_that_are_named_have_theirs():
    weights = bspml.SampleWeights(Y)
    for call in (bspml.BSPMLLoss(weights), bspml.Weighted(pml_losses.ContrastiveLoss(), weights)):
        batch = (randn(8, 3), Y[:8], None, randn(6, 3), Y[10:16])
        call(*batch, sample_index=range(8), ref_sample_index=range(10, 16))
        with pytest.raises(InputError, match="`ref_sample_index` does not name the rows"):
            call(*batch, sample_index=range(8), ref_sample_index=range(20, 26))


def test_rows_that_are_named_on_an_accelerator_are_not_waited_for(monkeypatch):
    weights = bspml.SampleWeights(Y)
    monkeypatch.setattr(weights, "_waits", lambda codes: True)
    assert weights.index_for_batch(2, [0, 1], Y[8:10]).tolist() == [0, 1]


def flat(found):
    return torch.hstack(tuple(found)) if isinstance(found, tuple | list) else found


@pytest.mark.parametrize("name", NAMING)
def test_labels_of_a_batch_are_read_or_refused_alike(name):
    emb, rows = randn(8, 3), torch.arange(8)
    kinds = {
        "list": Y[:8].tolist(),
        "array": Y[:8].numpy(),
        "bytes": Y[:8].numpy().astype("u1"),
        "series": pd.Series(Y[:8].numpy(), index=range(70, 78)),
        "nullable": pd.Series(Y[:8].numpy(), dtype="Int64"),
        "floats": Y[:8].double(),
        "column": pd.DataFrame({"y": Y[:8].numpy()})["y"],
    }
    expected = consumers(bspml.SampleWeights(Y))[name](emb, Y[:8], sample_index=rows)
    for kind, labels in kinds.items():
        found = consumers(bspml.SampleWeights(Y))[name](emb, labels, sample_index=rows)
        assert torch.equal(flat(found), flat(expected)), kind
    for labels, says in (
        (np.array(NAMES[:8]), "`labels` must be class ids, .*Give each class a number"),
        (pd.Series(NAMES[:8]), "`labels` must be class ids"),
        (Y[:8] + 0.5, "`labels` must be integers or strings; got 0.5 at row 0"),
        (Y[:7], r"`labels` must be \(B,\) = \(8,\), one label per row"),
        (Y[:8, None].numpy(), r"`labels` must be \(B,\) = \(8,\).*got \(8, 1\)"),
        (pd.Series([0, 0, None, 1, 1, 1, 2, 2]), "`labels`"),
    ):
        with pytest.raises(InputError, match=says):
            consumers(bspml.SampleWeights(Y))[name](emb, labels, sample_index=rows)
