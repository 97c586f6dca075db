"""Samples of the test that are in training, too, or twice: found, counted, ten named."""

import numpy as np
import pytest
import torch
from PIL import Image

from bspml.data.catalogue import load_retrieval
from bspml.data.checking import check_dataset
from bspml.data.retrieval import RetrievalData, RetrievalSplit
from bspml.data.split_copies import split_copies
from bspml.errors import DataError
from bspml.experiment.seen import Seen
from helpers.draws import pixels, randn


def split(name, count, **content):
    return RetrievalSplit(name, np.arange(count).astype(str), **content)


def test_features_of_the_training_set_are_found_in_the_test():
    x = randn(150, 6)
    test = torch.cat([x[100:], x[5:15]])
    data = RetrievalData(
        "own", split("train", 100, features=x[:100]), split("test", 60, features=test)
    )
    (found,) = split_copies(data)
    assert found.rows.tolist() == list(range(50, 60))
    assert found.source_rows.tolist() == list(range(5, 15))
    assert found.sentence.startswith("10 samples of test are in train, too: test/50 is train/5, ")
    assert found.sentence.count(" is train/") == 10
    assert "in all" not in found.sentence


@pytest.mark.parametrize("change", [lambda x: 2 * x, lambda x: x + 1e-6, lambda x: x / x.norm()])
def test_features_scaled_or_rounded_are_found_too(change):
    x = randn(150, 6).float()
    test = torch.cat([x[100:], change(x[5:15])])
    data = RetrievalData(
        "own", split("train", 100, features=x[:100]), split("test", 60, features=test)
    )
    (found,) = split_copies(data)
    assert found.rows.tolist() == list(range(50, 60))
    assert found.source_rows.tolist() == list(range(5, 15))


def test_a_training_sample_under_two_labels_is_named_and_is_none_of_the_test():
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(6, 5)))
    train = RetrievalSplit(
        "train", np.array(["a", "a", "b", "b", "c"]), features=x[[0, 0, 1, 0, 2]]
    )
    test = RetrievalSplit("test", np.array(["d", "d"]), features=x[4:])
    (found,) = split_copies(RetrievalData("mine", train, test))
    assert found.sentence == (
        "1 sample of train is a copy of another under another label: train/3 is train/0."
    )
    assert len(Seen.of([found], 2, None)) == 0


def test_every_two_splits_are_compared_and_twelve_pairs_shown_as_ten():
    image = pixels(30, 1, 4, 4)
    train = split("train", 10, pixels=image[:10])
    query = split("query", 14, pixels=image[[*range(12), 20, 20]])
    gallery = split("gallery", 3, pixels=image[[25, 11, 25]])
    found = split_copies(RetrievalData("own", train, query, gallery))
    kinds = [(one.split, one.source, len(one.rows)) for one in found]
    assert kinds == [
        ("query", "train", 10),
        ("query", "query", 1),
        ("gallery", "query", 1),
        ("gallery", "gallery", 1),
    ]
    assert found[1].sentence == "1 sample of query is a copy of another: query/13 is query/12."
    many = split("test", 24, pixels=image[[*range(10), *range(10), 20, 21, 22, 23]])
    sentences = [one.sentence for one in split_copies(RetrievalData("own", train, many))]
    assert sentences[0].endswith(", ... (20 in all).")
    assert sentences[0].count(" is train/") == 10


@pytest.fixture
def folder(tmp_path):
    """Classes a, b of train and c, d of test, four photos each; one of train again in test."""
    draw = np.random.default_rng(0)
    for side, classes in (("train", "ab"), ("test", "cd")):
        for name in classes:
            for number in range(4):
                path = tmp_path / side / name / f"{number}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(draw.integers(0, 255, (12, 12, 3), np.uint8)).save(path)
    copy = tmp_path / "test/c/9.png"
    copy.write_bytes((tmp_path / "train/a/1.png").read_bytes())
    return tmp_path


def test_files_are_compared_by_content_and_the_check_names_them(folder):
    report = check_dataset("folder", folder)
    assert report.ok
    (copies,) = report.copies
    assert copies.sentence.startswith("1 sample of test is in train, too: ")
    ((copy, source),) = copies.names
    assert (copy.endswith("c/9.png"), source.endswith("a/1.png")) == (True, True)
    listed = {"split": "test", "source": "train", "pairs": [[copy, source]]}
    assert report.as_dict()["copies"] == [listed]
    (folder / "test/c/9.png").unlink()
    assert check_dataset("folder", folder).copies == ()


def test_labels_that_count_nowhere_leave_every_split(folder):
    data = load_retrieval("folder", folder, ignore=("a", "d"))
    assert [split.classes.tolist() for split in data.splits] == [["b"], ["c"]]
    assert "Left out: 8 samples of the labels a, d." in data.notes
    with pytest.raises(DataError, match="no sample has the label to ignore 'zebra'; leave it out"):
        load_retrieval("folder", folder, ignore=("a", "zebra"))
    with pytest.raises(DataError, match=r"ignore 'B'; did you mean `b`\?"):
        load_retrieval("folder", folder, ignore="B")
    with pytest.raises(DataError, match="every sample of the test split"):
        load_retrieval("folder", folder, ignore=("c", "d"))


def test_half_of_the_classes_are_those_of_what_counts(tmp_path):
    labels = np.repeat(["d", "a", "-1", "c", "b"], 2)
    rows = np.arange(10, dtype=np.float32)[:, None] * [[1.0, 2.0]]
    left = labels != "-1"
    np.savez(tmp_path / "all.npz", embeddings=rows, labels=labels)
    np.savez(tmp_path / "left.npz", embeddings=rows[left], labels=labels[left])
    data = load_retrieval("features", tmp_path / "all.npz", ignore=("-1",))
    without = load_retrieval("features", tmp_path / "left.npz")
    for one, other in zip(data.splits, without.splits, strict=True):
        assert one.name == other.name
        assert one.labels.tolist() == other.labels.tolist()
        assert one.features.tolist() == other.features.tolist()
    assert data.train.classes.tolist() == ["a", "b"]
    assert "Left out: 2 samples of the labels -1." in data.notes
    with pytest.raises(DataError, match="every sample of the train split has one of the labels"):
        load_retrieval("features", tmp_path / "all.npz", ignore=("-1", *"abc"))
