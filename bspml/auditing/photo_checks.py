"""Photos that are bad as pictures: dark, blurred, nearly empty, or of an odd size or shape.

The tests and their thresholds are those of the library cleanvision.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bspml.auditing.columns import column
from bspml.auditing.pictures import small_picture
from bspml.data.images import upright_size
from bspml.errors import import_optional

# cleanvision's name of each check -> what it finds, in words.
PROBLEMS = {
    "dark": "dark",
    "blurry": "blurred",
    "low_information": "nearly empty",
    "odd_aspect_ratio": "odd shape",
    "odd_size": "odd size",
}
_BY_SIZE = ("odd_size",)  # compares the photos with each other
_BY_LOOK = tuple(name for name in PROBLEMS if name not in _BY_SIZE)
_SIDE = 512  # pixels to look at: a whole photo of a camera would take a second


def photo_checks(files: Mapping[int, Path]) -> pd.DataFrame:
    """Find the photos that are dark, blurred, nearly empty, or of an odd size or shape.

    What cannot be read as an image is passed over.  Takes some milliseconds a photo.

    Args:
        files: {sample: its photo}.

    Returns:
        A row per photo and problem, by problem and the worst first: index (of the sample),
        problem (a value of `PROBLEMS`), score (in [0, 1], low is bad).

    Raises:
        MissingDependencyError: cleanvision is not installed.
    """
    imagelab = import_optional(
        "cleanvision",
        "the checks of photos need cleanvision, which is not installed; "
        "`pip install 'bspml[photo-checks]'`.",
    ).Imagelab
    from PIL import Image

    sizes: dict[int, tuple[int, int]] = {}

    def look(i: int) -> Any:
        small = small_picture(files[i], _SIDE)
        if small is None:
            return Image.new("RGB", (1, 1))
        with Image.open(files[i]) as stored:
            sizes[i] = upright_size(stored)
        return small

    looks = _issues(imagelab, [*files], look, _BY_LOOK)
    parts = [_found(looks.loc[[*sizes]], name) for name in _BY_LOOK]
    if sizes:
        by_size = _issues(imagelab, [*sizes], lambda i: Image.new("L", sizes[i]), _BY_SIZE)
        parts += [_found(by_size, name) for name in _BY_SIZE]
    return pd.concat(parts, ignore_index=True)


class _Photos:
    """As much of a Hugging Face dataset as cleanvision reads: it takes no pictures otherwise."""

    features = ("image",)

    def __init__(self, picture: Callable[[int], Any], samples: Sequence[int]) -> None:
        self.picture, self.samples = picture, samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return {"image": self.picture(self.samples[row])}


def _issues(
    imagelab: Any, samples: Sequence[int], picture: Callable[[int], Any], names: Sequence[str]
) -> pd.DataFrame:
    """cleanvision's table: a row per sample, is_..._issue and ..._score of each check."""
    with contextlib.redirect_stderr(io.StringIO()):  # its progress bar
        lab = imagelab(hf_dataset=_Photos(picture, samples), image_key="image", verbose=False)
        lab.find_issues({name: {} for name in names}, n_jobs=1, verbose=False)
    return lab.issues.set_axis([*samples], axis=0)


def _found(issues: pd.DataFrame, name: str) -> pd.DataFrame:
    scores = issues.loc[issues[f"is_{name}_issue"].astype(bool), f"{name}_score"]
    scores = scores.sort_values(kind="stable")
    return pd.DataFrame(
        {
            "index": scores.index.to_numpy(np.int64),
            "problem": column([PROBLEMS[name]] * len(scores)).astype(object),
            "score": scores.to_numpy(np.float64),
        }
    )
