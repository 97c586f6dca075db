"""The compared losses that pytorch-metric-learning has, with the settings of [Zhang 2023]; RDML."""

from __future__ import annotations

import math

import torch
from pytorch_metric_learning import losses as pml_losses
from pytorch_metric_learning.distances import CosineSimilarity, LpDistance
from pytorch_metric_learning.regularizers import ZeroMeanRegularizer

from bspml.errors import InputError
from bspml.experiment.methods.hyper import at_least_0, flag, number, positive, whole
from bspml.experiment.methods.parts import Method, MethodContext, MethodParts, Values
from bspml.losses.miners.distance_weighted import DistanceWeightedMiner
from bspml.losses.rdml import RDMLLoss
from bspml.shapes import Tensor

RDML_ETAS = (0.5, 1.0, 2.0, 3.0, 4.0)  # the grid of [Zhang 2023]


def _contrastive(context: MethodContext, hyper: Values) -> MethodParts:
    loss = pml_losses.ContrastiveLoss(
        pos_margin=hyper["pos_margin"],
        neg_margin=hyper["neg_margin"],
        distance=CosineSimilarity(),
    )
    note = (
        "contrastive: margins are cosine similarities; as distances, the printed 1 and 0 would "
        "make the negative term 0 for every pair"
    )
    return MethodParts("contrastive", loss, notes=(note,))


def _snr(context: MethodContext, hyper: Values) -> MethodParts:
    regularizer = ZeroMeanRegularizer() if hyper["zero_mean_weight"] > 0 else None
    loss = pml_losses.SignalToNoiseRatioContrastiveLoss(
        pos_margin=hyper["pos_margin"],
        neg_margin=hyper["neg_margin"],
        embedding_regularizer=regularizer,
        embedding_reg_weight=hyper["zero_mean_weight"],
    )
    note = (
        "snr: [Zhang 2023] prints the margins 1 and 0, which as SNR distances d >= 0 would make "
        "the negative term 0 for every pair; read as margins of the similarity 1 - d/2 (the "
        "cosine, for centred embeddings) they are the distances 0 and 2 used here"
    )
    return MethodParts("snr", loss, notes=(note,))


def _triplet_smooth(context: MethodContext, hyper: Values) -> MethodParts:
    loss = pml_losses.TripletMarginLoss(margin=hyper["margin"], smooth_loss=True)
    note = (
        "triplet-smooth: all triplets of the batch; its margin is not printed in [Zhang 2023], 0 "
        "is the soft margin of [Hermans 2017]"
    )
    return MethodParts("triplet-smooth", loss, notes=(note,))


def _margin(context: MethodContext, hyper: Values) -> MethodParts:
    learned, per_class = hyper["learn_beta"], hyper["beta_per_class"]
    for key in ("nu", "beta_per_class"):
        if hyper[key] and not learned:
            raise InputError(
                f"`hyper.{key}` is {hyper[key]}, but only a learned boundary reads it; set "
                "hyper.learn_beta to true, or leave it out."
            )
    loss = pml_losses.MarginLoss(
        margin=hyper["alpha"],
        nu=hyper["nu"],
        beta=hyper["beta"],
        learn_beta=learned,
        num_classes=context.num_classes if per_class else None,
    )
    reach = hyper["alpha"] + hyper["beta"]  # negatives beyond have no loss
    miner = DistanceWeightedMiner(
        cutoff=hyper["cutoff"], nonzero_loss_cutoff=reach, seed=context.seed
    )
    note = (
        f"margin: distance-weighted sampling of negatives nearer than alpha + beta = {reach:g}; an "
        "anchor without one gets no triplet, so its positives do not pull either"
    )
    return MethodParts("margin", loss, miner, loss_has_parameters=learned, notes=(note,))


def _fast_ap(context: MethodContext, hyper: Values) -> MethodParts:
    return MethodParts("fast-ap", pml_losses.FastAPLoss(num_bins=hyper["num_bins"]))


