"""Label errors end to end: calibration, laws, blocks, confusions that the random null misses."""

import numpy as np
import pytest
import torch

from bspml.errors import InputError
from bspml.statistics import label_errors, label_samples
from bspml.statistics.contrastive import contrastive_statistics
from bspml.statistics.label_errors import judge_labels
from bspml.statistics.noise_rate import estimate_noise


def clouds(classes=20, each=20, dims=24, apart=0.9, seed=0):
    rng = np.random.default_rng(seed)
    true = np.repeat(np.arange(classes), each)
    centres = apart * rng.standard_normal((classes, dims))
    return centres[true] + rng.standard_normal((len(true), dims)), true, centres, rng


def flipped(true, centres, rng, rate, near=False):
    """A share of the labels redrawn: from all other classes, or the nearest one."""
    given = true.copy()
    chosen = rng.choice(len(true), round(rate * len(true)), replace=False)
    classes = len(centres)
    if near:
        gaps = ((centres[:, None] - centres) ** 2).sum(2) + np.diag([np.inf] * classes)
        given[chosen] = gaps.argmin(1)[true[chosen]]
    else:
        given[chosen] = (true[chosen] + rng.integers(1, classes, len(chosen))) % classes
    return given


@pytest.mark.parametrize(("near", "rate"), [(False, 0.3), (True, 0.3), (False, 0.0)])
def test_the_rate_is_found_whatever_the_errors(near, rate):
    x, true, centres, rng = clouds()
    given = flipped(true, centres, rng, rate, near)
    found = judge_labels(x, given)
    assert found.rate == pytest.approx(rate, abs=0.04)
    assert found.interval[0] <= rate <= found.interval[1]
    wrong = given != true
    if near:  # to which the random null is blind
        assert estimate_noise(contrastive_statistics(x, given)).noise_rate < 0.05
    flagged = found.wrong_probability > 0.5
    expected = found.wrong_probability[flagged].sum()
    assert wrong[flagged].sum() == pytest.approx(expected, abs=max(5, 0.1 * flagged.sum()))
    if rate == 0:
        assert flagged.mean() < 0.02
    else:
        assert wrong[flagged].mean() > 0.85
        assert (found.other_class == true)[wrong & flagged].mean() > 0.85


@pytest.mark.parametrize("apart", [3.0, 0.9])
@pytest.mark.parametrize("rate", [0.06, 0.3])
def test_labels_all_moved_to_one_other_class_are_found_wherever_it_lies(apart, rate):
    """Far apart, "the classes overlap" explains them as well; near, distances foretell no pair."""
    x, true, _, rng = clouds(classes=10, each=50, apart=apart)
    moved = rng.choice(len(true), round(rate * len(true)), replace=False)
    given = true.copy()
    given[moved] = (true[moved] + 1) % 10
    found = judge_labels(x, given)
    assert found.rate == pytest.approx(rate, abs=0.02)
    assert found.interval[0] <= rate <= found.interval[1]
    flagged = found.wrong_probability > 0.5
    assert flagged[moved].mean() > 0.9
    assert np.isin(np.flatnonzero(flagged), moved).mean() > 0.9
    assert (found.other_class == true)[moved].mean() > 0.9


@pytest.mark.parametrize("next_class", [False, True])
def test_order_names_and_lengths_do_not_matter(next_class):
    x, true, centres, rng = clouds(classes=8)
    given = flipped(true, centres, rng, 0.3)
    if next_class:
        given = np.where(given != true, (true + 1) % 8, true)
    found = judge_labels(x, given)
    order = rng.permutation(len(x))
    shuffled = judge_labels(x[order], given[order])
    assert shuffled.rate == pytest.approx(found.rate, abs=1e-4)
    assert shuffled.wrong_probability == pytest.approx(found.wrong_probability[order], abs=1e-3)
    names = np.array(list("hgfedcba"))
    renamed = judge_labels(x * rng.uniform(0.1, 9, (len(x), 1)), names[given])
    assert renamed.rate == pytest.approx(found.rate, abs=1e-4)
    assert renamed.wrong_probability == pytest.approx(found.wrong_probability, abs=1e-3)
    assert (names[7 - renamed.other_class] == names[found.other_class]).all()


