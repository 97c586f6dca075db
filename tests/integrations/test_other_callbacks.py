"""Stand-ins of Lightning's callbacks, by their names; no framework is needed for it."""

import warnings

import pytest

from bspml.errors import InputError
from bspml.integrations.other_callbacks import check_beside_reset, check_beside_table


class WeightAveraging:
    pass


class EMAWeightAveraging(WeightAveraging):
    pass


class BaseFinetuning:
    pass


class BackboneFinetuning(BaseFinetuning):
    pass


class Mine:
    _average_model = None


class ModelCheckpoint:
    def __init__(self, monitor):
        self.monitor = monitor


class EarlyStopping(ModelCheckpoint):
    pass


@pytest.mark.parametrize("kind", [EMAWeightAveraging, BackboneFinetuning, Mine])
def test_what_goes_on_over_thrown_away_networks_is_refused(kind):
    with pytest.raises(InputError, match=rf'{kind.__name__} goes on over .* warmup="features"'):
        check_beside_reset([object(), kind()])


def test_who_chooses_among_epochs_is_warned_once():
    with pytest.warns(UserWarning, match="may choose an epoch of the warm-up") as caught:
        check_beside_reset([ModelCheckpoint("loss"), EarlyStopping("r"), ModelCheckpoint(None)])
    assert len(caught) == 1
    assert "ModelCheckpoint(monitor='loss') and EarlyStopping(monitor='r')" in str(
        caught[0].message
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_beside_reset([ModelCheckpoint(None), object()])


@pytest.mark.parametrize("kind", [WeightAveraging, EMAWeightAveraging])
def test_what_averages_the_buffers_of_the_module_is_refused_beside_a_table_there(kind):
    with pytest.raises(InputError, match=rf"{kind.__name__} would average the sample weights"):
        check_beside_table([object(), kind()])
    check_beside_table([object(), Mine()])  # of parameters alone
