"""Label noise: exact counts, never the own label, kinds kept, the same seed the same flags."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import bspml
from bspml import noise
from bspml.errors import InputError


def balanced(classes, size):
    return np.repeat(np.arange(classes), size)


def check_consistent(noisy, labels):
    """What holds for every kind: flags are exactly the wrong labels, and no label is new."""
    given_, true = np.asarray(noisy.labels), np.asarray(noisy.true_labels)
    assert np.array_equal(true, np.asarray(labels))
    assert np.array_equal(np.asarray(noisy.is_noisy), given_ != true)
    assert set(given_.tolist()) <= set(true.tolist())
    assert not (np.asarray(noisy.is_outlier) & ~np.asarray(noisy.is_noisy)).any()
    assert given_.dtype == true.dtype
    assert np.allclose(noisy.transition_matrix().sum(1), 1)


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 20), min_size=2, max_size=12),
    percent=st.integers(0, 100),
    per_class=st.booleans(),
    flip=st.booleans(),
    seed=st.integers(0, 2**40),
)
def test_exactly_the_rounded_count_changes_and_never_to_the_own_label(
    sizes, percent, per_class, flip, seed
):
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    make = noise.pair_flip if flip else noise.symmetric
    noisy = make(labels, percent / 100, seed, per_class)
    check_consistent(noisy, labels)
    exact = Fraction(percent, 100)
    if per_class:
        for c, size in enumerate(sizes):
            assert noisy.is_noisy[labels == c].sum() == round(exact * size)
    else:
        assert noisy.is_noisy.sum() == round(exact * len(labels))


def test_half_of_a_thousand_is_five_hundred_for_any_number_of_classes():
    for classes in (2, 10):
        assert noise.symmetric(balanced(classes, 1000 // classes), 0.5).is_noisy.sum() == 500


def test_small_classes_get_their_share_in_total():
    draw = np.random.default_rng(0)
    sizes = draw.integers(2, 13, 20_000)
    labels = np.repeat(np.arange(len(sizes)), sizes)[:59_551]
    noisy = noise.symmetric(labels, 0.1)
    assert abs(noisy.is_noisy.sum() - 5_955) <= 1
    assert noisy.actual_rate == pytest.approx(0.1, abs=1e-5)


@pytest.mark.parametrize(
    "rate",
    [
        0.1,
        np.float32(0.1),
        np.float16(0.1),
        torch.tensor(0.1),
        torch.tensor(0.1, dtype=torch.bfloat16),
        np.array(0.1, np.float32),
    ],
)
def test_a_tenth_is_a_tenth_in_every_float_type(rate):
    # .1 * 5 = .5, .1 * 15 = 1.5, .1 * 25 = 2.5: halves go to the even number
    for n, expected in ((5, 0), (15, 2), (25, 2), (1000, 100)):
        labels = np.arange(n) % 3
        assert noise.symmetric(labels, rate).is_noisy.sum() == expected


def test_decimal_rates_are_not_bent_by_binary_fractions():
    # .29 * 50 = 14.5, but 14.499999999999998 in float64; .57 * 150 = 85.5, but 85.49999999999999
    assert noise.symmetric(np.arange(150) % 3, 0.57).is_noisy.sum() == 86
    assert noise.symmetric(np.arange(50) % 3, 0.29).is_noisy.sum() == 14


def test_rate_zero_changes_nothing_and_rate_one_everything():
    labels = balanced(5, 8)
    none, all_ = noise.symmetric(labels, 0), noise.symmetric(labels, 1)
    assert np.array_equal(none.labels, labels)
    assert not none.is_noisy.any()
    assert all_.is_noisy.all()
    assert (all_.labels != labels).all()


def test_every_other_class_is_equally_likely():
    noisy = noise.symmetric(balanced(4, 3000), 0.6, seed=1)
    matrix = noisy.transition_matrix()
    # a share of .2 among 3000 has standard deviation .0073
    assert np.abs(matrix - np.full((4, 4), 0.2) - 0.2 * np.eye(4)).max() < 5 * 0.0073


def test_every_sample_is_equally_likely_to_be_noisy():
    hits = sum(
        noise.symmetric(balanced(2, 5), 0.3, seed=s).is_noisy.astype(int) for s in range(900)
    )
    # mean 270, standard deviation 13.7
    assert np.abs(hits - 270).max() < 5 * 13.7


MAKERS = {
    "symmetric": lambda y, x: noise.symmetric(y, 0.3, 5),
    "per class": lambda y, x: noise.symmetric(y, 0.3, 5, per_class=True),
    "pair_flip": lambda y, x: noise.pair_flip(y, 0.3, 5),
    "mapping": lambda y, x: noise.asymmetric(
        y, 0.3, {np.unique(np.asarray(y)).tolist()[0]: np.unique(np.asarray(y)).tolist()[2]}, seed=5
    ),
    "transition": lambda y, x: noise.asymmetric(
        y, transition=0.6 * np.eye(10) + 0.04 * np.ones((10, 10)), seed=5
    ),
    "small_cluster": lambda y, x: noise.small_cluster(y, 0.3, 5),
    "small_cluster by k-means": lambda y, x: noise.small_cluster(y, 0.3, 5, x),
    "open_set": lambda y, x: noise.open_set(y, 0.3, 5),
    "instance_dependent": lambda y, x: noise.instance_dependent(y, 0.3, x, 5),
}


@pytest.fixture
def rows():
    return torch.randn(200, 6, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
def test_the_same_seed_gives_the_same_flags_whatever_the_global_generators(make, rows):
    labels = balanced(10, 20)
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002
    first = make(labels, rows)
    torch.manual_seed(2)
    np.random.seed(2)  # noqa: NPY002
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    second = make(labels, rows)
    assert np.array_equal(first.labels, second.labels)
    assert np.array_equal(first.is_noisy, second.is_noisy)
    assert np.array_equal(np.random.get_state()[1], state)  # noqa: NPY002
    check_consistent(first, labels)
    assert first.is_noisy.any()


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
@pytest.mark.parametrize(
    "labels",
    [
        [f"c{i // 20}" for i in range(200)],
        np.array([f"c{i // 20}" for i in range(200)], dtype=object),
        (balanced(10, 20) * 1000 + 7).astype(np.int32),
        balanced(10, 20).astype(np.float64),
        torch.from_numpy(balanced(10, 20) - 5).to(torch.int16),
    ],
    ids=["strings", "objects", "int32", "floats", "int16 tensor"],
)
def test_labels_keep_their_kind_and_codes_do_not_matter(make, labels, rows):
    noisy = make(labels, rows)
    check_consistent(noisy, labels)
    assert np.array_equal(np.asarray(noisy.is_noisy), make(balanced(10, 20), rows).is_noisy)
    kind = torch.Tensor if isinstance(labels, torch.Tensor) else np.ndarray
    for value in (noisy.labels, noisy.true_labels, noisy.is_noisy, noisy.is_outlier):
        assert isinstance(value, kind)
    if kind is torch.Tensor:
        assert noisy.labels.dtype == labels.dtype
        assert noisy.is_noisy.dtype == torch.bool


def test_the_callers_labels_are_not_shared():
    labels = balanced(3, 4)
    noisy = noise.symmetric(labels, 0.5)
    labels[:] = 0
    assert np.array_equal(noisy.true_labels, balanced(3, 4))


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
def test_one_based_labels_get_no_new_label(make, rows):
    labels = balanced(10, 20) + 1
    noisy = make(labels, rows)
    assert set(noisy.labels) <= set(range(1, 11))
    assert noisy.is_noisy.any()
    check_consistent(noisy, labels)


def test_pair_flip_goes_to_the_next_class_and_the_last_to_the_first():
    noisy = noise.pair_flip(list("aabbcc"), 1.0)
    assert noisy.labels.tolist() == list("bbccaa")


def test_a_mapping_confuses_only_the_classes_it_names():
    noisy = noise.asymmetric(balanced(3, 10), 0.35, {0: 2, 2: 1}, seed=1)
    # .35 * 10 = 3.5, to the even 4
    expected = np.array([[0.6, 0, 0.4], [0, 1, 0], [0, 0.4, 0.6]])
    assert np.allclose(noisy.transition_matrix(), expected)


def test_a_transition_matrix_is_followed_and_can_be_given_a_rate():
    matrix = np.array([[0.7, 0.3, 0.0], [0.0, 1.0, 0.0], [0.1, 0.1, 0.8]])
    noisy = noise.asymmetric(balanced(3, 1000), transition=matrix, seed=1)
    found = noisy.transition_matrix()
    assert np.allclose(np.diag(found), [0.7, 1.0, 0.8])
    assert found[0, 1] == pytest.approx(0.3)
    assert abs(found[2, 0] - 0.1) < 5 * 0.007  # 100 of 200 draws, standard deviation .007 of 1000
    assert noisy.rate == pytest.approx(500 / 3000)
    fixed = noise.asymmetric(balanced(3, 1000), 0.5, transition=matrix, seed=1)
    assert np.allclose(np.diag(fixed.transition_matrix()), [0.5, 1.0, 0.5])


def test_small_clusters_at_half_leave_half_of_the_classes():
    draw = np.random.default_rng(0)
    labels = np.repeat(np.arange(98), draw.integers(68, 98, 98))
    noisy = noise.small_cluster(labels, 0.5, seed=2)
    assert abs(len(set(noisy.labels)) - 49) <= 1
    assert noisy.actual_rate == pytest.approx(0.5, abs=68 / 2 / len(labels))
    # whole classes are gone, and their samples are known as outliers
    assert np.array_equal(noisy.is_noisy, ~np.isin(labels, noisy.labels))
    assert np.array_equal(noisy.is_outlier, noisy.is_noisy)
    equal = noise.small_cluster(balanced(98, 80), 0.5, seed=2)
    assert len(set(equal.labels)) == 49


def test_small_clusters_keep_similar_samples_together():
    # Class 0 and 1 are two pairs of twins each; a dissolved one moves twin by twin.
    labels = balanced(12, 4)
    x = torch.eye(24).repeat_interleave(2, 0)
    noisy = noise.small_cluster(labels, 0.5, embeddings=x, seed=3)
    assert np.array_equal(noisy.labels[0::2], noisy.labels[1::2])
    assert noisy.is_noisy.sum() == 24


@pytest.mark.parametrize("cluster_size", [1, 3, 100])
def test_cluster_size_sets_how_many_samples_move_together(cluster_size):
    labels = balanced(400, 12)
    noisy = noise.small_cluster(labels, 0.25, cluster_size=cluster_size)
    groups = noisy.labels[noisy.is_noisy].reshape(-1, 12)
    distinct = [len(set(group)) for group in groups]
    # 12 / size groups, a few of which meet in one of 300 classes
    assert max(distinct) == max(1, 12 // cluster_size)
    assert np.mean(distinct) > 0.9 * max(1, 12 // cluster_size)


def test_open_set_outliers_belong_to_classes_that_are_gone():
    labels = balanced(10, 100)
    noisy = noise.open_set(labels, 0.2, seed=1)
    assert noisy.is_outlier.sum() == 200
    gone = set(labels[noisy.is_outlier])
    assert len(gone) == 2
    assert not gone & set(noisy.labels)
    assert not noise.symmetric(labels, 0.2).is_outlier.any()


def test_instance_dependent_noise_hits_the_samples_between_classes():
    # Directions at 0 and 90 degrees; class 0 has ten samples leaning over to class 1.
    angle = np.deg2rad(np.concatenate([np.zeros(40), np.full(10, 44.0), np.full(50, 90.0)]))
    x = np.stack([np.cos(angle), np.sin(angle)], 1)
    labels = balanced(2, 50)
    noisy = noise.instance_dependent(labels, 0.1, x, temperature=0.01)
    assert np.array_equal(np.flatnonzero(noisy.is_noisy), np.arange(40, 50))
    assert (noisy.labels[40:50] == 1).all()
    spread = noise.instance_dependent(labels, 0.1, x, temperature=100.0)
    assert spread.is_noisy.sum() == 10
    assert spread.is_noisy[:40].any() or spread.is_noisy[50:].any()


def test_margins_do_not_depend_on_the_block(monkeypatch, rows):
    task = noise._Task.of(balanced(10, 20), 0.1, 0)
    margin, nearest = task.margins(rows)
    x = torch.nn.functional.normalize(rows.double())
    for i in range(0, 200, 17):
        means = torch.stack(
            [x[[j for j in range(20 * c, 20 * c + 20) if j != i]].mean(0) for c in range(10)]
        )
        s = torch.nn.functional.normalize(means) @ x[i]
        own = s[i // 20].item()
        s[i // 20] = -9
        assert nearest[i] == s.argmax()
        assert margin[i] == pytest.approx(own - s.max().item())


def test_the_sparse_transition_matrix_is_the_dense_one():
    noisy = noise.symmetric(list("abcabcabc"), 0.5)
    assert np.array_equal(noisy.transition_matrix(sparse=True).toarray(), noisy.transition_matrix())


RATED = {
    "symmetric": noise.symmetric,
    "per class": lambda y, rate: noise.symmetric(y, rate, per_class=True),
    "pair_flip": noise.pair_flip,
    "mapping": lambda y, rate: noise.asymmetric(y, rate, {y[0]: y[-1]}),
    "transition": lambda y, rate: noise.asymmetric(y, rate, transition=np.full((3, 3), 1 / 3)),
    "small_cluster": noise.small_cluster,
    "open_set": noise.open_set,
    "instance_dependent": lambda y, rate: noise.instance_dependent(y, rate, np.ones((len(y), 2))),
}


@pytest.mark.parametrize("make", RATED.values(), ids=RATED.keys())
@pytest.mark.parametrize(
    "rate",
    [-0.1, 1.1, float("nan"), float("inf"), "much", "0.5", [0.1, 0.2], 1j, 10**400],
    ids=["negative", "above 1", "NaN", "inf", "word", "text", "two", "complex", "beyond float"],
)
def test_impossible_rates_are_refused(make, rate):
    with pytest.raises(InputError, match="`rate` must be"):
        make(balanced(3, 4), rate)
    assert issubclass(InputError, ValueError)


@pytest.mark.parametrize("make", RATED.values(), ids=RATED.keys())
def test_a_single_class_is_refused(make):
    with pytest.raises(InputError, match="at least 2 classes"):
        make([7, 7, 7], 0.5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda y: noise.symmetric(y, 0.1, seed=-1), "`seed`"),
        (lambda y: noise.symmetric(y[:, None], 0.1), "`labels` must be one label per sample"),
        (lambda y: noise.open_set(y, 1.0), "`rate` must be below 1"),
        (lambda y: noise.small_cluster(y, 0.01), "half of the smallest class"),
        (lambda y: noise.small_cluster(y, 0.5, cluster_size=0), "`cluster_size`"),
        (lambda y: noise.asymmetric(y, 0.1), "either `mapping` or `transition`"),
        (lambda y: noise.asymmetric(y, None, {0: 1}), "`rate` must be given"),
        (lambda y: noise.asymmetric(y, 0.1, {0: 9}), "label 9, which does not occur"),
        (lambda y: noise.asymmetric(y, 0.1, {0: 0}), "maps 0 to itself"),
        (lambda y: noise.asymmetric(y, 0.1, {0: [1]}), r"label \[1\], which does not occur"),
        (lambda y: noise.asymmetric(y, 0.1, [0, 1]), "`mapping` must be a dictionary.*got list"),
        (lambda y: noise.asymmetric(y, transition="x"), r"`transition` must be \(C, C\).*got 'x'"),
        (
            lambda y: noise.asymmetric(y, transition=[[1], [0, 1]]),
            "list of list of different lengths",
        ),
        (lambda y: noise.asymmetric(y, transition=1j), "`transition` must be"),
        (lambda y: noise.asymmetric(y, transition=np.eye(2)), r"\(C, C\) = \(4, 4\)"),
        (lambda y: noise.asymmetric(y, transition=2 * np.eye(4)), r"not so in rows 0, 1, 2, 3"),
        (lambda y: noise.instance_dependent(y, 0.1, np.ones((3, 2))), "one row per label, 40"),
        (
            lambda y: noise.instance_dependent(y, 0.1, np.ones((40, 2)), temperature=0),
            "`temperature`",
        ),
    ],
)
def test_wrong_input_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call(balanced(4, 10))


def test_it_is_reached_from_the_package():
    assert bspml.noise.symmetric is noise.symmetric
