"""PRISM's lists: matched by file, numbers understood, faults tolerated and stated."""

import gzip

import numpy as np
import pytest
import torch

from bspml.data.labels.noise_lists import read_noise_list
from bspml.data.retrieval import RetrievalSplit
from bspml.errors import DataError, InputError


def split_of(labels, paths, tmp_path):
    labels = np.array(labels, dtype=str)
    return RetrievalSplit("train", labels, root=tmp_path, paths=tuple(paths))


@pytest.fixture
def birds(tmp_path):
    """Classes 001 to 010, ten images each, in another order than the list's."""
    labels = [f"{c:03d}.Bird" for c in range(1, 11) for _ in range(10)]
    paths = [f"{label}/{i}.jpg" for i, label in enumerate(labels)]
    order = np.random.default_rng(0).permutation(100)
    return split_of([labels[i] for i in order], [paths[i] for i in order], tmp_path)


def save(path, paths, numbers, prefix="/data/CUB_200_2011/images/"):
    text = "".join(f"{prefix}{p},{n}\n" for p, n in zip(paths, numbers, strict=True))
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def true_numbers(split):
    return np.array([int(label[:3]) for label in split.labels])


@pytest.mark.parametrize("name", ["CUB_0.2noised_train.csv", "CUB_0.2noised_train.csv.gz"])
def test_labels_come_in_the_order_of_the_split_with_their_rate(birds, tmp_path, name):
    numbers = true_numbers(birds)
    numbers[:30] = numbers[:30] % 10 + 1  # the next class, always another
    back = np.argsort(birds.paths)
    path = save(tmp_path / name, np.array(birds.paths)[back], numbers[back])
    noisy = read_noise_list(path, birds)
    assert noisy.labels.tolist() == [f"{n:03d}.Bird" for n in numbers]
    assert noisy.is_noisy.tolist() == [True] * 30 + [False] * 70
    assert (noisy.true_labels == birds.labels).all()
    assert (noisy.rate, noisy.nominal_rate, noisy.numbering) == (0.3, 0.2, "class numbers")
    assert noisy.notes == ("Its name says 20% noise; it contains 30.00%.",)


def test_two_images_do_not_share_a_row(tmp_path):
    paths = ["a/s/1.jpg", "a/s/2.jpg", "b/s/1.jpg", "b/s/3.jpg"]
    path = save(tmp_path / "l.csv", ["s/1.jpg", "s/2.jpg", "s/3.jpg"], [1, 1, 2])
    with pytest.raises(DataError, match=r"several images of the split end in s/1\.jpg"):
        read_noise_list(path, split_of(["a", "a", "b", "b"], paths, tmp_path))


def test_a_label_past_the_last_class_is_wrong_and_keeps_its_number(birds, tmp_path):
    """Numbers from 1 with noise drawn up to C + 1: the published lists hold 101."""
    numbers = true_numbers(birds)
    numbers[4] = 11
    noisy = read_noise_list(save(tmp_path / "l.csv", birds.paths, numbers), birds)
    assert noisy.labels[4] == "11"
    assert noisy.is_noisy.sum() == 1
    assert noisy.nominal_rate is None
    assert "1 labels (11) are numbers of no class of this split (its noise was" in noisy.notes[0]


def test_cluster_numbers_are_read_as_the_class_of_their_majority(birds, tmp_path):
    """Half of the classes dissolved into the others; clusters numbered from 0, in no order."""
    numbers = true_numbers(birds)
    left = {3: 0, 9: 1, 1: 2, 7: 3, 5: 4}
    rng = np.random.default_rng(1)
    clusters = np.array([left.get(n, rng.integers(5)) for n in numbers])
    path = save(tmp_path / "CUB_0.5smallclusternoised_train.csv", birds.paths, clusters)
    noisy = read_noise_list(path, birds)
    assert noisy.numbering == "clusters"
    assert (noisy.is_noisy == (numbers % 2 == 0)).all()
    assert noisy.rate == noisy.nominal_rate == 0.5
    assert "those of 5 clusters" in noisy.notes[0]


