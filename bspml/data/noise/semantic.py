"""Classes taken for those that mean nearly the same."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from bspml.data.noise.noisy_labels import NoisyLabels
from bspml.data.noise.task import NoiseTask
from bspml.errors import InputError
from bspml.tensors.arguments import check_flags
from bspml.tensors.checks import as_numbers, check_whole, some_of
from bspml.tensors.row_index import check_class_order

_MostSimilar = Callable[[int], np.ndarray]


def semantic(
    labels: Any,
    rate: Any,
    similarity: Any = None,
    seed: Any = 0,
    among: Any = 1,
    per_class: bool = False,
) -> NoisyLabels:
    """Give round(rate * N) samples a class like their own: by the names, or by a matrix.

    The wrong class is drawn from the classes that are as similar to the true one as the
    `among`-th most similar, or more; each is equally likely.

    Without a matrix two classes are as similar as their names share words at the start or at the
    end, whichever are more: `bicycle/00001` and `bicycle/00007`, `Latin/character01` and
    `Latin/character02`, `001.Black_footed_Albatross` and `002.Laysan_Albatross`, `Audi S4 Sedan
    2012` and `Audi TTS Coupe 2012` share one.  A word with a digit names one class and is passed
    over.  A class that shares no word with another may become any.

    Source: [Barbany 2024] simulate mistakes that are plausible by an ontology of the classes.
    Differs: of the paper only the abstract was at hand; similarity by shared words, and equal
    chances among the most similar, are ours.  `sibling_flip` draws within given groups.

    Args:
        labels: (N,) of any kind, at least two classes.
        rate: share of wrong labels, in [0, 1].
        similarity: (C, C) numbers, rows true classes, columns wrong ones, both in the sorted order
            of the labels; the diagonal is not read.  None: by the names.
        seed: of the draw.
        among: how many of the most similar classes to draw from; those that tie with the last of
            them, too.
        per_class: True changes round(rate * N_c) samples in each class.

    Raises:
        InputError: as in `symmetric`; a matrix of another shape, or with NaN; names of which no
            two share a word.

    Example:
        >>> semantic(["red fox", "arctic fox", "barn owl", "snowy owl"], rate=1).labels.tolist()
        ['arctic fox', 'red fox', 'snowy owl', 'barn owl']
    """
    check_flags(per_class=per_class)
    task = NoiseTask.of(labels, rate, seed)
    among = check_whole(among, "among")
    check_class_order(similarity, "similarity", task.classes)
    if similarity is None:
        most_similar = _by_names(task.classes, among)
    else:
        most_similar = _by_matrix(similarity, task.num_classes, among)
    rows = task.draw_rows(per_class)
    codes = np.empty(len(rows), dtype=np.int64)
    for c in np.unique(task.codes[rows]).tolist():
        drawn = task.codes[rows] == c
        codes[drawn] = task.draw.choice(most_similar(c), int(drawn.sum()))
    return task.with_labels(rows, codes)


def words_of(name: str) -> tuple[str, ...]:
    """Return the words of a class name, small, without those that hold a digit.

    Example:
        >>> words_of("001.Black_footed_Albatross"), words_of("Latin/character01")
        (('black', 'footed', 'albatross'), ('latin',))
    """
    words = re.split(r"[\W_]+", name.lower())
    return tuple(word for word in words if word and not re.search(r"\d", word))


def _by_names(classes: np.ndarray, among: int) -> _MostSimilar:
    """The most similar classes by shared words at either end of the names."""
    words = [words_of(str(name)) for name in classes.tolist()]
    # Which classes start, and which end, with these words.
    starts: dict[tuple[str, ...], list[int]] = defaultdict(list)
    ends: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for c, of_class in enumerate(words):
        for length in range(1, len(of_class) + 1):
            starts[of_class[:length]].append(c)
            ends[of_class[-length:]].append(c)
    if all(len(sharing) == 1 for shared in (starts, ends) for sharing in shared.values()):
        raise InputError(
            "semantic noise confuses classes whose names share a word at the start or the end: no "
            f"two of these {len(classes)}, such as {classes[0]!s} and {classes[1]!s}, do. Use "
            "another kind of noise, or in Python pass a (C, C) matrix as `similarity`."
        )

    @cache
    def sharing(of_class: tuple[str, ...]) -> np.ndarray:
        for length in range(len(of_class), 0, -1):
            found = np.union1d(starts[of_class[:length]], ends[of_class[-length:]])
            if len(found) > among:  # the class itself is one of them
                return found
        return np.arange(len(classes))

    return lambda c: np.setdiff1d(sharing(words[c]), c, assume_unique=True)


def _by_matrix(similarity: Any, c: int, among: int) -> _MostSimilar:
    """The most similar classes by the rows of a matrix."""
    what = f"(C, C) = ({c}, {c}) numbers"
    matrix = as_numbers(similarity, "similarity", what, "Rows are true classes.")
    numbers = matrix.detach().cpu().double().numpy()
    if numbers.shape != (c, c):
        raise InputError(
            f"`similarity` must be {what}, a row per class in sorted order; got {numbers.shape}."
        )
    unknown = np.isnan(numbers).any(1)
    if unknown.any():
        raise InputError(
            f"`similarity` must have no NaN; got some in rows {some_of(np.flatnonzero(unknown))}."
        )

    def most_similar(own: int) -> np.ndarray:
        others = np.delete(np.arange(c), own)
        row = numbers[own, others]
        last = np.sort(row)[::-1][min(among, c - 1) - 1]
        return others[row >= last]

    return most_similar
