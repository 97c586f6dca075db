"""Wrong classes are among the most similar ones, by names or by a matrix."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from bspml import noise
from bspml.data.noise.semantic import words_of
from bspml.errors import InputError
from helpers.draws import balanced

NAMES = {
    "cub": ["001.Black_footed_Albatross", "002.Laysan_Albatross", "009.Brewer_Blackbird",
            "010.Red_winged_Blackbird", "013.Bobolink"],
    "sop": ["bicycle/00001", "bicycle/00002", "lamp/00003", "lamp/00004"],
    "omniglot": ["Latin/character01", "Latin/character02", "Greek/character01", "Greek/character2"],
    "cars": ["Audi S4 Sedan 2012", "Audi TTS Coupe 2012", "BMW M3 Coupe 2012", "Ram Van 2009"],
}  # fmt: skip


def shared_words(a, b):
    """By walking from either end."""
    lengths = []
    for one, two in ((a, b), (a[::-1], b[::-1])):
        length = 0
        while length < min(len(one), len(two)) and one[length] == two[length]:
            length += 1
        lengths.append(length)
    return max(lengths)


def allowed(matrix, own, among):
    """The classes at least as similar as the `among`-th of the others."""
    others = sorted((v for j, v in enumerate(matrix[own]) if j != own), reverse=True)
    last = others[min(among, len(others)) - 1]
    return {j for j, v in enumerate(matrix[own]) if j != own and v >= last}


@given(
    names=st.lists(
        st.lists(st.sampled_from(["red", "owl", "fox", "x7", "Barn"]), min_size=1, max_size=4),
        min_size=3,
        max_size=8,
        unique_by=tuple,
    ),
    among=st.integers(1, 4),
    seed=st.integers(0, 99),
)
def test_names_are_compared_word_by_word_from_either_end(names, among, seed):
    classes = sorted("_".join(words) for words in names)
    matrix = [[shared_words(words_of(a), words_of(b)) for b in classes] for a in classes]
    shared = max(v for i, row in enumerate(matrix) for j, v in enumerate(row) if i != j)
    labels = np.repeat(classes, 30)
    if shared == 0:
        with pytest.raises(InputError, match="share a word"):
            noise.semantic(labels, 1.0, seed=seed, among=among)
        return
    noisy = noise.semantic(labels, 1.0, seed=seed, among=among)
    again = noise.semantic(labels, 1.0, np.array(matrix), seed=seed, among=among)
    assert np.array_equal(noisy.labels, again.labels)
    for c, name in enumerate(classes):
        wrong = {classes.index(label) for label in noisy.labels[labels == name].tolist()}
        assert wrong <= allowed(matrix, c, among)


@given(seed=st.integers(0, 2**20), classes=st.integers(2, 7), among=st.integers(1, 8))
def test_a_matrix_says_which_classes_come_next(seed, classes, among):
    draw = np.random.default_rng(seed)
    matrix = draw.integers(0, 4, (classes, classes)).astype(float)
    labels = balanced(classes, 40)
    noisy = noise.semantic(labels, 1.0, matrix, seed=seed, among=among)
    for c in range(classes):
        # 40 draws from at most 6 classes: one is left out with a chance of .4 %
        found = set(noisy.labels[labels == c].tolist())
        assert found <= allowed(matrix, c, among)
        assert len(found) >= len(allowed(matrix, c, among)) - 1


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("cub", [{1}, {0}, {3}, {2}, {0, 1, 2, 3}]),
        ("sop", [{1}, {0}, {3}, {2}]),
        ("omniglot", [{1}, {0}, {3}, {2}]),
        ("cars", [{1}, {0, 2}, {1}, {0, 1, 2}]),
    ],
)
def test_the_names_of_published_sets(data, expected):
    classes = NAMES[data]
    noisy = noise.semantic(np.repeat(classes, 50), 1.0)
    for name, similar in zip(classes, expected, strict=True):
        found = noisy.labels[noisy.true_labels == name].tolist()
        assert {classes.index(label) for label in found} == similar


def test_counts_are_exact_and_per_class():
    labels = np.repeat(["red fox", "grey fox", "owl"], [10, 20, 30])
    assert noise.semantic(labels, 0.25).is_noisy.sum() == 15
    noisy = noise.semantic(labels, 0.1, per_class=True)
    assert [int(noisy.is_noisy[labels == c].sum()) for c in ("red fox", "grey fox", "owl")] == [
        1,
        2,
        3,
    ]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda y: noise.semantic(y, 0.1), "no two of these 4, such as 0 and 1, do. Use another"),
        (lambda y: noise.semantic(y, 0.1, np.eye(3)), r"\(C, C\) = \(4, 4\).*got \(3, 3\)"),
        (lambda y: noise.semantic(y, 0.1, np.full((4, 4), np.nan)), "no NaN; got some in rows 0"),
        (lambda y: noise.semantic(y, 0.1, "near"), "`similarity` must be"),
        (lambda y: noise.semantic(y, 0.1, np.eye(4), among=0), "`among`"),
    ],
)
def test_wrong_input_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call(balanced(4, 10))
