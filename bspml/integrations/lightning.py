"""Lightning: the curriculum as a callback.  The user's module and loop stay as they are.

When what happens, in the order in which Lightning calls:

    setup             the ranks share the sampler's batches
    load_state_dict   of a checkpoint: weights, curriculum and place in the epoch
    on_fit_start      the update before the first step, and the rows of the first epoch
    on_train_start    the loader has been opened by now; generators as the checkpoint has them
    ..._epoch_start   a fresh network, where the last update asked for one
    ..._batch_start   the batch's rows are announced, and taken back at ..._batch_end
    ..._epoch_end     all samples are embedded, the weights updated, the next epoch's rows set

An epoch on other rows has another number of batches, which Lightning counts only when it opens the
loader: the loader is then opened anew.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import random
import sys
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from pytorch_metric_learning.losses import CrossBatchMemory
from torch import distributed, nn

from bspml.data.sampler import PKSampler
from bspml.distributed import announce_rows, is_main, rank, ranks
from bspml.distributed.loss_wrapper import computed_in_full
from bspml.distributed.rows import copy_of_main
from bspml.errors import InputError, import_optional
from bspml.files.checkpoints import generator_states, restore_generators
from bspml.integrations.batches import check_loader, part_of
from bspml.networks import embed_by_ranks
from bspml.shapes import Tensor
from bspml.tensors.arguments import check_flags
from bspml.tensors.checks import check_whole
from bspml.trainers import CurriculumRecord, FixedCurriculum, SelfPacedCurriculum
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


class CurriculumCallback(_callback()):  # type: ignore[misc]
    """Train a LightningModule under a curriculum: `Trainer(callbacks=[CurriculumCallback(...)])`.

    Before the first epoch, where the curriculum starts so, and after each one all samples are
    embedded and their weights updated; the next epoch draws from the rows that the curriculum
    keeps, under the labels that it believes.  A batch's rows are announced to the weights, so that
    `bspml.Weighted(loss, weights)` in the module finds them.  Where the curriculum wants a fresh
    network, module, optimisers and schedulers go back to before the first step, at the start of the
    next epoch.  `maw`, `sdaw`, `noise_rate` and `total_rate` are logged after each epoch, as in a
    `CurriculumRecord`.

    Lightning's checkpoints hold all of this.  `fit(ckpt_path=)` goes on where the checkpoint was
    taken, inside an epoch or between two, with the same numbers, bit for bit on a CPU; only random
    augmentation drawn in worker processes differs for the rest of an epoch that was cut.  (With
    `max_steps` and no validation, Lightning itself takes a step too many after a checkpoint of an
    epoch's end: count in `max_epochs`.  Its warning of a loader that is not resumable is not about
    this one.)

    Several processes (strategies "ddp...", which copy the network): with
    `Trainer(use_distributed_sampler=False)` each embeds its part of the sampler's batch, and
    `bspml.distributed.DistributedLossWrapper(loss)` in the module makes the loss that of the whole
    batch.  Steps are then those of one process to rounding, for proxies in the loss, too, if batch
    normalisations are synchronised (`bspml.distributed.synchronize_batch_norm` in the module's
    `setup`) and nothing is drawn in the network.  Weights, rows and network are the same on every
    rank after each epoch, and a checkpoint goes on bit for bit with as many processes.  From
    "ddp_fork" and "ddp_spawn" only the module comes back: not `record`, nor weights outside it.

    Args:
        curriculum: a `SelfPacedCurriculum` or `FixedCurriculum`.
        loader: the DataLoader that `fit` is given or the module's `train_dataloader` returns; its
            `batch_sampler` is a `PKSampler`, its data set has one item per weight.
        embed: maps a batch of inputs to (B, D), such as a part of the module; None: the module.
        data: what is embedded in place of the loader's data set, such as the same images without
            augmentation: a tensor (N, ...) or a data set.
        keys: where input, label and data-set row stand in an item and in a batch: as
            `bspml.IndexedDataset` has them, or the keys of a dict.
        batch_size: of the embedding.

    Attributes:
        record: the last update's `CurriculumRecord`; None before.

    Raises:
        InputError: not a curriculum, no PKSampler, or other numbers of samples.
        MissingDependencyError: on import, without Lightning.

    Example:
        Two classes on a line, two of twelve labels wrong.

        >>> import bspml, torch
        >>> import lightning.pytorch as lightning
        >>> points, labels = torch.linspace(-1, 1, 12)[:, None], [1, *[0] * 5, *[1] * 5, 0]
        >>> weights = bspml.SampleWeights(labels)
        >>> loader = torch.utils.data.DataLoader(
        ...     bspml.IndexedDataset(list(zip(points, labels))),
        ...     batch_sampler=bspml.PKSampler(labels, classes_per_batch=2, samples_per_class=2),
        ... )
        >>> class Line(lightning.LightningModule):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.net, self.loss = torch.nn.Linear(1, 2), bspml.BSPMLLoss(weights)
        ...     def forward(self, x):
        ...         return self.net(x)
        ...     def training_step(self, batch, batch_idx):
        ...         return self.loss(self(batch[0]), batch[1])
        ...     def configure_optimizers(self):
        ...         return torch.optim.Adam(self.parameters(), 0.01)
        >>> curriculum = bspml.SelfPacedCurriculum(weights, preset="paper", target_maw=0.8)
        >>> callback = CurriculumCallback(curriculum, loader)
        >>> names = "logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"
        >>> silent = dict.fromkeys(names, False)
        >>> lightning.Trainer(max_epochs=2, callbacks=[callback], **silent).fit(Line(), loader)
        >>> callback.record.round, bool(weights.weights[[0, -1]].max() < weights.weights.mean())
        (2, True)
    """

    def __init__(
        self,
        curriculum: Any,
        loader: Any,
        *,
        embed: Callable[[Any], Tensor] | None = None,
        data: Any = None,
        keys: tuple[Any, Any, Any] = (0, 1, 2),
        batch_size: int = 256,
    ) -> None:
        if not isinstance(curriculum, SelfPacedCurriculum | FixedCurriculum):
            raise InputError(
                "`curriculum` must be a SelfPacedCurriculum or a FixedCurriculum; got "
                f"{type(curriculum).__name__}."
            )
        sampler = getattr(loader, "batch_sampler", None)
        if not isinstance(sampler, PKSampler):
            raise InputError(
                f"`loader` must draw from a PKSampler; got {type(loader).__name__} with "
                f"{type(sampler).__name__}. Use DataLoader(data, batch_sampler=PKSampler(labels))."
            )
        self.curriculum, self.weights = curriculum, curriculum.weights
        self.loader, self.sampler = loader, sampler
        self.data = loader.dataset if data is None else data
        drawn = sampler.drawn_from()["num_samples"]
        sizes = len(self.weights), drawn, len(loader.dataset), len(self.data)
        if len(set(sizes)) > 1:
            raise InputError(
                "weights, sampler, data set of `loader` and `data` must have one row per sample; "
                f"got {sizes[0]}, {sizes[1]}, {sizes[2]} and {sizes[3]}. Make them of the same "
                "labels."
            )
        self.embed, self.keys = embed, keys
        self.batch_size = check_whole(batch_size, "batch_size")
        self.record: CurriculumRecord | None = None
        self.epoch, self.step, self.epoch_ended, self.reset_due = 0, 0, False, False
        self.seed, self._of_workers = torch.initial_seed(), torch.Generator()
        self._parts: TrainingParts | None = None
        self._initial: Any = None
        self._generators: Any = None
        self._hooks: list[Any] = []
        self._reload: int | None = None  # the user's setting, while ours stands in its place

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Share the batches among the ranks."""
        if stage != "fit":
            return
        connector = getattr(trainer, "_accelerator_connector", None)
        if ranks() > 1 and getattr(connector, "use_distributed_sampler", False):
            raise InputError(_REPLACED)
        self.step, self.epoch_ended = 0, False
        self.sampler.share(rank(), ranks())
        if self.loader.generator is None:  # opening it would draw from the global one
            self.loader.generator = self._of_workers

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Update once where the curriculum starts so, and set the rows of the first epoch."""
        others = (m for m in pl_module.modules() if isinstance(m, SampleWeights))
        if any(table is not self.weights for table in others):
            raise InputError(
                "the module's loss must look up the SampleWeights of the curriculum; it has "
                "another table. Make both with the same SampleWeights object."
            )
        self._hooks = [p.register_hook(lambda g: g / ranks()) for p in computed_in_full(pl_module)]
        if self.curriculum.may_reset or self.reset_due:
            self._parts = self._parts_of(trainer, pl_module)
            self._parts.initial = self._initial or self._parts.initial
        if self.curriculum.starts_with_update:
            self._update(trainer, pl_module)
        if self.epoch_ended:  # the checkpoint was taken before the epoch's own update
            self._end_epoch(trainer, pl_module)
        self._choose_rows()
        if trainer.train_dataloader is not None:  # for `estimated_stepping_batches`
            self._open_anew(trainer)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Go on from the generators of the checkpoint, now that the loader is open."""
        # Lightning knows an epoch that had all its batches by their number, which is the new one's.
        progress = trainer.fit_loop.epoch_loop.batch_progress
        if progress.is_last_batch and self.step == 0:
            progress.current.completed = trainer.num_training_batches
        if self._generators is not None:
            restore_generators(self._generators)
        self._generators = None
        self._begin_epoch(trainer)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Start the network anew where that was asked for."""
        self._begin_epoch(trainer)
        self._place()  # the loader may have been opened twice, and its workers have fetched ahead

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        """Announce the batch's rows, and put repaired labels in the place of the given ones."""
        _, label, row = self.keys
        index = part_of(batch, row, "data-set row")
        announce_rows(self.weights, torch.as_tensor(index), pl_module)
        labels = part_of(batch, label, "label")
        believed = self.weights.relabelled(labels, index)
        if believed is not labels:
            labels.copy_(believed)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Take the announcement back."""
        self._forget_batch()
        self.step, self.epoch_ended = batch_idx + 1, bool(trainer.is_last_batch)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Embed, update, and set the rows of the next epoch."""
        self._forget_batch()
        if self.step > 0:  # not a second time, after a checkpoint of the epoch's last batch
            batches = len(self.sampler)
            self._end_epoch(trainer, pl_module)
            self._choose_rows()
            if len(self.sampler) != batches:
                self._open_anew(trainer)
        if self.record is not None:
            shown = {name: getattr(self.record, name) for name in _LOGGED}
            figures = {name: value for name, value in shown.items() if value is not None}
            pl_module.log_dict(figures, sync_dist=True)

    def on_train_end(self, trainer: Any, pl_module: Any, *exception: BaseException) -> None:
        """Leave no announcement behind, and the user's settings as they were."""
        self._forget_batch()
        self._opened(trainer)
        while self._hooks:
            self._hooks.pop().remove()

    on_exception = on_train_end

    def _end_epoch(self, trainer: Any, pl_module: Any) -> None:
        self.epoch, self.step, self.epoch_ended = self.epoch + 1, 0, False
        self.reset_due = self._update(trainer, pl_module).reset_model

    def _update(self, trainer: Any, pl_module: Any) -> CurriculumRecord:
        """Embed all samples, each rank its share, where labels are judged; update the weights."""
        for buffer in pl_module.buffers():  # running statistics that the ranks took of their parts
            copy_of_main(buffer)
        embeddings = None
        if self.curriculum.needs_embeddings:
            embeddings = embed_by_ranks(
                _Embedder(pl_module, self.embed, trainer.precision_plugin),
                self.data,
                self.batch_size,
                pl_module.device,
                self.loader.num_workers,
                key=self.keys[0],
            )
        self.record = self.curriculum.update(embeddings)
        return self.record

    def _choose_rows(self) -> None:
        for note in choose_rows(self.sampler, self.curriculum):
            if is_main():
                warnings.warn(note, stacklevel=2)
        self._place()

    def _place(self) -> None:
        """Put sampler, workers and views at their place in the epoch."""
        self.sampler.set_epoch(self.epoch, self.step)
        own = random.Random(f"{self.seed} {self.epoch}").getrandbits(63)
        self._of_workers.manual_seed(own)
        if hasattr(self.loader.dataset, "set_epoch"):
            self.loader.dataset.set_epoch(self.epoch)

    def _begin_epoch(self, trainer: Any) -> None:
        self._opened(trainer)
        check_loader(trainer.train_dataloader, self.sampler)
        if self.reset_due:
            assert self._parts is not None
            kept = copy.deepcopy(self.weights.state_dict())  # the module holds the table
            self._parts.restart_network()
            self.weights.load_state_dict(kept)
            self.reset_due = False
        if not self.curriculum.may_reset:
            self._parts = None

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

    def _forget_batch(self) -> None:
        self.weights.clear_batch()

    def _open_anew(self, trainer: Any) -> None:
        """Have Lightning open the loader, and count its batches, when it next looks at it."""
        if self._reload is None:
            self._reload = trainer.reload_dataloaders_every_n_epochs
        trainer.reload_dataloaders_every_n_epochs = -1  # due at any epoch, this one included

    def _opened(self, trainer: Any) -> None:
        if self._reload is not None:
            trainer.reload_dataloaders_every_n_epochs, self._reload = self._reload, None

    def state_dict(self) -> dict[str, Any]:
        """Return weights, curriculum, place in the epoch and generators, for the checkpoint."""
        own = {"seed": self.seed, "generators": generator_states()}
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
            self.seed, self._generators = own["seed"], own["generators"]


_LOGGED = ("maw", "sdaw", "noise_rate", "total_rate")
_REPLACED = (
    "Lightning would put a sampler of its own in the place of the PKSampler; "
    "Trainer(use_distributed_sampler=False) leaves it, and the callback shares its batches."
)


class _Embedder(nn.Module):
    """The module, or a function that uses it, in the Trainer's precision."""

    def __init__(self, module: nn.Module, function: Any, precision: Any) -> None:
        super().__init__()
        self.module, self.precision = module, precision
        self.function = module if function is None else function

    def forward(self, inputs: Any) -> Tensor:
        with self.precision.forward_context():
            return self.function(self.precision.convert_input(inputs))
