"""The metrics with and without the test samples that training saw."""

import numpy as np
import torch

from bspml.data.retrieval import RetrievalData, RetrievalSplit
from bspml.data.split_copies import SplitCopies, split_copies
from bspml.evaluation import evaluate
from bspml.experiment.seen import Seen, near_copies
from helpers.draws import randn


def copies(split, source, rows):
    return SplitCopies(split, source, np.array(rows), np.zeros(len(rows), int), ())


def test_the_sentence_has_both_metrics():
    x, y = randn(60, 4), np.arange(60) // 6
    x[:10] = torch.nn.functional.one_hot(torch.arange(10) // 6, 4) + 0.01 * randn(10, 4, seed=1)
    seen = Seen.of([copies("test", "train", range(10)), copies("test", "test", [20])], 60, None)
    assert len(seen) == 10
    whole, rest = (evaluate(x[k:], y[k:], (1,), clustering=False) for k in (0, 10))
    assert seen.without(whole, x, y) == (
        f"without the 10 samples that training saw: Recall@1 {100 * rest.recall_at_k[1]:.2f} % "
        f"(with them {100 * whole.recall_at_k[1]:.2f} %), MAP@R {100 * rest.map_at_r:.2f} % "
        f"({100 * whole.map_at_r:.2f} %)"
    )


def test_queries_and_gallery_lose_what_was_seen():
    x, y = randn(20, 4), np.arange(20) % 4
    seen = Seen.of([copies("query", "train", [0]), copies("gallery", "train", [1, 2])], 8, 12)
    assert len(seen) == 3
    options = {"gallery": x[8:], "gallery_labels": y[8:]}
    whole = evaluate(x[:8], y[:8], (1,), clustering=False, **options)
    kept = np.delete(np.arange(12), [1, 2]) + 8
    rest = evaluate(x[1:8], y[1:8], (1,), x[kept], y[kept], clustering=False)
    said = seen.without(whole, x[:8], y[:8], **options)
    assert f"the 3 samples that training saw: Recall@1 {100 * rest.recall_at_k[1]:.2f} %" in said
    everyone = Seen(np.ones(8, bool), np.zeros(12, bool))
    told = "too little is left to evaluate Recall@{}"
    assert everyone.without(whole, x[:8], y[:8], **options).endswith(told.format(1))
    whole = evaluate(x[:8], y[:8], (11,), clustering=False, **options)
    assert seen.without(whole, x[:8], y[:8], **options).endswith(told.format(11))


def test_labels_that_are_ignored_count_on_neither_side_of_the_sentence():
    x, y = randn(60, 4), np.arange(60) // 6
    x[:10] = torch.nn.functional.one_hot(torch.arange(10) // 6, 4) + 0.01 * randn(10, 4, seed=1)
    seen, ignore = Seen.of([copies("test", "train", range(10))], 60, None), [0, 9]
    whole = evaluate(x, y, (2, 4), ignore=ignore, clustering=False)
    kept = (np.arange(60) >= 10) & (y != 9)
    rest = evaluate(x[kept], y[kept], (2,), clustering=False)
    # Six of the ten are of label 0; the smallest K is that of the table.
    assert seen.without(whole, x, y, ignore=ignore) == (
        f"without the 4 samples that training saw: Recall@2 {100 * rest.recall_at_k[2]:.2f} % "
        f"(with them {100 * whole.recall_at_k[2]:.2f} %), MAP@R {100 * rest.map_at_r:.2f} % "
        f"({100 * whole.map_at_r:.2f} %)"
    )
    assert seen.without(whole, x, y, ignore=[0, 1]) == ""


def test_near_copies_by_features_are_told_once_and_exact_ones_are_not_told_again():
    x, y = randn(90, 16), np.arange(90) // 6
    train = RetrievalSplit("train", y[:60].astype(str), features=x[:60])
    again = torch.cat([x[[3, 7]] + 0.002 * randn(2, 16, seed=1), x[[5]], x[60:]])
    labels = np.concatenate([["new"] * 3, y[60:].astype(str)])
    test = RetrievalSplit("test", labels, features=again, given_names=tuple(map(str, range(33))))
    known = split_copies(RetrievalData("mine", train, test))
    (found,) = near_copies((train, test), known)
    assert found.sentence == (
        "2 samples of test are near copies of some of train by the features (saved again, cropped "
        "or scaled): 0 and train/3, 1 and train/7."
    )
    assert (found.rows.tolist(), found.source_rows.tolist()) == ([0, 1], [3, 7])
    assert [c.rows.tolist() for c in known] == [[2]]
    assert near_copies((train, test.take(np.arange(33) > 2)), ()) == ()
    # Equal features of files whose bytes differ are known to nobody else.
    (unknown,) = near_copies((train, test), ())
    assert unknown.rows.tolist() == [0, 1, 2]
    pixels = RetrievalSplit("test", labels[:1], pixels=torch.zeros(1, 1, 2, 2))
    assert near_copies((train, pixels), ()) == ()