def test_small_classes_are_not_taken_for_clusters(tmp_path):
    """Two images a class, half of them wrong: any numbers can be fitted by majorities."""
    labels = [f"sofa/{c:05d}" for c in range(1, 201) for _ in range(2)]
    paths = [f"sofa_final/{i}.JPG" for i in range(400)]
    split = split_of(labels, paths, tmp_path)
    numbers = np.repeat(np.arange(1, 201), 2)
    numbers[::2] = numbers[::2] % 200 + 1
    noisy = read_noise_list(save(tmp_path / "SOP_0.5noised.csv", paths, numbers), split)
    assert (noisy.numbering, noisy.rate) == ("class numbers", 0.5)


@pytest.fixture
def cars(tmp_path):
    """Class numbers not in order of the names; one class has the same number in both folders."""
    rows = [
        ("Zeta 2000", "cars_train/00001.jpg"),
        ("Acura C/V 2001", "cars_train/00002.jpg"),
        ("Acura C/V 2001", "cars_train/00003.jpg"),
        ("Zeta 2000", "cars_test/00001.jpg"),
        ("Zeta 2000", "cars_test/00002.jpg"),
    ]
    return split_of([label for label, _ in rows], [path for _, path in rows], tmp_path)


CARS_LIST = (
    [
        *("Zeta 2000/00001.jpg", "Zeta 2000/00001_2.jpg", "Zeta 2000/00002.jpg"),
        *("Acura C-V 2001/00002.jpg", "Acura C-V 2001/00003.jpg"),
    ],
    [2, 1, 2, 1, 1],
)


def test_cars_are_found_by_class_and_number_and_read_by_name(cars, tmp_path):
    noisy = read_noise_list(save(tmp_path / "CARS_0.1noised.csv", *CARS_LIST), cars)
    assert noisy.numbering == "by name, from 1"
    # The second of two equal names is the one of cars_test.
    assert noisy.is_noisy.tolist() == [False, False, False, True, False]
    assert noisy.labels[3] == "Acura C/V 2001"
    assert noisy.notes[0].startswith("1 images share class and number")
    assert "alphabetical order" in noisy.notes[1]


def test_cars_in_a_folder_per_class_do_not_share_a_row(cars, tmp_path):
    """There the last two parts of both paths are the same."""
    paths = [
        f"{path.split('/')[0][5:]}/{label.replace('/', '-')}/{path.split('/')[1]}"
        for label, path in zip(cars.labels, cars.paths, strict=True)
    ]
    split = split_of(cars.labels, paths, tmp_path)
    noisy = read_noise_list(save(tmp_path / "CARS_0.1noised.csv", *CARS_LIST), split)
    assert noisy.is_noisy.tolist() == [False, False, False, True, False]


def test_a_part_of_a_data_set_takes_its_rows(birds, tmp_path):
    numbers = true_numbers(birds)
    numbers[0] = numbers[0] % 10 + 1
    path = save(tmp_path / "l.csv", birds.paths, numbers)
    part = birds.take(birds.labels == birds.labels[0])
    noisy = read_noise_list(path, part)
    assert len(noisy.labels) == 10
    assert noisy.is_noisy.sum() == 1
    assert "90 of its rows are of images not in this split." in noisy.notes
    assert "(the split is a part)" in noisy.notes[0]


