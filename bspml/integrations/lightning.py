"""Lightning: the curriculum as a callback.  The user's module and loop stay as they are.

    from bspml.integrations.lightning import CurriculumCallback
    curriculum = CurriculumCallback(loader)
    trainer = pl.Trainer(callbacks=[curriculum])
    trainer.fit(model, loader)

When what happens, in the order in which Lightning calls:

    setup             the ranks share the sampler's batches
    load_state_dict   of a checkpoint: weights, curriculum and place in the epoch
    on_fit_start      the update before the first step, and the rows of the first epoch
    on_train_start    the loader has been opened by now; generators as the checkpoint has them
    ..._epoch_start   a fresh network, where the last update asked for one
    ..._batch_start   the batch's rows are announced, and taken back at ..._batch_end
    ..._epoch_end     all samples are embedded, the weights updated, the next epoch's rows set
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import math
import sys
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from pytorch_metric_learning.losses import CrossBatchMemory
from torch import distributed

from bspml.auditing import AuditReport, audit
from bspml.distributed import announce_rows, is_main, rank, ranks
from bspml.distributed.loss_wrapper import computed_in_full
from bspml.distributed.rows import copy_of_main
from bspml.errors import InputError, import_optional
from bspml.files.checkpoints import generator_states
from bspml.integrations.batches import check_loader, put_in_place
from bspml.integrations.memory_places import MemoryPlaces
from bspml.integrations.module_embeddings import ModuleEmbedder
from bspml.integrations.other_callbacks import check_beside_reset, check_beside_table
from bspml.integrations.other_data import OtherData
from bspml.integrations.training_loader import TrainingLoader
from bspml.networks import embed_by_ranks
from bspml.shapes import Tensor
from bspml.tensors.arguments import check_flags
from bspml.tensors.checks import check_whole
from bspml.trainers import CurriculumRecord, FixedCurriculum, SelfPacedCurriculum
from bspml.trainers.ignored_weights import refuse_ignored
from bspml.trainers.made_parts import make_curriculum
from bspml.trainers.parts import TrainingParts
from bspml.trainers.rows import choose_rows
from bspml.trainers.state import faults_named
from bspml.weights.state import SampleWeights


def _callback() -> Any:
    """Return Lightning's `Callback`: that of the package in use, under the new name or the old."""
    names = ("lightning.pytorch", "pytorch_lightning")
    for name in sorted(names, key=lambda name: name not in sys.modules):
        with contextlib.suppress(ImportError):
            return importlib.import_module(name).Callback
    missing = "CurriculumCallback needs Lightning, which is not installed; "
    return import_optional(names[0], missing + "`pip install 'bspml[lightning]'`.").Callback


