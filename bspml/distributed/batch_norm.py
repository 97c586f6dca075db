"""Batch normalisation over the whole batch of all ranks.

With statistics of its own part each rank would train another network than one process does.
torch's SyncBatchNorm exists for GPUs only; this one is for every device, and for parts of
different sizes:

    n = sum_r n_r,   mean = sum_r n_r mean_r / n,   var = sum_r n_r (var_r + (mean_r - mean)^2) / n
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from bspml.distributed.group import rank, ranks
from bspml.distributed.rows import add_over_ranks, gather_parts


def synchronize_batch_norm(network: nn.Module) -> int:
    """Have the batch normalisations of `network` use the statistics of all ranks, in place.

    Parameters, buffers, hooks and names stay as they are, so an optimiser made before, a
    checkpoint of another number of ranks, and layers frozen in evaluation mode keep working.  On
    GPUs `torch.nn.SyncBatchNorm.convert_sync_batchnorm` does the same with fused kernels.

    Returns:
        How many layers were changed; 0 without other ranks.
    """
    if ranks() == 1:
        return 0
    layers = [module for module in network.modules() if type(module) in _SYNCHRONIZED]
    for layer in layers:
        # The class is changed, not the object: whoever holds the layer holds the new one.
        layer.__class__ = _SYNCHRONIZED[type(layer)]
    return len(layers)


class _Synchronized:
    """Mixed into a batch normalisation: its statistics in train mode are those of all ranks."""

    def forward(self: Any, inputs: Tensor) -> Tensor:
        """Normalise as the layer itself, over the rows of all ranks; (n_r, C, ...), n_r >= 1."""
        if not (self.training or self.running_mean is None):
            return super().forward(inputs)  # type: ignore[misc]
        self._check_input_dim(inputs)
        half = inputs.dtype in (torch.float16, torch.bfloat16)
        values = inputs.float() if half else inputs
        mean, variance, count = _joint_statistics(values)
        if self.training and self.running_mean is not None:
            self._move_running_statistics(mean.detach(), variance.detach(), count)
        shape = (1, -1, *[1] * (inputs.ndim - 2))
        scale = torch.rsqrt(variance + self.eps)
        if self.weight is not None:
            scale = scale * self.weight
        normal = (values - mean.view(shape)) * scale.view(shape)
        if self.bias is not None:
            normal = normal + self.bias.view(shape)
        return normal.to(inputs.dtype)

    @torch.no_grad()
    def _move_running_statistics(self: Any, mean: Tensor, variance: Tensor, count: Tensor) -> None:
        """Move the running statistics, as the layer itself does."""
        self.num_batches_tracked.add_(1)
        step = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean), step)
        unbiased = variance * (count / (count - 1).clamp_min(1))
        self.running_var.lerp_(unbiased.to(self.running_var), step)


class SynchronizedBatchNorm1d(_Synchronized, nn.BatchNorm1d):
    """`torch.nn.BatchNorm1d` over the batch of all ranks."""


class SynchronizedBatchNorm2d(_Synchronized, nn.BatchNorm2d):
    """`torch.nn.BatchNorm2d` over the batch of all ranks."""


class SynchronizedBatchNorm3d(_Synchronized, nn.BatchNorm3d):
    """`torch.nn.BatchNorm3d` over the batch of all ranks."""


_SYNCHRONIZED: dict[type, type] = {
    nn.BatchNorm1d: SynchronizedBatchNorm1d,
    nn.BatchNorm2d: SynchronizedBatchNorm2d,
    nn.BatchNorm3d: SynchronizedBatchNorm3d,
}


def _joint_statistics(inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean and biased variance over all ranks, (C,) each, and their number of values, ().

    The counts travel with the statistics: one message a layer, and nothing to wait for.
    """
    over = [d for d in range(inputs.ndim) if d != 1]
    variance, mean = torch.var_mean(inputs, over, correction=0)  # (C,)
    own_count = torch.full_like(mean, inputs.numel() // max(inputs.shape[1], 1))
    everyone = _GatherStatistics.apply(torch.stack([mean, variance, own_count]))  # (W, 3, C)
    counts = everyone[:, 2, :1].detach()  # (W, 1)
    total = counts.sum()
    shares = counts / total
    joint_mean = (shares * everyone[:, 0]).sum(0)
    spread = everyone[:, 1] + (everyone[:, 0] - joint_mean) ** 2
    return joint_mean, (shares * spread).sum(0), total


class _GatherStatistics(torch.autograd.Function):
    """(...) of this rank -> (W, ...) of all; each rank's gradient comes back to it, added up."""

    @staticmethod
    def forward(ctx: Any, own: Tensor) -> Tensor:
        """Stack what each rank has."""
        return torch.stack(gather_parts(own, [len(own)] * ranks()))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        """Add up all ranks' gradients: every rank's loss depends on this rank's statistics."""
        return add_over_ranks(grad.contiguous().clone())[rank()]
