"""`training_rows` and `allowed_rows` go on returning the masks, with a note."""

import pytest
import torch

import bspml
from bspml.trainers.curriculum import FixedCurriculum


def test_the_old_names_return_the_masks_with_a_deprecation_note():
    weights = bspml.SampleWeights([0, 0, 1, 1])
    weights.update([1, 1, 1, 0])
    crossed = bspml.SelfPacedCurriculum(weights, warmup="cross-fit")
    for curriculum in (FixedCurriculum(weights), crossed):
        with pytest.warns(DeprecationWarning, match=r"mask, not .*call it `training_mask\(\)`"):
            old = curriculum.training_rows()
        assert torch.equal(old, curriculum.training_mask())
        assert old.dtype == torch.bool
        with pytest.warns(DeprecationWarning, match=r"call it `allowed_mask\(\)`"):
            allowed = curriculum.allowed_rows()
    assert torch.equal(allowed, crossed.allowed_mask())
