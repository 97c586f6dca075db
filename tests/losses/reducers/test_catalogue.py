import inspect
import math

import pytest
import pytorch_metric_learning.losses as pml_losses
import torch

from bspml.errors import InputError
from bspml.losses.reducers import GradientRescaling, SuperLoss, TransformReducer
from bspml.losses.reducers.catalogue import ABSTRACT, CATALOGUE, DELEGATES, KINDS, entry_of, kind_of
from bspml.losses.reducers.wrapping import _facts
from helpers import reducer_kit as kit

EXACT = 1e-12  # float64, sums of at most a few hundred terms in another order

RELEASED = [name for name, item in vars(pml_losses).items() if inspect.isclass(item)]
OURS = ["BSPMLLoss"]
KNOWN = [name for name in [*RELEASED, *OURS] if name in CATALOGUE]
WRAPPABLE = [name for name in KNOWN if not CATALOGUE[name].refused]
RESCALABLE = [name for name in WRAPPABLE if not CATALOGUE[name].refused_gr]
REFUSED = [name for name in KNOWN if CATALOGUE[name].refused]


def unknown(names):
    return [n for n in names if n not in CATALOGUE and n not in DELEGATES and n not in ABSTRACT]


def test_every_loss_of_the_installed_release_is_in_the_catalogue():
    assert not unknown(RELEASED), (
        f"pytorch-metric-learning has losses the catalogue does not know: {unknown(RELEASED)}. "
        "Say in bspml/losses/reducers/catalogue.py whether each exposes values per sample, pair or "
        "triplet, and of which kind they are."
    )


def test_the_catalogue_names_no_loss_the_release_lacks():
    assert [n for n in [*CATALOGUE, *ABSTRACT] if n not in RELEASED and n not in OURS] == []


def test_a_new_loss_would_be_noticed():
    assert unknown(["ArcFaceLoss", "BrandNewLoss"]) == ["BrandNewLoss"]


def test_most_losses_can_be_wrapped():
    """27 of pytorch-metric-learning 2.9.0 and BSPMLLoss; eight of its losses cannot."""
    assert (len(WRAPPABLE), len(RESCALABLE), len(REFUSED)) == (28, 27, 8)


@pytest.mark.parametrize("name", WRAPPABLE)
def test_the_identity_transform_is_the_plain_loss(name):
    embeddings, labels = kit.batch()
    plain, wrapped = kit.make(name), kit.make(name)
    wrapped.reducer = TransformReducer(wrapped.reducer, _facts(wrapped, CATALOGUE[name]))
    value, gradient = kit.value_and_gradient(plain, embeddings, labels)
    ours, our_gradient = kit.value_and_gradient(wrapped, embeddings, labels)
    assert value != 0
    torch.testing.assert_close(ours, value, rtol=EXACT, atol=EXACT)
    torch.testing.assert_close(our_gradient, gradient, rtol=EXACT, atol=EXACT)


