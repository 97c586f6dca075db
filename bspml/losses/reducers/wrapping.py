"""`SuperLoss`, `GradientRescaling`, `IMAE`: one line around any loss of pytorch-metric-learning.

    loss -> its catalogue entry (or a refusal that names it) -> a reducer on top of its own
         -> a watcher of its calls, which tells the reducer the rows of the batch

The same loss object comes back, so whatever accepts losses by class name still accepts it, and its
parameters, regularisers and distance stay where they are.  Containers (CrossBatchMemory,
MultipleLosses, SelfSupervisedLoss, DistributedLossWrapper) may be given as they are, or be put
around a wrapped loss.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pytorch_metric_learning import losses as pml_losses
from pytorch_metric_learning.utils.distributed import DistributedLossWrapper
from torch import Tensor, nn

from bspml.errors import InputError
from bspml.losses.reducers.catalogue import CATALOGUE, KINDS, LossEntry, entry_of, kind_of
from bspml.losses.reducers.gradient_rescaling import DELTA, GradientRescalingReducer, check_emphasis
from bspml.losses.reducers.inner import check_reducer
from bspml.losses.reducers.softmax import check_classes, rescale_logits, restore_logits
from bspml.losses.reducers.superloss import SuperLossReducer
from bspml.losses.reducers.tau import MOMENTUM
from bspml.losses.reducers.transform import Call, Installed, TransformReducer
from bspml.tensors.arguments import check_flags
from bspml.tensors.checks import check_choice
from bspml.tensors.row_checks import check_class_ids
from bspml.weights.state import SampleWeights, check_weights

LossT = TypeVar("LossT")


def SuperLoss(  # noqa: N802 -- reads as the loss it makes
    loss: LossT,
    lam: float | int = 0.25,
    tau: float | int | str = "ema",
    *,
    momentum: float | int = MOMENTUM,
    shared_tau: bool = False,
    smoothing: str = "none",
    smoothing_momentum: float | int = MOMENTUM,
    sample_weights: Any = None,
) -> LossT:
    """Give each sample, pair or triplet the confidence its loss deserves [Castells 2020].

    Every per-element value l of the loss becomes  sigma (l - tau) + lam log(sigma)^2  with
    sigma = exp(-W(max(-2/e, (l - tau) / lam) / 2)); its gradient is sigma times the plain one.
    Values can be negative.  Losses that the loss's own reducer leaves out (AvgNonZeroReducer: all
    that are 0) stay out, and do not count in tau.

    Args:
        loss: a loss of pytorch-metric-learning or a subclass, `BSPMLLoss`, or a container of such.
        lam: strength of the regulariser, > 0, in units of the loss: small trusts few, large all.
        tau: the loss that has confidence 1: a number, "mean" of all losses seen in train mode,
            or "ema", their exponential average.
        momentum: of "ema", in [0, 1); refused where another `tau` does not read it.
        shared_tau: one tau for all sub-losses, instead of one for each.  Contrastive losses have
            two: most negative pairs lie far below the positives, so a shared tau gives them
            confidence e, the embeddings are driven apart, and fewer negatives remain to lower tau.
        smoothing: "sample" or "class": sigma judges the average loss of the anchor's sample or
            class over the epochs, not the momentary one; needs `sample_weights`.
        smoothing_momentum: of that average, in [0, 1); refused where there is none.
        sample_weights: multiplies each loss by the weights of its samples (pair: both, triplet:
            all three), beside sigma, and keeps a table of sigma per sample.  The rows come from
            `loss(..., sample_index=)` or `sample_weights.set_batch`.

    Returns:
        The same object.  `loss.reducer.tau` is the threshold, `loss.reducer.confidences` the
        sigmas of the last batch, `loss.reducer.sample_confidences()` those of all samples.

    Raises:
        InputError: an argument out of range; a loss without per-element values, by name and with
            the reason; a loss that is wrapped already.  The loss is then unchanged.

    Example:
        >>> loss = SuperLoss(pml_losses.MultiSimilarityLoss(), lam=0.25)
        >>> loss.reducer.tau
        tensor(nan, dtype=torch.float64)
    """
    check_flags(shared_tau=shared_tau)

    def install(one: nn.Module, entry: LossEntry, facts: Installed) -> TransformReducer:
        weights = _weights_for(one, sample_weights)
        averages = (tau, momentum, shared_tau, smoothing, smoothing_momentum)
        return SuperLossReducer(one.reducer, facts, lam, *averages, weights)

    return _wrap(loss, "SuperLoss", install, sample_weights)


def GradientRescaling(  # noqa: N802 -- reads as the loss it makes
    loss: LossT,
    beta: float | int = 8.0,
    lam: float | int = 0.5,
    g: str = "exp",
    *,
    kind: str | None = None,
    delta: float | int = DELTA,
    sample_weights: Any = None,
) -> LossT:
    """Rescale each sample's gradient to  w(p) = g(beta p^lam (1 - p))  [Wang GR 2019].

    p is the probability the network gives the label.  Softmax losses are rescaled at their
    logits, exactly.  For others p = exp(-l): see `bspml.reducers.catalogue` for which factor each
    loss gets.  With a miner's `indices_tuple` the losses that pytorch-metric-learning multiplies
    by miner weights (NCALoss, the softmax losses) have p of the multiplied value.

    Args:
        loss: as for `SuperLoss`; its values must not be negative.
        beta: size of the emphasis, >= 0; 0: every sample counts alike.
        lam: its focus, >= 0: the largest weight is at p = lam / (1 + lam).
        g: "exp", or "identity", under which p = 0 (for lam > 0) and p = 1 have weight 0.
        kind: for a loss outside the catalogue, how its gradient depends on its value:
            "log-probability", "softplus" or "hinge".
        delta: smallest 1 - p a factor divides by.
        sample_weights: as for `SuperLoss`.

    Returns:
        The same object.  `loss.reducer.confidences` holds the w of the last batch.

    Raises:
        InputError: as for `SuperLoss`.

    Example:
        >>> loss = GradientRescaling(pml_losses.NormalizedSoftmaxLoss(10, 64), beta=8, lam=0.5)
        >>> loss.cross_entropy
        RescaledCrossEntropy()
    """
    if kind is not None:
        check_choice(kind, "kind", KINDS)
    numbers = check_emphasis(beta, lam, g)
    return _rescale(loss, "GradientRescaling", numbers, kind, delta, sample_weights)


def IMAE(  # noqa: N802 -- its name in the paper
    loss: LossT, T: float | int = 8.0, *, sample_weights: Any = None
) -> LossT:
    """IMAE [Wang IMAE 2019]: gradient rescaling with  w(p) = exp(T p (1 - p)).

    Args:
        loss: as for `GradientRescaling`.
        T: >= 0; 0 weighs every sample alike.
        sample_weights: as for `SuperLoss`.

    Returns:
        The same object.

    Raises:
        InputError: as for `SuperLoss`; a loss whose gradient is not known.

    Example:
        >>> loss = IMAE(pml_losses.ArcFaceLoss(10, 64), T=8)
        >>> loss.reducer.extra_repr()
        'beta=8, lam=1, g=exp, kind=logits'
    """
    numbers = check_emphasis(T, 1.0, "exp", beta_name="T")
    return _rescale(loss, "IMAE", numbers, None, DELTA, sample_weights)


def _rescale(
    loss: LossT,
    wrapper: str,
    numbers: tuple[float, float, str],
    kind: str | None,
    delta: float | int,
    sample_weights: Any,
) -> LossT:
    """Gradient rescaling under the name `wrapper`; `numbers` are beta, lam and g."""

    def install(one: nn.Module, entry: LossEntry, facts: Installed) -> TransformReducer:
        used = _kind(one, entry, kind, wrapper)
        weights = _weights_for(one, sample_weights)
        # The reducer first: what could be refused is refused before the loss is touched.
        reducer = GradientRescalingReducer(one.reducer, facts, *numbers, used, delta, weights)
        if used == "logits" and not rescale_logits(one, *numbers):
            reducer.kind = "log-probability"
        return reducer

    return _wrap(loss, wrapper, install, sample_weights)


def unwrap(loss: LossT) -> LossT:
    """Take the transform off again: the loss gets its own reducer and cross-entropy back."""
    for one in dict.fromkeys(_inside(loss)):
        if isinstance(one.reducer, TransformReducer):
            one.reducer = one.reducer.inner
        _clean(one)
    return loss


def _clean(loss: nn.Module) -> None:
    """Take off what a wrapper put beside the reducer; `set_reducer` leaves it behind."""
    for key, hook in list(loss._forward_pre_hooks.items()):
        if isinstance(hook, _CallWatcher):
            del loss._forward_pre_hooks[key]
            loss._forward_pre_hooks_with_kwargs.pop(key, None)
    restore_logits(loss)


# ---------------------------------------------------------------------- what all three share


class _CallWatcher:
    """A forward pre-hook: notes the rows of a call for the reducer, and takes the keywords out.

    pytorch-metric-learning's losses do not know `sample_index`; a loss that does gets it too.
    """

    def __init__(self, reducer: TransformReducer, passes_on: bool) -> None:
        self.reducer, self.passes_on = reducer, passes_on

    def __call__(
        self, loss: nn.Module, args: tuple, kwargs: dict[str, Any]
    ) -> tuple[tuple, dict[str, Any]]:
        given = {k: v for k, v in kwargs.items() if k in ("sample_index", "ref_sample_index")}
        if given and self.reducer.sample_weights is None and not self.passes_on:
            raise InputError(
                f"`{next(iter(given))}` names rows of the sample weights, which this loss was "
                "not wrapped with. Pass `sample_weights=` when wrapping."
            )
        if not self.passes_on:
            args, kwargs = _numbered(args, kwargs)
        embeddings = args[0] if args else kwargs.get("embeddings")
        labels = args[1] if len(args) > 1 else kwargs.get("labels")
        check_classes(loss, labels)
        references = args[3] if len(args) > 3 else kwargs.get("ref_emb")
        ref_rows = None
        if isinstance(references, Tensor) and references is not embeddings:
            ref_rows = len(references)
        ref_labels = args[4] if len(args) > 4 else kwargs.get("ref_labels")
        self.reducer.call = Call(ref_rows, **given, same_rows=ref_labels is labels)
        if not self.passes_on:
            kwargs = {k: v for k, v in kwargs.items() if k not in given}
        return args, kwargs


def _numbered(args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """A call with labels as pytorch-metric-learning's losses take them: tensors of integers."""
    call: dict[Any, Any] = {**dict(enumerate(args)), **kwargs}
    seen: dict[int, Tensor] = {}  # one object on both sides stays one
    for place, name, of, rows in ((1, "labels", 0, "embeddings"), (4, "ref_labels", 3, "ref_emb")):
        key, of_key = (name if place not in call else place), (rows if of not in call else of)
        labels, embeddings = call.get(key), call.get(of_key)
        if labels is not None and isinstance(embeddings, Tensor) and embeddings.ndim:
            ids = check_class_ids(labels, len(embeddings), name, rows)
            call[key] = seen.setdefault(id(labels), ids)
    return tuple(call.pop(place) for place in range(len(args))), call


