"""The paper's problem with our statistics."""

import pytest
import torch

from bspml.statistics.contrastive import contrastive_statistics
from bspml.trainers.curriculum.quadratic import quadratic_weights
from helpers.draws import around_centres


def test_the_weights_meet_the_share_and_leave_out_what_fits_worst():
    labels = torch.arange(6).repeat_interleave(10)
    E = around_centres(labels, 8, spread=0.2, seed=0)
    given = labels.clone()
    given[::10] = (labels[::10] + 1) % 6
    stats = contrastive_statistics(E, given)
    testable = torch.ones(60, dtype=torch.bool)
    testable[5] = False
    weights, fields = quadratic_weights(stats, testable, balance=1.0, maw=0.9)
    assert weights.shape == (59,)
    assert float(weights.mean()) == pytest.approx(0.9, abs=0.02)
    wrong = (given != labels)[testable]
    assert weights[wrong].max() < weights[~wrong].min()
    assert fields["age"] > 0
    assert fields["status"]
