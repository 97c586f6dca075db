"""Every name builds, trains a step on random data, and refuses what it does not know."""

import copy

import pytest
import torch
from pytorch_metric_learning.trainers import MetricLossOnly
from torch import nn

from bspml import methods
from bspml.data.indexed import IndexedDataset, sample_index_getter
from bspml.errors import InputError
from bspml.experiment.methods import METHODS
from bspml.trainers.curriculum import FixedCurriculum, SelfPacedCurriculum
from helpers.method_steps import ROWS, WIDTH, batch, context, step

ALL = methods.names(wrapped=True)
# A wrapper on a weighed method goes on the same loss as without: one of each kind stands for all.
NAMES = [n for n in ALL if n.count(":") < 2 or n.endswith((":contrastive", ":multi-similarity"))]


def test_the_registry_has_every_method_of_the_tables_and_the_comparators():
    assert set(methods.names()) >= {
        *("contrastive", "triplet-smooth", "margin", "fast-ap", "multi-similarity", "rdml"),
        *("proxy-anchor", "snr", "spms", "bspml-paper", "bspml", "prism", "neighbour-vote"),
        "clean-only",
    }
    assert "superloss:margin" in NAMES
    assert "gr:snr" in NAMES
    assert "imae:prism" in NAMES
    assert {"auto:arcface", "clean-only:supcon", "superloss:auto:contrastive"} <= set(NAMES)
    assert not {"auto:prism", "auto:bspml", "clean-only:spms", "auto:clean-only"} & set(NAMES)
    assert "superloss:proxy-anchor" not in NAMES
    assert len(set(map(methods.title, ALL))) == len(ALL)


@pytest.mark.parametrize("name", NAMES)
def test_every_method_takes_steps_with_finite_gradients(name):
    here = context()
    parts = methods.build(name, here)
    assert parts.name == name
    # Another seed is another place for each class, where no neighbour of before votes for it.
    seeds = (0, 0, 0) if name.endswith("neighbour-vote") else range(3)
    for seed in seeds:
        emb, labels = batch(seed)
        value = step(parts, emb, labels, here.weights)
        value.backward()
        assert value.shape == ()
        assert value.isfinite()
        assert emb.grad.isfinite().all()
        assert emb.grad.abs().sum() > 0
        for parameter in parts.loss.parameters():
            assert parameter.grad.isfinite().all()
    assert parts.loss_has_parameters == bool(list(parts.loss.parameters()))
    assert all(isinstance(note, str) and note for note in parts.notes)


@pytest.mark.parametrize("name", NAMES)
def test_two_builds_are_equal_and_no_global_generator_is_used(name):
    before = torch.get_rng_state()
    values = []
    for _ in range(2):
        here = context()
        parts = methods.build(name, here)
        for seed in range(2):
            emb, labels = batch(seed)
            values.append(step(parts, emb, labels, here.weights).detach())
    assert torch.equal(torch.stack(values[:2]), torch.stack(values[2:]))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("name", NAMES)
def test_a_resumed_loss_goes_on_exactly(name):
    here, there = context(), context()
    parts, resumed = methods.build(name, here), methods.build(name, there)
    for seed in range(3):
        step(parts, *batch(seed), here.weights)
    resumed.loss.load_state_dict(copy.deepcopy(parts.loss.state_dict()))
    for seed in range(3, 5):
        expected = step(parts, *batch(seed), here.weights)
        assert torch.equal(step(resumed, *batch(seed), there.weights), expected)