def _wrap(
    loss: LossT,
    wrapper: str,
    install: Callable[[nn.Module, LossEntry, Installed], TransformReducer],
    sample_weights: Any,
) -> LossT:
    """Check every loss inside `loss`, then install on each."""
    check_weights(sample_weights, "sample_weights")
    losses = list(dict.fromkeys(_inside(loss)))  # a loss may stand in a container twice
    entries = [_check(one, wrapper) for one in losses]
    for one in losses:
        _clean(one)
    reducers = []
    try:
        for one, entry in zip(losses, entries, strict=True):
            reducers.append(install(one, entry, _facts(one, entry)))
    except InputError:
        for one in losses:
            restore_logits(one)
        raise
    for one, reducer in zip(losses, reducers, strict=True):
        reducer.train(one.training)
        one.reducer = reducer
        watcher = _CallWatcher(reducer, "BSPMLLoss" in _names(one))
        one.register_forward_pre_hook(watcher, with_kwargs=True)
    return loss


def held_by(losses: pml_losses.MultipleLosses) -> list[nn.Module]:
    """Return the losses of a sum, which it holds by name or in a list.

    Raises:
        InputError: there are none.
    """
    held = losses.losses
    if not len(held):
        raise InputError("`loss` is MultipleLosses without a loss in it. Put one in.")
    return list(held.values() if isinstance(held, nn.ModuleDict) else held)


