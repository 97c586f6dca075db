"""Configurations with a `task`: defaults, every shipped file, and the text of each error."""

import pytest

from bspml.errors import ConfigError
from bspml.experiment.config import (
    ClassificationConfig,
    Config,
    dump_config,
    load_config,
    load_experiment,
)
from helpers.places import REPOSITORY

FOLDER = REPOSITORY / "bspml" / "experiment" / "configs" / "classification"
CLASSES, VALUES = "task=classification", "task=regression"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda p: p.name)
def test_every_shipped_config_loads_and_survives_its_dump(path, tmp_path):
    config = load_experiment(path)
    assert isinstance(config, ClassificationConfig)
    (tmp_path / "x.yaml").write_text(dump_config(config))
    assert load_experiment(tmp_path / "x.yaml") == config


def test_the_shipped_digits_config_is_the_defaults_and_names_every_key():
    path = FOLDER / "digits.yaml"
    assert load_experiment(path) == ClassificationConfig() == load_experiment(None, [CLASSES])
    text = path.read_text()
    sections = ClassificationConfig().model_dump()
    assert len(sections) > 10
    for name, section in sections.items():
        keys = section if isinstance(section, dict) else (name,)
        assert all(f"{key}:" in text for key in keys), name


def test_the_published_settings_are_those_of_the_papers():
    imae = load_experiment(FOLDER / "cifar10_imae.yaml")
    assert (imae.network.name, imae.loss.T, imae.training.batch_size) == ("resnet56", 8, 128)
    assert (imae.optimizer.lr, imae.optimizer.momentum, imae.optimizer.weight_decay) == (
        0.1,
        0.9,
        1e-4,
    )
    assert imae.schedule.milestones == (32000, 48000)
    assert abs(imae.training.epochs * 391 - 100_000) < 391
    gr = load_experiment(FOLDER / "cifar100_gr.yaml")
    assert (gr.network.name, gr.loss.beta, gr.loss.lam) == ("resnet44", 8, 0.5)
    assert load_experiment(FOLDER / "cifar100_gr_asymmetric.yaml").noise.kind == "sibling-flip"
    swapped = load_experiment(FOLDER / "cifar100_imae_asymmetric.yaml")
    assert (swapped.noise.kind, swapped.noise.exact, swapped.seed) == ("sibling-swap", False, 123)
    assert load_experiment(FOLDER / "cifar100_superloss.yaml").noise.keep_original


def test_without_a_task_it_is_metric_learning():
    assert load_experiment() == load_experiment(None, ["task=metric-learning"]) == Config()


