"""Test samples that training saw, or saw nearly: which, and the metrics without the former."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from bspml.data.retrieval import RetrievalSplit
from bspml.data.split_copies import SplitCopies
from bspml.errors import InputError
from bspml.evaluation.retrieval import RetrievalMetrics, evaluate
from bspml.statistics.copies.duplicates import find_duplicates
from bspml.tensors.unit_rows import grid_unit_rows
from bspml.words import counted

NEAR_UP_TO = 20_000  # samples; of more, the search for near copies would take minutes


@dataclass(frozen=True)
class Seen:
    """Which samples to search for, and in, are copies of training samples.

    Attributes:
        test: (M,) bool.
        gallery: (G,) bool, or None without a gallery.
        sentences: that name the copies.
    """

    test: np.ndarray
    gallery: np.ndarray | None = None
    sentences: tuple[str, ...] = ()

    @classmethod
    def of(cls, copies: Sequence[SplitCopies], tested: int, searched: int | None) -> Seen:
        """Read them off what `bspml.data.split_copies.split_copies` found.

        Args:
            copies: its findings.
            tested: M.
            searched: G, or None without a gallery.
        """
        masks = {"test": np.zeros(tested, bool), "gallery": np.zeros(searched or 0, bool)}
        seen = [each for each in copies if each.source == "train" and each.split != "train"]
        for found in seen:
            masks["gallery" if found.split == "gallery" else "test"][found.rows] = True
        sentences = tuple(found.sentence for found in seen)
        return cls(masks["test"], None if searched is None else masks["gallery"], sentences)

    def __len__(self) -> int:
        return int(self.test.sum()) + (0 if self.gallery is None else int(self.gallery.sum()))

    def without(self, found: RetrievalMetrics, embeddings: Any, labels: Any, **given: Any) -> str:
        """Say what the metrics are without the samples that training saw; "" where it saw none.

        Args:
            found: the metrics with them; of its Recall@K the smallest K is told.
            embeddings: (M, D).
            labels: (M,).
            **given: of `bspml.evaluate`, as `found` was measured: gallery, gallery_labels, ignore.
        """
        ignored = [*given.pop("ignore", ())]  # by then no row may have one of them
        counting = ~np.isin(labels, ignored)
        kept, count = torch.from_numpy(counting & ~self.test), int((counting & self.test).sum())
        if self.gallery is not None:
            counting = ~np.isin(given["gallery_labels"], ignored)
            count += int((counting & self.gallery).sum())
            searched = torch.from_numpy(counting & ~self.gallery)
            rows = torch.as_tensor(given["gallery"])
            given["gallery"] = rows[searched.to(rows.device)]
            given["gallery_labels"] = np.asarray(given["gallery_labels"])[searched.numpy()]
        if not count:
            return ""
        k = min(found.recall_at_k)
        what = f"without the {counted(count, 'sample')} that training saw"
        try:
            rows, names = torch.as_tensor(embeddings), np.asarray(labels)[kept.numpy()]
            rest = evaluate(rows[kept.to(rows.device)], names, ks=(k,), clustering=False, **given)
        except InputError:  # nobody is left to search for, or fewer than K to search in
            return f"{what} too little is left to evaluate Recall@{k}"
        with_them = f"with them {100 * found.recall_at_k[k]:.2f} %"
        return (
            f"{what}: Recall@{k} {100 * rest.recall_at_k[k]:.2f} % ({with_them}), "
            f"MAP@R {100 * rest.map_at_r:.2f} % ({100 * found.map_at_r:.2f} %)"
        )


def near_copies(
    splits: Sequence[RetrievalSplit], known: Sequence[SplitCopies]
) -> tuple[SplitCopies, ...]:
    """Find the samples that are near copies of training samples by features: saved again, scaled.

    Args:
        splits: train first, then those that are searched for, or in.
        known: the exact copies, which are not found again.

    Returns:
        A finding for each split that has some; none without features of every split, or of too many
        samples.

    Example:
        >>> x, names = torch.randn(40, 8, generator=torch.Generator().manual_seed(0)), np.arange(40)
        >>> train = RetrievalSplit("train", (names[:20] // 5).astype(str), features=x[:20])
        >>> again = torch.cat([x[:1] + 0.001, x[20:]])
        >>> test = RetrievalSplit("test", (names[19:] // 5).astype(str), features=again)
        >>> [found.rows.tolist() for found in near_copies((train, test), ())]
        [[0]]
    """
    features = [split.features for split in splits if split.features is not None]
    if len(features) < len(splits) or sum(map(len, features)) > NEAR_UP_TO:
        return ()
    rows = grid_unit_rows(torch.cat([part.float() for part in features]))
    labels = np.concatenate([split.labels for split in splits])
    pairs = find_duplicates(rows, np.unique(labels, return_inverse=True)[1].reshape(-1))
    pairs = pairs[pairs["first"] < len(splits[0])]  # equal features may be of unequal files
    found, start = [], len(splits[0])
    for split in splits[1:]:
        same = [c.rows for c in known if (c.split, c.source) == (split.name, splits[0].name)]
        inside = pairs["second"].between(start, start + len(split) - 1)
        own = pairs[inside].drop_duplicates("second").sort_values("second")
        own = own[~np.isin(own["second"] - start, np.concatenate([*same, []]))]
        numbers = own["second"].to_numpy() - start, own["first"].to_numpy()
        if len(own):
            found.append(SplitCopies.of(split, splits[0], *numbers, near=True))
        start += len(split)
    return tuple(found)
