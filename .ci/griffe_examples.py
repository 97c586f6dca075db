"""Let the site read the `Example:` of a docstring as the code it is.

griffe knows the section as `Examples:` and would take ours for prose, and `>>>` for quotations.
"""

from __future__ import annotations

import re
from typing import Any

import griffe


class ExampleSections(griffe.Extension):
    """Rename the heading of every docstring before it is parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            value = obj.docstring.value
            obj.docstring.value = re.sub(r"^(\s*)Example:$", r"\1Examples:", value, flags=re.M)
