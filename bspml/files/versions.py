"""Which versions a result was made with."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version

from bspml import __version__


def versions_of(libraries: Sequence[str]) -> dict[str, str]:
    """Return {name: version} of bspml and of these installed distributions, in this order.

    Example:
        >>> list(versions_of(("torch", "numpy")))
        ['bspml', 'torch', 'numpy']
    """
    return {"bspml": __version__} | {name: version(name) for name in libraries}
