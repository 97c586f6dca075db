"""Versions of what made a result."""

from importlib.metadata import version

import bspml
from bspml.experiment.classification import outputs
from bspml.experiment.words import versions
from bspml.files.versions import versions_of


def test_versions_are_those_that_are_installed_and_agree_wherever_they_are_written():
    known = versions_of(("numpy", "scikit-learn"))
    assert known == {
        "bspml": bspml.__version__,
        "numpy": version("numpy"),
        "scikit-learn": version("scikit-learn"),
    }
    assert versions_of(outputs.LIBRARIES).items() <= versions().items()
