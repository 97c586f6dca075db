"""Features on the disk: complete, checked and without pickle, or not there.

A set of features is one .npy file (N, F) float32, named after the backbone and a digest of its
identity.  After the numbers, where numpy does not look, a line of JSON repeats the identity in
words and has the checksum of the numbers; a file without it, or with another sum, is damaged and
made again.  While features are extracted, every 512 rows are a file in a folder of parts, so that
extraction goes on where it was stopped.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import re
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from bspml.errors import RunError
from bspml.files.atomic import atomic_write
from bspml.files.opening import open_regular

PART = 512  # rows; what a stopped extraction may lose

_MAPPED = 2**30  # bytes from which features are read from the disk as they are used
_CHUNK = 2**24  # bytes that are summed at a time
_LONGEST_NOTE = 2**16  # bytes
_FLOAT = np.dtype("<f4")

_log = logging.getLogger(__name__)

Rows = Callable[[int, int], np.ndarray]  # start, stop to (stop - start, F) float32


class FeatureStore:
    """The file of one set of features, and its parts while it is made.

    Any number of processes may write and read it at once: files appear whole, and parts that
    another process has tidied away are made again.

    Args:
        folder: where the file is.
        identity: what the features depend on, plain values; "backbone" and "rows" among them.
    """

    def __init__(self, folder: Path, identity: dict[str, Any]) -> None:
        self.identity = identity
        words = json.dumps(identity, sort_keys=True)
        backbone = re.sub(r"[^A-Za-z0-9._-]+", "-", str(identity["backbone"]))[:60]
        name = f"{backbone}-{hashlib.sha256(words.encode()).hexdigest()[:24]}"
        self.path, self.parts = folder / f"{name}.npy", folder / f"{name}.parts"

    def read(self) -> Tensor | None:
        """Return (N, F), or None if the file is absent, damaged or another one's.

        From 1 GiB on the numbers stay on the disk; writing to them does not change the file.
        """
        try:
            return self._read_checked() if self.path.exists() else None
        except Exception as err:  # numpy and json raise what they like on damage
            _log.warning("extracting the features again: %s is damaged (%s)", self.path, err)
            with contextlib.suppress(OSError):
                self.path.unlink()
            return None

    def prepare(self) -> None:
        """Make the folders; OSError if they cannot be written."""
        self.parts.mkdir(parents=True, exist_ok=True)

    def write(self, rows: Rows, skip: Callable[[int], object]) -> Tensor:
        """Ask for all rows that are not among the parts, keep them, and read them back.

        Call `prepare` first.

        Args:
            rows: computes features.
            skip: told the number of rows that need not be computed.

        Raises:
            RunError: the disk is full.
        """
        n = self.identity["rows"]
        spans = [(start, min(start + PART, n)) for start in range(0, n, PART)]
        for start, stop in spans:
            if self.path.exists():  # another process was faster
                break
            if self._read_part(start, stop) is None:
                self._make_part(start, stop, rows)
            else:
                skip(stop - start)
        features = self.read()
        if features is None:
            atomic_write(self.path, lambda file: self._join(file, spans, rows))
            features = self.read()
            if features is None:
                raise RunError(f"{self.path}: does not hold what was written. Is the disk sound?")
        shutil.rmtree(self.parts, ignore_errors=True)
        return features

    # --- the file -----------------------------------------------------------------------------

    def _read_checked(self) -> Tensor:
        with open_regular(self.path, "features") as file:
            # "c": copy on write.  A mapping that cannot be written to is one that torch warns of.
            mapped = np.load(self.path, mmap_mode="c", allow_pickle=False)
            file.seek(mapped.offset + mapped.nbytes)
            note = json.loads(file.read(_LONGEST_NOTE))
        if note["identity"] != self.identity:
            raise ValueError("the features are of something else")
        sound = mapped.ndim == 2 and mapped.dtype == _FLOAT and mapped.flags.c_contiguous
        if not sound or len(mapped) != self.identity["rows"]:
            raise ValueError(f"it holds {mapped.shape} of {mapped.dtype}")
        features = np.asarray(mapped) if mapped.nbytes >= _MAPPED else np.array(mapped)
        if _checksum(features) != note["crc32"]:
            raise ValueError("wrong checksum")
        return torch.from_numpy(features)

    def _join(self, file: BinaryIO, spans: list[tuple[int, int]], rows: Rows) -> None:
        """Write all parts as one array, one after the other: they may not fit into memory."""
        width, checksum = 0, 0
        for start, stop in spans:
            part = self._read_part(start, stop)
            if part is None or (width and part.shape[1] != width):
                part = self._make_part(start, stop, rows)
            if not width:
                width = part.shape[1]
                np.lib.format.write_array_header_1_0(
                    file,
                    {"descr": _FLOAT.str, "fortran_order": False, "shape": (spans[-1][1], width)},
                )
            file.write(part.data.cast("B"))
            checksum = _checksum(part, checksum)
        note = {"identity": self.identity, "crc32": checksum}
        file.write(f"\n{json.dumps(note)}\n".encode())

    # --- parts --------------------------------------------------------------------------------

    def _part(self, start: int) -> Path:
        return self.parts / f"{start:09d}.npz"

    def _read_part(self, start: int, stop: int) -> np.ndarray | None:
        path = self._part(start)
        # zip archives carry checksums: damage raises, whatever it likes
        with contextlib.suppress(Exception), open_regular(path, "features") as file:
            with np.load(file, allow_pickle=False) as archive:
                part = np.ascontiguousarray(archive["features"])
            if part.ndim == 2 and len(part) == stop - start and part.dtype == _FLOAT:
                return part
        return None

    def _make_part(self, start: int, stop: int, rows: Rows) -> np.ndarray:
        part = np.ascontiguousarray(rows(start, stop), dtype=_FLOAT)
        try:
            atomic_write(self._part(start), lambda file: np.savez(file, features=part))
        except OSError:
            if self.parts.exists():
                raise
            # Another process has finished, and tidied the parts away: its file is there.
        return part


def _checksum(values: np.ndarray, start: int = 0) -> int:
    """Return the CRC-32, as in zip archives: fast, and enough to detect damage."""
    data = np.ascontiguousarray(values).data.cast("B")
    for at in range(0, len(data), _CHUNK):
        start = zlib.crc32(data[at : at + _CHUNK], start)
    return start
