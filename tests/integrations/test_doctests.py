"""The examples of the integrations' docstrings, where their frameworks are."""

import doctest
import importlib

import pytest

pytestmark = pytest.mark.integrations

FRAMEWORKS = {
    "huggingface": "transformers",
    "sentence_transformers": "sentence_transformers",
}


@pytest.mark.parametrize("module", FRAMEWORKS)
def test_examples_run(module):
    pytest.importorskip(FRAMEWORKS[module])
    found = importlib.import_module(f"bspml.integrations.{module}")
    result = doctest.testmod(found, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0
    assert result.attempted > 0
