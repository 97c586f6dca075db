"""Checks of image files: whether each can be read to its end, and what is odd about it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BufferedIOBase
from itertools import islice

from bspml.data.images import inside, open_image, orientation, read_image
from bspml.data.retrieval import RetrievalSplit
from bspml.errors import DataError
from bspml.files.opening import open_regular, reason

_TAIL = 64  # bytes at the end in which a file must say that it ends
# First bytes -> a mark that the file ends with.
_ENDS = {b"\xff\xd8": b"\xff\xd9", b"\x89PNG": b"IEND"}
_COLOURLESS = ("1", "L", "LA", "I", "I;16", "F")
_LONGEST = 120  # characters of a reason
_THREADS = 8
_AHEAD = 1024  # files handed to the threads at a time


@dataclass(frozen=True)
class Finding:
    """About one file: a fault ("truncated", "unreadable", or none), its reason, what is odd.

    `box_leaves` its image in part, or is `box_empty`: it holds no pixel of it.
    """

    path: str
    fault: str = ""
    reason: str = ""
    grey: bool = False
    box_leaves: bool = False
    box_empty: bool = False


def look_at(jobs: list[tuple[RetrievalSplit, int]], decode_all: bool) -> Iterator[Finding]:
    """Look at image files; waiting for a disk, and decoding, go on beside each other.

    Args:
        jobs: (split, row) of each image.
        decode_all: decode every image, not only those that do not say where they end.

    Yields:
        A finding per job, in order.
    """
    with ThreadPoolExecutor(min(_THREADS, (os.cpu_count() or 1) * 2)) as pool:
        rest = iter(jobs)
        while batch := list(islice(rest, _AHEAD)):
            yield from pool.map(lambda job: _look(job[0], job[1], decode_all), batch)


def _look(split: RetrievalSplit, row: int, decode: bool) -> Finding:
    assert split.paths is not None
    assert split.root is not None
    name, path = split.paths[row], split.root / split.paths[row]
    try:
        with open_regular(path, "an image") as file:
            if file.seek(0, os.SEEK_END) == 0:
                return Finding(name, "truncated", "it is empty")
            whole = _says_its_end(file)
    except DataError as err:
        return Finding(name, "unreadable", str(err).removeprefix(f"{path}: ")[:_LONGEST])
    # Pillow may blame the end of a file for what is wrong in its middle, or the other way round.
    fault = "truncated" if whole is False else "unreadable"
    try:
        with open_image(path) as image:
            mode, size = image.mode, image.size
            is_turned = orientation(image) != 1
        unbounded = mode in ("I", "F")  # only its values tell whether they can be shown
        if decode or not whole or unbounded or (is_turned and split.boxes is not None):
            size = read_image(path).size  # upright, as boxes are
    except Exception as err:  # decoders raise what they like on damage
        return Finding(name, fault, reason(err.__cause__ or err)[:_LONGEST])
    box = None if split.boxes is None else split.boxes[row].tolist()
    empty = box is not None and inside(box, size) is None
    leaves = box is not None and not empty and _leaves(box, size)
    return Finding(name, grey=mode in _COLOURLESS, box_leaves=leaves, box_empty=empty)


def _says_its_end(file: BufferedIOBase) -> bool | None:
    """Whether the file ends as it should by its beginning; None for kinds that do not say."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    head = file.read(_TAIL)
    mark = next((end for start, end in _ENDS.items() if head.startswith(start)), None)
    if mark is None:
        return None
    file.seek(max(0, size - _TAIL))
    return mark in file.read()


def _leaves(box: list[float], size: tuple[int, int]) -> bool:
    # By more than a pixel: annotations round.
    left, top, right, bottom = box
    return left < -1 or top < -1 or right > size[0] + 1 or bottom > size[1] + 1
