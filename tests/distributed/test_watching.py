"""Ranks that stand still are named, once, by the first that lives; others are not."""

import contextlib
import threading
import time
import warnings

import pytest
from torch.distributed import HashStore

from bspml.distributed import joined, watching
from bspml.distributed.watching import watched
from bspml.errors import ConfigError


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(watching, "_BEAT", 0.01)
    monkeypatch.setattr(watching, "_SILENT", 0.15)


def stand(living, size):
    with contextlib.ExitStack() as stack:
        store = HashStore()
        for rank in living:
            stack.enter_context(watched(store, rank, size, 1800))
        time.sleep(0.5)


@pytest.mark.parametrize(("living", "says"), [([0], "ranks 1, 2"), ([1, 2], "rank 0")])
def test_a_rank_that_stands_still_is_named_once(quick, living, says):
    with pytest.warns(UserWarning, match=f"^waiting for {says}: no sign of life for 0 s") as said:
        stand(living, 3)
    (warning,) = said
    assert "give up after 1,800 seconds in one place" in str(warning.message)


def test_ranks_that_move_and_one_without_a_store_have_nothing_to_say(quick):
    store = HashStore()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with watched(store, 0, 2, 9), watched(store, 1, 2, 9), watched(None, 0, 2, 9):
            time.sleep(0.4)
    time.sleep(0.05)
    assert not [t for t in threading.enumerate() if t.name.endswith("(_watch)")]


@pytest.mark.parametrize("text", ["", "0", "-1", "nan", "ten", "1e3", "9" * 30])
def test_a_time_that_is_none_is_refused(monkeypatch, text):
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "BSPML_RANK_TIMEOUT": text}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="BSPML_RANK_TIMEOUT must be whole seconds, at least 1"):
        joined().__enter__()
