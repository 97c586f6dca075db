"""Evaluations of a Lightning module: without a row in the table of weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bspml.files.checkpoints import generator_states, restore_generators


class OtherData:
    """Hooks of a callback with a `loader` and `weights`: samples of an evaluation weigh 1.

    A validation in a fit leaves the random generators as its training had them: Lightning opens its
    loaders, which draws, and a fit that is resumed may open others, or leave the validation out.

    Attributes:
        aside: generators of the training while it is validated, or None.
        saved: generators of a checkpoint, until the training goes on from them.
    """

    loader: Any
    weights: Any
    aside: dict[str, Any] | None = None
    saved: dict[str, Any] | None = None

    def as_saved(self, action: Callable[[], None]) -> None:
        """Do what came next after a checkpoint: it draws where the generators stood.

        Args:
            action: what the training does then.
        """
        if self.saved is not None:
            restore_generators(self.saved)
        action()
        if self.saved is not None:
            self.saved = generator_states()

    def go_on(self, trainer: Any) -> None:
        """Put the generators where a checkpoint has them, and set validations apart from now on.

        No hook of a callback stands between those of a batch, which may draw, and the opening.

        Args:
            trainer: that fits, until `end_apart`.
        """
        if self.saved is not None:
            restore_generators(self.saved)
        self.saved = None
        for loop, name in _openers(trainer):
            setattr(loop, name, partial(self._apart, getattr(loop, name)))

    def _apart(self, opens: Any) -> Any:
        self.aside = generator_states()
        try:
            return opens()
        finally:
            restore_generators(self.aside)
            self.aside = None

    def end_apart(self, trainer: Any) -> None:
        """Leave the trainer as it was.

        Args:
            trainer: that has fitted.
        """
        for loop, name in _openers(trainer):
            vars(loop).pop(name, None)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Refuse to validate on the loader of the training."""
        if trainer.state.fn == "fit":
            self.loader.refuse_in(trainer.val_dataloaders)
        self.weights.evaluating = True

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Let batches be the training's again."""
        self.weights.evaluating = False

    on_test_start, on_test_end = on_validation_start, on_validation_end


def _openers(trainer: Any) -> list[tuple[Any, str]]:
    """What opens the loaders of a validation: to run it, or, in a fit resumed, to leave it out."""
    loop = trainer.fit_loop.epoch_loop.val_loop
    names = ("run", "increment_progress_to_evaluation_end")
    return [(loop, name) for name in names if hasattr(loop, name)]
