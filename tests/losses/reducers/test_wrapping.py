import copy
import io

import pytest
import torch
from pytorch_metric_learning import losses as pml_losses, reducers as pml_reducers
from pytorch_metric_learning.utils.distributed import DistributedLossWrapper

from bspml.errors import InputError
from bspml.losses.bspml_loss import BSPMLLoss
from bspml.losses.cross_batch_memory import CrossBatchMemory
from bspml.losses.reducers import IMAE, GradientRescaling, SuperLoss, SuperLossReducer, unwrap
from bspml.weights.state import SampleWeights
from helpers import reducer_kit as kit

WRAPPERS = [SuperLoss, GradientRescaling, IMAE]


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_the_same_object_comes_back(wrapper):
    loss = kit.make("ContrastiveLoss")
    assert wrapper(loss) is loss


def test_the_reducer_is_the_one_the_loss_uses_even_if_set_again():
    """Two sub-losses: any other reducer would be copied, once for each."""
    embeddings, labels = kit.batch()
    loss = SuperLoss(kit.make("ContrastiveLoss"))
    reducer = loss.reducer
    loss.set_reducer(reducer)
    assert loss.reducer is reducer
    loss(embeddings, labels)
    assert all(tau.isfinite() for tau in reducer.tau.values())


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_wrapping_twice_is_refused_and_unwrapping_undoes(wrapper):
    embeddings, labels = kit.batch()
    plain = kit.make("ContrastiveLoss")
    expected = plain(embeddings, labels)
    own = plain.reducer
    loss = wrapper(plain)
    with pytest.raises(InputError, match=r"`loss` \(ContrastiveLoss\) is wrapped already, by"):
        SuperLoss(loss)
    assert unwrap(loss).reducer is own
    assert not loss._forward_pre_hooks
    assert not loss._forward_pre_hooks_with_kwargs
    assert loss(embeddings, labels) == expected
    assert SuperLoss(loss)(embeddings, labels) != expected


@pytest.mark.parametrize("thing", [lambda e, y: 0.0, torch.nn.CrossEntropyLoss(), None])
def test_what_is_no_such_loss_is_refused(thing):
    with pytest.raises(InputError, match="must be a loss of pytorch-metric-learning"):
        SuperLoss(thing)


def test_state_goes_through_state_dict():
    embeddings, labels = kit.batch()
    loss = SuperLoss(kit.make("ContrastiveLoss"), sample_weights=SampleWeights(labels))
    loss(embeddings, labels, sample_index=torch.arange(12))
    saved = io.BytesIO()
    torch.save(loss.state_dict(), saved)
    saved.seek(0)
    twin = SuperLoss(kit.make("ContrastiveLoss"), sample_weights=SampleWeights(labels))
    twin.load_state_dict(torch.load(saved, weights_only=True))
    assert twin.reducer.tau == loss.reducer.tau
    torch.testing.assert_close(twin.reducer.sample_confidences(), loss.reducer.sample_confidences())
    rows = torch.arange(12)
    assert twin(embeddings, labels, sample_index=rows) == loss(
        embeddings, labels, sample_index=rows
    )


def test_the_weights_of_a_bspml_loss_are_saved_once():
    loss = SuperLoss(BSPMLLoss(SampleWeights([0, 0, 1, 1])))
    assert [key for key in loss.state_dict() if key.endswith("weights.weights")] == [
        "weights.weights"
    ]


@pytest.mark.parametrize("name", ["ContrastiveLoss", "ProxyNCALoss", "ArcFaceLoss"])
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_copy_has_a_state_of_its_own(name, wrapper):
    embeddings, labels = kit.batch()
    weights = SampleWeights(labels)
    loss = wrapper(kit.make(name), sample_weights=weights)
    twin = copy.deepcopy(loss)
    rows = torch.arange(12)
    twin(embeddings, labels, sample_index=rows)
    assert not loss.reducer.confidences
    assert loss.reducer.sample_confidences().isnan().all()
    assert twin.reducer.confidences
    buffer = io.BytesIO()
    torch.save(twin, buffer)
    buffer.seek(0)
    back = torch.load(buffer, weights_only=False)
    assert back(embeddings, labels, sample_index=rows) == twin(
        embeddings, labels, sample_index=rows
    )


