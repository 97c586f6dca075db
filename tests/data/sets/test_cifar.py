"""CIFAR's files in miniature: pixels in place, versions agreeing, each fault named."""

import hashlib
import os
import pickle
import shutil
from dataclasses import replace

import numpy as np
import pytest

from bspml import noise
from bspml.data.sets import cifar
from bspml.data.sets.cifar import (
    CIFAR10_CLASSES,
    CIFAR10_CONFUSIONS,
    CIFAR100_CLASSES,
    CIFAR100_SUPERCLASS_OF,
    CIFAR100_SUPERCLASSES,
    cifar10,
    cifar100,
)
from bspml.errors import DataError, InputError
from helpers.pickles import Bomb

LOADERS = {"cifar10": cifar10, "cifar100": cifar100}
VERSIONS = {"cifar10": "CIFAR10_VERSIONS", "cifar100": "CIFAR100_VERSIONS"}
# Images per file: balanced over the classes of each split, but not within a training batch.
ROWS = {"cifar10": {"train": 8, "test": 20}, "cifar100": {"train": 200, "test": 100}}


def contents(name, split):
    """Labels (N, columns) and pixels (N, 3072) of a split, the same for either version."""
    draw = np.random.default_rng([len(name), len(split)])
    files = 5 if (name, split) == ("cifar10", "train") else 1
    n, c = files * ROWS[name][split], 10 if name == "cifar10" else 100
    labels = draw.permutation(np.arange(n) % c).astype(np.uint8)[:, None]
    if name == "cifar100":
        labels = np.concatenate([CIFAR100_SUPERCLASS_OF[labels].astype(np.uint8), labels], axis=1)
    return labels, draw.integers(0, 256, (n, 3072), dtype=np.uint8)


