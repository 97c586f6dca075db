"""Which loss of pytorch-metric-learning can be transformed, how, and why the others cannot.

One entry per loss class, by name; a test walks through the installed release and fails on a class
that has none.  A subclass counts as its nearest ancestor in the table.

How gradient rescaling [Wang GR 2019] meets a loss depends on what its values l are:

- "logits": the loss computes a cross-entropy over logits.  The gradient is rescaled there.
- "log-probability": l = -log p with p a softmax.  dl vanishes like 1 - p, so the factor is
  w(p) / (2 (1 - p)) with p = exp(-l).
- "softplus": l = log(1 + sum exp ...).  dl vanishes like 1 - exp(-l): the same factor.
- "hinge": dl does not vanish with l (or l is no logarithm at all): the factor is w(p),
  p = exp(-l).

How a sample's weight meets a loss (`bspml.Weighted`): weight 0 leaves the sample out of any of
them; a weight between 0 and 1

- "multiply": multiplies the values that the sample takes part in;
- "inside": multiplies its terms inside the logarithm of a sum over samples, too;
- "exclude": cannot be given, as one number for the batch has no part that is the sample's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

KINDS = ("logits", "log-probability", "softplus", "hinge")


@dataclass(frozen=True)
class LossEntry:
    """What is known of one loss class.

    Attributes:
        kind: one of `KINDS`, how gradient rescaling is done; None: it is refused.
        refused: why neither transform can be done; empty: it can.
        refused_gr: why gradient rescaling alone cannot; empty: it can.
        sub_losses: the keys of the loss dictionary that hold per-sample, pair or triplet values.
        active_only: the reducer divides by the number of losses above 0, so only these count.
        log_sum: its values are logarithms of sums over samples, which weights go into.
        refused_weights: why no sample can be left out; empty: it can.
    """

    kind: str | None = None
    refused: str = ""
    refused_gr: str = ""
    sub_losses: tuple[str, ...] = ("loss",)
    active_only: bool = False
    log_sum: bool = False
    refused_weights: str = ""

    @property
    def weighting(self) -> str:
        """How a weight between 0 and 1 enters: "inside", "multiply" or "exclude" (it does not)."""
        if self.refused:
            return "exclude"
        return "inside" if self.log_sum else "multiply"


def _reduced(what: str) -> LossEntry:
    return LossEntry(refused=f"it returns one number for the batch ({what})")


_SOFTMAX = LossEntry("logits")
_LOG_P = LossEntry("log-probability")
_SOFTPLUS = LossEntry("softplus", log_sum=True)
_LOG_SHARE = LossEntry("log-probability", log_sum=True)
_HINGE = LossEntry("hinge")
_PAIR_HINGES = LossEntry("hinge", sub_losses=("pos_loss", "neg_loss"))

CATALOGUE: dict[str, LossEntry] = {
    # a cross-entropy over classes
    "ArcFaceLoss": _SOFTMAX,
    "CosFaceLoss": _SOFTMAX,
    "LargeMarginSoftmaxLoss": _SOFTMAX,
    "NormalizedSoftmaxLoss": _SOFTMAX,
    "ProxyNCALoss": _SOFTMAX,
    "SoftTripleLoss": _SOFTMAX,
    "SphereFaceLoss": _SOFTMAX,
    "SubCenterArcFaceLoss": _SOFTMAX,
    # a softmax over the batch
    "InstanceLoss": _LOG_P,
    "NCALoss": _LOG_SHARE,
    "NPairsLoss": _LOG_P,
    "NTXentLoss": _LOG_SHARE,
    "SupConLoss": _LOG_SHARE,
    # log(1 + sum exp)
    "AngularLoss": _SOFTPLUS,
    "BSPMLLoss": _SOFTPLUS,
    "CircleLoss": _SOFTPLUS,
    "MultiSimilarityLoss": _SOFTPLUS,
    "TupletMarginLoss": _SOFTPLUS,
    # hinges, their squares, and one minus an average precision
    "ContrastiveLoss": _PAIR_HINGES,
    "FastAPLoss": _HINGE,
    "GeneralizedLiftedStructureLoss": LossEntry("hinge", log_sum=True),
    "IntraPairVarianceLoss": _PAIR_HINGES,
    "LiftedStructureLoss": LossEntry("hinge", log_sum=True),
    "MarginLoss": LossEntry("hinge", sub_losses=("margin_loss",), active_only=True),
    "SignalToNoiseRatioContrastiveLoss": _PAIR_HINGES,
    "SmoothAPLoss": LossEntry(
        "hinge",
        sub_losses=("ap_loss",),
        refused_weights="it takes batches of equally many samples of each class only",
    ),
    "TripletMarginLoss": _HINGE,  # softplus with smooth_loss=True: see `kind_of`
    "RankedListLoss": LossEntry(
        refused_gr="its values can be negative, and exp(-l) is then no probability"
    ),
    # no value per sample
    "DynamicSoftMarginLoss": _reduced("a mean weighted by the batch's histogram"),
    "HistogramLoss": _reduced("an integral over the batch's histograms"),
    "ManifoldLoss": _reduced("a mean over a random walk through the batch"),
    "P2SGradLoss": _reduced("a mean squared error"),
    "PNPLoss": _reduced("a mean over queries"),
    "ThresholdConsistentMarginLoss": _reduced("two means over pairs"),
    "ProxyAnchorLoss": LossEntry(
        refused="its values belong to proxies, each a log-sum over all samples of the batch"
    ),
    "VICRegLoss": LossEntry(
        refused="its variance terms have a value per dimension and its covariance one per batch",
        refused_weights="it compares two views and knows no labels that could be wrong",
    ),
}

# Containers whose losses are wrapped instead.
DELEGATES = ("CrossBatchMemory", "DistributedLossWrapper", "MultipleLosses", "SelfSupervisedLoss")
# Classes without a loss of their own.
ABSTRACT = (
    "BaseLossWrapper",
    "BaseMetricLossFunction",
    "EmbeddingRegularizerMixin",
    "GenericPairLoss",
    "WeightRegularizerMixin",
)
_HOMES = ("pytorch_metric_learning", "bspml")


def entry_of(loss: Any) -> LossEntry | None:
    """Return the entry of the loss's class or its nearest ancestor; None if there is none.

    Only classes of this package and of pytorch-metric-learning are looked up: a stranger's
    class of the same name says nothing.
    """
    for cls in type(loss).__mro__:
        if cls.__module__.split(".")[0] in _HOMES and cls.__name__ in CATALOGUE:
            return CATALOGUE[cls.__name__]
    return None


def kind_of(loss: Any, entry: LossEntry) -> str | None:
    """Return how gradient rescaling is done on this loss object; a smooth triplet loss is a
    softplus.

    Args:
        loss: the loss object.
        entry: its entry, from `entry_of`.
    """
    smooth = entry is _HINGE and getattr(loss, "smooth_loss", False)
    return "softplus" if smooth else entry.kind
