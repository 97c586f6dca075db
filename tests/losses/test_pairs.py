import math

import pytest
import torch
from pytorch_metric_learning.utils import loss_and_miner_utils as lmu

from bspml.errors import InputError
from bspml.losses.mined_pairs import MinedPairs
from bspml.losses.pairs import (
    drop_self_pairs,
    finite_or_nan,
    indices_to_masks,
    label_masks,
    not_finite_marker,
    prepare_batch,
    self_pairs,
)

EMB = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6], [0.0, 1.0]])
LABELS = torch.tensor([0, 0, 1, 0])


def pair_set(rows, columns):
    return set(zip(rows.tolist(), columns.tolist(), strict=True))


def mask_set(mask):
    return pair_set(*mask.nonzero(as_tuple=True))


# ------------------------------------------------------------------------------- batches


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_half_precision_becomes_float32_and_double_stays(dtype):
    batch = prepare_batch(EMB.to(dtype), LABELS, EMB.to(torch.bfloat16), LABELS.clone())
    expected = torch.float64 if dtype == torch.float64 else torch.float32
    assert batch.embeddings.dtype == batch.ref_emb.dtype == expected


def test_a_double_reference_raises_the_batch():
    assert prepare_batch(EMB, LABELS, EMB.double(), LABELS).embeddings.dtype == torch.float64


def test_without_references_the_batch_is_its_own():
    for ref in (None, EMB):
        batch = prepare_batch(EMB, LABELS, ref)
        assert batch.within
        assert batch.ref_emb is batch.embeddings
        assert batch.ref_labels is batch.labels
        assert (batch.other_emb, batch.other_rows) == (None, None)


