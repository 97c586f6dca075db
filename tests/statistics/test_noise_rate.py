"""p-values, rates, q-values, intervals: definitions by counting, promises on drawn labels."""

import numpy as np
import pytest
import torch

from bspml.errors import InputError
from bspml.statistics.contrastive import contrastive_statistics
from bspml.statistics.noise_rate import (
    estimate_noise,
    keep_q_values,
    label_p_values,
    no_estimate,
    why_unjudgeable,
)

NAN = float("nan")


def _noisy(size, classes, rate, seed=0, strength=1.0):
    rng = np.random.default_rng(seed)
    true = np.repeat(np.arange(classes), size)
    embeddings = strength * rng.normal(size=(classes, 48))[true] + rng.normal(size=(len(true), 48))
    wrong = rng.random(len(true)) < rate
    labels = np.where(wrong, (true + rng.integers(1, classes, len(true))) % classes, true)
    return embeddings.astype(np.float32), labels, wrong


def _table(embeddings, labels, a=10.0):
    """d_i(c) as a dense N x C table in float64."""
    x = embeddings.astype(float)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    similar = np.exp(a * (x @ x.T))
    np.fill_diagonal(similar, 0)
    member = np.eye(labels.max() + 1)[labels]
    own = np.log(similar @ member / (member.sum(0) - member)) / a
    return np.log(similar.sum(1) / (len(x) - 1))[:, None] / a - own


def test_p_values_count_null_values_at_or_below():
    embeddings, labels, _ = _noisy(8, 6, 0.3)
    table = _table(embeddings, labels)
    wrong_class = np.eye(6)[labels] == 0
    null, difficulty = table[wrong_class], table[~wrong_class]
    expected = (1 + (null[None] <= difficulty[:, None]).sum(1)) / (1 + len(null))
    p = label_p_values(contrastive_statistics(embeddings, labels, null_bins=1 << 20)).numpy()
    # A bin is 4e-6 wide: at most one null value shares it by chance.
    np.testing.assert_allclose(p, expected, atol=2 / len(null))


def test_storey_is_the_share_above_three_quarters_times_four():
    embeddings, labels, _ = _noisy(12, 10, 0.3)
    estimate = estimate_noise(contrastive_statistics(embeddings, labels))
    assert estimate.storey == pytest.approx((estimate.p_values > 0.75).double().mean().item() * 4)


def test_q_values_by_hand():
    # N = 4, pi = .5: pi p N / r = .1 * 2 / 1, .2 * 2 / 2, .3 * 2 / 3, .9 * 2 / 4 = .2 .2 .2 .45;
    # the NaN counts for nothing.
    q = keep_q_values(torch.tensor([0.9, 0.1, NAN, 0.3, 0.2]), 0.5)
    assert q.tolist() == pytest.approx([0.45, 0.2, NAN, 0.2, 0.2], nan_ok=True)


def test_q_values_take_the_smallest_of_later_ranks():
    # .4 * 4 / 1 = 1.6 would exceed rank 4's .5 * 4 / 4.
    q = keep_q_values(torch.tensor([0.4, 0.5, 0.5, 0.5]), 0.5)
    assert q.tolist() == pytest.approx([0.25] * 4)


def test_q_values_cap_the_rate_at_95_percent():
    p = torch.tensor([0.1, 0.6])
    assert torch.equal(keep_q_values(p, 1.0), keep_q_values(p, 0.95))


def test_q_values_rise_with_p_and_with_the_rate():
    p = torch.rand(50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    low, high = keep_q_values(p, 0.2), keep_q_values(p, 0.4)
    assert (low.gather(0, p.argsort()).diff() >= 0).all()
    assert (high >= low).all()


def test_p_values_of_purely_random_labels_are_uniform():
    rng = np.random.default_rng(0)
    embeddings, labels, _ = _noisy(20, 40, 0.0)
    labels = rng.permutation(labels)
    p = label_p_values(contrastive_statistics(embeddings, labels)).numpy()
    steps = np.linspace(0.1, 0.9, 9)
    # Kolmogorov's distance at N = 800 stays below 1.63 / sqrt(800) in 99 of 100 draws.
    assert np.abs((p[:, None] <= steps).mean(0) - steps).max() < 1.63 / np.sqrt(800)


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.3, 0.5, 0.7])
def test_the_estimate_is_close_and_its_interval_holds_the_truth(rate):
    rows = []
    for seed in range(4):
        embeddings, labels, wrong = _noisy(20, 40, rate, seed)
        estimate = estimate_noise(contrastive_statistics(embeddings, labels))
        low, high = estimate.interval
        rows.append((estimate.noise_rate - wrong.mean(), low <= wrong.mean() <= high))
    bias, covered = np.mean(rows, 0)
    assert abs(bias) < 0.04
    assert covered >= 0.75


