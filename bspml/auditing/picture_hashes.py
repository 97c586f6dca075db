"""Altered copies of photos by perceptual hash: re-encoded, resized, mirrored, turned.

A network need not place a turned photo near the photo; a hash of the pixels does.  A picture's hash
is ImageHash's `phash` at size 16: which of the 16 x 16 lowest frequencies (DCT) of its 64 x 64
grey version lie above their median, 256 bits, of which some 128 differ between two pictures.
Hashed are all eight rotations and mirrors of a picture; the distance of two pictures is the least
number of bits between the one and any of the other's eight.

A pair at most `_ALIKE` bits apart is a copy: re-encoded, resized, mirrored and quarter-turned
photos stay below 35, and drawings on white come near it by chance.  Rotations by 5 degrees are 60
to 90 bits away, no nearer than the nearest of some thousand other photos.  But their embeddings
stay neighbours, and few pairs are compared where only these are: of a sample and its nearest, where
that is nearer than usual, `_ALIKE_NEIGHBOURS` bits are enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np

from bspml.auditing.pictures import small_picture
from bspml.errors import import_optional

WITHOUT = (
    "Copies were told by embedding alone. `pip install 'bspml[photos]'` compares the pictures "
    "too, and so finds photos that were turned or resized before they were put in again."
)

_SIZE = 16  # of the hash: 256 bits
_FACTOR = 4
_ALIKE, _ALIKE_NEIGHBOURS = 40, 80
_FLAT = 2.0  # standard deviation, of 255 levels, up to which a picture shows nothing to compare


@dataclass(frozen=True)
class PictureHashes:
    """Hashes of N pictures.

    Attributes:
        bits: (N, 8, 4) uint64, 256 bits of each of the eight rotations and mirrors.
        is_hashed: (N,) bool, False where the picture is missing, unreadable or flat.
    """

    bits: np.ndarray
    is_hashed: np.ndarray

    def pairs(self, near: np.ndarray) -> np.ndarray:
        """Return the pairs of pictures alike by their hashes, (P, 2) int64, each once.

        Args:
            near: (Q, 2) int64 pairs of samples whose embeddings are neighbours: less is asked of
                these.

        Example:
            >>> bits = np.zeros((3, 8, 4), np.uint64)
            >>> bits[2] = 2**64 - 1
            >>> PictureHashes(bits, np.array([True] * 3)).pairs(np.empty((0, 2), np.int64))
            array([[0, 1]])
        """
        asked = np.flatnonzero(self.is_hashed)
        found = asked[_close_pairs(self.bits[asked], _ALIKE)]
        near = near[self.is_hashed[near].all(1)]
        is_close = _distances(self.bits, near) <= _ALIKE_NEIGHBOURS
        return np.unique(np.concatenate([found, np.sort(near[is_close], 1)]), axis=0)


def hash_pictures(files: Sequence[Path | None]) -> PictureHashes:
    """Hash the pictures in files, each read once; takes about 2 ms a picture.

    Args:
        files: N paths, None where a sample has no picture.

    Raises:
        MissingDependencyError: ImageHash is not installed.

    Example:
        >>> hash_pictures([None]).is_hashed  # doctest: +SKIP
        array([False])
    """
    imagehash = import_optional(
        "imagehash",
        "ImageHash, which compares photos, is not installed; `pip install 'bspml[photos]'`.",
    )
    from PIL import Image

    turns = [None, *Image.Transpose]
    bits = np.zeros((len(files), len(turns), _SIZE * _SIZE), bool)
    is_hashed = np.zeros(len(files), bool)
    side = _SIZE * _FACTOR
    for i, file in enumerate(files):
        picture: Any = None if file is None else small_picture(file)
        if picture is None:
            continue
        grey = picture.convert("L").resize((side, side), Image.Resampling.BOX)
        is_hashed[i] = np.asarray(grey).std() > _FLAT
        for turn, row in zip(turns, bits[i], strict=True):
            turned = grey if turn is None else grey.transpose(turn)
            row[:] = imagehash.phash(turned, _SIZE, _FACTOR).hash.ravel()
    return PictureHashes(np.packbits(bits, 2).view(np.uint64), is_hashed)


@numba.njit(cache=True, nogil=True)
def _differing(a, b, limit):
    """Number of bits that differ, counted until there are more than `limit`."""
    count = np.int64(0)
    for word in range(len(a)):
        x = a[word] ^ b[word]
        x = x - ((x >> np.uint64(1)) & np.uint64(0x5555555555555555))
        x = (x & np.uint64(0x3333333333333333)) + (
            (x >> np.uint64(2)) & np.uint64(0x3333333333333333)
        )
        x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
        count += np.int64((x * np.uint64(0x0101010101010101)) >> np.uint64(56))
        if count > limit:
            break
    return count


@numba.njit(cache=True, nogil=True)
def _close_pairs(bits, limit):
    """Pairs (P, 2) of the pictures whose distance is at most `limit`, all being compared."""
    found = []
    for i in range(len(bits)):
        for j in range(i + 1, len(bits)):
            for turn in range(bits.shape[1]):
                if _differing(bits[i, 0], bits[j, turn], limit) <= limit:
                    found.append((i, j))
                    break
    pairs = np.empty((len(found), 2), np.int64)
    for p in range(len(found)):
        pairs[p, 0], pairs[p, 1] = found[p]
    return pairs


@numba.njit(cache=True, nogil=True)
def _distances(bits, pairs):
    """Distance of each pair (P, 2), (P,)."""
    least = np.full(len(pairs), 64 * bits.shape[2])
    for p in range(len(pairs)):
        for turn in range(bits.shape[1]):
            count = _differing(bits[pairs[p, 0], 0], bits[pairs[p, 1], turn], least[p])
            least[p] = min(least[p], count)
    return least
