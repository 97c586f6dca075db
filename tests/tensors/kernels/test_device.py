"""When Triton's kernels are used, and what happens where they cannot run."""

import importlib.util

import pytest
import torch

from bspml.tensors.kernels import device as device_kernels
from bspml.tensors.kernels.device import by_kernel, runs_triton


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    monkeypatch.setattr(device_kernels, "_state", {})


def test_on_the_cpu_torchs_operations_are_used():
    assert not runs_triton(torch.zeros(2))


@pytest.mark.parametrize(("value", "expected"), [(None, False), ("0", False), ("1", True)])
def test_only_who_asks_gets_kernels(monkeypatch, value, expected):
    monkeypatch.delenv("BSPML_TRITON", raising=False)
    if value is not None:
        monkeypatch.setenv("BSPML_TRITON", value)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name == "triton" or None)
    assert device_kernels._usable() == expected


def test_without_triton_torchs_operations_are_used(monkeypatch):
    monkeypatch.setenv("BSPML_TRITON", "1")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert not device_kernels._usable()


def test_a_kernel_that_does_not_run_is_replaced_with_one_warning(recwarn):
    def broken(x):
        raise RuntimeError("no C compiler")

    assert by_kernel(broken, lambda x: x + 1, 1) == 2
    assert [str(w.message) for w in recwarn if "no C compiler" in str(w.message)]
    assert not device_kernels._usable()


def test_lack_of_memory_is_not_hidden():
    def full(x):
        raise torch.cuda.OutOfMemoryError("full")

    with pytest.raises(torch.cuda.OutOfMemoryError):
        by_kernel(full, lambda x: x, 1)
    assert device_kernels._state == {}
