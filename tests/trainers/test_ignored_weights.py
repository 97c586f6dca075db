"""A step that did not ask for weights below 1 is refused; one that did is not."""

import pytest
import torch
from pytorch_metric_learning.losses import ContrastiveLoss, MultipleLosses

import bspml
from bspml.errors import InputError
from bspml.trainers.ignored_weights import refuse_between, refuse_ignored

POINTS, LABELS = torch.eye(4), torch.tensor([0, 0, 1, 1])


def announced(numbers):
    weights = bspml.SampleWeights(LABELS)
    weights.update(numbers)
    weights.set_batch([0, 1, 2, 3])
    return weights


@pytest.mark.parametrize(
    "ask",
    [
        lambda w: bspml.Weighted(ContrastiveLoss(), w)(POINTS, LABELS),
        lambda w: bspml.BSPMLLoss(w)(POINTS, LABELS, sample_index=[0, 1, 2, 3]),
        lambda w: w[[0, 1]],
        lambda w: w.for_batch(4),
    ],
)
def test_whoever_asks_for_weights_may_have_them(ask):
    weights = announced([1, 0.5, 0, 1])
    with pytest.raises(InputError, match=r"rule='threshold', or wrap the loss: bspml.Weighted"):
        refuse_ignored(weights, [ContrastiveLoss()])
    ask(weights)
    refuse_ignored(weights, [ContrastiveLoss()])
    weights.set_batch([1, 1, 2, 3])  # the next batch is asked for anew
    with pytest.raises(InputError):
        refuse_ignored(weights, [])


def test_nothing_is_asked_where_nothing_could_be_ignored():
    refuse_ignored(announced([1, 1, 1, 1]), [])
    weights = announced([1, 0, 1, 1])
    with pytest.raises(InputError, match=r"weight 0.*or labels were decided after.*bspml.Weighted"):
        refuse_ignored(weights, [])
    refuse_ignored(weights, [torch.nn.Sequential(bspml.Weighted(ContrastiveLoss(), weights))])
    weights.clear_batch()
    refuse_ignored(weights, [])


@pytest.mark.parametrize("numbers", [[1, 0.5, 1, 1], [1, 0, 1, 1]])
@pytest.mark.parametrize(
    "several", [lambda *losses: losses, lambda *losses: [MultipleLosses([*losses])]]
)
def test_each_of_several_losses_must_hold_the_weights(several, numbers):
    weights = announced(numbers)
    weighted = bspml.Weighted(ContrastiveLoss(), weights)
    weighted(POINTS, LABELS)
    with pytest.raises(InputError, match=r"each of several \(CrossEntropyLoss has no weights\)"):
        refuse_ignored(weights, several(weighted, torch.nn.CrossEntropyLoss()))
    refuse_ignored(weights, several(weighted, bspml.Weighted(ContrastiveLoss(), weights)))
    weights.update([1, 1, 1, 1])
    refuse_ignored(weights, several(weighted, torch.nn.CrossEntropyLoss()))


def test_weights_of_0_and_1_lie_not_between():
    refuse_between(torch.tensor([0.0, 1.0]), "")
    with pytest.raises(InputError, match=r"got one between them.*, or wait"):
        refuse_between(torch.tensor([0.0, 0.1]), "wait")
