"""The loss of each sample, by name, and how much the loss trusts that sample's label.

A loss maps (outputs, targets) of a batch to one number a sample; their mean is minimised.  What a
robust loss does about a wrong label is to give its sample a small gradient.  Two figures say so:

- `weight`: as the papers define it, sigma* of SuperLoss [Castells 2020, eq. 10], in (0, e], or the
  L1 norm of the gradient at the logits of the others, g(beta p^lam (1 - p)) [Wang GR 2019, eq. 6];
- `trust`: the same in [0, 1], low only where the label is doubted: sigma* above 1 counts as 1, and
  p beyond the emphasis focus [Wang GR 2019, definition 1] counts as the focus.  Such samples have
  a small gradient because they are learnt, not because they are wrong.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional

from bspml.experiment.config.sample_loss import SampleLossConfig
from bspml.functional import (
    gce,
    gr_cross_entropy,
    gr_weight,
    imae,
    mae,
    superloss,
    superloss_confidence,
    truncated_gce,
)
from bspml.losses.reducers.tau import RunningTau
from bspml.shapes import Float, Tensor

_VALUE_LOSSES = ("mse", "smooth-l1")
_GRID = 10_001  # points of p at which the emphasis focus is looked for


class SampleLoss(nn.Module):
    """The loss that a configuration names, unreduced; the buffers of tau are its only state.

    Args:
        config: name and settings.
        num_classes: C, or 1 for a regression.

    Attributes:
        epoch: of the training, 0 the first; `truncated-gce` truncates after a few of them.
    """

    def __init__(self, config: SampleLossConfig, num_classes: int) -> None:
        super().__init__()
        self.config, self.epoch = config, 0
        if config.name == "superloss":
            tau = math.log(num_classes) if config.tau == "log-classes" else config.tau
            self.tau = RunningTau(tau, config.momentum)

    def forward(self, outputs: Tensor, targets: Tensor) -> Float[Tensor, " B"]:
        """Compute the loss of each sample.

        Args:
            outputs: (B, C) logits, or (B,) numbers of a regression.
            targets: (B,) classes, or numbers.

        Returns:
            (B,).
        """
        config = self.config
        match config.name:
            case "superloss":
                losses = plain_losses(self._base(outputs), outputs, targets)
                return superloss(losses, self.tau.update(losses), config.strength)
            case "mae":
                return mae(outputs, targets)
            case "gce":
                return gce(outputs, targets, config.q)
            case "truncated-gce":
                if self._truncates:
                    return truncated_gce(outputs, targets, config.q, config.k)
                return gce(outputs, targets, config.q)
            case "imae":
                return imae(outputs, targets, config.T)
            case "gr":
                return gr_cross_entropy(outputs, targets, config.beta, config.strength, config.g)
        return plain_losses(config.name, outputs, targets)

    @torch.no_grad()
    def weights(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the weight and the trust of each sample; see the head of this module.

        Args:
            outputs: (N, C) logits, or (N,) numbers of a regression.
            targets: (N,) classes, or numbers.

        Returns:
            (N,) weight, and (N,) trust in [0, 1].
        """
        if self.config.name == "superloss":
            losses = plain_losses(self._base(outputs), outputs, targets)
            tau = self.tau.value.to(losses)
            sigma = superloss_confidence(losses, tau, self.config.strength)
            return sigma, sigma.clamp(max=1)
        if outputs.ndim == 1:
            ones = torch.ones_like(outputs)
            return ones, ones
        p = functional.log_softmax(outputs.double(), 1).gather(1, targets[:, None])[:, 0].exp()
        grid = torch.linspace(0, 1, _GRID, dtype=p.dtype, device=p.device)
        curve = self._curve(grid)
        focus, most = grid[curve.argmax()], curve.max()
        # The true focus may lie between two points of the grid, and p with it.
        trust = (self._curve(p.minimum(focus)) / most).clamp(max=1)
        return self._curve(p).float(), trust.float()

    @torch.no_grad()
    def plain(self, outputs: Tensor, targets: Tensor) -> Float[Tensor, " N"]:
        """Compute cross-entropy, or the error of a regression, whatever this loss makes of it.

        Args:
            outputs: (N, C) logits, or (N,) numbers of a regression.
            targets: (N,) classes, or numbers.

        Returns:
            (N,).
        """
        return plain_losses(self._base(outputs), outputs, targets)

    def _base(self, outputs: Tensor) -> str:
        """The loss inside superloss; elsewhere the plain one of this kind of outputs."""
        if self.config.name in _VALUE_LOSSES:
            return self.config.name
        return self.config.base or ("ce" if outputs.ndim == 2 else "mse")

    def _curve(self, p: Tensor) -> Tensor:
        """The weight of a sample whose label has probability p, for the losses on logits."""
        config = self.config
        curves = {  # of `gr_weight`: beta, lam, g
            "mae": (4.0, 1.0, "identity"),
            "gce": (2.0, config.q, "identity"),
            "truncated-gce": (2.0, config.q, "identity"),
            "imae": (config.T, 1.0, "exp"),
            "gr": (config.beta, config.strength, config.g),
        }
        weight = gr_weight(p, *curves.get(config.name, (2.0, 0.0, "identity")))  # cross-entropy's
        return weight * (p > config.k) if self._truncates else weight

    @property
    def _truncates(self) -> bool:
        config = self.config
        return config.name == "truncated-gce" and self.epoch >= config.truncate_after


def plain_losses(name: str, outputs: Tensor, targets: Tensor) -> Float[Tensor, " B"]:
    """Compute a loss without any robustness, in float32 at least.

    Args:
        name: ce, mse or smooth-l1.
        outputs: (B, C) logits for ce, else (B,) numbers.
        targets: (B,) classes for ce, else numbers.

    Returns:
        (B,).

    Example:
        >>> plain_losses("mse", torch.tensor([1.0, 3.0]), torch.tensor([1.0, 1.0]))
        tensor([0., 4.])
    """
    if outputs.dtype != torch.float64:
        outputs = outputs.float()
    if name == "ce":
        return functional.cross_entropy(outputs, targets, reduction="none")
    assert name in _VALUE_LOSSES
    loss = functional.mse_loss if name == "mse" else functional.smooth_l1_loss
    return loss(outputs, targets.to(outputs), reduction="none")
