"""Is a run the same as another one, but for the seconds it took?"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

_CLOCKS = ("finished", "versions", "fingerprint")


def without_seconds(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            k: without_seconds(v)
            for k, v in value.items()
            if "seconds" not in str(k) and k not in _CLOCKS
        }
    return [without_seconds(v) for v in value] if isinstance(value, list | tuple) else value


def difference_of_runs(one: Path, other: Path) -> str:
    """Say what differs between two run folders; empty if nothing does."""
    for name in ("records.jsonl", "summary.json"):
        a, b = (_records(folder / name) for folder in (one, other))
        if a != b:
            return f"{name} differs"
    for path in sorted(one.glob("*.csv")):
        if path.read_bytes() != (other / path.name).read_bytes():
            return f"{path.name} differs"
    for path in sorted(one.glob("*.pt")):
        states = (torch.load(f / path.name, weights_only=True) for f in (one, other))
        where = _difference(*map(without_seconds, states))
        if where:
            return f"{path.name} differs at {where}"
    names = [sorted(p.name for p in folder.iterdir()) for folder in (one, other)]
    return "" if names[0] == names[1] else f"files differ: {set(names[0]) ^ set(names[1])}"


def _records(path: Path) -> Any:
    return (
        [without_seconds(json.loads(line)) for line in path.read_text().splitlines()]
        if (path.suffix == ".jsonl")
        else without_seconds(json.loads(path.read_text()))
    )


def _difference(a: Any, b: Any, where: str = "state") -> str:
    """Name the first place at which two states differ; empty if they are the same, bit for bit."""
    if isinstance(a, torch.Tensor):
        same = isinstance(b, torch.Tensor) and a.dtype == b.dtype and _bits(a) == _bits(b)
        return "" if same else where
    if isinstance(a, dict):
        if not isinstance(b, dict) or a.keys() != b.keys():
            return where
        return next(filter(None, (_difference(a[k], b[k], f"{where}.{k}") for k in a)), "")
    if isinstance(a, list | tuple):
        if len(a) != len(b):
            return where
        pairs = enumerate(zip(a, b, strict=True))
        return next(filter(None, (_difference(*ab, f"{where}.{i}") for i, ab in pairs)), "")
    return "" if a == b or (a != a and b != b) else f"{where}: {a!r:.60} and {b!r:.60}"


def _bits(tensor: torch.Tensor) -> tuple[Any, bytes]:
    array = np.ascontiguousarray(tensor.numpy())
    return tuple(tensor.shape), array.tobytes()


def half_written(folder: Path) -> str:
    """Say which file of a folder is there in part, or is left over; empty if none is."""
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        if path.name.endswith(".tmp"):
            return f"{path.name} is left over"
        try:
            if path.suffix in (".npz", ".pt"):
                with zipfile.ZipFile(path) as archive:
                    assert archive.testzip() is None
            elif path.suffix == ".json":
                json.loads(path.read_text())
            elif path.suffix == ".html":
                assert path.read_text().rstrip().endswith("</html>")
            elif path.suffix == ".csv":
                assert path.read_bytes().endswith(b"\n")
        except Exception as err:
            return f"{path.name} is there in part ({type(err).__name__})"
    return ""
