import logging
import os
import zipfile

import numpy as np
import pytest

from bspml.errors import RunError
from bspml.networks.feature_cache.store import FeatureStore

N, F = 6, 5
KEYS = [f"{i:032x}".encode() for i in range(N)]


@pytest.fixture
def features():
    return np.random.default_rng(0).normal(size=(N, F)).astype(np.float32)


def store_at(folder, **identity):
    return FeatureStore(folder, {"backbone": "a:b/c", **identity})


def added(store, features, *parts):
    store.prepare()
    for rows in parts:
        store.add([KEYS[i] for i in rows], features[rows])
    return store


def read(store, rows):
    return store.read({KEYS[row]: place for place, row in enumerate(rows)})


def test_what_is_added_is_read_in_any_order_and_part(tmp_path, features):
    store = added(store_at(tmp_path), features, [0, 1, 2], [3, 4])
    assert store.folder.name.startswith("a-b-c-")
    found, known = read(store, [4, 0, 5, 2])
    assert found.dtype == np.float32
    assert known.tolist() == [True, True, False, True]
    np.testing.assert_array_equal(found[known], features[[4, 0, 2]])
    found, known = read(store, [5])
    assert (found.shape, known.tolist()) == ((1, 0), [False])


def test_an_empty_cache_knows_nothing(tmp_path):
    found, known = read(store_at(tmp_path / "none"), [0, 1])
    assert (found.shape, known.tolist()) == ((2, 0), [False, False])


def test_another_identity_is_another_folder(tmp_path, features):
    store = added(store_at(tmp_path), features, range(N))
    other = store_at(tmp_path, view="whole")
    assert not read(other, [0])[1].any()
    (file,) = store.folder.iterdir()
    other.prepare()
    (other.folder / file.name).write_bytes(file.read_bytes())  # moved by hand
    assert not read(other, [0])[1].any()


def test_behind_a_link_nothing_is_read_removed_or_written(tmp_path, features):
    (tmp_path / "far").mkdir()
    (tmp_path / "far/mine.npz").write_bytes(b"no features")
    store = store_at(tmp_path)
    store.folder.symlink_to("far")
    assert not read(store, [0])[1].any()
    with pytest.raises(RunError, match="is a symbolic link"):
        store.prepare()
    assert [path.name for path in (tmp_path / "far").iterdir()] == ["mine.npz"]


def test_two_who_make_the_same_write_the_same_file(tmp_path, features):
    store = store_at(tmp_path)
    added(store, features, [0, 1])
    assert store.read_part([KEYS[0]]) is None
    np.testing.assert_array_equal(store.read_part(KEYS[:2]), features[:2])
    added(store_at(tmp_path), features, [0, 1])
    assert len(list(store.folder.iterdir())) == 1


def flip(at):
    def change(data):
        changed = bytearray(data)
        changed[at] ^= 1
        return bytes(changed)

    return change


def inside(name, beyond=150):
    """Flip a bit of an array, behind its header."""

    def change(data):
        return flip(data.index(name.encode()) + beyond)(data)

    return change


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-30],
        lambda data: data[:300],
        lambda data: b"",
        lambda data: b"hello",
        inside("identity.npy"),
        inside("keys.npy"),
        inside("features.npy"),
        inside("features.npy", 60),  # the shape
    ],
)
def test_a_damaged_file_is_told_removed_and_never_trusted(damage, tmp_path, features, caplog):
    store = added(store_at(tmp_path), features, [0, 1, 2], [3, 4, 5])
    file = store._file(KEYS[:3])
    file.write_bytes(damage(file.read_bytes()))
    with caplog.at_level(logging.WARNING):
        found, known = read(store, range(N))
    assert known.tolist() == [False] * 3 + [True] * 3
    np.testing.assert_array_equal(found[known], features[3:])
    assert f"{file} is damaged" in caplog.text
    assert not file.exists()


@pytest.mark.parametrize(
    "arrays",
    [
        {"features": np.array([{}], dtype=object)},
        {"features": np.zeros((1, F))},
        {"features": np.zeros((2, F), np.float32)},
        {"features": np.zeros((1, F + 1), np.float32)},
        {"keys": np.array([{}], dtype=object)},
        {},
    ],
)
def test_pickles_and_other_arrays_are_not_taken(arrays, tmp_path, features, caplog):
    store = added(store_at(tmp_path), features, [1])
    good = {"identity": np.array(store._words), "keys": np.array(KEYS[:1])}
    np.savez(store.folder / "zzz.npz", **{**good, **arrays})
    found, known = read(store, [0, 1])
    assert known.tolist() == [False, True]
    np.testing.assert_array_equal(found[1], features[1])
    assert "zzz.npz is damaged" in caplog.text


def test_numbers_are_stored_as_they_are(tmp_path, features):
    store = added(store_at(tmp_path), features, range(N))
    (file,) = store.folder.iterdir()
    with zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None
        assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}


def test_pipes_are_not_waited_for(tmp_path, features):
    store = added(store_at(tmp_path), features, [1])
    os.mkfifo(store.folder / "a.npz")
    assert read(store, [0, 1])[1].tolist() == [False, True]