def table_of(loss: Any) -> SampleWeights | None:
    """Return the sample weights that a loss looks up, or its wrapper's; None: it looks none up.

    Args:
        loss: any; `weights` of another kind are its own affair.
    """
    of_reducer = getattr(getattr(loss, "reducer", None), "sample_weights", None)
    tables = (getattr(loss, "weights", None), of_reducer)
    return next((table for table in tables if isinstance(table, SampleWeights)), None)


def _inside(loss: Any) -> list[Any]:
    """The losses inside containers, or the loss itself."""
    if isinstance(loss, pml_losses.MultipleLosses):
        return [one for part in held_by(loss) for one in _inside(part)]
    holders = (pml_losses.CrossBatchMemory, pml_losses.SelfSupervisedLoss, DistributedLossWrapper)
    if isinstance(loss, holders) or "Weighted" in _names(loss):
        return _inside(loss.loss)
    if not isinstance(loss, pml_losses.BaseMetricLossFunction):
        raise InputError(
            "`loss` must be a loss of pytorch-metric-learning, or a container of such; got "
            f"{type(loss).__name__}. For a plain function use bspml.functional.superloss or "
            "gr_cross_entropy."
        )
    return [loss]


def _check(loss: Any, wrapper: str) -> LossEntry:
    """The loss's entry, or a refusal that names the loss."""
    name = type(loss).__name__
    if isinstance(loss.reducer, TransformReducer):
        raise InputError(
            f"`loss` ({name}) is wrapped already, by {type(loss.reducer).__name__}. "
            "Take it off first with bspml.losses.reducers.unwrap(loss)."
        )
    entry = entry_of(loss)
    if entry is None:
        entry = LossEntry(sub_losses=tuple(loss._sub_loss_names()))
    reason = entry.refused or ("" if wrapper == "SuperLoss" else entry.refused_gr)
    if reason:
        raise InputError(f"{wrapper} cannot wrap {name}: {reason}.")
    check_reducer(loss.reducer, name)
    return entry


