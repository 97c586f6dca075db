"""Hugging Face data sets on the disk, against what was put into them."""

import io
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import models

from bspml.cli import main
from bspml.data.catalogue import load_retrieval
from bspml.data.labels.own_labels import own_labels
from bspml.errors import DataError, MissingDependencyError

needs_datasets = pytest.mark.integrations
CLASSES = ["bee", "fly", "ant", "owl"]
CODES = [2, 0, 1, 3, 2, 0, 1, 3]


def encoded(i, kind="PNG"):
    content = io.BytesIO()
    Image.new("RGB", (10 + i, 12), (20 * i, 0, 0)).save(content, kind)
    return content.getvalue()


@pytest.fixture
def library(tmp_path, monkeypatch):
    monkeypatch.setenv("BSPML_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    return pytest.importorskip("datasets")


def of_images(library, rows=range(8), columns=("image",), pictures=encoded):
    kinds = dict.fromkeys(columns, library.Image())
    features = library.Features({**kinds, "label": library.ClassLabel(names=CLASSES)})
    images = [None if pictures(i) is None else {"bytes": pictures(i), "path": None} for i in rows]
    data = {**dict.fromkeys(columns, images), "label": [CODES[i] for i in rows]}
    return library.Dataset.from_dict(data, features=features)


@needs_datasets
def test_saved_images_are_those_that_were_saved_and_are_unpacked_once(library, tmp_path):
    of_images(library).save_to_disk(tmp_path / "saved")
    data = load_retrieval("huggingface", tmp_path / "saved")
    assert data.train.labels.tolist() == ["ant", "bee", "ant", "bee"]
    assert data.test.labels.tolist() == ["fly", "owl", "fly", "owl"]
    files = [data.train.root / path for path in data.train.paths]
    assert [file.read_bytes() for file in files] == [encoded(i) for i in (0, 1, 4, 5)]
    assert data.train.images(8)[1].shape == (3, 8, 8)
    times = [file.stat().st_mtime_ns for file in files]
    again = load_retrieval("huggingface", tmp_path / "saved")
    assert [(again.train.root / path).stat().st_mtime_ns for path in again.train.paths] == times
    assert [f.name for f in (tmp_path / "cache/datasets").iterdir()] == [data.train.root.name]
    (data.train.root / ".DS_Store").write_bytes(b"of a file browser")
    for file in files[:2]:  # some of a cache may be deleted at any time, as all of it
        file.unlink()
    again = load_retrieval("huggingface", tmp_path / "saved")
    assert again.train.paths == data.train.paths
    assert [file.read_bytes() for file in files] == [encoded(i) for i in (0, 1, 4, 5)]
    assert files[3].stat().st_mtime_ns == times[3]


@needs_datasets
def test_a_saved_data_set_of_images_is_trained_on_reported_and_audited(
    library, tmp_path, monkeypatch, capsys
):
    rng = np.random.default_rng(0)
    names = [f"shade {i}" for i in range(8)]

    def rows(codes):
        pixels = [np.uint8(rng.integers(0, 9, (12, 10, 3)) + 30 * code) for code in codes]
        features = {"image": library.Image(), "label": library.ClassLabel(names=names)}
        data = {"image": [Image.fromarray(p) for p in pixels], "label": codes}
        return library.Dataset.from_dict(data, features=library.Features(features))

    both = {"train": rows(sorted(6 * [0, 1, 2, 3])), "test": rows(sorted(6 * [4, 5, 6, 7]))}
    library.DatasetDict(both | {"validation": rows([0])}).save_to_disk(tmp_path / "saved")
    monkeypatch.chdir(tmp_path)
    settings = ["training.methods=[bspml]", "training.epochs=1", "evaluation.ks=[1]"]
    settings += ["sampler.classes_per_batch=2", "data.image_size=32"]
    settings += ["network.name=torchvision:shufflenet_v2_x0_5", "network.weights=w.pth"]
    torch.manual_seed(0)  # some random networks see all these pictures alike
    torch.save(models.shufflenet_v2_x0_5().state_dict(), "w.pth")
    source = ["data.name=huggingface", "data.root=saved"]
    assert main(["train", *source, *settings, "--output", "run"]) == 0
    assert "Left out of this data set: validation." in capsys.readouterr().err
    first = (tmp_path / "run/weights.csv").read_text().splitlines()[1]
    assert "shade 0" in first
    assert main(["report", "run"]) == 0
    assert main(["audit", "run"]) == 0
    capsys.readouterr()
    backbone = ["--backbone", "torchvision:shufflenet_v2_x0_5", "--weights", "w.pth"]
    assert main(["audit", "saved", *backbone, "--output", "found"]) == 0
    assert "Left out of this data set: validation." in capsys.readouterr().err
    lines = (tmp_path / "found/audit.csv").read_text().splitlines()
    assert len(lines) == 1 + 48
    assert "00000047.png" in "".join(lines)


@needs_datasets
@pytest.mark.parametrize("struct", [False, True], ids=["bytes", "structs"])
def test_a_parquet_file_of_image_bytes_is_such_a_data_set(library, tmp_path, struct):
    import pyarrow as pa
    from pyarrow import parquet

    content = [encoded(i, "JPEG") for i in range(8)]
    images = [{"bytes": c, "path": f"{i}.jpg"} for i, c in enumerate(content)]
    columns = {
        "img": images if struct else content,
        "label": [CLASSES[code] for code in CODES],
        "split": ["train", "test"] * 4,
    }
    parquet.write_table(pa.table(columns), tmp_path / "photos.parquet")
    data = load_retrieval("huggingface", tmp_path / "photos.parquet")
    assert data.train.labels.tolist() == ["ant", "fly", "ant", "fly"]
    assert all(path.endswith(".jpg" if struct else ".png") for path in data.train.paths)
    assert (data.test.root / data.test.paths[3]).read_bytes() == content[7]
    assert data.train.images(8)[0].shape == (3, 8, 8)


@needs_datasets
@pytest.mark.parametrize("named", [False, True], ids=["inside", "beside"])
def test_pictures_that_changed_are_unpacked_anew_whatever_the_dates_say(library, tmp_path, named):
    import pyarrow as pa
    from pyarrow import parquet

    def read(shade):
        images = []
        for i in range(8):
            content = io.BytesIO()
            Image.new("RGB", (8, 8), (shade + i, 0, 0)).save(content, "BMP")
            (tmp_path / f"{i}.bmp").write_bytes(content.getvalue())
            images.append({"bytes": None if named else content.getvalue(), "path": f"{i}.bmp"})
        file = tmp_path / f"{'same' if named else shade}.parquet"
        if not (named and file.exists()):
            table = pa.table({"image": images, "label": [CLASSES[code] for code in CODES]})
            parquet.write_table(table, file, compression="none")
        os.utime(file, (1, 1))
        train = load_retrieval("huggingface", file).train
        return [np.asarray(Image.open(train.root / path))[0, 0, 0] for path in train.paths]

    assert read(0) == [0, 1, 4, 5]
    assert read(100) == [100, 101, 104, 105]


@needs_datasets
def test_no_file_outside_the_data_set_is_read_whatever_its_rows_name(library, tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    folder = tmp_path / "data"
    folder.mkdir()
    (tmp_path / "secret.png").write_bytes(encoded(0))
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    (folder / "own.png").write_bytes(encoded(0))

    def read(name):
        first = {"bytes": None, "path": name}
        images = [first] + [{"bytes": encoded(i), "path": None} for i in range(1, 8)]
        table = pa.table({"image": images, "label": [CLASSES[code] for code in CODES]})
        parquet.write_table(table, folder / "photos.parquet")
        return load_retrieval("huggingface", folder / "photos.parquet")

    for name in (str(tmp_path / "secret.png"), "../secret.png", "link.png"):
        with pytest.raises(DataError, match=r"image of row 0 is '.*not a path inside"):
            read(name)
    assert not (tmp_path / "cache/datasets").exists()
    data = read("own.png")
    assert (data.train.root / data.train.paths[0]).read_bytes() == encoded(0)


@needs_datasets
def test_no_table_outside_the_data_set_is_read(library, tmp_path):
    of_images(library).save_to_disk(tmp_path / "other")
    parts = {"train": of_images(library), "test": of_images(library)}
    library.DatasetDict(parts).save_to_disk(tmp_path / "saved")
    [table] = (tmp_path / "saved/test").glob("*.arrow")
    state, whole = tmp_path / "saved/test/state.json", tmp_path / "saved/dataset_dict.json"
    for file, text, other in (
        (state, f'"{table.name}"', f'"../../other/{table.name}"'),
        (whole, '"test"', '"../other"'),
    ):
        sound = file.read_text()
        assert text in sound
        file.write_text(sound.replace(text, other))
        with pytest.raises(DataError, match=r"one of its tables is '.*other/.*not a path inside"):
            load_retrieval("huggingface", tmp_path / "saved")
        file.write_text(sound)
    assert len(load_retrieval("huggingface", tmp_path / "saved").train.labels) == 8


@needs_datasets
def test_splits_are_kept_and_others_named(library, tmp_path):
    splits = {"validation": [0], "test": [4, 5, 6], "train": [1, 2, 3]}
    parts = {name: of_images(library, rows) for name, rows in splits.items()}
    library.DatasetDict(parts).save_to_disk(tmp_path / "saved")
    data = load_retrieval("huggingface", tmp_path / "saved")
    assert data.train.labels.tolist() == ["bee", "fly", "owl"]
    assert data.test.labels.tolist() == ["ant", "bee", "fly"]
    assert "Left out of this data set: validation." in data.notes
    assert any("share 2 of 3 classes" in note for note in data.notes)


@needs_datasets
def test_rows_of_no_use_are_left_out_as_those_of_a_table_and_counted(library, tmp_path):
    x = [[float(i), 1.0] for i in range(8)]
    words = ["train", "train", "Train", "test", "test", "validation", None, ""]
    names = ["0", None, *"234567"]
    rows = {"x": x, "label": [*"aabccbba"], "split": words, "name": names}
    library.Dataset.from_dict(rows).save_to_disk(tmp_path / "saved")
    data = load_retrieval("features", tmp_path / "saved")
    assert data.train.labels.tolist() == [*"aab"]
    assert data.train.names == ("0", "", "2")
    assert data.test.labels.tolist() == [*"cc"]
    assert data.notes == ("Left out of this data set: (no split), validation.",)


@needs_datasets
def test_half_of_the_classes_that_are_left_train(library, tmp_path):
    rows = {"x": [[float(i), 1.0] for i in range(8)], "label": [*"aabbccdd"]}
    library.Dataset.from_dict(rows).save_to_disk(tmp_path / "saved")
    (tmp_path / "rows.csv").write_text(
        "x,z,label\n" + "".join(f"{i},1,{label}\n" for i, label in enumerate(rows["label"]))
    )
    for name in ("saved", "rows.csv"):
        data = load_retrieval("features", tmp_path / name, ignore=["d"])
        assert set(data.train.labels) == {"a"}, name  # of a, b and c
        assert set(data.test.labels) == {"b", "c"}, name


@needs_datasets
def test_splits_that_number_their_classes_otherwise_mean_the_same_names(library, tmp_path):
    def rows(names, codes, kind=None):
        kind = kind or library.ClassLabel(names=names)
        features = library.Features(
            {"x": library.Sequence(library.Value("float32")), "label": kind}
        )
        data = {"x": [[float(code), 1.0] for code in codes], "label": codes}
        return library.Dataset.from_dict(data, features=features)

    def read(name, test):
        parts = {"train": rows(["bee", "fly"], [0, 1, 1]), "test": test}
        library.DatasetDict(parts).save_to_disk(tmp_path / name)
        return load_retrieval("features", tmp_path / name)

    data = read("turned", rows(["fly", "ant", "bee"], [0, 2, 1]))
    assert data.train.labels.tolist() == ["bee", "fly", "fly"]
    assert data.test.labels.tolist() == ["fly", "bee", "ant"]
    assert data.test.features[:, 0].tolist() == [0, 2, 1]
    with pytest.raises(DataError, match=r"`label` must be all strings or all integers"):
        read("numbers", rows(None, [0, 2, 1], library.Value("int64")))
    with pytest.raises(DataError, match=r"`label` is empty in 1 row, .* row 1 of test.*`filter`"):
        read("unknown", rows(["fly", "bee"], [0, -1, 1]))
    other = rows(["fly", "bee"], [0, 1, 1]).rename_column("label", "species")
    with pytest.raises(DataError, match=r"no column of labels .*its splits share x"):
        read("other", other)


@needs_datasets
def test_damaged_pictures_are_named_by_their_split_and_row(library, tmp_path):
    damage = {2: b"junk", 3: encoded(3)[:-30], 5: b""}
    parts = {
        "train": of_images(library, range(4)),
        "test": of_images(library, range(4), pictures=lambda i: damage.get(i, encoded(i))),
    }
    library.DatasetDict(parts).save_to_disk(tmp_path / "saved")
    with pytest.raises(DataError, match=r"2 images are damaged; .* row 2 of test, is unreadable"):
        load_retrieval("huggingface", tmp_path / "saved")
    assert not list((tmp_path / "cache").rglob("*.png"))
    of_images(library, pictures=lambda i: damage.get(i % 6, encoded(i))).save_to_disk(
        tmp_path / "one"
    )
    with pytest.raises(DataError, match=r"3 images are damaged; .* row 2, is unreadable"):
        load_retrieval("huggingface", tmp_path / "one")


@needs_datasets
def test_saved_features_train_a_head(library, tmp_path):
    x = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
    rows = {"embeddings": x.tolist(), "label": CODES}
    library.Dataset.from_dict(rows).save_to_disk(tmp_path / "saved")
    data = load_retrieval("features", tmp_path / "saved")
    assert np.allclose(data.train.features.numpy(), x[[1, 2, 5, 6]])
    assert data.test.labels.tolist() == ["2", "3", "2", "3"]
    assert data.train.names is None
    named = {**rows, "file": [f"{i}.jpg" for i in range(8)], "name": ["cup"] * 8}
    library.Dataset.from_dict(named).save_to_disk(tmp_path / "named")
    labels = "".join(f"{i}.jpg,{CODES[i]}\n" for i in (4, 0, 7, 2, 1, 6, 3, 5))
    (tmp_path / "labels.csv").write_text("name,label\n" + labels)
    data = load_retrieval("features", tmp_path / "named")
    assert data.train.names == ("1.jpg", "2.jpg", "5.jpg", "6.jpg")
    found = own_labels(data, str(tmp_path / "labels.csv")).data
    assert np.array_equal(found.train.labels, data.train.labels)
    ragged = {"embeddings": [[1.0], [1.0, 2.0]], "label": [0, 1]}
    library.Dataset.from_dict(ragged).save_to_disk(tmp_path / "ragged")
    with pytest.raises(DataError, match="`embeddings`"):
        load_retrieval("features", tmp_path / "ragged")


@needs_datasets
def test_what_cannot_be_read_is_named(library, tmp_path):
    rows = of_images(library)
    several = [[{"bytes": encoded(i), "path": None}] for i in range(8)]
    kinds = {"image": library.Sequence(library.Image()), "label": library.Value("int64")}
    lists = library.Dataset.from_dict(
        {"image": several, "label": CODES}, features=library.Features(kinds)
    )
    cases = {
        "unlabelled": (rows.remove_columns("label"), "no column of labels.*columns are image"),
        "pictureless": (rows.remove_columns("image"), "no column of images .image, img."),
        "two": (of_images(library, columns=("image", "other")), "columns of images, image, other"),
        "blank": (of_images(library, pictures=lambda i: None), "row 0 has no image"),
        "lists": (lists, "`image` must hold one encoded image a row; it is .*Image"),
    }
    for name, (saved, message) in cases.items():
        saved.save_to_disk(tmp_path / name)
        with pytest.raises(DataError, match=message):
            load_retrieval("huggingface", tmp_path / name)
    assert not list(Path(tmp_path / "cache").rglob("*.png"))
    rows.save_to_disk(tmp_path / "cut")
    next((tmp_path / "cut").glob("*.arrow")).write_bytes(b"cut")
    with pytest.raises(DataError, match="cut: cannot be read"):
        load_retrieval("huggingface", tmp_path / "cut")
    for root, message in (
        (tmp_path, "no data set that `save_to_disk` wrote"),
        (tmp_path / "nothing", "no such data set"),
    ):
        with pytest.raises(DataError, match=message):
            load_retrieval("huggingface", root)


def test_without_the_library_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'bspml\[huggingface\]'"):
        load_retrieval("huggingface", tmp_path)