def test_a_file_may_name_the_task_and_an_override_may_change_it(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text("task: regression\n")
    assert load_experiment(path).noise.kind == "uniform"
    assert load_experiment(path, [CLASSES]).noise.kind == "symmetric"
    assert isinstance(load_experiment(path, ["task=metric-learning"]), Config)


def test_commands_that_need_embeddings_refuse_a_classification_in_one_sentence():
    with pytest.raises(ConfigError, match=r"digits\.yaml: is a classification experiment"):
        load_config(FOLDER / "digits.yaml")


def test_the_plain_loss_beside_superloss_is_what_is_inside_it():
    config = load_experiment(None, [VALUES, "loss.base=smooth-l1"])
    assert config.plain_loss.name == "smooth-l1"
    assert config.has_baseline
    assert not load_experiment(None, [CLASSES, "loss.name=ce"]).has_baseline
    assert not load_experiment(None, [CLASSES, "training.baseline=false"]).has_baseline


def test_lambda_has_a_default_for_each_loss():
    assert load_experiment(None, [CLASSES]).loss.strength == 0.25
    assert load_experiment(None, [CLASSES, "loss.name=gr"]).loss.strength == 0.5
    assert load_experiment(None, [CLASSES, "loss.name=gr", "loss.lam=0"]).loss.strength == 0


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["task=clasification"], "`task` must be one of metric-learning, .*; did you mean `class"),
        (["task=[1]"], r"`task` must be one of .*; got \[1\]"),
        ([CLASSES, "loss.nam=ce"], "unknown key `loss.nam`; did you mean `name`"),
        ([CLASSES, "curriculum.age=1"], "unknown key `curriculum.age`"),
        ([CLASSES, "loss.name=imea"], "`loss.name` must be one of .*; did you mean `imae`"),
        ([CLASSES, "loss.name=mse"], "must be one of ce, .* where `task` is classification; got"),
        ([VALUES, "loss.name=gr"], "must be one of mse, smooth-l1, superloss where `task` is reg"),
        ([VALUES, "loss.base=ce"], "`loss.base` must be one of mse, smooth-l1 where"),
        ([VALUES, "noise.kind=symmetric"], "`noise.kind` must be one of none, uniform where"),
        ([CLASSES, "noise.kind=uniform"], "`noise.kind` must be one of none, symmetric, .* where"),
        (
            [CLASSES, "loss.q=.5"],
            "`loss.q` is 0.5, but nothing reads it while `loss.name` is super",
        ),
        ([CLASSES, "loss.tau=foo"], "`loss.tau` must be ema, mean, log-classes or a number in"),
        ([CLASSES, "loss.tau=.inf"], "`loss.tau` must be ema, mean, log-classes or a number"),
        ([CLASSES, "loss.tau=true"], "`loss.tau` must be ema, mean, log-classes or a number"),
        ([VALUES, "loss.tau=log-classes"], "a regression has none; use ema, mean or a number"),
        (
            [CLASSES, "loss.tau=1.0e+39"],
            "`loss.tau` must be .* number in .-1e.09, 1e.09.; got .1e.39",
        ),
        (
            [VALUES, "loss.tau=-1.0e+39"],
            "`loss.tau` must be .* number in .-1e.09, 1e.09.; got .-1e.39",
        ),
        ([CLASSES, "loss.name=gr", "loss.beta=1000"], "`loss.beta` is 1000, .* beyond float32"),
        ([CLASSES, "loss.name=imae", "loss.T=400"], "`loss.T` is 400, .* exp of 100, beyond floa"),
        ([CLASSES, "loss.lam=0"], "`loss.lam` of superloss must be at least 1e-09; got 0"),
        (
            [CLASSES, "loss.tau=1", "loss.momentum=.5"],
            "is 0.5, .* while `loss.tau` is 1.0; leave it at 0.9",
        ),
        ([CLASSES, "loss.name=gr", "loss.g=x"], "`loss.g` must be one of exp, identity"),
        ([CLASSES, "loss.name=ce", "training.baseline=true"], "trains ce too, but `loss.name` is"),
        ([CLASSES, "data.name=cifar10"], "`data.root` must be the folder with the files of cifar1"),
        ([CLASSES, "data.root=x"], "the digits are part of scikit-learn; leave it out"),
        ([CLASSES, "data.augment=true"], "a mirrored digit is none; set it to false"),
        ([CLASSES, "data.name=digit"], "`data.name` must be one of .*; did you mean `digits`"),
        ([VALUES, "data.name=cifar10", "data.root=x"], "cifar10 has no values"),
        ([CLASSES, "noise.kind=sibling-flip"], "confuses classes of cifar100, but `data.name` is"),
        ([CLASSES, "noise.kind=none", "noise.rate=.1"], "`noise.kind` is none; set `noise.rate` t"),
        (
            [CLASSES, "noise.kind=none", "noise.exact=false"],
            "`noise.exact` is false, but nothing reads it",
        ),
        ([CLASSES, "noise.per_class=true", "noise.exact=false"], "counts the changed samples"),
        (
            [VALUES, "noise.per_class=true"],
            "reads it while `noise.kind` is uniform; leave it at fal",
        ),
        (
            [CLASSES, "noise.label_set=worse"],
            "nothing reads it while `noise.labels_file` is null; lea",
        ),
        (
            [CLASSES, "noise.labels_file=x.npy", "noise.kind=symmetric"],
            "already gives the labels; `noise.kind` symmetric would change them once more",
        ),
        ([VALUES, "noise.labels_file=x.npy"], "holds classes but `task` is regression"),
        ([CLASSES, "network.name=resnet18"], "`network.name` must be one of mlp, .* did you mean"),
        ([CLASSES, "network.name=resnet20", "network.hidden=8"], "leave it at 256, or set `net"),
        ([CLASSES, "schedule.name=step"], "needs `schedule.milestones`, in iterations"),
        ([CLASSES, "schedule.milestones=[5]"], "or set `schedule.name` to step"),
        (
            [CLASSES, "schedule.name=step", "schedule.milestones=[5, 5]"],
            r"must rise without repeats; got \[5, 5\]",
        ),
        ([CLASSES, "evaluation.truncation=2"], "cuts the errors of a regression"),
        ([VALUES, "training.relabel=true"], "replaces labels by predicted classes"),
        (
            [CLASSES, "training.batch_size=1"],
            "`training.batch_size`: expected a whole number from 2 to",
        ),
        ([CLASSES, "name=a/b"], "since folders and files are called after it"),
        ([CLASSES, "device=gpu"], "must be auto, cpu, cuda, cuda:N or mps"),
        ([CLASSES, "optimizer.momentum=.9"], "or set `optimizer.name` to sgd"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_key(overrides, message):
    with pytest.raises(ConfigError, match=message) as caught:
        load_experiment(None, overrides)
    assert "\n" not in str(caught.value)


def test_a_truncation_at_one_would_leave_no_gradient():
    with pytest.raises(ConfigError, match=r"loss\.k"):
        load_experiment(None, [CLASSES, "loss.name=truncated-gce", "loss.k=1"])
