"""What the callbacks of Hugging Face's trainers share is tested with each; here: without them."""

import importlib
import sys

import pytest

from bspml.errors import MissingDependencyError


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("huggingface", "transformers", "huggingface"),
        ("sentence_transformers", "transformers", "sentence-transformers"),
        ("sentence_transformers", "sentence_transformers", "sentence-transformers"),
    ],
)
def test_without_the_package_the_extra_is_named(module, package, extra, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("bspml.integrations.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingDependencyError, match=rf"bspml\[{extra}\]'") as caught:
        importlib.import_module(f"bspml.integrations.{module}")
    assert len(str(caught.value).split(". ")) == 1
