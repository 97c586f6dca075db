"""A loop that hands out the index of each sample, as Open Metric Learning's does."""

import re

import numpy as np
import torch

from helpers.places import REPOSITORY


class Labelled(torch.utils.data.Dataset):
    """Stands in for its ImageLabeledDataset: 6 classes, a quarter of the labels wrong."""

    def __init__(self):
        rng = np.random.default_rng(0)
        self.true = np.repeat(np.arange(6), 16)
        self.wrong = np.arange(96) % 4 == 0
        shifted = (self.true + rng.integers(1, 6, 96)) % 6
        self.labels = np.where(self.wrong, shifted, self.true)
        points = rng.normal(size=(6, 8))[self.true] + 0.2 * rng.normal(size=(96, 8))
        self.points = torch.from_numpy(points).float()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, item):
        return {"input_tensors": self.points[item], "labels": self.labels[item], "idx": item}

    def get_labels(self):
        return self.labels


def test_the_block_for_open_metric_learning_runs_and_leaves_wrong_labels_out():
    page = (REPOSITORY / "docs/integrations.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```py\n(.*?)```", page, flags=re.DOTALL)
    (block,) = [block for block in blocks if "dataset.get_labels()" in block]
    torch.manual_seed(0)
    extractor, dataset = torch.nn.Linear(8, 8), Labelled()
    before = extractor.weight.detach().clone()
    scope = {
        "dataset": dataset,
        "extractor": extractor,
        "optimizer": torch.optim.Adam(extractor.parameters(), 0.01),
        "inference": lambda model, data, **options: model(data.points).detach(),
    }
    exec(compile(block, "integrations.md", "exec"), scope)
    assert not torch.equal(extractor.weight, before)
    assert scope["curriculum"].rounds == 2
    kept = scope["curriculum"].weights.weights.numpy() > 0
    assert kept[~dataset.wrong].mean() > 0.95
    assert kept[dataset.wrong].mean() < 0.2
    assert set(batch_rows(scope["sampler"])) <= set(np.flatnonzero(kept))


def batch_rows(sampler):
    return [row for batch in sampler for row in batch]
