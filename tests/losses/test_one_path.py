"""Our miner and our loss are one path: no lists, one product, no wait for the device."""

import pytest
import torch
from pytorch_metric_learning import distances
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from bspml.losses.bspml_loss import BSPMLLoss
from bspml.losses.cross_batch_memory import CrossBatchMemory
from bspml.losses.miners.bspml_miner import BSPMLMiner
from bspml.weights.state import SampleWeights
from helpers.draws import around_centres

ROWS, COLUMNS = 24, 6
LABELS = torch.arange(ROWS) // 4
INDEX = torch.arange(ROWS)
EXACT = {"rtol": 0, "atol": 1e-13}
WAITS = {"nonzero", "_local_scalar_dense", "masked_select", "is_nonzero", "item", "_unique2"}
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def batch(seed=0, dtype=torch.float64):
    options = {"spread": 1.2, "seed": seed, "dtype": torch.float64, "classes": ROWS // 4}
    rows = around_centres(LABELS, COLUMNS, **options)
    return rows.to(dtype).requires_grad_()


def table():
    weights = SampleWeights(LABELS)
    values = torch.rand(ROWS, generator=torch.Generator().manual_seed(9))
    values[::5] = 0
    weights.update(values)
    return weights


def value_and_gradient(loss, emb, **kwargs):
    value = loss(emb, LABELS, **kwargs)
    return value.detach(), *torch.autograd.grad(value, emb)


class Operations(TorchDispatchMode):
    """Names of the operations that run, and whether one indexes with a mask."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if name in ("index", "index_put_") and any(
            i is not None and i.dtype == torch.bool for i in args[1]
        ):
            name = "masked_select"
        self.names.append(name)
        return func(*args, **(kwargs or {}))

    def count(self, name):
        return self.names.count(name)


# ------------------------------------------------------------------------------- equal


@pytest.mark.parametrize("weighting", ["inside", "paper"])
@pytest.mark.parametrize("skip_zero", [False, True])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 3.0])
@pytest.mark.parametrize("given_table", [False, True])
@pytest.mark.parametrize(
    "distance",
    [
        distances.CosineSimilarity(),
        distances.DotProductSimilarity(normalize_embeddings=False),
        distances.LpDistance(),
    ],
    ids=lambda d: type(d).__name__,
)
def test_masks_lists_and_mining_inside_give_one_loss(
    weighting, skip_zero, epsilon, given_table, distance
):
    weights = table() if given_table else None
    options = {"weighting": weighting, "distance": distance}
    known = {"sample_index": INDEX} if given_table else {}
    miner = BSPMLMiner(weights, epsilon, skip_zero, distance=distance)
    for seed in range(3):
        emb = batch(seed)
        pairs = miner(emb, LABELS, **known)
        listed = value_and_gradient(
            BSPMLLoss(weights, **options), emb, indices_tuple=tuple(pairs), **known
        )
        assert float(listed[0]) > 0
        masked = value_and_gradient(
            BSPMLLoss(weights, **options), emb, indices_tuple=pairs, **known
        )
        inside = value_and_gradient(BSPMLLoss(weights, miner=miner, **options), emb, **known)
        for value, expected in zip(masked + inside, listed + listed, strict=True):
            torch.testing.assert_close(value, expected, **EXACT)


def test_similarities_taken_over_can_be_differentiated_twice():
    miner, loss = BSPMLMiner(), BSPMLLoss(beta=5.0)

    def step(emb):
        return loss(emb, LABELS, miner(emb, LABELS))

    assert torch.autograd.gradcheck(step, (batch(),))
    assert torch.autograd.gradgradcheck(step, (batch(),))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_half_precision_takes_the_similarities_over_too(dtype):
    emb = batch(1, dtype)
    pairs = BSPMLMiner()(emb, LABELS)
    with Operations() as seen:
        value = BSPMLLoss()(emb, LABELS, pairs)
    assert seen.count("mm") == 0
    assert torch.equal(value, BSPMLLoss()(emb, LABELS, tuple(pairs)))


def test_similarities_of_other_numbers_are_not_taken_over():
    emb, other = batch(2), batch(3)
    pairs = BSPMLMiner()(emb, LABELS)
    assert pairs.similarity_of(emb) is not None
    assert pairs.similarity_of(other) is None
    expected = BSPMLLoss()(other, LABELS, tuple(pairs))
    assert torch.equal(BSPMLLoss()(other, LABELS, pairs), expected)
    with torch.no_grad():
        emb.mul_(torch.linspace(-1, 1, COLUMNS))
    assert pairs.similarity_of(emb) is None
    expected = BSPMLLoss()(emb, LABELS, tuple(pairs))
    assert torch.equal(BSPMLLoss()(emb, LABELS, pairs), expected)


def test_similarities_of_another_distance_are_not_taken_over():
    emb, distance = batch(2), distances.LpDistance()
    pairs = BSPMLMiner()(emb, LABELS)
    loss = BSPMLLoss(distance=distance)
    assert torch.equal(loss(emb, LABELS, pairs), loss(emb, LABELS, tuple(pairs)))


def test_pairs_keep_no_embeddings_alive():
    emb = batch(4)
    pairs = BSPMLMiner()(emb, LABELS)
    del emb
    assert pairs.similarity_of(batch(4)) is None
    assert pairs._mined_on[0]() is None


# ------------------------------------------------------------------------------- no lists


def test_a_step_lists_no_pair_and_multiplies_once_each_way():
    weights = table()
    miner = BSPMLMiner(weights)
    with Operations() as seen:
        emb = batch()
        pairs = miner(emb, LABELS, sample_index=INDEX)
        BSPMLLoss(weights)(emb, LABELS, pairs, sample_index=INDEX).backward()
    assert seen.count("nonzero") == 0
    assert seen.count("mm") == 2
    assert miner.num_pos_pairs == len(pairs[0]) > 0
    assert miner.num_neg_pairs == len(pairs[2]) > 0


def test_a_memory_with_our_miner_lists_no_pair_and_multiplies_once():
    weights = table()
    memory = CrossBatchMemory(BSPMLLoss(weights), COLUMNS, 48, miner=BSPMLMiner(weights))
    with Operations() as seen:
        memory(batch(), LABELS, sample_index=INDEX)
    assert seen.count("nonzero") == 0
    assert seen.count("mm") == 1


@pytest.mark.parametrize("weighting", ["inside", "paper"])
@pytest.mark.parametrize("own_table", [False, True])
def test_a_memory_that_mines_inside_is_one_that_mines_before(weighting, own_table):
    weights = table()
    miner = BSPMLMiner(weights if own_table else None)

    class Before(BSPMLMiner):  # somebody's own class is called, not looked into
        pass

    apart = Before(weights if own_table else None)
    memories = [
        CrossBatchMemory(BSPMLLoss(weights, weighting=weighting), COLUMNS, 40, miner=m)
        for m in (miner, apart)
    ]
    # Without the table it would see samples of weight 0, which the memory leaves out for it.
    inside = own_table or weighting == "paper"
    assert [m._mines_inside() for m in memories] == [inside, False]
    for seed in range(4):
        emb = batch(seed)
        one, two = (value_and_gradient(m, emb, sample_index=INDEX) for m in memories)
        for value, expected in zip(one, two, strict=True):
            torch.testing.assert_close(value, expected, **EXACT)


# ------------------------------------------------------------------------------- no waiting


STEPS = {
    "mined before": lambda e, y, i, w: BSPMLLoss(w)(
        e, y, BSPMLMiner(w)(e, y, sample_index=i), sample_index=i
    ),
    "mined inside": lambda e, y, i, w: BSPMLLoss(w, miner=BSPMLMiner(w))(e, y, sample_index=i),
    "as printed": lambda e, y, i, w: BSPMLLoss(
        w, weighting="paper", miner=BSPMLMiner(w, skip_zero=False)
    )(e, y, sample_index=i),
    "a distance": lambda e, y, i, w: BSPMLLoss(w, distance=distances.SNRDistance())(
        e, y, sample_index=i
    ),
    "announced": lambda e, y, i, w: (w.set_batch(i), BSPMLLoss(w, miner=BSPMLMiner(w))(e, y))[1],
    "index on the host": lambda e, y, i, w: BSPMLLoss(w, miner=BSPMLMiner(w))(
        e, y, sample_index=INDEX
    ),
}


def step_with_memory(emb, labels, index, weights):
    with torch.device(emb.device):  # `.to` would wait for the device
        memory = CrossBatchMemory(BSPMLLoss(weights), COLUMNS, 40, miner=BSPMLMiner(weights))
    memory(emb, labels, sample_index=index)
    return memory(emb, labels, sample_index=index)


STEPS["a memory"] = step_with_memory


# Indices on the host are looked at there, which this mode forbids as well.
@pytest.mark.parametrize("name", [n for n in STEPS if n != "index on the host"])
def test_nothing_waits_for_the_device_on_the_way_forward(name):
    """A pretended GPU: shapes without values, so whatever looks at a value fails."""
    weights = table()
    with FakeTensorMode(allow_non_fake_inputs=True):
        for key, buffer in list(weights.named_buffers()):
            setattr(weights, key, buffer.to("cuda"))
        emb = batch(dtype=torch.float32).detach().to("cuda").requires_grad_()
        value = STEPS[name](emb, LABELS.to("cuda"), INDEX.to("cuda"), weights)
        assert value.device.type == "cuda"
        with pytest.raises(Exception, match=r"item|_local_scalar_dense"):
            float(value.detach())


@pytest.mark.parametrize("name", STEPS)
def test_nothing_waits_for_the_device_on_the_way_back(name):
    value = STEPS[name](batch(), LABELS, INDEX, table())
    with Operations() as seen:
        value.backward()
    assert seen.names
    assert not WAITS & set(seen.names)


@needs_gpu
@pytest.mark.parametrize("name", STEPS)
def test_a_gpu_does_not_wait(name):
    weights = table().cuda()
    emb = batch(dtype=torch.float32).detach().cuda().requires_grad_()
    labels, index = LABELS.cuda(), INDEX.cuda()
    STEPS[name](emb, labels, index, weights).backward()  # buffers, kernels
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        STEPS[name](emb, labels, index, weights).backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
