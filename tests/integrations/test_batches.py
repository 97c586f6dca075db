"""What the callbacks take from a batch and refuse of a loader; no framework is needed for it."""

import pytest
import torch
from torch.utils.data import DataLoader

import bspml
from bspml.errors import InputError
from bspml.integrations.batches import check_loader, part_of

SAMPLER = bspml.PKSampler(list("aabb"), 2, 2)
ROWS = torch.utils.data.TensorDataset(torch.zeros(4, 1))


def test_a_part_of_a_tuple_or_mapping_is_found_and_a_missing_one_named():
    assert part_of((1, 2, 3), 2, "row") == 3
    assert part_of({"row": 5}, "row", "row") == 5
    with pytest.raises(InputError, match=r"the row at 2; got a tuple of 2"):
        part_of((1, 2), 2, "row")
    with pytest.raises(InputError, match=r"the row at 'idx'; got \['x', 'y'\]"):
        part_of({"x": 1, "y": 2}, "idx", "row")
    with pytest.raises(InputError, match=r"the label at 1; got a NoneType\."):
        part_of(None, 1, "label")  # of a Lightning step that takes the iterator


def test_only_a_loader_that_draws_from_the_sampler_will_do():
    check_loader(DataLoader(ROWS, batch_sampler=SAMPLER), SAMPLER)
    with pytest.raises(InputError, match="got another"):
        check_loader(DataLoader(ROWS, batch_size=2), SAMPLER)
    with pytest.raises(InputError, match="one training loader; got a list of 2"):
        check_loader([1, 2], SAMPLER)
