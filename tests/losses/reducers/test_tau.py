import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, strategies as st

from bspml.errors import InputError
from bspml.losses.reducers.tau import RunningTau


def test_the_first_batch_starts_the_average_and_the_second_moves_it_by_a_tenth():
    tau = RunningTau("ema", momentum=0.9)
    assert float(tau.update(torch.tensor([2.0, 4.0]))) == 3.0
    assert float(tau.update(torch.tensor([5.0, 7.0]))) == pytest.approx(3.3, abs=1e-12)
    assert float(tau) == pytest.approx(3.3, abs=1e-12)


@pytest.mark.parametrize("mode", ["ema", "mean"])
def test_a_true_average_of_zero_is_not_taken_for_none(mode):
    tau = RunningTau(mode)
    assert float(tau.update(torch.tensor([-1.0, 1.0]))) == 0.0
    assert float(tau.update(torch.tensor([10.0]))) == pytest.approx(
        1.0 if mode == "ema" else 10 / 3
    )


@pytest.mark.parametrize("mode", ["ema", "mean"])
def test_eval_mode_changes_nothing(mode):
    tau = RunningTau(mode)
    tau.update(torch.tensor([2.0, 4.0]))
    before = {k: v.clone() for k, v in tau.state_dict().items()}
    tau.eval()
    assert float(tau.update(torch.tensor([100.0]))) == 3.0
    assert all(torch.equal(v, before[k]) for k, v in tau.state_dict().items())


def test_eval_mode_before_the_first_batch_uses_that_batch_and_forgets_it():
    tau = RunningTau("ema").eval()
    assert float(tau.update(torch.tensor([2.0, 4.0]))) == 3.0
    assert math.isnan(float(tau))
    assert float(tau.update(torch.tensor([7.0]))) == 7.0


def test_a_constant_stays_and_keeps_all_its_digits():
    tau = RunningTau(math.log(10))
    assert float(tau.update(torch.tensor([100.0]))) == math.log(10)
    assert float(tau.half()) == math.log(10)


@given(st.lists(st.lists(st.floats(-1e6, 1e6, width=32), max_size=5), min_size=1, max_size=20))
def test_the_mean_is_that_of_the_exact_sum(batches):
    tau = RunningTau("mean")
    for batch in batches:
        tau.update(torch.tensor(batch))
    losses = [Fraction(x) for batch in batches for x in batch]
    if not losses:
        assert math.isnan(float(tau))
        return
    exact = float(sum(losses) / len(losses))
    scale = float(sum(abs(x) for x in losses) / len(losses))
    assert float(tau) == pytest.approx(exact, abs=4e-16 * scale, rel=4e-16)


def test_the_mean_loses_nothing_beside_a_huge_sum():
    """A float32 sum stands still at 2^24, a float64 one at 2^53: here at 1e17."""
    tau = RunningTau("mean")
    tau.update(torch.tensor([1e17], dtype=torch.float64))
    for _ in range(1000):
        tau.update(torch.tensor([1.0]))
    assert float(tau.total + tau.correction - 1e17) == pytest.approx(1000, abs=8)  # one ulp is 16
    assert float(tau.count) == 1001


def test_the_mean_does_not_depend_on_how_the_losses_are_cut_into_batches():
    losses = torch.rand(60, generator=torch.Generator().manual_seed(0))
    whole, parts = RunningTau("mean"), RunningTau("mean")
    whole.update(losses)
    for part in losses.split([1, 40, 7, 12]):
        parts.update(part)
    assert float(parts) == pytest.approx(float(whole), rel=1e-15)


def test_weights_weigh_the_mean():
    tau = RunningTau("mean")
    tau.update(torch.tensor([1.0, 3.0, 100.0]), torch.tensor([1.0, 0.5, 0.0]))
    assert float(tau) == pytest.approx(2.5 / 1.5)


@pytest.mark.parametrize("mode", ["ema", "mean"])
@pytest.mark.parametrize("bad", [[], [math.nan], [math.inf, 1.0]])
def test_an_empty_or_infinite_batch_leaves_tau_alone(mode, bad):
    tau = RunningTau(mode)
    tau.update(torch.tensor([2.0, 4.0]))
    assert float(tau.update(torch.tensor(bad))) == 3.0
    assert float(tau.count) == 2


def test_a_batch_of_zero_weight_leaves_tau_alone():
    tau = RunningTau("ema")
    tau.update(torch.tensor([2.0]))
    assert float(tau.update(torch.tensor([9.0]), torch.tensor([0.0]))) == 2.0


@pytest.mark.parametrize("mode", ["ema", "mean"])
def test_the_state_goes_on_after_a_round_trip(mode):
    first, second = RunningTau(mode), RunningTau(mode)
    first.update(torch.tensor([2.0, 4.0]))
    second.load_state_dict(first.state_dict())
    batch = torch.tensor([5.0, 7.5])
    assert torch.equal(first.update(batch), second.update(batch))


def test_half_precision_losses_are_summed_in_float64():
    tau = RunningTau("mean").half()
    tau.update(torch.full((5000,), 60000.0, dtype=torch.float16))
    assert float(tau) == 60000.0 - float(60000 - torch.tensor(60000.0, dtype=torch.float16))


def test_tau_carries_no_gradient():
    losses = torch.tensor([2.0, 4.0], requires_grad=True)
    assert not RunningTau("ema").update(losses).requires_grad


@pytest.mark.parametrize(
    ("tau", "momentum", "message"),
    [
        ("median", 0.9, "`tau` must be a number, ema or mean; got 'median'"),
        (math.nan, 0.9, "`tau`"),
        (math.inf, 0.9, "`tau` must be finite"),
        ("ema", 1.0, "`momentum` must be in"),
        ("ema", -0.1, "`momentum` must be in"),
        (1.5, 0.5, r"`momentum` is 0\.5, but nothing reads it while `tau` is 1\.5\. Leave it out"),
        ("mean", 0.5, "nothing reads it while `tau` is 'mean'"),
    ],
)
def test_impossible_settings_are_refused(tau, momentum, message):
    with pytest.raises(InputError, match=message):
        RunningTau(tau, momentum)