@pytest.mark.parametrize("without", [[], [2], [2, 3, 7], [0], range(5, 10), range(0, 10, 2)])
def test_numbers_count_the_classes_of_the_list_whatever_part_is_there(tmp_path, without):
    names = [f"Car {letter} {'C/V' if letter == 'd' else 'GT'}" for letter in "abcdefghij"]
    truth = np.repeat(np.arange(10), 10)
    numbers = truth.copy()
    numbers[::5] = (truth[::5] + 1) % 10
    paths = [f"cars_train/{i:05d}.jpg" for i in range(100)]
    split = split_of([names[i] for i in truth], paths, tmp_path)
    listed = [f"{names[c].replace('/', '-')}/{i:05d}.jpg" for i, c in enumerate(truth)]
    path = save(tmp_path / "CARS_0.2noised.csv", listed, numbers + 1)
    is_here = ~np.isin(truth, without)
    noisy = read_noise_list(path, split.take(is_here))
    assert noisy.numbering == "by name, from 1"
    known = [f"{n + 1}" if n in without else names[n] for n in numbers[is_here]]
    assert noisy.labels.tolist() == known
    assert noisy.rate == 0.2


def test_file_names_with_commas_headers_and_blank_lines(birds, tmp_path):
    split = split_of(["a", "b"], ["x/1,2.jpg", "x/3.jpg"], tmp_path)
    (tmp_path / "l.csv").write_text("path,label\n/d/x/1,2.jpg,1\n\n/d/x/3.jpg,2\n")
    assert read_noise_list(tmp_path / "l.csv", split).rate == 0


def test_lists_of_something_else_are_refused(birds, tmp_path):
    numbers = true_numbers(birds)
    path = save(tmp_path / "l.csv", birds.paths[1:], numbers[1:])
    with pytest.raises(DataError, match=r"no row for 1 of the 100 images of the split, the first"):
        read_noise_list(path, birds)
    path = save(tmp_path / "l.csv", birds.paths, np.full(100, 500))
    with pytest.raises(DataError, match=r"agree with the classes on at most .*another data set"):
        read_noise_list(path, birds)
    path = save(tmp_path / "l.csv", birds.paths[:1] * 2, [1, 1])
    with pytest.raises(DataError, match=r"l\.csv, line 2: .* comes up twice"):
        read_noise_list(path, birds)
    features = RetrievalSplit("train", birds.labels, features=torch.zeros(100, 1))
    with pytest.raises(InputError, match="`split` must have paths"):
        read_noise_list(save(tmp_path / "l.csv", birds.paths, numbers), features)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("l.csv", b"/d/x/1.jpg,1\n/d/x/2.jpg\n", r"l\.csv, line 2: expected path,label"),
        ("l.csv", b"", "holds no rows"),
        ("l.csv", b"\xff\xfe\x00,1", "cannot be read as a list"),
        ("l.csv", b"/d/x/1.jpg," + b"9" * 30, r"line 1: 9+\.\.\. is no class number"),
        ("l.csv", b"/d/x/1.jpg," + b"9" * 6000, r"line 1: 9+\.\.\. is no class number"),
        ("l.csv", b"x" * 200_000 + b",1\n", "has no row for 100 of the 100 images"),
        ("l.csv.gz", b"/d/x/1.jpg,1\n", "cannot be read as a list"),
        ("l.csv.gz", gzip.compress(b"/d/x/1.jpg,1\n", mtime=0)[:-9], "cannot be read as a list"),
    ],
)
def test_damaged_lists_are_named(birds, tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_noise_list(tmp_path / name, birds)


@pytest.mark.parametrize("end", ["\r\n", "\r", "\n\n"])
def test_line_ends_do_not_matter(tmp_path, end):
    split = split_of(["a", "b"], ["x/1.jpg", "x/3.jpg"], tmp_path)
    (tmp_path / "l.csv").write_bytes(end.join(["/d/x/1.jpg,1", "/d/x/3.jpg,2"]).encode())
    assert read_noise_list(tmp_path / "l.csv", split).rate == 0


def test_a_missing_list_is_named(birds, tmp_path):
    with pytest.raises(DataError, match=r"cannot be read \(File name too long"):
        read_noise_list("a" * 5000, birds)
    with pytest.raises(DataError, match="no such list of noisy labels"):
        read_noise_list(tmp_path / "no.csv", birds)
