import pytest

from bspml.errors import ConfigError
from bspml.experiment.config import config_from_mapping
from bspml.experiment.config.messages import shown


def message(tree):
    with pytest.raises(ConfigError) as caught:
        config_from_mapping(tree, "configs/cub.yaml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        ({"loss": {"alhpa": 1}}, "unknown key `loss.alhpa`; did you mean `alpha`?"),
        ({"los": {}}, "unknown key `los`; did you mean `loss`?"),
        ({"lr": 1}, "unknown key `lr`; did you mean `optimizer.lr`?"),
        (
            {"sampler": {"zzz": 1}},
            "unknown key `sampler.zzz`; valid here: classes_per_batch, samples_per_class",
        ),
        ({1: 2}, "`1`: expected names as keys; got 1"),
        ({"seed": "3"}, "`seed`: expected a whole number from 0 to 4294967295; got '3'"),
        ({"seed": 1.0}, "`seed`: expected a whole number from 0 to 4294967295; got 1.0; write 1"),
        ({"seed": True}, "`seed`: expected a whole number from 0 to 4294967295; got true"),
        (
            {"seed": None},
            "`seed`: expected a whole number from 0 to 4294967295; got nothing (null)",
        ),
        ({"loss": None}, "`loss`: expected a section of `key: value` lines; got nothing (null)"),
        ({"loss": [1]}, "`loss`: expected a section of `key: value` lines; got [1]"),
        ({"name": 7}, "`name`: expected text; got 7; put it in quotes, as you wrote it"),
        (
            {"data": {"ignore": ["a", 1e3, None]}},
            "`data.ignore.1`: expected text; got 1000.0; put it in quotes, as you wrote it "
            "(and 1 more)",
        ),
        (
            {"loss": {"alpha": float("nan")}},
            "`loss.alpha`: expected a number in [1e-09, 1e+09]; got nan",
        ),
        ({"loss": {"alpha": True}}, "`loss.alpha`: expected a number in [1e-09, 1e+09]; got true"),
        (
            {"evaluation": {"ks": 4}},
            "`evaluation.ks`: expected a list such as [1, 2, 4]; got 4; write [4]",
        ),
        (
            {"training": {"methods": "contrastive"}},
            "`training.methods`: expected a list such as [contrastive]; got 'contrastive'",
        ),
        (
            {"hyperparameters": {"margin": {"pos_margin": float("nan"), "beta": [1]}}},
            "`hyperparameters.margin.pos_margin`: expected a finite number, true, false or text; "
            "got nan (and 1 more)",
        ),
        ({"evaluation": {"ks": []}}, "`evaluation.ks`: expected at least 1 value; got []"),
        (
            {"evaluation": {"ks": [1, "a"]}},
            "`evaluation.ks.1`: expected a whole number from 1 to 1000000000; got 'a'",
        ),
        (
            {"noise": {"kind": "symetric"}},
            "`noise.kind` must be one of none, symmetric, pair-flip, small-cluster, open-set, "
            "instance-dependent, semantic; got 'symetric'; did you mean `symmetric`?",
        ),
        (
            {"curriculum": {"warmup": "crossfit"}},
            "`curriculum.warmup` must be one of features, cross-fit; got 'crossfit'; did you "
            "mean `cross-fit`?",
        ),
        (
            {"optimizer": {"name": "Adam"}},
            "`optimizer.name` must be one of adam, adamw, sgd; got 'Adam'; did you mean `adam`?",
        ),
    ],
)
def test_the_line_names_file_key_expectation_and_remedy(tree, expected):
    assert message(tree) == f"configs/cub.yaml: {expected}"


def test_an_unknown_key_comes_first_and_the_rest_is_counted():
    tree = {"seed": -1, "loss": {"alpha": -1, "marign": 1}}
    assert message(tree).startswith("configs/cub.yaml: unknown key `loss.marign`; valid here")
    assert message(tree).endswith("(and 2 more)")


def test_a_line_stays_one_line_and_short_whatever_came():
    text = message({"name": "a\nb" * 1000})
    assert "\n" not in text
    assert len(text) < 300
    assert len(shown([["x" * 1000] * 1000] * 1000)) < 500
    assert len(message({"k" * 5000: 1})) < 400
