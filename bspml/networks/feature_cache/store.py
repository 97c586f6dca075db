"""Features on the disk, by picture: complete, checked and without pickle, or not there.

All features that one network makes of pictures shown in one way are in one folder, named after the
backbone and a digest of its identity.  A file there holds up to `PART` of them, an .npz with the
identity in words, the key of each picture and its numbers (n, F) float32.  Zip archives carry
checksums, so damage is noticed.  Files are never changed: whoever makes new features adds one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bspml.files.arrays import Archive
from bspml.files.atomic import atomic_write, refuse_link
from bspml.files.opening import open_regular, reason

PART = 512  # pictures; what a stopped extraction may lose

_FLOAT = np.dtype("<f4")

_log = logging.getLogger(__name__)


class FeatureStore:
    """The features that one network makes of pictures shown in one way.

    Any number of processes may write and read at once: files appear whole, and two processes that
    make the same features write the same file.

    Args:
        folder: of the cache.
        identity: what all features depend on, plain values; "backbone" among them.
    """

    def __init__(self, folder: Path, identity: Mapping[str, Any]) -> None:
        self._words = json.dumps(identity, sort_keys=True)
        backbone = re.sub(r"[^A-Za-z0-9._-]+", "-", str(identity["backbone"]))[:60]
        digest = hashlib.sha256(self._words.encode()).hexdigest()[:24]
        self.folder = folder / f"{backbone}-{digest}"

    def read(self, positions: Mapping[bytes, int]) -> tuple[np.ndarray, np.ndarray]:
        """Return the features that are there; damaged files are removed, and said to be.

        Args:
            positions: {key of a picture: its row in the answer}, rows 0..K-1.

        Returns:
            (K, F) float32, of which only the known rows count, and (K,) bool, which these are.
            (K, 0) where none is known.
        """
        features = np.empty((len(positions), 0), _FLOAT)
        known = np.zeros(len(positions), dtype=bool)
        # Behind a link are files of somebody else's: none is ours, and none is removed.
        is_link = self.folder.is_symlink() or self.folder.parent.is_symlink()
        for file in () if is_link else sorted(self.folder.glob("*.npz")):
            found = self._read_file(file, positions.keys(), features.shape[1])
            if found is None:
                continue
            keys, values = found
            if not features.shape[1]:
                features = np.empty((len(positions), values.shape[1]), _FLOAT)
            pairs = [(positions[key], row) for row, key in enumerate(keys) if key in positions]
            rows, from_rows = np.array(pairs).T
            features[rows] = values[from_rows]
            known[rows] = True
        return features, known

    def read_part(self, keys: list[bytes]) -> np.ndarray | None:
        """Return (n, F) of a part that another process has added meanwhile, in this order."""
        file = self._file(keys)
        found = self._read_file(file, keys, 0) if file.exists() else None
        return None if found is None or found[0] != keys else found[1]

    def prepare(self) -> None:
        """Make the folder; OSError if it cannot be written, or is a link."""
        for folder in (self.folder.parent, self.folder):
            refuse_link(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    def add(self, keys: list[bytes], features: np.ndarray) -> None:
        """Keep features.  Call `prepare` first.

        Args:
            keys: n, of the pictures.
            features: (n, F).

        Raises:
            RunError: the file cannot be written.
        """
        arrays: dict[str, Any] = {
            "identity": np.array(self._words),
            "keys": np.array(keys),
            "features": np.ascontiguousarray(features, dtype=_FLOAT),
        }
        atomic_write(self._file(keys), lambda file: np.savez(file, **arrays))

    def _file(self, keys: list[bytes]) -> Path:
        return self.folder / f"{hashlib.sha256(b''.join(keys)).hexdigest()[:24]}.npz"

    def _read_file(
        self, file: Path, wanted: Collection[bytes], width: int
    ) -> tuple[list[bytes], np.ndarray] | None:
        """Keys and features (n, F) of a file; None if none is wanted or it is damaged.

        `width` is the F of other files, 0 if there is none yet.
        """
        try:
            with open_regular(file, "features") as opened:
                archive = Archive(opened)
                if str(archive.read("identity")) != self._words:
                    raise ValueError("the features are of something else")
                keys: list[bytes] = archive.read("keys").tolist()
                if not any(key in wanted for key in keys):
                    return None
                values = archive.read("features")
            rows = (len(keys), width or values.shape[-1])
            if values.shape != rows or values.dtype != _FLOAT:
                raise ValueError(f"it holds {values.shape} of {values.dtype}")
        except Exception as err:  # numpy and zipfile raise what they like on damage
            if file.exists():  # else another process removed it
                _log.warning("making features again: %s is damaged (%s)", file, reason(err))
                with contextlib.suppress(OSError):
                    file.unlink()
            return None
        return keys, values
