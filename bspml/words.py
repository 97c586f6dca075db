"""Words of many places: phrases that the user reads, and names of the columns that are known."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable
from typing import Any

# Characters: the name of a class is short.  An array of text is as wide as the longest in it.
LONGEST_LABEL = 1000

INDEX = "index"
# Of the first that is there.
LABEL_COLUMNS = ("label", "labels", "class_name", "class", "target", "y")
NAME_COLUMNS = ("name", "path", "file", "filename")
TEXT_COLUMNS = ("text", "caption", "sentence")
ID_COLUMNS = ("id", "sample_index")  # names where they tell all samples apart
UNNAMED = "unnamed: 0"  # what pandas calls the index that it wrote without a name
# As programs write what is missing, where it became text: a class of that name is rare.
MISSING_WORDS = ("nan", "NaN", "None", "<NA>", "NaT")
# Of a table of embeddings, no dimension.
PASSED_OVER = (
    *LABEL_COLUMNS,
    *("true_label", "true_labels", "is_noisy"),  # what `bspml noise` puts beside them
    *NAME_COLUMNS,
    *TEXT_COLUMNS,
    *ID_COLUMNS,
    *(INDEX, "split", UNNAMED),
)

_SHOWS_AS_NONE = 0.0005
_SHOWN = 5  # numbers of rows that a message lists


def did_you_mean(
    word: object,
    names: Iterable[str],
    quote: Callable[[str], str] = "`{}`".format,
    lead: str = "; ",
    likeness: float = 0.6,
) -> str:
    """Return a question for the one of `names` that is spelt like `word`, or "" without one.

    Capital letters do not count, nor does what follows the first 100 letters.

    Args:
        word: what came; read as text.
        names: what exists.
        quote: how the name is shown.
        lead: what stands before the question.
        likeness: how alike the two must be, in [0, 1].

    Example:
        >>> did_you_mean("marign", ["margin", "alpha"]), did_you_mean("zzz", ["margin"])
        ('; did you mean `margin`?', '')
    """
    by_spelling = {str(name)[:100].casefold(): str(name) for name in names}
    near = difflib.get_close_matches(str(word)[:100].casefold(), by_spelling, 1, likeness)
    return f"{lead}did you mean {quote(by_spelling[near[0]])}?" if near else ""


def counted(count: int, thing: str, things: str | None = None) -> str:
    """Return the count with the word for it, singular where it is 1.

    Args:
        count: how many.
        thing: the word for one.
        things: for several; `thing` with an s if None.

    Example:
        >>> counted(1, "sample"), counted(0, "sample"), counted(1024, "class", "classes")
        ('1 sample', '0 samples', '1,024 classes')
    """
    return f"{count:,} {thing if count == 1 else things or f'{thing}s'}"


def percent(share: float) -> str:
    """Return a share in per cent: two figures, one decimal below 10 %.

    Example:
        >>> percent(0.304), percent(0.0304), percent(0)
        ('30', '3.0', '0')
    """
    if share == 0:
        return "0"
    return f"{100 * share:.1f}" if share < 0.0995 else f"{100 * share:.0f}"


def noise_sentence(
    rate: float,
    interval: tuple[float, float] | None = None,
    upper_bound: float | None = None,
    with_confusions: bool = False,
) -> str:
    """Say in one sentence how many labels are wrong.

    It calls the estimate an estimate: the user must not read it as a count.

    Args:
        rate: best estimate of the share of labels wrong at random, in [0, 1]; of all that are
            wrong under `with_confusions`.
        interval: its 95 % interval, where known.
        upper_bound: at most this share is wrong, confusions included, where known.
        with_confusions: the rate counts confusions between similar classes, too.

    Example:
        >>> noise_sentence(0.3)[:54]
        'The best estimate of labels wrong at random is 30 %; c'
    """
    maybe_none = interval is not None and interval[0] < _SHOWS_AS_NONE
    inside = ""
    if interval is not None:
        inside = f" (95 % interval {percent(interval[0])} to {percent(interval[1])} %)"
    if with_confusions:
        none = ", maybe none" if maybe_none else ""
        return f"The best estimate is that {percent(rate)} % of the labels are wrong{inside}{none}."
    estimate = f"best estimate of labels wrong at random is {percent(rate)} %{inside}"
    on_top = "confusions between similar classes come on top"
    if interval is None or upper_bound is None:
        return f"The {estimate}{', maybe none' if maybe_none else ''}; {on_top}."
    range_ = f"Between {percent(interval[0])} and {percent(upper_bound)} % of the labels are wrong"
    return f"{range_}{', maybe none' if maybe_none else ''}: the {estimate}, and {on_top}."


def error_sentence(rate: float, interval: tuple[float, float], bounds: tuple[float, float]) -> str:
    """Say in one sentence how many labels are wrong, and between what ends.

    It calls the estimate an estimate: the user must not read it as a count.

    Args:
        rate: best estimate of the share of wrong labels, in [0, 1].
        interval: its 95 % interval.
        bounds: at least and at most this share is wrong.

    Example:
        >>> error_sentence(0.28, (0.21, 0.35), (0.19, 0.4))
        'The best estimate is that 28 % of the labels are wrong (95 % interval 21 to 35 %); at least
        19 %, not counting confusions between similar classes, and at most 40 %, counting every
        sample that could be of a similar class.'
    """
    maybe_none = ", maybe none" if interval[0] < _SHOWS_AS_NONE else ""
    least = (
        f"at least {percent(bounds[0])} %, not counting confusions between similar classes, and "
    )
    most = f"at most {percent(bounds[1])} %, counting every sample that could be of a similar class"
    if bounds[0] < _SHOWS_AS_NONE:
        least = ""
    if bounds[1] >= 1:
        most = "no upper end can be given"
    return (
        f"The best estimate is that {percent(rate)} % of the labels are wrong (95 % interval "
        f"{percent(interval[0])} to {percent(interval[1])} %{maybe_none}); {least}{most}."
    )


def interval_in_words(low: float | int | None, high: float | int | None, digits: int) -> str:
    """Return ' (57.1–60.2)' for the end of a number, '' where there is no interval.

    Args:
        low: its lower end, NaN or None: there is none.
        high: its upper end.
        digits: after the point.

    Example:
        >>> interval_in_words(57.14, 60.2, 1), interval_in_words(None, None, 1)
        (' (57.1–60.2)', '')
    """
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        return ""
    return f" ({low:.{digits}f}–{high:.{digits}f})"


def some_of(rows: Iterable[Any]) -> str:
    """Return the first few of `rows` as text.

    Example:
        >>> some_of([3, 17]), some_of(range(12))
        ('3, 17', '0, 1, 2, 3, 4, ... (12 in all)')
    """
    numbers = [int(row) for row in rows]
    text = ", ".join(map(str, numbers[:_SHOWN]))
    return text if len(numbers) <= _SHOWN else f"{text}, ... ({len(numbers)} in all)"


def shown(value: Any) -> str:
    """Return a value as one short line of a message.

    Example:
        >>> shown([1, 2])
        '[1, 2]'
    """
    return " ".join(f"{value!r:.99}".split())
