"""Glyphs: a retrieval data set drawn from the fonts inside matplotlib, nothing to download.

513 characters x 16 faces (12 DejaVu, 4 STIX): many classes, few samples each, and near-twins such
as o, O and 0.  Training and test characters are disjoint, as in retrieval benchmarks.

Characters: the letters and decimal digits (Unicode categories Lu, Ll, Lo, Nd) that all 16 faces
draw, in code point order, less those whose outline in one of the four DejaVu Sans faces has exactly
the points of an earlier one's (Latin A, Greek Alpha and Cyrillic A are one picture: no method could
tell them apart).  Split: characters sorted by the SHA-256 of a seed and their code point, the first
half trains.  Raw pixels (24 px, Euclidean distance) reach Recall@1 0.49 on either half: there is
room above and below.
"""

from __future__ import annotations

import hashlib
import logging
import os
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from bspml.errors import DataError, InputError
from bspml.files.atomic import atomic_write
from bspml.files.folders import cache_dir
from bspml.files.opening import open_regular
from bspml.tensors.checks import check_choice, check_whole

_STYLES = {  # of each family, as its files are called
    "DejaVuSans": ("", "-Bold", "-Oblique", "-BoldOblique"),
    "DejaVuSansMono": ("", "-Bold", "-Oblique", "-BoldOblique"),
    "DejaVuSerif": ("", "-Bold", "-Italic", "-BoldItalic"),
    "STIXGeneral": ("", "Bol", "Italic", "BolIta"),
}
FACES = tuple(f"{family}{style}" for family, styles in _STYLES.items() for style in styles)
NUM_CLASSES = 513

_SPLIT_SEED = 3  # the first whose halves are equally hard for raw pixels
_TWIN_FACES = FACES[:4]
_CATEGORIES = ("Lu", "Ll", "Lo", "Nd")
_RENDER_VERSION = 1  # raise it whenever the pictures change, so that old caches are drawn anew
_UNIT = 100  # pixels per em at which outlines are read; unhinted, so only a scale
# Part of the image side that one em takes, and the baseline's height above the lower edge.  The
# tallest glyph spans -0.38..1.00 em and the widest 1.38 em, so every one lies inside its image.
_EM = 0.68
_BASELINE = 0.29
_SHEET_COLUMNS = 32
_LARGEST = 128  # pixels; the set is held in memory

_log = logging.getLogger(__name__)


class Glyphs(Dataset[tuple[Tensor, int]]):
    """One half of the glyph characters, 16 grey images each, class after class.

    The first use draws both halves (under a second) and keeps them in the cache folder: `root` if
    given, else the environment variable BSPML_CACHE, else the user's cache folder.

    Args:
        split: "train" (256 characters) or "test" (the other 257).
        root: cache folder.
        image_size: side S in pixels, 8 to 128.

    Attributes:
        images: (N, 1, S, S) float32 in [0, 1], white on black.
        labels: (N,) int64, position in `classes`.
        classes: the C characters of this half.
        names: the same for people: "U+0041 A".
        faces: the N face names, one per sample.

    Raises:
        InputError: another split, or an image size outside 8..128.
        DataError: this matplotlib lacks the fonts, or `root` cannot be written.

    Example:
        >>> glyphs = Glyphs("test")
        >>> tuple(glyphs.images.shape), len(glyphs.classes)
        ((4112, 1, 24, 24), 257)
    """

    def __init__(
        self, split: str = "train", root: str | os.PathLike[str] | None = None, image_size: int = 24
    ) -> None:
        self.split = check_choice(split, "split", ("train", "test"))
        self.image_size = check_whole(image_size, "image_size", low=8)
        if image_size > _LARGEST:
            raise InputError(
                f"`image_size` must be at most {_LARGEST}; got {image_size}. Larger pictures of a "
                "letter show nothing new."
            )
        pixels, points = _cached(root, self.image_size)
        rows = np.flatnonzero(_trains(points) == (split == "train"))
        flat = pixels[rows].reshape(-1, 1, image_size, image_size)
        self.images = torch.from_numpy(flat).float() / 255
        self.labels = torch.arange(len(rows)).repeat_interleave(len(FACES))
        self.classes = [chr(p) for p in points[rows]]
        self.names = [f"U+{p:04X} {chr(p)}" for p in points[rows]]
        self.faces = list(FACES) * len(rows)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, sample_index: int) -> tuple[Tensor, int]:
        return self.images[sample_index], int(self.labels[sample_index])


