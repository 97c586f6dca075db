"""What the faults are done to: small runs, audits, tables, trees of data sets, made once."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.io
from PIL import Image

from faults.process import bspml

SMALL = [
    *("data.subset=8", "sampler.classes_per_batch=4", "evaluation.ks=[1]", "training.epochs=3"),
    *("curriculum.warmup_epochs=1", "training.batches_per_epoch=4", "training.checkpoint_every=3"),
]
MANY = "training.methods=[multi-similarity, bspml, auto:contrastive, superloss:multi-similarity]"
TRAININGS: dict[str, list[str]] = {
    "bspml": [*SMALL, "training.methods=[bspml]"],
    "grid": [*SMALL, MANY],
    "paper": [
        *SMALL[:4], *SMALL[5:], "curriculum.preset=paper", "curriculum.target_maw=0.7",
        "training.methods=[bspml]", "schedule.name=cosine", "training.ema=0.9",
    ],
    "digits": ["task=classification", "data.subset=200", "training.epochs=3"],
}  # fmt: skip


def make_all(root: Path) -> None:
    """Fill a new folder; what is read again and again is never written to."""
    root.mkdir(parents=True)
    _make_features(root)
    _make_trees(root / "trees")
    _ended(["audit", "features.npz", "-o", "audit"], root)
    for name, settings in TRAININGS.items():
        _ended(["train", "--output", f"run-{name}", *settings], root)


def _ended(arguments: Sequence[str], folder: Path) -> None:
    result = bspml(arguments, folder).wait(600)
    if result.code != 0:
        raise SystemExit(f"bspml {' '.join(arguments)}: {result.said}")


def _make_features(root: Path) -> None:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(6), 15)
    x = (rng.normal(size=(90, 8)) + 2 * rng.normal(size=(6, 8))[y]).astype(np.float32)
    given = np.where(rng.random(90) < 0.2, rng.integers(6, size=90), y)
    names = np.array([f"class {c}" for c in given])
    np.savez(root / "features.npz", x=x, y=names)
    np.save(root / "x.npy", x)
    np.save(root / "y.npy", given)
    (root / "labels.txt").write_text("\n".join(names) + "\n")
    frame = pd.DataFrame(x, columns=[f"d{i}" for i in range(8)]).assign(label=names)
    frame.to_csv(root / "features.csv", index=False)
    frame.to_csv(root / "features.tsv", index=False, sep="\t")
    frame.to_parquet(root / "features.parquet")
    (root / "config.yaml").write_text(
        "name: small\ndata: {name: glyphs, subset: 8}\noptimizer:\n  lr: 1e-3\n"
        "sampler: {classes_per_batch: 4}\nevaluation: {ks: [1, 2]}\ntraining:\n  epochs: 3\n"
    )


def _image(path: Path, shade: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.full((12, 14, 3), 40 + shade, np.uint8)
    pixels[:, :5] //= 2
    Image.fromarray(pixels).save(path)


def _lines(path: Path, lines: Sequence[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def _make_trees(root: Path) -> None:
    for c in range(3):
        for i in range(3):
            kind = ("png", "jpg", "bmp")[i]
            _image(root / "folder" / f"c{c}" / f"{i}.{kind}", 20 * c + i)
    names = [f"folder/c{c}/{i}.{('png', 'jpg', 'bmp')[i]}" for c in range(3) for i in range(3)]
    rows = [f"{name},{name[7:9]},{10 * i}" for i, name in enumerate(names)]
    _lines(root / "table.csv", ["path,label,x", *rows])
    pd.read_csv(root / "table.csv").to_parquet(root / "table.parquet")
    _make_cub(root / "cub")
    for split, start in (("train", 0), ("test", 6)):
        lists = [f"{start + i + 1} {start // 3 + i // 3 + 1} 1 bicycle/{start + i}.JPG"
                 for i in range(6)]  # fmt: skip
        _lines(
            root / "sop" / f"Ebay_{split}.txt", ["image_id class_id super_class_id path", *lists]
        )
    for i in range(12):
        _image(root / "sop" / "bicycle" / f"{i}.JPG", i)
    shops = [(f"img/W/D/id_{i // 3:08d}/{i:02d}.jpg", f"id_{i // 3:08d}") for i in range(12)]
    parts = ["train"] * 6 + ["query", "query", "gallery"] * 2
    lists = [f"{path} {item} {part}" for (path, item), part in zip(shops, parts, strict=True)]
    _lines(root / "in-shop" / "list_eval_partition.txt",
           ["12", "image_name item_id evaluation_status", *lists])  # fmt: skip
    for i, (path, _) in enumerate(shops):
        _image(root / "in-shop" / path, i)
    _make_cars(root / "cars196")
    _make_cifar(root / "cifar10")


def _make_cub(root: Path) -> None:
    paths = [f"{c:03d}.Bird_{c}/{i}.jpg" for c in (1, 2, 101, 102) for i in range(3)]
    _lines(root / "images.txt", [f"{i + 1} {path}" for i, path in enumerate(paths)])
    _lines(root / "image_class_labels.txt",
           [f"{i + 1} {int(path[:3])}" for i, path in enumerate(paths)])  # fmt: skip
    _lines(root / "classes.txt", [f"{c} {c:03d}.Bird_{c}" for c in (1, 2, 101, 102)])
    _lines(root / "bounding_boxes.txt", [f"{i + 1} 1.0 1.0 8.0 8.0" for i in range(12)])
    for i, path in enumerate(paths):
        _image(root / "images" / path, i)


def _make_cars(root: Path) -> None:
    fields = ["bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2", "class", "fname"]
    for name in ("cars_train", "cars_test"):
        table = np.empty((1, 6), dtype=[(field, "O") for field in fields])
        for i in range(6):
            for field, value in zip(fields, (1, 1, 9, 9, 1 + 98 * (i % 2), f"{i:05d}.jpg"),
                                    strict=True):  # fmt: skip
                text = np.array([value]) if isinstance(value, str) else np.array([[value]], "u1")
                table[field][0, i] = text
            _image(root / name / f"{i:05d}.jpg", i)
        annos = f"{name}_annos{'_withlabels' * (name == 'cars_test')}.mat"
        (root / "devkit").mkdir(exist_ok=True)
        scipy.io.savemat(root / "devkit" / annos, {"annotations": table})
    cells = np.empty((1, 196), dtype=object)
    cells[0, :] = [f"Maker Model {i:03d}" for i in range(196)]
    scipy.io.savemat(root / "devkit" / "cars_meta.mat", {"class_names": cells})


def _make_cifar(root: Path) -> None:
    folder, rng = root / "cifar-10-batches-bin", np.random.default_rng(0)
    folder.mkdir(parents=True)
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        rows = rng.integers(256, size=(20, 3073), dtype=np.uint8)
        rows[:, 0] %= 10
        (folder / f"{name}.bin").write_bytes(rows.tobytes())
    _lines(folder / "batches.meta.txt", [f"class{c}" for c in range(10)])


def copied(material: Path, name: str, folder: Path) -> Path:
    """Copy a file or folder of the material."""
    source, target = material / name, folder / Path(name).name
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy(source, target)
    return target
