"""The training loop: one pass over the data an epoch, in a state that can be saved at any step.

Everything random is a function of the seed and the position: the order of an epoch, and what
augmentation and dropout do in a step.  So a checkpoint holds the position, not a generator, and a
run that goes on repeats the bits of one that was never stopped (on the same machine and threads).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from bspml.errors import CheckpointError, RunError
from bspml.experiment.build import make_optimizer, make_schedule
from bspml.experiment.classification.losses import SampleLoss
from bspml.experiment.config import ClassificationConfig
from bspml.files.checkpoints import State
from bspml.networks.by_name import seeded
from bspml.shapes import Tensor
from bspml.trainers.state import check_position, faults_named

_PAD = 4  # pixels on every side before the random crop, as in [He 2016] and the papers here

# What a generator is for.  Not 0: numpy takes [seed, 0, 0, 0] for the seed alone, whose permutation
# also decides who gets a wrong label, and all of those would come first in the first epoch.
_ORDER, _STEP = 1, 2

OnStep = Callable[[int, int, float], None]


@dataclass(frozen=True)
class Epoch:
    """A finished epoch.

    Attributes:
        epoch: how many are done.
        steps: optimiser steps done.
        loss: mean over the samples of this epoch.
        seconds: wall time of its steps, those before an interruption left out.
    """

    epoch: int
    steps: int
    loss: float
    seconds: float


class Trainer:
    """Trains `network` on the images with `targets`.

    Args:
        config: the experiment.
        network: on its device; maps images in [0, 1] to outputs.
        loss: of a sample.
        images: (N, channels, H, W) uint8.
        targets: (N,).

    Attributes:
        epoch: epochs done.
        step: steps done in the current one.
    """

    def __init__(
        self,
        config: ClassificationConfig,
        network: nn.Module,
        loss: SampleLoss,
        images: Tensor,
        targets: Tensor,
    ) -> None:
        self.config, self.network, self.loss = config, network, loss
        self.device = next(network.parameters()).device
        # Small enough to lie where they are used; a copy to the device a step would take longer.
        self.images, self.targets = images.to(self.device), targets.to(self.device)
        self.loss.to(self.device)
        self.optimizer = make_optimizer(config, network)
        self.rates = [group["lr"] for group in self.optimizer.param_groups]
        self.schedule = make_schedule(config, config.training.epochs * self.steps_per_epoch)
        self.epoch = self.step = 0
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=self.device)

    @property
    def steps_per_epoch(self) -> int:
        """Batches of nearly equal size: none has a single sample, which cannot be normalised."""
        return math.ceil(len(self.images) / self.config.training.batch_size)

    @property
    def steps(self) -> int:
        """Optimiser steps done."""
        return self.epoch * self.steps_per_epoch + self.step

    def is_trained(self, epochs: int) -> bool:
        """Say whether so many epochs are done."""
        return self.epoch >= epochs

    def train_epoch(self, on_step: OnStep | None = None) -> Epoch:
        """Train to the end of the current epoch.

        Args:
            on_step: told the step, how many there are, and the batch's mean loss.

        Raises:
            RunError: the loss became NaN or infinite.
        """
        started = time.perf_counter()
        self.network.train()
        self.loss.train()
        self.loss.epoch = self.epoch
        order = torch.from_numpy(self._generator(_ORDER).permutation(len(self.images)))
        batches = order.tensor_split(self.steps_per_epoch)
        while self.step < len(batches):
            rows = batches[self.step].to(self.device)
            mean = self._train_batch(rows)
            self.loss_sum += mean.double() * len(rows)
            self.step += 1
            if on_step is not None:
                on_step(self.step, len(batches), float(mean))
        loss = float(self.loss_sum) / len(self.images)
        if not math.isfinite(loss):
            raise RunError(
                f"the loss of epoch {self.epoch + 1} is {loss}: the training diverged. Lower "
                "`optimizer.lr`, or the beta of gr or T of imae, which scale the gradient by up to "
                "their exponential."
            )
        self.epoch, self.step = self.epoch + 1, 0
        self.loss_sum.zero_()
        return Epoch(self.epoch, self.steps, loss, time.perf_counter() - started)

    def _train_batch(self, rows: Tensor) -> Tensor:
        draw = self._generator(_STEP, self.step)
        for group, lr in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = lr * self.schedule(self.steps)
        images = self.images[rows].float() / 255
        if self.config.data.augment:
            images = crop_and_mirror(images, draw)
        self.optimizer.zero_grad(set_to_none=True)
        with seeded(int(draw.integers(2**63)), self.device):  # dropout draws from the global ones
            loss = self.loss(self.network(images), self.targets[rows]).mean()
        loss.backward()
        if self.config.optimizer.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.network.parameters(), self.config.optimizer.clip_norm)
        self.optimizer.step()
        return loss.detach()

    def _generator(self, use: int, step: int = 0) -> np.random.Generator:
        return np.random.default_rng([self.config.seed, self.epoch, use, step])

    # -- state -------------------------------------------------------------------------------

    def state_dict(self) -> State:
        """Everything needed to go on from here."""
        return {
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "loss": self.loss.state_dict(),
            "position": {
                "round": self.epoch,
                "step": self.step,
                "loss_sum": float(self.loss_sum),
                "full_round": self.steps_per_epoch,
            },
        }

    def load_state_dict(self, state: State) -> None:
        """Go to where `state` was saved.

        Raises:
            CheckpointError: it is not the state of such a training.
        """
        position = state.get("position")
        if not isinstance(position, dict) or type(position.get("round")) is not int:
            raise CheckpointError(
                "holds no position of a classification training. Start the run anew."
            )
        with faults_named():
            full, done = self.steps_per_epoch, position["round"]
            steps = done * full + position["step"]
            check_position({**position, "steps": steps}, full, "epoch")
            self.network.load_state_dict(state["network"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.loss.load_state_dict(state["loss"])
            self.epoch, self.step = position["round"], position["step"]
            self.loss.epoch = max(0, self.epoch - (self.step == 0))  # the last one trained in
            self.loss_sum.fill_(position["loss_sum"])


def crop_and_mirror(images: Tensor, draw: np.random.Generator) -> Tensor:
    """Pad images by 4 pixels of 0, crop each at random, mirror half of them.

    The augmentation of [He 2016] that both [Wang GR 2019] and [Wang IMAE 2019] use.

    Args:
        images: (B, channels, H, W).
        draw: what is random.

    Returns:
        (B, channels, H, W).
    """
    n, _, height, width = images.shape
    top, left = (torch.from_numpy(draw.integers(0, 2 * _PAD + 1, (2, n)))).to(images.device)
    mirrored = torch.from_numpy(draw.random(n) < 0.5).to(images.device)
    padded = nn.functional.pad(images, (_PAD,) * 4)
    rows = top[:, None] + torch.arange(height, device=images.device)  # (B, H)
    across = torch.arange(width, device=images.device).expand(n, width)
    columns = left[:, None] + torch.where(mirrored[:, None], width - 1 - across, across)
    which = torch.arange(n, device=images.device)[:, None, None]
    # Advanced indices around a slice: the channels come last.
    return padded[which, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
