"""Embeddings of a LightningModule, of inputs that have come the way of a training step's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from bspml.errors import InputError
from bspml.shapes import Tensor


class ModuleEmbedder(nn.Module):
    """The module, or a function that uses it, in the Trainer's precision if there is one.

    Args:
        module: of Lightning.
        function: maps inputs to (B, D); None: the module.
        trainer: that trains it, or None.
    """

    def __init__(self, module: nn.Module, function: Any, trainer: Any = None) -> None:
        super().__init__()
        self.module, self.trainer = module, trainer
        self.function = module if function is None else function

    def forward(self, inputs: Any) -> Tensor:
        """Return the (B, D) embeddings of a batch of inputs."""
        if self.trainer is None:
            found = self.function(inputs)
        else:
            precision = self.trainer.precision_plugin
            with precision.forward_context():
                found = self.function(precision.convert_input(inputs))
        if not isinstance(found, Tensor):
            raise InputError(
                f"the embeddings of a batch must be a tensor (B, D); got {type(found).__name__}. "
                "Say which part they come from, such as embed=lambda x: model(x)[0]."
            )
        return found

    def prepared(self, batch: Any) -> Any:
        """Return a loader's batch as Lightning hands it to the module: after all its hooks."""
        module: Any = self.module
        if self.trainer is not None:
            batch = self.trainer.precision_plugin.convert_input(batch)
        return module._apply_batch_transfer_handler(module._on_before_batch_transfer(batch))

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Have the hooks find a Trainer that validates inside: those that augment then do not."""
        if self.trainer is None:
            with _told_without_trainer():
                yield
            return
        stage, self.trainer.validating = self.trainer.state.stage, True
        try:
            yield
        finally:
            self.trainer.state.stage = stage


@contextmanager
def _told_without_trainer() -> Iterator[None]:
    try:
        yield
    except RuntimeError as err:
        if "not attached to a `Trainer`" not in str(err):
            raise
        raise InputError(
            "the module, or a hook of it that batches go through, reads self.trainer, and outside "
            "`fit` it has none. Ask there for self._trainer, or make the callback with `data`, the "
            "inputs as they are after the hooks."
        ) from err
