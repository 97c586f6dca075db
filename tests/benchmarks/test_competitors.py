"""What others say about labels, against hand-worked cases and slow versions."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from helpers.places import REPOSITORY


@pytest.fixture
def competitors(monkeypatch):
    monkeypatch.syspath_prepend(str(REPOSITORY / "benchmarks"))
    return importlib.import_module("competitors")


def clusters(rng, classes=4, members=12):
    """Features far apart by class, and labels of which the first of each class is the next one."""
    true = np.repeat(np.arange(classes), members)
    features = 4 * np.eye(classes)[true] + rng.normal(0, 0.3, (len(true), classes))
    labels = true.copy()
    labels[::members] = (labels[::members] + 1) % classes
    return features, labels, labels != true


def test_neighbours_are_those_of_a_loop_and_never_the_sample_itself(competitors, monkeypatch):
    features = np.random.default_rng(0).normal(size=(1100, 3))  # more than one block
    near = competitors.nearest_neighbours(features, 4)
    for i in (0, 1, 1023, 1024, 1099):
        cosine = features @ features[i] / np.linalg.norm(features, axis=1)
        cosine[i] = -np.inf
        assert near[i].tolist() == np.argsort(-cosine)[:4].tolist()


def test_vote_by_hand(competitors):
    labels = np.array([0, 0, 1, 1, 1])
    near = np.array([[1, 2, 3], [0, 2, 3], [3, 4, 0], [2, 4, 1], [2, 3, 0]])
    vote = competitors.neighbour_vote(labels, near)
    # Counts of (0, 1): (1, 2), (1, 2), (1, 2), (1, 2), (1, 2); cosines 1 and 2 over the root of 5.
    assert vote.scores == pytest.approx(1 - np.array([1, 1, 2, 2, 2]) / 5**0.5)
    assert vote.flags.tolist() == [True, True, False, False, False]


def test_position_counts_ties_by_half(competitors):
    labels = np.array([0, 0, 0, 1, 0])
    scores = np.array([5.0, 1.0, 3.0, 9.0, 3.0])
    # Of class 0: 5 first, two of 3, then 1.
    expected = [0.125, 0.875, 0.5, 0.5, 0.5]
    assert competitors.position_in_class(labels, scores).tolist() == expected


def test_matrix_is_found_where_the_shares_are_exact(competitors):
    # T = [[.8, .2], [.4, .6]], p = [.5, .5]: of 1,000 triples, P(0, 0, 0) = (.512 + .064) / 2, ...
    counts = {(0, 0, 0): 288, (1, 1, 1): 112}
    counts |= dict.fromkeys([(0, 0, 1), (0, 1, 0), (1, 0, 0)], 112)
    counts |= dict.fromkeys([(0, 1, 1), (1, 0, 1), (1, 1, 0)], 88)
    triples = np.repeat(list(counts), list(counts.values()), axis=0)
    transition, prior = competitors.transition_matrix(triples)
    assert transition == pytest.approx(np.array([[0.8, 0.2], [0.4, 0.6]]), abs=0.01)
    assert prior == pytest.approx(np.array([0.5, 0.5]), abs=0.02)


def test_fit_is_no_worse_than_the_truth_by_the_shares_written_out(competitors):
    rng = np.random.default_rng(1)
    truth = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.1, 0.6]])
    hidden = rng.integers(0, 3, 3000)
    triples = np.stack([(truth[hidden].cumsum(1) < rng.random((3000, 1))).sum(1) for _ in range(3)])

    def distance(transition, prior):
        total = 0.0
        for letters in ("a", "ab", "abc"):
            model = np.einsum(
                f"y,{','.join('y' + x for x in letters)}->{letters}",
                prior,
                *[transition] * len(letters),
            )
            shares = np.zeros_like(model)
            np.add.at(shares, tuple(triples[: len(letters)]), 1 / 3000)
            total += np.linalg.norm(model - shares)
        return total

    found = competitors.transition_matrix(triples.T)
    assert distance(*found) <= distance(truth, np.full(3, 1 / 3))
    assert found[0] == pytest.approx(truth, abs=0.08)


def test_every_opinion_finds_planted_labels(competitors):
    pytest.importorskip("cleanlab")
    features, labels, wrong = clusters(np.random.default_rng(2))
    said = competitors.opinions(features, labels, seed=0)
    assert list(said) == ["cleanlab", "cleanlab margin", "vote", "matrix", "posterior"]
    for name, opinion in said.items():
        assert opinion.scores[wrong].min() > opinion.scores[~wrong].max(), name
        assert opinion.flags.tolist() == wrong.tolist() or name == "matrix"
    # The matrix says how many, not which: one of each class of twelve.
    assert said["matrix"].rate[0] == pytest.approx(1 / 12, abs=0.03)
    assert said["matrix"].flags.sum() == pytest.approx(4, abs=2)
