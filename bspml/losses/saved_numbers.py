"""Save plain numbers of a module beside its buffers, which a resumed run would otherwise lose."""

from __future__ import annotations

from typing import Any

from bspml.errors import CheckpointError


class SavedNumbers:
    """Mixin for modules whose state is more than buffers: the rest travels in `state_dict`, too.

    Attributes:
        saved_numbers: names of the attributes, each an int or a bool.
    """

    saved_numbers: tuple[str, ...]

    def get_extra_state(self) -> dict[str, int]:
        """Return what `state_dict` saves beside the buffers."""
        return {name: int(getattr(self, name)) for name in self.saved_numbers}

    def set_extra_state(self, state: Any) -> None:
        """Restore what `state_dict` saved beside the buffers.

        Raises:
            CheckpointError: a number is missing, or none that is counted to.
        """
        for name in self.saved_numbers:
            kind: Any = type(getattr(self, name))
            value: Any = dict(state).get(name)
            low, high = (0, 1) if kind is bool else self.bounds_of(name)
            if not isinstance(value, int) or not low <= int(value) <= high:
                raise CheckpointError(
                    f"the saved `{name}` of {type(self).__name__} must be a whole number from "
                    f"{low} to {high}; got {value!r:.16}. Resume with the state of such a module."
                )
            setattr(self, name, kind(value))

    def bounds_of(self, name: str) -> tuple[int, int]:
        """Return the least and the largest that a number can be.

        Args:
            name: of `saved_numbers`.
        """
        return 0, 2**62
