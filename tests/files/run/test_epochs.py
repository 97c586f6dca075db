import json
import math
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from bspml.errors import RunError
from bspml.files import atomic
from bspml.files.run import EpochRecord, RecordLog
from bspml.files.run.plain import to_json

_FULL_DISK = """
import resource, sys
from bspml.errors import RunError
from bspml.files.run import EpochRecord, RecordLog
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    RecordLog(sys.argv[1]).append(EpochRecord("bspml", 2))
except RunError as err:
    print(err)
"""


@pytest.fixture
def log(tmp_path):
    return RecordLog(tmp_path / "records.jsonl")


def records(count):
    return [EpochRecord("bspml", e, loss=1 / e, recall_at_k={1: 0.5}) for e in range(1, count + 1)]


def test_records_read_back_as_written(log):
    written = [
        EpochRecord("plain", 0.5, steps=3, recall_at_k={1: 0.25, 10: None}, notes=("a\nb",)),
        EpochRecord("bspml", 1, noise_rate=0.3, extra={"status": "stationary", "é": [1, None]}),
    ]
    for record in written:
        log.append(record)
    assert log.read() == written
    assert len(log) == 2
    assert log.path.read_bytes().count(b"\n") == 2


def test_a_round_that_stands_twice_is_refused(log):
    for record in records(3):
        log.append(record)
    log.append(EpochRecord("plain", 1))
    assert len(log.read()) == 4
    log.append(EpochRecord("bspml", 3))
    with pytest.raises(RunError, match=r"line 5 is about epoch 3 of bspml, which is at 3 before"):
        log.read()


def test_nan_and_infinity_become_null_in_strict_json(log):
    log.append(EpochRecord("a", 1, loss=math.nan, maw=math.inf, recall_at_k={1: -math.inf}))
    json.loads(log.path.read_text(), parse_constant=pytest.fail)
    (record,) = log.read()
    assert (record.loss, record.maw, record.recall_at_k) == (None, None, {1: None})


def test_numpy_and_torch_values_are_unpacked():
    values = {"a": np.float32(0.5), "b": torch.tensor([1, 2]), "c": np.array([math.nan]), 3: (1,)}
    assert json.loads(to_json(values)) == {"a": 0.5, "b": [1, 2], "c": [None], "3": [1]}
    with pytest.raises(TypeError, match="got object"):
        to_json({"a": object()})


@pytest.mark.parametrize("torn", [b"{", b'{"method": "bspml", "epoch": 3}', b"\x00\x00", b"\xc3"])
def test_a_torn_last_line_is_dropped_and_its_length_noted(log, torn):
    for record in records(2):
        log.append(record)
    with log.path.open("ab") as file:
        file.write(torn)
    assert log.read() == records(2)
    assert log.torn_bytes == len(torn)
    log.append(records(3)[2])
    assert log.torn_bytes == len(torn)
    assert log.read() == records(3)
    assert log.torn_bytes == 0


def test_a_file_torn_in_its_first_line_starts_anew(log):
    log.path.write_bytes(b'{"meth')
    assert log.read() == []
    log.append(records(1)[0])
    assert log.read() == records(1)


def test_no_file_means_no_records(log):
    assert log.read() == []
    assert len(log) == 0
    log.truncate(0)


def test_a_resumed_run_keeps_what_its_checkpoint_knows(log):
    for record in records(4):
        log.append(record)
    with log.path.open("ab") as file:
        file.write(b"{torn")
    log.truncate(3)
    assert log.read() == records(3)
    log.append(records(4)[3])
    assert log.read() == records(4)
    log.truncate(0)
    assert log.read() == []


def test_a_checkpoint_that_knows_more_records_is_refused(log):
    log.append(records(1)[0])
    with pytest.raises(RunError, match="holds 1 records, but the checkpoint was written after 5"):
        log.truncate(5)
    assert len(log) == 1


@pytest.mark.parametrize(
    "line",
    [
        b"{torn",
        b"[1]",
        b"{}",
        b'{"method": 1, "epoch": 2}',
        b"\xff",
        b'{"method": "a", "epoch": 2, "loss": "x"}',
        b'{"method": "a", "epoch": 2, "steps": 1.5}',
        b'{"method": "a", "epoch": 1e999}',
        b'{"method": "a", "epoch": 2, "recall_at_k": {"1": []}}',
        b'{"method": "a", "epoch": 2, "recall_at_k": [1]}',
        b'{"method": "a", "epoch": 2, "notes": 3}',
        b'{"method": "a", "epoch": 2, "extra": ' + 100_000 * b"[" + 100_000 * b"]" + b"}",
    ],
)
def test_a_broken_line_in_the_middle_is_named_before_the_file_is_cut(log, line):
    content = b'{"method": "a", "epoch": 1}\n' + line + b'\n{"method": "a", "epoch": 3}\n'
    log.path.write_bytes(content)
    for look in (log.read, lambda: log.truncate(2)):
        with pytest.raises(RunError, match=r"records\.jsonl: line 2 is not an epoch record") as err:
            look()
        assert len(str(err.value)) < 500
    assert log.path.read_bytes() == content
    log.truncate(1)  # a line that no checkpoint knows goes
    assert len(log.read()) == 1


def test_a_pipe_or_a_file_that_cannot_be_written_is_a_run_error(tmp_path, log, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RunError, match="pipe: is a pipe or a device, not a file of records"):
        RecordLog(tmp_path / "pipe").read()
    log.append(records(1)[0])

    def denied(path, flags):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(atomic, "_without_following", denied)
    with pytest.raises(RunError, match=r"cannot be written \(Permission denied\)"):
        log.truncate(0)


def test_records_are_neither_added_nor_cut_through_a_link(tmp_path, log):
    log.append(records(1)[0])
    content = log.path.read_bytes()
    link = RecordLog(tmp_path / "link.jsonl")
    link.path.symlink_to(log.path)
    for change in (lambda: link.append(records(1)[0]), lambda: link.truncate(0)):
        with pytest.raises(RunError, match=r"link\.jsonl: is a symbolic link"):
            change()
    assert log.path.read_bytes() == content


def test_keys_of_another_version_are_kept_as_extra(log):
    log.path.write_bytes(b'{"method": "a", "epoch": 1, "future": 3}\n')
    assert log.read() == [EpochRecord("a", 1, extra={"future": 3})]


def test_a_full_disk_leaves_the_records_before_it(log):
    log.append(records(1)[0])
    before = log.path.read_bytes()
    done = subprocess.run(
        [sys.executable, "-c", _FULL_DISK, str(log.path), str(len(before) + 10)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "records before epoch 2 are safe" in done.stdout
    assert log.path.read_bytes() == before


def test_a_folder_in_place_of_the_file_is_a_run_error(log):
    log.path.mkdir()
    with pytest.raises(RunError, match="is a folder, not a file of records"):
        log.read()
    with pytest.raises(RunError, match="cannot be written"):
        log.append(records(1)[0])


def test_half_a_character_is_json_that_every_reader_reads():
    """As of a file whose name is no UTF-8."""
    text = to_json({"name": "b\udce9b\u00e9"})
    assert text.encode("utf-8") == b'{"name": "b\\udce9b\xc3\xa9"}'
    assert json.loads(text) == {"name": "b\udce9b\u00e9"}
