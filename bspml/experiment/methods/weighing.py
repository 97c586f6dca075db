"""What moves sample weights under the loss of another method: `auto:contrastive`."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod

from bspml.errors import InputError
from bspml.experiment.methods.parts import HyperParameters, MethodContext, MethodParts, table_of
from bspml.losses.weighted import Weighted
from bspml.trainers.settings import AutoSettings, keywords_of


def check_rule(parts: MethodParts, rule: str) -> None:
    """Refuse weights between 0 and 1 for a loss that takes none.

    Args:
        parts: of a method.
        rule: of the curriculum; "quadratic" gives such weights.

    Raises:
        InputError: names the method and its loss's reason.
    """
    loss = parts.loss
    if rule == "quadratic" and isinstance(loss, Weighted) and loss.entry.weighting == "exclude":
        raise InputError(
            f"{parts.name} takes weights 0 and 1 only, and rule quadratic gives others: "
            f"{loss.entry.refused}. Use rule threshold, or another loss."
        )


class Weighing(HyperParameters):
    """A source of sample weights that goes around the loss of a method."""

    def weigh(self, parts: MethodParts, context: MethodContext) -> MethodParts:
        """Return the parts with their loss under the weights of the context.

        Args:
            parts: of the method inside.
            context: what it was built from; must have weights.

        Raises:
            InputError: no weights, or a loss that cannot be weighted.
        """
        name = f"{self.name}:{parts.name}"
        weighed = dataclasses.replace(
            parts,
            name=name,
            loss=Weighted(parts.loss, table_of(context, name), parts.miner),
            miner=None,  # it mines what weighs something
            needs_sample_index=True,
        )
        return self._moved(weighed)

    @abstractmethod
    def _moved(self, parts: MethodParts) -> MethodParts:
        """Say what moves the weights of the parts."""


class Automatic(Weighing, AutoSettings):
    """Move the weights by the automatic curriculum, which needs no noise rate."""

    name, title, source = "auto", "automatic", "this package"

    def _moved(self, parts: MethodParts) -> MethodParts:
        check_rule(parts, self.rule)
        curriculum = {"preset": "auto", **keywords_of(AutoSettings, self)}
        return dataclasses.replace(parts, curriculum_kind="auto", curriculum=curriculum)


class CleanOnly(Weighing):
    """Give weight to exactly the samples whose labels are right: the upper reference."""

    name, title, source = "clean-only", "clean only", "upper reference"

    def _moved(self, parts: MethodParts) -> MethodParts:
        note = (
            f"{parts.name}: trained on exactly the samples whose labels are right, which nobody "
            "knows"
        )
        return dataclasses.replace(parts, curriculum_kind="fixed-clean", notes=(*parts.notes, note))


WEIGHINGS: dict[str, type[Weighing]] = {kind.name: kind for kind in (Automatic, CleanOnly)}
