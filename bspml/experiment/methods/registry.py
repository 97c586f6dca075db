"""The names, and the one door from a name to what trains."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from bspml.errors import InputError
from bspml.experiment.methods.hyper import Hyper, nearest, resolve
from bspml.experiment.methods.multi_similarity import MULTI_SIMILARITY
from bspml.experiment.methods.pairwise import PAIRWISE
from bspml.experiment.methods.parts import Method, MethodContext, MethodParts, table_of
from bspml.experiment.methods.wrappers import WRAPPERS, Wrapper, wrap

# In the order of the tables of [Zhang 2023], then what it does not have.
_ORDER = (
    "contrastive",
    "triplet-smooth",
    "margin",
    "fast-ap",
    "multi-similarity",
    "multi-similarity-paper",
    "rdml",
    "proxy-anchor",
    "snr",
    "spms",
    "bspml-paper",
    "bspml",
    "prism",
    "clean-only",
)
_ALL = {method.name: method for method in (*PAIRWISE, *MULTI_SIMILARITY)}
METHODS: dict[str, Method] = {name: _ALL[name] for name in _ORDER}
assert len(METHODS) == len(_ALL)


def build(name: str, context: MethodContext) -> MethodParts:
    """The parts of the method `name`, or of `WRAPPER:NAME`.

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
    values = resolve(hyper_parameters(name), context.hyper, name)
    if method.needs_weights:
        table_of(context, name)
    parts = method.make(context, {key: values[key] for key in method.hyper})
    # Methods that share a maker are told apart by the name they were asked for.
    parts = dataclasses.replace(parts, name=method.name)
    if wrapper is None:
        return parts
    return wrap(wrapper, parts, context, {key: values[key] for key in wrapper.hyper})


def check_method(name: str, hyper: Mapping[str, Any] | None = None) -> None:
    """Refuse a name or hyper-parameters that `build` would refuse, before there are any data.

    Raises:
        InputError: as `build`, but for what only the context tells.
    """
    resolve(hyper_parameters(name), hyper or {}, name)


def names(wrapped: bool = False) -> tuple[str, ...]:
    """Every name, in the order of a table; with `wrapped`, every legal WRAPPER:NAME after them."""
    plain = tuple(METHODS)
    if not wrapped:
        return plain
    over = [name for name in plain if not METHODS[name].unwrappable]
    return (*plain, *(f"{wrapper}:{name}" for wrapper in WRAPPERS for name in over))


def hyper_parameters(name: str) -> dict[str, Hyper]:
    """What can be set for this method: `.default`, `.says`, `.printed` of each.

    Raises:
        InputError: no such name.
    """
    wrapper, method = _find(name)
    return {**method.hyper, **({} if wrapper is None else wrapper.hyper)}


def title(name: str) -> str:
    """Its name in a table, such as 'Proxy-Anchor' or 'SuperLoss on MS'."""
    wrapper, method = _find(name)
    return method.title if wrapper is None else f"{wrapper.title} on {method.title}"


def _find(name: Any) -> tuple[Wrapper | None, Method]:
    """The wrapper before the colon, if any, and the method."""
    before, colon, after = str(name).rpartition(":")
    if not colon:
        return None, _method(after, name)
    if before not in WRAPPERS:
        listed = (
            f"; got {name!r:.60}. One wrapper at a time."
            if ":" in before
            else f"; got {before!r:.40}"
        )
        raise InputError(
            f"`method`: before the colon stands one of {', '.join(WRAPPERS)}{listed}"
            f"{nearest(before, WRAPPERS)}"
        )
    wrapper, method = WRAPPERS[before], _method(after, name)
    if method.unwrappable:
        raise InputError(
            f"`method`: {wrapper.title} cannot go on {method.name}: {method.unwrappable}. "
            f"Use {method.name} alone, or another method after the colon."
        )
    return wrapper, method


def _method(name: str, asked: Any) -> Method:
    if name not in METHODS:
        raise InputError(
            f"`method`: no method is called {name!r:.40}{nearest(name, METHODS)}. There are "
            f"{', '.join(METHODS)}, and {':NAME, '.join(WRAPPERS)}:NAME on any of them but "
            f"{', '.join(n for n, m in METHODS.items() if m.unwrappable)}."
        )
    return METHODS[name]
