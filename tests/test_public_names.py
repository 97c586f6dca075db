"""What `import bspml` offers, name by name."""

import importlib
import subprocess
import sys
import types

import pytest

import bspml


@pytest.mark.parametrize("name", bspml._HOME)
def test_a_public_name_is_the_same_object_however_often_it_is_asked_for(name):
    # Importing a submodule binds it in the package: one of the same name would hide the object.
    first, second = getattr(bspml, name), getattr(bspml, name)
    assert second is first
    assert not isinstance(second, types.ModuleType)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'neighbor_statistics'"):
        _ = bspml.neighbor_statistics


@pytest.mark.parametrize(("former", "now"), bspml._MOVED.items())
def test_a_module_is_found_under_its_name_in_0_1_with_a_warning(former, now):
    sys.modules.pop(former, None)
    with pytest.warns(DeprecationWarning, match=f"{former} is {now} since 0.2"):
        found = importlib.import_module(former)
    assert found is importlib.import_module(now)
    assert found.__spec__.name == now


def test_other_frameworks_are_not_imported_before_they_are_asked_for():
    script = "import sys, bspml, bspml.trainers; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    tops = {name.partition(".")[0] for name in done.stdout.split()}
    assert "bspml" in tops
    assert tops.isdisjoint({"lightning", "pytorch_lightning", "sentence_transformers"})