def _rdml(context: MethodContext, hyper: Values) -> MethodParts:
    distance = LpDistance(power=hyper["power"])
    loss = RDMLLoss(eta=hyper["eta"], margin=hyper["margin"], distance=distance)
    note = (
        f"rdml: [Zhang 2023] selects eta from {', '.join(f'{eta:g}' for eta in RDML_ETAS)} and "
        f"does not say which; eta = {hyper['eta']:g} here"
    )
    return MethodParts("rdml", loss, notes=(note,))


def _proxy_anchor(context: MethodContext, hyper: Values) -> MethodParts:
    loss = pml_losses.ProxyAnchorLoss(
        context.num_classes,
        context.embedding_size,
        margin=hyper["delta"],
        alpha=hyper["alpha"],
        weight_init_func=SeededNormal(context.seed),
    )
    factor = hyper["proxy_lr_factor"]
    note = (
        f"proxy-anchor: the proxies learn at {factor:g} times the network's rate; [Kim 2020] takes "
        "100, [Zhang 2023] prints one rate for all"
    )
    return MethodParts(
        "proxy-anchor", loss, loss_has_parameters=True, loss_lr_factor=factor, notes=(note,)
    )


class SeededNormal:
    """Fills proxies (C, D) in place from N(0, 2 / C), without torch's global generator.

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


PAIRWISE = (
    Method(
        "contrastive",
        "Contrastive",
        "pull positives to similarity 1, push negatives to 0",
        "[Hadsell 2006]",
        {
            "pos_margin": number(1.0, "similarity below which positives pull", printed=True),
            "neg_margin": number(0.0, "similarity above which negatives push", printed=True),
        },
        _contrastive,
    ),
    Method(
        "triplet-smooth",
        "Triplet smooth",
        "softplus of the difference of distances, all triplets",
        "[Hermans 2017]",
        {"margin": number(0.0, "added to the difference of distances")},
        _triplet_smooth,
    ),
    Method(
        "margin",
        "Margin",
        "pairs on either side of a boundary, distance-weighted negatives",
        "[Wu 2017]",
        {
            "alpha": at_least_0(0.2, "margin on both sides of the boundary", printed=True),
            "beta": positive(1.2, "boundary distance, beta(0)", printed=True),
            "nu": at_least_0(0.0, "weight of the boundary's regulariser, where it is learned"),
            "learn_beta": flag(False, "learn the boundary"),
            "beta_per_class": flag(False, "a boundary for each class; printed: beta(class) = 0"),
            "cutoff": positive(0.5, "distances below count as this one when drawing negatives"),
        },
        _margin,
    ),
    Method(
        "fast-ap",
        "FastAP",
        "one minus average precision, by soft histograms of distances",
        "[Cakir 2019]",
        {"num_bins": whole(10, "bins of the histograms", printed=True)},
        _fast_ap,
    ),
    Method(
        "rdml",
        "RDML",
        "triplets under a rescaled, bounded hinge",
        "[Al-Obaidi 2020]",
        {
            "eta": at_least_0(1.0, "bend of the hinge; 0.5, 1, 2, 3 or 4 in the paper"),
            "margin": number(1.0, "margin of the hinge"),
            "power": whole(2, "of the Euclidean distance; 2 is the Mahalanobis form's"),
        },
        _rdml,
    ),
    Method(
        "proxy-anchor",
        "Proxy-Anchor",
        "a learned proxy for each class, against all samples",
        "[Kim 2020]",
        {
            "alpha": positive(32.0, "scale of the exponents", printed=True),
            "delta": number(0.1, "margin, a cosine similarity", printed=True),
            "proxy_lr_factor": positive(100.0, "learning rate of the proxies over the network's"),
        },
        _proxy_anchor,
        unwrappable="its values belong to proxies, each a log-sum over all samples of the batch",
    ),
    Method(
        "snr",
        "SNR",
        "contrastive, on the variance of the difference over the anchor's",
        "[Yuan 2019]",
        {
            "pos_margin": number(0.0, "SNR distance above which positives pull"),
            "neg_margin": number(2.0, "SNR distance below which negatives push"),
            "zero_mean_weight": at_least_0(0.0, "weight of the zero-mean regulariser"),
        },
        _snr,
    ),
)
