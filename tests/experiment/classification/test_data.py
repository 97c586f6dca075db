"""Images and targets: what is planted, what is held out, and labels from files."""

import numpy as np
import pytest
import torch

from bspml.data.image_split import ImageSplit, held_out_rows
from bspml.data.sets.digits import digits
from bspml.errors import ConfigError, DataError
from bspml.experiment.classification import data as module
from bspml.experiment.classification.data import load_data
from bspml.experiment.config import load_experiment


def data_of(*settings, task="classification"):
    return load_data(load_experiment(None, [f"task={task}", *settings]))


@pytest.fixture
def small_cifar(monkeypatch):
    """CIFAR in small: (10 or 100) classes of 20 training and 2 test images."""

    def fake(classes):
        def load(root, split):
            each = 20 if split == "train" else 2
            labels = np.arange(classes).repeat(each)
            images = np.zeros((len(labels), 32, 32, 3), dtype=np.uint8)
            images[..., 1] = labels[:, None, None]
            groups = np.arange(classes) // 5
            names = tuple(f"class {c}" for c in range(classes))
            return ImageSplit(images, labels, names, ("a",) * (classes // 5), groups)

        return load

    monkeypatch.setattr(module, "cifar10", fake(10))
    monkeypatch.setattr(module, "cifar100", fake(100))


def test_digits_with_symmetric_noise():
    data = data_of("noise.rate=0.4")
    truth = torch.from_numpy(digits("train").labels)
    assert torch.equal(data.true_targets, truth)
    assert int(data.is_noisy.sum()) == round(0.4 * len(truth))
    assert torch.equal(data.is_noisy, data.targets != truth)
    assert torch.equal(data.test_targets, torch.from_numpy(digits("test").labels))
    assert data.images.shape == (1198, 1, 8, 8)
    assert data.images.dtype == torch.uint8
    assert (data.num_outputs, data.image_shape, data.held_out) == (10, (1, 8, 8), "test")


def test_a_regression_has_numbers_for_targets():
    data = data_of("noise.rate=0.3", task="regression")
    assert data.targets.dtype == torch.float32
    assert data.num_outputs == 1
    assert data.noise_rate == pytest.approx(0.3, abs=1e-3)
    wrong = data.targets[data.is_noisy]
    assert ((wrong >= 0) & (wrong <= 9)).all()
    assert (wrong != wrong.round()).any()


def test_without_noise_every_target_is_true():
    data = data_of("noise.kind=none")
    assert torch.equal(data.targets, data.true_targets)
    assert data.noise_rate == 0


def test_the_noise_seed_is_the_experiments_or_its_own():
    base = data_of("seed=1").targets
    assert torch.equal(base, data_of("seed=5", "noise.seed=1").targets)
    assert not torch.equal(base, data_of("seed=5").targets)


def test_validation_holds_out_noisy_training_images_and_never_looks_at_the_test_split(
    monkeypatch,
):
    def only_train(split):
        assert split == "train"
        return digits(split)

    monkeypatch.setattr(module, "digits", only_train)
    data = data_of("data.validation=true")
    assert data.held_out == "validation"
    assert len(data.images) + len(data.test_images) == 1198
    # A fifth of each class of ten.
    assert len(data.test_images) == pytest.approx(1198 / 5, abs=5)
    # The held-out images have the labels that were planted before they were held out.
    monkeypatch.undo()
    whole = data_of()
    rows = {
        image.numpy().tobytes(): int(t)
        for image, t in zip(whole.images, whole.targets, strict=True)
    }
    for image, target in zip(data.test_images, data.test_targets, strict=True):
        assert rows[image.numpy().tobytes()] == int(target)


def test_what_is_held_out_depends_on_no_seed():
    a, b = data_of("data.validation=true"), data_of("data.validation=true", "seed=9")
    assert torch.equal(a.test_images, b.test_images)
    assert not torch.equal(a.targets, b.targets)


def test_a_subset_keeps_that_many_training_images_and_all_test_images():
    data = data_of("data.subset=100")
    assert len(data.images) == len(data.targets) == len(data.is_noisy) == 100
    assert len(data.test_images) == 599
    with pytest.raises(ConfigError, match=r"`data.subset` is 5000, .* has 1198 samples; lower it"):
        data_of("data.subset=5000")


@pytest.mark.parametrize("seed", [0, 1])
def test_a_subset_and_a_held_out_part_are_as_noisy_as_the_whole(seed):
    # All three choices are random; drawn alike, a subset would hold wrong labels only.
    assert data_of("data.subset=400", f"seed={seed}").noise_rate == pytest.approx(0.4, abs=0.08)
    data = data_of("data.subset=400", "data.validation=true", f"seed={seed}")
    assert data.noise_rate == pytest.approx(0.4, abs=0.08)
    truth = {i.numpy().tobytes(): int(t) for i, t in zip(*_whole(), strict=True)}
    wrong = [
        truth[i.numpy().tobytes()] != int(t)
        for i, t in zip(data.test_images, data.test_targets, strict=True)
    ]
    assert np.mean(wrong) == pytest.approx(0.4, abs=0.1)


def _whole():
    data = data_of("noise.kind=none")
    return data.images, data.targets


def test_channel_statistics_are_those_of_all_pixels(small_cifar):
    data = data_of("data.name=cifar10", "data.root=x")
    mean, deviation = data.channel_statistics()
    pixels = data.images.double().numpy() / 255
    np.testing.assert_allclose(mean, pixels.mean((0, 2, 3)), atol=1e-12)
    # A channel without any variation is left as it is.
    assert deviation[0] == deviation[2] == 1
    np.testing.assert_allclose(deviation[1], pixels[:, 1].std(), atol=1e-12)


def test_images_come_channels_first(small_cifar):
    data = data_of("data.name=cifar10", "data.root=x", "noise.kind=none")
    assert data.images.shape == (200, 3, 32, 32)
    assert torch.equal(data.images[:, 1, 0, 0].long(), data.targets)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cifar10", "pair-flip"),
        ("cifar10", "cifar10-pairs"),
        ("cifar100", "sibling-flip"),
        ("cifar100", "sibling-swap"),
    ],
)
def test_asymmetric_noise_confuses_the_classes_it_should(small_cifar, name, kind):
    data = data_of(f"data.name={name}", "data.root=x", f"noise.kind={kind}", "noise.rate=0.4")
    true, given = data.true_targets[data.is_noisy], data.targets[data.is_noisy]
    pairs = {(int(a), int(b)) for a, b in zip(true, given, strict=True)}
    if kind == "pair-flip":
        assert pairs == {(c, (c + 1) % 10) for c in range(10)}
    elif kind == "cifar10-pairs":
        assert pairs == {(9, 1), (2, 0), (4, 7), (3, 5), (5, 3)}
    else:
        assert all(a // 5 == b // 5 and a != b for a, b in pairs)
    if kind == "sibling-swap":
        # Two of five classes in each superclass, 40 % of each, and both ways.
        assert len(pairs) == 40
        assert {(b, a) for a, b in pairs} == pairs
        assert data.noise_rate == pytest.approx(0.4 * 2 / 5)


def test_keep_original_may_leave_a_drawn_label_as_it_was():
    drawn = data_of("noise.rate=0.5", "noise.keep_original=true")
    assert drawn.noise_rate == pytest.approx(0.5 * 0.9, abs=0.03)


def test_labels_may_come_from_a_file_as_names_or_numbers(tmp_path):
    truth = digits("train").labels
    given = truth.copy()
    given[:50] = (given[:50] + 1) % 10
    np.save(tmp_path / "y.npy", given)
    data = data_of(f"noise.labels_file={tmp_path / 'y.npy'}")
    assert int(data.is_noisy.sum()) == 50
    assert data.is_noisy[:50].all()
    (tmp_path / "y.csv").write_text("label\n" + "\n".join(map(str, given)) + "\n")
    again = data_of(f"noise.labels_file={tmp_path / 'y.csv'}")
    assert torch.equal(again.targets, data.targets)


def test_samples_decided_to_be_wrong_are_left_out(tmp_path):
    truth = digits("train").labels
    given = truth.copy()
    given[:50] = (given[:50] + 1) % 10
    rows = [f"{i},{y},{0.0 if i < 60 else 1.0},{'wrong' * (i < 40)}" for i, y in enumerate(given)]
    rows[59] += "unsure"  # and 40 to 58 were flagged by the audit, and nobody looked at them
    file = tmp_path / "labels-corrected.csv"
    file.write_text("\n".join(["index,label,weight,decision", *rows[::-1]]) + "\n")
    data, held = data_of(f"noise.labels_file={file}"), data_of("data.validation=true")
    assert torch.equal(data.targets, torch.from_numpy(given[40:]))
    assert int(data.is_noisy.sum()) == 10
    both = data_of(f"noise.labels_file={file}", "data.validation=true")
    left_out = np.arange(len(given)) < 40
    in_test = held_out_rows(truth, 0.2)
    assert len(both.test_targets) == len(held.test_targets) - (left_out & in_test).sum()
    assert len(both.targets) == (~left_out & ~in_test).sum()


def test_cifar_n_files_are_read_by_the_name_of_their_label_set(small_cifar, tmp_path):
    truth = np.arange(10).repeat(20)
    worse = truth.copy()
    worse[:7] = 9
    labels = {"clean_label": truth, "worse_label": worse, "aggre_label": truth}
    torch.save(labels, tmp_path / "n.pt")
    common = ("data.name=cifar10", "data.root=x", f"noise.labels_file={tmp_path / 'n.pt'}")
    assert int(data_of(*common, "noise.label_set=worse").is_noisy.sum()) == 7
    with pytest.raises(ConfigError, match=r"`noise\.label_set` must say which labels of n\.pt"):
        data_of(*common)


@pytest.mark.parametrize(
    ("lines", "settings", "kind", "message"),
    [
        (["1"] * 3, [], DataError, "has 3 labels; the training split of digits has 1198"),
        (["11"] * 1198, [], DataError, "the label '11' of sample 0 is none of the 10 classes"),
        (["cat"] * 1198, [], DataError, "the label 'cat' of sample 0 is none of the 10 classes"),
        (["1"] * 1198, ["noise.label_set=worse"], ConfigError, "is no file of CIFAR-N"),
    ],
)
def test_a_file_of_other_labels_is_refused(tmp_path, lines, settings, kind, message):
    (tmp_path / "y.csv").write_text("label\n" + "\n".join(lines) + "\n")
    with pytest.raises(kind, match=message):
        data_of(f"noise.labels_file={tmp_path / 'y.csv'}", *settings)


def test_missing_files_of_cifar_are_named(tmp_path):
    with pytest.raises(DataError, match="the files of CIFAR-10"):
        data_of("data.name=cifar10", f"data.root={tmp_path}")


def test_the_fingerprint_follows_images_and_targets():
    same, other = data_of("seed=1"), data_of("seed=2")
    assert same.fingerprint == data_of("seed=1").fingerprint != other.fingerprint
