"""The compared losses of pytorch-metric-learning, with the settings of [Zhang 2023]; and RDML."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from pytorch_metric_learning import losses as pml_losses
from pytorch_metric_learning.distances import CosineSimilarity, LpDistance
from pytorch_metric_learning.regularizers import ZeroMeanRegularizer

from bspml.experiment.methods.parts import Method, MethodContext, MethodParts
from bspml.losses.miners.distance_weighted import DistanceWeightedMiner
from bspml.losses.rdml import RDMLLoss
from bspml.trainers.settings import NotNegative, Number, Positive, ReadBy, key

RDML_ETAS = (0.5, 1.0, 2.0, 3.0, 4.0)  # the grid of [Zhang 2023]
_BY_LEARNED = ReadBy("learn_beta", (True,))


class Contrastive(Method):
    """Hinges of the distances of normalised embeddings."""

    name, title, source = "contrastive", "Contrastive", "[Hadsell 2006]"
    says = "pull positives together, push negatives beyond a distance"

    pos_margin: Number = key(0.0, "distance above which positives pull")
    neg_margin: Number = key(1.0, "distance below which negatives push")

    def make(self, context: MethodContext) -> MethodParts:
        """Build the loss over all pairs of a batch."""
        loss = pml_losses.ContrastiveLoss(pos_margin=self.pos_margin, neg_margin=self.neg_margin)
        return MethodParts(self.name, loss)


class ContrastivePaper(Method):
    """Hinges of cosine similarities, with the printed margins."""

    name, title, source = "contrastive-paper", "Contrastive (cosine)", "[Hadsell 2006]"
    says = "pull positives to similarity 1, push negatives to 0"

    pos_margin: Number = key(1.0, "similarity below which positives pull", printed=True)
    neg_margin: Number = key(0.0, "similarity above which negatives push", printed=True)

    def make(self, context: MethodContext) -> MethodParts:
        """Build the loss over all pairs of a batch."""
        loss = pml_losses.ContrastiveLoss(
            pos_margin=self.pos_margin, neg_margin=self.neg_margin, distance=CosineSimilarity()
        )
        note = (
            f"{self.name}: margins are cosine similarities; as distances, the printed 1 and 0 would"
            " make the negative term 0 for every pair"
        )
        return MethodParts(self.name, loss, notes=(note,))


class SNR(Method):
    """Hinges of the variance of a pair's difference over that of its anchor."""

    name, title, source = "snr", "SNR", "[Yuan 2019]"
    says = "contrastive, on the variance of the difference over the anchor's"

    pos_margin: Number = key(0.0, "SNR distance above which positives pull")
    neg_margin: Number = key(2.0, "SNR distance below which negatives push")
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

    margin: Number = key(0.0, "added to the difference of distances")

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

    num_bins: Annotated[int, Field(ge=1, le=4096)] = key(10, "bins of the histograms", printed=True)

    def make(self, context: MethodContext) -> MethodParts:
        """Build the loss over all samples of a batch."""
        return MethodParts(self.name, pml_losses.FastAPLoss(num_bins=self.num_bins))


class RDML(Method):
    """Triplets under a rescaled, bounded hinge."""

    name, title, source = "rdml", "RDML", "[Al-Obaidi 2020]"
    says = "triplets under a rescaled, bounded hinge"

    eta: NotNegative = key(1.0, "bend of the hinge; 0.5, 1, 2, 3 or 4 in the paper")
    margin: Number = key(1.0, "margin of the hinge")
    power: Annotated[int, Field(ge=1, le=16)] = key(
        2, "of the Euclidean distance; 2 is the Mahalanobis form's"
    )

    def make(self, context: MethodContext) -> MethodParts:
        """Build the loss over all triplets of a batch."""
        distance = LpDistance(power=self.power)
        loss = RDMLLoss(eta=self.eta, margin=self.margin, distance=distance)
        note = (
            f"rdml: [Zhang 2023] selects eta from {', '.join(f'{eta:g}' for eta in RDML_ETAS)} and "
            f"does not say which; eta = {self.eta:g} here"
        )
        return MethodParts(self.name, loss, notes=(note,))


class SupCon(Method):
    """A softmax over the batch for each positive of an anchor, averaged over its positives."""

    name, title, source = "supcon", "SupCon", "[Khosla 2020]"
    says = "softmax over the batch, averaged over the positives"

    temperature: Positive = key(0.1, "cosines are divided by it")

    def make(self, context: MethodContext) -> MethodParts:
        """Build the loss over all pairs of a batch."""
        return MethodParts(self.name, pml_losses.SupConLoss(temperature=self.temperature))


class NTXent(Method):
    """A softmax of each positive pair against the anchor's negatives."""

    name, title, source = "ntxent", "NT-Xent", "[Chen 2020]"
    says = "softmax of each positive pair against the negatives"

    temperature: Positive = key(0.1, "cosines are divided by it")

    def make(self, context: MethodContext) -> MethodParts:
        """Build the loss over all pairs of a batch."""
        return MethodParts(self.name, pml_losses.NTXentLoss(temperature=self.temperature))


class Circle(Method):
    """Log-sums of pairs, each paced by how far it is from its goal."""

    name, title, source = "circle", "Circle", "[Sun 2020]"
    says = "log-sums over pairs, each paced by its distance to its goal"

    m: Number = key(0.4, "relaxation: positives shall reach 1 - m, negatives fall to m")
    gamma: Positive = key(80.0, "scale of the exponents")

    def make(self, context: MethodContext) -> MethodParts:
        """Build the loss over all pairs of a batch."""
        return MethodParts(self.name, pml_losses.CircleLoss(m=self.m, gamma=self.gamma))
