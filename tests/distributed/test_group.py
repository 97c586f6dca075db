"""Who is in the group of processes: alone, wrongly started, or with too few GPUs."""

import socket

import pytest
import torch
from torch.distributed import HashStore

from bspml.distributed import failure, group, is_main, joined, rank, ranks
from bspml.distributed.group import check_rank_device
from bspml.errors import ConfigError, LostRankError


def test_without_torchrun_a_process_is_alone(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    with joined():
        assert (rank(), ranks(), is_main()) == (0, 1, True)


def test_a_group_of_a_size_that_is_no_number_is_refused(monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "two")
    with pytest.raises(ConfigError, match="WORLD_SIZE must be a number"), joined():
        pass


@pytest.mark.parametrize(
    ("rank", "message"),
    [("5", "RANK is 5 and WORLD_SIZE 2 .*, but ranks are 0 to 1"), ("x", "RANK must be a number")],
)
def test_a_rank_that_there_cannot_be_is_refused_at_once(monkeypatch, rank, message):
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match=message), joined():
        pass


@pytest.mark.parametrize(
    ("rank", "listens", "message"),
    [
        ("1", False, "rank 0 is not at 127.0.0.1:.*Start with `torchrun"),
        ("1", True, "answers, but is no store of torch"),
        ("0", True, "address already in use"),
        ("0", False, "1/2 clients joined"),
    ],
)
def test_a_rank_that_meets_nobody_says_so(monkeypatch, rank, listens, message):
    monkeypatch.setattr(group, "_MEETING", 0.2)
    monkeypatch.setattr(group, "_ANSWERING", 0.2 if listens else 5)  # torch rounds up
    with socket.create_server(("127.0.0.1", 0)) as foreign:
        port = foreign.getsockname()[1]
        if not listens:
            foreign.close()
        environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": rank}
        for name, value in {**environment, "WORLD_SIZE": "2"}.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(ConfigError, match=message), joined():
            pass


@pytest.mark.parametrize(
    ("error", "message"),
    [
        ("[gloo] Connection closed by peer", r"rank 1 of 2 is gone \(killed, or out of memory"),
        ("[gloo] Timed out waiting 8000ms", r"rank 1 of 2 does not answer \(stopped, hanging"),
    ],
)
def test_a_rank_that_stands_still_is_not_called_gone(monkeypatch, error, message):
    monkeypatch.setattr(failure, "_TO_READ", 0.0)
    monkeypatch.setattr(failure, "_ROLL_CALL", 0.0)
    failures = failure.Failures(HashStore(), 0, 2)
    with pytest.raises(LostRankError, match=message), failures.explained():
        raise RuntimeError(error)


@pytest.mark.parametrize(
    ("device", "message"),
    [("cuda:0", "the same GPU for all 2 processes"), ("cuda", "2 processes .*, but 1 GPU")],
)
def test_every_process_needs_a_gpu_of_its_own(monkeypatch, device, message):
    check_rank_device(torch.device(device))  # a single process takes what it likes
    monkeypatch.setattr("bspml.distributed.group.ranks", lambda: 2)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match=message):
        check_rank_device(torch.device(device))
    check_rank_device(torch.device("cpu"))
