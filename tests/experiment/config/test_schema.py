import pydantic
import pytest

from bspml.errors import ConfigError
from bspml.experiment.config import Config, NoiseConfig, config_from_mapping


def test_sections_are_frozen_and_take_no_unknown_key():
    with pytest.raises(pydantic.ValidationError):
        Config().loss.alpha = 3.0
    with pytest.raises(pydantic.ValidationError):
        Config(bogus=1)


def test_an_empty_mapping_is_the_main_job():
    config = config_from_mapping({})
    assert config == Config()
    assert (config.data.name, config.noise.kind, config.noise.rate) == ("glyphs", "symmetric", 0.3)
    assert config.curriculum.preset == "auto"
    assert config.cross_fitted


def test_the_paper_preset_brings_the_papers_loss_unless_told_otherwise():
    paper = {"preset": "paper", "age": 4.0}
    loss = config_from_mapping({"curriculum": paper}).loss
    assert (loss.base, loss.weighting, loss.skip_zero) == (1.0, "paper", False)
    mixed = config_from_mapping({"curriculum": paper, "loss": {"base": 0.5}}).loss
    assert (mixed.base, mixed.weighting) == (0.5, "paper")
    assert (Config().loss.base, Config().loss.weighting) == (0.5, "inside")


@pytest.mark.parametrize("name", ["folder", "table", "features"])
def test_nothing_is_planted_into_your_own_data_unless_asked_for(name):
    network = {"name": "mlp"} if name == "features" else {}
    tree = {"data": {"name": name}, "network": network}
    assert config_from_mapping(tree).noise == NoiseConfig(kind="none", rate=0.0)
    assert config_from_mapping(tree).name == name  # of the run's folder
    assert config_from_mapping({**tree, "name": "mine"}).name == "mine"
    asked = config_from_mapping({**tree, "noise": {"kind": "symmetric"}}).noise
    assert (asked.kind, asked.rate) == ("symmetric", 0.3)
    with pytest.raises(ConfigError, match=r"`noise\.rate` is 0\.2, but `noise\.kind` is none"):
        config_from_mapping({**tree, "noise": {"rate": 0.2}})
    with pytest.raises(ConfigError, match=r"your own data that `noise\.decisions_file` is about"):
        config_from_mapping({**tree, "noise": {"kind": "symmetric", "decisions_file": "d.csv"}})


def test_the_noise_seed_follows_the_experiments_unless_given():
    assert config_from_mapping({"seed": 7}).noise_seed == 7
    assert config_from_mapping({"seed": 7, "noise": {"seed": 0}}).noise_seed == 0


def test_pretrained_features_need_no_cross_fit():
    assert not config_from_mapping({"network": {"weights": "net.pt"}}).cross_fitted
    crossed = {"network": {"weights": "net.pt"}, "curriculum": {"warmup": "cross-fit"}}
    assert config_from_mapping(crossed).cross_fitted


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"curriculum": {"preset": "paper"}}, "paper needs exactly one of `curriculum.age` and"),
        (
            {"curriculum": {"preset": "paper", "age": 4, "target_maw": 0.7}},
            "`curriculum.age` and `curriculum.target_maw` exclude each other",
        ),
        ({"curriculum": {"age": 4}}, "`curriculum.age` is 4.0, but nothing reads it while `curr"),
        ({"curriculum": {"target_maw": 0.5}}, "to paper"),
        (
            {"curriculum": {"preset": "paper", "age": 4, "reset": False}},
            "`curriculum.reset` is false, .* while `curriculum.preset` is paper; leave it at true",
        ),
        (
            {"curriculum": {"preset": "paper", "target_maw": 0.7, "age_growth": 2}},
            "`curriculum.age_growth` is 2.0, .*; leave it at 1.1, or give `curriculum.age` in "
            "place of `curriculum.target_maw`",
        ),
        (
            {"curriculum": {"preset": "paper", "age_growth": 2}},
            "needs exactly one of `curriculum.age` and `curriculum.target_maw`",
        ),
        (
            {"curriculum": {"preset": "paper", "age": 4, "age_max": 3}},
            "`curriculum.age_max` must be at least `curriculum.age`, 4; got 3",
        ),
        ({"curriculum": {"warmup": "features"}}, "but `network.weights` is null"),
        ({"network": {"freeze": True}}, "a network from scratch would never learn"),
        (
            {"optimizer": {"momentum": 0.9}},
            "`optimizer.momentum` is 0.9, .* `optimizer.name` is adam",
        ),
        ({"optimizer": {"decay_1d": False}}, "`optimizer.decay_1d` is false, but `optimizer.weigh"),
        ({"optimizer": {"clip_norm": 0}}, "`optimizer.clip_norm`: expected more than 0; got 0"),
        ({"training": {"ema": 1}}, "`training.ema`: expected less than 1; got 1"),
        (
            {"training": {"patience": 3}},
            "`training.patience` waits .* and `data.validation_classes` is 0; hold some out, such",
        ),
        ({"schedule": {"factor": 0.5, "milestones": [4]}}, "while `schedule.name` is constant"),
        ({"schedule": {"name": "step"}}, "`schedule.name` step needs `schedule.milestones`"),
        ({"training": {"precision": "float64"}}, "`training.precision`"),
        ({"training": {"epochs": 2}}, "leaves nothing of the 2 `training.epochs`"),
        ({"sampler": {"samples_per_class": 1}}, "`sampler.samples_per_class`: expected at least 2"),
        (
            {"sampler": {"samples_per_class": 100_000}},
            "`sampler.samples_per_class` is 1600000; a batch has at most 1000000",
        ),
        (
            {"network": {"embedding_size": 10**8}},
            "`network.embedding_size`: expected at most 65536",
        ),
        ({"noise": {"rate": 1.5}}, "`noise.rate`: expected at most 1; got 1.5"),
        ({"loss": {"alpha": 0}}, "`loss.alpha`: expected more than 0; got 0"),
    ],
)
def test_what_cannot_be_is_refused_by_name(tree, message):
    with pytest.raises(ConfigError, match=message):
        config_from_mapping(tree)


def test_balance_zero_is_ordinary_and_an_age_is_positive():
    curriculum = {"preset": "paper", "age": 1.5, "balance": 0}
    assert config_from_mapping({"curriculum": curriculum}).curriculum.balance == 0
    with pytest.raises(ConfigError, match=r"`curriculum\.age`"):  # the schedule multiplies it
        config_from_mapping({"curriculum": {**curriculum, "age": -1.0}})
