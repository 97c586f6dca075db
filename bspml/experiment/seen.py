"""Test samples that training saw: how many, and the metrics without them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from bspml.data.split_copies import SplitCopies
from bspml.errors import InputError
from bspml.evaluation.retrieval import RetrievalMetrics, evaluate
from bspml.words import counted


@dataclass(frozen=True)
class Seen:
    """Which samples to search for, and in, are copies of training samples.

    Attributes:
        test: (M,) bool.
        gallery: (G,) bool, or None without a gallery.
    """

    test: np.ndarray
    gallery: np.ndarray | None = None

    @classmethod
    def of(cls, copies: Sequence[SplitCopies], tested: int, searched: int | None) -> Seen:
        """Read them off what `bspml.data.split_copies.split_copies` found.

        Args:
            copies: its findings.
            tested: M.
            searched: G, or None without a gallery.
        """
        masks = {"test": np.zeros(tested, bool), "gallery": np.zeros(searched or 0, bool)}
        for found in copies:
            if found.source == "train" and found.split != "train":
                masks["gallery" if found.split == "gallery" else "test"][found.rows] = True
        return cls(masks["test"], None if searched is None else masks["gallery"])

    def __len__(self) -> int:
        return int(self.test.sum()) + (0 if self.gallery is None else int(self.gallery.sum()))

    def without(self, found: RetrievalMetrics, embeddings: Any, labels: Any, **given: Any) -> str:
        """Say what the metrics are without the samples that training saw.

        Args:
            found: the metrics with them.
            embeddings: (M, D).
            labels: (M,).
            **given: of `bspml.evaluate`: gallery, gallery_labels and so on.
        """
        kept = torch.from_numpy(~self.test)
        if self.gallery is not None:
            searched = torch.from_numpy(~self.gallery)
            given["gallery"] = given["gallery"][searched.to(given["gallery"].device)]
            given["gallery_labels"] = np.asarray(given["gallery_labels"])[searched.numpy()]
        what = f"without the {counted(len(self), 'sample')} that training saw"
        try:
            rows, names = embeddings[kept.to(embeddings.device)], np.asarray(labels)[kept.numpy()]
            rest = evaluate(rows, names, ks=(1,), clustering=False, **given)
        except InputError:  # nobody is left to search for, or in
            return f"{what} nothing is left to evaluate"
        recall = found.recall_at_k.get(1, float("nan"))
        return (
            f"{what}: Recall@1 {100 * rest.recall_at_k[1]:.2f} % (with them {100 * recall:.2f} %), "
            f"MAP@R {100 * rest.map_at_r:.2f} % ({100 * found.map_at_r:.2f} %)"
        )
