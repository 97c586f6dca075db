"""The reducer that stands between a loss and its own reducer.

    loss dictionary
      -> terms: flat losses (n,) per sub-loss, regularisers set aside
      -> plan: which of them the loss's own reducer picks, on the raw values
      -> transform: SuperLoss, gradient rescaling, or nothing
      -> times the sample weights of the rows involved
      -> the loss's own reducer -> sum over sub-losses

It derives from pytorch-metric-learning's MultipleReducers, the only kind of reducer that a loss
neither copies nor feeds one sub-loss at a time: its state stays the user's.

Product rule: a loss of sample i is multiplied by w_i, of a pair by w_a w_b, of a triplet by
w_a w_p w_n, beside the transform's own confidence.  The divisor of an average follows: the mean of
n losses becomes  sum w l / sum w.  `BSPMLLoss` multiplies by w_i itself: it is divided out before
the transform, so that the confidence judges the loss and not the weight, and multiplied in once.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from pytorch_metric_learning import reducers as pml_reducers

from bspml.errors import InputError
from bspml.losses.positives import PositiveWatch
from bspml.losses.reducers.catalogue import LossEntry
from bspml.losses.reducers.inner import Plan, make_plan, reducer_for
from bspml.losses.reducers.tables import KeyedAverage
from bspml.shapes import Bool, Float, Int, Tensor
from bspml.tensors.modes import in_eval_mode
from bspml.weights.batch import BatchWeights, look_up, trained_labels
from bspml.weights.state import SampleWeights
from bspml.words import counted

Source = Tensor | Callable[[], Tensor]  # confidences, or what computes them

_REDUCTIONS = ("element", "pos_pair", "neg_pair", "triplet")


@dataclass(frozen=True)
class Confidences:
    """The factors a batch's losses got.

    Attributes:
        source: `values`, or what computes them: nobody may ask, and W is not free.
        indices: (k, n) rows of the batch (anchors first; the others are rows of `ref_emb` if
            there was one): k is 1 for samples, 2 for pairs, 3 for triplets.
        sample_index: (n,) data-set rows of the anchors, if sample weights told them; -1: not seen.
        kept: (n,) False for losses that the loss's reducer left out; None: all entered.
    """

    source: Source
    indices: Int[Tensor, "k n"]
    sample_index: Int[Tensor, " n"] | None
    kept: Tensor | None

    @property
    def values(self) -> Float[Tensor, " n"]:
        """(n,) sigma of SuperLoss or w of gradient rescaling, without the sample weights."""
        found = self.source
        return found if isinstance(found, Tensor) else found()


@dataclass(frozen=True)
class Term:
    """One sub-loss on its way.

    Attributes:
        name: its key in the loss dictionary.
        info: its entry there.
        losses: (n,) raw, at least float32, without any sample weight.
        weights: (n,) product of the sample weights; None: all 1.
        indices: (k, n) rows of the batch (and of the references).
        keys: (k, n) the data-set rows, -1 where unknown or where the loss itself multiplied by 0;
            None without sample weights.
        plan: what the loss's own reducer does.
        is_finite: (n,) whether the loss came as a finite number: else it judges nobody.
    """

    name: str
    info: dict[str, Any]
    losses: Float[Tensor, " n"]
    weights: Float[Tensor, " n"] | None
    indices: Int[Tensor, "k n"]
    keys: Int[Tensor, "k n"] | None
    plan: Plan
    is_finite: Bool[Tensor, " n"]

    def counted(self) -> Float[Tensor, " n"] | None:
        """Return (n,) how much each loss counts in averages; None: one each."""
        if self.plan.keep is None:
            return self.weights
        kept = self.plan.keep.to(self.losses)
        return kept if self.weights is None else kept * self.weights


@dataclass
class Call:
    """What the last call of the loss told beside the loss dictionary.

    Attributes:
        ref_rows: R of foreign references, else None.
        sample_index: (B,) data-set rows, if the call named them.
        ref_sample_index: (R,) likewise.
        known: weights and rows of the batch, where the caller looked them up; None: look up.
        same_rows: the labels are one object on both sides.
    """

    ref_rows: int | None = None
    sample_index: Any = None
    ref_sample_index: Any = None
    known: BatchWeights | None = None
    same_rows: bool = False


@dataclass(frozen=True)
class Installed:
    """What the reducer must know of the loss it sits on.

    Attributes:
        loss_name: for messages.
        entry: what the catalogue says of its class.
        carries_weights: the loss multiplies by the anchors' weights itself.
        needs_positives: it compares samples with samples.
    """

    loss_name: str
    entry: LossEntry = field(default_factory=LossEntry)
    carries_weights: bool = False
    needs_positives: bool = False


class TransformReducer(pml_reducers.MultipleReducers):
    """The identity transform; `SuperLossReducer` and `GradientRescalingReducer` override it.

    Args:
        inner: the loss's own reducer.
        installed: facts about the loss.
        sample_weights: multiplies losses by the weights of their samples; None: by nothing.

    Attributes:
        inner: as given.
        confidences: name of sub-loss to `Confidences` of the last batch.  Not saved.
        table: with sample weights, the last confidence of every sample: see
            `sample_confidences`; else None.
    """

    peak = 1.0  # the confidence, and any above, that is full trust as a weight

    def __init__(
        self, inner: Any, installed: Installed, sample_weights: SampleWeights | None = None
    ) -> None:
        super().__init__({})
        self.inner = inner
        self.installed, self.sample_weights = installed, sample_weights
        self.table = None if sample_weights is None else KeyedAverage(len(sample_weights), 0.0)
        if sample_weights is not None and installed.carries_weights:
            self.leave_weights_to_loss(sample_weights)
        self.confidences: dict[str, Confidences] = {}
        self.call = Call()
        self._positives = PositiveWatch()

    def leave_weights_to_loss(self, table: SampleWeights) -> None:
        """Know that the loss has weights, by which it multiplies itself.

        Args:
            table: of the loss, which saves it.
        """
        self.installed = replace(self.installed, carries_weights=True, needs_positives=False)
        self._modules.pop("sample_weights", None)
        object.__setattr__(self, "sample_weights", table)
        self.table = KeyedAverage(len(table), 0.0) if self.table is None else self.table

    def transform(self, terms: list[Term], like: Tensor) -> list[tuple[Tensor, Source]]:
        """Return the losses of each term transformed (n,), and their confidences (n,), detached.

        Called once per batch, with no term if the batch has no pair.

        Args:
            terms: the sub-losses; those the batch left empty are missing.
            like: a tensor on the batch's device.
        """
        return [(term.losses, torch.ones_like(term.losses)) for term in terms]

    def forward(self, loss_dict: dict[str, Any], embeddings: Tensor, labels: Any) -> Any:
        """Reduce a loss dictionary; see the module.

        Args:
            loss_dict: what the loss computed, by sub-loss.
            embeddings: (B, D).
            labels: (B,) or None.

        Returns:
            A scalar, float32 for half precision; the transformed dictionary if the loss's own
            reducer is DoNothingReducer.

        Raises:
            InputError: values that are not one per sample, pair or triplet; sample indices that
                do not fit the batch.
        """
        self.reset_stats()
        call = self.call
        if self.training and self._is_of_evaluation(call):  # nothing is learned of it
            with in_eval_mode(self):
                return self.forward(loss_dict, embeddings, labels)
        self.call = Call()
        if self.installed.needs_positives and call.ref_rows is None and call.known is None:
            self._positives.look(labels)
        with torch.autocast(embeddings.device.type, enabled=False):
            terms = self._terms(loss_dict, embeddings, labels, call)
            transformed = self.transform(terms, embeddings)
            results = {
                term.name: self._finish(term, losses, embeddings)
                for term, (losses, _) in zip(terms, transformed, strict=True)
            }
            self._remember(terms, [source for _, source in transformed])
            if isinstance(self.inner, pml_reducers.DoNothingReducer):
                return {**loss_dict, **{name: r[name] for name, r in results.items()}}
            return self._sum(loss_dict, results, embeddings, labels)

    def see_nothing(self, like: Tensor) -> None:
        """Learn from a batch of which nothing counts: the averages of other ranks wait for it.

        Args:
            like: a tensor on the batch's device.
        """
        self._remember([], [source for _, source in self.transform([], like)])

    def _is_of_evaluation(self, call: Call) -> bool:
        if call.known is not None:
            return call.known.sample_index is None
        table = self.sample_weights
        return table is not None and table.names_nobody(call.sample_index)

    def _terms(
        self, loss_dict: dict[str, Any], embeddings: Tensor, labels: Any, call: Call
    ) -> list[Term]:
        present = {name: info for name, info in loss_dict.items() if self._is_data(name, info)}
        known = call.known
        if known is None and self.sample_weights is not None:
            rows = (call.ref_rows, call.sample_index, call.ref_sample_index)
            refs = labels if call.same_rows else None
            known = look_up(self.sample_weights, embeddings, *rows, labels, refs)
            if trained_labels(self.sample_weights, labels, None, known)[0] is not labels:
                raise InputError(
                    f"`loss` ({self.installed.loss_name}) was computed under given labels that "
                    "were repaired. Hand `weights.relabelled(labels, sample_index)` to it, or wrap "
                    "Weighted(loss, weights), which looks them up."
                )
        return [self._term(n, i, embeddings, labels, known, call) for n, i in present.items()]

    def _is_data(self, name: str, info: dict[str, Any]) -> bool:
        """Losses to transform; the others (regularisers, zeros) go through untouched."""
        losses = info["losses"]
        if not isinstance(losses, Tensor) or name.endswith("reg_loss"):
            return False
        if name not in self.installed.entry.sub_losses or info["reduction_type"] not in _REDUCTIONS:
            raise InputError(
                f"`loss` ({self.installed.loss_name}) returned {name!r} as "
                f"{info['reduction_type']!r}: it must be one value per element, pair or triplet "
                f"under {' or '.join(map(repr, self.installed.entry.sub_losses))}. "
                "A loss that is already reduced cannot be transformed."
            )
        return losses.numel() > 0

    def _term(
        self,
        name: str,
        info: dict[str, Any],
        embeddings: Tensor,
        labels: Any,
        known: BatchWeights | None,
        call: Call,
    ) -> Term:
        raw = info["losses"].flatten()
        raw = raw if raw.dtype == torch.float64 else raw.float()
        given = info["indices"]
        indices = given[None] if isinstance(given, Tensor) else torch.stack(list(given))  # (k, n)
        if indices.shape[1] != len(raw):
            raise InputError(
                f"`loss` ({self.installed.loss_name}) returned {len(raw)} values and "
                f"{indices.shape[1]} indices under {name!r}; they must be as many."
            )
        is_finite = torch.isfinite(raw)
        plan = make_plan(
            *(self._reducer_for(name), name, info, raw, embeddings, labels),
            self.installed.entry.active_only,
        )
        weights, keys = (None, None) if known is None else known.of(indices, call.ref_rows)
        trust = info.get("trust")  # of values that fade with their positives
        if trust is not None and plan.keep is None and info["stays"]:
            raw = raw * trust
        elif trust is not None:
            weights = trust if weights is None else weights * trust
        if self.installed.carries_weights and weights is not None:
            weights = weights.to(raw)
            raw = torch.where(weights > 0, raw, 0) / torch.where(weights > 0, weights, 1)
            keys = torch.where(weights > 0, keys, -1)  # type: ignore[arg-type]  # unseen
        if plan.keep is not None:  # what does not enter has no gradient, not even NaN times 0
            raw = torch.where(plan.keep, raw, 0)
        return Term(name, info, raw, weights, indices, keys, plan, is_finite)

    def _reducer_for(self, name: str) -> Any:
        return reducer_for(self.inner, name, self.installed.entry.sub_losses)

    def _finish(self, term: Term, losses: Tensor, embeddings: Tensor) -> Any:
        if term.plan.empty:
            return self.zero_loss(embeddings).to(losses.dtype)
        if term.weights is None:
            return term.plan.finish(losses)
        weights = term.weights.to(losses)
        if not self.installed.carries_weights:  # whose divisor is its own affair
            weights = term.plan.weighted(weights)
        return term.plan.finish(losses * weights)

    def _sum(
        self, loss_dict: dict[str, Any], results: dict[str, Any], embeddings: Tensor, labels: Any
    ) -> Tensor:
        parts = []
        for name, info in loss_dict.items():
            if name in results:
                value = results[name]
            elif isinstance(info["losses"], Tensor) and info["losses"].numel() == 0:
                value = self.zero_loss(embeddings)
            else:
                value = self._reducer_for(name)({name: info}, embeddings, labels)
            parts.append(value.reshape(()))
        reducer = self.inner if isinstance(self.inner, pml_reducers.MultipleReducers) else self
        if len(parts) == 1 and reducer is self:
            return parts[0]
        dtype = max((p.dtype for p in parts), key=lambda d: torch.finfo(d).bits)
        stacked = torch.stack([p.to(dtype) for p in parts])
        return reducer.sub_loss_reduction(stacked, embeddings, labels)

    # ------------------------------------------------------------------ confidences

    @torch.no_grad()
    def _remember(self, terms: list[Term], sources: list[Source]) -> None:
        anchors = [None if term.keys is None else term.keys[0] for term in terms]
        self.confidences = {
            term.name: Confidences(source, term.indices, rows, term.plan.keep)
            for term, source, rows in zip(terms, sources, anchors, strict=True)
        }
        if self.table is None or not self.training:
            return
        named = [(term, term.keys) for term in terms if term.keys is not None]
        keys = [torch.where(term.is_finite, rows, -1).flatten() for term, rows in named]
        lost = [torch.where(term.is_finite, -1, rows).flatten() for term, rows in named]
        repeated = [
            self.confidences[term.name].values.float().expand(len(term.indices), -1).flatten()
            for term in terms
        ]
        empty = self.table.average.new_zeros(0)
        known = torch.cat(keys) if keys else empty.long()
        self.table.update(torch.cat(repeated) if repeated else empty, known)
        self.table.note_unjudged(torch.cat(lost) if lost else empty.long(), known)

    def sample_confidences(self) -> Float[Tensor, " N"]:
        """Return (N,) the mean confidence each sample had in the last batch that met it.

        Pairs and triplets count for each of their samples; losses that are not finite for none,
        nor those of weight 0 that the loss weighed itself.  NaN: no batch has met it otherwise.

        Raises:
            InputError: the loss was wrapped without `sample_weights=`, so samples have no names.
        """
        if self.table is None:
            raise InputError(
                "per-sample confidences need to know the samples: wrap the loss with "
                "`sample_weights=SampleWeights(labels)` and tell each batch's `sample_index`."
            )
        return self.table.filled()

    def as_weights(self) -> Float[Tensor, " N"]:
        """Return (N,) the same as numbers in [0, 1], which audit and report take like sample
        weights.

        Of SuperLoss sigma cut at 1, the confidence of a usual loss, as in a run's `weights.csv`:
        being easier than usual is no more than a label that fits, and below .5 is a suspect.  Of
        the others divided by the largest confidence the transform can give.  1 where no batch met
        the sample.  Where no loss of a sample was finite in the batch that met it last, a warning
        says so; its number is then that of the batch before, or NaN.
        """
        found = (self.sample_confidences() / self.peak).clamp(0, 1)
        assert self.table is not None
        lost = self.table.unjudged
        if bool(lost.any()):
            rows = lost.nonzero()[:, 0]
            warnings.warn(
                f"no loss of {counted(len(rows), 'sample')} was a finite number when last met (the "
                f"first is row {int(rows[0])}): the weight there is that of before, or NaN. Look "
                "for NaN in the inputs.",
                stacklevel=2,
            )
        return torch.where(found.isnan() & ~lost, 1.0, found)
