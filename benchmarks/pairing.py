"""What the benchmarks share: runs kept on disk, and differences paired over seeds."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t as student

from bspml.files.atomic import atomic_write


def kept_run(
    folder: Path, name: str, settings: dict[str, Any], compute: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """`settings` and the results of `compute()`, printed as a line of JSON.

    They are read from `folder` if a run of these settings was finished before, so that a benchmark
    that was stopped goes on where it was.  NaN is kept as null.
    """
    path = folder / f"{name.replace(', ', '-').replace(' ', '-')}.json"
    line = json.loads(path.read_text()) if path.exists() else {}
    if any(line.get(key) != value for key, value in settings.items()):
        line = settings | {key: _plain(value) for key, value in compute().items()}
        folder.mkdir(parents=True, exist_ok=True)
        atomic_write(path, json.dumps(line) + "\n")
    print(json.dumps(line), flush=True)
    return line


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and math.isnan(value) else value


def column(rows: list[dict[str, Any]], key: str) -> np.ndarray:
    """(runs,) values of `key`, null as NaN."""
    return np.array([row[key] for row in rows], dtype=float)


def paired(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, float, float]:
    """Mean difference, its standard error, and the lower end of its one-sided 95 % interval."""
    difference = ours - theirs
    n = len(difference)
    if n < 2:
        return float(difference.mean()), math.nan, math.nan
    error = float(difference.std(ddof=1) / math.sqrt(n))
    return (
        float(difference.mean()),
        error,
        float(difference.mean() - student.ppf(0.95, n - 1) * error),
    )
