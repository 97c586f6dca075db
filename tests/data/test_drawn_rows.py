"""The rows that a sampler knows against those that the items would have said."""

import pickle

import pytest
import torch
from torch.utils.data import DataLoader, SubsetRandomSampler

import bspml
from bspml.data.drawn_rows import DrawnRows, check_order, classes_per_batch
from bspml.errors import CheckpointError, InputError

LABELS = torch.arange(6).repeat_interleave(8)
ITEMS = [(torch.tensor([float(row)]), int(label)) for row, label in enumerate(LABELS)]


@pytest.mark.parametrize("workers", [0, 2])
def test_each_batch_finds_its_rows_also_after_one_that_was_broken_off(workers):
    torch.manual_seed(0)
    sampler = DrawnRows.of_size(LABELS, 19)
    loader = DataLoader(ITEMS, batch_sampler=sampler, num_workers=workers)
    next(iter(loader))
    twin = bspml.PKSampler(LABELS, 4, 4)
    sampler.set_epoch(1)  # workers had it draw ahead
    twin.set_epoch(1)
    for _ in range(2):
        expected = list(twin)
        for (x, _), rows in zip(loader, expected, strict=True):
            assert sampler.take(16).tolist() == x[:, 0].tolist() == rows
        sampler.set_epoch(2)
        twin.set_epoch(2)
    sampler.share(1, 2)
    for x, y in loader:
        assert len(y) == 8
        assert sampler.take(8).tolist() == x[:, 0].tolist()


def test_parts_of_a_batch_take_its_rows_in_turn_and_other_numbers_are_refused():
    sampler = DrawnRows.of_size(LABELS, 16)
    batches = iter(sampler)
    rows = next(batches)
    assert torch.cat([sampler.take(4) for _ in range(4)]).tolist() == rows
    next(batches)
    with pytest.raises(InputError, match=r"the batch has 15 labels, and 16 rows were drawn"):
        sampler.take(15)
    with pytest.raises(InputError, match=r"the batch has 16 labels, and 0 rows were drawn"):
        DrawnRows(LABELS, 4).take(16)
    assert pickle.loads(pickle.dumps(DrawnRows(LABELS, 4))).drawn_from()["num_samples"] == 48


def test_the_seed_is_torchs_or_that_of_the_state_that_it_goes_on_from():
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        sampler = DrawnRows.of_size(LABELS, 16)
        drawn.append(list(sampler))
    assert drawn[0] == drawn[1] != drawn[2]
    torch.manual_seed(-1)  # 2**64 - 1, beyond what a tensor of the ranks holds
    assert int(torch.tensor(DrawnRows.of_size(LABELS, 16).seed)) == 2**63 - 1
    state = bspml.PKSampler(LABELS, 4, 4, seed=1).state_dict()
    sampler.load_state_dict(state)
    assert list(sampler) == drawn[0]
    for seed in (None, -1):
        state["drawn_from"]["seed"] = seed
        with pytest.raises(CheckpointError, match="`seed`"):
            sampler.load_state_dict(state)
    chosen = DrawnRows(LABELS, 4, 4, seed=2)  # somebody's own
    with pytest.raises(CheckpointError, match="saved with seed=1, this sampler has seed=2"):
        chosen.load_state_dict(bspml.PKSampler(LABELS, 4, 4, seed=1).state_dict())


def test_a_batch_has_two_classes_at_least():
    assert classes_per_batch(LABELS, 64, "size") == 6
    assert classes_per_batch(LABELS, 19, "size") == 4
    with pytest.raises(InputError, match=r"`size` must be at least 8.*got 7, and labels of 6"):
        classes_per_batch(LABELS, 7, "size")
    with pytest.raises(InputError, match=r"at least two classes, .* got 1"):
        classes_per_batch(LABELS[:8], 64, "size")


def test_a_sampler_of_some_rows_is_not_replaced():
    loader = DataLoader(ITEMS, 8, shuffle=True)
    for sampler in (None, loader.sampler, DataLoader(ITEMS).sampler):
        check_order(sampler, "loader", len(ITEMS))
    with pytest.raises(InputError, match=r"`loader` draws from a SubsetRandomSampler"):
        check_order(SubsetRandomSampler([1, 2]), "loader", len(ITEMS))