# ---------------------------------------------------------------------- containers


@pytest.mark.parametrize("inside_out", [False, True])
@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("memory", [pml_losses.CrossBatchMemory, CrossBatchMemory])
def test_in_a_memory(memory, wrapper, inside_out):
    embeddings, labels = kit.batch()
    if inside_out:
        loss = wrapper(memory(kit.make("ContrastiveLoss"), 6, memory_size=64))
    else:
        loss = memory(wrapper(kit.make("ContrastiveLoss")), 6, memory_size=64)
    hand = wrapper(kit.make("ContrastiveLoss"))
    first = loss(embeddings, labels)
    torch.testing.assert_close(first, hand(embeddings, labels))
    second, second_labels = kit.batch(seed=1)
    value = loss(second, second_labels)
    pool = torch.cat([embeddings.detach(), second.detach()])
    pool_labels = torch.cat([labels, second_labels])
    same = second_labels[:, None] == pool_labels[None]
    own = torch.arange(24)[None] == torch.arange(12, 24)[:, None]
    pairs = (*(same & ~own).nonzero(as_tuple=True), *(~same).nonzero(as_tuple=True))
    torch.testing.assert_close(value, hand(second, second_labels, pairs, pool, pool_labels))


def test_a_bspml_loss_in_its_memory():
    labels = torch.arange(12) // 3
    weights = SampleWeights(labels)
    weights.update(torch.linspace(0, 1, 12))
    embeddings = torch.randn(12, 6, generator=torch.Generator().manual_seed(0))
    memory = SuperLoss(CrossBatchMemory(BSPMLLoss(weights), 6, memory_size=32), lam=1e6, tau=0.0)
    plain = CrossBatchMemory(BSPMLLoss(weights), 6, memory_size=32)
    for _ in range(3):
        rows = torch.arange(12)
        torch.testing.assert_close(
            memory(embeddings, labels, sample_index=rows),
            plain(embeddings, labels, sample_index=rows),
            rtol=1e-4,
            atol=1e-5,
        )


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("inside_out", [False, True])
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_in_a_self_supervised_loss(wrapper, inside_out, symmetric):
    one, _ = kit.batch()
    two, _ = kit.batch(seed=1)
    container = pml_losses.SelfSupervisedLoss
    if inside_out:
        loss = wrapper(container(kit.make("NTXentLoss"), symmetric=symmetric))
    else:
        loss = container(wrapper(kit.make("NTXentLoss")), symmetric=symmetric)
    hand = wrapper(kit.make("NTXentLoss"))
    rows = torch.arange(12)
    if symmetric:
        expected = hand(torch.cat([one, two]), torch.cat([rows, rows]))
    else:
        expected = hand(one, rows, None, two, rows.clone())
    torch.testing.assert_close(loss(one, two), expected)


@pytest.mark.parametrize("as_dict", [False, True])
@pytest.mark.parametrize("inside_out", [False, True])
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_in_several_losses(wrapper, inside_out, as_dict):
    embeddings, labels = kit.batch()
    names = {"a": "ContrastiveLoss", "b": "MultiSimilarityLoss"}
    parts = {k: kit.make(name) for k, name in names.items()}
    if not inside_out:
        parts = {k: wrapper(loss) for k, loss in parts.items()}
    both = pml_losses.MultipleLosses(parts if as_dict else list(parts.values()))
    if inside_out:
        assert wrapper(both) is both
    expected = sum(wrapper(kit.make(name))(embeddings, labels) for name in names.values())
    torch.testing.assert_close(both(embeddings, labels), expected)


