import math

import pytest
import torch
from pytorch_metric_learning import losses as pml_losses, reducers as pml_reducers

from bspml.errors import InputError
from bspml.losses.reducers import SuperLoss
from bspml.losses.weighted import Weighted
from bspml.weights.state import SampleWeights
from helpers import reducer_kit as kit
from helpers.reducer_kit import FirstColumn, column

E = math.e


@pytest.mark.parametrize(
    ("x", "value", "sigma"),
    [
        (0.0, -5.259075, E),
        (2.0, -0.329862, 1.198871),
        (2.3, -0.002587, 1.001295),
        (4.0, 1.279390, 0.600637),
        (9.0, 3.439274, 0.330563),
        (math.log(10), 0.0, 1.0),
        (math.log(10) - 2 / E, -1.0, E),  # exactly at the cap
    ],
)
def test_hand_worked_values_at_log_ten(x, value, sigma):
    loss = SuperLoss(FirstColumn(), lam=1, tau=math.log(10))
    embeddings = column(x)
    got = loss(embeddings)
    got.backward()
    assert got.item() == pytest.approx(value, abs=1e-6)
    assert embeddings.grad[0, 0].item() == pytest.approx(sigma, abs=1e-6)
    assert loss.reducer.confidences["loss"].values.item() == pytest.approx(sigma, abs=1e-6)