def pickled(labels, pixels):
    keys = ("labels",) if labels.shape[1] == 1 else ("coarse_labels", "fine_labels")
    columns = {key: labels[:, i].tolist() for i, key in enumerate(keys)}
    return pickle.dumps({"data": pixels, "batch_label": "a batch", **columns}, 2)


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Make both versions of a data set expect small files, and write those asked for."""

    def make(name, *which):
        versions = []
        for version in getattr(cifar, VERSIONS[name]):
            rows = {s: dict.fromkeys(files, ROWS[name][s]) for s, files in version.rows.items()}
            md5 = {}
            if which and version.folder not in which:
                versions.append(replace(version, rows=rows))
                continue
            folder = tmp_path / version.folder
            folder.mkdir()
            for split, files in rows.items():
                labels, pixels = contents(name, split)
                for i, file in enumerate(files):
                    part = slice(i * ROWS[name][split], (i + 1) * ROWS[name][split])
                    if version.md5:
                        data = pickled(labels[part], pixels[part])
                        md5[file] = hashlib.md5(data).hexdigest()
                    else:
                        data = np.concatenate([labels[part], pixels[part]], axis=1).tobytes()
                    (folder / file).write_bytes(data)
            versions.append(replace(version, rows=rows, md5=md5))
        monkeypatch.setattr(cifar, VERSIONS[name], tuple(versions))
        return tmp_path

    return make


@pytest.mark.parametrize("which", [0, 1], ids=["binary", "python"])
@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("name", LOADERS)
def test_every_pixel_and_label_is_where_the_format_says(small, name, split, which):
    root = small(name, getattr(cifar, VERSIONS[name])[which].folder)
    found = LOADERS[name](root, split)
    labels, pixels = contents(name, split)
    assert found.images.dtype == np.uint8
    assert found.labels.dtype == np.int64
    assert found.labels.tolist() == labels[:, -1].tolist()
    for i in range(0, len(labels), 7):
        for channel, row, column in ((0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 5, 9), (2, 31, 31)):
            place = 1024 * channel + 32 * row + column
            assert found.images[i, row, column, channel] == pixels[i, place]
    assert found.images.shape == (len(labels), 32, 32, 3)
    if name == "cifar100":
        assert found.superclass_of[found.labels].tolist() == labels[:, 0].tolist()


@pytest.mark.parametrize("name", LOADERS)
def test_both_versions_are_one_data_set_and_the_binary_one_is_preferred(small, name):
    root = small(name)
    binary, python = (root / v.folder for v in getattr(cifar, VERSIONS[name]))
    from_python = LOADERS[name](python)
    next(python.iterdir()).write_bytes(b"damaged, but not read")
    found = LOADERS[name](root)
    assert np.array_equal(found.images, from_python.images)
    assert np.array_equal(found.labels, from_python.labels)
    # The unpacked folder itself is as good as the one that holds it.
    assert np.array_equal(LOADERS[name](binary).images, found.images)


def test_what_the_papers_need_is_published_as_expected():
    # Facts of the published data sets, not of the miniature.
    assert {v.archive for v in cifar.CIFAR10_VERSIONS} == {
        "cifar-10-binary.tar.gz",
        "cifar-10-python.tar.gz",
    }
    for versions in (cifar.CIFAR10_VERSIONS, cifar.CIFAR100_VERSIONS):
        assert len(versions) == 2
        for version in versions:
            assert sum(version.rows["train"].values()) == 50_000
            assert sum(version.rows["test"].values()) == 10_000
            files = {f for rows in version.rows.values() for f in rows}
            assert set(version.md5) in (set(), files)
    torchvision = pytest.importorskip("torchvision.datasets")
    for versions, theirs in (
        (cifar.CIFAR10_VERSIONS, torchvision.CIFAR10),
        (cifar.CIFAR100_VERSIONS, torchvision.CIFAR100),
    ):
        assert versions[1].folder == theirs.base_folder
        assert versions[1].md5 == dict(theirs.train_list + theirs.test_list)


def test_class_names_and_superclasses():
    assert len(CIFAR10_CLASSES) == 10
    assert len(set(CIFAR100_CLASSES)) == 100
    assert np.bincount(CIFAR100_SUPERCLASS_OF).tolist() == [5] * 20
    # From the published files: classes and superclasses of the first five training images.
    first = [CIFAR100_CLASSES[c] for c in (19, 29, 0, 11, 1)]
    assert first == ["cattle", "dinosaur", "apple", "boy", "aquarium_fish"]
    assert CIFAR100_SUPERCLASS_OF[[19, 29, 0, 11, 1]].tolist() == [11, 15, 4, 14, 1]
    assert CIFAR100_SUPERCLASSES[11] == "large_omnivores_and_herbivores"
    assert CIFAR100_SUPERCLASS_OF[-5:].tolist() == [0, 17, 8, 14, 13]
    with pytest.raises(ValueError, match="read-only"):
        CIFAR100_SUPERCLASS_OF[0] = 1


def test_the_five_confusions_of_cifar10():
    named = {CIFAR10_CLASSES[a]: CIFAR10_CLASSES[b] for a, b in CIFAR10_CONFUSIONS.items()}
    assert named == {
        "truck": "automobile",
        "bird": "airplane",
        "deer": "horse",
        "cat": "dog",
        "dog": "cat",
    }


def test_the_splits_go_straight_into_the_noise_conventions(small):
    ten = cifar10(small("cifar10"), "test")
    noisy = noise.asymmetric(ten.labels, 0.5, CIFAR10_CONFUSIONS)
    assert noisy.is_noisy.sum() == 5
    hundred = cifar100(small("cifar100"))
    noisy = noise.sibling_flip(hundred.labels, 0.2, hundred.superclass_of)
    groups = hundred.superclass_of
    assert noisy.is_noisy.sum() == 40
    assert (groups[noisy.labels] == groups[noisy.true_labels]).all()


# --- faults ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("there", [True, False])
def test_no_files_at_all(tmp_path, there):
    root = tmp_path if there else tmp_path / "nowhere"
    with pytest.raises(DataError, match=r"cifar-10-batches-bin or cifar-10-batches-py.*tar xzf"):
        cifar10(root)
    with pytest.raises(DataError, match=r"Download cifar-100-binary.tar.gz or cifar-100-python"):
        cifar100(root)


def test_an_unknown_split(tmp_path):
    with pytest.raises(InputError, match="`split` must be one of train, test; got 'val'"):
        cifar10(tmp_path, "val")


@pytest.mark.parametrize("folder", ["cifar-10-batches-bin", "cifar-10-batches-py"])
def test_a_missing_file_among_others(small, folder):
    root = small("cifar10", folder)
    file = sorted((root / folder).glob("data_batch_3*"))[0]
    file.unlink()
    with pytest.raises(DataError, match=r"data_batch_3.*: is missing, while other files"):
        cifar10(root)
    assert len(cifar10(root, "test")) == 20


@pytest.mark.parametrize(("change", "word"), [(-1, "truncated"), (-3073, "truncated"), (5, "long")])
def test_a_binary_file_of_another_length(small, change, word):
    root = small("cifar10", "cifar-10-batches-bin")
    file = root / "cifar-10-batches-bin" / "data_batch_2.bin"
    data = file.read_bytes()
    file.write_bytes(data[:change] if change < 0 else data + bytes(change))
    expected = f"{len(data) + change:,} bytes, where 8 images of 3,073 bytes make {len(data):,}"
    with pytest.raises(DataError, match=rf"data_batch_2.bin: is .*{word}: {expected}"):
        cifar10(root)


def test_a_pickle_with_another_checksum_is_not_opened(small, tmp_path, monkeypatch):
    root = small("cifar10", "cifar-10-batches-py")
    monkeypatch.setattr(cifar.array_pickles, "loads", lambda data: pytest.fail("it was opened"))
    file = root / "cifar-10-batches-py" / "data_batch_1"
    file.write_bytes(file.read_bytes() + b" ")
    with pytest.raises(DataError, match=r"data_batch_1: its MD5 checksum is .*is not opened"):
        cifar10(root)


def republish(folder, name, file, value, monkeypatch):
    """Write `value`, and let its checksum be the published one."""
    data = pickle.dumps(value, 2)
    (folder / file).write_bytes(data)
    versions = getattr(cifar, VERSIONS[name])
    md5 = {**versions[1].md5, file: hashlib.md5(data).hexdigest()}
    monkeypatch.setattr(cifar, VERSIONS[name], (versions[0], replace(versions[1], md5=md5)))


def test_a_pickle_with_the_right_checksum_runs_no_code_either(small, tmp_path, monkeypatch):
    # MD5 can be forged.
    root = small("cifar10", "cifar-10-batches-py")
    bomb = {"data": Bomb(tmp_path / "ran"), "labels": []}
    republish(root / "cifar-10-batches-py", "cifar10", "test_batch", bomb, monkeypatch)
    with pytest.raises(DataError, match=r"test_batch: does not hold.*it names \w+.mkdir"):
        cifar10(root, "test")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"data": np.zeros((100, 3072), np.uint8)}, "'coarse_labels'"),
        ([1, 2], "list indices"),
        (
            {
                "data": np.zeros((100, 3072), np.float64),
                "coarse_labels": [0] * 100,
                "fine_labels": [0] * 100,
            },
            "its images are .* of float64",
        ),
        (
            {
                "data": np.zeros((100, 3072), np.uint8),
                "coarse_labels": [0] * 99,
                "fine_labels": [0] * 100,
            },
            "same shape",
        ),
        (
            {
                "data": np.zeros((100, 3072), np.uint8),
                "coarse_labels": [0.5] * 100,
                "fine_labels": ["x"] * 100,
            },
            "its labels are .* of <U",
        ),
    ],
)
def test_a_pickle_of_something_else(small, monkeypatch, content, message):
    root = small("cifar100", "cifar-100-python")
    republish(root / "cifar-100-python", "cifar100", "test", content, monkeypatch)
    with pytest.raises(DataError, match=rf"test: does not hold what CIFAR's files do.*{message}"):
        cifar100(root, "test")


def test_a_batch_copied_over_another_is_noticed(small):
    root = small("cifar10", "cifar-10-batches-bin")
    folder = root / "cifar-10-batches-bin"
    shutil.copy(folder / "data_batch_1.bin", folder / "data_batch_2.bin")
    with pytest.raises(DataError, match="each of 0 to 9 must occur equally often"):
        cifar10(root)


def test_labels_out_of_range_are_noticed(small):
    root = small("cifar10", "cifar-10-batches-bin")
    file = root / "cifar-10-batches-bin" / "test_batch.bin"
    table = np.frombuffer(file.read_bytes(), np.uint8).reshape(-1, 3073).copy()
    table[:, 0] += 1
    file.write_bytes(table.tobytes())
    with pytest.raises(DataError, match="is not CIFAR-10: it has 10 labels from 1 to 10"):
        cifar10(root, "test")


def test_a_class_under_another_superclass_is_noticed(small):
    root = small("cifar100", "cifar-100-binary")
    file = root / "cifar-100-binary" / "test.bin"
    table = np.frombuffer(file.read_bytes(), np.uint8).reshape(-1, 3074).copy()
    table[0, 0] = (table[0, 0] + 1) % 20
    file.write_bytes(table.tobytes())
    with pytest.raises(DataError, match="under another superclass"):
        cifar100(root, "test")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_is_not_waited_for(small):
    root = small("cifar10", "cifar-10-batches-bin")
    file = root / "cifar-10-batches-bin" / "data_batch_4.bin"
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(DataError, match=r"data_batch_4.bin: is a pipe or a device"):
        cifar10(root)