@pytest.mark.parametrize(
    ("ref_emb", "ref_labels", "same"),
    [
        (EMB.clone(), LABELS, True),  # the same label tensor: the same rows, as pml reads it
        (EMB.clone(), LABELS.clone(), False),
        (EMB, LABELS.clone(), True),
    ],
)
def test_self_pairs_are_known_by_the_object(ref_emb, ref_labels, same):
    assert prepare_batch(EMB, LABELS, ref_emb, ref_labels).same_rows is same


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((EMB, LABELS[:3]), r"`labels` must be \(B,\) = \(4,\).*`embeddings`; got \(3,\)"),
        ((EMB, LABELS[:, None]), r"got \(4, 1\)"),
        ((EMB, LABELS, EMB[:2].clone(), LABELS), r"`ref_labels` must be \(B,\) = \(2,\)"),
        ((EMB[0], LABELS), r"`embeddings` must be \(B, D\).*got \(2,\)"),
        ((EMB.long(), LABELS), "must be a tensor of floats; got torch.int64"),
        ((EMB, LABELS, EMB[:, :1].clone(), LABELS.clone()), "as many columns.* 2; got 1"),
        ((EMB, LABELS, EMB.bool(), LABELS.clone()), "`ref_emb` must be a tensor of floats"),
        ((EMB.to(torch.float8_e4m3fn), LABELS), "must be a tensor of floats; got torch.float8"),
        ((EMB.to_sparse(), LABELS), r"must be a dense tensor.*to_dense\(\)"),
        ((EMB, ["a"] * 4), "`labels` must be class ids.*got a list of str.*SampleWeights"),
        ((EMB, [None] * 4), "`labels` must be class ids.*got a list of NoneType"),
        ((EMB, [[0], [1, 2], [0], [0]]), "got a list of list of different lengths"),
        ((EMB, torch.tensor([0, 1, math.nan, 1])), "`labels` must be integers.*nan.* at row 2"),
        ((EMB, torch.tensor([0, 1, 0.5, 1])), r"`labels` must be integers.*0\.5.* at row 2"),
        ((EMB, LABELS, EMB.clone(), [math.inf] * 4), "`ref_labels` must be integers.*inf"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        prepare_batch(*arguments)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_rows_that_are_not_finite_are_named(value, dtype):
    emb = EMB.to(dtype, copy=True)
    emb[2, 0] = value
    with pytest.raises(InputError, match="`embeddings` must be finite; rows 2 hold NaN"):
        prepare_batch(emb, LABELS)
    with pytest.raises(InputError, match="`ref_emb` must be finite; rows 2 hold NaN"):
        prepare_batch(EMB, LABELS, emb, LABELS.clone())


def test_large_finite_rows_pass_although_their_sum_overflows():
    prepare_batch(torch.full((4, 2), 3e38), LABELS)
    prepare_batch(torch.full((4, 2), 1e300, dtype=torch.float64), LABELS)


def test_the_marker_is_nan_exactly_when_a_row_is_not_finite():
    assert float(finite_or_nan(EMB, EMB)) == 0
    for value in (math.nan, math.inf):
        assert math.isnan(finite_or_nan(EMB, torch.full((1, 2), value)))
    assert not_finite_marker(prepare_batch(EMB)) is None  # checked on the CPU instead


@pytest.mark.parametrize("labels", [[0, 0, 1, 0], LABELS.numpy(), LABELS.int(), LABELS.float()])
def test_labels_of_other_kinds_give_the_same_pairs(labels):
    masks = label_masks(prepare_batch(EMB, labels))
    for mask, expected in zip(masks, label_masks(prepare_batch(EMB, LABELS)), strict=True):
        assert torch.equal(mask, expected)


# ------------------------------------------------------------------------------- masks


def test_label_masks_agree_with_pml():
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(3, (9,), generator=generator)
    ref_labels = torch.randint(3, (5,), generator=generator)
    emb, ref = torch.rand(9, 2, generator=generator), torch.rand(5, 2, generator=generator)
    for references in ((None, None), (ref, ref_labels)):
        positive, negative = label_masks(prepare_batch(emb, labels, *references))
        a1, p, a2, n = lmu.get_all_pairs_indices(labels, references[1])
        assert mask_set(positive) == pair_set(a1, p)
        assert mask_set(negative) == pair_set(a2, n)


def test_labels_are_needed_on_both_sides():
    with pytest.raises(InputError, match=r"`labels` is needed to form pairs.*`indices_tuple`"):
        label_masks(prepare_batch(EMB))
    with pytest.raises(InputError, match="`ref_labels` is needed"):
        label_masks(prepare_batch(EMB, LABELS, EMB.clone()))


def test_references_with_the_anchors_index_are_no_pairs():
    batch = prepare_batch(EMB, LABELS, EMB[:3].clone(), torch.tensor([0, 1, 0]))
    same = self_pairs(batch, torch.tensor([10, 11, 12, 13]), torch.tensor([12, 11, 10]))
    positive, negative = label_masks(batch, same)
    assert mask_set(positive) == {(0, 0), (1, 0), (1, 2), (2, 1), (3, 0), (3, 2)}
    assert mask_set(negative) == {(0, 1), (2, 2), (3, 1)}
    assert self_pairs(batch, torch.arange(4), None) is None


def test_within_a_batch_the_row_decides_and_not_the_index():
    batch = prepare_batch(EMB, LABELS)
    assert self_pairs(batch, torch.tensor([5, 5, 5, 5]), torch.tensor([5, 5, 5, 5])) is None
    positive, negative = label_masks(batch)
    assert (0, 1) in mask_set(positive)
    assert not (positive | negative).diagonal().any()


def test_dropping_self_pairs_leaves_its_input_alone():
    ones = torch.ones(4, 4, dtype=torch.bool)
    positive, negative = drop_self_pairs(prepare_batch(EMB), ones, ones, None)
    assert ones.all()
    assert (~positive).sum() == (~negative).sum() == 4


# ------------------------------------------------------------------------------- index tuples


def test_lists_and_masks_are_the_same_pairs():
    positive, negative = label_masks(prepare_batch(EMB, LABELS))
    pairs = MinedPairs.of(positive, negative)
    assert isinstance(pairs, tuple)
    assert len(pairs) == 4
    a1, p, a2, n = pairs
    assert pair_set(a1, p) == mask_set(positive)
    assert pair_set(a2, n) == mask_set(negative)
    for listed in (pairs, tuple(pairs), MinedPairs(pairs)):
        again = indices_to_masks(listed, torch.zeros(4, 4))
        assert torch.equal(again[0], positive)
        assert torch.equal(again[1], negative)


def test_triplets_count_a_repeated_pair_once():
    triplets = tuple(torch.tensor(t) for t in ([0, 0, 1], [1, 1, 0], [2, 3, 2]))
    positive, negative = indices_to_masks(triplets, torch.zeros(4, 4))
    assert mask_set(positive) == {(0, 1), (1, 0)}
    assert mask_set(negative) == {(0, 2), (0, 3), (1, 2)}


def test_empty_lists_may_be_of_any_dtype():
    for mask in indices_to_masks([torch.tensor([])] * 4, torch.zeros(2, 3)):
        assert mask.shape == (2, 3)
        assert not mask.any()


def rows(*values):
    return torch.tensor(values)


def test_small_integers_are_indices_and_no_mask():
    pairs = tuple(rows(*values).to(torch.uint8) for values in ([0, 1], [1, 0], [0], [2]))
    positive, negative = indices_to_masks(pairs, torch.zeros(4, 4))
    assert mask_set(positive) == {(0, 1), (1, 0)}
    assert mask_set(negative) == {(0, 2)}


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        ((rows(0), rows(1)), "must hold 3 .* or 4 .*; got 2"),
        ((rows(0), rows(1, 2), rows(0), rows(1)), "pairs 1 anchors with 2 others"),
        ((rows(0), rows(1), rows(0), rows(4)), "outside the batch of 4 rows and 4 references"),
        ((rows(0), rows(-1), rows(0), rows(2)), r"outside the batch.*the pair \(0, -1\)"),
        ((rows(-4), rows(1), rows(0), rows(2)), r"outside the batch.*the pair \(-4, 1\)"),
        ((rows(0), rows(1), rows(-1)), r"outside the batch.*the pair \(0, -1\)"),
        ((rows(True), rows(True), rows(0), rows(2)), "must hold integers; got torch.bool.*nonzero"),
        ((rows(0.0), rows(1.0), rows(0), rows(2)), "must hold integers; got torch.float32"),
        ((rows([0]), rows([1]), rows(0), rows(2)), r"of one axis; got \(1, 1\)"),
        ((["a"], ["b"], rows(0), rows(2)), "index tensors of integers; got a list of str"),
        (5, "must hold 3 .* or 4 .*; got int"),
        ("aptn", "must hold 3 .* or 4 .*; got str"),
        ((rows(0, 2), rows(1, 3), rows(2), rows(3)), r"pair \(2, 3\) as positive and as negative"),
    ],
)
def test_lists_that_do_not_fit_are_refused(indices, message):
    with pytest.raises(InputError, match=message):
        indices_to_masks(indices, torch.zeros(4, 4))


def test_pairs_mined_on_another_batch_are_refused():
    pairs = MinedPairs.of(*label_masks(prepare_batch(EMB, LABELS)))
    with pytest.raises(InputError, match=r"mined among \(4, 4\) pairs, the batch has \(3, 3\)"):
        indices_to_masks(pairs, torch.zeros(3, 3))
