"""An audit of hostile names and labels, and two audits of different data."""

import shutil

import numpy as np
import pytest

import bspml

NASTY = ["=SUM(A1)", "</script><script>alert(1)</script>", "a,b\n\"c'"]


@pytest.fixture(scope="module")
def audited():
    """Make a small audit of the classes named by the characters of a text."""

    def make(classes):
        rng = np.random.default_rng(0)
        x = np.repeat(np.eye(3), 8, 0) + 0.1 * rng.standard_normal((24, 3))
        return bspml.audit(x, np.repeat(list(classes), 8))

    return make


@pytest.fixture(scope="module")
def two(audited):
    """Audits of different data."""
    return audited("xyz"), audited("abc")


@pytest.fixture(scope="module")
def hostile_report():
    rng = np.random.default_rng(0)
    x = np.repeat(np.eye(3), 12, 0) + 0.1 * rng.standard_normal((36, 3))
    labels = np.repeat(NASTY, 12).tolist()
    labels[0], labels[13] = labels[13], labels[0]
    x[20] = x[21]  # an exact copy
    names = [f"../{i}\x00<b>" if i == 3 else f"im/{i}.png" for i in range(36)]
    return bspml.audit(x, labels, names)


@pytest.fixture(scope="module")
def drawn(hostile_report, tmp_path_factory):
    """The folder of that audit, to be read or copied: its page takes longest."""
    folder = tmp_path_factory.mktemp("drawn") / "audit"
    hostile_report.save(folder)
    return folder


@pytest.fixture
def saved(drawn, tmp_path):
    """A folder of it to be changed."""
    return shutil.copytree(drawn, tmp_path / "audit")
