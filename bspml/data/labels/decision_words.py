"""What the user's decisions did to the labels, in words: counts, and classes that look misspelt."""

from __future__ import annotations

from collections import Counter

import numpy as np

from bspml.data.labels.decisions import CorrectedLabels
from bspml.words import counted, did_you_mean

_SHOWN = 3  # new classes that a sentence names
_LONGEST = 60  # characters of a name that are shown


def counts_of_decisions(decided: CorrectedLabels) -> str:
    """Return '3 labels kept as right, 2 relabelled, 1 dropped'; the unsure only where there are
    any."""
    right, unsure = (int((decided.decisions == word).sum()) for word in ("right", "unsure"))
    wrong, dropped = int((decided.decisions == "wrong").sum()), int(decided.dropped.sum())
    kept = f"{counted(right, 'label')} kept as right"
    told = f"{kept}, {wrong - dropped} relabelled, {dropped} dropped"
    return told + f", {unsure} unsure" * (unsure > 0)


def note_on_new_classes(given: np.ndarray, decided: CorrectedLabels) -> tuple[str, ...]:
    """Return a sentence where samples were moved to classes that no given label has, else nothing.

    A class may be new on purpose, but a misspelt one is a class of a single sample, which no loss
    can pull anywhere and which nobody misses.

    Args:
        given: (N,) labels before the decisions, of any kind.
        decided: of the same samples.

    Example:
        >>> given = np.array(["sparrow", "sparrow", "robin"])
        >>> told = CorrectedLabels(
        ...     np.array(["sparrow", "sparow", "robin"]), np.ones(3), np.array(["", "wrong", ""])
        ... )
        >>> print(*note_on_new_classes(given, told))
        1 sample gets a class that no given label has: 'sparow' (did you mean 'sparrow'?). If it
        is a new class, leave it; else correct `new_label` in the decisions and apply them again.
    """
    old_classes = np.unique(given.astype(str))
    labels = decided.labels.astype(str)
    moved = (decided.decisions == "wrong") & (decided.weights > 0)
    counts = Counter(labels[moved & ~np.isin(labels, old_classes)].tolist())
    if not counts:
        return ()
    names = old_classes.tolist()
    examples = ", ".join(_describe(*item, names) for item in counts.most_common(_SHOWN))
    ending = f", ... ({len(counts):,} such classes)" if len(counts) > _SHOWN else ""
    is_one = len(counts) == 1
    return (
        f"{counted(sum(counts.values()), 'sample gets', 'samples get')} "
        f"{'a class' if is_one else 'classes'} that no given label has: {examples}{ending}. If "
        f"{'it is a new class, leave it' if is_one else 'these are new classes, leave them'}; else "
        "correct `new_label` in the decisions and apply them again.",
    )


def _describe(name: str, count: int, classes: list[str]) -> str:
    """Describe a new class: 'sparow' (2 samples; did you mean 'sparrow'?)."""
    remarks = [counted(count, "sample")] * (count > 1)
    # Numbers that look alike are no misspellings.
    if not name.strip().isdecimal():
        hint = did_you_mean(name.strip(), classes, lambda text: repr(_short(text)), lead="")
        remarks += [hint] * bool(hint)
    quoted = repr(_short(name))
    return f"{quoted} ({'; '.join(remarks)})" if remarks else quoted


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else name[: _LONGEST - 3] + "..."
