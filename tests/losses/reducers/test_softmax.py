import copy

import pytest
import torch
from pytorch_metric_learning import miners as pml_miners
from pytorch_metric_learning.losses import SoftTripleLoss

from bspml.errors import InputError
from bspml.functional import gr_cross_entropy
from bspml.losses.reducers import IMAE, GradientRescaling, SuperLoss, unwrap
from bspml.losses.reducers.catalogue import CATALOGUE
from helpers import reducer_kit as kit

SOFTMAX = [name for name, entry in CATALOGUE.items() if entry.kind == "logits"]


def logits_of(loss, embeddings, labels, monkeypatch):
    """The logits a loss hands to its cross-entropy."""
    seen = []
    monkeypatch.setattr(
        torch.nn.functional,
        "cross_entropy",
        lambda logits, labels, **_: seen.append(logits) or logits.logsumexp(1),
    )
    if hasattr(loss, "proxies"):  # ProxyNCA: a softmax of minus the squared distance
        return -loss.distance(embeddings, loss.proxies)
    loss(embeddings, labels)
    return seen[0]


@pytest.mark.parametrize("name", SOFTMAX)
def test_the_loss_is_the_rescaled_cross_entropy_of_its_logits(name, monkeypatch):
    embeddings, labels = kit.batch()
    ours = kit.value_and_gradient(GradientRescaling(kit.make(name), 8, 0.5), embeddings, labels)
    logits = logits_of(kit.make(name), embeddings, labels, monkeypatch)
    expected = gr_cross_entropy(logits, labels, 8, 0.5).mean()
    (gradient,) = torch.autograd.grad(expected, embeddings)
    torch.testing.assert_close(ours, (expected.detach(), gradient))


@pytest.mark.parametrize("name", SOFTMAX)
def test_the_value_is_the_plain_loss(name):
    embeddings, labels = kit.batch()
    plain = kit.make(name)(embeddings, labels)
    torch.testing.assert_close(GradientRescaling(kit.make(name))(embeddings, labels), plain)


@pytest.mark.parametrize("name", SOFTMAX)
def test_miner_weights_multiply_as_before(name):
    embeddings, labels = kit.batch()
    pairs = pml_miners.MultiSimilarityMiner()(embeddings, labels)
    plain = kit.make(name)(embeddings, labels, pairs)
    torch.testing.assert_close(GradientRescaling(kit.make(name))(embeddings, labels, pairs), plain)


@pytest.mark.parametrize("name", ["NormalizedSoftmaxLoss", "ProxyNCALoss", "SoftTripleLoss"])
def test_the_gradient_is_alive_where_the_plain_one_has_rounded_away(name):
    """A sample right by a gap of a hundred: its cross-entropy is 0 in float32, and w is 1."""
    loss = kit.make(name).float()
    embeddings, labels = kit.batch(dtype=torch.float32)
    if name == "ProxyNCALoss":
        loss.softmax_scale = 1e4
    elif name == "SoftTripleLoss":
        loss.la = 1e4
    else:
        loss.temperature = 1e-4
    plain_value = loss(embeddings, labels)
    _, gradient = kit.value_and_gradient(GradientRescaling(loss), embeddings, labels)
    assert plain_value.isfinite()
    assert gradient.isfinite().all()
    assert (gradient.norm(dim=1) > 0).all()


def test_a_copy_is_rescaled_with_its_own_parameters():
    embeddings, labels = kit.batch()
    loss = GradientRescaling(kit.make("SoftTripleLoss"))
    twin = copy.deepcopy(loss)
    with torch.no_grad():
        twin.fc.mul_(-1)
    assert twin(embeddings, labels) != loss(embeddings, labels)
    assert twin.compute_loss.loss is twin


@pytest.mark.parametrize("name", SOFTMAX)
def test_unwrapping_restores_the_plain_gradient(name):
    embeddings, labels = kit.batch()
    expected = kit.value_and_gradient(kit.make(name), embeddings, labels)
    loss = unwrap(GradientRescaling(kit.make(name)))
    got = kit.value_and_gradient(loss, embeddings, labels)
    torch.testing.assert_close(got, expected, rtol=0, atol=0)


def test_label_smoothing_cannot_be_rescaled():
    loss = kit.make("NormalizedSoftmaxLoss")
    loss.cross_entropy = torch.nn.CrossEntropyLoss(reduction="none", label_smoothing=0.1)
    with pytest.raises(InputError, match="must have a plain cross-entropy"):
        GradientRescaling(loss)
    assert loss.cross_entropy.label_smoothing == 0.1


def test_a_subclass_with_a_method_of_its_own_is_rescaled_by_its_value():
    class Mine(SoftTripleLoss):
        def compute_loss(self, *args):
            return super().compute_loss(*args)

    embeddings, labels = kit.batch()
    loss = GradientRescaling(Mine(num_classes=4, embedding_size=6).double())
    assert loss.reducer.kind == "log-probability"
    assert loss(embeddings, labels).isfinite()


@pytest.mark.parametrize("label", [-100, -1, 4])
@pytest.mark.parametrize("wrapper", [SuperLoss, GradientRescaling, IMAE])
@pytest.mark.parametrize("name", SOFTMAX)
def test_a_label_outside_the_classes_is_refused(name, wrapper, label):
    """-100 is ignored by torch's cross-entropy: its loss of 0 would be the most trusted."""
    embeddings, labels = kit.batch()
    labels[5] = label
    loss = wrapper(kit.make(name))
    with pytest.raises(InputError, match=rf"`labels` must lie in \[0, 4\).*got {label} .*5"):
        loss(embeddings, labels)
    with pytest.raises(InputError, match=r"`labels` must lie in \[0, 4\)"):
        loss(embeddings, labels=labels)
