"""What Lightning's callback embeds with."""

from __future__ import annotations

from typing import Any

from torch import nn

from bspml.shapes import Tensor


class PrecisionEmbedder(nn.Module):
    """The module, or a function that uses it, in the Trainer's precision if there is one.

    Args:
        module: of the training; its modes and device are those of what is embedded with.
        function: maps a batch of inputs to (B, D); None: the module does.
        precision: Lightning's plugin, or None.
    """

    def __init__(self, module: nn.Module, function: Any, precision: Any) -> None:
        super().__init__()
        self.module, self.precision = module, precision
        self.function = module if function is None else function

    def forward(self, inputs: Any) -> Tensor:
        """Return the (B, D) embeddings of a batch of inputs."""
        if self.precision is None:
            return self.function(inputs)
        with self.precision.forward_context():
            return self.function(self.precision.convert_input(inputs))
