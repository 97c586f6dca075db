"""Gradient rescaling [Wang GR 2019] and IMAE [Wang IMAE 2019] as a reducer.

    losses (n,) -> p = exp(-l) -> w = g(beta p^lam (1 - p)) -> factor (detached) -> factor * l

w is the length (L1) that a softmax loss's gradient at the logits is given.  Losses that compute a
cross-entropy get exactly that, at their logits (see `softmax`); here only their w is read off.
For the others only the value is visible.  Where dl shrinks like 1 - p, as for every negative
log-probability and every log(1 + sum exp), the factor is  w / (2 max(1 - p, delta))  with
1 - p = -expm1(-l); where it does not shrink, as for a hinge, and for l = 0 exactly, it is w.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from bspml.errors import InputError
from bspml.functional.gradient_rescaling import weight_of_loss
from bspml.losses.reducers.catalogue import KINDS
from bspml.losses.reducers.transform import Installed, Source, Term, TransformReducer
from bspml.shapes import Tensor
from bspml.tensors.checks import check_choice, check_number
from bspml.weights.state import SampleWeights

# Below this 1 - p, float32 losses of size 10 hold no digit of 1 - p that can be trusted; the
# gradient then fades like 1 - p instead of being raised to w.
DELTA = 1e-4
_LARGEST_EXPONENT = 80.0  # e^80 squared no longer fits float32; nobody wants such weights


class GradientRescalingReducer(TransformReducer):
    """Rescaled losses, then the loss's own reducer.

    The value of a rescaled loss is factor * l with the factor held constant: only its gradient
    has a meaning.

    Args:
        inner: the loss's own reducer.
        installed: facts about the loss.
        beta: size of the emphasis, >= 0; 0 gives every sample the same weight.
        lam: >= 0; its focus lies at p = lam / (1 + lam).
        g: "exp" or "identity", what is made of beta p^lam (1 - p).
        kind: how the loss's gradient depends on its value; see `catalogue`.
        delta: smallest 1 - p a factor divides by.
        sample_weights: see `TransformReducer`.
    """

    def __init__(
        self,
        inner: Any,
        installed: Installed,
        beta: float | int = 8.0,
        lam: float | int = 0.5,
        g: str = "exp",
        kind: str = "hinge",
        delta: float | int = DELTA,
        sample_weights: SampleWeights | None = None,
    ) -> None:
        super().__init__(inner, installed, sample_weights)
        self.beta, self.lam, self.g = check_emphasis(beta, lam, g)
        self.kind = check_choice(kind, "kind", KINDS)
        self.delta = check_number(delta, "delta", low=0.0, high=1.0, open_low=True)
        largest = self.beta * _largest_emphasis(self.lam)
        self.peak = (math.exp(largest) if self.g == "exp" else largest) or 1.0

    def transform(self, terms: list[Term], like: Tensor) -> list[tuple[Tensor, Source]]:
        """Rescaled losses (n,) and w (n,) of each term.

        Args:
            terms: the sub-losses.
            like: not used.
        """
        return [self._one(term.losses) for term in terms]

    def _one(self, losses: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            # Rounding can leave -log p just below 0.  A NaN is for the product to pass on.
            seen = losses.clamp(min=0).nan_to_num(nan=0.0)
            weight = weight_of_loss(seen, self.beta, self.lam, self.g)
            factor = weight
            if self.kind in ("log-probability", "softplus"):
                factor = weight / (2 * (-torch.expm1(-seen)).clamp(min=self.delta))
                # SupCon's row without a positive: 0 over the smallest number, which any larger
                # factor overflows to NaN.  A loss of 0 has no gradient to rescale.
                factor = torch.where(seen > 0, factor, weight)
        if self.kind == "logits":
            return losses, weight
        return factor * losses, weight

    def extra_repr(self) -> str:
        """Return settings, for `print(loss)`."""
        return f"beta={self.beta:g}, lam={self.lam:g}, g={self.g}, kind={self.kind}"


def check_emphasis(
    beta: Any, lam: Any, g: Any, beta_name: str = "beta"
) -> tuple[float, float, str]:
    """Return beta, lam and g if their weights are finite numbers in float32.

    Args:
        beta, lam, g: as for the reducer.
        beta_name: what the caller's argument is called.

    Raises:
        InputError: out of range, or weights too large to compute with.
    """
    beta = check_number(beta, beta_name, low=0.0)
    lam = check_number(lam, "lam", low=0.0)
    g = check_choice(g, "g", ("exp", "identity"))
    exponent = beta * _largest_emphasis(lam)
    if g == "exp" and exponent > _LARGEST_EXPONENT:
        given = f"with `lam`={lam:g} " if beta_name == "beta" else ""  # IMAE has no lam
        raise InputError(
            f"`{beta_name}`={beta:g} gives weights of up to e^{exponent:.0f}, beyond float32; "
            f"{given}it must be at most {_LARGEST_EXPONENT / exponent * beta:.4g}."
        )
    return beta, lam, g


def _largest_emphasis(lam: float) -> float:
    """Largest p^lam (1 - p), at p = lam / (1 + lam)."""
    p = lam / (1 + lam)
    return p**lam * (1 - p)
