"""CIFAR-N's label files: both formats, both spellings, the order checked, and no code run."""

import pickle
import zipfile

import numpy as np
import pytest
import torch

from bspml import noise
from bspml.data.sets import cifar_n as module
from bspml.data.sets.cifar_n import LABEL_SETS, cifar_n
from bspml.errors import DataError, InputError, MissingDependencyError
from helpers.pickles import Bomb

N = 400
CLEAN = np.random.default_rng(0).integers(0, 10, N)
KEYS = {"aggre": 0.1, "random1": 0.2, "random2": 0.2, "random3": 0.2, "worse": 0.4}


def ten():
    """A file's content in the layout of CIFAR-10_human.pt."""
    sets = {
        LABEL_SETS[name][0]: noise.symmetric(CLEAN, rate, seed=i).labels
        for i, (name, rate) in enumerate(KEYS.items())
    }
    return {"clean_label": CLEAN, **sets}


def hundred(key="noisy_label"):
    """The layout of CIFAR-100_human.pt: two arrays and two lists."""
    fine = np.arange(N) % 100
    noisy = noise.symmetric(fine, 0.4).labels
    coarse = {"clean_coarse_label": (fine // 5).tolist(), "noisy_coarse_label": [0] * N}
    return {"clean_label": fine, key: noisy, **coarse}


def write(path, content):
    if path.suffix == ".pt":
        torch.save(content, path)
    else:
        np.save(path, content, allow_pickle=True)
    return path


FORMATS = [".pt", ".npy"]


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("name", KEYS)
def test_each_label_set_of_cifar_10n(tmp_path, suffix, name):
    path = write(tmp_path / f"CIFAR-10_human{suffix}", ten())
    for asked in (name, LABEL_SETS[name][0]):
        human = cifar_n(path, asked, CLEAN)
        assert human.label_set == name
        assert human.labels.dtype == np.int64
        assert np.array_equal(human.labels, ten()[LABEL_SETS[name][0]])
        assert np.array_equal(human.true_labels, CLEAN)
        assert human.is_noisy.mean() == KEYS[name]


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("key", ["noisy_label", "noise_label"])
def test_the_only_set_of_cifar_100n_needs_no_name_in_either_spelling(tmp_path, suffix, key):
    human = cifar_n(write(tmp_path / f"CIFAR-100_human{suffix}", hundred(key)))
    assert human.label_set == "noisy"
    assert human.is_noisy.mean() == 0.4
    assert human.true_labels.tolist() == hundred()["clean_label"].tolist()


def as_numpy_1_wrote_it(path):
    """Rewrite the pickle inside a .pt file with the name that numpy's core had before 2.0."""
    import zipfile

    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    with zipfile.ZipFile(path, "w") as file:
        for name, data in members.items():
            file.writestr(name, data.replace(b"numpy._core.multiarray", b"numpy.core.multiarray"))
    return path


def test_files_of_numpy_1_are_read(tmp_path):
    path = as_numpy_1_wrote_it(write(tmp_path / "CIFAR-10_human.pt", ten()))
    assert np.array_equal(cifar_n(path, "worse").labels, ten()["worse_label"])


def test_lists_and_tensors_of_labels_pass(tmp_path):
    content = {"clean_label": CLEAN.tolist(), "worse_label": torch.from_numpy(CLEAN)}
    human = cifar_n(write(tmp_path / "CIFAR-10_human.pt", content))
    assert not human.is_noisy.any()


def test_a_plain_array_is_one_label_set(tmp_path):
    labels = ten()["worse_label"]
    path = write(tmp_path / "labels.npy", labels.astype(np.uint8))
    human = cifar_n(path)
    assert human.label_set == "array"
    assert np.array_equal(human.labels, labels)
    assert human.true_labels is None
    assert human.is_noisy is None
    assert cifar_n(path, true_labels=CLEAN).is_noisy.mean() == 0.4
    assert np.array_equal(
        cifar_n(write(tmp_path / "labels.pt", torch.from_numpy(labels))).labels, labels
    )


def test_human_labels_become_noisy_labels_with_their_transition_matrix(tmp_path):
    human = cifar_n(write(tmp_path / "CIFAR-10_human.pt", ten()), "worse", CLEAN)
    noisy = noise.from_labels(human.labels, human.true_labels)
    assert noisy.rate == 0.4
    assert np.allclose(noisy.transition_matrix().sum(1), 1)


# --- order ----------------------------------------------------------------------------------------


@pytest.fixture
def ordered(tmp_path):
    """A file in another order, and where each of its rows belongs."""
    place = np.random.default_rng(1).permutation(N)
    content = {key: labels[place] for key, labels in ten().items()}
    return write(tmp_path / "CIFAR-10_human_ordered.npy", content), place


def test_a_file_in_another_order_is_refused(ordered):
    with pytest.raises(DataError, match=r"true labels agree with `true_labels` on only .*%.*order"):
        cifar_n(ordered[0], "worse", CLEAN)


def test_the_published_order_brings_it_back(tmp_path, ordered):
    path, place = ordered
    file = write(tmp_path / "image_order_c10.npy", place)
    for order in (place, place.tolist(), torch.from_numpy(place), file, str(file)):
        human = cifar_n(path, "worse", CLEAN, order)
        assert np.array_equal(human.labels, ten()["worse_label"])
    assert np.array_equal(cifar_n(path, "worse", order=place).true_labels, CLEAN)


def test_a_plain_array_in_another_order_is_refused_although_nothing_says_what_is_true(tmp_path):
    place = np.random.default_rng(1).permutation(N)
    path = write(tmp_path / "labels.npy", ten()["aggre_label"][place])
    with pytest.raises(DataError, match=r"its labels agree with `true_labels` on only"):
        cifar_n(path, true_labels=CLEAN)
    assert cifar_n(path, true_labels=CLEAN, order=place).is_noisy.mean() == 0.1


@pytest.mark.parametrize(
    "order", [np.arange(N - 1), np.zeros(N, int), np.arange(N) + 0.0, np.arange(1, N + 1)]
)
def test_an_order_is_a_permutation(ordered, order):
    with pytest.raises(DataError, match="`order` must hold each of 0 to 399 once"):
        cifar_n(ordered[0], "worse", order=order)


# --- faults ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", FORMATS)
def test_which_labels_must_be_said_where_there_are_several(tmp_path, suffix):
    path = write(tmp_path / f"x{suffix}", ten())
    with pytest.raises(InputError, match=r"`label_set` must say .*: aggre, random1, .*, worse"):
        cifar_n(path)
    with pytest.raises(InputError, match=r"`label_set` must be one of aggre, .*; got 'noisy'"):
        cifar_n(path, "noisy")
    with pytest.raises(InputError, match="`label_set` must be one of noisy; got 'worst'"):
        cifar_n(write(tmp_path / f"y{suffix}", hundred()), "worst")
    plain = write(tmp_path / f"z{suffix}", CLEAN if suffix == ".npy" else torch.from_numpy(CLEAN))
    with pytest.raises(InputError, match="is one plain array; leave it out"):
        cifar_n(plain, "worse")


class Pointer:
    """What numpy's own classes, if allowed, would turn into a read of any memory."""

    def __reduce__(self):
        return np.ndarray, ((1,), np.dtype("O"), b"12345678")


@pytest.mark.parametrize("suffix", FORMATS)
def test_no_code_runs_and_no_pointer_is_made(tmp_path, suffix):
    marker = tmp_path / "ran"
    path = tmp_path / f"bomb{suffix}"
    write(path, {"clean_label": CLEAN, "worse_label": Bomb(marker)})
    with pytest.raises(DataError, match=r"bomb.*cannot be read as .* of labels"):
        cifar_n(path)
    assert not marker.exists()
    write(path, {"clean_label": CLEAN, "worse_label": Pointer()})
    with pytest.raises(DataError, match=r"cannot be read as .* of labels"):
        cifar_n(path)


def test_what_the_user_allowed_torch_to_load_stays_allowed_and_nothing_more(tmp_path):
    class Mine:
        pass

    torch.serialization.add_safe_globals([Mine, np.dtype])
    try:
        before = set(map(str, torch.serialization.get_safe_globals()))
        cifar_n(write(tmp_path / "CIFAR-10_human.pt", ten()), "worse")
        (tmp_path / "bad.pt").write_bytes(b"no zip")
        with pytest.raises(DataError):
            cifar_n(tmp_path / "bad.pt")
        assert set(map(str, torch.serialization.get_safe_globals())) == before
    finally:
        kept = [
            g for g in torch.serialization.get_safe_globals() if g is not Mine and g is not np.dtype
        ]
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(kept)


def test_an_old_torch_is_told_what_to_install(tmp_path, monkeypatch):
    path = write(tmp_path / "CIFAR-10_human.pt", ten())
    monkeypatch.setattr(module.torch, "__version__", torch.torch_version.TorchVersion("2.5.1"))
    with pytest.raises(MissingDependencyError, match=r"needs torch 2.6; this is 2.5.1"):
        cifar_n(path, "worse")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere.pt", "no such file.*CIFAR-10_human.pt"),
        ("labels.csv", "cannot tell its format; expected .*.pt or .npy"),
    ],
)
def test_a_file_that_is_not_there_or_of_another_kind(tmp_path, name, message):
    with pytest.raises(DataError, match=message):
        cifar_n(tmp_path / name)


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"train": [1, 2]}, "has none of CIFAR-N's label sets"),
        ({"worse_label": [0.5, 1.0]}, r"its labels \(worse\) are not class numbers"),
        ({"worse_label": ["cat", "dog"]}, r"its labels \(worse\) must be class numbers"),
        ({"worse_label": [-1, 2]}, r"its labels \(worse\) must be class numbers"),
        ({"worse_label": []}, r"its labels \(worse\) must be class numbers|not class numbers"),
        ({"worse_label": [1, 2], "clean_label": [1]}, "has 2 labels, but 1 true ones"),
        ({3: 4}, "has none of CIFAR-N's label sets"),
    ],
)
def test_a_file_of_something_else(tmp_path, suffix, content, message):
    with pytest.raises(DataError, match=message):
        cifar_n(write(tmp_path / f"x{suffix}", content))


