"""The streamed statistics against a dense table, by hand, and under the laws they must obey."""

import math

import numpy as np
import pytest
import torch

from bspml.errors import InputError, SampleIndexError
from bspml.statistics.contrastive import contrastive_statistics
from bspml.statistics.references import SUPPORT_EDGES

EXACT = 1e-12  # float64, a sum in another order
SINGLE = 2e-6  # float32 similarities: 2^-23 times a few, divided by nothing


def _random(n, classes, seed=0, dim=6, dtype=np.float64):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    centres = rng.normal(size=(classes, dim))
    return (centres[labels] + rng.normal(size=(n, dim))).astype(dtype), labels


def _dense(embeddings, labels, weights=None, a=10.0):
    """The N x C table of s_i(c) and t_i by loops, from the definition."""
    x = np.asarray(embeddings, float)
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    n, classes = len(x), int(labels.max()) + 1
    w = np.ones(n) if weights is None else weights
    s, t = np.full((n, classes), np.nan), np.full(n, np.nan)
    for i in range(n):
        others = [j for j in range(n) if j != i and w[j] > 0]
        t[i] = math.log(
            sum(w[j] * math.exp(a * (x[i] @ x[j])) for j in others) / sum(w[j] for j in others)
        ) / a  # fmt: skip
        for c in range(classes):
            mates = [j for j in others if labels[j] == c]
            if mates:
                num = sum(w[j] * math.exp(a * (x[i] @ x[j])) for j in mates)
                s[i, c] = math.log(num / sum(w[j] for j in mates)) / a
    return s, t


def _null(s, t, labels, bins):
    values = []
    for i in range(len(labels)):
        for c in range(s.shape[1]):
            if c != labels[i] and not np.isnan(s[i, c]):
                values.append(t[i] - s[i, c])
    return np.bincount(((np.array(values) + 2) / 4 * bins).astype(int), minlength=bins)


@pytest.mark.parametrize(("n", "classes", "a"), [(40, 3, 10.0), (30, 12, 10.0), (25, 2, 3.0)])
@pytest.mark.parametrize("weighted", [False, True])
def test_streamed_statistics_equal_a_dense_table(n, classes, a, weighted):
    embeddings, labels = _random(n, classes, seed=n)
    labels = np.unique(labels, return_inverse=True)[1]
    weights = None
    if weighted:
        weights = np.random.default_rng(1).random(n)
        weights[::5] = 0
    s, t = _dense(embeddings, labels, weights, a)
    stats = contrastive_statistics(embeddings, labels, weights, a=a, null_bins=1 << 12)
    own = s[np.arange(n), labels]
    np.testing.assert_allclose(stats.own, own, atol=EXACT)
    np.testing.assert_allclose(stats.everyone, t, atol=EXACT)
    np.testing.assert_allclose(stats.difficulty, t - own, atol=EXACT)
    assert stats.testable.tolist() == (~np.isnan(own)).tolist()
    others = s.copy()
    others[np.arange(n), labels] = -9
    np.testing.assert_allclose(stats.other, np.nanmax(others, 1), atol=EXACT)
    assert stats.other_class.tolist() == np.nanargmax(others, 1).tolist()
    np.testing.assert_array_equal(stats.null, _null(s, t, labels, 1 << 12))


def test_two_pairs_by_hand():
    # a: (1,0) (1,0); b: (0,1) (0,1).  Sample 0: s(a) = 1 (its twin), s(b) = 0,
    # t = log((e^10 + 2) / 3) / 10 over its three others.
    stats = contrastive_statistics([[1.0, 0], [1, 0], [0, 1], [0, 1]], ["a", "a", "b", "b"])
    t = math.log((math.exp(10) + 2) / 3) / 10
    assert stats.own.tolist() == pytest.approx([1, 1, 1, 1], abs=1e-6)
    assert stats.everyone.tolist() == pytest.approx([t] * 4, abs=1e-6)
    assert stats.difficulty.tolist() == pytest.approx([t - 1] * 4, abs=1e-6)
    assert stats.other.tolist() == pytest.approx([0] * 4, abs=1e-6)
    assert stats.margin.tolist() == pytest.approx([-1] * 4, abs=1e-6)
    assert stats.best_class.tolist() == [0, 0, 1, 1]
    assert stats.support.tolist() == [1] * 4
    # The null is d_i(c) = t - 0, once for each sample.
    (bin_,) = np.flatnonzero(stats.null)
    assert stats.null[bin_] == 4
    assert bin_ == math.floor((t + 2) / 4 * len(stats.null))