@pytest.mark.parametrize(
    ("x", "value", "sigma"),
    [(2.0, 0.60804, 0.42630), (5.0, 1.44756, 0.20073), (0.0, -2.46828, E), (0.5, -1.10914, E)],
)
def test_hand_worked_values_at_one(x, value, sigma):
    loss = SuperLoss(FirstColumn(), lam=0.25, tau=1.0)
    assert loss(column(x)).item() == pytest.approx(value, abs=1e-5)
    assert loss.reducer.confidences["loss"].values.item() == pytest.approx(sigma, abs=1e-5)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_row_without_a_finite_loss_is_not_called_certain(bad):
    index = torch.arange(8)
    loss = SuperLoss(pml_losses.ContrastiveLoss(), sample_weights=SampleWeights(index // 2))
    embeddings = torch.nn.functional.normalize(
        torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    )
    broken = embeddings.clone()
    broken[3] = bad
    loss(broken, index // 2, sample_index=index)
    with pytest.warns(UserWarning, match=r"no loss of 1 sample was a finite .* is row 3\)"):
        weights = loss.reducer.as_weights()
    assert weights.isnan().tolist() == [row == 3 for row in range(8)]
    loss(embeddings, index // 2, sample_index=index)
    before = loss.reducer.as_weights()
    assert before.isfinite().all()
    loss(broken, index // 2, sample_index=index)
    with pytest.warns(UserWarning, match="the weight there is that of before"):
        assert loss.reducer.as_weights()[3] == before[3]
    assert float(loss.reducer.tau["pos_loss"]) > 0


def test_the_average_is_visible_and_follows_the_batches():
    loss = SuperLoss(FirstColumn(), lam=1)
    assert math.isnan(loss.reducer.tau)
    loss(column(2.0, 4.0))
    assert loss.reducer.tau.item() == 3.0
    loss(column(5.0, 7.0))
    assert loss.reducer.tau.item() == pytest.approx(3.3, abs=1e-12)


def test_eval_mode_leaves_the_average_alone():
    loss = SuperLoss(FirstColumn(), lam=1)
    loss(column(2.0, 4.0))
    before = {k: v.clone() for k, v in loss.state_dict().items()}
    loss.eval()
    loss(column(5.0, 7.0))
    assert all(torch.equal(v, before[k]) for k, v in loss.state_dict().items())


def test_a_batch_repeated_has_the_same_mean_loss():
    losses = torch.rand(40, generator=torch.Generator().manual_seed(0)).tolist()
    once = SuperLoss(FirstColumn(), lam=0.5)(column(*losses))
    twice = SuperLoss(FirstColumn(), lam=0.5)(column(*losses, *losses))
    torch.testing.assert_close(once, twice)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype):
    loss = SuperLoss(FirstColumn(), lam=1, tau=math.log(10))
    embeddings = column(0.0, 2.0, 9.0, dtype=dtype)
    value = loss(embeddings)
    value.backward()
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx((-5.259075 - 0.329862 + 3.439274) / 3, abs=1e-5)
    assert embeddings.grad.isfinite().all()


@pytest.mark.parametrize("x", [1e38, 1e30, 1e-38, 0.0, -1e30])
def test_no_finite_loss_gives_nan(x):
    loss = SuperLoss(FirstColumn(), lam=1, tau=1.0)
    embeddings = column(x, 1.0, dtype=torch.float32)
    value = loss(embeddings)
    value.backward()
    assert value.isfinite()
    assert embeddings.grad.isfinite().all()


def test_a_batch_of_nan_gives_nan_and_is_forgotten():
    loss = SuperLoss(FirstColumn(), lam=1)
    assert loss(column(math.nan, 1.0)).isnan()
    loss(column(2.0, 4.0))
    assert loss.reducer.tau.item() == 3.0


@pytest.mark.parametrize("tau", [0.7, "ema"])
def test_gradcheck_around_and_at_the_cap(tau):
    loss = SuperLoss(FirstColumn(), lam=0.5, tau=tau)
    loss(column(0.6, 0.8))
    loss.eval()  # tau stands
    cap = 0.7 - 1 / E
    around = column(cap - 1e-3, cap + 1e-3, 0.7, 0.0, 3.0)
    assert torch.autograd.gradcheck(lambda e: loss(e), around)


def test_scaling_loss_tau_and_lambda_scales_the_result():
    a = SuperLoss(FirstColumn(), lam=0.3, tau=0.5)(column(0.1, 0.7, 2.0))
    b = SuperLoss(FirstColumn(), lam=3.0, tau=5.0)(column(1.0, 7.0, 20.0))
    torch.testing.assert_close(10 * a, b)


# ---------------------------------------------------------------------- which tau


def test_only_the_losses_that_enter_count_in_the_average():
    embeddings, labels = kit.batch()
    loss = kit.make("TripletMarginLoss", margin=1.0)
    raw = kit.elements(loss, embeddings, labels)["loss"]
    SuperLoss(loss, tau="mean")(embeddings, labels)
    assert (raw == 0).any()
    assert loss.reducer.tau.item() == pytest.approx(raw[raw > 0].mean().item())


def test_a_shared_tau_is_the_mean_over_all_sub_losses():
    embeddings, labels = kit.batch()
    loss = kit.make("ContrastiveLoss")
    raw = torch.cat(list(kit.elements(loss, embeddings, labels).values()))
    SuperLoss(loss, shared_tau=True)(embeddings, labels)
    assert loss.reducer.tau.item() == pytest.approx(raw[raw > 0].mean().item())


def test_each_sub_loss_has_its_own_tau_otherwise():
    embeddings, labels = kit.batch()
    loss = kit.make("ContrastiveLoss")
    raw = kit.elements(loss, embeddings, labels)
    SuperLoss(loss)(embeddings, labels)
    for name, losses in raw.items():
        assert loss.reducer.tau[name].item() == pytest.approx(losses[losses > 0].mean().item())


def test_a_margin_loss_counts_active_triplets_only():
    """Its divisor counts active pairs: SuperLoss of the others, all easy, would swamp the rest."""
    embeddings, labels = kit.batch()
    loss = kit.make("MarginLoss")
    raw = kit.elements(loss, embeddings, labels)["margin_loss"]
    SuperLoss(loss, tau="mean")(embeddings, labels)
    assert (raw == 0).any()
    assert loss.reducer.tau.item() == pytest.approx(raw[raw > 0].mean().item())


@pytest.mark.parametrize("reducer", ["MeanReducer", "SumReducer", "DivisorReducer"])
def test_a_margin_loss_far_from_regularised_is_itself_under_any_reducer(reducer):
    embeddings, labels = kit.batch()
    loss = kit.make("MarginLoss", reducer=getattr(pml_reducers, reducer)())
    raw = loss(embeddings, labels)
    wrapped = SuperLoss(loss, lam=1e9, tau=0.0)(embeddings, labels)
    torch.testing.assert_close(wrapped, raw, rtol=1e-6, atol=0)


# ---------------------------------------------------------------------- smoothing


def test_smoothing_by_sample_judges_the_average_loss():
    weights = SampleWeights([0, 0, 1])
    loss = SuperLoss(
        FirstColumn(),
        lam=1,
        tau=1.0,
        smoothing="sample",
        smoothing_momentum=0.5,
        sample_weights=weights,
    )
    loss(column(0.0, 2.0), sample_index=[0, 2])
    embeddings = column(3.0, 2.0)
    value = loss(embeddings, sample_index=[0, 1])  # averages: (0 + 3)/2 = 1.5 and 2
    value.backward()
    plain = SuperLoss(FirstColumn(), lam=1, tau=1.0)
    plain(column(1.5, 2.0))
    sigma = plain.reducer.confidences["loss"].values
    torch.testing.assert_close(embeddings.grad[:, 0], sigma / 2)
    x = torch.tensor([3.0, 2.0], dtype=torch.float64)
    expected = (sigma * (x - 1) + sigma.log() ** 2).mean()
    torch.testing.assert_close(value.detach(), expected)


def test_smoothing_by_class_pools_its_samples():
    weights = SampleWeights(["a", "b", "a"])
    loss = SuperLoss(
        FirstColumn(),
        lam=1,
        tau=1.0,
        smoothing="class",
        smoothing_momentum=0.5,
        sample_weights=weights,
    )
    loss(column(1.0, 2.0, 3.0), sample_index=[0, 1, 2])
    sigma = loss.reducer.confidences["loss"].values
    assert sigma[0] == sigma[2] == sigma[1]  # a: (1 + 3)/2 = 2, b: 2


def test_smoothing_with_momentum_zero_is_the_plain_transform():
    weights = SampleWeights([0, 1, 2])
    kwargs = {"smoothing": "sample", "smoothing_momentum": 0.0, "sample_weights": weights}
    smooth = SuperLoss(FirstColumn(), lam=0.5, **kwargs)
    plain = SuperLoss(FirstColumn(), lam=0.5)
    for losses in ((0.0, 1.0, 5.0), (2.0, 0.1, 4.0)):
        torch.testing.assert_close(
            smooth(column(*losses), sample_index=[0, 1, 2]),
            plain(column(*losses)),
            atol=1e-6,
            rtol=0,
        )


def test_smoothing_needs_to_know_the_samples():
    with pytest.raises(InputError, match="`smoothing`='class' follows samples or classes"):
        SuperLoss(FirstColumn(), smoothing="class")


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"lam": 0}, "`lam` must be in"),
        ({"lam": -1.0}, "`lam` must be in"),
        ({"tau": 1.0, "momentum": 0.5}, r"`momentum` is 0\.5, but nothing reads it while `tau` is"),
        ({"smoothing_momentum": 0.5}, r"`smoothing_momentum` is 0\.5, .* `smoothing` is 'none'"),
        ({"tau": "max"}, "`tau` must be a number, ema or mean"),
        ({"smoothing": "epoch"}, "`smoothing` must be one of none, class, sample"),
        ({"sample_weights": [1.0]}, "`sample_weights` must be a SampleWeights or None; got list"),
    ],
)
def test_impossible_settings_are_refused_and_change_nothing(kwargs, message):
    loss = FirstColumn()
    before = loss.reducer
    with pytest.raises(InputError, match=message):
        SuperLoss(loss, **kwargs)
    assert loss.reducer is before
    assert not loss._forward_pre_hooks


