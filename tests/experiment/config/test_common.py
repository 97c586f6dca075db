import pytest

from bspml.errors import ConfigError
from bspml.experiment.config import config_from_mapping


def test_no_noise_and_a_label_file_imply_rate_zero():
    assert config_from_mapping({"noise": {"kind": "none"}}).noise.rate == 0
    noise = config_from_mapping({"noise": {"labels_file": "given.csv"}}).noise
    assert (noise.kind, noise.rate) == ("none", 0)


def test_a_home_folder_is_expanded(monkeypatch):
    monkeypatch.setenv("HOME", "/elsewhere/someone")
    assert config_from_mapping({"data": {"root": "~/x"}}).data.root == "/elsewhere/someone/x"


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"noise": {"kind": "none", "rate": 0.1}}, "`noise.rate` is 0.1, but `noise.kind` is none"),
        (
            {"noise": {"kind": "symmetric", "labels_file": "a.csv"}},
            "`noise.labels_file` already gives the labels",
        ),
        ({"evaluation": {"ks": [4, 1]}}, "`evaluation.ks` must rise without repeats; got .4, 1."),
        ({"evaluation": {"ks": [1, 1]}}, "`evaluation.ks` must rise"),
        ({"name": "../up"}, "`name` must be letters, digits"),
        ({"observers": ["json-lines"] * 2}, "`observers` names json-lines more than once; keep"),
        ({"device": "gpu"}, "`device` must be auto, cpu, cuda, cuda:N or mps; got 'gpu'"),
        ({"seed": 2**32}, "`seed`: expected a whole number from 0 to 4294967295; got 4294967296"),
        (
            {"noise": {"labels_file": "a.csv", "list_file": "b.csv"}},
            "`noise.labels_file` and `noise.list_file` both give the labels",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(tree, message):
    with pytest.raises(ConfigError, match=message):
        config_from_mapping(tree)
