"""The samples that a curriculum judges: all, or of the copies of a sample one under each label.

As in an audit, copies count once (`bspml.statistics.copies.distinct`): none is vouched for by its
own copies, those under one label share a verdict, and what is under several labels vouches for the
most frequent one or for none.  Of one picture's labels at most one is kept.  A picture under three
labels or more, such as a placeholder, is no sample of a class: it judges nobody, and its labels are
left out where more of its copies have another one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from bspml.distributed.main_rank import from_main
from bspml.errors import InputError
from bspml.evaluation.neighbours import find_faiss
from bspml.shapes import Bool, Float, Int, Tensor
from bspml.statistics.contrastive import ContrastiveStatistics
from bspml.statistics.copies.copy_groups import copy_groups
from bspml.statistics.copies.distinct import Distinct, largest_counts
from bspml.statistics.copies.duplicates import OUTER, find_duplicates
from bspml.statistics.copies.nearest import LISTS, nearest_of_all
from bspml.statistics.noise_rate import all_in_one_place
from bspml.tensors.checks import Labels
from bspml.tensors.copies import content_order, first_equal
from bspml.tensors.unit_rows import grid_unit_rows, rows_to_judge
from bspml.trainers.curriculum.search import NEIGHBOURS_FROM
from bspml.weights.problem import by_first_appearance
from bspml.weights.state import SampleWeights


def find_copies(
    embeddings: Float[Tensor, "N D"], codes: Int[Tensor, " N"]
) -> Int[Tensor, " N"] | None:
    """Return which samples are copies of each other, as an audit finds them; None if none are.

    Args:
        embeddings: (N, D) that were not trained on the labels.
        codes: (N,) classes.

    Returns:
        (N,) int64 group of each sample; most have one of their own.

    Example:
        >>> x = torch.randn(40, 8, generator=torch.Generator().manual_seed(0))
        >>> group = find_copies(torch.cat([x, x[:2]]), torch.arange(42) % 4)
        >>> group[40:].tolist()
        [0, 1]
    """
    rows = grid_unit_rows(embeddings.detach().cpu())
    if len(rows) < 2 or all_in_one_place(rows):  # equal rows are no copies there
        return None
    is_large = len(rows) >= NEIGHBOURS_FROM
    if is_large and find_faiss() is None:  # all pairs would take hours: exact copies alone
        first = np.where((rows != 0).any(1).numpy(), first_equal(rows), np.arange(len(rows)))
        group = np.unique(first, return_inverse=True)[1].reshape(-1)
        return torch.from_numpy(group) if group.max() + 1 < len(group) else None
    backend = LISTS if is_large else "auto"
    near = nearest_of_all(rows, min(OUTER, len(rows) - 1), backend, across_ranks=True)
    pairs = find_duplicates(rows, codes.numpy(), backend=backend, near=near)
    return torch.from_numpy(copy_groups(pairs, len(rows))) if len(pairs) else None


@dataclass(frozen=True)
class Samples:
    """M samples that are judged or referred to, of N in all.

    Attributes:
        embeddings: (M, D).
        codes: (M,) classes.
        reference: (M,) float64 weights of the references.
        judged: (M,) bool.
        once: which of the N they are and stand for; None: all, as they are.
        kept: (M,) int64 places among the distinct ones, those without placeholders; None: all N as
            they come.
        classes: (C,) int64 the weights' code of each class here; None: the same.
    """

    embeddings: Tensor
    codes: Tensor
    reference: Tensor
    judged: Tensor
    once: Distinct | None = None
    kept: np.ndarray | None = None
    classes: Tensor | None = None

    def without_copies(
        self, group: Int[Tensor, " N"] | None, weights: SampleWeights | None = None
    ) -> Samples:
        """Return one sample of each group and label, without placeholders.

        Args:
            group: (N,) int64, see `find_copies`.
            weights: of all N, of which some are decided: a word on one copy is one on all under
                its label.

        Raises:
            InputError: copies leave fewer than two classes a sample to judge by.
        """
        if group is None:
            return self
        groups, codes = group.numpy(), self.codes.numpy()
        once = Distinct.of_groups(groups, codes)
        reference = self.reference[once.first]
        if weights is not None:
            fixed = weights.fixed.cpu()
            said, words = _words_on_copies(once, fixed, weights.weights.cpu().double())
            wrong = (said & (words == 0)).numpy()[once.place]
            # These are as absent: no other label of their picture.  The rest is as it was.
            once = Distinct.of_groups(np.where(wrong, len(codes) + once.place, groups), codes)
            words = _words_on_copies(once, fixed, self.reference)[1]
            reference = torch.where(said, words, reference)
        kept = np.flatnonzero(~once.placeholder)
        rows = torch.from_numpy(once.first[kept])
        reference = reference[kept] * torch.from_numpy(once.vouching[kept])
        there = self.codes[self.reference > 0].unique()  # fewer: not for the copies
        if len(self.codes[rows][reference > 0].unique()) < 2 <= len(there):
            raise InputError(
                "without copies under several labels, which vouch for none of these, fewer than "
                "two classes have a sample left to judge by. Decide the copies first: see "
                "`bspml.audit(embeddings, labels).groups`."
            )
        embeddings = self.embeddings[rows.to(self.embeddings.device)]
        return Samples(embeddings, self.codes[rows], reference, self.judged[rows], once, kept)

    def in_content_order(self, weights: SampleWeights) -> Samples:
        """Return them as an audit takes them: sums are rounded alike in any order of the rows.

        Those that a person decided to be wrong come last, and so number no class.  Of several
        processes, each of which may have rounded its rows otherwise, the first decides.

        Args:
            weights: of all N.
        """
        rows = rows_to_judge(self.embeddings)
        order = from_main(lambda: content_order(rows, self.codes.numpy()))
        order = order[np.argsort(self.decided_wrong(weights).numpy()[order], kind="stable")]
        given = self.codes.numpy()[order]
        codes = by_first_appearance(given)
        return Samples(
            rows[order].to(self.embeddings.device),
            torch.from_numpy(codes),
            self.reference[order],
            self.judged[order],
            self.once,
            order if self.kept is None else self.kept[order],
            torch.from_numpy(given[np.unique(codes, return_index=True)[1]]),
        )

    @property
    def telling(self) -> Bool[Tensor, " M"]:
        """Those that tell what labels are like: no copies under several labels."""
        if self.once is None:
            return torch.ones(len(self.codes), dtype=torch.bool)
        return torch.from_numpy(self.once.vouching[self.kept])

    def told(
        self, stats: ContrastiveStatistics, undecided: Bool[Tensor, " N"] | None
    ) -> ContrastiveStatistics:
        """Return the statistics of those that tell the rate.

        Args:
            stats: of these samples.
            undecided: of all N; all if None.
        """
        tells = self.telling & self.among(undecided)
        if bool(tells.all()):
            return stats
        exact = stats.exact_part
        testable = exact.testable & tells
        return replace(exact, testable=testable, own_bin=exact.own_bin.where(testable, -1))

    def apart(self, weights: SampleWeights) -> tuple[float, float]:
        """Return the share of the N labels that tell no rate, and of those of them that are wrong.

        Copies have others, of which one at most is right, or a person decided.

        Args:
            weights: of all N.
        """
        fixed, words = self._words(weights)
        decided, dropped = fixed.numpy(), (fixed & (words == 0)).numpy()
        if self.once is None:
            return float(decided.mean()), float(dropped.mean())
        groups, times = self.once.group[self.once.first], np.bincount(self.once.place)
        aside = times[(self.once.num_labels > 1) | decided].sum()
        by_copies = np.bincount(groups, times) - largest_counts(groups, times)
        wrong = np.maximum(by_copies, np.bincount(groups, times * dropped)).sum()
        return float(aside / times.sum()), float(wrong / times.sum())

    def decided_first(self, suspicion: Float[Tensor, " M"], weights: SampleWeights) -> Tensor:
        """Return suspicion with what a person decided at the two ends, whatever speaks against it.

        So of a picture's labels the one decided to be right outdoes others.  A word on one copy is
        one on all under its label.

        Args:
            suspicion: (M,) what ranks labels, large for those to leave out.
            weights: of all N.
        """
        fixed, values = self._decided(weights)
        ends = torch.where(values > 0, -torch.inf, torch.inf).to(suspicion)
        return torch.where(fixed, ends, suspicion)

    def as_decided(self, values: Float[Tensor, " M"], weights: SampleWeights) -> Tensor:
        """Return weights of these, with the word of a person in the place of what it is about.

        Args:
            values: (M,) float64.
            weights: of all N.
        """
        fixed, words = self._decided(weights)
        return torch.where(fixed, words, values)

    def decided_wrong(self, weights: SampleWeights) -> Bool[Tensor, " M"]:
        """Say which labels a person decided to be wrong: these are as absent, and not judged.

        Args:
            weights: of all N.
        """
        fixed, words = self._decided(weights)
        return fixed & (words == 0)

    def decided(self, weights: SampleWeights) -> Bool[Tensor, " N"]:
        """Say what a person decided, of copies under one label by a word on any of them.

        Args:
            weights: of all N.
        """
        return self._words(weights)[0][... if self.once is None else self.once.place]

    def _words(self, weights: SampleWeights) -> tuple[Tensor, Tensor]:
        """Of all, or of all that are distinct: which are decided, and their weights."""
        said = weights.fixed.cpu(), weights.weights.cpu().double()
        return said if self.once is None else _words_on_copies(self.once, *said)

    def _decided(self, weights: SampleWeights) -> tuple[Tensor, Tensor]:
        fixed, values = self._words(weights)
        return (fixed, values) if self.kept is None else (fixed[self.kept], values[self.kept])

    def taken(self, values: Tensor) -> Tensor:
        """Return what is known of all N for these; of copies, what is known of the first.

        Args:
            values: (N,).
        """
        if self.kept is None:
            return values.clone()
        return values[self.kept if self.once is None else self.once.first[self.kept]]

    def among(self, some: Bool[Tensor, " N"] | None) -> Bool[Tensor, " M"]:
        """Return which of these are among some of all N.

        Args:
            some: (N,) bool, the same of all copies; all if None.
        """
        return torch.ones_like(self.judged) if some is None else self.taken(some)

    def labels(self, weights: SampleWeights) -> Labels:
        """Return the labels of these, and the names of their classes.

        Args:
            weights: of all N.
        """
        named = weights.classes if self.classes is None else weights.classes[self.classes.numpy()]
        return Labels(self.codes, named)

    def codes_of_weights(self, codes: Int[Tensor, " M"]) -> Int[Tensor, " M"]:
        """Return the codes that the weights have for classes here.

        Args:
            codes: (M,) of classes.
        """
        return codes if self.classes is None else self.classes[codes]

    def gone(self, weights: SampleWeights, testable: Bool[Tensor, " M"]) -> int:
        """Count the judged labels of classes that are left out as a whole.

        They stay out, and are not left out a second time.

        Args:
            weights: of all N.
            testable: (M,) bool, whose class has another reference.
        """
        out = self.taken(((weights.weights == 0) & ~weights.fixed).cpu())
        return int((self.judged & ~testable & out).sum())

    def outdone(self, suspicion: Float[Tensor, " M"], judged: Tensor) -> Bool[Tensor, " M"]:
        """Return the labels of a picture that another one of it fits better.

        Args:
            suspicion: (M,) what ranks labels, large for those to leave out.
            judged: (M,) bool, those that are ranked.
        """
        outdone = torch.zeros(len(self.codes), dtype=torch.bool)
        if self.once is not None:
            places = np.flatnonzero(judged.numpy())
            group = self.once.group[self.once.first[self.kept]][places]
            order = np.lexsort((suspicion[judged].numpy(), group))
            outdone[places[order][1:][np.diff(group[order]) == 0]] = True
        return outdone

    def spread(self, values: Tensor, of_placeholders: float | None = None) -> Tensor:
        """Return (N,) what is known of the M for all their copies.

        Args:
            values: (M,).
            of_placeholders: their value; None for weights: 0 where most of its copies have another
                label, else 1.
        """
        if self.kept is None:
            return values
        if self.once is None:
            return torch.empty_like(values).scatter(0, torch.from_numpy(self.kept), values)
        fill = torch.from_numpy(np.where(self.once.wrong_share > 0.5, 0.0, 1.0))
        if of_placeholders is not None:
            fill = torch.full_like(fill, of_placeholders)
        every = fill.to(values.dtype)
        every[self.kept] = values
        return every[self.once.place]


def _words_on_copies(
    once: Distinct, fixed: Bool[Tensor, " N"], values: Float[Tensor, " N"]
) -> tuple[Tensor, Tensor]:
    """Which of the distinct samples a person decided on, by any copy, and the largest value so."""
    place = torch.from_numpy(once.place)
    words = torch.zeros(len(once.first), dtype=values.dtype)
    words = words.scatter_reduce(0, place[fixed], values[fixed], "amax")
    return torch.bincount(place[fixed], minlength=len(words)) > 0, words
