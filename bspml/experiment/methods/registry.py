"""Training methods by name: which there are, what each can be told, and what it builds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bspml.errors import InputError
from bspml.experiment.methods import multi_similarity as ms, pairwise
from bspml.experiment.methods.parts import (
    Hyper,
    Method,
    MethodContext,
    MethodParts,
    checked,
)
from bspml.experiment.methods.wrappers import WRAPPERS, Wrapper
from bspml.words import did_you_mean

METHODS: dict[str, type[Method]] = {
    method.name: method
    for method in (
        # In the order of the tables of [Zhang 2023], then what it does not have.
        pairwise.Contrastive,
        pairwise.TripletSmooth,
        pairwise.Margin,
        pairwise.FastAP,
        ms.MultiSimilarity,
        ms.MultiSimilarityPaper,
        pairwise.RDML,
        pairwise.ProxyAnchor,
        pairwise.SNR,
        ms.SPMS,
        ms.BSPMLPaper,
        ms.BSPML,
        ms.PRISM,
        ms.NeighbourVoteMethod,
        ms.CleanOnly,
    )
}


def build(name: str, context: MethodContext) -> MethodParts:
    """Build the parts of the method `name`, or of `WRAPPER:NAME`.

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
    wrapper, method = _find(name)
    _check_known(name, context.hyper)
    settings = checked(method, context.hyper)
    around = None if wrapper is None else checked(wrapper, context.hyper)
    parts = settings.make(context)
    return parts if around is None else around.wrap(parts, context)


def check_method(name: str, hyper: Mapping[str, Any] | None = None) -> None:
    """Refuse a name or hyper-parameters that `build` would refuse, before there are any data.

    Args:
        name: one of `names(wrapped=True)`.
        hyper: hyper-parameters that differ from their defaults.

    Raises:
        InputError: as `build`, but for what only the context tells.

    Example:
        >>> check_method("superloss:margin", {"superloss_lam": 0.1})
    """
    _check_known(name, hyper or {})
    for part in _find(name):
        if part is not None:
            checked(part, hyper or {})


def _check_known(name: str, given: Mapping[str, Any]) -> None:
    known = hyper_parameters(name)
    for key in given:
        if key not in known:
            listed = f"It takes {', '.join(known)}." if known else "It takes none."
            raise InputError(
                f"`hyper.{key}` is no hyper-parameter of {name}{did_you_mean(key, known)}. {listed}"
            )


def names(wrapped: bool = False) -> tuple[str, ...]:
    """Return every name, in the order of a table; with `wrapped`, every legal WRAPPER:NAME after
    them."""
    plain = tuple(METHODS)
    if not wrapped:
        return plain
    over = [name for name in plain if not METHODS[name].unwrappable]
    return (*plain, *(f"{wrapper}:{name}" for wrapper in WRAPPERS for name in over))


def hyper_parameters(name: str) -> dict[str, Hyper]:
    """Return what can be set for this method: `.default`, `.says`, `.printed` of each.

    Raises:
        InputError: no such name.

    Example:
        >>> hyper_parameters("fast-ap")
        {'num_bins': Hyper(default=10, says='bins of the histograms', printed=True)}
    """
    wrapper, method = _find(name)
    return {**method.hyper(), **({} if wrapper is None else wrapper.hyper())}


def title(name: str) -> str:
    """Return its name in a table.

    Example:
        >>> title("proxy-anchor"), title("superloss:multi-similarity")
        ('Proxy-Anchor', 'SuperLoss on MS')
    """
    wrapper, method = _find(name)
    return method.title if wrapper is None else f"{wrapper.title} on {method.title}"


def _find(name: Any) -> tuple[type[Wrapper] | None, type[Method]]:
    """Return the wrapper before the colon, if any, and the method."""
    before, colon, after = str(name).rpartition(":")
    if not colon:
        return None, _method(after, name)
    if before not in WRAPPERS:
        more = ". One wrapper at a time." if ":" in before else did_you_mean(before, WRAPPERS)
        raise InputError(
            f"`method`: before the colon stands one of {', '.join(WRAPPERS)}; got "
            f"{before!r:.40}{more}"
        )
    wrapper, method = WRAPPERS[before], _method(after, name)
    if method.unwrappable:
        raise InputError(
            f"`method`: {wrapper.title} cannot go on {method.name}: {method.unwrappable}. "
            f"Use {method.name} alone, or another method after the colon."
        )
    return wrapper, method


def _method(name: str, asked: Any) -> type[Method]:
    if name not in METHODS:
        raise InputError(
            f"`method`: no method is called {name!r:.40}{did_you_mean(name, METHODS)}. There are "
            f"{', '.join(METHODS)}, and {':NAME, '.join(WRAPPERS)}:NAME on any of them but "
            f"{', '.join(n for n, m in METHODS.items() if m.unwrappable)}."
        )
    return METHODS[name]
