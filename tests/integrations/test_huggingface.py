"""The callback for the plain Trainer of transformers."""

import inspect
import re
from dataclasses import dataclass
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from pytorch_metric_learning import losses as pml_losses
from torch import nn

import bspml
from bspml.errors import CheckpointError, InputError
from helpers.places import REPOSITORY
from helpers.text_trainings import killed_at, of_log, same_states

pytestmark = pytest.mark.integrations
transformers = pytest.importorskip("transformers")
datasets = pytest.importorskip("datasets")

from bspml.integrations.huggingface import CurriculumCallback, _kept
from bspml.integrations.transformers_trainer import TrainerCurriculum, _collated

TRUE = np.repeat(np.arange(6), 12)
LABELS = np.where(np.arange(72) % 6 == 0, (TRUE + 1 + np.arange(72) // 6 % 5) % 6, TRUE)
FEATURES = np.random.default_rng(0).normal(size=(6, 8))[TRUE]
FEATURES = (FEATURES + 0.2 * np.random.default_rng(1).normal(size=(72, 8))).astype(np.float32)
ROWS = [{"x": x, "labels": int(y)} for x, y in zip(torch.from_numpy(FEATURES), LABELS, strict=True)]


class Embedder(nn.Module):
    """Returns a dictionary, with something that has no rows, and drops out."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.2), nn.Linear(16, 4))

    def forward(self, x):
        return {"embeddings": self.layers(x), "scale": torch.tensor(2.0)}


class Named(NamedTuple):
    embeddings: torch.Tensor
    scale: float


@dataclass(frozen=True)
class OfFields:
    embeddings: torch.Tensor
    scale: float


def plain_loss(outputs, labels, num_items_in_batch=None):
    return pml_losses.TripletMarginLoss()(outputs["embeddings"], labels) * outputs["scale"]


def trainer_of(folder, kind=None, rows=ROWS, compute_loss_func=plain_loss, **options):
    evaluated = rows if "eval_strategy" in options else None
    args = transformers.TrainingArguments(
        output_dir=str(folder),
        **{
            "num_train_epochs": 2,
            "per_device_train_batch_size": 16,
            "learning_rate": 0.01,
            "remove_unused_columns": False,
            "report_to": "none",
            "save_strategy": "no",
            "disable_tqdm": True,
            **options,
        },
    )
    kind = transformers.Trainer if kind is None else kind
    return kind(
        Embedder(), args, train_dataset=rows, eval_dataset=evaluated,
        compute_loss_func=compute_loss_func,
    )  # fmt: skip


def of_list():
    return bspml.SelfPacedCurriculum(bspml.SampleWeights(LABELS))


@pytest.mark.parametrize("of_ours", [False, True], ids=["own loss", "SuperLoss"])
@pytest.mark.parametrize(("step", "saving"), [(6, 3), (5, 5)], ids=["mid-epoch", "epoch's end"])
def test_a_killed_training_goes_on_bit_for_bit(tmp_path, step, saving, of_ours):
    def prepared(folder):
        trainer = trainer_of(tmp_path / folder, save_strategy="steps", save_steps=saving)
        loss = bspml.SuperLoss(pml_losses.MultiSimilarityLoss()) if of_ours else None
        callback = CurriculumCallback(trainer, of_list(), loss=loss)
        trainer.add_callback(callback)
        return trainer, callback

    whole, of_whole = prepared("whole")
    whole.train()
    assert whole.state.global_step == 2 * len(of_whole.sampler) == 10
    killed_at(prepared("killed")[0], step)
    resumed, of_resumed = prepared("killed")
    resumed.train(resume_from_checkpoint=str(tmp_path / "killed" / f"checkpoint-{step}"))
    assert same_states(whole.model, resumed.model)
    assert torch.equal(of_whole.weights.weights, of_resumed.weights.weights)
    assert of_log(resumed) == of_log(whole)
    assert (LABELS != TRUE)[of_whole.weights.weights == 0].mean() > 0.7
    others = trainer_of(tmp_path)
    others.add_callback(
        CurriculumCallback(others, bspml.SelfPacedCurriculum(bspml.SampleWeights(TRUE)))
    )
    with pytest.raises(CheckpointError, match="labels"):
        others.train(resume_from_checkpoint=str(tmp_path / "killed" / f"checkpoint-{step}"))


@pytest.mark.parametrize("step", [3, 5])
def test_a_resumed_training_of_workers_that_stay_goes_on_bit_for_bit(tmp_path, step):
    def trained(folder, resumed=None):
        trainer = trainer_of(
            tmp_path / folder, save_strategy="steps", save_steps=step,
            dataloader_num_workers=1, dataloader_persistent_workers=True,
        )  # fmt: skip
        trainer.add_callback(CurriculumCallback(trainer, of_list()))
        trainer.train(resume_from_checkpoint=resumed)
        return trainer.model

    whole = trained("whole")
    assert same_states(whole, trained("other", str(tmp_path / "whole" / f"checkpoint-{step}")))


def batch_loss(trainer, callback, rows):
    """The trainer's loss of these rows, as in a step, in eval mode."""
    trainer.model.eval()
    trainer.current_gradient_accumulation_steps = 1
    inputs = _collated(trainer.data_collator, callback.rows.__getitems__(rows))
    return trainer.compute_loss(trainer.model, inputs)


def test_weight_zero_is_the_users_loss_without_the_row_and_a_pml_loss_takes_fractions(tmp_path):
    rows = list(range(0, 72, 5))
    trainer = trainer_of(tmp_path)
    callback = CurriculumCallback(trainer, of_list())
    callback.weights.weights[[rows[1], rows[4]]] = 0
    left = [row for row in rows if row not in (rows[1], rows[4])]
    outputs = trainer.model.eval()(torch.from_numpy(FEATURES))
    embeddings, labels = outputs["embeddings"], torch.from_numpy(LABELS)
    expected = plain_loss({**outputs, "embeddings": embeddings[left]}, labels[left])
    assert torch.isclose(batch_loss(trainer, callback, rows), expected)
    assert callback.weights.batch_index is None
    callback.weights.weights[rows] = 0
    assert float(batch_loss(trainer, callback, rows).detach()) == 0
    weights = bspml.SampleWeights(LABELS)
    weights.update(np.random.default_rng(0).random(72))
    trainer = trainer_of(tmp_path, compute_loss_func=None)
    fixed = bspml.trainers.FixedCurriculum(weights)
    callback = CurriculumCallback(trainer, fixed, loss=pml_losses.MultiSimilarityLoss())
    expected = bspml.Weighted(pml_losses.MultiSimilarityLoss(), weights)(
        embeddings[rows], labels[rows], sample_index=rows
    )
    assert torch.isclose(batch_loss(trainer, callback, rows), expected)


def test_rows_are_taken_out_of_whatever_a_model_returns():
    from transformers.modeling_outputs import BaseModelOutputWithPooling

    rows, keep = torch.arange(6.0).reshape(3, 2), torch.tensor([True, False, True])
    outputs = BaseModelOutputWithPooling(last_hidden_state=rows[:, None], pooler_output=rows)
    left = _kept(outputs, keep)
    assert torch.equal(left.pooler_output, rows[keep])
    assert left.last_hidden_state.shape == (2, 1, 2)
    first, (second, number) = _kept((rows, [rows, 3]), keep)
    assert torch.equal(first, second)
    assert (len(first), number) == (2, 3)
    for made in (
        Named(rows, 2.0),
        OfFields(rows, 2.0),
        SimpleNamespace(embeddings=rows, scale=2.0),
    ):
        found = _kept(made, keep)
        assert type(found) is type(made)
        assert torch.equal(found.embeddings, rows[keep])
        assert (found.scale, len(made.embeddings)) == (2.0, 3)


@pytest.mark.parametrize("kind", ["own loss", "pml loss"])
def test_accumulated_gradients_are_those_of_the_mean_loss(tmp_path, kind):
    class Own(transformers.Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            labels = inputs.pop("labels")
            return weighted(self.callback.embeddings_of(model(**inputs)), labels)

    weights = bspml.SampleWeights(LABELS)
    weighted = bspml.Weighted(pml_losses.MultiSimilarityLoss(), weights)
    own = kind == "own loss"
    trainer = trainer_of(
        tmp_path, Own if own else None, compute_loss_func=None, gradient_accumulation_steps=2,
        optim="sgd", max_grad_norm=0.0, lr_scheduler_type="constant", max_steps=1,
    )  # fmt: skip
    loss = None if own else pml_losses.MultiSimilarityLoss()
    callback = CurriculumCallback(trainer, bspml.trainers.FixedCurriculum(weights), loss=loss)
    trainer.callback = callback
    trainer.add_callback(callback)
    trainer.model.layers[1].p = 0.0
    before = [p.detach().clone() for p in trainer.model.parameters()]
    batches = list(callback.sampler)[:2]
    callback.sampler.set_epoch(0)
    total = sum(
        pml_losses.MultiSimilarityLoss()(
            trainer.model(torch.from_numpy(FEATURES[rows]))["embeddings"],
            torch.from_numpy(LABELS[rows]),
        )
        for rows in batches
    )
    expected = torch.autograd.grad(total / 2, list(trainer.model.parameters()))
    trainer.train()
    for old, new, gradient in zip(before, trainer.model.parameters(), expected, strict=True):
        assert torch.allclose((old - new) / 0.01, gradient, atol=1e-4)


@pytest.mark.parametrize("accumulated", [1, 4])
def test_the_loss_of_an_evaluation_is_divided_by_nothing(tmp_path, accumulated):
    trainer = trainer_of(
        tmp_path, compute_loss_func=None, gradient_accumulation_steps=accumulated,
        per_device_eval_batch_size=72, learning_rate=0.0, eval_strategy="epoch", eval_on_start=True,
        label_names=["labels"],
        num_train_epochs=1,
    )  # fmt: skip
    loss = pml_losses.MultiSimilarityLoss()
    trainer.add_callback(CurriculumCallback(trainer, of_list(), loss=loss))
    alone = trainer.evaluate()["eval_loss"]  # before any step
    embeddings = trainer.model.eval()(torch.from_numpy(FEATURES))["embeddings"]
    assert alone == pytest.approx(float(loss(embeddings, torch.from_numpy(LABELS)).detach()))
    trainer.train()
    told = [row["eval_loss"] for row in trainer.state.log_history if "eval_loss" in row]
    assert told == pytest.approx([alone] * len(told))
    assert len(told) >= 2


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_compute_loss_of_its_own_looks_the_weights_up_or_is_refused(tmp_path, wrapped):
    weights = bspml.SampleWeights(LABELS)
    weights.update(np.full(72, 0.5))
    metric_loss = pml_losses.TripletMarginLoss()
    if wrapped:
        metric_loss = bspml.Weighted(metric_loss, weights)

    class OfItsOwn(transformers.Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            outputs = model(inputs["x"])
            value = metric_loss(outputs["embeddings"], inputs["labels"])
            return (value, outputs) if return_outputs else value

    trainer = trainer_of(
        tmp_path, OfItsOwn, compute_loss_func=None, max_steps=1, eval_strategy="epoch",
        per_device_eval_batch_size=72, label_names=["labels"], prediction_loss_only=True,
    )  # fmt: skip
    trainer.add_callback(CurriculumCallback(trainer, bspml.trainers.FixedCurriculum(weights)))
    if wrapped:
        trainer.train()
        embeddings = trainer.model.eval()(torch.from_numpy(FEATURES))["embeddings"]
        every_row = pml_losses.TripletMarginLoss()(embeddings, torch.from_numpy(LABELS))
        assert trainer.evaluate()["eval_loss"] == pytest.approx(float(every_row.detach()))
        return
    with pytest.raises(InputError, match=r"wrap the loss: bspml.Weighted"):
        trainer.train()


def test_what_does_not_fit_is_refused_in_a_sentence(tmp_path):
    class OfItsOwn(transformers.Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            return model(inputs["x"])["embeddings"].sum()

    without = trainer_of(tmp_path, compute_loss_func=None)
    with pytest.raises(InputError, match=r"where no weight can enter.*`compute_loss_func`"):
        CurriculumCallback(without, of_list())
    CurriculumCallback(trainer_of(tmp_path, OfItsOwn, compute_loss_func=None), of_list())
    with pytest.raises(InputError, match=r"must say its labels, .*Pass curriculum="):
        CurriculumCallback(trainer_of(tmp_path))
    with pytest.raises(InputError, match="and lower per_device_train_batch_size"):
        CurriculumCallback(trainer_of(tmp_path, auto_find_batch_size=True), of_list())
    with pytest.raises(InputError, match="Pass remove_unused_columns=False"):
        CurriculumCallback(trainer_of(tmp_path, remove_unused_columns=True), of_list())
    with pytest.raises(InputError, match="ProxyAnchorLoss has parameters"):
        CurriculumCallback(trainer_of(tmp_path), of_list(), loss=pml_losses.ProxyAnchorLoss(6, 4))
    callback = CurriculumCallback(trainer_of(tmp_path), of_list())
    with pytest.raises(InputError, match=r"got dict of logits. Pass embeddings=lambda"):
        callback.embeddings_of({"logits": torch.eye(2)})


def test_the_example_runs(tmp_path, monkeypatch, capsys):
    script = (REPOSITORY / "docs/examples/huggingface_trainer.py").read_text()
    monkeypatch.chdir(tmp_path)
    exec(compile(script, "example", "exec"), {"__name__": "example"})
    found = re.search(r"(\d+) labels left out, (\d+) of the 20 wrong", capsys.readouterr().out)
    assert int(found[2]) > 15
    assert int(found[2]) > 0.7 * int(found[1])


class Unlisted(torch.utils.data.Dataset):
    """Items, and the labels that the data set says they have."""

    def __init__(self, rows, targets):
        self.rows, self.targets = rows, targets

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, row):
        return self.rows[row]


def test_weights_of_other_labels_are_refused_by_what_the_data_set_says_or_its_batches(tmp_path):
    others = bspml.SelfPacedCurriculum(bspml.SampleWeights(np.roll(LABELS, 1)))
    with pytest.raises(
        InputError, match=r"`trainer\.train_dataset` has other labels than the weights"
    ):
        CurriculumCallback(trainer_of(tmp_path, rows=Unlisted(ROWS, LABELS)), others)
    trainer = trainer_of(tmp_path)  # a list of dictionaries says none
    trainer.add_callback(CurriculumCallback(trainer, others))
    with pytest.raises(InputError, match="items of the data set have other labels than"):
        trainer.train()


def test_the_mean_loss_of_one_process_is_not_multiplied_by_the_number_of_them(
    tmp_path, monkeypatch
):
    rows = list(range(0, 72, 5))
    trainer = trainer_of(tmp_path, compute_loss_func=None)
    callback = CurriculumCallback(trainer, of_list(), loss=pml_losses.MultiSimilarityLoss())
    expected = batch_loss(trainer, callback, rows)
    monkeypatch.setattr(type(trainer.accelerator), "num_processes", 2)
    for name in (None, "bspml_row"):  # in a step; in an evaluation
        inputs = _collated(trainer.data_collator, callback.rows.__getitems__(rows))
        inputs.pop(name, None)
        items = torch.tensor(2 * len(rows))
        found = trainer.compute_loss(trainer.model, inputs, num_items_in_batch=items)
        assert torch.isclose(found, expected)


@pytest.mark.parametrize("is_divided", [None, False])
def test_who_divides_by_the_accumulated_batches_does_it_once(tmp_path, is_divided):
    rows = list(range(0, 72, 5))
    trainer = trainer_of(tmp_path, compute_loss_func=None)
    callback = CurriculumCallback(trainer, of_list(), loss=pml_losses.MultiSimilarityLoss())
    whole = batch_loss(trainer, callback, rows)
    trainer.loss_is_scaled_for_ga = is_divided
    trainer.current_gradient_accumulation_steps = 4
    inputs = _collated(trainer.data_collator, callback.rows.__getitems__(rows))
    found = trainer.compute_loss(trainer.model, inputs)
    assert torch.isclose(found, whole if is_divided is False else whole / 4)


def test_labels_and_texts_are_read_beside_a_transform_of_the_items(tmp_path):
    texts = [f"text {i}" for i in range(72)]
    columns = {"features": FEATURES.tolist(), "label": LABELS.tolist(), "text": texts}
    rows = datasets.Dataset.from_dict(columns).with_transform(
        lambda batch: {"x": list(torch.tensor(batch["features"])), "labels": batch["label"]}
    )
    trainer = trainer_of(tmp_path, rows=rows, num_train_epochs=1)
    callback = CurriculumCallback(trainer)
    trainer.add_callback(callback)
    assert np.array_equal(callback.weights.labels, LABELS)
    assert callback.texts() == texts
    trainer.train()
    assert (LABELS != TRUE)[callback.weights.weights == 0].mean() > 0.7


def test_a_column_called_sample_index_is_its_users(tmp_path):
    class Numbered(Embedder):
        def forward(self, x, sample_index):
            assert int(sample_index.min()) >= 100
            return super().forward(x)

    rows = [{**row, "sample_index": 100 + i} for i, row in enumerate(ROWS)]
    trainer = trainer_of(
        tmp_path, rows=rows, num_train_epochs=1, eval_strategy="epoch", label_names=["labels"],
        per_device_eval_batch_size=72,
    )  # fmt: skip
    trainer.model = trainer.model_wrapped = Numbered()
    trainer.add_callback(CurriculumCallback(trainer, of_list()))
    trainer.train()
    expected = plain_loss(trainer.model.eval()(torch.from_numpy(FEATURES), torch.tensor([100])),
                          torch.from_numpy(LABELS))  # fmt: skip
    assert trainer.evaluate()["eval_loss"] == pytest.approx(float(expected.detach()))


@pytest.mark.parametrize("place", ["function", "attribute"])
def test_an_evaluation_moves_no_average_of_a_loss_of_the_trainers_own(tmp_path, place):
    weights = bspml.SampleWeights(LABELS)
    loss = bspml.SuperLoss(pml_losses.TripletMarginLoss())
    if place == "function":  # where nobody sees it, but it knows the weights
        loss = bspml.Weighted(loss, weights)

    class OfItsOwn(transformers.Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            outputs = model(inputs["x"])
            value = loss(outputs["embeddings"], inputs["labels"])
            return (value, outputs) if return_outputs else value

    trainer = trainer_of(
        tmp_path, OfItsOwn, compute_loss_func=None, max_steps=1, label_names=["labels"],
        eval_strategy="epoch", prediction_loss_only=True,
    )  # fmt: skip
    if place == "attribute":
        trainer.metric_loss = loss
    trainer.add_callback(CurriculumCallback(trainer, bspml.trainers.FixedCurriculum(weights)))
    trainer.train()
    before = float(loss.reducer.tau)
    assert before > 0
    trainer.evaluate()
    assert float(loss.reducer.tau) == before
    assert loss.training
    assert loss.reducer.training


def test_a_memory_around_a_weighted_loss_is_taken_and_saved(tmp_path):
    weights = bspml.SampleWeights(LABELS)
    memory = bspml.CrossBatchMemory(
        bspml.Weighted(pml_losses.ContrastiveLoss(), weights), 4, memory_size=64
    )
    trainer = trainer_of(
        tmp_path, compute_loss_func=None, max_steps=3, save_strategy="steps", save_steps=3,
        label_names=["labels"], eval_strategy="steps", eval_steps=1,
    )  # fmt: skip
    callback = CurriculumCallback(trainer, bspml.SelfPacedCurriculum(weights), loss=memory)
    trainer.add_callback(callback)
    trainer.train()
    assert memory.queue_idx == 3 * 16  # of an evaluation nothing is queued
    assert torch.equal(callback.state_dict()["loss"]["embedding_memory"], memory.embedding_memory)


def test_a_callback_that_would_not_judge_this_training_is_refused(tmp_path):
    class OfItsOwn(transformers.Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            return model(inputs["x"])["embeddings"].sum()

    trainer, other = trainer_of(tmp_path), trainer_of(tmp_path)
    callback = CurriculumCallback(trainer, of_list())
    with pytest.raises(InputError, match="CurriculumCallback already"):
        CurriculumCallback(trainer, of_list())
    with pytest.raises(InputError, match=r"was not added to it.*trainer.add_callback"):
        trainer.train()
    other.add_callback(callback)
    with pytest.raises(InputError, match="made for another trainer"):
        other.train()
    trainer.add_callback(callback)
    trainer.add_callback(callback)  # as where a notebook's cell runs twice
    with pytest.raises(InputError, match="was added to it twice"):
        trainer.train()
    trainer.pop_callback(callback)
    trainer.train_dataset = ROWS[:60]
    with pytest.raises(InputError, match=r"made for another `trainer\.train_dataset`"):
        trainer.train()
    forgetful = trainer_of(tmp_path, OfItsOwn, compute_loss_func=None)
    loss = pml_losses.TripletMarginLoss()
    forgetful.add_callback(CurriculumCallback(forgetful, of_list(), loss=loss))
    with pytest.raises(InputError, match=r"OfItsOwn\.compute_loss does not call the loss"):
        forgetful.train()


def test_who_draws_rows_by_a_loader_of_its_own_is_refused_or_says_how(tmp_path):
    class Choosing(transformers.Trainer):
        def _get_train_sampler(self, *rows):
            return torch.utils.data.SubsetRandomSampler(range(60))

    trainer = trainer_of(tmp_path, Choosing)
    with pytest.raises(InputError, match=r"by Choosing\._get_train_sampler, .* pass a `sampler`"):
        CurriculumCallback(trainer, of_list())
    sampler = bspml.PKSampler(LABELS, 4, 4, batches_per_epoch=5)
    assert CurriculumCallback(trainer, of_list(), sampler).sampler is sampler


def test_the_seed_of_the_data_is_that_of_the_batches(tmp_path):
    seeds = {"of all": {"seed": 3}, "of the data": {"seed": 1, "data_seed": 3}}
    of = {k: CurriculumCallback(trainer_of(tmp_path, **v), of_list()) for k, v in seeds.items()}
    assert list(of["of all"].sampler) == list(of["of the data"].sampler)
    other = CurriculumCallback(trainer_of(tmp_path, seed=1), of_list())
    assert list(other.sampler) != list(of["of all"].sampler)


def test_parts_of_another_kind_are_refused_where_they_are_handed_over(tmp_path):
    pairs = [(row["x"], row["labels"]) for row in ROWS]
    endless = bspml.PKSampler(LABELS, 4, 4)
    init = inspect.unwrap(TrainerCurriculum.__init__)  # past the type checks of the tests
    for arguments, message in (
        ((trainer_of(tmp_path), bspml.SampleWeights(LABELS)), "`curriculum` must be a SelfPaced"),
        ((trainer_of(tmp_path), of_list(), range(72)), "`sampler` must be a PKSampler"),
        ((trainer_of(tmp_path), of_list(), endless), "with batches_per_epoch=5"),
    ):
        with pytest.raises(InputError, match=message):
            init(object.__new__(CurriculumCallback), *arguments)
    with pytest.raises(InputError, match="`trainer` must be a Trainer of transformers; got str"):
        CurriculumCallback("trainer")
    trainer = trainer_of(tmp_path)
    callback = CurriculumCallback(trainer, of_list())
    with pytest.raises(InputError, match="`labels` must be a tensor in the batch"):
        trainer.compute_loss(
            trainer.model, {"x": ROWS[0]["x"][None], "bspml_row": torch.tensor([0])}
        )
    callback.rows.dataset = pairs
    with pytest.raises(InputError, match=r"must be a dictionary of named columns; got tuple"):
        callback.embed()


class OfColumns(transformers.Trainer):
    """Takes the labels, and what only its loss knows, out of the batch by itself."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels" if "labels" in inputs else "label")
        inputs.pop("row", None), inputs.pop("score", None)
        return plain_loss(model(**inputs), labels)


@pytest.mark.parametrize("name", ["labels", "label"])
def test_columns_that_only_the_loss_takes_are_kept_from_the_model(tmp_path, name):
    expected = CurriculumCallback(trainer_of(tmp_path), of_list()).embed()
    rows = [{"x": r["x"], name: r["labels"], "row": i, "score": 0.5} for i, r in enumerate(ROWS)]
    trainer = trainer_of(
        tmp_path, OfColumns, rows, None, label_names=["labels", "score"], max_steps=1
    )
    trainer.data_collator = torch.utils.data.default_collate  # keeps the name `label`
    callback = CurriculumCallback(trainer, of_list())
    trainer.add_callback(callback)
    assert torch.equal(callback.embed(), expected)
    trainer.train()  # scores are no classes, though the Trainer calls them labels
    trainer.model.forward = lambda features: features
    with pytest.raises(InputError, match=r"columns x, .* by name: missing .*'features'"):
        callback.embed()


class Dropping(transformers.Trainer):
    def _prepare_inputs(self, inputs):
        return {"x": inputs["x"], "labels": inputs["labels"]}


class Apart(transformers.Trainer):
    def training_step(self, model, inputs, num_items_in_batch=None):
        loss = plain_loss(model(inputs["x"]), inputs["labels"])
        self.accelerator.backward(loss)
        return loss.detach()


@pytest.mark.parametrize("kind", [Dropping, Apart])
def test_steps_that_never_show_their_rows_are_refused(tmp_path, kind):
    trainer = trainer_of(tmp_path, kind)
    trainer.add_callback(CurriculumCallback(trainer, of_list()))
    with pytest.raises(InputError, match=rf"reached {kind.__name__}\.compute_loss with its rows"):
        trainer.train()


def test_a_sum_of_losses_that_look_the_weights_up_is_taken(tmp_path):
    weights, rows = bspml.SampleWeights(LABELS), list(range(0, 72, 5))
    weights.update(np.random.default_rng(0).random(72))
    parts = [pml_losses.MultiSimilarityLoss(), pml_losses.ContrastiveLoss()]
    fixed = bspml.trainers.FixedCurriculum(weights)
    values = []
    for losses in ([parts[0]], [parts[1]], parts):
        trainer = trainer_of(tmp_path, compute_loss_func=None)
        loss = pml_losses.MultipleLosses([bspml.Weighted(part, weights) for part in losses])
        values.append(batch_loss(trainer, CurriculumCallback(trainer, fixed, loss=loss), rows))
    assert torch.isclose(values[0] + values[1], values[2])


def test_a_trainer_of_sentence_transformers_is_sent_to_the_callback_of_its_own(tmp_path):
    class OfTexts(transformers.Trainer):
        def collect_features(self, inputs):
            return inputs

    with pytest.raises(InputError, match=r"bspml\.integrations\.sentence_transformers\.Curricul"):
        CurriculumCallback(trainer_of(tmp_path, OfTexts))


def of_memory(loss, weights):
    return bspml.CrossBatchMemory(bspml.Weighted(loss, weights), 4, memory_size=64)


def of_averages(loss, weights):
    return bspml.Weighted(bspml.SuperLoss(loss), weights)


@pytest.mark.parametrize("kind", [of_memory, of_averages])
def test_what_a_loss_of_the_trainers_own_learned_is_in_its_checkpoints(tmp_path, kind):
    class Own(transformers.Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            labels = inputs.pop("labels")
            return self.metric_loss(model(**inputs)["embeddings"], labels)

    def trained(folder, resumed=None):
        weights = bspml.SampleWeights(LABELS)
        trainer = trainer_of(
            tmp_path / folder, Own, ROWS, None, save_strategy="steps", save_steps=3, max_steps=8
        )
        trainer.metric_loss = kind(pml_losses.ContrastiveLoss(), weights)
        trainer.add_callback(CurriculumCallback(trainer, bspml.SelfPacedCurriculum(weights)))
        trainer.train(resume_from_checkpoint=resumed)
        return trainer

    whole = trained("whole")
    resumed = trained("resumed", str(tmp_path / "whole" / "checkpoint-3"))
    assert same_states(whole.model, resumed.model)
    assert all(map(torch.equal, whole.metric_loss.buffers(), resumed.metric_loss.buffers()))


def test_the_only_column_of_texts_is_theirs_whatever_its_name(tmp_path):
    words = [f"words of {i}" for i in range(72)]
    columns = {"x": FEATURES, "labels": LABELS, "review": words}
    rows = datasets.Dataset.from_dict(columns)
    assert CurriculumCallback(trainer_of(tmp_path, rows=rows)).texts() == words
    rows = datasets.Dataset.from_dict(columns | {"title": words})
    assert CurriculumCallback(trainer_of(tmp_path, rows=rows)).texts() is None
