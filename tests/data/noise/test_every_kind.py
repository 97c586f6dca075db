"""What holds for every kind: exact counts, never the own label, kinds kept, seeds obeyed."""

import enum
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings, strategies as st

import bspml
from bspml import noise
from bspml.errors import InputError
from helpers.draws import balanced


def check_consistent(noisy, labels):
    """What holds for every kind: flags are exactly the wrong labels, and no label is new."""
    given_, true = np.asarray(noisy.labels), np.asarray(noisy.true_labels)
    assert np.array_equal(true, np.asarray(labels))
    assert np.array_equal(np.asarray(noisy.is_noisy), given_ != true)
    assert set(given_.tolist()) <= set(true.tolist())
    told = noise.from_labels(noisy.labels, noisy.true_labels).is_outlier
    assert np.array_equal(np.asarray(noisy.is_outlier), np.asarray(told))
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
    "keep_original": lambda y, x: noise.symmetric(y, 0.3, 5, keep_original=True),
    "by chance": lambda y, x: noise.symmetric(y, 0.3, 5, exact=False),
    "pair_flip by chance": lambda y, x: noise.pair_flip(y, 0.3, 5, exact=False),
    "transition by chance": lambda y, x: noise.asymmetric(
        y, transition=0.6 * np.eye(10) + 0.04 * np.ones((10, 10)), seed=5, exact=False
    ),
    "sibling_flip": lambda y, x: noise.sibling_flip(y, 0.3, np.arange(10) // 5, 5),
    "next sibling": lambda y, x: noise.sibling_flip(y, 0.3, np.arange(10) // 5, 5, to="next"),
    "sibling_flip by chance": lambda y, x: noise.sibling_flip(
        y, 0.3, np.arange(10) // 5, 5, exact=False
    ),
    "sibling_swap": lambda y, x: noise.sibling_swap(y, 0.3, np.arange(10) // 5, 5),
    "sibling_swap by chance": lambda y, x: noise.sibling_swap(
        y, 0.3, np.arange(10) // 5, 5, exact=False
    ),
    "small_cluster": lambda y, x: noise.small_cluster(y, 0.3, 5),
    "small_cluster by k-means": lambda y, x: noise.small_cluster(y, 0.3, 5, x),
    "open_set": lambda y, x: noise.open_set(y, 0.3, 5),
    "instance_dependent": lambda y, x: noise.instance_dependent(y, 0.3, x, 5),
    "semantic": lambda y, x: noise.semantic(y, 0.3, np.eye(10)[:, ::-1], 5, among=2),
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


RATED = {
    "symmetric": noise.symmetric,
    "per class": lambda y, rate: noise.symmetric(y, rate, per_class=True),
    "pair_flip": noise.pair_flip,
    "mapping": lambda y, rate: noise.asymmetric(y, rate, {y[0]: y[-1]}),
    "transition": lambda y, rate: noise.asymmetric(y, rate, transition=np.full((3, 3), 1 / 3)),
    "keep_original": lambda y, rate: noise.symmetric(y, rate, keep_original=True),
    "by chance": lambda y, rate: noise.symmetric(y, rate, exact=False),
    "sibling_flip": lambda y, rate: noise.sibling_flip(y, rate, [0] * 3),
    "sibling_swap": lambda y, rate: noise.sibling_swap(y, rate, [0] * 3),
    "small_cluster": noise.small_cluster,
    "open_set": noise.open_set,
    "instance_dependent": lambda y, rate: noise.instance_dependent(y, rate, np.ones((len(y), 2))),
    "semantic": lambda y, rate: noise.semantic(y, rate, np.eye(3)),
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
        (
            lambda y: noise.symmetric(y, 0.1, per_class=True, exact=False),
            "`per_class` fixes the number.*`exact=False` leaves it to chance",
        ),
        (lambda y: noise.pair_flip(y, 0.1, per_class=True, exact=False), "leave one of them out"),
        (
            lambda y: noise.sibling_flip(y, 0.1, [0] * 4, per_class=True, exact=False),
            "leave one of them out",
        ),
        (lambda y: noise.open_set(y, 1.0), "the rate must be below 1"),
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


@pytest.mark.parametrize("kind", [noise.small_cluster, noise.instance_dependent])
def test_embeddings_of_another_index_are_refused(kind):
    labels = pd.Series(balanced(4, 10), index=range(40))
    with pytest.raises(InputError, match="`labels` and `embeddings` must have the same pandas ind"):
        kind(labels, 0.25, embeddings=pd.DataFrame(np.eye(40)[::-1], index=range(40)[::-1]))


def test_it_is_reached_from_the_package():
    assert bspml.data.noise.symmetric is noise.symmetric


# Labels 0 1 2 3 0 1 2 3 ... of 24 samples at half noise, seed 3.  Results rest on these draws: a
# change here is a change of every data set made before.
PINNED = {
    "212001133023322003030112": lambda y, x: noise.symmetric(y, 0.5, 3),
    "112001331223122002330130": lambda y, x: noise.pair_flip(y, 0.5, 3),
    "212321230113211301130123": lambda y, x: noise.asymmetric(y, 0.5, {0: 2, 2: 1}, seed=3),
    "321302030123012121230121": lambda y, x: noise.asymmetric(
        y, transition=0.5 * np.eye(4) + 0.125, seed=3
    ),
    "011001000100011001110111": lambda y, x: noise.small_cluster(y, 0.5, 3),
    "010001010111010101000100": lambda y, x: noise.open_set(y, 0.5, 3),
    "002331201233001331201133": lambda y, x: noise.instance_dependent(y, 0.5, x, 3),
}


@pytest.mark.parametrize("expected", PINNED)
def test_a_seed_draws_what_it_always_drew(expected):
    angle = np.arange(24)
    x = np.stack([np.cos(angle), np.sin(angle)], 1)
    noisy = PINNED[expected](np.arange(24) % 4, x)
    assert "".join(map(str, noisy.labels)) == expected


CHANCE = {
    "symmetric": lambda y, rate, s: noise.symmetric(y, rate, s, exact=False),
    "pair_flip": lambda y, rate, s: noise.pair_flip(y, rate, s, exact=False),
    "mapping": lambda y, rate, s: noise.asymmetric(
        y, rate, {c: (c + 1) % 4 for c in range(4)}, seed=s, exact=False
    ),
    "transition": lambda y, rate, s: noise.asymmetric(
        y, transition=np.eye(4) * (1 - rate) + np.eye(4)[:, ::-1] * rate, seed=s, exact=False
    ),
    "sibling_flip": lambda y, rate, s: noise.sibling_flip(y, rate, [0, 0, 1, 1], s, exact=False),
    "sibling_swap": lambda y, rate, s: noise.sibling_swap(y, rate, [0, 0, 1, 1], s, exact=False),
}


@pytest.mark.parametrize("make", CHANCE.values(), ids=CHANCE.keys())
def test_by_chance_each_sample_is_drawn_on_its_own(make):
    labels = balanced(4, 25)
    flags = np.stack([make(labels, 0.3, s).is_noisy for s in range(400)])
    counts = flags.sum(1)
    # Binomial(100, .3): mean 30, variance 21; the standard error of a variance is 21 * sqrt(2/399).
    assert abs(counts.mean() - 30) < 5 * np.sqrt(21 / 400)
    assert abs(counts.var() - 21) < 5 * 21 * np.sqrt(2 / 399)
    # 400 draws at .3 have standard deviation 9.2.
    assert np.abs(flags.sum(0) - 120).max() < 5 * 9.2
    assert not make(labels, 0.0, 0).is_noisy.any()
    assert make(labels, 1.0, 0).is_noisy.all()


def test_members_of_an_enumeration_of_text_are_labels_by_their_value():
    class Pet(str, enum.Enum):
        DOG = "dog"
        CAT = "cat"

    noisy = noise.pair_flip([Pet.DOG, Pet.CAT], 1)
    assert (noisy.labels.tolist(), noisy.true_labels.tolist()) == (["cat", "dog"], ["dog", "cat"])
    told = noise.from_labels([Pet.DOG, Pet.DOG], [Pet.DOG, Pet.CAT])
    assert told.true_labels.tolist() == ["dog", "cat"]
    assert told.is_noisy.tolist() == [False, True]
