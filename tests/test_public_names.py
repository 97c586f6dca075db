"""What `import bspml` offers, name by name."""

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
