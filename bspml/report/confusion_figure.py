"""The figure of the classes that are taken for each other."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from bspml.report.models import Confusion
from bspml.report.saving import PAGE_STYLE, SERIES, own_style, plain_text

MOST = 24  # classes drawn: names of more are too small to read


@own_style(PAGE_STYLE)
def confusion_matrix(confusions: Sequence[Confusion]) -> Figure | None:
    """Draw the confused classes for the page, a row per label and a column per suggested label.

    Only classes with something off the diagonal, at most `MOST` of them: those of the most
    frequent pairs.

    Args:
        confusions: all pairs, the most frequent first.

    Returns:
        The figure; None if no class is taken for another.

    Example:
        >>> figure = confusion_matrix([Confusion(label="cat", suggested="dog", count=3)])
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['3']
    """
    names: dict[str, int] = {}
    for pair in confusions:
        added = [n for n in (pair.label, pair.suggested) if n not in names]
        if len(names) + len(added) <= MOST:
            names |= {name: len(names) + i for i, name in enumerate(added)}
    if not names:
        return None
    shown = [c for c in confusions if c.label in names and c.suggested in names]
    places = {name: place for place, name in enumerate(sorted(names))}
    side = 0.7 + 0.26 * len(places)
    figure = Figure(figsize=(side + 1.6, side + 0.9), layout="constrained")
    axes = figure.subplots()
    most = max(c.count for c in shown)
    for pair in shown:
        x, y = places[pair.suggested], places[pair.label]
        strength = 0.12 + 0.88 * pair.count / most
        axes.add_patch(
            Rectangle((x - 0.5, y - 0.5), 1, 1, color=SERIES[1], alpha=strength, linewidth=0)
        )
        axes.text(x, y, f"{pair.count}", ha="center", va="center", fontsize=7.5)
    ticks = [plain_text(name, 18) for name in places]
    axes.set_xticks(range(len(places)), ticks, rotation=90, fontsize=7.5)
    axes.set_yticks(range(len(places)), ticks, fontsize=7.5)
    axes.plot([-0.5, len(places) - 0.5], [-0.5, len(places) - 0.5], color=SERIES[0], alpha=0.25)
    axes.set_xlim(-0.5, len(places) - 0.5)
    axes.set_ylim(len(places) - 0.5, -0.5)
    axes.set_aspect("equal")
    axes.tick_params(length=0)
    axes.set_xlabel("looks like")
    axes.set_ylabel("labelled")
    worst = max(shown, key=lambda c: c.count)
    figure.set_label(
        f"Confused classes, {len(places)} of them; most often {plain_text(worst.label)} looks like "
        f"{plain_text(worst.suggested)}: {worst.count} labels."
    )
    return figure
