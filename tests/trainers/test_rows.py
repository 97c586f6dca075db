"""The rows of a round, against what the curriculum asks for."""

import torch

import bspml
from bspml.trainers.curriculum.fixed import FixedCurriculum
from bspml.trainers.rows import choose_rows

LABELS = torch.arange(4).repeat_interleave(4)


class Asks(FixedCurriculum):
    """A curriculum that keeps some rows, and would allow others."""

    def __init__(self, weights, kept, allowed):
        super().__init__(weights)
        self.training_mask, self.allowed_mask = lambda: kept, lambda: allowed


def drawn(sampler):
    sampler.set_epoch(0)
    return {row for batch in sampler for row in batch}


def test_rows_of_enough_classes_are_drawn_under_their_current_labels():
    sampler, weights = bspml.PKSampler(LABELS, 2, 2), bspml.SampleWeights(LABELS)
    kept = torch.arange(16) < 7  # classes 0 and 1, but for one row
    assert choose_rows(sampler, Asks(weights, kept, None)) == ()
    assert drawn(sampler) == set(range(7))
    weights.relabel([*LABELS[:6].tolist(), 0, *LABELS[7:].tolist()])
    assert choose_rows(sampler, Asks(weights, kept, None)) == ()
    for batch in sampler:
        assert sum(row in (0, 1, 2, 3, 6) for row in batch) == 2  # row 6 is of class 0 now
    assert choose_rows(sampler, None) == ()
    assert drawn(sampler) == set(range(16))


def test_rows_of_too_few_classes_give_way_to_the_allowed_ones_with_a_note():
    sampler, weights = bspml.PKSampler(LABELS, 3, 2), bspml.SampleWeights(LABELS)
    kept, allowed = torch.arange(16) < 7, torch.arange(16) < 12
    (note,) = choose_rows(sampler, Asks(weights, kept, allowed))
    assert "keep 7 rows of 2 classes, fewer than the 3 classes of a batch" in note
    assert drawn(sampler) == set(range(12))
    (note,) = choose_rows(sampler, Asks(weights, kept, None))
    assert drawn(sampler) == set(range(16))
