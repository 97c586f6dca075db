"""The compared losses of pytorch-metric-learning, with the settings of [Zhang 2023]; and RDML."""

from __future__ import annotations

import math
from typing import Annotated

import torch
from pytorch_metric_learning import losses as pml_losses
from pytorch_metric_learning.distances import CosineSimilarity, LpDistance
from pytorch_metric_learning.regularizers import ZeroMeanRegularizer

from bspml.experiment.methods.parts import Method, MethodContext, MethodParts
from bspml.losses.miners.distance_weighted import DistanceWeightedMiner
from bspml.losses.rdml import RDMLLoss
from bspml.shapes import Tensor
from bspml.trainers.settings import Count, NotNegative, Positive, ReadBy, key

RDML_ETAS = (0.5, 1.0, 2.0, 3.0, 4.0)  # the grid of [Zhang 2023]
_BY_LEARNED = ReadBy("learn_beta", (True,))


class Contrastive(Method):
    """Hinges of cosine similarities."""

    name, title, source = "contrastive", "Contrastive", "[Hadsell 2006]"
    says = "pull positives to similarity 1, push negatives to 0"

    pos_margin: float = key(1.0, "similarity below which positives pull", printed=True)
    neg_margin: float = key(0.0, "similarity above which negatives push", printed=True)

    def make(self, context: MethodContext) -> MethodParts:
        """Build the loss over all pairs of a batch."""
        loss = pml_losses.ContrastiveLoss(
            pos_margin=self.pos_margin, neg_margin=self.neg_margin, distance=CosineSimilarity()
        )
        note = (
            "contrastive: margins are cosine similarities; as distances, the printed 1 and 0 would "
            "make the negative term 0 for every pair"
        )
        return MethodParts(self.name, loss, notes=(note,))


class SNR(Method):
    """Hinges of the variance of a pair's difference over that of its anchor."""

    name, title, source = "snr", "SNR", "[Yuan 2019]"
    says = "contrastive, on the variance of the difference over the anchor's"

    pos_margin: float = key(0.0, "SNR distance above which positives pull")
    neg_margin: float = key(2.0, "SNR distance below which negatives push")
    zero_mean_weight: NotNegative = key(0.0, "weight of the zero-mean regulariser")

    def make(self, context: MethodContext) -> MethodParts:
        """Build the loss over all pairs of a batch."""
        loss = pml_losses.SignalToNoiseRatioContrastiveLoss(
            pos_margin=self.pos_margin,
            neg_margin=self.neg_margin,
            embedding_regularizer=ZeroMeanRegularizer() if self.zero_mean_weight > 0 else None,
            embedding_reg_weight=self.zero_mean_weight,
        )
        note = (
            "snr: [Zhang 2023] prints the margins 1 and 0, which as SNR distances d >= 0 would "
            "make the negative term 0 for every pair; read as margins of the similarity 1 - d/2 "
            "(the cosine, for centred embeddings) they are the distances 0 and 2 used here"
        )
        return MethodParts(self.name, loss, notes=(note,))


class TripletSmooth(Method):
    """Softplus of the difference of an anchor's two distances."""

    name, title, source = "triplet-smooth", "Triplet smooth", "[Hermans 2017]"
    says = "softplus of the difference of distances, all triplets"

    margin: float = key(0.0, "added to the difference of distances")

    def make(self, context: MethodContext) -> MethodParts:
        """Build the loss over all triplets of a batch."""
        loss = pml_losses.TripletMarginLoss(margin=self.margin, smooth_loss=True)
        note = (
            "triplet-smooth: all triplets of the batch; its margin is not printed in [Zhang 2023], "
            "0 is the soft margin of [Hermans 2017]"
        )
        return MethodParts(self.name, loss, notes=(note,))


class Margin(Method):
    """Hinges on either side of a boundary distance."""

    name, title, source = "margin", "Margin", "[Wu 2017]"
    says = "pairs on either side of a boundary, distance-weighted negatives"

    alpha: NotNegative = key(0.2, "margin on both sides of the boundary", printed=True)
    beta: Positive = key(1.2, "boundary distance, beta(0)", printed=True)
    nu: Annotated[NotNegative, _BY_LEARNED] = key(
        0.0, "weight of the boundary's regulariser, where it is learned"
    )
    learn_beta: bool = key(False, "learn the boundary")
    beta_per_class: Annotated[bool, _BY_LEARNED] = key(
        False, "a boundary for each class; printed: beta(class) = 0"
    )
    cutoff: Positive = key(0.5, "distances below count as this one when drawing negatives")

    def make(self, context: MethodContext) -> MethodParts:
        """Build the loss with the miner that draws its negatives."""
        loss = pml_losses.MarginLoss(
            margin=self.alpha,
            nu=self.nu,
            beta=self.beta,
            learn_beta=self.learn_beta,
            num_classes=context.num_classes if self.beta_per_class else None,
        )
        reach = self.alpha + self.beta  # negatives beyond have no loss
        miner = DistanceWeightedMiner(
            cutoff=self.cutoff, nonzero_loss_cutoff=reach, seed=context.seed
        )
        note = (
            f"margin: distance-weighted sampling of negatives nearer than alpha + beta = {reach:g}"
            "; an anchor without one gets no triplet, so its positives do not pull either"
        )
        return MethodParts(
            self.name, loss, miner, loss_has_parameters=self.learn_beta, notes=(note,)
        )


class FastAP(Method):
    """One minus average precision, by soft histograms."""

    name, title, source = "fast-ap", "FastAP", "[Cakir 2019]"
    says = "one minus average precision, by soft histograms of distances"

    num_bins: Count = key(10, "bins of the histograms", printed=True)

    def make(self, context: MethodContext) -> MethodParts:
        """Build the loss over all samples of a batch."""
        return MethodParts(self.name, pml_losses.FastAPLoss(num_bins=self.num_bins))


class RDML(Method):
    """Triplets under a rescaled, bounded hinge."""

    name, title, source = "rdml", "RDML", "[Al-Obaidi 2020]"
    says = "triplets under a rescaled, bounded hinge"

    eta: NotNegative = key(1.0, "bend of the hinge; 0.5, 1, 2, 3 or 4 in the paper")
    margin: float = key(1.0, "margin of the hinge")
    power: Count = key(2, "of the Euclidean distance; 2 is the Mahalanobis form's")

    def make(self, context: MethodContext) -> MethodParts:
        """Build the loss over all triplets of a batch."""
        distance = LpDistance(power=self.power)
        loss = RDMLLoss(eta=self.eta, margin=self.margin, distance=distance)
        note = (
            f"rdml: [Zhang 2023] selects eta from {', '.join(f'{eta:g}' for eta in RDML_ETAS)} and "
            f"does not say which; eta = {self.eta:g} here"
        )
        return MethodParts(self.name, loss, notes=(note,))


class ProxyAnchor(Method):
    """A learned proxy for each class, against all samples of the batch."""

    name, title, source = "proxy-anchor", "Proxy-Anchor", "[Kim 2020]"
    says = "a learned proxy for each class, against all samples"
    unwrappable = "its values belong to proxies, each a log-sum over all samples of the batch"

    alpha: Positive = key(32.0, "scale of the exponents", printed=True)
    delta: float = key(0.1, "margin, a cosine similarity", printed=True)
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
