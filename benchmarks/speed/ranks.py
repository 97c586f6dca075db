"""An epoch on one process and on two: what sharing a step costs, or gains, on this machine.

Plain multi-similarity on the glyphs, by `bspml train` itself: one process with all threads against
two under `torchrun` with half of them each.  Both take the same batches; each of the two embeds
half of a batch, and they exchange embeddings and gradients over gloo at every step.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from speed.measuring import Row, row

RANKS = 2


def measure_ranks(quick: bool) -> list[Row]:
    """A line for the small network of the glyphs, and one for a ResNet-18."""
    networks = {"small network": []}
    if not quick:
        networks["ResNet-18"] = ["network.name=torchvision:resnet18", "data.subset=64"]
    return [_line(name, settings, quick) for name, settings in networks.items()]


def _line(name: str, settings: list[str], quick: bool) -> Row:
    epochs = 2 if quick else 5
    settings = [*settings, "training.methods=[multi-similarity]", f"training.epochs={epochs}"]
    settings += ["evaluation.clustering=false", "evaluation.every=100"]
    if quick:
        settings.append("data.subset=40")
    with tempfile.TemporaryDirectory() as folder:
        one = _epochs(1, settings, Path(folder) / "one")
        two = _epochs(RANKS, settings, Path(folder) / "two")
    seconds = {"ours": two[1:], "reference": one[1:]}  # the first also warms up
    return row(f"an epoch on two processes against one, {name}", "", seconds, None)


def _epochs(ranks: int, settings: list[str], folder: Path) -> list[float]:
    """Seconds of each training epoch."""
    threads = max(1, (os.cpu_count() or 1) // ranks)
    command = [sys.executable, "-m", "bspml"]
    if ranks > 1:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += ["--nproc-per-node", str(ranks), "-m", "bspml"]
    command += ["train", "--output", str(folder), "device=cpu"]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(
        [*command, f"threads={threads}", *settings],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(
            f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}"
        )
    records = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    return [record["seconds"] for record in records if record["epoch"] > 0]
