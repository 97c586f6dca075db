"""How many of a thing, for sentences: '1 sample', '12 samples', '1,024 classes'."""

from __future__ import annotations


def counted(count: int, thing: str, things: str | None = None) -> str:
    """The count with the word for it, singular where it is 1.

    Args:
        count: how many.
        thing: the word for one.
        things: for several; `thing` with an s if None.

    Example:
        >>> counted(1, "sample"), counted(0, "sample"), counted(1024, "class", "classes")
        ('1 sample', '0 samples', '1,024 classes')
    """
    return f"{count:,} {thing if count == 1 else things or f'{thing}s'}"
