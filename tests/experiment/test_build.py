"""What a configuration's names become, and what the curriculum of a preset is told."""

import numpy as np
import pytest
import torch
from torch import nn

from bspml.data.labels.decisions import CorrectedLabels
from bspml.errors import ConfigError, InputError
from bspml.experiment.build import (
    classes_per_batch,
    make_curriculum,
    make_method,
    make_network,
    make_optimizer,
    make_sampler,
    make_weights,
)
from bspml.experiment.config import config_from_mapping
from bspml.experiment.data import ExperimentData
from bspml.trainers.curriculum import FixedCurriculum, SelfPacedCurriculum
from bspml.trainers.settings import AutoSettings, PaperSettings

CODES = torch.arange(32) % 8
NOISY = np.arange(32) % 5 == 0


def data(is_noisy=NOISY, decided=None):
    pixels, names = torch.zeros(32, 1, 8, 8), np.array([f"class {c}" for c in CODES.tolist()])
    return ExperimentData(
        *(pixels, pixels, names, CODES, None, is_noisy, pixels, names, "fingerprint", 1),
        decided=decided,
    )


def built(name, here=None, **sections):
    config, here = config_from_mapping(sections), here or data()
    weights = make_weights(name, here)
    parts = make_method(name, config, here, weights)
    return parts, make_curriculum(parts, config, here, weights)


def test_the_automatic_preset_is_told_what_its_section_says():
    parts, curriculum = built("bspml", curriculum={"rule": "quadratic", "warmup_epochs": 3})
    assert parts.curriculum_kind == "auto"
    assert isinstance(curriculum, SelfPacedCurriculum)
    assert curriculum._update.settings == AutoSettings(
        rule="quadratic", warmup="cross-fit", warmup_rounds=3
    )
    collected = built("bspml", curriculum={"embeddings": "collected"})[1]
    assert collected._update.settings.judge_every == 16
    chosen = {"embeddings": "collected", "judge_every": 2}
    assert built("bspml", curriculum=chosen)[1]._update.settings.judge_every == 2
    pretrained = built("bspml", network={"weights": "net.pt"})[1]
    assert pretrained._update.settings == AutoSettings()


def test_the_paper_s_preset_takes_its_scales_from_the_loss():
    section = {"preset": "paper", "age": 2, "age_max": 9, "search": "exact"}
    parts, curriculum = built("bspml", curriculum=section, loss={"alpha": 3})
    assert curriculum._update.settings == PaperSettings(
        age=2.0, age_max=9.0, search="exact", alpha=3.0
    )
    assert (parts.loss.alpha, parts.loss.base, parts.loss.weighting) == (3, 1, "paper")


def test_the_clean_reference_weighs_by_the_truth_and_needs_it():
    _, curriculum = built("clean-only")
    assert isinstance(curriculum, FixedCurriculum)
    assert np.array_equal(curriculum.training_mask().numpy(), ~NOISY)
    with pytest.raises(ConfigError, match="trains on the samples whose labels are right"):
        built("clean-only", data(None))


def test_a_method_without_weights_has_no_curriculum_and_others_their_own():
    assert built("multi-similarity")[1] is None
    sections = {
        "training": {"methods": ["spms"]},
        "hyperparameters": {"spms": {"target_maw": 0.6}},
    }
    _, curriculum = built("spms", **sections)
    settings = curriculum._update.settings
    assert (settings.target_maw, settings.balance, settings.base) == (0.6, 0.0, 1.0)


def test_configured_methods_take_no_hyper_parameters():
    sections = {
        "training": {"methods": ["bspml"]},
        "hyperparameters": {"bspml": {"rule": "quadratic"}},
    }
    with pytest.raises(InputError, match=r"`hyperparameters\.bspml`: the sections loss and curr"):
        built("bspml", **sections)