@pytest.mark.parametrize("name", WRAPPABLE)
def test_superloss_with_a_huge_lambda_has_the_plain_gradient(name):
    embeddings, labels = kit.batch()
    _, gradient = kit.value_and_gradient(kit.make(name), embeddings, labels)
    _, ours = kit.value_and_gradient(SuperLoss(kit.make(name), lam=1e12), embeddings, labels)
    torch.testing.assert_close(ours, gradient, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", WRAPPABLE)
def test_superloss_is_the_average_of_the_confidences_times_the_plain_gradients(name):
    """Against a loop over the elements, sigma from its fixed point, the reducer by its meaning."""
    embeddings, labels = kit.batch()
    loss = kit.make(name)
    tau, lam = 0.4, 0.3
    terms = loss.compute_loss(embeddings, labels, None, embeddings, labels)
    expected = 0.0
    for key in CATALOGUE[name].sub_losses:
        losses = terms[key]["losses"].flatten()
        drops = type(loss.get_default_reducer()).__name__ == "AvgNonZeroReducer"
        active = [x for x in losses if x > 0 or not (drops or CATALOGUE[name].active_only)]
        divisor = terms[key].get("divisor", len(active))
        for x in active:
            sigma = fixed_point(x.item(), tau, lam)
            expected = expected + (sigma * (x - tau) + lam * math.log(sigma) ** 2) / divisor
    (gradient,) = torch.autograd.grad(expected, embeddings)
    ours, our_gradient = kit.value_and_gradient(
        SuperLoss(kit.make(name), lam=lam, tau=tau), embeddings, labels
    )
    torch.testing.assert_close(ours, expected.detach(), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(our_gradient, gradient, rtol=1e-8, atol=1e-8)


def fixed_point(loss, tau, lam):
    """sigma with (x - tau) + 2 lam log(sigma) / sigma = 0, by bisection on the branch (0, e]."""
    if (loss - tau) / lam <= -2 / math.e:
        return math.e
    low, high = 1e-300, math.e
    for _ in range(2000):
        middle = (low + high) / 2 if low > 1e-3 else math.sqrt(low * high)
        if loss - tau + 2 * lam * math.log(middle) / middle > 0:
            high = middle
        else:
            low = middle
        if high - low <= 1e-16 * high:
            break
    return (low + high) / 2


@pytest.mark.parametrize("name", [n for n in RESCALABLE if CATALOGUE[n].kind == "hinge"])
def test_rescaling_a_hinge_by_weights_of_one_is_the_plain_loss(name):
    embeddings, labels = kit.batch()
    value, gradient = kit.value_and_gradient(kit.make(name), embeddings, labels)
    ours = GradientRescaling(kit.make(name), beta=0, lam=0)
    ours, our_gradient = kit.value_and_gradient(ours, embeddings, labels)
    torch.testing.assert_close(ours, value, rtol=EXACT, atol=EXACT)
    torch.testing.assert_close(our_gradient, gradient, rtol=EXACT, atol=EXACT)


@pytest.mark.parametrize("name", [n for n in RESCALABLE if CATALOGUE[n].kind != "hinge"])
def test_rescaling_with_the_weights_of_cross_entropy_has_the_plain_gradient(name):
    """beta 2, lam 0 and the identity give w = 2 (1 - p), the weight a log-probability has."""
    embeddings, labels = kit.batch()
    _, gradient = kit.value_and_gradient(kit.make(name), embeddings, labels)
    ours = GradientRescaling(kit.make(name), beta=2, lam=0, g="identity", **tiny_delta(name))
    _, our_gradient = kit.value_and_gradient(ours, embeddings, labels)
    torch.testing.assert_close(our_gradient, gradient, rtol=1e-8, atol=1e-10)


def tiny_delta(name):
    return {} if CATALOGUE[name].kind == "logits" else {"delta": 1e-15}


@pytest.mark.parametrize("wrapper", [SuperLoss, GradientRescaling])
@pytest.mark.parametrize("name", REFUSED)
def test_losses_without_a_value_per_sample_are_refused_by_name(wrapper, name):
    loss = kit.make(name)
    before = loss.reducer
    with pytest.raises(InputError, match=f"{wrapper.__name__} cannot wrap {name}: it"):
        wrapper(loss)
    assert loss.reducer is before
    assert not loss._forward_pre_hooks


def test_a_loss_with_negative_values_is_refused_by_gradient_rescaling_only():
    with pytest.raises(InputError, match="cannot wrap RankedListLoss: its values can be negative"):
        GradientRescaling(kit.make("RankedListLoss"))
    SuperLoss(kit.make("RankedListLoss"))


@pytest.mark.parametrize("name", KNOWN)
def test_every_entry_gives_either_a_kind_or_a_reason(name):
    entry = CATALOGUE[name]
    assert (entry.kind in KINDS) != bool(entry.refused or entry.refused_gr)


@pytest.mark.parametrize("name", WRAPPABLE)
def test_the_catalogue_knows_the_keys_of_the_loss_dictionary(name):
    embeddings, labels = kit.batch()
    terms = kit.make(name).compute_loss(embeddings, labels, None, embeddings, labels)
    data = {key for key in terms if not key.endswith("reg_loss")}
    assert data == set(CATALOGUE[name].sub_losses)


def test_a_subclass_is_treated_as_its_ancestor():
    class Mine(pml_losses.MultiSimilarityLoss):
        pass

    assert entry_of(Mine()) is CATALOGUE["MultiSimilarityLoss"]


def test_a_strangers_class_of_a_known_name_is_not_looked_up():
    stranger = type("ArcFaceLoss", (pml_losses.BaseMetricLossFunction,), {})
    assert entry_of(stranger()) is None


def test_a_smooth_triplet_loss_is_a_softplus():
    entry = CATALOGUE["TripletMarginLoss"]
    assert kind_of(kit.make("TripletMarginLoss"), entry) == "hinge"
    assert kind_of(kit.make("TripletMarginLoss", smooth_loss=True), entry) == "softplus"
