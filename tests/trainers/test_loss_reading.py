"""Losses read one step late: the same sum, and nothing asked of the device before its time."""

import pytest
import torch

from bspml.errors import InputError
from bspml.trainers.loss_reading import LossReader, start_reading

LOSSES = [0.1, 0.7, 1e-9, 3.25, 0.3]
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


class Stream:
    """A pretended device: what was queued on it, and what was waited for, in order."""

    def __init__(self):
        self.log, self.queued = [], 0

    def start(self, loss):
        self.queued += 1
        number, value = self.queued, float(loss)
        self.log.append(f"queue {number}")

        def read():
            self.log.append(f"read {number}")
            return value

        return read


def late_reader():
    return LossReader(Stream().start)


def test_each_loss_is_read_when_the_next_step_is_queued_and_the_first_at_once():
    stream = Stream()
    reader = LossReader(stream.start)
    known = [reader.add(loss, 1, step) for step, loss in enumerate(LOSSES[:4], start=1)]
    assert stream.log == [
        "queue 1", "read 1", "queue 2", "queue 3", "read 2", "queue 4", "read 3",
    ]  # fmt: skip
    assert known == [LOSSES[0], LOSSES[0], LOSSES[1], LOSSES[2]]
    reader.total()
    reader.total()
    assert stream.log[7:] == ["read 4"]


def test_the_sum_is_that_of_losses_read_at_once():
    late, prompt = late_reader(), LossReader()
    expected = 0.0
    for step, loss in enumerate(LOSSES, start=1):
        late.add(loss, 1, step)
        assert prompt.add(torch.tensor(loss, dtype=torch.float64), 1, step) == loss
        expected += loss
        if step == 3:  # asked for in between
            assert late.total() == prompt.total() == expected
    assert late.total() == prompt.total() == expected


def test_a_restart_forgets_what_is_under_way_and_goes_on_from_its_sum():
    reader = late_reader()
    reader.add(1.0, 1, 1)
    reader.add(2.0, 1, 2)
    reader.restart(10.0)
    assert reader.total() == 10
    assert reader.add(4.0, 2, 1) == 1  # the last one known
    assert reader.total() == 14


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_is_named_by_its_own_step(bad):
    reader = late_reader()
    reader.add(0.5, 3, 1)
    reader.add(bad, 3, 2)
    with pytest.raises(InputError, match=r"became (nan|inf) in round 3, step 2"):
        reader.add(0.5, 3, 3)
    assert reader.total() == 0.5  # told once
    reader.add(bad, 3, 4)
    with pytest.raises(InputError, match="round 3, step 4"):
        reader.total()
    with pytest.raises(InputError, match="round 1, step 1"):
        LossReader().add(torch.tensor(bad), 1, 1)


def test_losses_of_the_cpu_are_read_at_once():
    assert start_reading(torch.tensor(1.0)) is None
    assert start_reading(0) is None
    assert LossReader().add(torch.tensor(0.5, requires_grad=True), 1, 1) == 0.5


@needs_gpu
def test_a_gpu_is_read_late_and_the_sum_is_the_same():
    losses = torch.rand(50, generator=torch.Generator().manual_seed(0))
    late, prompt = LossReader(), LossReader()
    for step, loss in enumerate(losses.cuda(), start=1):
        torch.cuda._sleep(10**6)  # the device lags behind
        late.add(loss * 1, 1, step)
        prompt.add(losses[step - 1], 1, step)
    assert late._waiting is not None
    assert late.total() == prompt.total()