@pytest.mark.parametrize("name", methods.names())
def test_every_method_runs_inside_a_pml_trainer(name):
    here = context()
    parts = methods.build(name, here)
    x, labels = batch()
    network = nn.Linear(WIDTH, WIDTH)
    optimizers = {"trunk_optimizer": torch.optim.SGD(network.parameters(), lr=1e-3)}
    if parts.loss_has_parameters:
        optimizers["metric_loss_optimizer"] = torch.optim.SGD(parts.loss.parameters(), lr=1e-3)
    trainer = MetricLossOnly(
        models={"trunk": network, "embedder": nn.Identity()},
        optimizers=optimizers,
        batch_size=ROWS,
        loss_funcs={"metric_loss": parts.loss},
        mining_funcs={} if parts.miner is None else {"tuple_miner": parts.miner},
        dataset=IndexedDataset(torch.utils.data.TensorDataset(x.detach(), labels)),
        data_device=torch.device("cpu"),
        dataloader_num_workers=0,
        data_and_label_getter=sample_index_getter(here.weights),
    )
    before = network.weight.detach().clone()
    trainer.train(num_epochs=2)
    assert not torch.equal(before, network.weight)
    assert network.weight.isfinite().all()


def weighs(name):
    return METHODS[name.split(":")[-1]].needs_weights or methods.parsed(name).weighing is not None


@pytest.mark.parametrize("name", [n for n in NAMES if weighs(n)])
def test_curricula_can_be_made_from_the_parts(name):
    here = context()
    parts = methods.build(name, here)
    if parts.curriculum_kind == "fixed-clean":
        here.weights.update(torch.arange(ROWS) % 4 > 0)
        assert FixedCurriculum(here.weights).training_mask().sum() == 24
        return
    if parts.curriculum_kind is None:  # a filter that reads whose rows they are, and moves nothing
        assert methods.sample_confidences(parts).shape == (ROWS,)
        return
    assert parts.curriculum["preset"] == parts.curriculum_kind
    curriculum = SelfPacedCurriculum(here.weights, seed=0, **parts.curriculum)
    record = curriculum.update(batch()[0].detach())
    assert 0 <= record.maw <= 1
    if parts.curriculum_kind == "paper":
        # Classes of 4 samples: MAW moves in steps of 1/32 at least.
        assert record.maw == pytest.approx(0.75, abs=0.05)


def test_every_default_passes_its_own_check():
    for name in NAMES:
        defaults = {key: hyper.default for key, hyper in methods.hyper_parameters(name).items()}
        methods.check_method(name, defaults)
        assert all(hyper.says for hyper in methods.hyper_parameters(name).values())


@pytest.mark.parametrize("name", NAMES)
def test_every_hyper_parameter_refuses_a_text_it_does_not_know(name):
    for key in methods.hyper_parameters(name):
        with pytest.raises(InputError, match=rf"`hyper\.{key}`"):
            methods.check_method(name, {key: "nonsense"})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("contrastiv", r"no method is called 'contrastiv'; did you mean `contrastive`\?"),
        ("MARGIN", r"no method is called 'MARGIN'; did you mean `margin`\?"),
        ("qqq", r"called 'qqq'\. There are contrastive, .*superloss:NAME, gr:NAME, imae:NAME on"),
        (
            "superlos:margin",
            r"one of superloss, gr, imae, auto, clean-only; got 'superlos'; did you mean `superl",
        ),
        ("superloss:margn", r"called 'margn'; did you mean `margin`"),
        ("superloss:", "called ''"),
        (
            "gr:superloss:margin",
            "at most one of superloss, gr, imae, then at most one of auto, clean-only; got "
            "'gr:superloss:margin', choose one of superloss, gr",
        ),
        ("auto:auto:margin", "got 'auto:auto:margin', use auto:margin"),
        ("superloss:superloss:margin", "use superloss:margin"),
        ("auto:superloss:margin", "use superloss:auto:margin"),
        ("superloss:auto:auto:margin", "use superloss:auto:margin"),
        ("auto:superlos:margin", "got 'superlos'; did you mean `superloss`"),
        ("superloss:proxy-anchor", "SuperLoss cannot go on proxy-anchor: its values belong to"),
        ("gr:proxy-anchor", "GR cannot go on proxy-anchor"),
    ],
)
def test_unknown_and_impossible_names_are_refused(name, message):
    with pytest.raises(InputError, match=message):
        methods.build(name, context())
    with pytest.raises(InputError, match=message):
        methods.check_method(name)


