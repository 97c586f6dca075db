"""What a network is worth: its embeddings of classes it never saw, searched among each other."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from bspml.distributed import from_main
from bspml.evaluation.retrieval import RetrievalMetrics, evaluate
from bspml.experiment.config import Config
from bspml.experiment.data import ExperimentData, Inputs
from bspml.networks.embedding import embed_by_ranks


class Measuring:
    """Embed the images of an experiment with any network, and evaluate it.

    In a torch.distributed group every rank makes the same calls and gets the same numbers.

    Args:
        config: the experiment.
        data: its data.
        device: where the networks live.
    """

    def __init__(self, config: Config, data: ExperimentData, device: torch.device) -> None:
        self.config, self.data, self.device = config, data, device

    def embed(self, network: nn.Module, inputs: Any) -> Tensor:
        """Return the (N, D) embeddings of inputs, on the device where that is a CUDA device.

        Args:
            network: on the device.
            inputs: a tensor, or a data set.
        """
        size, workers = self.config.evaluation.batch_size, self.config.workers
        return embed_by_ranks(network, inputs, size, self.device, workers)

    def evaluate(self, network: nn.Module, last: bool = False) -> dict[str, Any]:
        """Measure the test classes and those held out; returns fields of an `EpochRecord`.

        Args:
            network: on the device.
            last: NMI and AMI where they are asked for, and what copies of training samples do.
                NMI and AMI in every evaluation where held-out classes choose among them.
        """
        settings, data = self.config.evaluation, self.data
        searched = None
        if data.gallery_images is not None:
            searched = self.embed(network, data.gallery_images)
        gallery = {"gallery": searched, "gallery_labels": data.gallery_labels}
        queries, labels = self.embed(network, data.test_images), data.test_labels
        counts = last or data.validation_images is not None
        options = {"clustering": counts and settings.clustering, "seed": self.config.seed}
        test = self._scores(queries, labels, settings.ks, **gallery, **options)
        ends = ("recall_at_1_low", "recall_at_1_high", "map_at_r_low", "map_at_r_high")
        names = ("map_at_r", "r_precision", "nmi", "ami", *ends)
        fields = {name: getattr(test, name) for name in names}
        fields["recall_at_k"] = test.recall_at_k
        fields["notes"] = ("all embeddings point the same way",) if test.collapsed else ()
        if last and data.seen is not None:
            seen = data.seen
            fields["notes"] += (from_main(lambda: seen.without(test, queries, labels, **gallery)),)
        if data.validation_images is not None:
            # Where `select_epochs` looks.
            fields["extra"] = {"validation": self._validate(network)}
        return fields

    def _validate(self, network: nn.Module) -> dict[str, float]:
        """Measure what selects the epoch: {metric: value} on the held-out classes."""
        labels = self.data.validation_labels
        assert labels is not None
        ks = [k for k in self.config.evaluation.ks if k < len(labels)] or [1]
        embeddings = self.embed(network, self.data.validation_images)
        metrics = self._scores(embeddings, labels, ks, clustering=False)
        recalls = {f"recall_at_{k}": value for k, value in metrics.recall_at_k.items()}
        return recalls | {"map_at_r": metrics.map_at_r, "r_precision": metrics.r_precision}

    def _scores(self, queries: Tensor, labels: Any, ks: Any, **options: Any) -> RetrievalMetrics:
        backend = self.config.evaluation.backend
        return from_main(lambda: evaluate(queries, labels, ks=ks, backend=backend, **options))


def rows_of(inputs: Any, rows: slice | Tensor) -> Inputs:
    """Return some rows of a tensor, or of a data set.

    Args:
        inputs: all of them.
        rows: which.
    """
    if isinstance(inputs, Tensor):
        return inputs[rows]
    numbers = range(rows.start, rows.stop) if isinstance(rows, slice) else rows.tolist()
    return torch.utils.data.Subset(inputs, numbers)