def test_a_repaired_label_is_averaged_with_its_new_class():
    weights = SampleWeights(["a", "b", "a"])
    weights.relabel([0, 1, 1])
    loss = SuperLoss(FirstColumn(), smoothing="class", sample_weights=weights)
    Weighted(loss, weights)(column(1.0, 2.0, 4.0), weights.current_codes, sample_index=[0, 1, 2])
    assert loss.reducer.smoothed.average.tolist() == [1.0, 3.0]


def test_a_loss_of_weight_0_moves_no_average_of_its_class():
    weights = SampleWeights(["a", "b", "a"])
    weights.update([1.0, 0.5, 0.0])
    loss = SuperLoss(FirstColumn(), smoothing="class", sample_weights=weights)
    loss(column(1.0, 2.0, 9.0), sample_index=[0, 1, 2])
    assert loss.reducer.smoothed.average.tolist() == [1.0, 2.0]


def test_averages_keep_their_digits_in_a_network_of_half_precision():
    weights, labels = SampleWeights([0, 0, 1, 1]), torch.tensor([0, 0, 1, 1])
    found = []
    for cast in (torch.float32, torch.bfloat16):
        kinds = {"sample_weights": weights, "smoothing": "sample"}
        loss = SuperLoss(pml_losses.ContrastiveLoss(), **kinds).to(cast)
        generator = torch.Generator().manual_seed(0)
        for _ in range(20):
            loss(torch.randn(4, 3, generator=generator), labels, sample_index=range(4))
        found.append(loss.reducer.smoothed.average)
    assert torch.equal(*found)