def _trains(points: np.ndarray) -> np.ndarray:
    """(C,) bool: which characters train.  A hash, so that no library's shuffle can change it."""
    digests = [hashlib.sha256(f"{_SPLIT_SEED} U+{p:04X}".encode()).digest() for p in points]
    order = sorted(range(len(points)), key=digests.__getitem__)
    trains = np.zeros(len(points), dtype=bool)
    trains[order[: len(points) // 2]] = True
    return trains


# --- cache ----------------------------------------------------------------------------------------


def _cached(root: Any, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Pixels (C, 16, S, S) uint8 and code points (C,), from the cache or drawn and stored there.

    Any number of processes may do this at once: each writes a file of its own and renames it over
    the shared name, so a reader sees a whole file, whoever wins.
    """
    import matplotlib as mpl

    key = f"glyphs-v{_RENDER_VERSION}-matplotlib{mpl.__version__}-{size}px"
    path = cache_dir(root) / f"{key}.npz"
    cached = _read_cache(path, key, size)
    if cached is not None:
        return cached
    points = np.array(_characters(), dtype=np.int64)
    pixels = _draw_glyphs(points, size)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        arrays: Any = {"key": np.array(key), "points": points, "pixels": pixels}
        atomic_write(path, lambda file: np.savez_compressed(file, **arrays))
    except OSError as err:
        if root is not None:
            raise DataError(
                f"`root` must be a folder that can be written; got {path.parent} ({err}). "
                "Choose another, or leave it out to use the user's cache folder."
            ) from err
        _log.warning("glyphs are drawn at each start: cannot write %s (%s)", path, err)
    return pixels, points


def _read_cache(path: Path, key: str, size: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the cached arrays, or None if the file is absent, damaged or of other glyphs."""
    try:
        if not path.exists():
            return None
        # Zip members carry a CRC, so that flips show here; zip and npy raise what they like.
        with open_regular(path, "glyphs", faults=(Exception,)) as file, np.load(file) as archive:
            # A member that is no array comes as bytes.
            marker, points, pixels = (np.asarray(archive[n]) for n in ("key", "points", "pixels"))
    except (DataError, OSError) as err:
        _log.warning("drawing the glyphs again: %s", err)
        return None
    sound = (
        str(marker) == key
        and points.shape == (NUM_CLASSES,)
        and points.dtype == np.int64
        and pixels.shape == (NUM_CLASSES, len(FACES), size, size)
        and pixels.dtype == np.uint8
    )
    return (pixels, points) if sound else None


# --- drawing --------------------------------------------------------------------------------------


def _open_face(face: str) -> Any:
    """The face as FT2Font at `_UNIT` pixels per em."""
    import matplotlib as mpl
    from matplotlib.ft2font import FT2Font

    file = Path(mpl.get_data_path()) / "fonts" / "ttf" / f"{face}.ttf"
    if not file.is_file():
        raise DataError(
            f"matplotlib {mpl.__version__} has no {file}; the glyphs are drawn with the fonts in "
            "its wheel. Install that one: `pip install --force-reinstall matplotlib`."
        )
    font = FT2Font(str(file))
    font.set_size(_UNIT, 72)
    return font


def _outline(font: Any, point: int) -> tuple[np.ndarray, np.ndarray]:
    """Vertices (V, 2) in `_UNIT`-ths of an em, y upwards, and path codes (V,)."""
    from matplotlib import ft2font

    loading: Any = getattr(ft2font, "LoadFlags", ft2font)  # an enum from matplotlib 3.10 on
    flags = loading.NO_HINTING if hasattr(loading, "NO_HINTING") else loading.LOAD_NO_HINTING
    font.load_char(point, flags=flags)
    return font.get_path()


def _characters() -> list[int]:
    """Code points of the data set, by the rule at the head of this module."""
    import matplotlib as mpl

    common_points = set.intersection(*(set(_open_face(face).get_charmap()) for face in FACES))
    fonts = [_open_face(face) for face in _TWIN_FACES]
    outlines: set[tuple[str, bytes]] = set()
    points = []
    for point in sorted(p for p in common_points if unicodedata.category(chr(p)) in _CATEGORIES):
        corners = [np.unique(_outline(font, point)[0], axis=0) for font in fonts]
        # As a set: two glyphs may list the same contours in another order.
        keys = {(face, c.tobytes()) for face, c in zip(_TWIN_FACES, corners, strict=True)}
        if not keys & outlines:
            points.append(point)
            outlines |= keys
    if len(points) != NUM_CLASSES:
        raise DataError(
            f"the fonts of matplotlib {mpl.__version__} give {len(points)} characters where "
            f"{NUM_CLASSES} are expected: they are not those of its wheel, and results would not "
            "compare. Install that one: `pip install --force-reinstall matplotlib`."
        )
    return points


def _draw_glyphs(points: np.ndarray, size: int) -> np.ndarray:
    """Pixels (C, 16, S, S) uint8: the share of each pixel that ink covers, times 255."""
    return np.stack([_draw_face(_open_face(face), points, size) for face in FACES], axis=1)


def _draw_face(font: Any, points: np.ndarray, size: int) -> np.ndarray:
    """Pixels (C, S, S) of one face, through one sheet: a canvas per glyph would cost 20 x more."""
    from matplotlib.backends.backend_agg import RendererAgg
    from matplotlib.path import Path as Outline
    from matplotlib.transforms import Affine2D

    rows = -(-len(points) // _SHEET_COLUMNS)
    sheet = RendererAgg(_SHEET_COLUMNS * size, rows * size, 72)
    pen = sheet.new_gc()
    pen.set_linewidth(0)  # fill only
    pen.set_snap(False)  # no rounding of outlines to the pixel grid
    for i, point in enumerate(points.tolist()):
        vertices, codes = _outline(font, point)
        middle = (vertices[:, 0].min() + vertices[:, 0].max()) / 2
        row, column = divmod(i, _SHEET_COLUMNS)
        # Centred across, on a common baseline upwards: height tells o from O, as in print.
        place = Affine2D().translate(-middle, 0).scale(_EM * size / _UNIT)
        place.translate((column + 0.5) * size, (rows - 1 - row + _BASELINE) * size)
        sheet.draw_path(pen, Outline(vertices, codes), place, (0.0, 0.0, 0.0))
    ink = np.asarray(sheet.buffer_rgba())[..., 3]
    cells = ink.reshape(rows, size, _SHEET_COLUMNS, size).swapaxes(1, 2)
    return cells.reshape(-1, size, size)[: len(points)]
