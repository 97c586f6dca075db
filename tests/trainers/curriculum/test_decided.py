"""What a person decided changes no verdict on the labels that nobody decided on."""

import numpy as np
import pytest
import torch

import bspml
from bspml.errors import CheckpointError
from helpers.draws import around_centres

TRUE = torch.arange(20).repeat_interleave(12)
X = around_centres(TRUE, 16, spread=0.3, seed=0)
GIVEN = bspml.noise.symmetric(TRUE, 0.2, seed=0).labels
WRONG = (GIVEN != TRUE).nonzero()[:, 0]
FITS = (GIVEN == TRUE).nonzero()[::8, 0]
DECISIONS = {
    "wrong": (WRONG[::2], 0.0),
    "nearly all that are wrong": (WRONG[4:], 0.0),
    "right, though they look wrong": (WRONG[::2], 1.0),
    "wrong, though they fit": (FITS, 0.0),
    "right": (FITS, 1.0),
}


def left_out(rows=None, value=0.0, before=0, **options):
    """Which labels weigh below a half, and the share of all that the last record calls wrong."""
    weights = bspml.SampleWeights(GIVEN)
    curriculum = bspml.SelfPacedCurriculum(weights, **options)
    for round_ in range(before + 3):
        if round_ == before and rows is not None:
            weights.fix(rows, torch.full((len(rows),), value))
        curriculum.training_mask()
        record = curriculum.update(X)
    return weights.weights < 0.5, record.held[0]


@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({}, 2),
        ({"rule": "quadratic"}, 4),  # weighs all of a class together
        ({"warmup": "cross-fit", "warmup_rounds": 1}, 8),  # the undecided of one half tell the rate
    ],
)
@pytest.mark.parametrize("decision", DECISIONS)
def test_others_are_left_out_as_without_it(decision, options, most, before):
    rows, value = DECISIONS[decision]
    expected, rate = left_out(**options)
    out, again = left_out(rows, value, before, **options)
    others = torch.ones(len(TRUE), dtype=torch.bool)
    others[rows] = False
    assert ((out ^ expected) & others).sum() <= most
    assert (out[rows] == (value == 0)).all()
    if not before:  # what is said of all counts what a person said
        told = int(others[WRONG].sum()) + (len(rows) if value == 0 else 0)
        assert again == pytest.approx(told / len(TRUE), abs=0.03)
        assert rate == pytest.approx(0.2, abs=0.02)


def test_whose_labels_the_share_is_of_is_saved():
    weights = bspml.SampleWeights(GIVEN)
    weights.fix(WRONG[::2], torch.zeros(len(WRONG[::2])))
    curriculum = bspml.SelfPacedCurriculum(weights)
    curriculum.update(X)
    state, again = curriculum.state_dict(), bspml.SelfPacedCurriculum(weights)
    again.load_state_dict(state)
    undecided = torch.ones(len(TRUE), dtype=torch.bool)
    undecided[WRONG[::2]] = False
    assert torch.equal(again._update.rates.undecided, undecided)
    state["update"]["undecided"] = undecided[1:]
    with pytest.raises(CheckpointError, match="no curriculum has"):
        again.load_state_dict(state)
    del state["update"]["undecided"]  # of a version without it
    again.load_state_dict(state)
    assert again._update.rates.undecided is None
    again.update(X)


def mean_of_three_words(seed):
    """72 sums of words in 6 classes, some of which share none, a fifth of the labels wrong."""
    draw = np.random.default_rng(seed)
    true = np.repeat(np.arange(6), 12)
    words = draw.normal(size=(6, 8, 16))
    points = np.stack([words[c, draw.choice(8, 3, replace=False)].mean(0) for c in true])
    wrong = draw.random(72) < 0.2
    given = np.where(wrong, (true + draw.integers(1, 6, 72)) % 6, true)
    return torch.tensor(points).float(), given, np.flatnonzero(wrong)[:8]


def judged_after(points, given, decided):
    weights = bspml.SampleWeights(given)
    weights.fix(decided, [0.0] * len(decided))
    record = bspml.SelfPacedCurriculum(weights).update(points)
    return weights.weights, (record.noise_rate, record.total_rate, record.num_untestable)


@pytest.mark.parametrize("seed", [5, 16, 18, 32])  # few values: a single one moves the rate
def test_what_a_label_decided_to_be_wrong_shows_tells_nothing(seed):
    points, given, decided = mean_of_three_words(seed)
    expected, told = judged_after(points, given, decided)
    for other in range(6):
        draw = torch.Generator().manual_seed(other)
        points[decided] = 0.6 * torch.randn(8, 16, generator=draw)
        weights, again = judged_after(points, given, decided)
        assert torch.equal(weights, expected)
        assert again == told


@pytest.mark.parametrize("seed", range(4))
def test_a_label_decided_to_be_wrong_is_no_other_label_of_its_copies(seed):
    """Twelve of them show what a right sample of another class shows: as if they were absent."""
    draw = torch.Generator().manual_seed(seed)
    true = torch.arange(8).repeat_interleave(20)
    points = torch.randn(8, 12, generator=draw)[true] + 0.35 * torch.randn(160, 12, generator=draw)
    given, wrong = true.clone(), torch.randperm(160, generator=draw)[:32]
    given[wrong] = (given[wrong] + torch.randint(1, 8, (32,), generator=draw)) % 8
    decided, right = wrong[:12], (given == true).nonzero()[:, 0]
    for row in decided:
        points[row] = points[right[given[right] != given[row]][7 * row % 90]]
    rest = torch.ones(160, dtype=torch.bool)
    rest[decided] = False
    weights, told = judged_after(points, given, decided.numpy())
    expected, again = judged_after(points[rest], given[rest], [])
    assert torch.equal(weights[rest], expected)
    assert told[2] == again[2]
    of_all = [rate * len(rest[rest]) / 160 + 12 / 160 for rate in again[:2]]
    assert told[:2] == pytest.approx(of_all, abs=1e-9)
