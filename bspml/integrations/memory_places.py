"""Where the memories of pytorch-metric-learning in a Lightning module stand, in its checkpoint."""

from __future__ import annotations

from typing import Any

from bspml.losses.saved_numbers import places_in_queues, take_places_in_queues

_KEY = "bspml_queues"


class MemoryPlaces:
    """Two hooks of a callback: the module's own checkpoint has the queues' rows alone."""

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Save where the memories in the module stand."""
        checkpoint[_KEY] = places_in_queues(pl_module)

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Let them stand there again."""
        take_places_in_queues(pl_module, checkpoint.get(_KEY, {}))  # not before it was kept