@pytest.mark.parametrize(
    ("name", "hyper", "message"),
    [
        ("margin", {"alfa": 1}, r"`hyper\.alfa` is no hyper-parameter of margin; did you mean `al"),
        ("fast-ap", {"margin": 1}, r"of fast-ap\. It takes num_bins\."),
        ("margin", {"gr_beta": 1}, "It takes alpha, beta, nu"),
        ("gr:margin", {"gr_betta": 1}, "did you mean `gr_beta`"),
        ("fast-ap", {"num_bins": 0}, r"`hyper\.num_bins` must be a whole number from 1 to 4096"),
        ("rdml", {"eta": -1}, r"`hyper\.eta` must be in \[0, 1e.09\]"),
        ("contrastive", {"pos_margin": float("nan")}, r"`hyper\.pos_margin` must be in"),
        ("margin", {"learn_beta": 1}, r"`hyper\.learn_beta` must be true or false; got 1"),
        ("bspml", {"rule": "cubic"}, r"`hyper\.rule` must be one of threshold, quadratic"),
        ("superloss:snr", {"superloss_tau": "max"}, r"`hyper\.superloss_tau` must be one of ema"),
        (
            "superloss:snr",
            {"superloss_momentum": 0.5, "superloss_tau": 1.0},
            r"superloss_momentum` is 0\.5, but nothing reads it",
        ),
        ("superloss:snr", {"superloss_momentum": 1}, r"momentum` must be in \[0, 1\)"),
        ("prism", {"noise_rate": 1.5}, r"`hyper\.noise_rate` must be in \[0, 1\]"),
    ],
)
def test_unknown_hyper_parameters_and_values_are_refused(name, hyper, message):
    with pytest.raises(InputError, match=message):
        methods.build(name, context(hyper=hyper))


@pytest.mark.parametrize("name", [n for n in NAMES if not weighs(n)])
def test_the_others_do_without(name):
    parts = methods.build(name, context(weights=None))
    assert not parts.needs_sample_index
    assert parts.curriculum_kind is None
    assert methods.sample_confidences(parts) is None


def test_automatic_multi_similarity_is_bspml():
    for seed in range(3):
        values = []
        for name in ("bspml", "auto:multi-similarity"):
            here = context()
            here.weights.update(torch.arange(ROWS) % 4 / 3)
            values.append(step(methods.build(name, here), *batch(seed), here.weights))
        assert torch.equal(*values)


@pytest.mark.parametrize("name", ["contrastive", "proxy-anchor", "margin", "supcon"])
def test_a_sample_of_weight_0_does_not_count_under_auto(name):
    here = context()
    here.weights.update(torch.arange(ROWS) >= 8)  # the first of each class
    emb, labels = batch()
    step(methods.build(f"auto:{name}", here), emb, labels, here.weights).backward()
    assert (emb.grad[:8] == 0).all()
    assert (emb.grad[8:] != 0).any()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("auto:prism", "auto cannot go on prism: it drops samples by a rule of its own"),
        ("auto:bspml", "auto cannot go on bspml: it weighs samples already. Use bspml alone"),
        ("clean-only:spms", "clean-only cannot go on spms"),
        ("auto:superloss:margin", "got 'auto:superloss:margin', use superloss:auto:margin"),
        ("auto:clean-only:margin", "got 'auto:clean-only:margin', choose one of auto, clean-only"),
        ("automatic:margin", "got 'automatic'"),
        ("superloss:auto:proxy-anchor", "SuperLoss cannot go on proxy-anchor"),
    ],
)
def test_what_does_not_go_together_is_named(name, message):
    with pytest.raises(InputError, match=message):
        methods.check_method(name)