def test_one_unfit_loss_leaves_all_of_them_as_they_were():
    both = pml_losses.MultipleLosses([kit.make("NormalizedSoftmaxLoss"), kit.make("PNPLoss")])
    with pytest.raises(InputError, match="GradientRescaling cannot wrap PNPLoss"):
        GradientRescaling(both)
    assert isinstance(both.losses[0].cross_entropy, torch.nn.CrossEntropyLoss)
    assert not both.losses[0]._forward_pre_hooks


@pytest.mark.parametrize("inside_out", [False, True])
def test_in_a_distributed_wrapper_without_other_ranks(inside_out):
    embeddings, labels = kit.batch()
    if inside_out:
        loss = SuperLoss(DistributedLossWrapper(kit.make("MultiSimilarityLoss")))
    else:
        loss = DistributedLossWrapper(SuperLoss(kit.make("MultiSimilarityLoss")))
    with pytest.warns(UserWarning, match="non-distributed"):
        value = loss(embeddings, labels)
    torch.testing.assert_close(
        value, SuperLoss(kit.make("MultiSimilarityLoss"))(embeddings, labels)
    )
    assert isinstance(loss.loss.reducer, SuperLossReducer)


def test_eval_mode_of_the_container_reaches_the_average():
    embeddings, labels = kit.batch()
    both = SuperLoss(pml_losses.MultipleLosses([kit.make("NCALoss")]))
    both.eval()
    both(embeddings, labels)
    assert both.losses[0].reducer.tau.isnan()


def gradient(loss, embeddings, labels):
    leaf = embeddings.clone().requires_grad_()
    loss(leaf, labels).backward()
    return leaf.grad


def test_a_loss_that_stands_in_a_container_twice_is_wrapped_once():
    torch.manual_seed(0)
    inner = pml_losses.NormalizedSoftmaxLoss(4, 8)
    embeddings, labels = torch.randn(6, 8), torch.tensor([0, 1, 2, 3, 0, 1])
    both = GradientRescaling(pml_losses.MultipleLosses([inner, inner]))
    assert inner.reducer.kind == "logits"
    twice = gradient(both, embeddings, labels)
    torch.testing.assert_close(twice, 2 * gradient(inner, embeddings, labels))
    assert len(inner._forward_pre_hooks) == 1


def test_what_set_reducer_leaves_behind_is_cleaned_up():
    torch.manual_seed(0)
    embeddings, labels = torch.randn(6, 8), torch.tensor([0, 1, 2, 3, 0, 1])
    loss = GradientRescaling(pml_losses.NormalizedSoftmaxLoss(4, 8))
    loss.set_reducer(pml_reducers.SumReducer())
    wrapped_again = gradient(
        GradientRescaling(loss, beta=2, lam=0, g="identity"), embeddings, labels
    )
    unwrap(loss)
    assert not loss._forward_pre_hooks
    torch.testing.assert_close(wrapped_again, gradient(loss, embeddings, labels))  # it is CE
    loss.set_reducer(pml_reducers.MeanReducer())
    left = GradientRescaling(loss)
    left.set_reducer(pml_reducers.MeanReducer())
    unwrap(left)
    assert type(left.cross_entropy) is torch.nn.CrossEntropyLoss


@pytest.mark.parametrize("kind", [torch.int32, torch.float32, list])
def test_labels_of_another_kind_are_still_one_object_on_both_sides(kind):
    """It says that row i is one sample on both sides, which is no pair with itself."""
    embeddings, labels = kit.batch()
    refs = kit.batch(seed=1)[0].detach()
    expected = kit.make("ContrastiveLoss")(embeddings, labels, None, refs, labels)
    loss = GradientRescaling(kit.make("ContrastiveLoss"), beta=0)
    given = labels.tolist() if kind is list else labels.to(kind)
    assert loss(embeddings, given, None, refs, given) == expected
    weights = SampleWeights(labels)
    weights.update(torch.linspace(0, 1, 12))
    loss = SuperLoss(kit.make("ContrastiveLoss"), sample_weights=weights)
    named = {"sample_index": range(12)}
    both = {**named, "ref_sample_index": range(12)}
    one, other = (loss.eval()(embeddings, given, None, refs, given, **n) for n in (named, both))
    assert one == other
