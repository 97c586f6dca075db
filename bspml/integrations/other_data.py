"""Evaluations of a Lightning module: without a row in the table of weights."""

from __future__ import annotations

from typing import Any

import torch

from bspml.files.checkpoints import generator_states, restore_generators


class OtherData:
    """Four hooks of a callback with a `loader` and `weights`: samples of an evaluation weigh 1.

    A validation in a fit leaves the random generators as its training had them: Lightning opens its
    loaders, which draws, and a fit that is resumed may open others, or leave the validation out.

    Attributes:
        drawn: torch's generator after the last batch of the training, or None.
        aside: all generators of the training while it is validated, or None.
        saved: generators of a checkpoint, until the training goes on from them.
    """

    loader: Any
    weights: Any
    drawn: torch.Tensor | None = None
    aside: dict[str, Any] | None = None
    saved: dict[str, Any] | None = None

    def go_on(self, again: bool = False) -> None:
        """Put the generators where the checkpoint has them, if a fit is resumed.

        Args:
            again: more is drawn before the next batch, which this will be called for, too.
        """
        if self.saved is not None:
            restore_generators(self.saved)
        self.saved = self.saved if again else None
        self.drawn = torch.get_rng_state()

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Refuse to validate on the loader of the training."""
        if trainer.state.fn == "fit":
            self.loader.refuse_in(trainer.val_dataloaders)
            if self.drawn is not None:  # as it is in the sanity check
                self.aside = {**generator_states(), "torch": self.drawn}
        self.weights.evaluating = True

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Let batches and generators be the training's again."""
        self.weights.evaluating = False
        if self.aside is not None:
            restore_generators(self.aside)
            self.aside = None

    def on_test_start(self, trainer: Any, pl_module: Any) -> None:
        """Let the weights know that batches are of other data."""
        self.weights.evaluating = True

    def on_test_end(self, trainer: Any, pl_module: Any) -> None:
        """Let batches be the training's again."""
        self.weights.evaluating = False
