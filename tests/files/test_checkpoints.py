import os
import pickle
import random
import subprocess
import sys
import zipfile
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch

from bspml.errors import CheckpointError, InputError
from bspml.files import checkpoints
from bspml.files.checkpoints import fingerprint, generator_states, load, restore_generators, save

_FULL_DISK = """
import resource, sys, torch
from bspml.files.checkpoints import save
from bspml.errors import RunError
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))
try:
    save(sys.argv[1], {"a": torch.zeros(100_000)})
except RunError as err:
    print(err)
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "checkpoint.pt"


def state():
    return {
        "tensor": torch.arange(50_000, dtype=torch.float64),
        "nested": OrderedDict(a=[1, 2.5, None, "x", True], b=(1, {2: torch.ones(2)})),
        "generator": np.random.default_rng(0).bit_generator.state,  # 128-bit whole numbers
    }


def test_a_state_reads_back_as_saved(path):
    save(path, state(), "f00")
    got, want = load(path, "f00"), state()
    assert torch.equal(got["tensor"], want["tensor"])
    assert got["nested"]["a"] == want["nested"]["a"]
    assert torch.equal(got["nested"]["b"][1][2], torch.ones(2))
    assert got["generator"] == want["generator"]


def test_network_and_optimiser_states_are_plain(path):
    network = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    optimiser = torch.optim.AdamW(network.parameters(), lr=0.1)
    network(torch.ones(3, 2)).sum().backward()
    optimiser.step()
    save(path, {"network": network.state_dict(), "optimiser": optimiser.state_dict()})
    got = load(path)
    network.load_state_dict(got["network"])
    optimiser.load_state_dict(got["optimiser"])


@pytest.mark.parametrize(
    ("value", "where"),
    [
        (np.float32(1), r"state\['a'\]\['b'\]\[1\]` must be a tensor.*got float32"),
        (np.zeros(2), "got ndarray"),
        (Path("x"), "got P"),
        ({1, 2}, "got set"),
        ({(1, 2): 3}, r"has a key \(1, 2\)"),
    ],
)
def test_what_could_not_be_read_back_is_refused_before_writing(path, value, where):
    with pytest.raises(InputError, match=where):
        save(path, {"a": {"b": [0, value]}})
    assert not path.exists()


def test_a_missing_checkpoint_says_to_start_anew(path):
    with pytest.raises(CheckpointError, match=r"checkpoint\.pt: no such checkpoint.*start it anew"):
        load(path)


def test_a_folder_is_no_checkpoint(tmp_path):
    with pytest.raises(CheckpointError, match="is a folder, not a checkpoint"):
        load(tmp_path)


def test_a_pipe_is_not_waited_for(path):
    os.mkfifo(path)
    with pytest.raises(CheckpointError, match="is a pipe"):
        load(path)


def test_an_empty_checkpoint_is_said_to_be_empty(path):
    path.touch()
    with pytest.raises(CheckpointError, match=r"is empty\. Use another checkpoint"):
        load(path)


@pytest.mark.parametrize("share", [0.001, 0.5, 0.999])
def test_a_truncated_checkpoint_is_said_to_be_damaged(path, share):
    save(path, state())
    whole = path.read_bytes()
    path.write_bytes(whole[: max(5, int(share * len(whole)))])
    with pytest.raises(CheckpointError, match="is truncated or damaged"):
        load(path)


def test_a_flipped_bit_in_a_tensor_is_noticed(path):
    save(path, state())
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x40
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="is damaged"):
        load(path)


class Malicious:
    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (self.mark,)


@pytest.mark.parametrize("as_torch_file", [True, False])
def test_a_pickle_that_runs_code_is_refused_and_does_not_run(path, tmp_path, as_torch_file):
    mark = tmp_path / "ran"
    if as_torch_file:
        torch.save({"format": checkpoints.FORMAT, "state": Malicious(str(mark))}, path)
    else:
        path.write_bytes(pickle.dumps(Malicious(str(mark))))
    with pytest.raises(CheckpointError, match=r"could run code; refused|is not a bspml checkpoint"):
        load(path)
    assert not mark.exists()


def _zip(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x", "y")


@pytest.mark.parametrize(
    "write",
    [
        lambda path: path.write_text("hello\nworld"),
        lambda path: path.write_bytes(bytes(range(256)) * 10),
        lambda path: path.write_bytes(pickle.dumps({"a": 1})),
        lambda path: torch.save({"weight": torch.ones(2)}, path),
        lambda path: torch.save(torch.ones(2), path),
        lambda path: torch.save({"a": 1}, path, _use_new_zipfile_serialization=False),
        _zip,
    ],
)
def test_a_foreign_file_is_said_to_be_foreign_in_one_line(path, write):
    write(path)
    with pytest.raises(CheckpointError, match=r"checkpoint\.pt: is not a bspml checkpoint") as err:
        load(path)
    assert "\n" not in str(err.value)


@pytest.mark.parametrize("change", [{"version": "1"}, {"version": None}, {"state": 3}])
def test_a_header_with_holes_is_foreign(path, change):
    save(path, {})
    content = torch.load(path, weights_only=True) | change
    torch.save(content, path)
    with pytest.raises(CheckpointError, match="is not a bspml checkpoint"):
        load(path)


def test_a_newer_format_asks_for_an_upgrade(path, monkeypatch):
    monkeypatch.setattr(checkpoints, "VERSION", 2)
    save(path, {})
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match=r"\(format 2\).*\(format 1\)\. Upgrade"):
        load(path)


def test_other_data_is_noticed_when_asked(path):
    save(path, {"a": 1}, "0123456789")
    assert load(path) == {"a": 1}
    with pytest.raises(
        CheckpointError, match=r"the data set changed since the checkpoint .*01234567"
    ):
        load(path, "abcdef")


@pytest.mark.slow  # the full disk of tests/experiment/test_run.py is a process, too
def test_a_full_disk_leaves_the_older_checkpoint(path):
    save(path, {"a": 1})
    done = subprocess.run(
        [sys.executable, "-c", _FULL_DISK, str(path)], capture_output=True, text=True, check=True
    )
    assert f"{path}: cannot be written (File too large)" in done.stdout
    assert load(path) == {"a": 1}
    assert [p.name for p in path.parent.iterdir()] == [path.name]


IMAGES = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)


def test_the_fingerprint_sees_content_shape_type_labels_and_order():
    base = fingerprint(IMAGES, [0, 1])
    others = [
        fingerprint(IMAGES + 1, [0, 1]),
        fingerprint(IMAGES.reshape(2, 4, 3), [0, 1]),
        fingerprint(IMAGES.astype(np.int16), [0, 1]),
        fingerprint(IMAGES, [1, 0]),
        fingerprint(IMAGES, ["0", "1"]),
        fingerprint(IMAGES[::-1], [0, 1]),
        fingerprint(None, [0, 1]),
    ]
    assert len({base, *others}) == 8
    assert len(base) == 32


def test_the_fingerprint_is_blind_to_how_the_same_data_is_held():
    base = fingerprint(IMAGES, [0, 1])
    assert fingerprint(torch.from_numpy(IMAGES), torch.tensor([0, 1])) == base
    assert fingerprint(np.asfortranarray(IMAGES), np.array([0, 1], dtype=np.int32)) == base
    assert fingerprint(np.zeros((0, 3)), []) == fingerprint(np.zeros((0, 3)), [])


def test_texts_do_not_run_into_each_other():
    assert fingerprint(["ab", "c"], [0, 1]) != fingerprint(["a", "bc"], [0, 1])


def test_paths_count_by_name_and_size_so_that_data_may_move(tmp_path):
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
        (folder / "x.png").write_bytes(b"123")
    first, second = (fingerprint([folder / "x.png"], [0]) for folder in folders)
    assert first == second
    (tmp_path / "b" / "x.png").write_bytes(b"1234")
    assert fingerprint([tmp_path / "b" / "x.png"], [0]) != first


def draw():
    return (
        torch.rand(3).tolist(),
        np.random.standard_normal(3).tolist(),  # noqa: NPY002  an odd count leaves one in store
        random.random(),
        random.gauss(0, 1),
    )


def test_generators_go_on_where_they_were_after_a_trip_through_a_file(path):
    kept = generator_states()
    try:
        draw()
        save(path, {"generators": generator_states()})
        expected = draw()
        draw()
        restore_generators(load(path)["generators"])
        assert draw() == expected
    finally:
        restore_generators(kept)  # other tests find the global generators untouched
