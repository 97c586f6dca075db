"""Save plain numbers of a module beside its buffers, which a resumed run would otherwise lose."""

from __future__ import annotations


class SavedNumbers:
    """Mixin for modules whose state is more than buffers: the rest travels in `state_dict`, too.

    Attributes:
        saved_numbers: names of the attributes, each an int or a bool.
    """

    saved_numbers: tuple[str, ...]

    def get_extra_state(self) -> dict[str, int]:
        """Return what `state_dict` saves beside the buffers."""
        return {name: int(getattr(self, name)) for name in self.saved_numbers}

    def set_extra_state(self, state: dict[str, int]) -> None:
        """Restore what `state_dict` saved beside the buffers."""
        for name in self.saved_numbers:
            setattr(self, name, type(getattr(self, name))(state[name]))