def _kind(loss: Any, entry: LossEntry, asked: str | None, wrapper: str) -> str:
    own_kind = kind_of(loss, entry)
    if own_kind is None and wrapper == "IMAE":
        raise InputError(
            f"IMAE does not know {type(loss).__name__}: use GradientRescaling(loss, beta=T, lam=1, "
            f"kind=), `kind` one of {', '.join(KINDS)} (how its gradient depends on its value)."
        )
    if own_kind is None and asked is None:
        raise InputError(
            f"GradientRescaling does not know {type(loss).__name__}: pass `kind=`, one of "
            f"{', '.join(KINDS)} (how its gradient depends on its value)."
        )
    if own_kind is not None and asked not in (None, own_kind):
        raise InputError(f"`kind` of {type(loss).__name__} is {own_kind!r}; got {asked!r}.")
    return own_kind or str(asked)


def _names(loss: Any) -> set[str]:
    return {cls.__name__ for cls in type(loss).__mro__ if cls.__module__.startswith("bspml.")}


def _carries_weights(loss: Any) -> bool:
    """BSPMLLoss multiplies by its weights itself.  By name: this layer lies below the losses."""
    return "BSPMLLoss" in _names(loss) and loss.weights is not None


def _weights_for(loss: Any, sample_weights: SampleWeights | None) -> SampleWeights | None:
    if not _carries_weights(loss):
        return sample_weights
    if sample_weights is not None and sample_weights is not loss.weights:
        raise InputError(
            "`sample_weights` must be the table the loss has already; got another. "
            "Leave it out: the loss applies its own weights."
        )
    return loss.weights


def _facts(loss: Any, entry: LossEntry) -> Installed:
    carries_weights = _carries_weights(loss)
    # A loss with proxies compares with them; BSPMLLoss looks by itself.
    needs_positives = not carries_weights and not any(p.numel() for p in loss.parameters())
    return Installed(type(loss).__name__, entry, carries_weights, needs_positives)


assert "BSPMLLoss" in CATALOGUE  # the name `_names` looks for
