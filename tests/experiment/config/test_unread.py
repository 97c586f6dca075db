import pytest

from bspml.errors import ConfigError
from bspml.experiment.config import (
    config_from_mapping,
    dump_config,
    load_config,
    load_experiment,
)
from bspml.experiment.config.unread import UNREAD

STORED = ("data.name=features", "data.root=F", "network.name=mlp")
BACKBONE = ("data.features=efficientnet-lite0", "network.name=mlp")
PLAIN = ("training.methods=[contrastive]",)
AUTO = ("training.methods=[auto:margin]",)
# settings -> the value that nothing reads under them, and the same value where it is read
CASES = [
    (STORED, "data.image_size=32", ()),
    (STORED, "data.channels=3", ()),
    (STORED, "data.crop_boxes=true", ("data.name=cub",)),
    (STORED, "data.incomplete=true", ("data.name=sop",)),
    ((), "data.incomplete=true", ("data.classes=half",)),
    (BACKBONE, "data.channels=1", ()),
    ((), "data.cache=C", BACKBONE),
    (("noise.kind=none", "noise.rate=0"), "noise.seed=3", ()),
    (("task=classification", "noise.kind=none", "noise.rate=0"), "noise.seed=3", ()),
    (PLAIN, "curriculum.rule=quadratic", AUTO),
    (PLAIN, "curriculum.warmup=cross-fit", AUTO),
    (PLAIN, "curriculum.warmup_epochs=1", AUTO),
    (PLAIN, "curriculum.reset=false", AUTO),
    (PLAIN, "curriculum.judge_every=2", AUTO),
    (PLAIN, "curriculum.repair=confident", AUTO),
    (PLAIN, "curriculum.search=exact", AUTO),
    (PLAIN, "curriculum.statistics_error=0.1", AUTO),
    (PLAIN, "curriculum.embeddings=collected", ("training.methods=[spms]",)),
    (AUTO, "curriculum.balance=2", (*AUTO, "curriculum.rule=quadratic")),
    (AUTO, "curriculum.solver=doubly-stochastic", ("curriculum.preset=paper", "curriculum.age=4")),
    (("curriculum.search=exact",), "curriculum.statistics_error=0.1", AUTO),
    (STORED, "curriculum.warmup_epochs=1", (*STORED, "curriculum.warmup=cross-fit")),
    (STORED, "curriculum.reset=false", (*STORED, "curriculum.warmup=cross-fit")),
    (STORED, "training.channels_last=true", ()),
    ((), "training.prefetch=3", ("workers=1",)),
]


@pytest.mark.parametrize(("settings", "value", "read"), CASES)
def test_a_value_that_nothing_reads_is_refused_by_its_name(settings, value, read, tmp_path):
    key = value.partition("=")[0]
    with pytest.raises(
        ConfigError, match=rf"^command line: `{key}` is .*nothing reads it w"
    ) as err:
        load_experiment(None, [*settings, value])
    assert "; leave it at " in str(err.value)
    load_experiment(None, [*read, value])
    # A default may always stand, as in the file of a run.
    default = load_experiment(None, settings)
    (tmp_path / "config.yaml").write_text(dump_config(default))
    assert load_experiment(tmp_path / "config.yaml") == default


def test_every_key_of_the_table_is_tried():
    tried = {value.partition("=")[0] for _, value, _ in CASES}
    assert {key for rule in UNREAD for key in rule.keys} <= tried


def test_the_file_unread_may_stand_may_hold_what_nothing_reads(tmp_path):
    file = tmp_path / "config.yaml"
    text = dump_config(load_config(overrides=PLAIN))
    text = text.replace("rule: threshold", "rule: quadratic").replace("cache: null", "cache: C")
    file.write_text(text.replace("image_size: null", "image_size: 32"))
    config = load_config(file, unread_may_stand=True)
    assert (config.curriculum.rule, config.data.cache) == ("quadratic", "C")
    with pytest.raises(ConfigError, match=r"config\.yaml: `data\.cache` is C, but nothing reads"):
        load_config(file)


def test_the_papers_preset_asks_for_a_pace_that_a_plain_method_does_not_read():
    tree = {"curriculum": {"preset": "paper", "age": 4.0}, "training": {"methods": ["contrastive"]}}
    assert config_from_mapping(tree).curriculum.age == 4.0