def test_a_wrong_label_is_told_by_its_margin_and_its_best_class():
    embeddings, labels = _random(60, 3, dim=40, seed=5)
    wrong = labels.copy()
    wrong[0] = (labels[0] + 1) % 3
    stats = contrastive_statistics(embeddings, wrong)
    assert stats.margin[0] > 0
    assert stats.best_class[0] == labels[0]


@pytest.mark.parametrize("block_size", [1, 7, 59, 1000])
def test_the_block_size_changes_nothing(block_size):
    embeddings, labels = _random(60, 9)
    whole = contrastive_statistics(embeddings, labels, null_bins=1 << 12)
    parts = contrastive_statistics(embeddings, labels, block_size=block_size, null_bins=1 << 12)
    np.testing.assert_allclose(parts.own, whole.own, atol=EXACT)
    np.testing.assert_allclose(parts.everyone, whole.everyone, atol=EXACT)
    np.testing.assert_array_equal(parts.null_by_support, whole.null_by_support)


def test_several_threads_give_the_same_bits():
    embeddings, labels = _random(101, 7, dtype=np.float32)
    one = contrastive_statistics(embeddings, labels, block_size=20)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        three = contrastive_statistics(embeddings, labels, block_size=20)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(one.other_class, three.other_class)
    np.testing.assert_allclose(one.own, three.own, atol=SINGLE)
    assert one.null.sum() == three.null.sum()


def test_running_twice_gives_the_same_bits():
    embeddings, labels = _random(80, 5, dtype=np.float32)
    first, second = (contrastive_statistics(embeddings, labels) for _ in range(2))
    assert torch.equal(first.own, second.own)
    np.testing.assert_array_equal(first.null_by_support, second.null_by_support)


def test_single_precision_agrees_with_double():
    embeddings, labels = _random(80, 5)
    double = contrastive_statistics(embeddings, labels)
    single = contrastive_statistics(embeddings.astype(np.float32), labels)
    np.testing.assert_allclose(single.difficulty, double.difficulty, atol=SINGLE)


def test_permuting_the_samples_permutes_the_statistics():
    embeddings, labels = _random(50, 4)
    order = np.random.default_rng(3).permutation(50)
    straight = contrastive_statistics(embeddings, labels, null_bins=1 << 12)
    permuted = contrastive_statistics(embeddings[order], labels[order], null_bins=1 << 12)
    np.testing.assert_allclose(permuted.own, straight.own[order], atol=EXACT)
    np.testing.assert_allclose(permuted.everyone, straight.everyone[order], atol=EXACT)
    np.testing.assert_array_equal(permuted.null_by_support, straight.null_by_support)


def test_renaming_the_classes_changes_nothing():
    embeddings, labels = _random(50, 4)
    names = np.array(["pear", "fig", "apple", "plum"])[labels]
    numbers, words = (contrastive_statistics(embeddings, v) for v in (labels, names))
    np.testing.assert_allclose(words.difficulty, numbers.difficulty, atol=EXACT)
    np.testing.assert_array_equal(words.null, numbers.null)
    assert words.classes.tolist() == ["apple", "fig", "pear", "plum"]


def test_scaling_rows_changes_nothing():
    embeddings, labels = _random(50, 4)
    scales = np.random.default_rng(0).uniform(1e-3, 1e3, (50, 1))
    plain, scaled = (contrastive_statistics(e, labels) for e in (embeddings, embeddings * scales))
    np.testing.assert_allclose(scaled.difficulty, plain.difficulty, atol=1e-10)


def test_scaling_all_weights_changes_nothing():
    embeddings, labels = _random(50, 4)
    weights = np.random.default_rng(0).random(50)
    full = contrastive_statistics(embeddings, labels, weights)
    half = contrastive_statistics(embeddings, labels, weights / 2)
    np.testing.assert_allclose(half.difficulty, full.difficulty, atol=EXACT)


