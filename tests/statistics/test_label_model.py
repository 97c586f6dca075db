"""The label model: recovery of what was planted, the odds by hand, q and the test of judges."""

import numpy as np
import pytest

from bspml.statistics.label_model import (
    RandomErrors,
    fit_label_model,
    refit_label_model,
)
from bspml.statistics.label_pairs import Confusions

CLASSES = 8


def judged(n=2000, u=0.2, k=0.1, seed=0, sharp=6.0):
    """Two judges that know the true class to a degree, and labels drawn from the model."""
    rng = np.random.default_rng(seed)
    true = rng.integers(0, CLASSES, n)
    tables = [rng.gumbel(size=(n, CLASSES)), rng.gumbel(size=(n, CLASSES))]
    for table in tables:
        table[np.arange(n), true] += sharp
    draw = rng.random(n)
    label = np.where(draw < u, rng.integers(0, CLASSES, n), true)
    label = np.where(draw > 1 - k, true ^ 1, label)  # each class has one twin
    nearest = np.array([[c ^ 1, (c + 2) % CLASSES] for c in range(CLASSES)])
    further = np.tile([0.0, 3.0], (CLASSES, 1))
    return tables, label, true, Confusions.of(nearest, further)


@pytest.fixture(scope="module")
def fitted():
    tables, label, true, confusions = judged()
    return tables, label, true, fit_label_model(tables, label, confusions, 250.0)


def test_planted_shares_are_found(fitted):
    _, label, true, model = fitted
    assert model.converged
    assert model.can_tell
    assert model.random == pytest.approx(0.2, abs=0.03)
    assert model.confused == pytest.approx(0.1, abs=0.03)
    assert model.rate == pytest.approx((label != true).mean(), abs=0.02)
    assert model.interval[0] < (label != true).mean() < model.interval[1]


@pytest.mark.parametrize(("u", "k"), [(0.3, 0.1), (0.0, 0.3)])
def test_half_trained_features_share_out_k_by_the_random_errors_beside_it(u, k):
    tables, label, _, confusions = judged(u=u, k=k)
    model = fit_label_model(tables, label, confusions, 250.0, half_trained=True)
    assert not model.can_tell
    assert model.labels_random == model.random
    u, k = model.random, model.confused
    assert model.labels_confused == pytest.approx(k * k / (u + k) / 2)
    assert model.interval[0] < u * 7 / 8 + 1e-9
    assert model.interval[1] > u * 7 / 8 + k


def test_probabilities_are_calibrated_and_suggestions_right(fitted):
    tables, label, true, model = fitted
    found = model.verdicts(tables, label)
    wrong = label != true
    for low, high in ((0, 0.1), (0.1, 0.9), (0.9, 1.01)):
        some = (found.wrong >= low) & (found.wrong < high)
        if some.sum() > 30:
            assert found.wrong[some].mean() == pytest.approx(wrong[some].mean(), abs=0.1)
    assert (found.other == true)[wrong].mean() > 0.9
    assert found.other_probability[wrong].mean() == pytest.approx(
        (found.other == true)[wrong].mean(), abs=0.1
    )
    assert (found.other != label).all()


def test_the_odds_are_those_of_the_formula(fitted):
    tables, label, _, model = fitted
    found = model.verdicts(tables, label)
    u, k, ul, kl = model.random, model.confused, model.labels_random, model.labels_confused
    assert not model.confusions.counts.any()
    taken = model.confusions.pairs(model.tau).shares
    for i in range(5):
        logits = sum(b * t[i] for b, t in zip(model.slopes, tables, strict=True))
        p = np.exp(logits - logits.max())
        p /= p.sum()
        z = label[i]
        pairs = range(*model.confusions.starts[[z, z + 1]])
        g = sum(p[model.confusions.sources[e]] * taken[e] for e in pairs)
        wrong = ul * np.delete(p, z).sum() / CLASSES + kl * g
        right = (1 - u - k + ul / CLASSES) * p[z] + max(0, u - ul) / CLASSES + max(0, k - kl) * g
        assert found.odds[i] == pytest.approx(np.log(wrong / right), rel=1e-9)
        assert found.wrong[i] == pytest.approx(wrong / (wrong + right), rel=1e-9)


