"""A pml trainer handed over as it is, against one whose parts were all made by the caller."""

import logging

import pytest
import torch
from pytorch_metric_learning.losses import ContrastiveLoss
from pytorch_metric_learning.miners import TripletMarginMiner
from pytorch_metric_learning.samplers import MPerClassSampler
from pytorch_metric_learning.trainers import (
    MetricLossOnly,
    TrainWithClassifier,
    TwoStreamMetricLoss,
)
from torch.utils.data import SequentialSampler, Subset, SubsetRandomSampler, TensorDataset

import bspml
from bspml.data.indexed import sample_index_getter
from bspml.errors import InputError
from bspml.networks import embed
from bspml.trainers import AlternatingTrainer, FixedCurriculum, made_parts
from bspml.trainers.step import StepTrainer
from helpers.draws import around_centres

TRUE = torch.arange(8).repeat_interleave(12)
POINTS = around_centres(TRUE, 6, spread=0.35)
LABELS = TRUE.clone()
LABELS[::5] = (LABELS[::5] + 1 + torch.arange(len(LABELS[::5])) % 7) % 8
DATA = TensorDataset(POINTS, LABELS)


TEXT = list(zip(POINTS, [f"class {label}" for label in LABELS.tolist()], strict=True))


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.ERROR, "PML")


def pml_trainer(kind=MetricLossOnly, **options):
    torch.manual_seed(0)
    trunk = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU())
    embedder = torch.nn.Sequential(torch.nn.Dropout(0.1), torch.nn.Linear(16, 4))
    given = {
        "models": {"trunk": trunk, "embedder": embedder},
        "optimizers": {
            "trunk_optimizer": torch.optim.Adam(trunk.parameters(), 0.01),
            "embedder_optimizer": torch.optim.Adam(embedder.parameters(), 0.01),
        },
        "batch_size": 16,
        "loss_funcs": {"metric_loss": ContrastiveLoss()},
        "dataset": DATA,
        "dataloader_num_workers": 0,
        "data_device": "cpu",
    }
    return kind(**given | options)


def trained(training):
    """Weights, losses and network after three passes."""
    torch.manual_seed(1)
    records = training.train(3)
    models = training.trainer.models
    held = [*models["trunk"].parameters(), *models["embedder"].parameters()]
    losses = [record.loss for record in records]
    return training.curriculum.weights.weights, losses, torch.cat([p.flatten() for p in held])


def by_hand(**options):
    weights = bspml.SampleWeights(LABELS)
    sampler = bspml.PKSampler(LABELS, 4, 4)
    trainer = pml_trainer(
        loss_funcs={"metric_loss": bspml.Weighted(ContrastiveLoss(), weights)},
        dataset=bspml.IndexedDataset(DATA),
        sampler=sampler,
        data_and_label_getter=sample_index_getter(weights),
    )
    network = torch.nn.Sequential(*trainer.models.values())
    curriculum = bspml.SelfPacedCurriculum(weights, **options)
    return AlternatingTrainer(
        trainer, sampler, curriculum, embed=lambda: embed(network, POINTS, batch_size=16)
    )


class Dicts(torch.utils.data.Dataset):
    """Items of a form that only the user's own getter knows."""

    def __len__(self):
        return len(LABELS)

    def __getitem__(self, row):
        return {"image": POINTS[row], "kind": int(LABELS[row])}


def as_dicts():
    return pml_trainer(
        dataset=Dicts(),
        dataset_labels=LABELS,
        data_and_label_getter=lambda batch: (batch["image"], batch["kind"]),
    )


def of_pml_sampler():
    return pml_trainer(sampler=MPerClassSampler(LABELS, 4, 16, len(LABELS)))


@pytest.mark.parametrize(
    ("make", "warmup"),
    [
        (pml_trainer, "cross-fit"),
        (pml_trainer, "features"),
        (as_dicts, "features"),
        (of_pml_sampler, "features"),
    ],
)
def test_a_trainer_as_it_is_trains_as_one_whose_parts_were_made(make, warmup):
    found = trained(AlternatingTrainer(make(), warmup=warmup))
    expected = trained(by_hand(warmup=warmup))
    assert torch.equal(found[0], expected[0])
    assert found[1] == expected[1]
    assert torch.equal(found[2], expected[2])
    assert warmup == "cross-fit" or (LABELS != TRUE)[found[0] == 0].float().mean() > 0.7


