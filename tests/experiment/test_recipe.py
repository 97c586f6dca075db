"""The whole recipe of a training from its YAML keys: interrupted, opened, refused."""

import math
import shutil

import pytest
import torch
from torchvision import models

import bspml
from bspml.errors import CheckpointError, ConfigError
from bspml.experiment.config import load_config
from bspml.experiment.data import load_data
from bspml.experiment.engine import Workplace
from bspml.experiment.retrieval import Retrieval
from bspml.experiment.run import experiment_of, run_experiment
from bspml.files import checkpoints
from bspml.files.run import RecordLog, RunFolder
from bspml.trainers.progress import Silent
from helpers.comparisons import same
from helpers.photos import save_photos

RECIPE = [
    "data.subset=16",
    "data.validation_classes=0.25",
    "sampler.classes_per_batch=4",
    "curriculum.warmup_epochs=1",
    "training.epochs=4",
    "training.methods=[proxy-anchor, bspml]",
    "training.checkpoint_every=3",
    "training.precision=float16",
    "training.ema=0.9",
    "training.patience=2",
    "schedule.name=cosine",
    "schedule.warmup_steps=2",
    "optimizer.name=adamw",
    "optimizer.head_lr_factor=2",
    "optimizer.loss_lr_factor=5",
    "optimizer.weight_decay=1e-2",
    "optimizer.decay_1d=false",
    "optimizer.clip_norm=0.5",
    "evaluation.ks=[1, 2]",
    "evaluation.clustering=false",
]
COPY_AT = {"proxy-anchor": 5, "bspml": 11}  # steps so far


class Copier(Silent):
    """Copies the run's folder in the middle of each method, as a kill would leave it."""

    def __init__(self, folder):
        self.folder, self.steps = folder, dict.fromkeys(COPY_AT, 0)

    def step(self, method, done, steps, loss):
        self.steps[method] += 1
        if self.steps[method] == COPY_AT[method]:
            target = self.folder.path.parent / method
            shutil.copytree(self.folder.path, target)
            RunFolder(target).lock.unlink()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = RunFolder.create(tmp_path_factory.mktemp("runs") / "whole")
    run_experiment(load_config(None, RECIPE), folder, narrator=Copier(folder), figures=False)
    return folder


def trainer_state(folder, method):
    state = checkpoints.load(folder.checkpoint(method))["trainer"]
    state.pop("generators")
    return state


