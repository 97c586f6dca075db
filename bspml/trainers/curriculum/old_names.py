"""Methods of a curriculum under the names they had: they return masks, which "rows" did not say."""

from __future__ import annotations

import warnings

from bspml.shapes import Bool, Tensor


class OldNames:
    """Give a curriculum its former `training_rows` and `allowed_rows`."""

    def training_mask(self) -> Bool[Tensor, " N"] | None:
        """Return (N,) bool, the rows to train on."""
        raise NotImplementedError

    def allowed_mask(self) -> Bool[Tensor, " N"] | None:
        """Return (N,) bool, the rows that may be seen."""
        raise NotImplementedError

    def training_rows(self) -> Bool[Tensor, " N"] | None:
        """Return `training_mask()`, with a DeprecationWarning."""
        _warn("training_rows", "training_mask")
        return self.training_mask()

    def allowed_rows(self) -> Bool[Tensor, " N"] | None:
        """Return `allowed_mask()`, with a DeprecationWarning."""
        _warn("allowed_rows", "allowed_mask")
        return self.allowed_mask()


def _warn(old: str, new: str) -> None:
    warnings.warn(
        f"`{old}()` returns a mask, not row numbers: call it `{new}()`.",
        DeprecationWarning,
        stacklevel=3,
    )
