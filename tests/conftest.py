"""What tests of several rooms share."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def interpreted(request):
    """What pytest says of the files with a `test_in_the_interpreter`: one process for all."""
    asking = (item for item in request.session.items if item.name == "test_in_the_interpreter")
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *sorted({str(item.path) for item in asking})],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
        cwd=Path.cwd(),
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout.splitlines()


@pytest.fixture
def undrawn(monkeypatch):
    """Figures of runs and audits are made and handed over, and not drawn: drawing takes longest."""
    monkeypatch.setattr("bspml.report.page.inline_svg", lambda figure: "")
    monkeypatch.setattr("bspml.experiment.outputs.save_figure", lambda figure, path: path)
