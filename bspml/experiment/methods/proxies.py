"""Losses of pytorch-metric-learning that learn a vector for each class."""

from __future__ import annotations

import math

import torch
from pytorch_metric_learning import losses as pml_losses

from bspml.experiment.methods.parts import Method, MethodContext, MethodParts
from bspml.shapes import Tensor
from bspml.trainers.settings import NotNegative, Number, Positive, key


class ProxyAnchor(Method):
    """A learned proxy for each class, against all samples of the batch."""

    name, title, source = "proxy-anchor", "Proxy-Anchor", "[Kim 2020]"
    says = "a learned proxy for each class, against all samples"
    unwrappable = "its values belong to proxies, each a log-sum over all samples of the batch"

    alpha: Positive = key(32.0, "scale of the exponents", printed=True)
    delta: Number = key(0.1, "margin, a cosine similarity", printed=True)
    proxy_lr_factor: Positive = key(100.0, "learning rate of the proxies over the network's")

    def make(self, context: MethodContext) -> MethodParts:
        """Build the loss, whose proxies need an optimiser of their own."""
        loss = pml_losses.ProxyAnchorLoss(
            context.num_classes,
            context.embedding_size,
            margin=self.delta,
            alpha=self.alpha,
            weight_init_func=SeededNormal(context.seed),
        )
        factor = self.proxy_lr_factor
        note = (
            f"proxy-anchor: the proxies learn at {factor:g} times the network's rate; [Kim 2020] "
            "takes 100, [Zhang 2023] prints one rate for all"
        )
        return MethodParts(
            self.name, loss, loss_has_parameters=True, loss_lr_factor=factor, notes=(note,)
        )


class SeededNormal:
    """Fill proxies (C, D) in place from N(0, 2 / C), without torch's global generator.

    The spread is Kaiming's for fan-out, as [Kim 2020] has it; cosines do not depend on it, the
    speed at which a proxy turns does.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    @torch.no_grad()
    def __call__(self, proxies: Tensor) -> None:
        """Fill `proxies`."""
        generator = torch.Generator().manual_seed(self.seed)
        drawn = torch.randn(proxies.shape, generator=generator, dtype=torch.float64)
        proxies.copy_(drawn * math.sqrt(2 / len(proxies)))


class ArcFace(Method):
    """A softmax over the classes, with a margin on the angle to the own one."""

    name, title, source = "arcface", "ArcFace", "[Deng 2019]"
    says = "softmax over learned classes, with a margin on the angle"

    margin: NotNegative = key(28.6, "added to the angle to the own class, in degrees")
    scale: Positive = key(64.0, "of the cosines")
    class_lr_factor: Positive = key(100.0, "learning rate of the classes over the network's")

    def make(self, context: MethodContext) -> MethodParts:
        """Build the loss, whose class vectors need an optimiser of their own."""
        loss = pml_losses.ArcFaceLoss(
            context.num_classes,
            context.embedding_size,
            margin=self.margin,
            scale=self.scale,
            weight_init_func=SeededNormal(context.seed),
        )
        return MethodParts(
            self.name, loss, loss_has_parameters=True, loss_lr_factor=self.class_lr_factor
        )
