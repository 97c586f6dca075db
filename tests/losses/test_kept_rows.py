import numpy as np
import pytest
import torch

from bspml.errors import InputError
from bspml.losses.kept_rows import Rows, kept_rows
from bspml.losses.pairs import without_self_pairs


def by_loop(pairs, keep, keep_others):
    """The pairs whose samples all stay, renumbered one by one."""
    new = [{old: i for i, old in enumerate(mask.nonzero()[:, 0].tolist())} for mask in
           (keep, keep_others)]  # fmt: skip
    return [
        tuple(new[side > 0][i] for side, i in enumerate(pair))
        for pair in zip(*(x.tolist() for x in pairs), strict=True)
        if all(i in new[side > 0] for side, i in enumerate(pair))
    ]


@pytest.mark.parametrize("foreign", [False, True])
@pytest.mark.parametrize("size", [3, 4])
def test_pairs_are_those_of_a_loop_over_them(size, foreign):
    generator = torch.Generator().manual_seed(size + foreign)
    rows, refs = 9, 7 if foreign else 9
    keep = torch.rand(rows, generator=generator) > 0.4
    keep_refs = torch.rand(refs, generator=generator) > 0.4 if foreign else keep
    ends = (rows, refs, refs) if size == 3 else (rows, refs, rows, refs)
    pairs = tuple(torch.randint(end, (40,), generator=generator) for end in ends)
    batch = Rows(torch.randn(rows, 2), torch.arange(rows), pairs)
    if foreign:
        batch = batch._replace(ref_emb=torch.randn(refs, 2), ref_labels=torch.arange(refs))
    left = kept_rows(batch, keep, keep_refs if foreign else None)
    assert torch.equal(left.embeddings, batch.embeddings[keep])
    assert left.labels.tolist() == keep.nonzero()[:, 0].tolist()
    parts = [pairs] if size == 3 else [pairs[:2], pairs[2:]]
    found = [left.indices_tuple] if size == 3 else [left.indices_tuple[:2], left.indices_tuple[2:]]
    for part, ours in zip(parts, found, strict=True):
        expected = by_loop(part, keep, keep_refs)
        assert list(zip(*(x.tolist() for x in ours), strict=True)) == expected


def test_references_without_a_mask_all_stay():
    pairs = tuple(torch.tensor(x) for x in ([0, 2], [3, 1], [1], [4]))
    batch = Rows(torch.eye(3), torch.arange(3), pairs, torch.eye(5)[:, :3], torch.arange(5))
    left = kept_rows(batch, torch.tensor([False, True, True]))
    assert len(left.ref_emb) == 5
    assert [x.tolist() for x in left.indices_tuple] == [[1], [1], [0], [4]]


def test_one_label_tensor_on_both_sides_stays_one():
    labels, keep = torch.arange(3), torch.tensor([True, False, True])
    left = kept_rows(Rows(torch.eye(3), labels, None, torch.eye(3), labels), keep, keep)
    assert left.ref_labels is left.labels


def test_pairs_of_another_form_are_refused():
    with pytest.raises(InputError, match=r"`indices_tuple` must hold 3"):
        kept_rows(Rows(torch.eye(2), None, (torch.tensor([0]),)), torch.tensor([True, False]))


@pytest.mark.parametrize("of", [list, np.array, lambda x: torch.tensor(x, dtype=torch.int32)])
def test_pairs_may_be_of_any_kind_of_whole_numbers(of):
    """And empty ones of any kind at all, as pytorch-metric-learning's are."""
    given, keep = ([0, 2], [2, 1], [1, 2], [2, 0]), torch.tensor([True, False, True])
    index = torch.arange(3)
    left = kept_rows(Rows(torch.eye(3), None, tuple(map(of, given))), keep)
    assert [x.tolist() for x in left.indices_tuple] == [[0], [1], [1], [0]]
    others = without_self_pairs(tuple(map(of, ([0, 1], [2, 1]))) * 2, index, index)
    assert [x.tolist() for x in others] == [[0], [2], [0, 1], [2, 1]]
    for empty in (of([]), torch.tensor([])):
        left = kept_rows(Rows(torch.eye(3), None, (empty,) * 3), keep)
        assert all(len(x) == 0 for x in left.indices_tuple)
        assert all(len(x) == 0 for x in without_self_pairs((empty,) * 3, index, index))
