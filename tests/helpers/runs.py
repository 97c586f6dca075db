"""Finished runs, to be changed without harm to the original."""

import shutil

from bspml.files.run import RunFolder


def copied(result, tmp_path):
    """A copy of the result's folder, opened."""
    path = tmp_path / "copy"
    shutil.copytree(result.folder.path, path)
    return RunFolder.open(path)