def test_weight_zero_is_absence_for_everybody_else():
    embeddings, labels = _random(60, 4)
    weights = np.ones(60)
    weights[:20] = 0
    masked = contrastive_statistics(embeddings, labels, weights, rows=np.arange(20, 60))
    alone = contrastive_statistics(embeddings[20:], labels[20:])
    np.testing.assert_allclose(masked.difficulty[20:], alone.difficulty, atol=EXACT)
    np.testing.assert_array_equal(masked.null_by_support, alone.null_by_support)
    assert not masked.testable[:20].any()


def test_a_sample_of_weight_zero_is_judged_without_being_a_reference():
    embeddings, labels = _random(60, 4)
    weights = np.ones(60)
    weights[7] = 0
    # At weight 1 the sample leaves itself out; at weight 0 it is out already: the same statistic.
    judged = contrastive_statistics(embeddings, labels, weights)
    plain = contrastive_statistics(embeddings, labels)
    assert judged.difficulty[7].item() == pytest.approx(plain.difficulty[7].item(), abs=EXACT)
    assert judged.support[7] == plain.support[7]


def test_cross_fit_judges_one_half_against_the_other():
    embeddings, labels = _random(40, 3)
    half = np.arange(40) % 2 == 0
    stats = contrastive_statistics(embeddings, labels, half.astype(float), rows=~half)
    s, t = _dense(embeddings, labels, half.astype(float))
    np.testing.assert_allclose(
        stats.difficulty[~half], (t - s[np.arange(40), labels])[~half], atol=EXACT
    )
    assert stats.testable.tolist() == (~half).tolist()
    assert stats.everyone[torch.from_numpy(half)].isnan().all()
    assert stats.null.sum() == 20 * 2  # judged samples times wrong classes


def test_rows_may_be_a_mask_or_indices():
    embeddings, labels = _random(30, 3)
    mask = np.zeros(30, bool)
    mask[[3, 8]] = True
    by_mask = contrastive_statistics(embeddings, labels, rows=mask)
    by_index = contrastive_statistics(embeddings, labels, rows=[8, 3, 3])
    assert torch.equal(by_mask.testable, by_index.testable)
    np.testing.assert_array_equal(by_mask.null, by_index.null)


def test_a_lone_sample_is_untestable_but_still_a_wrong_class_for_others():
    embeddings, _ = _random(5, 2)
    labels = np.array([0, 0, 1, 1, 2])
    stats = contrastive_statistics(embeddings, labels)
    assert stats.testable.tolist() == [True] * 4 + [False]
    assert stats.support.tolist() == [1, 1, 1, 1, 0]
    assert stats.own_bin[4] == -1
    assert np.isnan(stats.margin[4])
    assert stats.best_class[4] == 2  # no evidence against its label
    assert stats.null.sum() == 4 * 2 + 2
    assert stats.null_by_support[0].sum() == 4  # the stratum of one reference: class 2, four times


def test_null_strata_are_told_apart_by_class_support():
    labels = np.repeat([0, 1], [30, 3])
    embeddings, _ = _random(33, 2)
    stats = contrastive_statistics(embeddings, labels)
    expected = np.zeros(len(SUPPORT_EDGES), int)
    expected[2] = 30  # class 1 has 3 references and is wrong for 30 samples
    expected[-1] = 3  # class 0 has 30
    assert stats.null_by_support.sum(1).tolist() == expected.tolist()


def test_own_weight_does_not_cancel_away_a_tiny_classmate():
    embeddings, labels = _random(20, 2)
    weights = np.full(20, 1e-17)
    weights[np.flatnonzero(labels == 0)[0]] = 1.0
    weights[np.flatnonzero(labels == 1)[0]] = 1.0
    s, _ = _dense(embeddings, labels, weights)
    stats = contrastive_statistics(embeddings, labels, weights)
    np.testing.assert_allclose(stats.own, s[np.arange(20), labels], atol=EXACT)