def test_the_network_comes_back_in_the_mode_that_it_trains_in():
    training = AlternatingTrainer(pml_trainer())
    embedded = training.embed()
    network = torch.nn.Sequential(*training.trainer.models.values())
    assert network.training
    assert torch.allclose(embedded, network.eval()(POINTS), atol=1e-6)


def test_parts_of_a_batch_and_workers_find_their_rows():
    whole = AlternatingTrainer(pml_trainer(StepTrainer, micro_batches=2, dataloader_num_workers=1))
    seen = []
    whole.trainer.end_of_iteration_hook = lambda t: seen.append(
        whole.curriculum.weights.batch_index
    )
    whole.train(1)
    assert len(seen) > 3
    assert all(len(rows) == 8 for rows in seen)


def test_a_curriculum_of_ones_own_and_an_embedding_of_ones_own():
    weights = bspml.SampleWeights(LABELS)
    weights.update((LABELS == TRUE).float())
    training = AlternatingTrainer(pml_trainer(), curriculum=FixedCurriculum(weights))
    training.train(1)
    own = AlternatingTrainer(pml_trainer(), embed=lambda: POINTS)
    own.train(1)
    expected = bspml.SelfPacedCurriculum(bspml.SampleWeights(LABELS))
    expected.update(POINTS)
    assert own.initial_record.maw == expected.weights.maw()


@pytest.mark.parametrize("rows", [range(96), [*range(40, 96), 3, 7]])
def test_items_may_say_their_row_as_those_of_an_indexed_data_set_do(rows):
    codes = bspml.SampleWeights([label for _, label in TEXT]).codes
    assert codes.tolist() == LABELS.tolist()  # of text, numbers for the trainer
    expected = trained(AlternatingTrainer(pml_trainer(dataset=Subset(DATA, rows))))
    for indexed in (bspml.IndexedDataset(DATA), bspml.IndexedDataset(TEXT, labels=codes)):
        found = trained(AlternatingTrainer(pml_trainer(dataset=Subset(indexed, rows))))
        assert found[1] == expected[1]
        assert all(torch.equal(found[i], expected[i]) for i in (0, 2))


def test_a_loss_that_ignores_fractions_is_refused_before_the_next_step():
    weights = bspml.SampleWeights(LABELS)
    weights.update(torch.full((len(LABELS),), 0.5))
    training = AlternatingTrainer(pml_trainer(), curriculum=FixedCurriculum(weights))
    with pytest.raises(InputError, match=r"rule='threshold', or wrap the loss: bspml.Weighted"):
        training.train(1)
    trainer = pml_trainer(loss_funcs={"metric_loss": bspml.Weighted(ContrastiveLoss(), weights)})
    assert AlternatingTrainer(trainer, curriculum=FixedCurriculum(weights)).train(1)


def test_what_does_not_fit_is_refused_in_a_sentence(monkeypatch):
    of_others = FixedCurriculum(bspml.SampleWeights([0, 0, 1]))
    few = pml_trainer(sampler=SubsetRandomSampler(range(8)))
    miner = {"tuple_miner": TripletMarginMiner()}
    streams = pml_trainer(TwoStreamMetricLoss, mining_funcs=miner)
    part = pml_trainer(sampler=SequentialSampler(range(40)))
    for trainer, options, message in (
        (pml_trainer(dataset=Dicts()), {}, "Pass it dataset_labels=labels"),
        (pml_trainer(dataset=TEXT), {}, r"labels are text.*labels=weights.codes"),
        (pml_trainer(batch_size=7), {}, "`batch_size` must be at least 8"),
        (few, {}, "`trainer.sampler` draws from a SubsetRandomSampler"),
        (part, {}, "`trainer.sampler` draws by a SequentialSampler of 40 rows from .* of 96"),
        (pml_trainer(), {"curriculum": of_others}, "the curriculum has 3 weights, the data set 96"),
        (pml_trainer(dataset_labels=LABELS.roll(1)), {}, "their labels must agree"),
        (pml_trainer(iterations_per_epoch=3), {}, "`iterations_per_epoch` is 3, and a round takes"),
        (streams, {}, "takes the steps of TwoStreamMetricLoss"),
        (print, {}, "`trainer` must be a pytorch-metric-learning trainer"),
    ):
        with pytest.raises(InputError, match=message):
            AlternatingTrainer(trainer, **options)
    sampler = bspml.PKSampler(LABELS, 4, 4)
    with pytest.raises(InputError, match="`warmup` is for a curriculum made here"):
        AlternatingTrainer(pml_trainer(), sampler, embed=print, warmup="features")
    monkeypatch.setattr(made_parts, "ranks", lambda: 2)
    with pytest.raises(InputError, match="several processes pass `sampler`"):
        AlternatingTrainer(pml_trainer())


