import math
import re

import pydantic
import pytest

from bspml.errors import ConfigError, InputError
from bspml.experiment.config import ClassificationConfig, Config, NoiseConfig, config_from_mapping
from bspml.experiment.config.reading import validated
from bspml.experiment.config.sample_loss import SampleLossConfig
from bspml.experiment.methods.registry import METHODS, WEIGHINGS, WRAPPERS
from bspml.trainers.settings import PaperSettings, Scales, Section, section_of


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
    assert config.training.methods == ("contrastive", "auto:contrastive")


def test_the_paper_preset_brings_the_papers_loss_and_methods_unless_told_otherwise():
    paper = {"preset": "paper", "age": 4.0}
    loss = config_from_mapping({"curriculum": paper}).loss
    assert (loss.base, loss.weighting, loss.skip_zero) == (1.0, "paper", False)
    published = config_from_mapping({"curriculum": paper, "training": {"epochs": 3}}).training
    assert (published.methods, published.epochs) == (("multi-similarity", "bspml"), 3)
    told = {"curriculum": paper, "training": {"methods": ["bspml"]}}
    assert config_from_mapping(told).training.methods == ("bspml",)
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
        (
            {"optimizer": {"clip_norm": 0}},
            "`optimizer.clip_norm`: expected a number in .1e-09, 1e.09.; got 0",
        ),
        ({"training": {"ema": 1}}, "`training.ema`: expected a number in .0, 1.; got 1"),
        (
            {"training": {"patience": 3}},
            "`training.patience` waits .* and `data.validation_classes` is 0; hold some out, such",
        ),
        ({"schedule": {"factor": 0.5, "milestones": [4]}}, "while `schedule.name` is constant"),
        ({"schedule": {"name": "step"}}, "`schedule.name` step needs `schedule.milestones`"),
        ({"training": {"precision": "float64"}}, "`training.precision`"),
        (
            {"sampler": {"samples_per_class": 1}},
            "`sampler.samples_per_class`: expected a whole number from 2 to",
        ),
        (
            {"sampler": {"samples_per_class": 10_000}},
            "`sampler.samples_per_class` is 160000; a batch has at most 65536",
        ),
        (
            {"network": {"embedding_size": 10**8}},
            "`network.embedding_size`: expected a whole number from 1 to 65536",
        ),
        ({"noise": {"rate": 1.5}}, "`noise.rate`: expected a number in .0, 1.; got 1.5"),
        ({"loss": {"alpha": 0}}, "`loss.alpha`: expected a number in .1e-09, 1e.09.; got 0"),
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


def test_a_linear_layer_on_features_starts_as_they_are_and_is_trained_gently():
    data = {"name": "features", "root": "x.npz"}
    on_features = Config(data=data, network={"name": "mlp"})
    assert (on_features.network.embedding_size, on_features.head) == (None, "principal")
    assert on_features.optimizer.lr == 1e-4
    assert on_features.validation_share == 0.2
    told = {"network": {"name": "mlp", "embedding_size": 8, "head": "random"}}
    told |= {"optimizer": {"lr": 0.5}, "data": {**data, "validation_classes": 0.0}}
    config = Config(**told)
    assert (config.network.embedding_size, config.head, config.optimizer.lr) == (8, "random", 0.5)
    assert config.validation_share == 0
    hidden = Config(data=data, network={"name": "mlp", "hidden": 4})
    assert (hidden.network.embedding_size, hidden.head) == (128, "random")
    assert hidden.optimizer.lr == Config().optimizer.lr
    known = Config(data={"name": "cub", "root": "d"}, network={"name": "efficientnet-lite0"})
    assert (known.validation_share, known.head) == (0, "principal")


@pytest.mark.parametrize(
    ("network", "says"),
    [
        ({"head": "principal"}, "`head` is principal, but the last layer of this network is not"),
        ({"embedding_size": None}, "`embedding_size` is null, as long as the features, which only"),
    ],
)
def test_what_needs_features_is_refused_without(network, says):
    with pytest.raises(pydantic.ValidationError, match=says):
        Config(network=network)


# --- every number ---------------------------------------------------------------------------------

_SECTIONS = [*METHODS.values(), *WRAPPERS.values(), *WEIGHINGS.values(), PaperSettings, Scales]
_ABSURD = (
    *(2**70, -(2**70), 10**400, 1e308, -1e308, math.inf, -math.inf, math.nan),
    *(True, "12", "", [3], {"a": 1}),
)


def numbers(kind, path=()):
    """(section, key, path) of every key that takes a number, or a list of them."""
    for name, field in kind.model_fields.items():
        if isinstance(field.default, Section):
            yield from numbers(type(field.default), (*path, name))
        else:
            schema = kind.model_json_schema()["properties"][name]
            kinds = [s.get("items", s) for s in schema.get("anyOf", [schema])]
            if any(s.get("type") in ("number", "integer") for s in kinds):
                yield kind, name, (*path, name), [s for s in kinds if s.get("type") in TYPES]


TYPES = ("number", "integer")


def test_every_number_of_an_experiment_has_both_bounds():
    found = [
        entry for root in (Config, ClassificationConfig, *_SECTIONS) for entry in numbers(root)
    ]
    assert len(found) > 90
    for kind, name, _, schemas in found:
        if (kind is SampleLossConfig and name == "tau") or name == "age_max":
            continue  # the first has a check of its own; infinity is no limit of an age
        for schema in schemas:
            low = schema.get("minimum", schema.get("exclusiveMinimum"))
            high = schema.get("maximum", schema.get("exclusiveMaximum"))
            bounded = "enum" in schema or (low is not None and high is not None)
            assert bounded, f"{kind.__name__}.{name}"


@pytest.mark.parametrize("root", [Config, ClassificationConfig])
def test_an_absurd_number_is_refused_under_its_key_with_its_bounds(root):
    tried = 0
    for kind, name, path, _ in numbers(root):
        many = isinstance(kind.model_fields[name].default, tuple)
        for value in _ABSURD:
            inner = [value] if many else value
            for key in reversed(path):
                inner = {key: inner}
            with pytest.raises(ConfigError) as caught:
                validated(root, inner, "x.yaml")
            text = str(caught.value)
            assert text.startswith(f"x.yaml: `{'.'.join(path)}"), text
            assert re.search(r" in \[|in \(| from \d+ to \d+| one of ", text), text
            assert len(text) < 250
            tried += 1
    assert tried > 25 * len(_ABSURD)


@pytest.mark.parametrize("kind", _SECTIONS, ids=lambda kind: kind.__name__)
def test_an_absurd_hyper_parameter_is_refused_under_its_name_with_its_bounds(kind):
    for _, name, _, _ in numbers(kind):
        for value in _ABSURD:
            if name == "age_max" and value in (math.inf, 1e308, 2**70):
                continue
            with pytest.raises(InputError, match=rf"`hyper\.{name}` must be .*(in [\[(]|from \d)"):
                section_of(kind, {name: value}, "hyper.")
