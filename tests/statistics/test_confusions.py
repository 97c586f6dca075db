"""The second bound: what similar classes may hide."""

import numpy as np
import pytest

from bspml.errors import InputError
from bspml.statistics.confusions import plausible_confusions
from bspml.statistics.contrastive import contrastive_statistics
from bspml.statistics.noise_rate import estimate_noise


def _twins(rate, seed=0, pairs=5, size=60, apart=1.0):
    """Classes 2k and 2k + 1 are similar; a wrong label is always the twin's."""
    rng = np.random.default_rng(seed)
    true = np.repeat(np.arange(2 * pairs), size)
    centres = np.repeat(rng.normal(size=(pairs, 40)), 2, 0) + apart / np.sqrt(2) * rng.normal(
        size=(2 * pairs, 40)
    )
    embeddings = centres[true] + rng.normal(size=(len(true), 40))
    wrong = rng.random(len(true)) < rate
    return embeddings, np.where(wrong, true ^ 1, true), wrong


def _oracle(embeddings, labels, a=10.0):
    x = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    similar = np.exp(a * (x @ x.T))
    np.fill_diagonal(similar, 0)
    member = np.eye(labels.max() + 1)[labels]
    s = np.log(similar @ member / (member.sum(0) - member)) / a
    p = []
    for i, y in enumerate(labels):
        others = s[i].copy()
        others[y] = -np.inf
        k = others.argmax()
        cloud = s[labels == k][:, k] - s[labels == k][:, y]
        e = s[i, k] - s[i, y]
        p.append(((cloud < e).sum() + (cloud == e).sum() / 2 + 0.5) / (1 + len(cloud)))
    return np.array(p)


def test_p_values_equal_those_of_a_dense_table():
    embeddings, labels, _ = _twins(0.2, size=12)
    stats = contrastive_statistics(embeddings, labels)
    found = plausible_confusions(embeddings, stats)
    np.testing.assert_allclose(found.p_values, _oracle(embeddings, labels), atol=1e-12)
    assert found.num_tested == len(labels)


def test_the_bounds_are_counts_above_the_two_thresholds():
    embeddings, labels, _ = _twins(0.2)
    found = plausible_confusions(embeddings, contrastive_statistics(embeddings, labels))
    p = found.p_values
    kappa = (p > 0.25).double().mean().item() / 0.75
    assert found.typical == pytest.approx((p > 0.5).double().mean().item() * 2)
    assert found.broad == pytest.approx(kappa / (1 + kappa))
    assert found.upper_bound > min(found.typical, found.broad)


@pytest.mark.parametrize(("rate", "apart", "reading"), [(0.05, 0.4, "typical"), (0.4, 1, "broad")])
def test_the_upper_bound_adds_errors_clustered_by_class(rate, apart, reading):
    embeddings, labels, _ = _twins(rate, apart=apart)
    found = plausible_confusions(embeddings, contrastive_statistics(embeddings, labels))
    p = found.p_values.numpy()
    high = {}
    for u in (0.5, 0.25):
        above = p > u
        residuals = [(above[labels == c] - above.mean()).sum() for c in range(10)]
        variance = max(np.var(residuals, ddof=0) * 10 * 10 / 9, above.sum())
        high[u] = (above.sum() + 1.96 * variance**0.5) / ((1 - u) * len(p))
    expected = min(high[0.5], high[0.25] / (1 + high[0.25]))
    assert found.upper_bound == pytest.approx(expected)
    assert (expected == high[0.5]) == (reading == "typical")


@pytest.mark.parametrize("rate", [0.1, 0.2, 0.3])
def test_twin_confusions_lie_between_the_two_bounds(rate):
    embeddings, labels, wrong = _twins(rate)
    stats = contrastive_statistics(embeddings, labels)
    upper = plausible_confusions(embeddings, stats).upper_bound
    estimate = estimate_noise(stats, confusions_upper=upper)
    assert estimate.lower_bound <= wrong.mean() <= estimate.upper_bound


def test_separable_clean_classes_get_a_low_bound():
    embeddings, labels, _ = _twins(0.0)
    found = plausible_confusions(embeddings, contrastive_statistics(embeddings, labels))
    assert found.upper_bound < 0.06


def test_members_of_the_other_class_have_uniform_p():
    embeddings, labels, wrong = _twins(0.15, pairs=10)
    found = plausible_confusions(embeddings, contrastive_statistics(embeddings, labels))
    # Clouds hold 15 % strangers at their low end, which lifts a true member's mean to about .58.
    assert 0.5 < found.p_values[wrong].mean() < 0.66
    assert found.p_values[~wrong].mean() < 0.1


def test_classes_that_cannot_be_told_apart_get_a_high_bound():
    embeddings, labels, _ = _twins(0.0, apart=0.0)
    found = plausible_confusions(embeddings, contrastive_statistics(embeddings, labels))
    assert found.upper_bound > 0.4


def test_weights_and_zero_rows_are_those_of_the_statistics():
    embeddings, labels, _ = _twins(0.2, size=10)
    weights = np.ones(len(labels))
    weights[::4] = 0
    embeddings[1] = 0
    keep = (weights > 0) & (np.arange(len(labels)) != 1)
    stats = contrastive_statistics(embeddings, labels, weights, rows=keep)
    found = plausible_confusions(embeddings, stats, weights)
    alone = plausible_confusions(
        embeddings[keep], contrastive_statistics(embeddings[keep], labels[keep])
    )
    np.testing.assert_allclose(found.p_values[keep], alone.p_values, atol=1e-12)
    assert found.p_values[~keep].isnan().all()
    assert found.upper_bound == alone.upper_bound


def test_nothing_to_compare_with_excludes_nothing():
    found = plausible_confusions(np.eye(4), contrastive_statistics(np.eye(4), np.arange(4)))
    assert found.num_tested == 0
    assert found.upper_bound == 1


def test_other_embeddings_than_those_of_the_statistics_are_refused():
    embeddings, labels, _ = _twins(0.1, size=5)
    stats = contrastive_statistics(embeddings, labels)
    with pytest.raises(InputError, match="those `stats` was computed from, 50 rows; got 49"):
        plausible_confusions(embeddings[1:], stats)


@pytest.mark.parametrize("scale", [1e-24, 1e-36, 1e18])
def test_the_scale_of_float32_rows_changes_nothing(scale):
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(6), 12)
    x = (rng.standard_normal((6, 8))[codes] + 0.8 * rng.standard_normal((72, 8))).astype(np.float32)
    labels = np.where(rng.random(72) < 0.2, (codes + 1) % 6, codes)
    plain = plausible_confusions(x, contrastive_statistics(x, labels))
    scaled = x * np.float32(scale)  # squared, these vanish or overflow
    found = plausible_confusions(scaled, contrastive_statistics(scaled, labels))
    assert found.upper_bound == pytest.approx(plain.upper_bound, abs=1e-3)
    assert found.p_values.numpy() == pytest.approx(plain.p_values.numpy(), abs=0.05)
