"""Modules in eval mode for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def in_eval_mode(*parts: nn.Module) -> Iterator[None]:
    """Have modules, and all in them, in eval mode inside; each has its own mode again after.

    So what is frozen stays frozen.

    Args:
        *parts: modules.

    Example:
        >>> frozen = nn.Sequential(nn.Dropout().eval(), nn.Dropout())
        >>> with in_eval_mode(frozen):
        ...     inside = [part.training for part in frozen.modules()]
        >>> inside, [part.training for part in frozen.modules()]
        ([False, False, False], [True, False, True])
    """
    modes = {module: module.training for part in parts for module in part.modules()}
    for part in parts:
        part.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
