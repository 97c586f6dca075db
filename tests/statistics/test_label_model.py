"""The label model: recovery of what was planted, the odds by hand, q and the test of judges."""

import numpy as np
import pytest

from bspml.statistics.label_likelihood import Confusions
from bspml.statistics.label_model import (
    RandomErrors,
    fit_label_model,
    wrong_share_of_kept,
)

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
    taken = model.confusions.probabilities(model.tau)
    for i in range(5):
        logits = sum(b * t[i] for b, t in zip(model.slopes, tables, strict=True))
        p = np.exp(logits - logits.max())
        p /= p.sum()
        z = label[i]
        pairs = range(*model.confusions.starts[[z, z + 1]])
        g = sum(p[model.confusions.sources[e]] * taken[e] for e in pairs)
        wrong = ul * (1 - p[z]) / CLASSES + kl * g
        right = (1 - u - k + ul / CLASSES) * p[z] + max(0, u - ul) / CLASSES + max(0, k - kl) * g
        # Below e^-87 float32 holds no share of another class.
        assert found.odds[i] == pytest.approx(max(np.log(wrong / right), -88), abs=0.5, rel=1e-5)
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


def test_q_is_the_mean_probability_of_all_that_rank_as_well():
    wrong = np.array([0.3, 0.0, np.nan, 0.1, 0.3, 0.9])
    expected = [np.nan if np.isnan(v) else np.nanmean(wrong[wrong <= v]) for v in wrong]
    assert wrong_share_of_kept(wrong) == pytest.approx(np.array(expected), nan_ok=True)
    assert np.isnan(wrong_share_of_kept(np.array([np.nan]))).all()


def test_labels_that_are_as_good_as_certain_share_one_value_in_every_order():
    rng = np.random.default_rng(0)
    wrong = np.concatenate([1e-6 * rng.random(90), [0.3], 1 - 1e-5 * rng.random(30)])
    q = wrong_share_of_kept(wrong)
    assert q[91:] == pytest.approx(wrong.mean(), rel=1e-12)
    assert q[90] == pytest.approx(wrong[:91].mean(), rel=1e-12)
    order = rng.permutation(len(wrong))
    rounded = wrong[order] + 1e-6 * rng.normal(size=len(wrong))  # what another order may give
    assert wrong_share_of_kept(rounded) == pytest.approx(q[order], abs=1e-6)
