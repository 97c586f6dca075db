"""What the wrappers refuse and in whose name, and a reducer that is set after wrapping."""

import pytest
import torch
from pytorch_metric_learning import losses as pml_losses, reducers as pml_reducers

from bspml.errors import InputError
from bspml.losses.reducers import IMAE, GradientRescaling, SuperLoss, TransformReducer, unwrap
from bspml.losses.weighted import Weighted
from bspml.weights.state import SampleWeights
from helpers import reducer_kit as kit

WRAPPERS = [SuperLoss, GradientRescaling, IMAE]
WEIGHTS = SampleWeights([0, 0, 1])


class Stranger(pml_losses.BaseMetricLossFunction):
    def compute_loss(self, embeddings, labels, indices_tuple, ref_emb, ref_labels):
        raise AssertionError


@pytest.mark.parametrize("name", ["NormalizedSoftmaxLoss", "ContrastiveLoss"])
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_one_loss_in_a_container_twice_is_wrapped_once(name, wrapper):
    embeddings, labels = kit.batch()
    one = kit.make(name)
    both = wrapper(pml_losses.MultipleLosses([one, one]))
    assert len(one._forward_pre_hooks) == 1
    value, gradient = kit.value_and_gradient(both, embeddings, labels)
    hand = wrapper(kit.make(name))
    expected = [kit.value_and_gradient(hand, embeddings, labels) for _ in range(2)]
    torch.testing.assert_close(
        (value, gradient), tuple(a + b for a, b in zip(*expected, strict=True))
    )
    assert not isinstance(unwrap(both).losses[0].reducer, TransformReducer)


@pytest.mark.parametrize("name", ["NormalizedSoftmaxLoss", "ProxyNCALoss", "ContrastiveLoss"])
@pytest.mark.parametrize("again", [SuperLoss, GradientRescaling, unwrap])
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_what_a_replaced_reducer_leaves_behind_is_cleaned_up(wrapper, again, name):
    embeddings, labels = kit.batch()
    loss = wrapper(kit.make(name))
    loss.set_reducer(pml_reducers.SumReducer())
    again(loss)
    hand = again(kit.make(name, reducer=pml_reducers.SumReducer()))
    assert len(loss._forward_pre_hooks) == len(hand._forward_pre_hooks)
    assert len(loss._forward_pre_hooks_with_kwargs) == len(hand._forward_pre_hooks_with_kwargs)
    torch.testing.assert_close(
        kit.value_and_gradient(loss, embeddings, labels),
        kit.value_and_gradient(hand, embeddings, labels),
    )


def test_the_new_sample_weights_are_told_the_rows_after_a_replaced_reducer():
    embeddings, labels = kit.batch()
    loss = SuperLoss(kit.make("NCALoss"))
    loss.set_reducer(pml_reducers.SumReducer())
    loss = SuperLoss(loss, sample_weights=SampleWeights(labels))
    loss(embeddings, labels, sample_index=torch.arange(12))
    assert loss.reducer.sample_confidences().isfinite().all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda kit: IMAE(kit.make("PNPLoss")), "IMAE cannot wrap PNPLoss"),
        (lambda kit: IMAE(kit.make("RankedListLoss")), "IMAE cannot wrap RankedListLoss"),
        (lambda kit: IMAE(kit.make("NCALoss"), T=400), "`T`=400 gives weights .* at most 320"),
        (lambda kit: IMAE(kit.make("NCALoss"), T=-1), "`T` must be in"),
        (lambda kit: IMAE(Stranger()), "IMAE does not know Stranger: use GradientRescaling.*kind"),
    ],
)
def test_imae_refuses_in_its_own_name(call, message):
    with pytest.raises(InputError, match=message) as caught:
        call(kit)
    assert "beta" not in str(caught.value).replace("beta=T", "")


@pytest.mark.parametrize("key", ["lam", "tau", "momentum", "smoothing_momentum"])
def test_a_truth_value_is_no_setting_of_superloss(key):
    with pytest.raises(InputError, match=rf"`{key}` must be a number; got True"):
        SuperLoss(
            kit.make("NCALoss"),
            **{key: True},
            smoothing="class",
            sample_weights=SampleWeights([0, 1]),
        )


@pytest.mark.parametrize("key", ["beta", "lam", "delta"])
def test_a_truth_value_is_no_setting_of_gradient_rescaling(key):
    with pytest.raises(InputError, match=f"`{key}` must be a number; got True"):
        GradientRescaling(kit.make("NCALoss"), **{key: True})


@pytest.mark.parametrize("wrapper", [*WRAPPERS, unwrap])
@pytest.mark.parametrize(
    ("loss", "got"),
    [
        ([], "got list"),
        ((), "got tuple"),
        ({}, "got dict"),
        (None, "got NoneType"),
        (kit.make("ContrastiveLoss").__class__, "got "),
        (pml_losses.MultipleLosses([]), "without a loss in it"),
        (pml_losses.MultipleLosses([torch.nn.Linear(1, 1)]), "got Linear"),
    ],
)
def test_what_holds_no_loss_is_refused(wrapper, loss, got):
    with pytest.raises(InputError, match=f"`loss` .*{got}"):
        wrapper(loss)
    if isinstance(loss, pml_losses.MultipleLosses):
        with pytest.raises(InputError, match=f"`loss` .*{got}"):
            Weighted(loss, WEIGHTS)
