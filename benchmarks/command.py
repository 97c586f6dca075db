"""What the benchmarks' commands share: numbers of seeds, and one sentence for a mistake."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import NoReturn

from bspml.errors import UserError


def at_least(low: int) -> Callable[[str], int]:
    """Return a type for argparse: a whole number of at least `low`."""

    def number(text: str) -> int:
        if (value := int(text)) < low:
            raise argparse.ArgumentTypeError(f"must be {low} or more; got {value}")
        return value

    return number


def end(main: Callable[[], object]) -> NoReturn:
    """Run a benchmark and leave: status 0, or 2 with a sentence where the user can mend it."""
    try:
        main()
    except (UserError, OSError) as err:  # of the latter, its own words name the file
        print(f"error: {err}", file=sys.stderr)
        sys.exit(2)
    sys.exit(0)