class CurriculumCallback(MemoryPlaces, OtherData, _callback()):  # type: ignore[misc]
    """Train a LightningModule on the labels that a curriculum believes, its loss included.

    Before the first epoch, where the curriculum starts so, and after each one all samples are
    embedded, by way of the loader's `collate_fn` and the module's hooks of batches as in a
    validation, and their weights updated; the next epoch draws from the rows that the curriculum
    keeps, under the labels that it believes.  A batch's rows are announced to the weights, so that
    `bspml.Weighted(loss, weights)` in the module finds them.  A loss that looks none up trains as
    it is while the weights of a batch are 1, as the default curriculum's are; else it is refused.
    Where the curriculum wants a fresh network, module, optimisers and schedulers go back to before
    the first step, at the next epoch's start.  `CurriculumRecord.figures` are logged.

    The loader: while `fit` runs, a plain one draws from all rows by a PKSampler, four samples of
    each class in batches of at most its `batch_size`; data set, `collate_fn`, workers and batches
    stay as they are.  One that draws from a `PKSampler` already stays, and its items say their row.

    Lightning's checkpoints hold all of this.  `fit(ckpt_path=)` goes on where the checkpoint was
    taken, inside an epoch or between two, bit for bit on a CPU; only random augmentation in worker
    processes differs, for the rest of an epoch that was cut; in persistent ones for good.

    Several processes (strategies "ddp...", which copy the network): with
    `Trainer(use_distributed_sampler=False)` each embeds its part of the sampler's batch, and
    `bspml.distributed.DistributedLossWrapper(loss)` in the module makes the loss that of the whole
    batch.  Steps are then those of one process to rounding, if batch normalisations are
    synchronised (`bspml.distributed.synchronize_batch_norm` in the module's `setup`) and nothing is
    drawn in the network.  From "ddp_fork" and "ddp_spawn" only the module comes back.

    Args:
        loader: the DataLoader that `fit` is given or the module's `train_dataloader` returns.
        curriculum: a `SelfPacedCurriculum` or `FixedCurriculum` of as many rows; None makes one of
            the labels.
        warmup: of one that is made: "cross-fit" for a network trained from scratch.
        labels: (N,) of the data set, where it has no column, `targets` or `labels` that say them.
        embed: maps a batch of inputs to (B, D), such as a part of the module; None: the module.
        data: what is embedded in place of the loader's data set, such as the same images without
            augmentation: a tensor (N, ...) or a data set, of inputs as `embed` takes them, in the
            same order: labels that it says are compared.
        keys: where input and label stand in an item and in a batch, by default first and second;
            and third, if items say it, as `bspml.IndexedDataset` has them, the row.

    Attributes:
        weights: the `SampleWeights`.
        records: the `CurriculumRecord` of each update of this process; `record`: the last, or None.
        batch_size: rows that are embedded at a time: 256, unless it is set.

    Raises:
        InputError: a loader, curriculum or labels that do not fit, each in a sentence.
        MissingDependencyError: on import, without Lightning.

    Example:
        Two classes on a line, two of forty labels wrong.

        >>> import torch
        >>> import lightning.pytorch as lightning
        >>> from pytorch_metric_learning.losses import ContrastiveLoss
        >>> points, labels = torch.linspace(-1, 1, 40)[:, None], [1, *[0] * 19, *[1] * 19, 0]
        >>> loader = torch.utils.data.DataLoader(list(zip(points, labels)), 8, shuffle=True)
        >>> class Line(lightning.LightningModule):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.net, self.loss = torch.nn.Linear(1, 2), ContrastiveLoss()
        ...     def forward(self, x):
        ...         return self.net(x)
        ...     def training_step(self, batch, batch_idx):
        ...         x, y = batch
        ...         return self.loss(self(x), y)
        ...     def configure_optimizers(self):
        ...         return torch.optim.Adam(self.parameters(), 0.01)
        >>> callback = CurriculumCallback(loader)
        >>> names = "logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"
        >>> silent = dict.fromkeys(names, False)
        >>> lightning.Trainer(max_epochs=2, callbacks=[callback], **silent).fit(Line(), loader)
        >>> len(callback.records), callback.weights[[0, 39]]
        (3, tensor([0., 0.]))
    """

    def __init__(
        self,
        loader: Any,
        curriculum: Any = None,
        *,
        warmup: str | None = None,
        labels: Any = None,
        embed: Callable[[Any], Tensor] | None = None,
        data: Any = None,
        keys: tuple[Any, ...] | None = None,
    ) -> None:
        if isinstance(loader, SelfPacedCurriculum | FixedCurriculum):
            raise InputError("the loader comes first: CurriculumCallback(loader, curriculum).")
        self.loader = TrainingLoader(loader, keys)
        made_with = {"warmup": warmup, "labels": labels}
        self.curriculum = make_curriculum(curriculum, self.loader.labels_said, **made_with)
        self.weights = self.curriculum.weights
        self.data = self.loader.dataset if data is None else data
        self.sampler = self.loader.fit_to(self.weights, self.data)
        self.embed, self.batch_size = embed, 256
        self.records: list[CurriculumRecord] = []
        self.epoch, self.step, self.epoch_ended, self.reset_due = 0, 0, False, False
        self.seed = torch.initial_seed()
        self._parts: TrainingParts | None = None
        self._initial: Any = None
        self._hooks: list[Any] = []
        self._progress: Any = None  # of the batch at hand, in Lightning's count
        self._goes_on = False  # from a checkpoint that holds this callback's state

    @property
    def record(self) -> CurriculumRecord | None:
        """Return the last update's record; None before."""
        return self.records[-1] if self.records else None

    def audit(self, pl_module: Any, **options: Any) -> AuditReport:
        """Judge the labels by a module as it is: honest before training, when it has seen none.

        Args:
            pl_module: that is to be trained.
            options: of `bspml.audit`.
        """
        trainer = getattr(pl_module, "_trainer", None)  # of a fit before, in whose precision it is
        return audit(self._embeddings(pl_module, trainer), self.weights.labels, **options)

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Share the batches among the ranks."""
        if stage != "fit":
            return
        connector = getattr(trainer, "_accelerator_connector", None)
        if ranks() > 1 and getattr(connector, "use_distributed_sampler", False):
            raise InputError(_REPLACED)
        self.step, self.epoch_ended, self.saved = 0, False, None
        self.sampler.share(rank(), ranks())
        self.loader.begin()

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Update once where the curriculum starts so, and set the rows of the first epoch."""
        tables = [m for m in pl_module.modules() if isinstance(m, SampleWeights)]
        if any(table is not self.weights for table in tables):
            raise InputError(
                "the module's loss must look up the SampleWeights of the curriculum; it has "
                "another table. Make both with the same SampleWeights object."
            )
        if tables:
            check_beside_table(trainer.callbacks)
        unseen = self.curriculum.starts_with_update or self.curriculum.may_reset
        if trainer.ckpt_path is not None and unseen and not self._goes_on and is_main():
            warnings.warn(_TRAINED_BEFORE, stacklevel=2)
        self._hooks = [p.register_hook(lambda g: g / ranks()) for p in computed_in_full(pl_module)]
        if self.curriculum.may_reset or self.reset_due:
            check_beside_reset(trainer.callbacks)
            earlier, self._parts = self._parts, self._parts_of(trainer, pl_module)
            if earlier is not None and earlier.trainer.models["0"] is pl_module:  # of a fit before
                self._parts.initial |= {k: earlier.initial[k] for k in ("models", "learned")}
            self._parts.initial, self._initial = self._initial or self._parts.initial, None
        if self.curriculum.starts_with_update:
            self._update(trainer, pl_module)
        if self.epoch_ended:  # the checkpoint was taken before the epoch's own update
            self._place()  # whose views are those of the epoch
            self.as_saved(lambda: self._end_epoch(trainer, pl_module))
        self._choose_rows()
        if trainer.train_dataloader is not None:  # for `estimated_stepping_batches`
            self.loader.open_anew(trainer)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Go on from the generators of the checkpoint, now that the loader is open."""
        # Lightning knows an epoch that had all its batches by their number, which is the new one's.
        progress = trainer.fit_loop.epoch_loop.batch_progress
        if progress.is_last_batch and self.step == 0:
            # It knows that its validation was run by where that stands between two.
            batches, every = trainer.num_training_batches, trainer.val_check_batch
            whole = isinstance(every, int) and every > 0
            progress.current.completed = every * math.ceil(batches / every) if whole else batches
        self.go_on(trainer)
        self._begin_epoch(trainer)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Start the network anew where that was asked for."""
        self._begin_epoch(trainer)

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        """Announce the batch's rows, and put repaired labels in the place of the given ones."""
        skips = getattr(trainer.fit_loop, "_skip_backward", False)  # as in the last epoch of SWA
        self._progress = None if skips else trainer.fit_loop.epoch_loop.batch_progress
        index, labels = self.loader.rows_and_labels(batch, self.weights)
        announce_rows(self.weights, index, pl_module)
        believed = self.weights.relabelled(labels, index)
        if believed is not labels:
            put_in_place(labels, believed)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Take the announcement back; the loss has looked it up, or did not need to."""
        refuse_ignored(self.weights, [pl_module])
        self.weights.clear_batch()
        self._count_batch()

    def _count_batch(self) -> None:
        """Count a batch whose step was taken: callbacks before this one save there, too."""
        progress = self._progress
        if progress is not None and progress.current.processed > progress.current.completed:
            self.step, self.epoch_ended = progress.current.ready, bool(progress.is_last_batch)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Embed, update, and set the rows of the next epoch."""
        self.weights.clear_batch()
        if self.step > 0:  # not a second time, after a checkpoint of the epoch's last batch
            batches = len(self.sampler)
            self._end_epoch(trainer, pl_module)
            self._choose_rows()
            if len(self.sampler) != batches:
                self.loader.open_anew(trainer)
        if self.record is not None:
            pl_module.log_dict(self.record.figures(), sync_dist=True)

    def on_train_end(self, trainer: Any, pl_module: Any, *why: Any, stage: str = "fit") -> None:
        """Leave no announcement behind, and the user's settings as they were."""
        self.weights.clear_batch()
        self.weights.evaluating = False
        self.loader.opened(trainer)
        self.loader.end()
        self.end_apart(trainer)
        while self._hooks:
            self._hooks.pop().remove()

    on_exception = teardown = on_train_end  # the last where nothing was to train

    def _end_epoch(self, trainer: Any, pl_module: Any) -> None:
        self.epoch, self.step, self.epoch_ended = self.epoch + 1, 0, False
        self.reset_due = self._update(trainer, pl_module).reset_model

    def _update(self, trainer: Any, pl_module: Any) -> CurriculumRecord:
        """Embed all samples, each rank its share, where labels are judged; update the weights."""
        for buffer in pl_module.buffers():  # running statistics that the ranks took of their parts
            copy_of_main(buffer)
        needed = self.curriculum.needs_embeddings
        embeddings = self._embeddings(pl_module, trainer) if needed else None
        self.records.append(self.curriculum.update(embeddings))
        return self.records[-1]

    def _embeddings(self, pl_module: Any, trainer: Any = None) -> Tensor:
        model = ModuleEmbedder(pl_module, self.embed, trainer)
        size, batches = check_whole(self.batch_size, "batch_size"), None
        if self.data is self.loader.dataset:
            batches = self.loader.in_order(size, model.prepared, self.weights)
        workers, key = self.loader.loader.num_workers, self.loader.keys[0]
        with model.evaluating():
            of = model, self.data, size, pl_module.device, workers
            return embed_by_ranks(*of, key=key, batches=batches)

    def _choose_rows(self) -> None:
        for note in choose_rows(self.sampler, self.curriculum):
            if is_main():
                warnings.warn(note, stacklevel=2)
        self._place()

    def _place(self) -> None:
        self.loader.place(self.epoch, self.step, self.seed)

    def _begin_epoch(self, trainer: Any) -> None:
        self.loader.opened(trainer)
        check_loader(trainer.train_dataloader, self.sampler)
        if self.reset_due:
            assert self._parts is not None
            kept = copy.deepcopy(self.weights.state_dict())  # the module holds the table
            self._parts.restart_network()
            self.weights.load_state_dict(kept)
            self.reset_due = False
        if not self.curriculum.may_reset:
            self._parts = None
        # The loader may be opened twice, before this or after it, and its workers fetch ahead.
        self._place()

    def _parts_of(self, trainer: Any, pl_module: Any) -> TrainingParts:
        """Return what starts anew with the network, as a pml trainer would have it."""
        memories = (m for m in pl_module.modules() if isinstance(m, CrossBatchMemory))
        parts = {
            "models": [pl_module],
            "optimizers": trainer.optimizers,
            "lr_schedulers": [config.scheduler for config in trainer.lr_scheduler_configs],
            "loss_funcs": memories,
        }
        named = {kind: {str(i): p for i, p in enumerate(held)} for kind, held in parts.items()}
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        return TrainingParts(SimpleNamespace(**named, scaler=scaler), self.curriculum, None, None)

    def state_dict(self) -> dict[str, Any]:
        """Return weights, curriculum, place in the epoch and generators, for the checkpoint."""
        self._count_batch()
        own = {"seed": self.seed, "generators": self.aside or generator_states()}
        everyone = [own] * ranks()
        if ranks() > 1:  # Lightning has every rank come here, and rank 0 write
            distributed.all_gather_object(everyone, own)
        return {
            "sample_weights": self.weights.state_dict(),
            "curriculum": self.curriculum.state_dict(),
            "sampler": {**self.sampler.state_dict(self.step), "epoch": self.epoch},
            "epoch_ended": self.epoch_ended,
            "reset_due": self.reset_due,
            "initial": None if self._parts is None else self._parts.initial,
            "ranks": everyone,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` returned.

        Raises:
            CheckpointError: of other labels, another preset or another sampler.
        """
        with faults_named():
            place, everyone = state_dict["sampler"], state_dict["ranks"]
            check_flags(**{key: state_dict[key] for key in ("epoch_ended", "reset_due")})
            own = everyone[rank() % len(everyone)]
            self.weights.load_state_dict(state_dict["sample_weights"])
            self.curriculum.load_state_dict(state_dict["curriculum"])
            self.sampler.load_state_dict(place)
            self.epoch, self.step = place["epoch"], place["position"]
            self.epoch_ended, self.reset_due = state_dict["epoch_ended"], state_dict["reset_due"]
            self._initial = state_dict["initial"]
            self.seed, self.saved, self._goes_on = own["seed"], own["generators"], True


_REPLACED = (
    "Lightning would put a sampler of its own in the place of the PKSampler; "
    "Trainer(use_distributed_sampler=False) leaves it, and the callback shares its batches."
)
_TRAINED_BEFORE = (
    "the checkpoint is of a training without this callback. If its network has seen these labels, "
    "it defends the wrong ones, and the curriculum, which starts from it, finds too few. Train "
    "with the callback from the start: `fit` without ckpt_path."
)