def test_blocks_and_a_sample_to_fit_to_give_nearly_the_same(monkeypatch):
    x, true, centres, rng = clouds(classes=10, each=60)
    given = flipped(true, centres, rng, 0.2)
    whole = judge_labels(x, given)
    monkeypatch.setattr(label_errors, "_BLOCK_VALUES", 170)
    blocks = judge_labels(x, given)
    assert blocks.wrong_probability == pytest.approx(whole.wrong_probability, abs=1e-6)
    monkeypatch.setattr(label_samples, "_FIT_VALUES", 10)
    monkeypatch.setattr(label_samples, "_FEWEST_FITTED", 300)
    sampled = judge_labels(x, given)
    assert sampled.fitted == 300
    assert sampled.rate == pytest.approx(whole.rate, abs=0.05)
    order = np.argsort(-whole.wrong_probability)[:100]
    assert np.isin(np.argsort(-sampled.wrong_probability)[:120], order).sum() > 90


def test_one_half_judges_the_other():
    x, true, centres, rng = clouds(each=30)
    given = flipped(true, centres, rng, 0.3)
    half = np.arange(len(x)) % 2 == 0
    found = judge_labels(x, given, half.astype(float), rows=~half)
    assert np.isnan(found.wrong_probability[half]).all()
    assert found.rounds == 0
    judged = found.wrong_probability[~half]
    wrong = (given != true)[~half]
    assert wrong[judged > 0.5].mean() > 0.85
    assert found.rate == pytest.approx(0.3, abs=0.06)


@pytest.mark.parametrize("each", [0, 1])
def test_classes_without_references_are_as_ones_that_are_not_there(each):
    """Nor is another label taken for a class of one reference: no label of it can be judged."""
    x, true, centres, rng = clouds(each=30)
    given = flipped(true, centres, rng, 0.3)
    first = np.unique(given, return_index=True)[1]
    absent = given % 2 == 0
    kept = ~absent
    kept[first] |= each > 0
    some, rows = kept | (each == 0), kept & ~absent
    found = judge_labels(x[some], given[some], np.where(kept, 1.0, 0.0)[some], rows=rows[some])
    alone = judge_labels(x[rows], given[rows], rows=np.ones(rows.sum(), bool))
    assert found.rate == pytest.approx(alone.rate, abs=1e-3 if each else 1e-5)
    if not each:  # the others keep their numbers
        assert found.odds[rows] == pytest.approx(alone.odds, abs=1e-3)
        assert (found.other_class[rows] == np.arange(1, 20, 2)[alone.other_class]).all()


def test_features_that_know_nothing_have_no_model():
    x = np.random.default_rng(0).standard_normal((600, 32))
    found = judge_labels(x, np.repeat(np.arange(30), 20))
    assert found.model is None
    assert (found.rate, found.interval) == (0.0, (0.0, 1.0))
    assert np.isnan(found.wrong_probability).all()


def test_rows_of_norm_0_are_left_out_and_torch_and_numpy_are_the_same():
    x, true, _, _ = clouds(classes=6, each=12)
    x[3] = 0
    found = judge_labels(x, true)
    assert np.isnan(found.wrong_probability[3])
    assert found.other_class[3] == -1
    again = judge_labels(torch.tensor(x), true.tolist())
    assert again.wrong_probability == pytest.approx(found.wrong_probability, nan_ok=True)


def test_one_class_is_refused():
    with pytest.raises(InputError, match="at least two classes"):
        judge_labels(np.eye(4), [1, 1, 1, 1])


def test_a_judge_that_was_too_sure_at_first_may_become_unsure():
    # An untrained projection to 4 numbers: few samples, weak features, and a rate told too high.
    true, row = np.repeat(np.arange(6), 12), np.arange(72)
    labels = np.where(row % 6 == 0, (true + 1 + row // 6 % 5) % 6, true)
    x = np.random.default_rng(0).normal(size=(6, 8))[true]
    x = x + 0.2 * np.random.default_rng(1).normal(size=(72, 8))
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 4))
    embeddings = network(torch.from_numpy(x.astype(np.float32))).detach()
    found = judge_labels(embeddings, labels, random_rate=0.41)
    assert np.array_equal(found.wrong_probability > 0.5, labels != true)
    assert found.rate == pytest.approx(1 / 6, abs=0.05)
