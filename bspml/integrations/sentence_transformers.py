"""Sample weights for the losses and the trainer of sentence-transformers.

Three lines beside a training of its own:

    from bspml.integrations.sentence_transformers import CurriculumCallback
    ...
    trainer.add_callback(CurriculumCallback(trainer))
    trainer.train()

`docs/examples/sentence_transformers_triplets.py` is a whole one.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from pytorch_metric_learning.losses import MultipleLosses
from pytorch_metric_learning.utils.module_with_records import ModuleWithRecords
from torch import Tensor, nn

from bspml.data.sampler import PKSampler
from bspml.errors import InputError, import_optional
from bspml.integrations.announced_batch import kept_rows_of_batch, under, weighted_value
from bspml.integrations.transformers_trainer import TrainerCurriculum
from bspml.trainers.curriculum import FixedCurriculum, SelfPacedCurriculum
from bspml.weights.state import SampleWeights

library: Any = import_optional(
    "sentence_transformers",
    "this callback needs sentence-transformers: `pip install 'bspml[sentence-transformers]'`.",
)


# Of the library's losses those that make pairs and triplets of the classes in a batch.
_OF_CLASSES = (
    "BatchAllTripletLoss",
    "BatchHardTripletLoss",
    "BatchHardSoftMarginTripletLoss",
    "BatchSemiHardTripletLoss",
)


class WeightedLoss(nn.Module):
    """A loss of sentence-transformers, or of pytorch-metric-learning, under sample weights.

    For texts with the label of a class each: BatchAllTripletLoss and its kin.  Theirs are called
    on the rows of weight 1 of the announced batch (`SampleWeights.set_batch`), and refuse weights
    between 0 and 1; one of pytorch-metric-learning becomes `bspml.Weighted`.  Without an announced
    batch, as in an evaluation, every row weighs 1.

    Args:
        model: the SentenceTransformer that is trained.
        loss: a loss `(features, labels)` that calls the model itself, once; it is copied.  Or one
            of pytorch-metric-learning, called with embeddings and labels.
        weights: of the data set.

    Raises:
        InputError: a loss that holds no SentenceTransformer, or one that `Weighted` refuses.
    """

    def __init__(self, model: nn.Module, loss: nn.Module, weights: SampleWeights) -> None:
        super().__init__()
        self.model, self.weights = model, weights
        self._is_weighted = isinstance(loss, ModuleWithRecords | MultipleLosses)
        self.loss = under(loss, weights) if self._is_weighted else _of_embeddings(loss)

    def forward(self, sentence_features: Sequence[dict[str, Tensor]], labels: Tensor) -> Tensor:
        """Return the loss of a batch.

        Args:
            sentence_features: those of its one column of texts, as the collator makes them.
            labels: (B,) of classes.

        Raises:
            InputError: several columns of texts, or no labels.
        """
        features = list(sentence_features)
        if len(features) != 1 or labels is None:
            raise InputError(
                "a loss under sample weights takes one column of texts and the labels of their "
                f"classes; got {len(features)} columns{' and no labels' * (labels is None)}. "
                "Pairs and triplets come of the labels, in each batch."
            )
        embeddings = self.model(features[0])["sentence_embedding"]
        if self._is_weighted:
            return weighted_value(self.loss, self.weights, embeddings, labels)
        keep = kept_rows_of_batch(self.weights, len(embeddings))
        if keep is not None:
            if not bool(keep.any()):
                return embeddings[:0].sum()
            embeddings, labels = embeddings[keep], labels[keep.to(labels.device)]
        return self.loss([{"sentence_embedding": embeddings}], labels)


def _of_embeddings(loss: Any) -> nn.Module:
    """Return a copy of the loss that takes embeddings for features: its model hands them on."""
    parts = dict(loss.named_children()) if isinstance(loss, nn.Module) else {}
    holders = [
        name
        for name, part in parts.items()
        if any(isinstance(module, library.SentenceTransformer) for module in part.modules())
    ]
    models = [name for name in holders if isinstance(parts[name], library.SentenceTransformer)]
    kind = type(loss)
    is_of_pairs = kind.__module__.startswith("sentence_transformers.") and (
        kind.__name__ not in _OF_CLASSES
    )
    if len(models) != 1 or models != holders or is_of_pairs:
        raise InputError(
            f"`loss` must be one of classes around a model that it holds once: your own, or "
            f"{', '.join(_OF_CLASSES)}; or one of pytorch-metric-learning; got {kind.__name__}."
        )
    of_embeddings = copy.copy(loss)
    of_embeddings._modules = {**loss._modules, models[0]: nn.Identity()}
    return of_embeddings


class CurriculumCallback(TrainerCurriculum):
    """Train a SentenceTransformerTrainer on the labels that a curriculum believes.

    Add it before `trainer.train()`.  The trainer's loss becomes a `WeightedLoss`; its batches come
    from a PKSampler instead of `args.batch_sampler`; after each epoch all texts are embedded, the
    weights updated, and the texts of weight 0 left out of the next one, which has as many steps as
    any other.  `maw`, `sdaw` and the noise rates stand in the trainer's log, everything a resumed
    training needs in its checkpoints.  `audit()` says which labels are wrong.

    Every process of several embeds all texts.

    Args:
        trainer: a SentenceTransformerTrainer with one data set of texts and classes.
        curriculum: of the same rows; as `sampler` and the attributes, see `TrainerCurriculum`.
        sampler: of the same rows.
        loss: of pytorch-metric-learning, in the place of the trainer's own; it takes weights
            between 0 and 1, and what it learns is trained and saved, too.  Or one that has the
            weights of the curriculum already: `Weighted`, or a `bspml.CrossBatchMemory` around it.

    Raises:
        InputError: a trainer, loss, curriculum or sampler that does not fit.

    Example:
        >>> import bspml, tempfile
        >>> from datasets import Dataset
        >>> from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
        >>> from sentence_transformers.sentence_transformer.losses import BatchAllTripletLoss
        >>> from sentence_transformers.sentence_transformer.modules import StaticEmbedding
        >>> from tokenizers import Tokenizer, models, pre_tokenizers
        >>> words = {"bus": 0, "tram": 1, "rose": 2, "lily": 3, "red": 4, "[UNK]": 5}
        >>> tokenizer = Tokenizer(models.WordLevel(words, "[UNK]"))
        >>> tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        >>> model = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=4)])
        >>> texts = ["red bus", "bus", "tram", "red tram", "rose", "red rose", "lily", "red lily"]
        >>> rows = Dataset.from_dict({"text": texts, "label": [0, 0, 0, 0, 1, 1, 1, 1]})
        >>> trainer = SentenceTransformerTrainer(
        ...     model, train_dataset=rows, loss=BatchAllTripletLoss(model)
        ... )
        >>> trainer.add_callback(CurriculumCallback(trainer))
    """

    def __init__(
        self,
        trainer: Any,
        curriculum: SelfPacedCurriculum | FixedCurriculum | None = None,
        sampler: PKSampler | None = None,
        loss: nn.Module | None = None,
    ) -> None:
        if not isinstance(trainer, library.SentenceTransformerTrainer):
            raise InputError(
                "`trainer` must be a SentenceTransformerTrainer; got "
                f"{type(trainer).__name__}. For a Trainer of transformers there is "
                "bspml.integrations.huggingface; others of this library are not supported."
            )
        super().__init__(trainer, curriculum, sampler)
        weighted = WeightedLoss(trainer.model, trainer.loss if loss is None else loss, self.weights)
        trainer.loss, self.loss = weighted.to(trainer.model.device), weighted.loss

    def embed_batch(self, model: nn.Module, inputs: dict[str, Any]) -> Tensor:
        """Return the (B, D) sentence embeddings of a collated batch.

        Args:
            model: of the trainer, in eval mode.
            inputs: on the model's device, without the index.
        """
        features, _ = self.trainer.collect_features(inputs)
        return model(features[0])["sentence_embedding"]
