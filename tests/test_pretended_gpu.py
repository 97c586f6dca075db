"""What reaches a GPU stays there: statistics, curriculum, evaluation and audit on a pretended one.

A pretended tensor says that it is on `cuda:0`, computes on the CPU, refuses numpy, and refuses to
be combined with a tensor that is not.  So a device that was forgotten shows without a GPU, and
results must be the CPU's, bit for bit where both take the same operations.
"""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

import bspml
from helpers.draws import around_centres

GPU = torch.device("cuda:0")
aten = torch.ops.aten
INDEXING = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default}
real_to = torch.Tensor.to


class Pretended(torch.Tensor):
    """A tensor that says it is on a GPU; `held` is what it computes with."""

    @staticmethod
    def __new__(cls, held):
        return torch.Tensor._make_wrapper_subclass(
            cls, held.size(), strides=held.stride(), dtype=held.dtype
        )

    def __init__(self, held):
        self.held = held

    device = property(lambda self: GPU)
    is_cuda = property(lambda self: True)

    def cpu(self):
        return self.held.clone()

    def numpy(self, *args, **kwargs):
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu()")

    __array__ = numpy

    def tolist(self):
        return self.held.tolist()

    def __repr__(self):
        return f"Pretended({self.held})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return compute(func, args, kwargs or {})


def move(tensor, *args, **kwargs):
    """`Tensor.to` with the pretended device among the devices."""
    held = tensor.held if isinstance(tensor, Pretended) else tensor
    device, dtype = tensor.device, held.dtype
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor):
            device, dtype = value.device, value.dtype
        elif isinstance(value, str | torch.device):
            device = torch.device(value)
        elif isinstance(value, torch.dtype):
            dtype = value
    if device.type == "cpu" and not isinstance(tensor, Pretended):
        return real_to(tensor, *args, **kwargs)
    if device == tensor.device and dtype == held.dtype:
        return tensor
    held = real_to(held, dtype, copy=True)
    return held if device.type == "cpu" else Pretended(held)


def compute(func, args, kwargs):
    """The operation on what is held; its result is where its arguments, or `device=`, are."""
    tensors = [t for t in tree_flatten((args, kwargs))[0] if isinstance(t, torch.Tensor)]
    there = [t for t in tensors if isinstance(t, Pretended)]
    here = [t for t in tensors if not isinstance(t, Pretended)]
    wanted = kwargs.get("device")
    kwargs = {k: torch.device("cpu") if k == "device" else v for k, v in kwargs.items()}
    copies = func in (aten._to_copy.default, aten.copy_.default)
    if there and here and not copies:
        # Indices may lie on the CPU, and numbers; nothing else.
        indices = func in INDEXING and isinstance(args[0], Pretended)
        if not all(t.ndim == 0 or (indices and t.dtype != torch.float32) for t in here):
            raise RuntimeError(f"tensors of two devices in {func}")
    unwrapped = {id(t.held): t for t in there}
    out = func(*tree_map(held_of, args), **tree_map(held_of, kwargs))
    on_gpu = bool(there) if wanted is None else torch.device(wanted).type == "cuda"
    if func is aten.copy_.default:
        return args[0]

    def wrap(value):
        if not isinstance(value, torch.Tensor) or not on_gpu:
            return value
        return unwrapped[id(value)] if id(value) in unwrapped else Pretended(value)

    return tree_map(wrap, out)


def held_of(value):
    return value.held if isinstance(value, Pretended) else value


class Pretending(TorchDispatchMode):
    """Factories with `device="cuda"` make pretended tensors while this is on."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return compute(func, args, kwargs or {})


@pytest.fixture
def gpu(monkeypatch):
    """Puts a tensor on the pretended GPU."""
    monkeypatch.setattr(torch.cuda, "_lazy_init", lambda: None)
    monkeypatch.setattr(torch.Tensor, "to", move)
    with Pretending(), torch.no_grad():
        yield lambda tensor: Pretended(tensor.clone())


def problem():
    true = torch.arange(160) // 8
    E = around_centres(true, 12, spread=0.6)
    return E, bspml.noise.symmetric(true, rate=0.3, seed=0).labels


def weights_after(preset, options, E, labels):
    weights = bspml.SampleWeights(labels)
    curriculum = bspml.SelfPacedCurriculum(weights, preset=preset, **options)
    for _ in range(5):
        curriculum.training_mask()
        curriculum.update(E)
    return weights.weights


WAYS = {
    "pair": lambda E, y: bspml.pair_statistics(E, y).xi_neg,
    "pair, in blocks": lambda E, y: bspml.pair_statistics(E, y, block_size=50).xi_pos,
    "contrastive": lambda E, y: bspml.contrastive_statistics(E, y).difficulty,
    "contrastive, weighted, some rows": lambda E, y: bspml.contrastive_statistics(
        E, y, torch.arange(160) / 160, rows=torch.arange(90)
    ).everyone.nan_to_num(),
    "neighbours": lambda E, y: bspml.neighbour_statistics(E, y).xi_neg,
    "sampled": lambda E, y: bspml.sampled_contrastive_statistics(E, y).everyone,
    "evaluate": lambda E, y: torch.tensor(list(bspml.evaluate(E, y).recall_at_k.values())),
    "audit": lambda E, y: torch.tensor(bspml.audit(E, y).noise_rate),
    "auto": lambda E, y: weights_after("auto", {"warmup": "features"}, E, y),
    "auto, cross-fit": lambda E, y: weights_after("auto", {"warmup": "cross-fit"}, E, y),
    "paper": lambda E, y: weights_after("paper", {"target_maw": 0.7}, E, y),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_gpus_embeddings_give_what_the_cpus_do(way, request):
    E, labels = problem()
    expected = WAYS[way](E, labels)
    found = WAYS[way](request.getfixturevalue("gpu")(E), labels)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_a_forgotten_device_is_noticed(gpu):
    there = gpu(torch.ones(3))
    assert there.device == GPU
    assert isinstance(there * 2, Pretended)
    assert isinstance(torch.zeros(2, device="cuda"), Pretended)
    for mixed in (
        lambda: there + torch.ones(3),
        lambda: torch.ones(3)[gpu(torch.tensor([0]))],
        lambda: torch.mm(there[None], torch.ones(3, 1)),
        lambda: there.numpy(),
    ):
        with pytest.raises((RuntimeError, TypeError), match=r"two devices|numpy"):
            mixed()
