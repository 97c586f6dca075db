"""The threshold tau of SuperLoss [Castells 2020]: which losses are easy, which are hard.

A loss below tau raises the confidence of its sample above 1, one above tau lowers it.  tau is a
constant, the mean of all losses seen so far, or their exponential average.

    losses (n,)  ->  sum, count (all ranks)  ->  total, count | average (buffers)  ->  tau (0-d)

Everything stays on the device of the losses: the count is compared there, never in Python.
"""

from __future__ import annotations

import math

import torch

from bspml.distributed.group import ranks
from bspml.distributed.rows import add_over_ranks, copy_of_main
from bspml.errors import InputError
from bspml.shapes import Tensor
from bspml.tensors.checks import check_number
from bspml.tensors.kernels.device import by_kernel, kernel, runs_triton
from bspml.tensors.precision import KeepsDigits

MODES = ("ema", "mean")
MOMENTUM = 0.9  # by default


class RunningTau(KeepsDigits):
    """tau as a function of the losses seen in train mode.

    - a number: that constant, e.g. log C for a cross-entropy over C classes;
    - "mean": the mean of all losses so far, exact for any number of them: the sums are float64
      with a correction (Neumaier's) for what each addition rounds away;
    - "ema": the mean of the first batch, then  momentum tau + (1 - momentum) mean(batch).

    A batch that is not finite, or empty, leaves tau as it is.  In eval mode nothing changes;
    before the first batch eval mode uses the mean of the batch at hand and does not keep it.

    With an initialised `torch.distributed` group the sums of all ranks are added, so tau is the
    same on each: every rank must call `update` equally often, with an empty tensor if need be.
    Unless `joint_batches` says that each rank already sees the batch of all.

    Args:
        tau: a finite number, "mean" or "ema".
        momentum: share of the old average kept by "ema", in [0, 1); another `tau` has none.

    Attributes:
        average: 0-d float64 buffer, the exponential average.
        total: 0-d float64 buffer, the sum of all losses (weighted), and
        correction: what its additions rounded away.
        count: 0-d float64 buffer, the number (total weight) of losses seen; 0: none yet.
        joint_batches: every rank calls `update` with the losses of all ranks; False.

    Raises:
        InputError: another word, or a number out of range.

    Example:
        >>> tau = RunningTau("ema")
        >>> [round(float(tau.update(torch.tensor(x))), 4) for x in ([2., 4.], [5., 7.])]
        [3.0, 3.3]
    """

    average: Tensor
    total: Tensor
    correction: Tensor
    count: Tensor

    def __init__(self, tau: float | int | str = "ema", momentum: float | int = MOMENTUM) -> None:
        super().__init__()
        if isinstance(tau, str) and tau not in MODES:
            raise InputError(f"`tau` must be a number, {' or '.join(MODES)}; got {tau!r}.")
        self.joint_batches = False
        self.mode = tau if isinstance(tau, str) else "constant"
        unread = "" if self.mode == "ema" else f"`tau` is {tau!r}"
        self.momentum = check_momentum(momentum, unread=unread)
        constant = 0.0 if isinstance(tau, str) else check_number(tau, "tau")
        self.register_buffer("average", torch.tensor(constant, dtype=torch.float64))
        for name in ("total", "correction", "count"):
            self.register_buffer(name, torch.zeros((), dtype=torch.float64))

    @property
    def value(self) -> Tensor:
        """tau as it stands, 0-d float64; NaN before the first batch."""
        if self.mode == "constant":
            return self.average.clone()
        now = self.average
        if self.mode == "mean":
            now = (self.total + self.correction) / self.count
        return torch.where(self.count > 0, now, math.nan)

    def __float__(self) -> float:
        return float(self.value)

    @torch.no_grad()
    def update(self, losses: Tensor, weights: Tensor | None = None) -> Tensor:
        """Learn from a batch (in train mode), then return the tau to use for it.

        Args:
            losses: (n,) any shape; their gradient is not followed.
            weights: like `losses`, how much each counts, at least 0; None: one each.

        Returns:
            0-d float64 tensor on the device of `losses`; 0 if no finite batch was ever seen.
        """
        if self.mode == "constant":
            return self.average.to(losses.device)
        if self.count.device != losses.device:
            self.to(losses.device)
        batch, number = self._sum_and_count(losses.detach(), weights)
        if self.training and ranks() > 1:
            # The ranks may sum a joint batch in another order: its last digits would drift apart.
            one_of = copy_of_main if self.joint_batches else add_over_ranks
            batch, number = one_of(_both(batch, number)), None
        if runs_triton(batch, self.count):
            return by_kernel(self._step_in_one_launch, self._step, batch, number)
        return self._step(batch, number)

    def _sum_and_count(self, losses: Tensor, weights: Tensor | None) -> tuple[Tensor, float | None]:
        """The sum of w l, float64, and that of w: beside it, (2,), or as a number if all are 1."""
        if weights is None:
            return losses.sum(dtype=self.count.dtype), float(losses.numel())
        losses = losses.flatten().to(self.count.dtype)
        weights = weights.detach().flatten().to(losses)
        return torch.stack([(weights * losses).sum(), weights.sum()]), None

    def _step(self, batch: Tensor, number: float | None) -> Tensor:
        """Learn, and return tau."""
        total, count = _both(batch, number).unbind()
        counts = torch.isfinite(total) & (count > 0)
        mean = total / torch.where(count > 0, count, 1)
        if self.training:
            self._learn(total, count, mean, counts)
        # A first batch of NaN gives a loss of NaN, not a complaint about tau.
        return torch.where(self.count > 0, self.value, torch.where(counts, mean, 0.0))

    def _step_in_one_launch(self, batch: Tensor, number: float | None) -> Tensor:
        """`_step` on CUDA."""
        return kernel("tau_triton.learn")(
            batch,
            number,
            (self.average, self.total, self.correction, self.count),
            self.momentum,
            self.mode == "ema",
            self.training,
        )

    def _learn(self, total: Tensor, count: Tensor, mean: Tensor, counts: Tensor) -> None:
        """Move the buffers in place, by nothing where the batch does not count."""
        factor = self.momentum * (self.count > 0).to(mean)
        moved = factor * self.average + (1 - factor) * mean
        self.average.copy_(torch.where(counts, moved, self.average))
        addend = torch.where(counts, total, 0.0)
        summed = self.total + addend
        larger = self.total.abs() >= addend.abs()
        lost = torch.where(larger, (self.total - summed) + addend, (addend - summed) + self.total)
        self.total.copy_(summed)
        self.correction.add_(lost)
        self.count.add_(torch.where(counts, count, 0.0))

    def extra_repr(self) -> str:
        """Mode, for `print(loss)`."""
        return self.mode if self.mode != "ema" else f"ema, momentum={self.momentum:g}"


def _both(batch: Tensor, number: float | None) -> Tensor:
    """(2,) the sum and the count."""
    return batch if number is None else torch.stack([batch, torch.full_like(batch, number)])


def check_momentum(momentum: float | int, name: str = "momentum", unread: str = "") -> float:
    """Return a share of the old average to keep, in [0, 1), or refuse it.

    Args:
        momentum: as given.
        name: the caller's argument.
        unread: why there is no average, where there is none: then only the default may stand.
    """
    momentum = check_number(momentum, name, low=0.0, high=1.0)
    if momentum == 1:
        raise InputError(f"`{name}` must be in [0, 1); got 1, which would never learn.")
    if unread and momentum != MOMENTUM:
        why = f"is {momentum:g}, but nothing reads it while {unread}"
        raise InputError(f"`{name}` {why}. Leave it out.")
    return momentum
