"""Sample weights for the `Trainer` of transformers, with any model that returns embeddings.

Three lines beside a training of its own:

    from bspml.integrations.huggingface import CurriculumCallback
    ...
    trainer.add_callback(CurriculumCallback(trainer))
    trainer.train()

`docs/examples/huggingface_trainer.py` is a whole one.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from bspml.data.sampler import PKSampler
from bspml.errors import InputError
from bspml.integrations.announced_batch import kept_rows_of_batch, under, weighted_value
from bspml.integrations.transformers_trainer import LABELS, TrainerCurriculum, transformers
from bspml.shapes import Bool
from bspml.tensors.arguments import check_kind
from bspml.trainers.curriculum import FixedCurriculum, SelfPacedCurriculum

_EMBEDDINGS = ("embeddings", "sentence_embedding")  # of a model's outputs


class CurriculumCallback(TrainerCurriculum):
    """Train a Trainer of transformers on the labels that a curriculum believes.

    Add it before `trainer.train()`.  The trainer's `compute_loss_func` is called on the outputs and
    labels of weight 1 only (`num_items_in_batch` counts all), and refuses weights between 0 and 1;
    its batches come from a PKSampler; after each epoch all samples are embedded, the weights
    updated, and the samples of weight 0 left out of the next one, which has as many steps as any
    other.  `maw`, `sdaw` and the noise rates stand in the trainer's log, everything a resumed
    training needs in its checkpoints.  `audit()` says which labels are wrong.

    A Trainer with a `compute_loss` of its own computes its loss as before, while
    `weights.batch_index` names the rows: let it use `bspml.Weighted(loss, weights)`.  It is refused
    where it looks no weights up and one of the batch is below 1.

    Args:
        trainer: a Trainer with `remove_unused_columns=False`, of a data set of dictionaries.
        curriculum: of the same rows; as `sampler` and the attributes, see `TrainerCurriculum`.
        sampler: of the same rows.
        loss: of pytorch-metric-learning and without parameters, in the place of
            `compute_loss_func`; it takes weights between 0 and 1.  Or one that has the weights of
            the curriculum already: `Weighted`, or a `bspml.CrossBatchMemory` around it.
        embeddings: the (B, D) embeddings in a model's outputs; by default the outputs themselves,
            or what they hold as `embeddings` or `sentence_embedding`.

    Raises:
        InputError: a trainer, loss, curriculum or sampler that does not fit.

    Example:
        >>> import bspml, torch
        >>> from pytorch_metric_learning.losses import TripletMarginLoss
        >>> from transformers import Trainer, TrainingArguments
        >>> class Embedder(torch.nn.Linear):
        ...     def forward(self, x):
        ...         return super().forward(x)
        >>> labels = [0, 0, 0, 0, 1, 1, 1, 1]
        >>> rows = [{"x": torch.randn(4), "labels": label} for label in labels]
        >>> trainer = Trainer(
        ...     Embedder(4, 2), TrainingArguments(remove_unused_columns=False), train_dataset=rows
        ... )
        >>> curriculum = bspml.SelfPacedCurriculum(bspml.SampleWeights(labels))
        >>> callback = CurriculumCallback(trainer, curriculum, loss=TripletMarginLoss())
        >>> trainer.add_callback(callback)
        >>> callback.embed().shape
        torch.Size([8, 2])
    """

    def __init__(
        self,
        trainer: Any,
        curriculum: SelfPacedCurriculum | FixedCurriculum | None = None,
        sampler: PKSampler | None = None,
        loss: nn.Module | None = None,
        embeddings: Callable[[Any], Tensor] | None = None,
    ) -> None:
        check_kind(trainer, "trainer", transformers.Trainer, "a Trainer of transformers")
        if hasattr(trainer, "collect_features"):
            raise InputError(
                f"the losses of a {type(trainer).__name__} call its model themselves. For a "
                "SentenceTransformerTrainer there is a callback of its own: "
                "bspml.integrations.sentence_transformers.CurriculumCallback."
            )
        own_loss = trainer.compute_loss_func
        computes = type(trainer).compute_loss is not transformers.Trainer.compute_loss
        if loss is None and own_loss is None and not computes:
            raise InputError(
                "the loss of this trainer is its model's, where no weight can enter. Pass a "
                "`compute_loss_func` to the Trainer, or a pytorch-metric-learning loss as `loss`."
            )
        if trainer.args.remove_unused_columns:
            raise InputError(
                "the trainer would drop the samples' index with the columns that its model does "
                "not know. Pass remove_unused_columns=False to its TrainingArguments."
            )
        if loss is not None and any(True for _ in loss.parameters()):
            raise InputError(
                f"{type(loss).__name__} has parameters, which this trainer would not train. Make "
                "it a part of the model, or take a loss without any."
            )
        super().__init__(trainer, curriculum, sampler)
        self.embeddings_of = _embeddings_of if embeddings is None else embeddings
        if loss is not None:
            self.loss = under(loss, self.weights)
            trainer.compute_loss_func = self._weighted_loss
        elif own_loss is not None:
            self._loss_func = own_loss
            trainer.compute_loss_func = self._loss_of_kept

    def _weighted_loss(self, outputs: Any, labels: Any, num_items_in_batch: Any = None) -> Any:
        check_kind(labels, "labels", Tensor, "a tensor in the batch that `data_collator` returns")
        assert self.loss is not None
        value = weighted_value(self.loss, self.weights, self.embeddings_of(outputs), labels)
        is_divided = getattr(self.trainer, "loss_is_scaled_for_ga", None) is False
        if self.weights.evaluating or is_divided:  # which accumulates nothing; by the trainer
            return value
        # The trainer takes what a function of its user's returns for divided already.
        return value / self.trainer.current_gradient_accumulation_steps

    def _loss_of_kept(self, outputs: Any, labels: Any, num_items_in_batch: Any = None) -> Any:
        check_kind(labels, "labels", Tensor, "a tensor in the batch that `data_collator` returns")
        keep = kept_rows_of_batch(self.weights, len(labels))
        if keep is not None:
            keep = keep.to(labels.device)
            if not bool(keep.any()):
                return self.embeddings_of(outputs)[:0].sum()
            outputs, labels = _kept(outputs, keep), labels[keep]
        return self._loss_func(outputs, labels, num_items_in_batch=num_items_in_batch)

    def embed_batch(self, model: nn.Module, inputs: dict[str, Any]) -> Tensor:
        """Return the (B, D) embeddings of a collated batch.

        Args:
            model: of the trainer, in eval mode.
            inputs: on the model's device, without the index.
        """
        signature, labels = inspect.signature(model.forward), {*LABELS, *self.trainer.label_names}
        takes = signature.parameters.values()
        names = {one.name for one in takes if one.default is one.empty or one.name not in labels}
        if any(one.kind is one.VAR_KEYWORD for one in takes):
            names |= {*inputs} - labels
        # The rest is for a `compute_loss` of its user's, which takes it out of the batch.
        given = {name: value for name, value in inputs.items() if name in names}
        try:
            signature.bind(**given)
        except TypeError as err:
            raise InputError(
                f"the model must be callable with the batch's columns {', '.join(inputs)} by name: "
                f"{err}. Name the columns of the data set as its `forward` does."
            ) from err
        return self.embeddings_of(model(**given))


def _embeddings_of(outputs: Any) -> Tensor:
    if isinstance(outputs, Tensor):
        return outputs
    if isinstance(outputs, Mapping):
        for name in _EMBEDDINGS:
            if name in outputs:
                return outputs[name]
    held = f" of {', '.join(outputs)}" if isinstance(outputs, Mapping) else ""
    raise InputError(
        f"the model must return (B, D) embeddings, or hold them as {' or '.join(_EMBEDDINGS)}; got "
        f"{type(outputs).__name__}{held}. Pass embeddings=lambda outputs: ... to the callback."
    )


def _kept(outputs: Any, keep: Bool[Tensor, " B"]) -> Any:
    """Return the kept rows of whatever has one entry per row of the batch."""
    if isinstance(outputs, Tensor):
        return outputs[keep] if outputs.ndim and len(outputs) == len(keep) else outputs
    if isinstance(outputs, Mapping):
        kind: Any = type(outputs)
        return kind({name: _kept(value, keep) for name, value in outputs.items()})
    if isinstance(outputs, list | tuple):
        values = [_kept(value, keep) for value in outputs]
        return type(outputs)(*values) if hasattr(outputs, "_fields") else tuple(values)
    if hasattr(outputs, "__dict__") and not callable(outputs):  # such as a dataclass
        outputs = copy.copy(outputs)
        vars(outputs).update(_kept(vars(outputs), keep))
    return outputs
