"""Training methods by name: which there are, what each can be told, and what it builds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from bspml.errors import InputError
from bspml.experiment.methods import multi_similarity as ms, pairwise, proxies
from bspml.experiment.methods.parts import (
    Hyper,
    HyperParameters,
    Method,
    MethodContext,
    MethodParts,
    checked,
)
from bspml.experiment.methods.weighing import WEIGHINGS, Weighing
from bspml.experiment.methods.wrappers import WRAPPERS, Wrapper
from bspml.tensors.arguments import check_flags, check_kind
from bspml.words import did_you_mean

METHODS: dict[str, type[Method]] = {
    method.name: method
    for method in (
        # In the order of the tables of [Zhang 2023], then what it does not have.
        pairwise.Contrastive,
        pairwise.ContrastivePaper,
        pairwise.TripletSmooth,
        pairwise.Margin,
        pairwise.FastAP,
        ms.MultiSimilarity,
        ms.MultiSimilarityPaper,
        pairwise.RDML,
        proxies.ProxyAnchor,
        pairwise.SNR,
        ms.SPMS,
        ms.BSPMLPaper,
        ms.BSPML,
        ms.PRISM,
        ms.NeighbourVoteMethod,
        ms.CleanOnly,
        pairwise.SupCon,
        pairwise.NTXent,
        pairwise.Circle,
        proxies.ArcFace,
    )
}


class Named(NamedTuple):
    """The parts of a name `[WRAPPER:][WEIGHING:]METHOD`.

    Attributes:
        wrapper: goes on the loss's values, or None.
        weighing: moves sample weights under the loss, or None.
        method: has the loss.
    """

    wrapper: type[Wrapper] | None
    weighing: type[Weighing] | None
    method: type[Method]

    @property
    def parts(self) -> tuple[type[HyperParameters], ...]:
        """Those that there are."""
        return tuple(part for part in self if part is not None)


def build(name: str, context: MethodContext) -> MethodParts:
    """Build the parts of a method, with what stands before it in the name around its loss.

    Two calls with the same arguments give the same parameters; no global generator is used.

    Args:
        name: one of `names(wrapped=True)`.
        context: what the training set and the run say.

    Raises:
        InputError: no such name or hyper-parameter, a value it does not take, a wrapper that
            cannot go on it, or something missing from the context; the text says what.

    Example:
        >>> context = MethodContext(num_classes=10, embedding_size=64, hyper={"superloss_lam": 0.1})
        >>> parts = build("superloss:contrastive", context)
        >>> type(parts.loss).__name__, type(parts.loss.reducer).__name__
        ('ContrastiveLoss', 'SuperLossReducer')
    """
    named = parsed(name)
    _check_known(name, context.hyper)
    parts = checked(named.method, context.hyper).make(context)
    if named.weighing is not None:
        parts = checked(named.weighing, context.hyper).weigh(parts, context)
    if named.wrapper is not None:
        parts = checked(named.wrapper, context.hyper).wrap(parts, context)
    return parts


def check_method(name: str, hyper: Mapping[str, Any] | None = None) -> None:
    """Refuse a name or hyper-parameters that `build` would refuse, before there are any data.

    Args:
        name: one of `names(wrapped=True)`.
        hyper: hyper-parameters that differ from their defaults.

    Raises:
        InputError: as `build`, but for what only the context tells.

    Example:
        >>> check_method("superloss:auto:margin", {"superloss_lam": 0.1})
    """
    given = {} if hyper is None else hyper
    _check_known(name, given)
    for part in parsed(name).parts:
        checked(part, given)


def _check_known(name: str, given: Mapping[str, Any]) -> None:
    check_kind(given, "hyper", Mapping, "hyper-parameters by name, {name: value}")
    known = hyper_parameters(name)
    for key in given:
        if key not in known:
            listed = f"It takes {', '.join(known)}." if known else "It takes none."
            raise InputError(
                f"`hyper.{key}` is no hyper-parameter of {name}"
                f"{did_you_mean(key, known) or '.'} {listed}"
            )


def names(wrapped: bool = False) -> tuple[str, ...]:
    """Return every name, in the order of a table.

    Args:
        wrapped: after them every legal WEIGHING:NAME, WRAPPER:NAME and WRAPPER:WEIGHING:NAME.
    """
    check_flags(wrapped=wrapped)
    plain = tuple(METHODS)
    if not wrapped:
        return plain
    under = [name for name in plain if not METHODS[name].unweighable]
    weighed = [f"{weighing}:{name}" for weighing in WEIGHINGS for name in under]
    over = [n for n in (*plain, *weighed) if not METHODS[n.rpartition(":")[2]].unwrappable]
    return (*plain, *weighed, *(f"{wrapper}:{name}" for wrapper in WRAPPERS for name in over))


def hyper_parameters(name: str) -> dict[str, Hyper]:
    """Return what can be set for this method: `.default`, `.says`, `.printed` of each.

    Raises:
        InputError: no such name.

    Example:
        >>> hyper_parameters("fast-ap")
        {'num_bins': Hyper(default=10, says='bins of the histograms', printed=True)}
    """
    return {
        key: hyper for part in reversed(parsed(name).parts) for key, hyper in part.hyper().items()
    }


def title(name: str) -> str:
    """Return its name in a table.

    Example:
        >>> title("proxy-anchor"), title("superloss:multi-similarity"), title("auto:margin")
        ('Proxy-Anchor', 'SuperLoss on MS', 'Margin, automatic')
    """
    wrapper, weighing, method = parsed(name)
    text = method.title if wrapper is None else f"{wrapper.title} on {method.title}"
    return text if weighing is None else f"{text}, {weighing.title}"


def parsed(name: Any) -> Named:
    """Return what a name is made of.

    Args:
        name: `[WRAPPER:][WEIGHING:]METHOD`.

    Raises:
        InputError: no such parts, or parts that do not go together, with the reason.
    """
    *before, last = str(name).split(":")
    method = _method(last)
    weighing = WEIGHINGS[before.pop()] if before and before[-1] in WEIGHINGS else None
    wrapper = WRAPPERS[before.pop()] if before and before[-1] in WRAPPERS else None
    if before:
        raise InputError(_wrong_order(str(name).split(":")))
    for part, called, reason in (
        (weighing, weighing and weighing.name, method.unweighable),
        (wrapper, wrapper and wrapper.title, method.unwrappable),
    ):
        if part is not None and reason:
            raise InputError(
                f"`method`: {called} cannot go on {method.name}: {reason}. "
                f"Use {method.name} alone, or another method after the colon."
            )
    return Named(wrapper, weighing, method)


def _wrong_order(parts: list[str]) -> str:
    """Say what is wrong with what stands before a method's name."""
    *before, method = parts
    known = [*WRAPPERS, *WEIGHINGS]
    for part in before:
        if part not in known:
            return (
                f"`method`: before the colon stands one of {', '.join(known)}; got {part!r:.40}"
                f"{did_you_mean(part, known)}"
            )
    ordered = [part for part in known if part in before]  # each once, the wrapper first
    rivals = [p for kinds in (WRAPPERS, WEIGHINGS) if len(p := [*filter(kinds.get, ordered)]) > 1]
    use = f"choose one of {', '.join(rivals[0])}" if rivals else f"use {':'.join(ordered)}:{method}"
    return (
        f"`method`: before a method stands at most one of {', '.join(WRAPPERS)}, then at most one "
        f"of {', '.join(WEIGHINGS)}; got {':'.join(parts)!r:.80}, {use}."
    )


def _method(name: str) -> type[Method]:
    if name not in METHODS:
        raise InputError(
            f"`method`: no method is called {name!r:.40}{did_you_mean(name, METHODS) or '.'} "
            f"There are {', '.join(METHODS)}; {':NAME, '.join(WRAPPERS)}:NAME on any of them but "
            f"{', '.join(n for n, m in METHODS.items() if m.unwrappable)}; and "
            f"{':NAME, '.join(WEIGHINGS)}:NAME on any but "
            f"{', '.join(n for n, m in METHODS.items() if m.unweighable)}."
        )
    return METHODS[name]
