"""The three lines of each wrapper, and pytorch-metric-learning's own trainer around them."""

import logging

import pytest
import torch
from pytorch_metric_learning import losses
from pytorch_metric_learning.trainers import MetricLossOnly

from bspml.data.indexed import IndexedDataset, sample_index_getter
from bspml.losses.reducers import IMAE, GradientRescaling, SuperLoss
from bspml.weights.state import SampleWeights

CASES = {
    "SuperLoss": lambda weights: SuperLoss(
        losses.TripletMarginLoss(), lam=0.1, smoothing="sample", sample_weights=weights
    ),
    "GradientRescaling": lambda weights: GradientRescaling(
        losses.NormalizedSoftmaxLoss(3, 2), beta=8, lam=0.5, sample_weights=weights
    ),
    "IMAE": lambda weights: IMAE(losses.NTXentLoss(), T=8, sample_weights=weights),
}


@pytest.mark.parametrize("case", CASES)
def test_a_trainer_needs_no_change(case):
    logging.getLogger("PML").setLevel(logging.ERROR)
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(48) % 3
    inputs = torch.randn(48, 4, generator=generator)
    weights = SampleWeights(labels)
    loss = CASES[case](weights)
    trunk = torch.nn.Linear(4, 2)
    trainer = MetricLossOnly(
        models={"trunk": trunk},
        optimizers={"trunk_optimizer": torch.optim.SGD(trunk.parameters(), lr=0.01)},
        batch_size=16,
        loss_funcs={"metric_loss": loss},
        dataset=IndexedDataset(torch.utils.data.TensorDataset(inputs, labels)),
        data_device=torch.device("cpu"),
        dataloader_num_workers=0,
        data_and_label_getter=sample_index_getter(weights),
    )
    trainer.train(num_epochs=2)
    assert trunk.weight.isfinite().all()
    assert loss.reducer.sample_confidences().isfinite().sum() > 24
