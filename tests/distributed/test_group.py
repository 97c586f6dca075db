"""Who is in the group of processes: alone, wrongly started, or with too few GPUs."""

import pytest
import torch

from bspml.distributed import is_main, joined, rank, ranks
from bspml.distributed.group import check_rank_device
from bspml.errors import ConfigError


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
