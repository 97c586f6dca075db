"""Two gloo processes for every test file here that says what to do on them; if slow, three, too."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent
ENTRY = re.compile(r"^def (on_a_rank|as_a_process)\(", re.MULTILINE)


@pytest.fixture(scope="session")
def everyone(request, tmp_path_factory):
    """A function: (file, W, case) to what the W ranks returned, in their order."""
    out = tmp_path_factory.mktemp("ranks")
    items = [item for item in request.session.items if item.path.parent == HERE]
    sizes = "2,3" if any(item.get_closest_marker("slow") for item in items) else "2"
    files = sorted({str(item.path) for item in items})
    files = [file for file in files if ENTRY.search(Path(file).read_text())]
    done = subprocess.run(
        [sys.executable, str(HERE / "fork_ranks.py"), str(out), sizes, *files],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*filter(None, sys.path), "."])},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-6000:]

    def found(file, size, case="all"):
        paths = [out / f"{Path(file).stem}-{case}-{size}-{rank}.pt" for rank in range(size)]
        return [torch.load(p, weights_only=False) if p.exists() else None for p in paths]

    return found