@pytest.mark.parametrize("method", COPY_AT)
def test_an_interrupted_run_goes_on_bit_for_bit(whole, tmp_path, method):
    shutil.copytree(whole.path.parent / method, tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    assert not folder.finished
    run_experiment(load_config(folder.config), folder, resume=True, figures=False)
    for name in COPY_AT:
        assert same(trainer_state(folder, name), trainer_state(whole, name)), name
    rates, expected = (
        [(r.method, r.steps, r.extra.get("lr"), r.recall_at_k) for r in RecordLog(f.records).read()]
        for f in (folder, whole)
    )
    assert rates == expected
    assert len({rate for _, _, rate, _ in rates}) > 4


def test_every_part_of_the_recipe_is_at_work(whole):
    state = trainer_state(whole, "proxy-anchor")
    network = state["network"]
    assert network["averaged"]["trunk"]["n_averaged"] == state["position"]["steps"]
    assert network["scalers"]["gradients"]["_growth_tracker"] > 0
    assert state["patience"]["best"] > 0
    groups = network["optimizers"]["trunk_optimizer"]["param_groups"]
    settings = [(g["initial_lr"], g["weight_decay"], len(g["params"])) for g in groups]
    # Convolutions; normalisations; the head's weight; its bias.
    assert settings == [(1e-3, 0.01, 3), (1e-3, 0.0, 6), (2e-3, 0.01, 1), (2e-3, 0.0, 1)]
    (proxies,) = network["optimizers"]["metric_loss_optimizer"]["param_groups"]
    assert proxies["initial_lr"] == pytest.approx(5e-3)
    assert set(network["lr_schedulers"]) == {
        "trunk_scheduler_by_iteration",
        "metric_loss_scheduler_by_iteration",
    }


def test_the_network_that_is_opened_is_the_average_that_was_evaluated(whole):
    run = bspml.load(whole.path, "proxy-anchor")
    state = trainer_state(whole, "proxy-anchor")
    raw, kept = state["network"]["models"]["trunk"], state["patience"]["kept"]
    found = run.model.state_dict()
    assert found.keys() == raw.keys()
    assert all(torch.equal(value, kept[name]) for name, value in found.items())
    assert not torch.equal(found["head.weight"], raw["head.weight"])
    data = load_data(run.config)
    metrics = bspml.evaluate(run.embed(data.test_images), data.test_labels, ks=[1, 2])
    epoch = state["patience"]["epoch"]
    (record,) = [r for r in run.records if (r.method, r.epoch) == ("proxy-anchor", epoch)]
    assert metrics.recall_at_k == record.recall_at_k


def test_a_run_that_stopped_early_says_so_and_needs_no_more_training(tmp_path):
    folder = RunFolder.create(tmp_path / "run")
    settings = [*RECIPE[:3], "training.epochs=30", "training.methods=[multi-similarity]"]
    settings += ["training.patience=1", "optimizer.lr=1e-7", *RECIPE[-2:]]
    run_experiment(load_config(None, settings), folder, figures=False)
    records = RecordLog(folder.records).read()
    assert len(records) < 30
    assert records[-1].notes[-1].startswith("stopped early: no better than ")
    assert records[-1].notes[-1].endswith(" in 1 evaluation since")
    folder.summary.unlink()
    run_experiment(load_config(folder.config), folder, resume=True, figures=False)
    assert RecordLog(folder.records).read() == records


def test_the_length_of_a_stretched_schedule_and_the_judge_of_patience_stay(whole, tmp_path):
    shutil.copytree(whole.path, tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    folder.summary.unlink()
    for setting, message in (
        ("training.epochs=6", "was trained with 4 so far, and the cosine schedule stretches"),
        ("evaluation.ks=[2]", "begins with 2, but Recall@1 is what `training.patience`"),
    ):
        with pytest.raises(ConfigError, match=message):
            run_experiment(load_config(folder.config, [setting]), folder, resume=True)
    with pytest.raises(ConfigError, match=r"`training\.ema` is null, but the run was trained with"):
        run_experiment(load_config(folder.config, ["training.ema=null"]), folder, resume=True)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["schedule.warmup_steps=999"], r"`schedule\.warmup_steps` is 999, but the training has"),
        (["optimizer.loss_lr_factor=2"], r"but no loss of `training\.methods` has parameters of"),
    ],
)
def test_what_nothing_would_read_is_refused_before_training(settings, message):
    config = load_config(None, [*RECIPE[:3], RECIPE[-2], *settings])
    with pytest.raises(ConfigError, match=message):
        experiment_of(config, load_data(config)).check()


def test_a_checkpoint_of_another_recipe_is_refused(whole):
    """By its content, where the configuration does not say."""
    config = load_config(whole.config)
    place = Workplace(whole, RecordLog(whole.records), Silent())
    trainer = Retrieval(config, load_data(config)).start(place, ["bspml"])[1].trainer
    state = checkpoints.load(whole.checkpoint("bspml"))["trainer"]
    del state["network"]["averaged"]
    with pytest.raises(CheckpointError, match="KeyError: 'averaged'"):
        trainer.load_state_dict(state)


def test_the_shipped_recipe_of_fine_tuning_trains_on_photos(tmp_path):
    photos = save_photos(tmp_path / "photos", 8, 4, (40, 40), "{}/{}.png")
    shipped = load_config("finetune")
    weights = tmp_path / "w.pth"
    torch.save(models.shufflenet_v2_x0_5().state_dict(), weights)
    config = load_config(
        "finetune",
        [
            f"data.root={photos}",
            f"network.weights={weights}",
            "network.name=torchvision:shufflenet_v2_x0_5",
            "data.image_size=32",
            "data.validation_classes=0.5",
            "sampler.classes_per_batch=2",
            "schedule.warmup_steps=1",
            "training.methods=[multi-similarity]",
            "training.epochs=1",
            "training.batches_per_epoch=2",
            "evaluation.ks=[1]",
        ],
    )
    assert (config.optimizer, config.training.ema) == (shipped.optimizer, 0.99)
    folder = RunFolder.create(tmp_path / "run")
    run_experiment(config, folder, figures=False)
    assert math.isfinite(RecordLog(folder.records).read()[-1].loss)
    run = bspml.load(folder.path, "multi-similarity")
    norms = [m for m in run.model.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    start = torch.load(weights)["conv1.1.running_mean"]
    assert norms
    torch.testing.assert_close(norms[0].running_mean, start)  # as in the file of weights
