"""What the audit makes of the statistics: bounds, notes, and samples that fit nothing."""

import numpy as np
import pytest

import bspml
from bspml.auditing.evidence import beyond_a_gap, conformal_p
from helpers.draws import clouds


def test_conformal_p_by_hand():
    strangeness = np.array([1.0, 2.0, 2.0, 5.0, np.nan, 9.0])
    right = np.array([True, True, True, True, False, False])
    p = conformal_p(strangeness, right)
    assert p == pytest.approx([1.0, 4 / 5, 4 / 5, 2 / 5, np.nan, 1 / 5], nan_ok=True)


def test_conformal_p_is_uniform_for_samples_like_the_others():
    rng = np.random.default_rng(0)
    values = rng.standard_normal(2000)
    p = conformal_p(values, np.arange(2000) < 1000)[1000:]
    assert np.quantile(p, [0.1, 0.5, 0.9]) == pytest.approx([0.1, 0.5, 0.9], abs=0.05)


def test_samples_of_no_class_are_named_and_given_no_suggestion():
    rng = np.random.default_rng(2)
    x, codes = clouds(rng, 12, 30, 24, 0.15)
    labels = codes.copy()
    wrong = rng.choice(360, 20, replace=False)
    labels[wrong] = (labels[wrong] + 1) % 12
    x = np.concatenate([x, rng.standard_normal((5, 24))])
    report = bspml.audit(x, [*labels, *rng.integers(0, 12, 5)])
    strange = report.fits_nothing
    assert (report.outlier_p[-5:] < 0.02).all()
    assert strange[-5:].all()
    assert report.suspects[-5:].all()
    assert (report.outlier_score[-5:] > 1.5).all()
    assert strange[:-5].sum() <= 1
    assert (report.suggested_labels == report.labels)[strange].all()
    assert set(report.verdicts()[strange]) == {"fits no class"}
    assert report.summary()["fit_no_class"] == strange.sum()


@pytest.mark.parametrize("share", [0.01, 0.03, 0.1, 0.3, 0.4])
def test_samples_of_no_class_are_found_however_many(share):
    """They set no scale for themselves: nobody else is as far away."""
    draw = np.random.default_rng(1)
    labels = np.repeat(np.arange(50), 30)
    points = draw.normal(size=(50, 64))[labels] + 0.6 * draw.normal(size=(1500, 64))
    strangers = draw.permutation(1500)[: round(share * 1500)]
    points[strangers] = 1.2 * draw.normal(size=(len(strangers), 64))
    report = bspml.audit(points, labels)
    assert report.fits_nothing[strangers].all()
    assert report.fits_nothing.sum() <= len(strangers) + 10
    assert any("far from every class" in note for note in report.notes)


def test_varied_classes_and_long_tails_are_no_gap():
    draw = np.random.default_rng(0)
    codes, right = np.arange(1000) % 20, np.ones(1000, bool)
    tails = draw.normal(size=1000), draw.exponential(size=1000), draw.lognormal(size=1000)
    for values in (*tails, draw.uniform(size=1000), np.zeros(1000), draw.standard_cauchy(1000)):
        assert not beyond_a_gap(values, right, codes).any()
    varied = draw.normal(size=1000) + 20 * (codes < 5)  # all of five classes
    assert not beyond_a_gap(varied, right, codes).any()
    far = draw.random(1000) < 0.2
    assert (beyond_a_gap(draw.normal(size=1000) + 20 * far, right, codes) == far).all()
    believed = draw.random(1000) < 0.9
    found = beyond_a_gap(draw.normal(size=1000) + 20 * far, believed, codes)
    assert (found == (far & believed)).all()


def test_classes_of_few_samples_have_no_upper_end():
    rng = np.random.default_rng(2)
    x, codes = clouds(rng, 30, 4, 16, 0.2)
    report = bspml.audit(x, codes)
    assert report.upper_bound == 1
    assert "no upper end can be given" in report.sentence
    assert any("no upper end is claimed" in note for note in report.notes)


@pytest.mark.parametrize("copies", [0, 1, 3])
def test_rates_are_plain_numbers_and_copies_are_counted_in_the_notes(copies):
    x, codes = clouds(np.random.default_rng(4), 4, 20, 16, 0.2)
    rows = [*range(80), *range(copies)]
    report = bspml.audit(x[rows], codes[rows])
    rates = *report.interval, *report.total_interval, report.lower_bound, report.upper_bound
    assert {type(rate) for rate in (report.noise_rate, report.total_rate, *rates)} == {float}
    aside = [note for note in report.notes if "group of copies" in note]
    counts = {1: "1 sample aside", 3: "3 samples aside"}
    assert len(aside) == (copies > 0)
    assert all(counts[copies] in note for note in aside)


def test_the_ends_hold_the_estimate_and_the_sentence_says_them():
    rng = np.random.default_rng(3)
    x, codes = clouds(rng, 20, 20, 16, 0.4)
    codes[::4] = (codes[::4] + rng.integers(1, 20, 100)) % 20
    report = bspml.audit(x, codes)
    assert report.lower_bound <= report.total_rate <= report.upper_bound
    assert report.total_interval[0] <= report.total_rate <= report.total_interval[1]
    assert f"that {100 * report.total_rate:.0f} % of the labels are wrong" in report.sentence
    assert f"at most {100 * report.upper_bound:.0f} %" in report.sentence


@pytest.mark.parametrize(("classes", "each", "rate"), [(4, 50, 0.3), (2, 100, 0.1)])
def test_few_classes_far_apart_are_not_taken_for_unsure_ones(classes, each, rate):
    # An unsure judge without wrong labels explains as much as a sure one with random ones.
    for seed in range(4):
        rng = np.random.default_rng(seed)
        true = np.repeat(np.arange(classes), each)
        x = 1.8 * rng.standard_normal((classes, 8))[true] + rng.standard_normal((len(true), 8))
        wrong = rng.random(len(true)) < rate
        labels = np.where(wrong, (true + rng.integers(1, classes, len(true))) % classes, true)
        report = bspml.audit(x, labels)
        assert report.total_rate > rate / 3
        assert report.total_interval[0] <= wrong.mean() <= report.total_interval[1]


@pytest.mark.parametrize(
    "sizes", [[8] * 10 + [1] * 60, [60, 3], [40 // (k + 1) for k in range(20)]]
)
def test_unequal_classes_accuse_hardly_a_right_label(sizes):
    rng = np.random.default_rng(0)
    true = np.repeat(np.arange(len(sizes)), sizes)
    x = 1.5 * rng.standard_normal((len(sizes), 32))[true] + rng.standard_normal((len(true), 32))
    report = bspml.audit(x, true)
    assert report.flagged.mean() < 0.02
    assert report.total_rate < 0.05
    assert not report.flagged[~report.testable].any()


def test_rows_of_norm_0_are_nobody_to_judge_by():
    """They are like nobody, so that what is left are copies that contradict each other."""
    x = np.repeat([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], 4, axis=0)
    report = bspml.audit(x, list("abcd" * 2 + "aabb"))
    assert report.sentence.startswith("No label could be judged: without copies under several")
    assert report.lower_bound == 6 / 12
    assert report.wrong_probability[:8].tolist() == [0.75] * 8
    assert np.isnan(report.wrong_probability[8:]).all()
