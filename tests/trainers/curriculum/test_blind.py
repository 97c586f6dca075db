"""Embeddings that know nothing of the classes judge nobody, and the record says so."""

import warnings

import numpy as np
import pytest
import torch

import bspml
from bspml.trainers.curriculum.blind import tell_apart
from bspml.trainers.curriculum.samples import Samples
from bspml.trainers.curriculum.search import StatisticsSearch
from helpers.draws import around_centres

LABELS = torch.arange(20).repeat(15)
BLIND = torch.randn(300, 16, generator=torch.Generator().manual_seed(0))
SEEING = around_centres(LABELS, 16, spread=0.35, seed=0)


def nothing_known(record):
    rates = record.noise_rate, record.noise_interval, record.total_rate, record.total_interval
    return rates == (None,) * 4


@pytest.mark.parametrize("rule", ["threshold", "quadratic"])
@pytest.mark.parametrize("search", ["exact", "neighbours"])
def test_blind_features_leave_nobody_out_at_any_update(rule, search):
    weights = bspml.SampleWeights(LABELS)
    weights.fix([3], [0.0])  # what a person decided stays
    weights.update(1.0 - 0.5 * (torch.arange(300) == 4))  # as does what was known before
    curriculum = bspml.SelfPacedCurriculum(weights, rule=rule, search=search)
    with pytest.warns(UserWarning, match="do not tell the classes apart") as warned:
        first = curriculum.update(BLIND)
    assert len(warned) == 1
    assert first.phase == "features"
    assert first.status == "not judged"
    assert nothing_known(first)
    assert str(warned[0].message) == first.message
    assert "another backbone" in first.message
    assert 'warmup="cross-fit"' in first.message
    # A network trained on the labels fits all of them, the wrong ones too: it may not judge.
    assert not curriculum.needs_embeddings
    memorised = torch.nn.functional.one_hot(LABELS).float()
    for embeddings in (None, memorised):
        later = curriculum.update(embeddings)
        assert nothing_known(later)
        assert "may not judge them either" in later.message
        assert later.phase == "weights, waiting"
    again = bspml.SelfPacedCurriculum(bspml.SampleWeights(LABELS), rule=rule, search=search)
    again.load_state_dict(curriculum.state_dict())
    assert again.update(None).message == later.message
    assert weights.weights.sum() == 298.5
    assert weights.weights[3] == 0
    assert curriculum.scores() is None


def cross_fitted(*per_round):
    """The records of rounds with these embeddings, and the weights after each."""
    weights = bspml.SampleWeights(bspml.noise.symmetric(LABELS, 0.2, seed=0).labels)
    curriculum = bspml.SelfPacedCurriculum(weights, warmup="cross-fit", warmup_rounds=1)
    records, left_out = [], []
    half = curriculum.training_mask()
    for embeddings in per_round:
        curriculum.training_mask()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            records.append(curriculum.update(embeddings))
        left_out.append(weights.weights == 0)
    return half, records, left_out


def test_a_half_whose_network_learned_nothing_judges_nobody_and_the_other_one_does():
    half, (a, b, c), left_out = cross_fitted(BLIND, SEEING, SEEING)
    assert nothing_known(a)
    assert "trained on the other half do not tell" in a.message
    assert a.reset_model
    assert a.phase == "half A"
    assert not left_out[0].any()
    assert b.noise_interval[0] <= 0.2 <= b.noise_interval[1]
    assert b.status != "not judged"
    assert left_out[1][half].any()
    assert not left_out[1][~half].any()
    assert c.phase == "weights"
    assert c.noise_rate == b.noise_rate
    assert left_out[2][~half].any()


def test_the_second_half_may_learn_nothing_and_then_keeps_what_the_first_found():
    half, (a, b), left_out = cross_fitted(SEEING, BLIND)
    assert b.message is not None
    assert b.noise_rate == a.noise_rate
    assert torch.equal(left_out[1], left_out[0])
    assert not left_out[1][half].any()


def test_where_both_halves_learned_nothing_so_it_is_said_ever_after():
    _half, records, left_out = cross_fitted(BLIND, BLIND, SEEING)
    assert all(map(nothing_known, records))
    assert not left_out[-1].any()
    assert "networks of both halves did not tell" in records[-1].message


@pytest.mark.parametrize("search", ["exact", "neighbours"])
def test_the_best_class_of_samples_that_know_theirs_is_their_label(search):
    for embeddings, expected in ((BLIND, False), (SEEING, True)):
        stats = StatisticsSearch(search, None).contrastive_statistics(
            embeddings, LABELS, torch.ones(300).double(), None, for_rate=True
        )
        samples = Samples(embeddings, LABELS, torch.ones(300).double(), stats.testable)
        assert tell_apart(stats, stats.testable, samples) is expected


@pytest.mark.parametrize(("classes", "size", "dims", "seed"), [(100, 4, 16, 1), (2000, 2, 64, 2)])
def test_random_features_of_thin_classes_are_blind_by_neighbours_too(classes, size, dims, seed):
    x = np.random.default_rng(seed).normal(size=(classes * size, dims))
    labels = np.repeat(np.arange(classes), size)
    weights = bspml.SampleWeights(labels)
    curriculum = bspml.SelfPacedCurriculum(weights, search="neighbours")
    with pytest.warns(UserWarning, match="do not tell the classes apart"):
        assert nothing_known(curriculum.update(x))
    assert weights.maw() == 1
    # Of thin classes that lie apart the labels are judged.
    x += 2 * np.random.default_rng(0).normal(size=(classes, dims))[labels]
    seen = bspml.SelfPacedCurriculum(bspml.SampleWeights(labels), search="neighbours").update(x)
    assert seen.noise_rate is not None