def test_a_label_alone_in_its_class_fits_as_right_ones_typically_do(fitted):
    tables, label, _, model = fitted
    some = [table[:3].copy() for table in tables]
    for table in some:
        table[0, label[0]] = np.nan
    assert 0 < model.verdicts(some, label[:3]).wrong[0] < 1
    assert model.verdicts(some, label[:3]).wrong[1:] == pytest.approx(
        model.verdicts(tables, label).wrong[1:3]
    )


def test_the_fit_is_never_worse_than_without_confusions():
    for seed in range(3):
        tables, label, _, confusions = judged(n=300, u=0.3, k=0.0, seed=seed)
        model = fit_label_model(tables, label, confusions, 40.0)
        none = Confusions.of(
            np.array([[c ^ 1] for c in range(CLASSES)]), np.full((CLASSES, 1), np.inf)
        )
        alone = fit_label_model(tables, label, none, 40.0)
        assert model.log_likelihood >= alone.log_likelihood - 1e-7


def moved_to_the_next(n=2000, rate=0.2, seed=3):
    """Labels of which each wrong one says the next class, which by distance nobody is."""
    tables, _, true, confusions = judged(n, seed=seed)
    moved = np.random.default_rng(seed).random(n) < rate
    return tables, np.where(moved, (true + 3) % CLASSES, true), true, confusions


def test_whom_a_class_is_taken_for_is_counted_where_distance_does_not_tell():
    tables, label, true, confusions = moved_to_the_next()
    model = fit_label_model(tables, label, confusions, 250.0)
    assert model.rate == pytest.approx((label != true).mean(), abs=0.02)
    pairs = model.confusions
    is_next = pairs.targets == (pairs.sources + 3) % CLASSES
    assert pairs.counts[is_next].sum() > 0.9 * pairs.counts.sum() > 300
    found = model.verdicts(tables, label)
    wrong = label != true
    assert (found.wrong > 0.5)[wrong].mean() > 0.9
    assert (found.wrong > 0.5)[~wrong].mean() < 0.03
    assert (found.other == true)[wrong].mean() > 0.95
    few = fit_label_model(tables, label, confusions, 7.0)  # references a class
    assert not few.confusions.counts.any()


def test_going_on_keeps_the_counts_and_counting_anew_finds_them_again():
    tables, label, _, confusions = moved_to_the_next()
    model = fit_label_model(tables, label, confusions, 250.0)
    for how, given in (
        ("on", model.confusions),
        ("counting", model.confusions),
        ("on", confusions),
    ):
        again = refit_label_model(model, tables, label, given, 250.0, how=how)
        assert again.log_likelihood == pytest.approx(model.log_likelihood, abs=2e-3)
        assert again.rate == pytest.approx(model.rate, abs=2e-3)
        totals = [np.bincount(m.confusions.sources, m.confusions.counts) for m in (model, again)]
        assert totals[0] == pytest.approx(totals[1], rel=0.05)


def test_judges_that_cannot_be_trusted_say_so():
    tables, label, _, confusions = judged(sharp=1.0)
    model = fit_label_model(tables, label, confusions, 250.0)
    assert not model.can_tell
    assert model.interval[1] - model.interval[0] > 0.05


def test_no_wrong_label_at_all_is_ranked_by_what_the_samples_show():
    tables, label, _, confusions = judged(u=0.0, k=0.0, sharp=40.0)
    model = fit_label_model(tables, label, confusions, 250.0)
    found = model.verdicts(tables, label)
    assert found.wrong.max() < 0.5
    assert np.isfinite(found.odds).all()


def test_doubt_at_random_is_high_for_wrong_labels():
    tables, label, true, _ = judged(k=0.0)
    doubt = RandomErrors.of(tables, label).doubt
    assert doubt[label != true].mean() > 0.8
    assert doubt[label == true].mean() < 0.1