def test_an_array_of_the_wrong_shape_or_kind(tmp_path):
    for array in (np.zeros((4, 2), int), np.array([0.5]), np.array(3), np.empty(0, int)):
        with pytest.raises(DataError, match="class numbers"):
            cifar_n(write(tmp_path / "x.npy", array))
    with pytest.raises(DataError, match=r"cannot be read as .npy of labels"):
        cifar_n(write(tmp_path / "x.npy", np.array([{"worse_label": [1]}, {}], dtype=object)))
    torch.save("text", tmp_path / "x.pt")
    with pytest.raises(DataError, match="must hold a dictionary of label sets, or an array"):
        cifar_n(tmp_path / "x.pt")


def test_labels_of_other_images(tmp_path):
    path = write(tmp_path / "CIFAR-10_human.pt", ten())
    with pytest.raises(DataError, match="has 400 labels; `true_labels` has 399"):
        cifar_n(path, "worse", CLEAN[:-1])
    with pytest.raises(DataError, match=r"on only 99\.8%"):
        cifar_n(path, "worse", np.where(np.arange(N) == 7, (CLEAN + 1) % 10, CLEAN))
    with pytest.raises(InputError, match="`true_labels` must be class numbers, not names"):
        cifar_n(path, "worse", [f"c{c}" for c in CLEAN])


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_truncated_file(tmp_path, suffix):
    path = write(tmp_path / f"CIFAR-10_human{suffix}", ten())
    data = path.read_bytes()
    for size in (0, 10, len(data) // 2, len(data) - 30):
        path.write_bytes(data[:size])
        with pytest.raises(DataError, match="cannot be read as"):
            cifar_n(path, "worse")


def test_a_pickle_by_another_name_is_not_opened_and_nobody_advises_it(tmp_path):
    (tmp_path / "x.npy").write_bytes(pickle.dumps(Bomb(tmp_path / "ran")))
    torch.save({"worse_label": Bomb(tmp_path / "ran")}, tmp_path / "x.pt")
    with zipfile.ZipFile(tmp_path / "y.pt", "w") as archive:
        archive.writestr("x/data.pkl", pickle.dumps(Bomb(tmp_path / "ran"), protocol=2))
        archive.writestr("x/version", "3")
    header = b"\x93NUMPY\x02\x00" + (2**20).to_bytes(4, "little") + b" " * 2**20
    (tmp_path / "long.npy").write_bytes(header)
    for name in ("x.npy", "x.pt", "y.pt", "long.npy"):
        with pytest.raises(DataError, match="cannot be read") as caught:
            cifar_n(tmp_path / name)
        advice = ("weights_only", "allow_pickle", "unsafe", "trust", "safe_globals")
        assert not [word for word in advice if word in str(caught.value)]
    assert not (tmp_path / "ran").exists()
