"""The lines for Open Metric Learning, around stand-ins that keep its protocol."""

import re
import sys
from types import ModuleType

import numpy as np
import pytest

pl = pytest.importorskip("pytorch_lightning")

import torch
from pytorch_metric_learning.losses import MultiSimilarityLoss

from helpers.places import REPOSITORY

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]


class Labelled(torch.utils.data.Dataset):
    """Stands in for its ImageLabeledDataset: 6 classes, a quarter of the labels wrong."""

    def __init__(self):
        rng = np.random.default_rng(0)
        self.true = np.repeat(np.arange(6), 16)
        self.wrong = np.arange(96) % 4 == 0
        shifted = (self.true + rng.integers(1, 6, 96)) % 6
        self._labels = np.where(self.wrong, shifted, self.true)
        points = rng.normal(size=(6, 8))[self.true] + 0.2 * rng.normal(size=(96, 8))
        self.points = torch.from_numpy(points).float()

    def __len__(self):
        return len(self._labels)

    def __getitem__(self, item):
        return {"input_tensors": self.points[item], "labels": self._labels[item], "idx": item}

    def get_labels(self):
        return self._labels


class BalanceSampler:
    """Stands in for its sampler of whole batches."""

    def __init__(self, labels, n_labels, n_instances):
        self.labels, self.batch_size = labels, n_labels * n_instances

    def __iter__(self):
        raise AssertionError("the callback's sampler draws")


class ExtractorModule(pl.LightningModule):
    """Stands in for its module."""

    def __init__(self, extractor, criterion, optimizer):
        super().__init__()
        self.model, self.criterion, self.optimizer = extractor, criterion, optimizer
        self.rows, self.sizes = set(), set()

    def forward(self, x):
        return self.model(x)

    def training_step(self, batch, batch_idx):
        self.rows |= set(batch["idx"].tolist())
        self.sizes.add(len(batch["idx"]))
        return self.criterion(self.model(batch["input_tensors"]), batch["labels"])

    def configure_optimizers(self):
        return self.optimizer


def test_the_block_for_open_metric_learning_runs_and_leaves_wrong_labels_out(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name, part in (
        ("oml.lightning.modules.extractor", ExtractorModule),
        ("oml.samplers.balance", BalanceSampler),
    ):
        module = ModuleType(name)
        setattr(module, part.__name__, part)
        monkeypatch.setitem(sys.modules, name, module)
    page = (REPOSITORY / "docs/integrations.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```py\n(.*?)```", page, flags=re.DOTALL)
    (block,) = [block for block in blocks if "train_dataset.get_labels()" in block]
    torch.manual_seed(0)
    extractor, dataset = torch.nn.Linear(8, 8), Labelled()
    before = extractor.weight.detach().clone()
    scope = {
        "train_dataset": dataset,
        "extractor": extractor,
        "criterion": MultiSimilarityLoss(),
        "optimizer": torch.optim.Adam(extractor.parameters(), 0.01),
    }
    exec(compile(block, "integrations.md", "exec"), scope)
    assert not torch.equal(extractor.weight, before)
    curriculum, module = scope["curriculum"], scope["pl_model"]
    assert len(curriculum.records) == 4
    kept = curriculum.weights.weights.numpy() > 0
    assert kept[~dataset.wrong].mean() > 0.95
    assert kept[dataset.wrong].mean() < 0.2
    assert module.sizes == {16}
    assert dataset.wrong[list(module.rows)].mean() < 0.1