@pytest.mark.parametrize(("classes", "rate"), [(2, 0.3), (3, 0.4), (5, 0.5)])
def test_few_classes_are_corrected_where_the_plain_estimate_is_far_too_high(classes, rate):
    embeddings, labels, wrong = _noisy(300, classes, rate)
    estimate = estimate_noise(contrastive_statistics(embeddings, labels))
    assert estimate.noise_rate == pytest.approx(wrong.mean(), abs=0.06)
    assert estimate.storey > wrong.mean() + 0.05
    assert "Few classes" in estimate.notes[0]


def test_few_classes_keep_more_at_the_same_promise_with_the_true_classes_taken_out():
    embeddings, labels, wrong = _noisy(60, 10, 0.5)
    stats = contrastive_statistics(embeddings, labels)
    corrected = estimate_noise(stats).q_values < 0.05
    plain = estimate_noise(stats, correct_few_classes=False).q_values < 0.05
    assert corrected.sum() > 1.5 * plain.sum()
    assert wrong[corrected.numpy()].mean() < 0.08


def test_small_classes_are_corrected_for_clean_samples_among_wrong_classmates():
    biases = []
    for seed in range(4):
        embeddings, labels, wrong = _noisy(3, 400, 0.5, seed)
        estimate = estimate_noise(contrastive_statistics(embeddings, labels))
        biases.append((estimate.noise_rate - wrong.mean(), estimate.storey - wrong.mean()))
        assert any(note.startswith("Small classes") for note in estimate.notes)
    corrected, plain = np.mean(biases, 0)
    assert abs(corrected) < 0.04
    assert plain > 0.08


def test_many_large_classes_give_the_plain_formula():
    embeddings, labels, _ = _noisy(30, 110, 0.3)
    estimate = estimate_noise(contrastive_statistics(embeddings, labels))
    assert estimate.noise_rate == pytest.approx(estimate.storey, abs=0.01)
    p, rate = estimate.p_values, estimate.noise_rate
    torch.testing.assert_close(estimate.q_values, keep_q_values(p, rate))


def test_clean_labels_raise_no_alarm():
    embeddings, labels, _ = _noisy(20, 30, 0.0)
    estimate = estimate_noise(contrastive_statistics(embeddings, labels))
    assert estimate.noise_rate < 0.01
    assert estimate.interval[0] == 0
    assert (estimate.q_values < 0.05).all()


def test_a_sharper_data_set_gets_a_narrower_interval():
    widths = []
    for classes in (10, 160):
        embeddings, labels, _ = _noisy(10, classes, 0.3)
        low, high = estimate_noise(contrastive_statistics(embeddings, labels)).interval
        widths.append(high - low)
    assert widths[1] < 0.5 * widths[0]


def test_renaming_and_reordering_change_nothing():
    embeddings, labels, _ = _noisy(10, 12, 0.3)
    order = np.random.default_rng(1).permutation(len(labels))
    straight = estimate_noise(contrastive_statistics(embeddings, labels))
    other = estimate_noise(contrastive_statistics(embeddings[order], 100 - labels[order]))
    assert other.noise_rate == pytest.approx(straight.noise_rate, abs=1e-9)
    assert other.interval == pytest.approx(straight.interval, abs=1e-9)
    torch.testing.assert_close(other.p_values, straight.p_values[order], atol=1e-3, rtol=0)


def test_untestable_samples_are_left_out_and_said():
    embeddings, labels, _ = _noisy(10, 12, 0.2)
    labels = labels.copy()
    labels[[0, 50]] = [90, 91]
    estimate = estimate_noise(contrastive_statistics(embeddings, labels))
    assert estimate.num_testable == 118
    assert estimate.p_values[[0, 50]].isnan().all()
    assert estimate.q_values[[0, 50]].isnan().all()
    assert "2 of 120 samples are alone in their class" in estimate.notes[0]
    labels[50] = labels[51]
    estimate = estimate_noise(contrastive_statistics(embeddings, labels))
    assert "1 of 120 samples is alone in its class: it is left out of the rate" in estimate.notes[0]


