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
    sampler = training.fit_to(bspml.SampleWeights(LABELS), 24)
    training.begin()
    sampler.set_rows(LABELS < 3)
    training.place(epoch=1, step=0, seed=5)
    assert len(loader) == len(sampler)
    for batch in loader:
        rows, labels = training.rows_and_labels(batch)
        assert torch.equal(rows, batch["x"][:, 0].long())
        assert torch.equal(LABELS[rows], labels)
        assert labels.max() < 3
    training.end()
    assert {name: vars(loader)[name] for name in before} == before
    assert sum(len(batch["y"]) for batch in loader) == 24
    training.end()  # twice does no harm


def test_the_loader_of_the_training_is_no_validation_set():
    training = TrainingLoader(DataLoader(DATA, 8), None)
    for others in (None, DataLoader(DATA, 8), [DataLoader(DATA, 8)]):
        training.refuse_in(others)
    for others in (training.loader, {"a": training.loader}, [DataLoader(DATA), training.loader]):
        with pytest.raises(InputError, match="no validation set"):
            training.refuse_in(others)
