"""SuperLoss [Castells 2020] as a reducer: easy losses count more, hard ones less.

    losses (n,) -> tau (running average) -> sigma = exp(-W(max(-2/e, (l - tau) / lam) / 2))
                -> sigma (l - tau) + lam log(sigma)^2

By the envelope theorem its derivative by l is sigma.  With smoothing, sigma is that of the
average loss of the anchor's sample or class: one lucky batch does not clear a wrong label.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from bspml.errors import InputError
from bspml.functional import superloss, superloss_confidence
from bspml.losses.reducers.tables import KeyedAverage
from bspml.losses.reducers.tau import MOMENTUM, RunningTau, check_momentum
from bspml.losses.reducers.transform import Installed, Source, Term, TransformReducer
from bspml.shapes import Tensor
from bspml.tensors.arguments import check_flags
from bspml.tensors.checks import check_choice, check_number
from bspml.weights.state import SampleWeights

_SHARED = "shared"
SMOOTHINGS = ("none", "class", "sample")


class SuperLossReducer(TransformReducer):
    """SuperLoss of every loss, then the loss's own reducer.

    Args:
        inner: the loss's own reducer.
        installed: facts about the loss.
        lam: strength of the regulariser, > 0; large: every confidence is near 1.
        tau: "ema", "mean" or a number; see `RunningTau`.
        momentum: of "ema".
        shared_tau: one tau for all sub-losses instead of one for each.
        smoothing: "none", "class" or "sample": whose average loss the confidence judges.
        smoothing_momentum: share of the old average kept.
        sample_weights: see `TransformReducer`; smoothing needs it.

    Attributes:
        lam: as given; may be changed between batches.
        taus: the `RunningTau` modules by sub-loss, under "shared" if there is one for all.
    """

    def __init__(
        self,
        inner: Any,
        installed: Installed,
        lam: float | int = 0.25,
        tau: float | int | str = "ema",
        momentum: float | int = MOMENTUM,
        shared_tau: bool = False,
        smoothing: str = "none",
        smoothing_momentum: float | int = MOMENTUM,
        sample_weights: SampleWeights | None = None,
    ) -> None:
        check_flags(shared_tau=shared_tau)
        super().__init__(inner, installed, sample_weights)
        self.lam = check_number(lam, "lam", low=0.0, open_low=True)
        self.smoothing = check_choice(smoothing, "smoothing", SMOOTHINGS)
        sub_losses = installed.entry.sub_losses
        names = (_SHARED,) if shared_tau or len(sub_losses) == 1 else sub_losses
        self.taus = nn.ModuleDict({name: RunningTau(tau, momentum) for name in names})
        unread = "`smoothing` is 'none'" if smoothing == "none" else ""
        smoothing_momentum = check_momentum(smoothing_momentum, "smoothing_momentum", unread)
        self.smoothed = None
        if smoothing != "none":
            if sample_weights is None:
                raise InputError(
                    f"`smoothing`={smoothing!r} follows samples or classes across batches: pass "
                    "`sample_weights=SampleWeights(labels)` too, which knows them."
                )
            rows = len(sample_weights) if smoothing == "sample" else len(sample_weights.classes)
            self.smoothed = KeyedAverage(rows, smoothing_momentum)

    @property
    def tau(self) -> Any:
        """The threshold as it stands: a 0-d tensor, or several by sub-loss if there are more.

        NaN before the first batch.
        """
        if _SHARED in self.taus:
            return self.taus[_SHARED].value
        return {name: tau.value for name, tau in self.taus.items()}

    def transform(self, terms: list[Term], like: Tensor) -> list[tuple[Tensor, Source]]:
        """Return SuperLoss (n,) and sigma (n,) of each term.

        Args:
            terms: the sub-losses.
            like: a tensor on the batch's device.
        """
        taus = self._update_taus(terms, like)
        self._update_smoothed(terms, like)
        used = [taus[term.name] if term.name in taus else taus[_SHARED] for term in terms]
        if self.smoothed is None:
            return self._plain(terms, used)
        return [self._smooth(term, tau) for term, tau in zip(terms, used, strict=True)]

    def _plain(self, terms: list[Term], taus: list[Tensor]) -> list[tuple[Tensor, Source]]:
        """All terms in one go: for a batch of losses W costs its kernels' starts, not its sums."""
        if not terms:
            return []
        values: Sequence[Tensor]
        if len(terms) == 1:
            values = [superloss(terms[0].losses, taus[0], self.lam)]
        else:
            sizes = [len(term.losses) for term in terms]
            joined = torch.cat([term.losses for term in terms])
            tau = torch.cat([tau.expand(size) for tau, size in zip(taus, sizes, strict=True)])
            values = superloss(joined, tau, self.lam).split(sizes)
        # partial, unlike a lambda, survives copying and pickling the loss.
        sources = [
            partial(superloss_confidence, term.losses.detach(), tau, self.lam)
            for term, tau in zip(terms, taus, strict=True)
        ]
        return list(zip(values, sources, strict=True))

    def _smooth(self, term: Term, tau: Tensor) -> tuple[Tensor, Source]:
        assert self.smoothed is not None
        judged = term.losses.detach()
        if term.keys is not None:  # else of an evaluation, whose samples have no history
            judged = self.smoothed.look_up(self._keys(term), judged)
        sigma = superloss_confidence(judged, tau, self.lam)
        return sigma * (term.losses - tau) + self.lam * sigma.log().square(), sigma

    def _update_taus(self, terms: list[Term], like: Tensor) -> dict[str, Tensor]:
        """Every tau is updated once per batch, whatever it holds: other ranks wait for it."""
        return {
            name: self._update_tau(tau, [t for t in terms if name in (t.name, _SHARED)], like)
            for name, tau in self.taus.items()
        }

    @staticmethod
    def _update_tau(tau: Any, terms: list[Term], like: Tensor) -> Tensor:
        if not terms:
            return tau.update(like.detach().new_zeros(0))
        losses = _joined([term.losses.detach() for term in terms])
        counted = [term.counted() for term in terms]
        if all(c is None for c in counted):
            return tau.update(losses)
        weights = [
            torch.ones_like(term.losses) if count is None else count.to(term.losses)
            for term, count in zip(terms, counted, strict=True)
        ]
        return tau.update(losses, _joined(weights))

    def _update_smoothed(self, terms: list[Term], like: Tensor) -> None:
        if self.smoothed is None or not self.training:
            return
        losses = [term.losses.detach().double() for term in terms]
        counted = [term.counted() for term in terms]
        keys = [
            self._keys(term) if count is None else torch.where(count > 0, self._keys(term), -1)
            for term, count in zip(terms, counted, strict=True)
        ]
        empty = torch.zeros(0, dtype=torch.float64, device=like.device)
        self.smoothed.update(
            torch.cat(losses) if losses else empty, torch.cat(keys) if keys else empty.long()
        )

    def _keys(self, term: Term) -> Tensor:
        """(n,) row of the smoothing table of each loss's anchor."""
        assert term.keys is not None
        assert self.sample_weights is not None
        samples = term.keys[0]
        if self.smoothing == "sample":
            return samples
        return self.sample_weights.current_codes.to(samples.device)[samples]

    def extra_repr(self) -> str:
        """Return settings, for `print(loss)`."""
        return f"lam={self.lam:g}, smoothing={self.smoothing}"


def _joined(parts: list[Tensor]) -> Tensor:
    """The parts as one, without a copy of a single one."""
    return parts[0] if len(parts) == 1 else torch.cat(parts)
