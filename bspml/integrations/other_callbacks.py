"""Callbacks of Lightning that a network that is reset, or a table in the module, goes ill with."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

from bspml.distributed import is_main
from bspml.errors import InputError

# By name, as they are of two packages; those that are made of them have their names, too.
_KEEP_ON = {"WeightAveraging", "StochasticWeightAveraging", "BaseFinetuning"}
_CHOOSE = {"ModelCheckpoint", "EarlyStopping"}
_REMEDY = (
    'Take warmup="features" with a pretrained network, which is never thrown away, or add it in a '
    "second `fit` after the warm-up"
)


def check_beside_reset(callbacks: Iterable[Any]) -> None:
    """Refuse callbacks that a fresh network in the warm-up breaks; warn of those it misleads.

    Args:
        callbacks: of the Trainer.

    Raises:
        InputError: one averages networks or adds parameters to the optimiser.
    """
    choosing = []
    for callback in callbacks:
        kinds = {kind.__name__ for kind in type(callback).__mro__}
        if kinds & _KEEP_ON or hasattr(callback, "_average_model"):
            raise InputError(
                f"{type(callback).__name__} goes on over networks that the warm-up throws away. "
                f"{_REMEDY}."
            )
        if kinds & _CHOOSE and getattr(callback, "monitor", None) is not None:
            choosing.append(f"{type(callback).__name__}(monitor={callback.monitor!r})")
    if choosing and is_main():
        warnings.warn(
            f"{' and '.join(choosing)} may choose an epoch of the warm-up, whose networks are "
            f"thrown away. {_REMEDY}; or choose yourself among the epochs whose record has neither "
            '"half A" nor "half B" in its `phase`.',
            stacklevel=3,
        )


def check_beside_table(callbacks: Iterable[Any]) -> None:
    """Refuse callbacks that overwrite a table of weights in the module.

    Args:
        callbacks: of the Trainer.

    Raises:
        InputError: one averages the module's buffers, weights and classes of the samples included,
            and leaves the averages in their place.
    """
    for callback in callbacks:
        if any(kind.__name__ == "WeightAveraging" for kind in type(callback).__mro__):
            raise InputError(
                f"{type(callback).__name__} would average the sample weights, and the classes, in "
                "the module's loss, and leave that in their place. Keep the loss in a list, out of "
                "its sight: self.losses = [bspml.Weighted(loss, weights)]; or leave the weights "
                "out of the loss, which default ones of 0 and 1 do not need there."
            )
