"""Multi-similarity against pytorch-metric-learning, and what each weighted form is made of."""

import numpy as np
import pytest
import torch
from pytorch_metric_learning import losses as pml_losses
from pytorch_metric_learning.miners import MultiSimilarityMiner

from bspml import methods
from bspml.errors import InputError
from bspml.experiment.methods import MethodContext
from bspml.losses.bspml_loss import BSPMLLoss
from bspml.trainers.settings import AutoSettings
from bspml.weights.state import SampleWeights
from helpers.draws import normal_batch

EXACT = {"rtol": 0, "atol": 1e-12}
ROWS, CLASSES, WIDTH = 24, 6, 8
LABELS = torch.arange(ROWS) % CLASSES
WEIGHTED = ("spms", "bspml-paper", "bspml", "clean-only")


def build(name, known_rate=0.3, **hyper):
    weights = SampleWeights(LABELS)
    context = MethodContext(CLASSES, WIDTH, weights, known_rate, hyper=hyper)
    return methods.build(name, context), weights


def batch(seed=0):
    return normal_batch(ROWS, WIDTH, CLASSES, seed)[0]


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("multi-similarity", 0.5),
        ("multi-similarity-paper", 1.0),
        ("bspml", 0.5),
        ("clean-only", 0.5),
        ("bspml-paper", 1.0),
        ("spms", 1.0),
    ],
)
def test_at_weight_1_each_is_pml_s_multi_similarity(name, base):
    emb = batch()
    parts, weights = build(name)
    weights.set_batch(torch.arange(ROWS))
    value = parts.loss(emb, LABELS)
    theirs = pml_losses.MultiSimilarityLoss(2, 50, base)
    expected = theirs(emb, LABELS, MultiSimilarityMiner(0.1)(emb, LABELS))
    torch.testing.assert_close(value, expected, **EXACT)
    grads = [torch.autograd.grad(v, emb)[0] for v in (value, expected)]
    torch.testing.assert_close(*grads, **EXACT)


@pytest.mark.parametrize("name", ["bspml", "clean-only"])
def test_a_sample_of_weight_0_is_as_if_absent(name):
    emb, keep = batch(), torch.arange(ROWS) % 4 > 0
    parts, weights = build(name)
    weights.update(keep)
    weights.set_batch(torch.arange(ROWS))
    rows = emb[keep].detach()
    plain = build("multi-similarity")[0].loss(rows, LABELS[keep])
    torch.testing.assert_close(parts.loss(emb, LABELS).detach(), plain, **EXACT)


def test_the_paper_s_form_mines_without_weights():
    emb, keep = batch(), torch.arange(ROWS) % 4 > 0
    parts, weights = build("bspml-paper")
    weights.update(keep)
    weights.set_batch(torch.arange(ROWS))
    pairs = MultiSimilarityMiner(0.1)(emb, LABELS)
    expected = BSPMLLoss(weights, base=1.0, weighting="paper")(emb, LABELS, pairs)
    torch.testing.assert_close(parts.loss(emb, LABELS), expected, **EXACT)


def test_spms_is_the_paper_s_curriculum_without_balance():
    spms, paper = build("spms")[0], build("bspml-paper", balance=2.0)[0]
    assert spms.curriculum == {**paper.curriculum, "balance": 0.0}
    assert paper.curriculum["balance"] == 2
    assert "balance" not in methods.hyper_parameters("spms")


@pytest.mark.parametrize(("rate", "target"), [(0.3, 0.7), (0.0, 0.95), (0.02, 0.95)])
def test_the_known_noise_rate_sets_the_weight_to_keep(rate, target):
    parts, _ = build("bspml-paper", rate)
    assert parts.curriculum["target_maw"] == pytest.approx(target)
    assert any("prints no age" in note for note in parts.notes)


def test_an_age_or_a_target_takes_its_place():
    options = build("spms", None, age=2.5, age_max=9)[0].curriculum
    assert (options["age"], options["age_growth"], options["age_max"]) == (2.5, 1.1, 9)
    assert "target_maw" not in options
    options = build("spms", 0.4, target_maw=0.5)[0].curriculum
    assert options["target_maw"] == 0.5
    assert "age" not in options
    with pytest.raises(InputError, match="exclude each other"):
        build("spms", age=1, target_maw=0.5)
    with pytest.raises(InputError, match=r"bspml-paper needs `hyper\.age` or `hyper\.target_maw`"):
        build("bspml-paper", None)


