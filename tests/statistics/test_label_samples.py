"""References and rows that stand for more of them."""

import numpy as np

from bspml.statistics.contrastive import JudgingTask
from bspml.statistics.label_errors import judge_labels
from bspml.statistics.label_samples import thinned


def test_fewer_references_are_of_every_class_and_change_little():
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(6), [60, 60, 60, 60, 3, 60])
    x = np.eye(6)[codes] + 0.25 * rng.normal(size=(len(codes), 6))
    labels = np.where(rng.random(len(codes)) < 0.1, rng.integers(0, 6, len(codes)), codes)
    task = JudgingTask.of(x, labels, None, 10.0, None, 16)
    kept = thinned(task, 60).numpy() > 0
    sizes = np.bincount(labels)
    assert np.bincount(labels[kept], minlength=6).tolist() == np.minimum(sizes, 10).tolist()
    whole, few = (judge_labels(x, labels, most_references=most) for most in (None, 60))
    agree = (whole.wrong_probability > 0.5) == (few.wrong_probability > 0.5)
    assert agree.mean() > 0.97
