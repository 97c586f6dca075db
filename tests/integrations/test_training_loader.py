"""A loader that draws from another sampler for a while; no framework is needed for it."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import bspml
from bspml.errors import InputError
from bspml.integrations.training_loader import TrainingLoader

LABELS = torch.arange(4).repeat_interleave(6)
DATA = TensorDataset(torch.arange(24.0)[:, None], LABELS)


def pairs(items):
    """A collate_fn of a user's own."""
    x, y = zip(*items, strict=True)
    return {"x": torch.stack(x), "y": torch.stack(y)}


@pytest.mark.parametrize("workers", [0, 1])
def test_a_plain_loader_draws_from_the_sampler_until_the_end(workers):
    plain = {"num_workers": workers, "persistent_workers": workers > 0}
    loader = DataLoader(DATA, 8, shuffle=True, drop_last=True, collate_fn=pairs, **plain)
    next(iter(loader))  # opened before: workers that stay know the old order
    before = {name: part for name, part in vars(loader).items() if name != "_iterator"}
    training = TrainingLoader(loader, ("x", "y"))
    weights = bspml.SampleWeights(LABELS)
    sampler = training.fit_to(weights, training.dataset)
    training.begin()
    sampler.set_rows(LABELS < 3)
    training.place(epoch=1, step=0, seed=5)
    assert len(loader) == len(sampler)
    for batch in loader:
        rows, labels = training.rows_and_labels(batch, weights)
        assert torch.equal(rows, batch["x"][:, 0].long())
        assert torch.equal(LABELS[rows], labels)
        assert labels.max() < 3
    training.end()
    assert {name: vars(loader)[name] for name in before} == before
    assert sum(len(batch["y"]) for batch in loader) == 24
    training.end()  # twice does no harm


class Drawn(TensorDataset):
    def __getitem__(self, row):
        x, y = super().__getitem__(row)
        return x + torch.rand(1), y


@pytest.mark.parametrize("of_user", [None, torch.Generator()])
def test_workers_draw_the_same_at_the_same_place(of_user):
    loader = DataLoader(Drawn(*DATA.tensors), 8, shuffle=True, num_workers=1, generator=of_user)
    state = None if of_user is None else of_user.get_state()
    training = TrainingLoader(loader, None)
    training.fit_to(bspml.SampleWeights(LABELS), training.dataset)
    training.begin()
    epochs = []
    for epoch in (0, 1, 1):
        training.place(epoch=epoch, step=0, seed=5)
        epochs.append(torch.cat([x for x, _ in loader]))
    training.end()
    assert torch.equal(epochs[1], epochs[2])
    assert not torch.equal(epochs[0].sort(0)[0], epochs[1].sort(0)[0])
    assert loader.generator is of_user
    assert of_user is None or torch.equal(of_user.get_state(), state)


def test_the_loader_of_the_training_is_no_validation_set():
    training = TrainingLoader(DataLoader(DATA, 8), None)
    for others in (None, DataLoader(DATA, 8), [DataLoader(DATA, 8)]):
        training.refuse_in(others)
    for others in (training.loader, {"a": training.loader}, [DataLoader(DATA), training.loader]):
        with pytest.raises(InputError, match="no validation set"):
            training.refuse_in(others)


def test_items_are_of_the_labels_that_were_judged():
    weights, stale = bspml.SampleWeights(LABELS), LABELS.clone()
    stale[17] = 3  # not among those that are looked at first
    loader = DataLoader(TensorDataset(DATA.tensors[0], stale), 8)
    training = TrainingLoader(loader, None)
    training.fit_to(weights, training.dataset)
    training.begin()
    with pytest.raises(InputError, match="data-set row 17 is of 2"):
        _ = [training.rows_and_labels(batch, weights) for batch in loader]
    batches = training.in_order(8, lambda batch: batch, weights)
    assert [len(x) for x in batches(slice(0, 16))] == [8, 8]
    with pytest.raises(InputError, match=r"at 1 of 8 rows, first at row 1 .*not only in `targets`"):
        list(batches(slice(0, 24)))
    loader.collate_fn = lambda items: torch.utils.data.default_collate(items[:-1])
    with pytest.raises(InputError, match="a batch of 8 items has 7 labels"):
        list(batches(slice(0, 16)))


def test_text_is_held_against_nothing():
    weights = bspml.SampleWeights(LABELS)
    weights.check_items(["a", "b"], [0, 1])
    weights.check_items([0, 0, 3], [0, 1, 23])
    with pytest.raises(InputError, match="at 1 of 3 rows, first at row 2"):
        weights.check_items([0, 0, 2], [0, 1, 23])