def test_decisions_fix_weights_but_for_the_clean_reference():
    decided = CorrectedLabels(np.arange(32), np.zeros(32), np.where(NOISY, "wrong", ""))
    here = data(decided=decided)
    assert int(make_weights("bspml", here).fixed.sum()) == NOISY.sum()
    assert float(make_weights("bspml", here).weights[0]) == 0
    assert not make_weights("clean-only", here).fixed.any()


def test_a_batch_has_as_many_classes_as_asked_for_or_as_own_data_have():
    config = config_from_mapping({"sampler": {"classes_per_batch": 8}})
    assert classes_per_batch(config, CODES) == 8
    with pytest.raises(ConfigError, match=r"`sampler\.classes_per_batch` is 16, .* has 8 classes"):
        classes_per_batch(config_from_mapping({}), CODES)
    own = config_from_mapping({"data": {"name": "folder"}})
    assert classes_per_batch(own, CODES) == 8
    # A class of one sample has no positive.
    assert classes_per_batch(own, torch.tensor([0, 0, 1, 1, 2])) == 2
    for codes, there in ((torch.full((4,), 3), "1 class"), (torch.tensor([]), "0 classes")):
        with pytest.raises(ConfigError, match=f"the training has {there} left"):
            classes_per_batch(config, codes.long())
    for settings in (config, own):
        with pytest.raises(ConfigError, match="each of the 40 training classes has one sample"):
            classes_per_batch(settings, torch.arange(40))
    assert make_sampler(config, data()).classes_per_batch == 8


def decided_wrong(wrong):
    """Decisions that the labels of some samples are wrong."""
    is_wrong = np.isin(np.arange(32), wrong)
    return CorrectedLabels(data().labels, 1.0 * ~is_wrong, np.where(is_wrong, "wrong", ""))


def test_a_class_whose_labels_are_all_decided_to_be_wrong_fills_no_batch():
    here = data(decided=decided_wrong(np.flatnonzero(CODES == 3)))
    own = {"data": {"name": "features", "root": "F"}, "network": {"name": "mlp"}}
    sampler = make_sampler(config_from_mapping(own), here)
    assert sampler.classes_per_batch == 7
    curriculum = built("contrastive", here)[1]
    sampler.set_rows(curriculum.training_mask())
    assert {int(CODES[row]) for batch in sampler for row in batch} == {0, 1, 2, 4, 5, 6, 7}


@pytest.mark.parametrize("name", ["contrastive", "arcface", "superloss:contrastive", "prism"])
def test_whatever_trains_leaves_out_what_is_decided_to_be_wrong(name):
    assert built(name)[1] is None
    assert built(name, data(decided=decided_wrong([])))[1] is None
    mask = built(name, data(decided=decided_wrong([4, 9])))[1].training_mask()
    assert np.flatnonzero(~mask.numpy()).tolist() == [4, 9]


def test_the_classes_that_there_are_must_divide_into_micro_batches():
    # 16 are asked for, 8 are there: in 8 parts each would be one class, which nothing mines.
    network = {"name": "mlp"}
    own = {"data": {"name": "features", "root": "F"}, "network": network}

    def sampler(parts, **sections):
        training = {"micro_batches": parts}
        return make_sampler(config_from_mapping({"training": training, **sections}), data())

    assert sampler(4, **own).classes_per_batch == 8
    for parts, sections in ((8, own), (3, own), (3, {"sampler": {"classes_per_batch": 8}})):
        with pytest.raises(ConfigError, match=rf"`training\.micro_batches` is {parts}: .*the 8 "):
            sampler(parts, **sections)


@pytest.mark.parametrize(("name", "kind"), [("adam", "Adam"), ("adamw", "AdamW"), ("sgd", "SGD")])
def test_optimisers_by_name_leave_frozen_parameters_out(name, kind):
    momentum = {"momentum": 0.9} if name == "sgd" else {}
    config = config_from_mapping({"optimizer": {"name": name, "lr": 0.5, **momentum}})
    network = nn.Linear(3, 2)
    network.bias.requires_grad_(False)
    optimizer = make_optimizer(config, network, lr_factor=2.0)
    (group,) = optimizer.param_groups
    assert type(optimizer).__name__ == kind
    assert (group["lr"], len(group["params"])) == (1.0, 1)
    assert group.get("momentum", 0) == momentum.get("momentum", 0)


