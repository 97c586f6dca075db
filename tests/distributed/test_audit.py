"""`bspml audit` on several processes: the files of one, written by the first of them."""

import os
import tempfile
from pathlib import Path

import numpy as np
import pytest

import bspml.statistics.copies.nearest
from bspml.cli import main
from bspml.distributed import rank

SEARCHES = ("exact", "neighbours")


def features(folder):
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 6, 300)
    x = rng.normal(size=(6, 8))[codes] + 0.3 * rng.normal(size=(300, 8))
    x[:3] = x[3:6]
    labels = np.where(rng.random(300) < 0.2, rng.integers(0, 6, 300), codes)
    np.savez(folder / "d.npz", embeddings=x.astype(np.float32), labels=labels)


def audited(folder, search):
    """The files of an audit, by name."""
    code = main(["audit", "d.npz", "--search", search, "-o", search, "--quiet"])
    written = sorted((folder / search).iterdir()) if (folder / search).exists() else []
    return code, {path.name: path.read_bytes() for path in written}


def on_a_rank():
    bspml.statistics.copies.nearest.QUERIES = 64  # so that every rank has some
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        if rank() == 0:
            features(Path(folder))
        return [audited(Path(folder), search) for search in SEARCHES]


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_the_files_are_those_of_one_process_and_the_others_write_none(
    everyone, size, tmp_path, monkeypatch
):
    first, *others = everyone(__file__, size)
    assert others == [[(0, {}), (0, {})]] * (size - 1)
    monkeypatch.chdir(tmp_path)
    features(tmp_path)
    for search, (code, files) in zip(SEARCHES, first, strict=True):
        assert code == 0
        alone = audited(tmp_path, search)[1]
        assert set(files) == set(alone)
        assert {"audit.csv", "audit.npz", "summary.json"} <= set(files)
        for name, content in files.items():
            assert content == alone[name], name