def test_auto_needs_no_noise_rate_and_hands_its_options_on():
    parts, _ = build("bspml", None)
    assert parts.curriculum == {"preset": "auto", **AutoSettings().model_dump(exclude_none=True)}
    told = {"rule": "quadratic", "warmup": "cross-fit", "warmup_rounds": 3, "reset": None}
    parts, _ = build("bspml", None, **told)
    assert parts.curriculum == {
        "preset": "auto",
        "balance": 1.0,
        "search": "auto",
        "rule": "quadratic",
        "warmup": "cross-fit",
        "warmup_rounds": 3,
        "reset": True,
        "judge_every": 3,
        "repair": "none",
    }


def test_prism_is_multi_similarity_of_what_it_keeps():
    parts, weights = build("prism", 0.3, window=5)
    plain = build("multi-similarity")[0].loss
    for seed in range(4):
        emb = batch(seed)
        weights.set_batch(torch.arange(ROWS))
        value = parts.loss(emb, LABELS)
        keep = methods.sample_confidences(parts) > 0
        torch.testing.assert_close(value, plain(emb[keep], LABELS[keep]), **EXACT)
    assert not keep.all()
    memory = parts.loss.sample_filter
    assert (len(memory.memory), len(memory.quantiles)) == (ROWS, 5)


def test_neighbour_vote_is_multi_similarity_of_what_it_keeps():
    parts, weights = build("neighbour-vote", None, k=3)
    plain = build("multi-similarity")[0].loss
    for seed in range(3):
        emb = batch(seed)
        weights.set_batch(torch.arange(ROWS))
        value = parts.loss(emb, LABELS)
        keep = methods.sample_confidences(parts) > 0
        torch.testing.assert_close(value, plain(emb[keep], LABELS[keep]), **EXACT)
    assert 0 < keep.sum() < ROWS
    assert parts.loss.sample_filter.k == 3


@pytest.mark.parametrize(
    ("known", "told", "rate"), [(0.6, None, 0.2), (0.4, None, 0.0), (0.6, 0.3, 0.3)]
)
def test_prism_s_known_rate_is_of_the_labels_that_train(known, told, rate):
    """6 of 10 are wrong, 5 of them decided to be: of the 5 that train one is."""
    weights = SampleWeights(np.arange(10) % CLASSES)
    weights.fix(range(5), torch.zeros(5))
    context = MethodContext(CLASSES, WIDTH, weights, known, hyper={"noise_rate": told})
    kept = methods.build("prism", context).loss.sample_filter
    assert kept.noise_rate == pytest.approx(rate)


def test_prism_takes_the_rate_it_is_told_and_refuses_to_guess():
    assert build("prism", 0.3)[0].loss.sample_filter.noise_rate == pytest.approx(0.3)
    assert build("prism", 0.3, noise_rate=0.1)[0].loss.sample_filter.noise_rate == 0.1
    assert build("prism", 0.3, memory_size=10)[0].loss.sample_filter.memory.shape == (10, WIDTH)
    assert not build("prism", 0.3)[0].loss.sample_filter.by_density
    assert build("prism", 0.3, score="vmf")[0].loss.sample_filter.by_density
    with pytest.raises(InputError, match="score"):
        build("prism", 0.3, score="median")
    with pytest.raises(InputError, match="prism needs the noise rate, which is not known"):
        build("prism", None)
    with pytest.raises(InputError, match="`noise_rate` must be below 1"):
        build("prism", 1.0)


def test_plain_multi_similarity_says_where_it_leaves_the_paper():
    assert "prints 1" in build("multi-similarity")[0].notes[0]
    assert build("multi-similarity-paper")[0].notes == ()
    assert build("multi-similarity", base=1)[0].notes == ()


@pytest.mark.parametrize("name", WEIGHTED)
def test_weighted_methods_ask_for_the_batch_s_rows(name):
    parts, _ = build(name)
    assert parts.needs_sample_index
    assert parts.miner is None
