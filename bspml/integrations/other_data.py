"""Evaluations of a Lightning module: their samples have no row in the table of weights."""

from __future__ import annotations

from typing import Any


class OtherData:
    """Four hooks of a callback with a `loader` and `weights`: samples of an evaluation weigh 1."""

    loader: Any
    weights: Any

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Refuse to validate on the loader of the training."""
        if trainer.state.fn == "fit":
            self.loader.refuse_in(trainer.val_dataloaders)
        self.weights.evaluating = True

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Let batches be the training's again."""
        self.weights.evaluating = False

    def on_test_start(self, trainer: Any, pl_module: Any) -> None:
        """Let the weights know that batches are of other data."""
        self.weights.evaluating = True

    def on_test_end(self, trainer: Any, pl_module: Any) -> None:
        """Let batches be the training's again."""
        self.weights.evaluating = False
