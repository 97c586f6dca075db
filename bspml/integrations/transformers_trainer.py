"""What the callbacks of Hugging Face's trainers share.

    rows with their index -> PKSampler's batches -> collator -> a batch that has its index
        -> announced to the sample weights -> the trainer's own loss, which looks them up

and after each epoch: embed all samples, update the curriculum, choose the rows of the next epoch,
which has as many steps as every other.  The state lies in the trainer's checkpoints.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from bspml.auditing import AuditReport, audit
from bspml.data.dataset_labels import column_of, labels_of
from bspml.data.drawn_rows import SAMPLES_PER_CLASS, classes_per_batch
from bspml.data.sampler import PKSampler
from bspml.errors import InputError, import_optional
from bspml.files import checkpoints
from bspml.files.columns import TEXT_COLUMNS
from bspml.integrations.batches import check_same_labels
from bspml.tensors.arguments import check_kind
from bspml.tensors.checks import check_whole
from bspml.tensors.modes import in_eval_mode
from bspml.tensors.row_checks import embedded_rows
from bspml.trainers.curriculum import CurriculumRecord, FixedCurriculum, SelfPacedCurriculum
from bspml.trainers.ignored_weights import refuse_ignored
from bspml.trainers.made_parts import make_curriculum
from bspml.trainers.rows import choose_rows
from bspml.trainers.state import faults_named

_NEEDS = (
    "the callbacks of Hugging Face's trainers need transformers: "
    "`pip install 'bspml[huggingface]'`, or 'bspml[sentence-transformers]' for its trainer."
)
transformers: Any = import_optional("transformers", _NEEDS)

INDEX = "bspml_row"  # of a batch; a column `sample_index` is its user's
FILE = "bspml.pt"  # in a checkpoint's folder
LABELS = ("labels", "label")  # of a batch


class IndexedRows(Dataset):
    """A data set of dictionaries whose items say which row they are, under `INDEX`.

    Args:
        dataset: sized and indexable, returning dictionaries.
    """

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return self.__getitems__([row])[0]

    def __getitems__(self, rows: list[int]) -> list[dict[str, Any]]:
        """Return the items of a batch, read together where the data set can."""
        together = getattr(self.dataset, "__getitems__", None)
        items = [self.dataset[row] for row in rows] if together is None else together(rows)
        for item in items:
            check_kind(item, "trainer.train_dataset[row]", Mapping, "a dictionary of named columns")
        return [{**item, INDEX: row} for item, row in zip(items, rows, strict=True)]


class TrainerCurriculum(transformers.TrainerCallback):
    """Give a Hugging Face trainer sample weights, by PK batches and a curriculum after each epoch.

    The trainer's own loader, loss and `train` are wrapped, once, when this is made.  Every epoch
    has the same number of steps, as many full batches as all usable rows fill, though the rows of
    weight 0 are left out.

    Args:
        trainer: whose `train_dataset` has a length and dictionaries as items.
        curriculum: of the same rows; by default `SelfPacedCurriculum(SampleWeights(labels))` with
            the label column of the data set.
        sampler: of the same rows, with a fixed `batches_per_epoch`; by default four samples of each
            class in batches of at most `per_device_train_batch_size`.

    Attributes:
        weights: the `SampleWeights`.
        records: the `CurriculumRecord` of each update of this process.

    Raises:
        InputError: a trainer, curriculum or sampler that does not fit.
    """

    def __init__(
        self,
        trainer: Any,
        curriculum: SelfPacedCurriculum | FixedCurriculum | None = None,
        sampler: PKSampler | None = None,
    ) -> None:
        if isinstance(getattr(trainer.train, "__self__", None), TrainerCurriculum):
            raise InputError(
                "`trainer` has a CurriculumCallback already, and two would judge each epoch twice. "
                "Add that one, or make a new trainer."
            )
        if trainer.args.auto_find_batch_size:
            raise InputError(
                "`auto_find_batch_size` halves batches that do not fit, which those of a PKSampler "
                "do not follow. Leave it False, and lower per_device_train_batch_size."
            )
        self.trainer = trainer
        self.rows = IndexedRows(_check_dataset(trainer.train_dataset))
        self.curriculum = make_curriculum(curriculum, self._given_labels)
        self.weights = self.curriculum.weights
        if self.curriculum.may_reset:
            raise InputError(
                '`curriculum` wants a fresh network after its warm-up (warmup="cross-fit"), which '
                'the trainer cannot give. Use warmup="features": the model is pretrained.'
            )
        check_kind(sampler, "sampler", (PKSampler, NoneType), "a PKSampler or None")
        if sampler is None:
            _check_order(trainer)
        self.sampler = self._default_sampler() if sampler is None else sampler
        of_sampler = self.sampler.drawn_from()["num_samples"]
        for name, rows in (("curriculum", len(self.weights)), ("sampler", of_sampler)):
            if rows != len(self.rows):
                raise InputError(
                    f"`{name}` must be of the {len(self.rows)} rows of `trainer.train_dataset`; "
                    f"got one of {rows}. Make both of the same data set."
                )
        if self.sampler.drawn_from()["batches_per_epoch"] is None:
            raise InputError(
                "`sampler` must have as many batches in each epoch, for the trainer counts its "
                f"steps ahead. Make it with batches_per_epoch={len(self.sampler)}."
            )
        check_same_labels(self.rows.dataset, self.weights, "trainer.train_dataset")
        self.records: list[CurriculumRecord] = []
        self.loss: nn.Module | None = None  # whose own state is saved, too
        self._updated_at, self._announced = 0, False
        self._checkpoint: str | None = None
        self._own_train, self._own_loss = trainer.train, trainer.compute_loss
        trainer.train = self._train
        trainer.compute_loss = self._compute_loss
        trainer.get_train_dataloader = self._train_loader

    def embed_batch(self, model: nn.Module, inputs: dict[str, Any]) -> Tensor:
        """Return the (B, D) embeddings of a collated batch.

        Args:
            model: of the trainer, in eval mode.
            inputs: on the model's device, without the index.
        """
        raise NotImplementedError

    # -- data ------------------------------------------------------------------------------------

    def _given_labels(self) -> Any:
        remedy = "Pass curriculum=SelfPacedCurriculum(SampleWeights(labels))."
        return labels_of(self.rows.dataset, "trainer.train_dataset", remedy)

    def texts(self) -> list[str] | None:
        """Return the (N,) texts of the data set, its only ones or by a known name, or None."""
        columns = getattr(self.rows.dataset, "column_names", None) or ()
        kinds = getattr(self.rows.dataset, "features", None) or {}
        texts = [name for name, kind in kinds.items() if getattr(kind, "dtype", "") == "string"]
        only = texts[0] if len(texts) == 1 and texts[0] not in LABELS else None
        name = next((name for name in TEXT_COLUMNS if name in columns), only)
        return None if name is None else [str(text) for text in column_of(self.rows.dataset, name)]

    def _default_sampler(self) -> PKSampler:
        args, codes = self.trainer.args, self.weights.codes.cpu()
        size = classes_per_batch(codes, args.train_batch_size, "per_device_train_batch_size")
        once = PKSampler(codes, size, SAMPLES_PER_CLASS)
        seed = args.seed if args.data_seed is None else args.data_seed
        return PKSampler(codes, size, SAMPLES_PER_CLASS, len(once), seed=int(seed))

    def _loader(self, **options: Any) -> DataLoader:
        args = self.trainer.args
        return DataLoader(
            self.rows,
            collate_fn=partial(_collated, self.trainer.data_collator),
            num_workers=args.dataloader_num_workers,
            prefetch_factor=args.dataloader_prefetch_factor,
            **options,
        )

    def _train_loader(self) -> Any:
        args, stay = self.trainer.args, self.trainer.args.dataloader_persistent_workers
        loader = self._loader(
            batch_sampler=self.sampler,
            pin_memory=args.dataloader_pin_memory,
            persistent_workers=stay,
            # Such a loader draws a seed in its first epoch only, a resumed one in a later one.
            generator=torch.Generator().manual_seed(args.seed) if stay else None,
        )
        return self.trainer.accelerator.prepare(loader)

    # -- steps -----------------------------------------------------------------------------------

    def _compute_loss(self, model: nn.Module, inputs: dict[str, Any], *args: Any, **kw: Any) -> Any:
        """Announce the batch, put repaired labels in place, and let the trainer go on."""
        index = inputs.pop(INDEX, None)  # an evaluation's batches have none
        self.weights.batch_index, self.weights.evaluating = None, index is None
        if index is not None:
            self.weights.set_batch(index)
            self._announced = True
            # Others of the `label_names` may be anything.
            key = next((k for k in (*LABELS, *self.trainer.label_names) if k in inputs), None)
            if key is not None:
                self.weights.check_items(inputs[key], index, wait=False)
                inputs[key] = self.weights.relabelled(inputs[key], index)
        if self.loss is not None and "num_items_in_batch" in kw:
            kw["num_items_in_batch"] = None  # else the trainer multiplies a mean by its processes
        is_evaluation = index is None and not model.training
        parts = [*vars(self.trainer).values(), *vars(self).values()] if is_evaluation else []
        try:
            with in_eval_mode(*(part for part in parts if isinstance(part, nn.Module))):
                loss = self._own_loss(model, inputs, *args, **kw)
            if self.loss is not None and index is not None and not self.weights.looked_up:
                raise InputError(
                    f"{type(self.trainer).__name__}.compute_loss does not call the loss that the "
                    "CurriculumCallback put into the trainer. Call super().compute_loss in it."
                )
            refuse_ignored(self.weights, [model])
            return loss
        finally:
            self.weights.batch_index, self.weights.evaluating = None, False

    @torch.no_grad()
    def embed(self) -> Tensor:
        """Return the (N, D) embeddings of the training set by the model as it is, eval mode."""
        model, args = self.trainer.model, self.trainer.args
        with in_eval_mode(model):
            # A generator of its own: opening a loader draws from torch's.
            loader = self._loader(batch_size=args.eval_batch_size, generator=torch.Generator())
            batches = []
            for inputs in loader:
                index = inputs.pop(INDEX)
                found = self.embed_batch(model, self.trainer._prepare_inputs(inputs))
                batches.append(embedded_rows(found, len(index)))
        return torch.cat(batches)

    def audit(self, **options: Any) -> AuditReport:
        """Judge the labels by the model as it is: honest before training, when it has seen none.

        Args:
            options: of `bspml.audit`.
        """
        return audit(self.embed(), self.weights.labels, **{"texts": self.texts(), **options})

    # -- events of the trainer -------------------------------------------------------------------

    def _train(self, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Remember where the trainer resumes from: it tells no callback."""
        added = self.trainer.callback_handler.callbacks.count(self)
        if added != 1 or self.trainer.train_dataset is not self.rows.dataset:
            was = "not added to it", "made for another `trainer.train_dataset`", "added to it twice"
            raise InputError(
                f"the trainer's CurriculumCallback was {was[min(added, 2)]}. Set that first, make "
                "the callback, then call trainer.add_callback(callback) once."
            )
        checkpoint = resume_from_checkpoint
        if checkpoint is True:
            find = import_optional("transformers.trainer_utils", _NEEDS).get_last_checkpoint
            checkpoint = find(self.trainer.args.output_dir)
        self._checkpoint = checkpoint or None
        return self._own_train(resume_from_checkpoint, *args, **kwargs)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Load what was saved, or update once before the first step where that is wanted."""
        if not self.trainer.is_in_train:
            raise InputError(
                "this CurriculumCallback was made for another trainer, whose batches it weighs. "
                "Make one for this trainer: CurriculumCallback(trainer)."
            )
        self._steps = math.ceil(len(kwargs["train_dataloader"]) / args.gradient_accumulation_steps)
        owed = self.curriculum.starts_with_update
        if self._checkpoint is None:
            self._updated_at = 0
        else:
            self.load_state_dict(checkpoints.load(Path(self._checkpoint) / FILE))
            # Saved at the last step of an epoch, before its update.
            owed = state.global_step % self._steps == 0 and self._updated_at < state.global_step
        if owed:
            self._update(state)
        elif self._checkpoint is None:
            self._choose_rows()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Refuse a step none of whose batches came with its rows: nobody weighed it."""
        if not self._announced:
            raise InputError(
                f"no batch of a step reached {type(self.trainer).__name__}.compute_loss with its "
                f"rows, {INDEX!r}. Leave them in the batch where you prepare it, and call "
                "self.compute_loss in a `training_step` of your own."
            )
        self._announced = False

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Update the curriculum; where the training stops within an epoch, there is no round."""
        if state.global_step % self._steps == 0 or not control.should_training_stop:
            self._update(state)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Save weights, curriculum and rows into the checkpoint that was just written."""
        if args.should_save:
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            checkpoints.save(folder / FILE, self.state_dict())

    def _update(self, state: Any) -> None:
        needed = self.curriculum.needs_embeddings
        record = self.curriculum.update(self.embed() if needed else None)
        self._updated_at = int(state.global_step)
        self.records.append(record)
        self._choose_rows()
        control = self.trainer.control
        wanted = control.should_log  # by the trainer for its own figures; logging ours resets it
        self.trainer.log(record.figures())
        control.should_log = wanted

    def _choose_rows(self) -> None:
        for note in choose_rows(self.sampler, self.curriculum):
            warnings.warn(note, stacklevel=2)

    # -- state -----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return weights, curriculum, rows, and what the losses learned."""
        return {
            "weights": self.weights.state_dict(),
            "curriculum": self.curriculum.state_dict(),
            "sampler": self.sampler.state_dict(position=0),  # the trainer skips what is done
            "updated_at": self._updated_at,
            "loss": None if self.loss is None else self.loss.state_dict(),
            "losses": {name: loss.state_dict() for name, loss in self._own_losses().items()},
        }

    def _own_losses(self) -> dict[str, nn.Module]:
        """Attributes of the trainer that look the weights up: of its user's own `compute_loss`."""
        found = {n: p for n, p in vars(self.trainer).items() if isinstance(p, nn.Module)}
        held = {name: {*part.modules()} for name, part in found.items()}
        ours = (name for name in found if self.weights in held[name])
        return {name: found[name] for name in ours if self.trainer.model not in held[name]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned.

        Raises:
            CheckpointError: it is of other labels or rows, or of another curriculum.
        """
        with faults_named():
            self.sampler.load_state_dict(state["sampler"])
            self.weights.load_state_dict(state["weights"])
            self.curriculum.load_state_dict(state["curriculum"])
            self._updated_at = check_whole(state["updated_at"], "updated_at", low=0)
            if self.loss is not None and state["loss"] is not None:  # not everywhere kept once
                self.loss.load_state_dict(state["loss"])
            own = self._own_losses()
            for name, saved in state.get("losses", {}).items():
                own[name].load_state_dict(saved)


def _collated(collator: Any, items: list[dict[str, Any]]) -> dict[str, Any]:
    """Collate items without their index, which the collator does not know, and add it again."""
    index = torch.tensor([item.pop(INDEX) for item in items])
    return {**collator(items), INDEX: index}


_DRAWS_FROM_ALL = ("transformers", "sentence_transformers", "builtins")


def _check_order(trainer: Any) -> None:
    """Refuse to draw from all rows in the place of what may draw from some."""
    for name in ("get_train_dataloader", "_get_train_sampler"):
        owner = next(kind for kind in type(trainer).__mro__ if name in vars(kind) or kind is object)
        if owner.__module__.split(".")[0] not in _DRAWS_FROM_ALL:
            raise InputError(
                f"`trainer` draws its rows by {owner.__name__}.{name}, which may leave some out, "
                "and the curriculum's batches come from all. Choose rows in `train_dataset`, or "
                "pass a `sampler`, a PKSampler, which draws in its place."
            )


def _check_dataset(dataset: Any) -> Any:
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")) or isinstance(
        dataset, dict
    ):
        raise InputError(
            "`trainer.train_dataset` must be one data set with a length and an index; got "
            f"{type(dataset).__name__}. A stream, or several sets, have no rows to weigh."
        )
    return dataset
