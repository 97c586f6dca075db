"""Noise on the samples that look like another class."""

import numpy as np
import pytest
import torch

from bspml import noise
from bspml.data.noise.ambiguity import margins
from helpers.draws import balanced


def test_instance_dependent_noise_hits_the_samples_between_classes():
    # Directions at 0 and 90 degrees; class 0 has ten samples leaning over to class 1.
    angle = np.deg2rad(np.concatenate([np.zeros(40), np.full(10, 44.0), np.full(50, 90.0)]))
    x = np.stack([np.cos(angle), np.sin(angle)], 1)
    labels = balanced(2, 50)
    noisy = noise.instance_dependent(labels, 0.1, x, temperature=0.01)
    assert np.array_equal(np.flatnonzero(noisy.is_noisy), np.arange(40, 50))
    assert (noisy.labels[40:50] == 1).all()
    spread = noise.instance_dependent(labels, 0.1, x, temperature=100.0)
    assert spread.is_noisy.sum() == 10
    assert spread.is_noisy[:40].any() or spread.is_noisy[50:].any()


def test_margins_are_those_of_plain_loops():
    rows = torch.randn(60, 6, generator=torch.Generator().manual_seed(0))
    codes = np.append(balanced(6, 9), [0, 1, 2, 3, 4, 6])  # class 6 has one sample
    x = torch.nn.functional.normalize(rows.double())
    margin, nearest = margins(rows, codes)
    for i in range(60):
        similarity = []
        for c in range(7):
            members = [j for j in range(60) if codes[j] == c and j != i]
            mean = x[members].sum(0)
            norm = mean.norm()
            similarity.append(float(mean / norm @ x[i]) if members else 0.0)
        own = similarity[codes[i]]
        similarity[codes[i]] = -9
        assert nearest[i] == np.argmax(similarity)
        assert margin[i] == pytest.approx(own - max(similarity), abs=1e-12)


def test_blocks_of_rows_do_not_change_the_margins():
    # More classes than fit one block of similarities: 2^24 / (8 * 1,500) = 1,398 rows.
    draw = np.random.default_rng(0)
    rows = torch.from_numpy(draw.standard_normal((1_500, 3)))
    codes = draw.permutation(1_500)
    margin, nearest = margins(rows, codes)
    x = torch.nn.functional.normalize(rows)
    best = (x @ x.T).fill_diagonal_(-9).max(1)
    assert nearest.tolist() == codes[best.indices.numpy()].tolist()
    assert margin == pytest.approx(-best.values.numpy(), abs=1e-12)