@pytest.mark.parametrize(
    ("a", "smallest"), [(1e-3, 1.0), (0.1, 1.0), (10.0, 1e-42), (40.0, 1e-30), (10.0, 1e-300)]
)
def test_float32_rows_keep_the_digits_of_small_logarithms_and_small_weights(a, smallest):
    embeddings, labels = _random(30, 3, dtype=np.float32)
    drawn = np.random.default_rng(1).uniform(0.1, 1, 30)
    for scale in (smallest, np.where(labels == 0, smallest, 1.0)):  # of all, and of one class
        s, t = _dense(embeddings, labels, drawn * scale, a)
        stats = contrastive_statistics(embeddings, labels, drawn * scale, a)
        np.testing.assert_allclose(stats.own, s[np.arange(30), labels], atol=1e-9)
        np.testing.assert_allclose(stats.everyone, t, atol=1e-9)


def test_rows_of_norm_zero_are_neither_judged_nor_references():
    embeddings, labels = _random(30, 3)
    embeddings[[2, 9]] = 0
    stats = contrastive_statistics(embeddings, labels)
    keep = np.setdiff1d(np.arange(30), [2, 9])
    rest = contrastive_statistics(embeddings[keep], labels[keep])
    assert stats.zero_rows.tolist() == [2, 9]
    assert not stats.testable[[2, 9]].any()
    np.testing.assert_allclose(stats.difficulty[keep], rest.difficulty, atol=EXACT)


def test_duplicates_and_opposites_stay_in_range():
    embeddings = np.array([[1.0, 0], [1, 0], [-1, 0], [-1, 0], [1, 0]], np.float32)
    stats = contrastive_statistics(embeddings, [0, 0, 1, 1, 1])
    assert stats.difficulty.abs().max() <= 2
    assert stats.own.tolist()[:2] == pytest.approx([1, 1], abs=SINGLE)
    assert stats.null.sum() == 5


def test_half_precision_and_float_lists_are_taken():
    embeddings, labels = _random(20, 2)
    half = contrastive_statistics(torch.from_numpy(embeddings).half(), labels)
    double = contrastive_statistics(embeddings.tolist(), labels.tolist())
    np.testing.assert_allclose(half.own, double.own, atol=3e-3)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"labels": [0] * 10}, "at least two classes; got 1"),
        ({"sample_weights": [0.0] * 10}, "at least two classes; got 0"),
        ({"sample_weights": [1.5] + [1.0] * 9}, r"in \[0, 1\]; rows 0 are not, the first is 1.5"),
        ({"sample_weights": [float("nan")] + [1.0] * 9}, r"rows 0 are not"),
        ({"sample_weights": [1.0] * 9}, r"`sample_weights` must be \(N,\) = \(10,\).*got \(9,\)"),
        ({"rows": [True] * 9}, r"`rows` must have one flag per sample, \(10,\); got \(9,\)\. Or"),
        ({"a": 0}, r"`a` must be in \[0.001, 40\]"),
        ({"a": 1e-6}, r"`a` must be in \[0.001, 40\]"),
        ({"a": 100}, r"`a` must be in \[0.001, 40\]"),
        ({"null_bins": 3}, "`null_bins` must be a whole number of at least 16"),
        ({"block_size": 0}, "`block_size` must be a whole number of at least 1"),
        ({"labels": [0, 1]}, r"one entry per embedding, \(10,\)"),
        ({"embeddings": np.full((10, 2), np.nan)}, "must be finite"),
    ],
)
def test_wrong_arguments_are_refused_with_a_remedy(change, match):
    embeddings, _ = _random(10, 2)
    arguments = {"embeddings": embeddings, "labels": [0, 1] * 5} | change
    with pytest.raises(InputError, match=match):
        contrastive_statistics(**arguments)


def test_rows_outside_the_data_set_are_refused():
    embeddings, labels = _random(10, 2)
    with pytest.raises(SampleIndexError, match="`rows` must lie in"):
        contrastive_statistics(embeddings, labels, rows=[10])


def test_weights_given_are_not_changed():
    embeddings, labels = _random(10, 2)
    embeddings[0] = 0
    weights = torch.ones(10, dtype=torch.float64)
    contrastive_statistics(embeddings, labels, weights)
    assert weights.tolist() == [1.0] * 10
