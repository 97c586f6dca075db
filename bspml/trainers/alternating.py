"""Algorithm 1 of [Zhang 2023] around a pytorch-metric-learning trainer.

A round is a theta-step (one pass of the pml trainer over P x K batches, Algorithm 2) and a weight
step (embed the training set, update the curriculum).  The loop keeps a position, so that a run
that was killed goes on from its last checkpoint with the same numbers, bit for bit on a CPU.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel

from bspml.data.indexed import clear_batch
from bspml.data.sampler import PKSampler
from bspml.distributed.pml_trainer import share_steps
from bspml.errors import InputError
from bspml.files.checkpoints import generator_states, restore_generators
from bspml.tensors.checks import check_number, check_whole
from bspml.trainers.collected_embeddings import CollectedEmbeddings, check_source
from bspml.trainers.curriculum import FixedCurriculum, SelfPacedCurriculum
from bspml.trainers.ignored_weights import refuse_ignored
from bspml.trainers.loss_reading import LossReader
from bspml.trainers.made_parts import PartsOfTrainer, counted_losses
from bspml.trainers.part_checks import check_parts, check_together
from bspml.trainers.parts import TrainingParts
from bspml.trainers.patience import Patience
from bspml.trainers.round_record import Observer, RoundRecord
from bspml.trainers.rows import choose_rows
from bspml.trainers.schedules import Schedule
from bspml.trainers.scheduling import Scheduling
from bspml.trainers.state import check_trainer_state, faults_named
from bspml.words import counted


class AlternatingTrainer:
    """Alternate theta-steps of a pml trainer with weight updates of a curriculum.

    Source: [Zhang 2023], Algorithm 1.  Differs: rounds are counted in data-set passes, and a
    curriculum may ask for a subset of rows or a fresh network (the automatic preset's warm-up);
    the steps of a network that is thrown away come on top of those that `train` is asked for.

    Args:
        trainer: a `pytorch_metric_learning.trainers.MetricLossOnly`.  Without `sampler`, any whose
            data set says its labels, on one process: it draws from all rows by a sampler made here.
            With one: whose `sampler` it is and whose `data_and_label_getter` is
            `sample_index_getter(weights)`.
        sampler: the `PKSampler` it draws from; None: four samples of each class, in batches of at
            most `trainer.batch_size`.
        curriculum: updates the weights.  None: without `sampler`, `SelfPacedCurriculum` of the data
            set's labels or of the trainer's `dataset_labels`; with one, training is plain.
        embed: returns the (N, D) embeddings of the training set in data-set order, eval mode; None,
            without `sampler`: those of trunk and embedder on `trainer.dataset`.
        evaluate: returns metrics for the record, told whether this round is the last; None: none.
        evaluate_every: rounds between evaluations; the round that ends `epochs` always has one.
        embeddings: "fresh" embeds the training set after each round; "collected" reuses the
            vectors the steps of this round computed and embeds afresh the rows it did not visit;
            a warm-up on halves is always embedded afresh.
        embed_rows: returns the (n, D) embeddings of (n,) data-set rows, eval mode, so that with
            "collected" only the rows a round did not visit pass through the network again (the
            excluded ones always among them); None: `embed` is called for them, on all rows.
        initial_embeddings: (N, F) for the update before the first step, where the curriculum
            wants one: features of a pretrained backbone that was not trained on these labels,
            when `embed` goes through a new head.  None takes `embed()` there too.
        observer: told of steps and rounds.
        schedule: of every optimiser's learning rate, step by step; see `lr_schedule`.  A network
            that the curriculum will throw away has a whole one over its own steps.
        averaged: `average_weights(trunk)`: takes in every step, is saved and starts afresh with the
            network.  Embed and evaluate with its `module`, where the average is what counts.
        patience: stops the training when evaluations bring no better value, and keeps the best
            network; those that will be thrown away do not count.
        warmup: of a curriculum made here: "cross-fit" for a network trained from scratch.

    A loss that looks no weights up trains under weights of 0 and 1: the sampler leaves the rows of
    weight 0 out.  Others need `bspml.Weighted(loss, curriculum.weights)`.

    The trainer's own `end_of_iteration_hook`, `end_of_epoch_hook` (False stops), schedulers and
    clippers keep working; its own `train` afterwards goes on with the kept rows only.  Where the
    rows that the curriculum keeps are of fewer classes than a batch needs (very high noise), a
    round samples all rows its phase may see instead; their weights still apply, and the record's
    `notes` say so.

    In a torch.distributed group every rank makes a trainer of the same parts and `train`s it; they
    take each step together (`bspml.distributed.share_steps`).  `embed` must then return the rows
    of all ranks, and `evaluate` the same metrics, on every rank; the state is that of one process.

    On a CUDA device losses are read one step late, so that no step waits for the device; a loss
    that is not finite stops the training one step after its own, or at the round's end, or when
    `state_dict` is asked for, which knows the losses of all steps taken.

    Mid-round resume is exact when the data set returns the same item for the same index; random
    augmentation drawn in worker processes is not.

    Example:
        Two classes on a line, two of 24 labels wrong, two rounds of three steps.

        >>> from pytorch_metric_learning.losses import ContrastiveLoss
        >>> from pytorch_metric_learning.trainers import MetricLossOnly
        >>> points, labels = torch.linspace(-1, 1, 24)[:, None], [1, *[0] * 11, *[1] * 11, 0]
        >>> torch.manual_seed(0) and None
        >>> network = torch.nn.Sequential(torch.nn.Linear(1, 4), torch.nn.Tanh())
        >>> steps = MetricLossOnly(
        ...     models={"trunk": network},
        ...     optimizers={"trunk_optimizer": torch.optim.Adam(network.parameters(), 0.01)},
        ...     batch_size=8,
        ...     loss_funcs={"metric_loss": ContrastiveLoss()},
        ...     dataset=list(zip(points, labels)),
        ...     dataloader_num_workers=0,
        ... )
        >>> trainer = AlternatingTrainer(steps)
        >>> [(record.round, record.steps) for record in trainer.train(epochs=2)]
        [(1, 3), (2, 6)]
        >>> trainer.curriculum.weights[[0, 23]]  # the wrong ones
        tensor([0., 0.])
    """

    def __init__(
        self,
        trainer: Any,
        sampler: PKSampler | None = None,
        curriculum: SelfPacedCurriculum | FixedCurriculum | None = None,
        embed: Callable[[], Tensor] | None = None,
        *,
        evaluate: Callable[[bool], dict[str, Any]] | None = None,
        evaluate_every: int = 1,
        embeddings: str = "fresh",
        embed_rows: Callable[[Tensor], Tensor] | None = None,
        initial_embeddings: Tensor | None = None,
        observer: Observer | None = None,
        schedule: Schedule | None = None,
        averaged: AveragedModel | None = None,
        patience: Patience | None = None,
        warmup: str | None = None,
    ) -> None:
        if sampler is None:
            check_parts(trainer=trainer)
            made = PartsOfTrainer(trainer, curriculum, warmup)
            sampler, curriculum, embed = made.sampler, made.curriculum, embed or made.embed
        elif warmup is not None:
            raise InputError(
                "`warmup` is for a curriculum made here, which is not beside `sampler`."
            )
        check_parts(trainer=trainer, sampler=sampler, curriculum=curriculum, embed=embed)
        check_parts(embed_rows=embed_rows, evaluate=evaluate, observer=observer)
        check_parts(schedule=schedule, averaged=averaged, patience=patience)
        check_together(trainer, sampler, curriculum, initial_embeddings, patience, evaluate)
        check_source(embeddings, trainer)
        self.trainer, self.sampler, self.curriculum = trainer, sampler, curriculum
        assert embed is not None  # or refused above
        self.embed, self.evaluate, self.averaged = embed, evaluate, averaged
        self.evaluate_every = check_whole(evaluate_every, "evaluate_every")
        self.embeddings, self.observer, self.patience = embeddings, observer, patience
        self.embed_rows, self.initial_embeddings = embed_rows, initial_embeddings
        self.round, self.step, self.steps, self.discarded_steps = 0, 0, 0, 0
        self.loss_reader, self.collected = LossReader(), CollectedEmbeddings()
        self.seconds_train, self._step_ended = 0.0, True
        self.notes: tuple[str, ...] = ()
        self.lr: float | None = None
        share_steps(trainer, sampler)
        self.scheduling = None if schedule is None else Scheduling(trainer, schedule)
        self.parts = TrainingParts(trainer, curriculum, averaged, patience)
        self._resume_generators: dict[str, Any] | None = None
        self._full_round = len(sampler)

    # -- the loop ---------------------------------------------------------------------------

    def total_steps(self, epochs: float) -> int:
        """Return how many steps the network that stays has after `train(epochs)`."""
        return round(check_number(epochs, "epochs", 0) * self._full_round)

    def is_trained(self, epochs: float) -> bool:
        """Say whether `train(epochs)` has nothing left to do, wherever a patience may end it."""
        target = self.total_steps(epochs)
        # A round that was left behind its last step is not over.
        return not (target and (self._rounds_to_reset or self._left(target) >= (not self.step)))

    def train(self, epochs: float) -> list[RoundRecord]:
        """Train the network that stays for `epochs` passes' worth of steps; returns all records.

        A round on fewer rows has fewer steps, so that the network of every method is trained for
        as many.  Those of a warm-up whose networks are thrown away are not among them.

        Raises:
            InputError: a schedule stretches over other `epochs`, or warms up in over half of them.
        """
        target = self.total_steps(epochs)
        if self.scheduling is not None:
            self.scheduling.schedule.check_steps(target)
        records = []
        if self.curriculum is not None and self.curriculum.starts_with_update:
            self._before_first_round()
        patience = self.patience
        while not self.is_trained(epochs):
            if patience and patience.exhausted:
                break
            self._theta_step(target)
            last = not self._rounds_to_reset and self._left(target) <= 0
            records.append(self._weight_step(last))
            if self.observer is not None:
                self.observer.on_round(self, records[-1])
            if self.trainer.end_of_epoch_hook(self.trainer) is False:
                break
        if self._resume_generators is not None:  # no loader was opened: it was trained to its end
            restore_generators(self._resume_generators)
        return records

    @property
    def _rounds_to_reset(self) -> int | None:
        """Rounds until this network is thrown away; None: it stays."""
        return None if self.curriculum is None else self.curriculum.rounds_to_reset

    def _left(self, target: int) -> int:
        """Return how many of `target` steps the network that stays has left."""
        return target - (self.steps - self.discarded_steps)

    def _before_first_round(self) -> None:
        assert self.curriculum is not None
        saved, self._resume_generators = self._resume_generators, None
        if saved is not None:  # of before the first step: what embeds may draw
            restore_generators(saved)
        if (embeddings := self.initial_embeddings) is None:
            embeddings = self.embed()
        elif torch.device(self.trainer.data_device).type == "cuda":
            embeddings = embeddings.to(self.trainer.data_device)
        self.initial_record = self.curriculum.update(embeddings)

    def _theta_step(self, target: int) -> None:
        """Run line 3 of Algorithm 1: one round of Algorithm 2, from `self.step` on."""
        start = time.perf_counter()
        self._end_step()
        self.notes = choose_rows(self.sampler, self.curriculum)
        rounds, left, steps = self._rounds_to_reset, self._left(target), len(self.sampler)
        if self.scheduling is not None:
            self.scheduling.begin_round(left, None if rounds is None else rounds * steps)
        if hasattr(self.trainer.dataset, "set_epoch"):
            self.trainer.dataset.set_epoch(self.round)
        if rounds is None:
            steps = min(steps, self.step + left)
        self._start_loader(steps)
        trainer = self.trainer
        trainer.epoch = self.round + 1
        trainer.set_to_train()
        with self._collecting():
            for trainer.iteration in range(self.step, steps):
                trainer.forward_and_backward()
                if self.curriculum is not None:
                    refuse_ignored(self.curriculum.weights, counted_losses(trainer))
                if self.averaged is not None:
                    self.averaged.update_parameters(trainer.models["trunk"])
                total = trainer.losses["total_loss"]
                loss = self.loss_reader.add(total, self.round + 1, self.step + 1)
                self.step, self.steps, self._step_ended = self.step + 1, self.steps + 1, False
                trainer.end_of_iteration_hook(trainer)
                clear_batch(trainer.data_and_label_getter)
                self._end_step()
                if self.observer is not None:
                    self.observer.on_step(self, self.step, steps, loss)
        self.loss_reader.total()  # waits for the last step, so that the seconds below are its, too
        trainer.step_lr_schedulers(end_of_epoch=True)
        trainer.zero_losses()
        self.seconds_train = time.perf_counter() - start

    def _end_step(self) -> None:
        """Step the schedulers, once a step: a hook may end the training before, or save it."""
        if not self._step_ended:
            optimizer = next(iter(self.trainer.optimizers.values()))
            self.lr, self._step_ended = float(optimizer.param_groups[0]["lr"]), True
            self.trainer.step_lr_schedulers(end_of_epoch=False)

    def _collecting(self) -> AbstractContextManager[None]:
        """Keep this round's embeddings while the block runs, if that was asked for.

        Not while halves are warmed up: the judged half is never visited, and vectors of a network
        that still moves fast do not share a space with those of its end.
        """
        c = self.curriculum
        if self.embeddings == "fresh" or c is None or c.may_reset or not c.needs_embeddings:
            return nullcontext()
        return self.collected.collecting(self.trainer.models["embedder"], c.weights)

    def _start_loader(self, steps: int) -> None:
        """Open the loader at `self.step`; generators go back where the checkpoint found them.

        Opening a loader draws from torch's generator.  A checkpoint at a round's start was taken
        before that draw, one inside the round after it.
        """
        self.sampler.set_epoch(self.round, position=self.step)
        saved, self._resume_generators = self._resume_generators, None
        if saved is not None and self.step == 0:
            restore_generators(saved)
        self.trainer.iterations_per_epoch = steps
        self.trainer.initialize_dataloader()
        if saved is not None and self.step > 0:
            restore_generators(saved)

    def _weight_step(self, last: bool) -> RoundRecord:
        """Run lines 4 and 5 of Algorithm 1, then make the record."""
        steps, self.round, self.step = self.step, self.round + 1, 0
        loss = self.loss_reader.total() / steps
        if loss == 0:
            self.notes += (
                f"the loss was exactly 0 in {counted(steps, 'step')}: nothing was learned. Are "
                "there two samples of each class, and pairs that the loss or its miner takes?",
            )
        self.loss_reader.restart()
        update, seconds_embed, temporary = None, 0.0, self._rounds_to_reset is not None
        if self.curriculum is not None:
            start, embeddings = time.perf_counter(), None
            if self.curriculum.needs_embeddings:
                embeddings = self.collected.take(self.embed, self.embed_rows)
                if getattr(embeddings, "is_cuda", False):  # the clock stops when they are there
                    torch.cuda.synchronize(embeddings.device)
            seconds_embed = time.perf_counter() - start
            update = self.curriculum.update(embeddings)
            self.parts.restart_due = update.reset_model
            if update.reset_model:
                self.discarded_steps = self.steps
        try:
            metrics = self._evaluate(last, temporary)
        finally:  # whatever it raises: who trains on must not do so with this network
            if self.parts.restart_due:
                self.parts.restart_network()
        return RoundRecord(
            round=self.round,
            epochs=self.steps / self._full_round,
            steps=self.steps,
            loss=loss,
            lr=self.lr,
            maw=1.0 if update is None else update.maw,
            sdaw=0.0 if update is None else update.sdaw,
            curriculum=update,
            metrics=metrics,
            seconds_train=self.seconds_train,
            seconds_embed=seconds_embed,
            notes=self.notes,
            temporary=temporary,
        )

    def _evaluate(self, last: bool, temporary: bool) -> dict[str, Any]:
        """Evaluate where it is time to, once more as the last time where the patience ends."""
        if self.evaluate is None or not (last or self.round % self.evaluate_every == 0):
            return {}
        metrics, patience = self.evaluate(last), self.patience
        if patience is None or temporary:
            return metrics
        patience.look(metrics, self.steps / self._full_round)
        if not patience.exhausted or last:
            return metrics
        self.notes += (patience.why(),)
        return self.evaluate(True)

    # -- state -------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return all a resumed run needs: networks, optimisers, weights, age, position, generators.

        Plain tensors, numbers, strings, lists and dicts only, so that it loads with
        `weights_only=True`.
        """
        # First: it refuses the state of a diverged network.
        loss_sum, gone = self.loss_reader.total(), self.discarded_steps
        where = {"round": self.round, "step": self.step, "steps": self.steps, "lr": self.lr}
        more = {"full_round": self._full_round, "step_ended": self._step_ended}
        return {
            **self.parts.state_dict(),
            "collected": self.collected.rows,
            "drawn_from": self.sampler.drawn_from(),
            "position": {**where, **more, "loss_sum": loss_sum, "discarded_steps": gone},
            "generators": generator_states(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take what `state_dict` returned: the next `train` goes on exactly there.

        Raises:
            CheckpointError: of another trainer, seed, P, K or labels; nothing is changed then.
        """
        with faults_named():
            self.sampler.check_drawn_from(state.get("drawn_from", {}))
        t = self.trainer
        check_trainer_state(state, t.optimizers, len(t.dataset), self._full_round)
        state = copy.deepcopy(state)  # an optimiser takes tensors over, and writes into them
        self.parts.load_state_dict(state)
        self.sampler.follow(state["drawn_from"])
        position = state["position"]
        self.round, self.step, self.steps = position["round"], position["step"], position["steps"]
        self.lr, self._step_ended = position.get("lr"), position.get("step_ended", True)  # may lack
        self.discarded_steps = position.get("discarded_steps", 0)  # once they counted
        self.loss_reader.restart(position["loss_sum"])
        self.collected.rows = state["collected"]
        self._resume_generators = state["generators"]