def test_items_of_other_labels_than_the_data_set_says_are_refused_wherever_they_are():
    class Stale(Dicts):
        def __getitem__(self, row):
            label = int(LABELS[row])
            return POINTS[row], (label + 1) % 8 if row == 4 else label  # 4: not probed at first

    message = r"at 1 of 16 rows, first at row 4 .data-set row 4 is of 0, the batch says 1"
    training = AlternatingTrainer(pml_trainer(dataset=Stale(), dataset_labels=LABELS))
    with pytest.raises(InputError, match=message):
        training.train(1)
    own = AlternatingTrainer(
        pml_trainer(dataset=Stale(), dataset_labels=LABELS), embed=lambda: POINTS
    )
    with pytest.raises(InputError, match=r"data-set row 4 is of 0.* not only in `targets`"):
        own.train(2)


def test_a_trainer_that_was_handed_over_before_is_handed_on():
    trainer = pml_trainer()
    trainer.train(num_epochs=1)  # writes the loader's number of batches
    first = AlternatingTrainer(trainer)
    first.train(1)
    again = AlternatingTrainer(trainer)
    assert again.train(1)
    assert not isinstance(trainer.data_and_label_getter.getter, made_parts.PartsOfTrainer)
    with pytest.raises(InputError, match="handed to another AlternatingTrainer"):
        first.train(2)


class WeightedCrossEntropy(torch.nn.Module):
    """sum w l / sum w of the rows announced."""

    def __init__(self, weights):
        super().__init__()
        self.weights = weights

    def forward(self, logits, labels):
        weights = self.weights.for_batch(len(logits))
        losses = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
        return (weights * losses).sum() / weights.sum()


def test_the_loss_of_a_classifier_does_not_count_in_full_what_the_metric_loss_weighs():
    def training(classifier_loss, share=1):
        curriculum = bspml.SelfPacedCurriculum(bspml.SampleWeights(LABELS), rule="quadratic")
        losses = {
            "metric_loss": bspml.Weighted(ContrastiveLoss(), curriculum.weights),
            "classifier_loss": classifier_loss(curriculum.weights),
        }
        trainer = pml_trainer(
            TrainWithClassifier,
            loss_funcs=losses,
            loss_weights={"metric_loss": 1, "classifier_loss": share},
        )
        trainer.models["classifier"] = torch.nn.Linear(4, 8)
        return AlternatingTrainer(trainer, curriculum=curriculum)

    with pytest.raises(InputError, match=r"weights 0 and 1 only.*CrossEntropyLoss has no weights"):
        training(lambda weights: torch.nn.CrossEntropyLoss()).train(1)
    training(lambda weights: torch.nn.CrossEntropyLoss(), share=0).train(1)  # is not computed
    training(WeightedCrossEntropy).train(1)


def test_labels_of_several_levels_are_refused_and_one_of_them_is_trained_on():
    levels = torch.stack([LABELS, LABELS // 2], dim=1)
    curriculum = FixedCurriculum(bspml.SampleWeights(levels.flip(0)[:, 1]))
    for items in (TensorDataset(POINTS, levels), list(zip(POINTS, levels.tolist(), strict=True))):
        trainer = pml_trainer(dataset=items, label_hierarchy_level=1)
        with pytest.raises(InputError, match=r"labels. Choose their level in `data_and_label_gett"):
            AlternatingTrainer(trainer, curriculum=curriculum)

    def chosen(**options):
        table = bspml.SampleWeights(levels[:, 1])
        curriculum = bspml.SelfPacedCurriculum(table, repair="confident")
        return trained(AlternatingTrainer(pml_trainer(**options), curriculum=curriculum))

    of_levels = chosen(
        dataset=TensorDataset(POINTS, levels),
        data_and_label_getter=lambda batch: (batch[0], batch[1][:, 1]),
        dataset_labels=levels[:, 1],
    )
    of_one = chosen(dataset=TensorDataset(POINTS, levels[:, 1]))
    assert torch.equal(of_levels[0], of_one[0])
    assert of_levels[1] == of_one[1]
    assert torch.equal(of_levels[2], of_one[2])
