"""Data for the commands."""

import numpy as np
import pytest


@pytest.fixture
def points(tmp_path):
    rng = np.random.default_rng(0)
    labels = np.repeat(["a", "b", "c"], 10)
    embeddings = np.eye(3)[np.repeat(np.arange(3), 10)] + 0.1 * rng.standard_normal((30, 3))
    np.save(tmp_path / "e.npy", embeddings.astype(np.float32))
    (tmp_path / "y.csv").write_text("label\n" + "\n".join(labels) + "\n")
    return tmp_path


@pytest.fixture
def case(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    x = np.repeat(np.eye(5), 12, 0) + 0.15 * rng.standard_normal((60, 5))
    labels = np.repeat([f"class {c}" for c in "abcde"], 12)
    for i in range(0, 60, 5):
        labels[i] = f"class {'abcde'[(i // 12 + 1 + i % 4) % 5]}"
    return x.astype(np.float32), labels
