"""What benchmarks keep on disk: read again for the same data and settings only."""

from __future__ import annotations

import importlib
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from helpers.places import REPOSITORY


@pytest.fixture
def modules(monkeypatch):
    monkeypatch.syspath_prepend(str(REPOSITORY / "benchmarks"))
    names = (
        *("audit_calibration", "audit_omniglot", "curriculum_cub", "label_errors", "local_data"),
        *("classification", "competitors", "noise_rate_trained"),
    )
    return SimpleNamespace(**{name: importlib.import_module(name) for name in names})


def omniglot(folder, seed):
    """Two characters for training and two to look at, two pictures each, of random ink."""
    draw = np.random.default_rng(seed)
    folder.mkdir()
    lines = ["path,class,class_name,alphabet,split"]
    for c in range(4):
        for i in range(2):
            pixels = draw.integers(0, 256, (105, 105)).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"{c}-{i}.png")
            lines.append(f"{c}-{i}.png,{c},a/{c},a,{'train' if c < 2 else 'test'}")
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")
    return folder


def test_one_cache_holds_the_pictures_of_several_copies_apart(modules, tmp_path, monkeypatch):
    roots = [omniglot(tmp_path / name, seed) for seed, name in enumerate("ab")]
    shared, load = tmp_path / "cache", modules.local_data.load
    for again in (False, True):  # made, then read
        for name, root in zip("ab", roots, strict=True):
            own = load("omniglot", root, tmp_path / name / "own").features
            assert np.array_equal(load("omniglot", root, shared).features, own), (name, again)
    images = [modules.local_data.omniglot_images(root, shared, 7)[0] for root in roots]
    assert not torch.equal(*images)
    assert len(list(shared.glob("omniglot-7px-*.npy"))) == 2

    trained = []

    def train(pixels, labels):
        trained.append(pixels)
        return modules.audit_omniglot.build_network("small-conv", 128, seed=len(trained))

    monkeypatch.setattr(modules.audit_omniglot, "train_network", train)
    first, second, again = (
        modules.audit_omniglot.load(roots[i], shared).features for i in (0, 1, 0)
    )
    assert len(trained) == 2
    assert not np.array_equal(*trained)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, second)


def test_a_run_on_other_photos_is_not_this_one(modules, tmp_path, monkeypatch, capsys):
    def birds(scale):
        features = scale * torch.arange(8.0).reshape(4, 2)
        labels = np.array([0, 0, 1, 1])
        return modules.curriculum_cub.Birds(features, labels, {}, features, labels)

    def run(scale):
        values = modules.curriculum_cub.CHOSEN
        of = birds(scale), "symmetric 0.1", "auto", 0, values, tmp_path
        return modules.curriculum_cub.run(*of)["recall"]

    def one_run(task, method, seed, **values):
        return {"recall": task.features.sum().item()}

    monkeypatch.setattr(modules.curriculum_cub, "one_run", one_run)
    assert [run(1), run(2), run(2), run(1)] == [28, 56, 56, 28]


def test_opinions_of_other_features_or_labels_are_formed_anew(modules, tmp_path):
    opinion = modules.competitors.Opinion

    def asked(features, labels, value, wanted=True):
        drawn = modules.label_errors.Draw(features, labels, labels > 9)
        found = {"vote": opinion(np.full(3, value), np.zeros(3, bool))}
        kept = modules.label_errors.kept(tmp_path / "d.npz", drawn, lambda: found, wanted)
        return kept["vote"].scores[0] if kept else None

    x, y = np.arange(6.0).reshape(3, 2), np.array([0, 1, 1])
    assert asked(x, y, 1.0) == asked(x, y, 2.0) == 1
    assert asked(x + 1, y, 3.0, wanted=False) is None
    assert asked(x + 1, y, 3.0) == 3
    assert asked(x + 1, 1 - y, 4.0) == 4


def test_a_single_chosen_label_that_is_wrong_is_found_wrong(modules, monkeypatch):
    labels, true = np.array([0, 1, 1]), np.array([0, 1, 0])
    chosen = SimpleNamespace(rows=np.array([2]), wrong=0.9)
    report = SimpleNamespace(
        select=lambda **_: chosen,
        total_rate=0.3,
        lower_bound=0.1,
        upper_bound=0.4,
        suggested_labels=labels,
        suggestion_probability=np.zeros(3),
    )
    monkeypatch.setattr(modules.audit_calibration.bspml, "audit", lambda *_: report)
    numbers = modules.audit_calibration.measure(np.zeros((3, 2)), labels, true)
    assert numbers[:13].tolist() == [1 / 3, 0.3, 0.1, 0.4, *[1, 0.9, 1] * 3]
    assert ": 0.90, 1.00 |" in modules.audit_calibration.flag_row("", numbers[None])
    assert "| 1 of 1 |" in modules.audit_calibration.rate_row("", numbers[None])
    outside = numbers * 1
    outside[3] = 0.3  # the upper end, below a third
    assert "| 1 of 2 |" in modules.audit_calibration.rate_row("", np.stack([numbers, outside]))


def test_a_bar_is_missed_where_nothing_was_measured(modules, capsys):
    row = {"estimate": 0.3, "truth": 0.3, "false_alarms": 0.0, "wrong_kept": None}
    modules.noise_rate_trained.print_bars({0.3: [row]})
    assert "Missed: wrong among kept nan at 0.3." in capsys.readouterr().out


def test_what_was_chosen_for_one_network_is_not_taken_for_another(
    modules, monkeypatch, tmp_path, capsys
):
    used = []

    def one_run(method, settings, rate, seed, arguments):
        used.append(settings["loss.q"])
        better = 100 * (settings["loss.q"] == 0.5)
        keys = ("validation %", "test, best %", "test %", "noisy %", "clean %", "hybrid %")
        return dict.fromkeys(keys, float(better))

    def run(*more):
        used.clear()
        words = ["--methods", "GCE", "--seeds", "1", "--rates", "0.2", "--out", str(tmp_path)]
        monkeypatch.setattr("sys.argv", ["classification.py", *words, *more])
        modules.classification.main()
        return capsys.readouterr().out

    monkeypatch.setattr(modules.classification, "one_run", one_run)
    run("--validation")
    assert (tmp_path / "chosen-classification.json").is_file()
    assert "holds no choice" not in run()
    assert used == [0.5]
    assert "chosen-classification-resnet20-60.json holds no choice for GCE" in run(
        "--network", "resnet20"
    )
    assert used == [0.7]
