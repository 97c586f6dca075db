"""One optimiser step of pytorch-metric-learning's trainer, for less memory and less waiting.

    loader (pinned, prefetching) -> batch (B, ...) -> k parts of whole classes
      each part: network in bfloat16, channels last -> embeddings in float32 -> miner, loss
                 -> backward of loss / k, scaled for float16
      -> gradients of all ranks, unscaled, clipped -> optimisers

What is asked for here changes how a step is computed, not what `bspml.trainers.alternating` does
around it.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from pytorch_metric_learning.trainers import MetricLossOnly
from pytorch_metric_learning.utils import common_functions as c_f
from torch import Tensor

from bspml.errors import InputError
from bspml.tensors.arguments import check_flags
from bspml.tensors.checks import check_choice, check_number, check_whole

_HALVES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
PRECISIONS = ("float32", *_HALVES)


class StepTrainer(MetricLossOnly):
    """`MetricLossOnly` with gradient accumulation, mixed precision and a faster loader.

    With the defaults on a CPU its steps are the parent's, bit for bit.

    Args:
        *args: of the parent.
        micro_batches: k; each batch is computed in k parts of B/k consecutive rows, so that only
            one part's activations are held.  The gradient is the mean of the parts' gradients.
            Mining and loss see one part at a time: P/k of the P classes, if the batch is sorted by
            class as `PKSampler`'s is.  So does batch normalisation.  A loss with a state of its own
            (SuperLoss's tau, a memory) meets each part as a batch.
        precision: "float32"; "bfloat16" or "float16": the network runs under autocast; embeddings,
            mining and loss stay in float32.  bfloat16 has float32's range; for float16 gradients
            are scaled (`torch.amp.GradScaler`), a step whose gradients overflow is left out, and
            each step waits for the device to know.  Only where the device has no bfloat16.
        clip_norm: the gradient of each optimiser's parameters is shortened to this norm, after all
            micro-batches and ranks, and after it was unscaled; None leaves it.
        channels_last: pictures (B, C, H, W) and the network's weights are laid out channel by
            channel, which convolutions of accelerators and of most CPUs take faster.
        prefetch: batches each loader worker prepares ahead; without workers nothing is.
        **kwargs: of the parent.

    On a CUDA device batches are collected in pinned memory and copied while the device computes;
    no part of a step of ours waits for it.  Items may lie on the device already, without workers.

    Raises:
        InputError: a setting out of range, clippers of the caller's own that would see scaled
            gradients, or, at the first step, a batch that has no k equal parts.
    """

    data_device: Any
    gradient_clippers: Any
    dataloader_iter: Any
    iterations_per_epoch: Any

    def __init__(
        self,
        *args: Any,
        micro_batches: int = 1,
        precision: str = "float32",
        channels_last: bool = False,
        prefetch: int = 2,
        clip_norm: float | None = None,
        **kwargs: Any,
    ) -> None:
        check_flags(channels_last=channels_last)
        self.micro_batches = check_whole(micro_batches, "micro_batches")
        self.precision = check_choice(precision, "precision", PRECISIONS)
        self.channels_last = channels_last
        self.prefetch = check_whole(prefetch, "prefetch")
        if clip_norm is not None:
            check_number(clip_norm, "clip_norm", 0, open_low=True)
        self.clip_norm = clip_norm
        super().__init__(*args, **kwargs)
        is_scaled = precision == "float16"
        if is_scaled and self.gradient_clippers:
            raise InputError(
                "`gradient_clippers` would see the scaled gradients of float16. Pass `clip_norm`, "
                "or take bfloat16."
            )
        self.scaler = torch.amp.GradScaler(torch.device(self.data_device).type, enabled=is_scaled)
        if channels_last:
            for model in self.models.values():
                model.to(memory_format=torch.channels_last)

    @property
    def _on_cuda(self) -> bool:
        return torch.device(self.data_device).type == "cuda"

    # -- accumulation ------------------------------------------------------------------------

    def forward_and_backward(self) -> None:
        """Take one optimiser step."""
        if self.micro_batches == 1:
            super().forward_and_backward()
            return
        self.zero_losses()
        self.zero_grad()
        self.update_loss_weights()
        sums: dict[str, Tensor] = {}
        for part in self._micro_batches(self._next_batch()):
            self.zero_losses()
            self.calculate_loss(self._prepared(part))
            self.loss_tracker.update(self.loss_weights)
            share = self.losses["total_loss"] / self.micro_batches
            self.scaler.scale(share).backward()
            for name, loss in self.losses.items():
                sums[name] = sums.get(name, 0) + torch.as_tensor(loss).detach() / self.micro_batches
        self.losses.update(sums)
        self.clip_gradients()
        self.step_optimizers()

    def backward(self) -> None:
        """Compute the gradients, scaled for float16."""
        self.scaler.scale(self.losses["total_loss"]).backward()

    def clip_gradients(self) -> None:
        """Add up the ranks' gradients, which comes first among the clippers, then clip."""
        super().clip_gradients()
        if self.clip_norm is None:
            return
        for optimizer in self._stepped():
            self.scaler.unscale_(optimizer)
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            torch.nn.utils.clip_grad_norm_(parameters, self.clip_norm)

    def step_optimizers(self) -> None:
        """Step every optimiser; with float16 only where its gradients are finite."""
        if not self.scaler.is_enabled():
            super().step_optimizers()
            return
        for optimizer in self._stepped():
            self.scaler.step(optimizer)
        self.scaler.update()

    def _stepped(self) -> list[torch.optim.Optimizer]:
        """Return the optimisers that have a gradient and are not frozen."""
        return [
            optimizer
            for name, optimizer in self.optimizers.items()
            if name.removesuffix("_optimizer") not in self.freeze_these
            and any(p.grad is not None for g in optimizer.param_groups for p in g["params"])
        ]

    def step_lr_schedulers(self, end_of_epoch: bool = False) -> None:
        """Step the schedulers, also where the scaler left the first step out."""
        with warnings.catch_warnings():
            if self.scaler.is_enabled():
                warnings.filterwarnings("ignore", "Detected call of `lr_scheduler.step")
            super().step_lr_schedulers(end_of_epoch)

    def get_batch(self) -> tuple[Any, Any]:
        """Return the next batch, as the parent does, with its labels on the device."""
        return self._prepared(self._next_batch())

    def _next_batch(self) -> Any:
        self.dataloader_iter, batch = c_f.try_next_on_generator(
            self.dataloader_iter, self.dataloader
        )
        if self._on_cuda and isinstance(batch, list | tuple):
            return [_pinned(part) for part in batch]
        return batch

    def _micro_batches(self, batch: Any) -> list[tuple[Tensor, ...]]:
        """Cut each tensor of a batch into `micro_batches` equal parts."""
        rows, k = len(batch[0]), self.micro_batches
        if rows % k:
            raise InputError(
                f"`micro_batches` must divide the batch of {rows} rows; got {k}. "
                "Let it divide the classes per batch."
            )
        return list(zip(*(torch.as_tensor(part).split(rows // k) for part in batch), strict=True))

    def _prepared(self, part: Any) -> tuple[Any, Any]:
        """Do what the parent's `get_batch` does; the getter announces this part's rows."""
        data, labels = self.data_and_label_getter(part)
        labels = c_f.process_label(labels, self.label_hierarchy_level, self.label_mapper)
        if self._on_cuda and isinstance(labels, Tensor):
            # They come back from numpy.  torch does not know a part of a pinned batch as its own
            # then, and would hand the memory to the next batch while this one is being copied.
            own = torch.empty_like(labels, pin_memory=True).copy_(labels)
            labels = own.to(self.data_device, non_blocking=True)
        return self.maybe_do_batch_mining(data, labels)

    # -- precision and layout ----------------------------------------------------------------

    def compute_embeddings(self, data: Any) -> Tensor:
        """Return (B, D), float32 whatever the network computed in."""
        half = _HALVES.get(self.precision)
        if half is None:
            return super().compute_embeddings(data)
        with torch.autocast(torch.device(self.data_device).type, dtype=half):
            embeddings = super().compute_embeddings(data)
        return embeddings.float()

    def get_trunk_output(self, data: Any) -> Any:
        """Return what the trunk makes of a batch, moved to its device without waiting."""
        if isinstance(data, Tensor):
            pinned = self._on_cuda and data.is_pinned()
            data = data.to(self.data_device, non_blocking=pinned)
            if self.channels_last and data.ndim == 4:
                data = data.contiguous(memory_format=torch.channels_last)
        return super().get_trunk_output(data)

    # -- the loader --------------------------------------------------------------------------

    def initialize_dataloader(self) -> None:
        """Make the parent's loader, pinned on CUDA and `prefetch` batches ahead with workers."""
        loader = c_f.get_train_dataloader(
            self.dataset,
            self.batch_size,
            self.sampler,
            self.dataloader_num_workers,
            self.collate_fn,
        )
        # Not settings of the parent's; a loader reads them when it starts.
        # Without workers `_next_batch` pins, who leaves alone what is on the device already.
        loader.pin_memory = self._on_cuda and self.dataloader_num_workers > 0
        if self.dataloader_num_workers:
            loader.prefetch_factor = self.prefetch
        self.dataloader = loader
        if not self.iterations_per_epoch:
            self.iterations_per_epoch = len(loader)
        self.dataloader_iter = iter(loader)


def _pinned(part: Any) -> Any:
    """Copy a CPU tensor to pinned memory, unless it lies there; return anything else as it is."""
    return part.pin_memory() if isinstance(part, Tensor) and part.device.type == "cpu" else part
