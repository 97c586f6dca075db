import logging
import os

import numpy as np
import pytest
import torch

from bspml.errors import RunError
from bspml.networks.feature_cache import store as store_module
from bspml.networks.feature_cache.store import FeatureStore

N, F = 23, 5


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(store_module, "PART", 10)


@pytest.fixture
def features():
    return np.random.default_rng(0).normal(size=(N, F)).astype(np.float32)


def store_at(folder, **identity):
    return FeatureStore(folder, {"backbone": "a:b/c", "rows": N, **identity})


class Source:
    """Rows of `features`, with a record of who asked; stops after `limit` calls."""

    def __init__(self, features, limit=99):
        self.features, self.limit, self.asked, self.skipped = features, limit, [], 0

    def rows(self, start, stop):
        if len(self.asked) == self.limit:
            raise KeyboardInterrupt
        self.asked.append((start, stop))
        return self.features[start:stop]

    def skip(self, rows):
        self.skipped += rows


def write(store, source):
    store.prepare()
    return store.write(source.rows, source.skip)


def test_what_is_written_is_read_and_is_a_plain_npy(tmp_path, features):
    store, source = store_at(tmp_path), Source(features)
    assert store.read() is None
    written = write(store, source)
    assert source.asked == [(0, 10), (10, 20), (20, 23)]
    assert torch.equal(written, torch.from_numpy(features))
    assert torch.equal(store.read(), written)
    assert store.read().dtype == torch.float32
    np.testing.assert_array_equal(np.load(store.path, allow_pickle=False), features)
    assert store.path.name.startswith("a-b-c-")
    assert list(tmp_path.iterdir()) == [store.path]  # the parts are gone
    assert b'"backbone": "a:b/c"' in store.path.read_bytes().splitlines()[-1]


def test_another_identity_is_another_file(tmp_path, features):
    write(store_at(tmp_path), Source(features))
    assert store_at(tmp_path, image_size=3).read() is None
    assert store_at(tmp_path).read() is not None


def test_a_stopped_extraction_goes_on_where_it_was(tmp_path, features):
    store = store_at(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        write(store, Source(features, limit=2))
    assert not store.path.exists()
    source = Source(features)
    assert torch.equal(write(store_at(tmp_path), source), torch.from_numpy(features))
    assert source.asked == [(20, 23)]
    assert source.skipped == 20


@pytest.mark.parametrize(
    "damage",
    [
        lambda part: part.write_bytes(part.read_bytes()[:-30]),
        lambda part: part.write_bytes(b""),
        lambda part: part.write_bytes(
            bytes(b ^ (i == 180) for i, b in enumerate(part.read_bytes()))
        ),
        lambda part: np.savez(part, features=np.zeros((3, F), np.float32)),
        lambda part: np.savez(part, features=np.array([{}], dtype=object)),
        lambda part: part.unlink(),
    ],
)
def test_damaged_parts_are_made_again(damage, tmp_path, features):
    store = store_at(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        write(store, Source(features, limit=2))
    damage(store.parts / "000000000.npz")
    source = Source(features)
    assert torch.equal(write(store, source), torch.from_numpy(features))
    assert source.asked == [(0, 10), (20, 23)]


def flip(at):
    def change(data):
        changed = bytearray(data)
        changed[at] ^= 1
        return bytes(changed)

    return change


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1000] if len(data) > 1000 else data[:200],
        lambda data: data[:300],
        lambda data: data[: data.rindex(b"\n", 0, -1)],  # the numbers are whole, the note is gone
        lambda data: b"",
        lambda data: b"hello",
        flip(128 + 7),  # a number
        flip(-12),  # the checksum
        flip(60),  # the shape
        lambda data: data.replace(b'"rows": 23', b'"rows": 24'),
    ],
)
def test_a_damaged_file_is_noticed_and_made_again(damage, tmp_path, features, caplog):
    store = store_at(tmp_path)
    write(store, Source(features))
    store.path.write_bytes(damage(store.path.read_bytes()))
    with caplog.at_level(logging.WARNING):
        assert store.read() is None
    assert "is damaged" in caplog.text
    source = Source(features)
    assert torch.equal(write(store, source), torch.from_numpy(features))
    assert len(source.asked) == 3


def test_pickles_are_not_opened(tmp_path):
    store = store_at(tmp_path)
    np.save(store.path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    assert store.read() is None


def test_pipes_are_not_waited_for(tmp_path, features):
    store = store_at(tmp_path)
    os.mkfifo(store.path)
    assert store.read() is None
    assert torch.equal(write(store, Source(features)), torch.from_numpy(features))


def test_large_files_stay_on_the_disk_and_are_not_changed(tmp_path, features, monkeypatch):
    monkeypatch.setattr(store_module, "_MAPPED", 1)
    store = store_at(tmp_path)
    found = write(store, Source(features))
    found[0, 0] = 7.0
    assert torch.equal(store.read(), torch.from_numpy(features))
    found = store.read()
    with store.path.open("r+b") as file:
        file.seek(128)  # the first number
        file.write(np.float32(3.0).tobytes())
    assert found[0, 0] == 3.0  # not a copy
    assert store.read() is None  # the checksum is looked at all the same


def test_parts_that_another_process_tidied_away_do_no_harm(tmp_path, features):
    store, other = store_at(tmp_path), store_at(tmp_path)

    class Slow(Source):
        def rows(self, start, stop):
            if start == 10:  # meanwhile the other one does all the work
                write(other, Source(self.features))
            return super().rows(start, stop)

    source = Slow(features)
    assert torch.equal(write(store, source), torch.from_numpy(features))
    assert source.asked == [(0, 10), (10, 20)]  # the rest was there
    assert list(tmp_path.iterdir()) == [store.path]


def test_parts_that_vanish_before_they_are_joined_are_made_again(tmp_path, features):
    store = store_at(tmp_path)

    class Tidied(Source):
        def rows(self, start, stop):
            if start == 20:
                for part in store.parts.iterdir():
                    part.unlink()
            return super().rows(start, stop)

    source = Tidied(features)
    assert torch.equal(write(store, source), torch.from_numpy(features))
    assert sorted(set(source.asked)) == [(0, 10), (10, 20), (20, 23)]


def test_a_full_disk_is_named_and_what_is_there_is_kept(tmp_path, features, monkeypatch):
    store, source = store_at(tmp_path), Source(features)
    real = store_module.atomic_write

    def full(path, content):
        if len(source.asked) == 2:
            raise RunError(f"{path}: cannot be written (No space left on device).")
        return real(path, content)

    monkeypatch.setattr(store_module, "atomic_write", full)
    with pytest.raises(RunError, match="No space left"):
        write(store, source)
    monkeypatch.setattr(store_module, "atomic_write", real)
    again = Source(features)
    write(store, again)
    assert again.skipped == 10
