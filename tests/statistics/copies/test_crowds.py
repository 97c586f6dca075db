"""Groups of more near copies than neighbours are known."""

import numpy as np
import pytest
import torch

import bspml
from bspml.statistics.copies.crowds import find_crowds
from bspml.statistics.copies.nearest import nearest_rows
from bspml.tensors.unit_rows import grid_unit_rows


def crowds(x, labels):
    rows = grid_unit_rows(torch.as_tensor(x))
    return [group.tolist() for group in find_crowds(nearest_rows(rows, 30), labels, rows)]


@pytest.mark.parametrize("frames", [31, 40])
def test_scenes_of_many_frames_are_found_and_classes_are_not(frames):
    rng = np.random.default_rng(0)
    scenes = np.repeat(np.arange(12), frames)
    x = rng.standard_normal((12, 16))[scenes] + 0.01 * rng.standard_normal((len(scenes), 16))
    each = [np.flatnonzero(scenes == i).tolist() for i in range(12)]
    assert crowds(x, scenes % 2) == each  # two classes of six scenes
    assert crowds(x, scenes) == []  # each class a tight cluster
    wrong = rng.random(len(scenes)) < 0.4
    assert crowds(x, np.where(wrong, rng.integers(0, 12, len(scenes)), scenes)) == []
    assert crowds(x + 0.3 * rng.standard_normal(x.shape), scenes % 2) == []
    assert crowds(x[:frames], scenes[:frames]) == []  # nothing to be far from


def test_a_placeholder_of_forty_near_copies_is_one_finding():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(40), 10)
    x = 3 * rng.standard_normal((40, 32))[labels] + rng.standard_normal((400, 32))
    x[::10] = x[0] + 1e-6 * rng.standard_normal((40, 32))
    report = bspml.audit(x, labels)
    group = report.groups.iloc[0]
    assert (group["samples"], group["labels"], group["placeholder"]) == (40, 40, True)
    assert report.flagged[::10].all()
    assert report.flagged.sum() <= 42
    assert report.total_rate == pytest.approx(39 / 400, abs=0.01)