def test_clean_classes_that_overlap_support_no_rate():
    # Hardly separated: the estimate is above 0, its interval is not.
    for seed in range(4):
        rng = np.random.default_rng(seed)
        labels = np.repeat(np.arange(20), 30)
        x = rng.standard_normal((20, 16))[labels] + 2.5 * rng.standard_normal((600, 16))
        estimate = estimate_noise(contrastive_statistics(x, labels))
        assert estimate.noise_rate > 0.05
        assert estimate.interval[0] == 0
        assert ", maybe none" in estimate.sentence
        assert "t least" not in estimate.sentence


@pytest.mark.parametrize(
    ("x", "labels", "reason"),
    [
        (np.eye(5), np.arange(5), "second sample"),
        (np.ones((40, 3)), np.arange(40) % 4, "all labels alike"),
        (np.full((40, 3), -0.7), np.arange(40) % 2, "all labels alike"),
        (np.eye(4)[np.arange(40) % 4], np.arange(40) % 4, ""),
        (np.eye(2)[np.arange(40) % 2], np.arange(40) // 2 % 2, ""),
    ],
)
def test_embeddings_in_one_place_tell_nothing(x, labels, reason):
    x = x + 1e-7 * np.random.default_rng(0).standard_normal(x.shape)
    stats = contrastive_statistics(x, labels)
    assert reason in why_unjudgeable(stats)
    assert bool(why_unjudgeable(stats)) == bool(reason)
    nothing = no_estimate(len(stats.codes), "why.")
    assert (nothing.interval, nothing.upper_bound, nothing.noise_rate) == ((0, 1), 1, 0)
    assert nothing.p_values.isnan().all()
    assert nothing.sentence == "No label could be judged: why."


def test_nothing_testable_says_nothing_instead_of_failing():
    stats = contrastive_statistics(np.eye(5), np.arange(5))
    estimate = estimate_noise(stats)
    assert estimate.interval == (0.0, 1.0)
    assert estimate.num_testable == 0
    assert estimate.sentence.startswith("No label could be judged")


def test_the_wide_interval_of_a_tiny_data_set_is_said_in_words():
    embeddings, labels, _ = _noisy(5, 4, 0.2)
    estimate = estimate_noise(contrastive_statistics(embeddings, labels))
    assert any(note.startswith("The interval is wide: 20 labels in 4") for note in estimate.notes)


def test_the_sentence_says_lower_bound_or_both_bounds():
    embeddings, labels, _ = _noisy(20, 40, 0.3)
    stats = contrastive_statistics(embeddings, labels)
    alone = estimate_noise(stats)
    assert alone.upper_bound is None
    low, high = (
        f"{100 * end:.1f}" if end < 0.0995 else f"{100 * end:.0f}" for end in alone.interval
    )
    assert alone.sentence == (
        f"The best estimate of labels wrong at random is {100 * alone.noise_rate:.0f} % "
        f"(95 % interval {low} to {high} %); confusions between similar classes come on top."
    )
    both = estimate_noise(stats, confusions_upper=0.6)
    assert both.upper_bound == 0.6
    assert both.lower_bound == both.interval[0]
    assert both.sentence.startswith(f"Between {low} and 60 % of the labels are wrong: the best ")
    assert estimate_noise(stats, confusions_upper=0.0).upper_bound == alone.interval[1]


@pytest.mark.parametrize("bound", [-0.1, 1.5, NAN])
def test_a_bound_that_is_no_share_is_refused(bound):
    embeddings, labels, _ = _noisy(5, 4, 0.2)
    with pytest.raises(InputError, match=r"`confusions_upper` must be in \[0, 1\]"):
        estimate_noise(contrastive_statistics(embeddings, labels), confusions_upper=bound)


def test_q_values_refuse_a_rate_out_of_range():
    with pytest.raises(InputError, match=r"`noise_rate` must be in \[0, 1\]"):
        keep_q_values(torch.tensor([0.1]), 1.2)


def test_two_classes_far_apart_do_not_deny_the_true_rate():
    # Wrong labels of either class lie side by side, without one another fewer than the null has:
    # all of them fall into the tail.
    held = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        true = np.repeat([0, 1], 100)
        embeddings = 6 * rng.normal(size=(2, 64))[true] + rng.normal(size=(200, 64))
        wrong = rng.random(200) < 0.2
        labels = np.where(wrong, 1 - true, true)
        low, high = estimate_noise(contrastive_statistics(embeddings, labels)).interval
        held += low <= wrong.mean() <= high
    assert held >= 18