def groups_of(optimizer, network):
    """{name of a parameter: (learning rate, weight decay)}."""
    names = {id(p): name for name, p in network.named_parameters()}
    return {
        names[id(p)]: (group["lr"], group["weight_decay"])
        for group in optimizer.param_groups
        for p in group["params"]
    }


def test_unless_told_otherwise_all_parameters_are_one_group():
    config = config_from_mapping({"optimizer": {"lr": 0.5, "weight_decay": 0.25}})
    network = make_network(config, 1)
    (group,) = make_optimizer(config, network).param_groups
    assert (group["lr"], group["weight_decay"]) == (0.5, 0.25)
    assert list(map(id, group["params"])) == list(map(id, network.parameters()))


def test_head_and_backbone_have_their_rates_and_one_dimension_may_not_decay():
    settings = {"lr": 0.5, "head_lr_factor": 4, "backbone_lr_factor": 0.5}
    settings |= {"weight_decay": 0.25, "decay_1d": False}
    config = config_from_mapping({"optimizer": settings})
    network = make_network(config, 1)
    found = groups_of(make_optimizer(config, network), network)
    assert len(found) == len(list(network.parameters())) == 11
    for name, parameter in network.named_parameters():
        rate = 2.0 if name.startswith("head.") else 0.25
        assert found[name] == (rate, 0.25 if parameter.ndim > 1 else 0.0), name
    loss = nn.Linear(2, 3)  # of a loss: its own factor, the same decay
    assert groups_of(make_optimizer(config, loss, 10.0), loss) == {
        "weight": (5.0, 0.25), "bias": (5.0, 0.0),
    }  # fmt: skip


def test_a_rate_of_what_is_not_trained_is_refused():
    config = config_from_mapping({"optimizer": {"backbone_lr_factor": 0.1}})
    with pytest.raises(ConfigError, match=r"`optimizer\.backbone_lr_factor` is 0\.1, but the b"):
        make_optimizer(config, nn.Linear(3, 2))


def test_a_network_is_a_function_of_the_seed():
    networks = [make_network(config_from_mapping({"seed": s}), 1) for s in (0, 0, 1)]
    weights = [next(net.parameters()) for net in networks]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@pytest.mark.parametrize("name", ["auto:contrastive", "superloss:auto:supcon", "bspml"])
def test_everything_automatic_follows_the_section_curriculum(name):
    section = {"rule": "quadratic", "warmup_epochs": 3}
    parts, curriculum = built(name, curriculum=section, training={"methods": [name]})
    assert parts.name == name
    assert isinstance(curriculum, SelfPacedCurriculum)
    assert curriculum._update.settings == AutoSettings(
        rule="quadratic", warmup="cross-fit", warmup_rounds=3
    )


def test_automatic_multi_similarity_has_the_section_loss():
    parts, _ = built("auto:multi-similarity", loss={"alpha": 3})
    assert parts.loss.alpha == 3
    assert built("clean-only:multi-similarity")[0].curriculum_kind == "fixed-clean"


def test_a_loss_under_the_clean_reference_is_told_the_truth():
    _, curriculum = built(
        "clean-only:contrastive", training={"methods": ["clean-only:contrastive"]}
    )
    assert np.array_equal(curriculum.training_mask().numpy(), ~NOISY)


def test_curriculum_keys_stand_in_their_section_only():
    name = "auto:contrastive"
    with pytest.raises(InputError, match=r"set curriculum\.rule"):
        built(
            name,
            training={"methods": [name]},
            hyperparameters={name: {"rule": "quadratic"}},
        )
    with pytest.raises(InputError, match=r"`curriculum\.preset` is paper; set it to auto"):
        built(name, training={"methods": [name]}, curriculum={"preset": "paper", "age": 1.0})
