"""SuperLoss, gradient rescaling and IMAE on top of another method: `superloss:margin`."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from typing import Annotated, Literal

from torch import nn

from bspml.experiment.methods.parts import HyperParameters, MethodContext, MethodParts
from bspml.losses.filtered import FilteredLoss
from bspml.losses.reducers import IMAE, GradientRescaling, SuperLoss
from bspml.trainers.settings import BelowOne, NotNegative, Number, Positive, ReadBy, key
from bspml.weights.state import SampleWeights


class Wrapper(HyperParameters):
    """A transform that goes on the loss of a method; its hyper-parameters start with its name."""

    @abstractmethod
    def _apply(self, loss: nn.Module, weights: SampleWeights | None) -> None:
        """Wrap a loss in place; with a table of weights keep a confidence for each sample."""

    def wrap(self, parts: MethodParts, context: MethodContext) -> MethodParts:
        """Return the parts with the transform on their loss.

        With a table of weights the confidences are kept for each sample (`sample_confidences`),
        but not inside PRISM, whose loss sees what the filter left.

        Args:
            parts: of the method inside.
            context: what it was built from.

        Raises:
            InputError: the loss has no value per sample, pair or triplet, by name.
        """
        loss, weights = parts.loss, context.weights
        if isinstance(loss, FilteredLoss):
            loss, weights = loss.loss, None
        self._apply(loss, weights)
        settings = ", ".join(f"{key} {value}" for key, value in self)
        units = "; lam is in units of the loss" if self.name == "superloss" else ""
        return dataclasses.replace(
            parts,
            name=f"{self.name}:{parts.name}",
            needs_sample_index=parts.needs_sample_index or weights is not None,
            notes=(*parts.notes, f"{self.name}: {settings}{units}"),
        )


class SuperLossWrapper(Wrapper):
    """Weigh each value by its confidence, which falls with the loss."""

    name, title, source = "superloss", "SuperLoss", "[Castells 2020]"

    # 0.05 is what [Castells 2020, supplement 3.4] validated for retrieval.
    superloss_lam: Positive = key(0.05, "strength of the regulariser, in units of the loss")
    superloss_tau: Literal["ema", "mean"] | Number = key(
        "ema", "loss of confidence 1: ema, mean, a number"
    )
    superloss_momentum: Annotated[BelowOne, ReadBy("superloss_tau", ("ema",))] = key(
        0.9, "of the exponential average"
    )
    # Under one tau all positives of a contrastive loss count as hard, noisy or not.
    superloss_shared_tau: bool = key(False, "one tau for positive and negative pairs")
    superloss_smoothing: Literal["none", "class", "sample"] = key(
        "none", "whose average loss is judged"
    )

    def _apply(self, loss: nn.Module, weights: SampleWeights | None) -> None:
        SuperLoss(
            loss,
            self.superloss_lam,
            self.superloss_tau,
            momentum=self.superloss_momentum,
            shared_tau=self.superloss_shared_tau,
            smoothing=self.superloss_smoothing,
            sample_weights=weights,
        )


class GradientRescalingWrapper(Wrapper):
    """Rescale gradients by an emphasis with a focus."""

    name, title, source = "gr", "GR", "[Wang GR 2019]"

    gr_beta: NotNegative = key(8.0, "size of the emphasis")
    gr_lam: NotNegative = key(0.5, "its focus, p = lam / (1 + lam)")
    gr_g: Literal["exp", "identity"] = key("exp", "emphasis to weight")

    def _apply(self, loss: nn.Module, weights: SampleWeights | None) -> None:
        GradientRescaling(loss, self.gr_beta, self.gr_lam, self.gr_g, sample_weights=weights)


class IMAEWrapper(Wrapper):
    """Rescale gradients by the emphasis of IMAE."""

    name, title, source = "imae", "IMAE", "[Wang IMAE 2019]"

    imae_T: NotNegative = key(8.0, "size of the emphasis")  # noqa: N815 (the paper's T)

    def _apply(self, loss: nn.Module, weights: SampleWeights | None) -> None:
        IMAE(loss, self.imae_T, sample_weights=weights)


WRAPPERS: dict[str, type[Wrapper]] = {
    kind.name: kind for kind in (SuperLossWrapper, GradientRescalingWrapper, IMAEWrapper)
}
