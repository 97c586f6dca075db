import copy
import io

import pytest
import torch
from pytorch_metric_learning import losses as pml_losses
from pytorch_metric_learning.miners import MultiSimilarityMiner, TripletMarginMiner

from bspml.errors import InputError, SampleIndexError
from bspml.losses.bspml_loss import BSPMLLoss
from bspml.losses.cross_batch_memory import CrossBatchMemory
from bspml.miners.bspml_miner import BSPMLMiner
from bspml.weights.state import SampleWeights

EXACT = {"rtol": 0, "atol": 1e-12}
ROWS, COLUMNS, SAMPLES = 8, 4, 40


def batches(count, dtype=torch.float64, seed=0):
    """Batches of 4 classes x 2 distinct samples, no sample twice within five batches."""
    generator = torch.Generator().manual_seed(seed)
    for step in range(count):
        emb = torch.randn(ROWS, COLUMNS, generator=generator, dtype=torch.float64)
        index = torch.arange(step * ROWS, (step + 1) * ROWS) % SAMPLES
        yield emb.to(dtype).requires_grad_(), torch.arange(ROWS) // 2, index


def table(values=None):
    weights = SampleWeights([0] * SAMPLES)
    if values is not None:
        weights.update(values)
    return weights


def step(memory, emb, labels, **kwargs):
    emb.grad = None
    value = memory(emb, labels, **kwargs)
    value.backward()
    return value.detach(), emb.grad.clone()


@pytest.mark.parametrize("with_table", [False, True])
@pytest.mark.parametrize("size", [12, 20, 64])
@pytest.mark.parametrize("mining", [None, "pml", "ours", "fused", "triplets"])
def test_weight_one_is_pml_s_memory(with_table, size, mining):
    weights = table() if with_table else None
    theirs_miner = {
        None: None,
        "triplets": TripletMarginMiner(0.3),
    }.get(mining, MultiSimilarityMiner())
    ours_miner = {"ours": BSPMLMiner(weights), "fused": None}.get(mining, theirs_miner)
    loss = BSPMLLoss(weights, miner=BSPMLMiner(weights) if mining == "fused" else None)
    theirs = pml_losses.CrossBatchMemory(
        pml_losses.MultiSimilarityLoss(), COLUMNS, size, miner=theirs_miner
    )
    ours = CrossBatchMemory(loss, COLUMNS, size, miner=ours_miner)
    for emb, labels, index in batches(5):
        value, grad = step(ours, emb, labels, **({"sample_index": index} if with_table else {}))
        expected, expected_grad = step(theirs, emb, labels)
        torch.testing.assert_close(value, expected, **EXACT)
        torch.testing.assert_close(grad, expected_grad, **EXACT)
        assert ours.queue_idx == theirs.queue_idx
        assert ours.has_been_filled == theirs.has_been_filled
        assert torch.equal(ours.label_memory, theirs.label_memory)


def test_weight_one_is_pml_s_memory_with_an_enqueue_mask():
    mask = torch.tensor([True, False] * 4)
    theirs = pml_losses.CrossBatchMemory(pml_losses.MultiSimilarityLoss(), COLUMNS, 10)
    ours = CrossBatchMemory(BSPMLLoss(table()), COLUMNS, 10)
    for emb, labels, index in batches(4):
        value, grad = step(ours, emb, labels, enqueue_mask=mask, sample_index=index)
        expected, expected_grad = step(theirs, emb, labels, enqueue_mask=mask)
        torch.testing.assert_close(value, expected, **EXACT)
        torch.testing.assert_close(grad, expected_grad, **EXACT)


def test_it_is_the_loss_on_the_queued_rows_with_today_s_weights():
    generator = torch.Generator().manual_seed(3)
    weights = table(torch.rand(SAMPLES, generator=generator))
    loss = BSPMLLoss(weights)
    memory = CrossBatchMemory(loss, COLUMNS, 20)
    queue = []
    for emb, labels, index in batches(4):
        weights.update(torch.rand(SAMPLES, generator=generator))  # also of rows queued before
        queue = [*queue, *zip(emb.detach(), labels, index, strict=True)][-20:]
        value = memory(emb, labels, sample_index=index)
        E, y, i = (torch.stack(column) for column in zip(*queue, strict=True))
        expected = loss(emb, labels, None, E, y, sample_index=index, ref_sample_index=i)
        torch.testing.assert_close(value, expected, **EXACT)


def test_an_older_embedding_of_the_sample_is_no_positive():
    # Two classes of two samples; the second batch holds the same four samples, moved.
    first, second = (emb[:4].detach() for emb, _, _ in batches(2))
    labels, index = torch.tensor([0, 0, 1, 1]), torch.tensor([3, 1, 0, 2])
    for weights in (table(), None):
        memory = CrossBatchMemory(BSPMLLoss(weights), COLUMNS, 16)
        memory(first, labels, sample_index=index)
        value = memory(second, labels, sample_index=index)
        other = index[:, None] != index.repeat(2)
        same_label = labels[:, None] == labels.repeat(2)
        a1, p = (same_label & other).nonzero(as_tuple=True)
        a2, n = (~same_label).nonzero(as_tuple=True)
        queue = torch.cat([first, second])
        expected = pml_losses.MultiSimilarityLoss()(second, None, (a1, p, a2, n), queue)
        torch.testing.assert_close(value, expected, **EXACT)


@pytest.mark.parametrize("mining", [None, "pml", "ours"])
def test_a_lone_sample_is_not_its_own_positive(mining):
    emb = torch.tensor([[1.0, 0.0], [0.96, 0.28]])
    miner = {None: None, "pml": MultiSimilarityMiner(), "ours": BSPMLMiner()}[mining]
    memory = CrossBatchMemory(BSPMLLoss(beta=1), 2, 8, miner=miner)
    listed = memory(emb, torch.tensor([0, 1]))
    negatives_only = BSPMLLoss(beta=1)(emb, torch.tensor([0, 1]))
    # Mining that leaves the self pair out finds no positive, hence no pair at all.
    expected = torch.zeros(()) if mining == "ours" else negatives_only
    torch.testing.assert_close(listed, expected)


def test_weight_zero_in_the_queue_is_absence():
    values = torch.ones(SAMPLES)
    values[[0, 9, 10]] = 0
    weights = table(values)
    full = CrossBatchMemory(BSPMLLoss(weights), COLUMNS, 64)
    thinned = CrossBatchMemory(BSPMLLoss(weights), COLUMNS, 64)
    for emb, labels, index in batches(3):
        keep = weights[index] > 0
        value = full(emb, labels, sample_index=index)
        expected = thinned(emb[keep], labels[keep], sample_index=index[keep])
        torch.testing.assert_close(value, expected, **EXACT)


def test_the_announced_batch_serves_trainers():
    weights = table(torch.rand(SAMPLES, generator=torch.Generator().manual_seed(1)))
    explicit, announced = (
        CrossBatchMemory(BSPMLLoss(weights), COLUMNS, 20, miner=BSPMLMiner(weights))
        for _ in range(2)
    )
    for emb, labels, index in batches(3):
        expected = explicit(emb, labels, sample_index=index)
        weights.set_batch(index)
        assert torch.equal(announced(emb, labels), expected)


def test_outer_pairs_are_refused_with_the_way_out():
    emb, labels, index = next(batches(1))
    memory = CrossBatchMemory(BSPMLLoss(table()), COLUMNS, 20)
    pairs = MultiSimilarityMiner()(emb, labels)
    with pytest.raises(InputError, match=r"CrossBatchMemory\(loss, ..., miner=miner\)"):
        memory(emb, labels, pairs, sample_index=index)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"sample_index": None}, SampleIndexError, "set_batch"),
        ({"sample_index": torch.arange(7)}, InputError, r"\(8,\) like the embeddings; got \(7,\)"),
        ({"sample_index": torch.arange(8) + 33}, SampleIndexError, r"in \[0, 40\); got 40"),
        ({"labels": torch.arange(7)}, InputError, "one label per row"),
        ({"labels": None}, InputError, "`labels` must be given"),
        ({"embeddings": torch.full((8, 4), torch.nan)}, InputError, "must be finite"),
        ({"enqueue_mask": torch.ones(7, dtype=torch.bool)}, InputError, r"must be \(8,\) bools"),
    ],
)
def test_a_refused_batch_leaves_the_queue_as_it_was(change, error, message):
    emb, labels, index = next(batches(1, torch.float32))
    memory = CrossBatchMemory(BSPMLLoss(table()), COLUMNS, 20)
    memory(emb, labels, sample_index=index)
    before = copy.deepcopy(memory.state_dict())
    call = {"embeddings": emb, "labels": labels, "sample_index": index} | change
    with pytest.raises(error, match=message):
        memory(**call)
    after = memory.state_dict()
    assert before.keys() == after.keys()
    for key, value in before.items():
        assert value == after[key] if isinstance(value, dict) else torch.equal(value, after[key])


def test_a_batch_larger_than_the_memory_is_refused():
    emb, labels, index = next(batches(1))
    memory = CrossBatchMemory(BSPMLLoss(table()), COLUMNS, 7)
    with pytest.raises(InputError, match=r"`memory_size` must be at least .* 8; got 7"):
        memory(emb, labels, sample_index=index)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("with_table", [False, True])
def test_a_resumed_run_goes_on_bit_for_bit(dtype, with_table):
    values = torch.rand(SAMPLES, generator=torch.Generator().manual_seed(2))

    def build():
        weights = table(values if with_table else None)
        loss = BSPMLLoss(weights if with_table else None)
        return CrossBatchMemory(loss, COLUMNS, 20)

    memory = build()
    data = list(batches(23, dtype))
    known = [{"sample_index": index} if with_table else {} for _, _, index in data]
    for (emb, labels, _), index in zip(data[:3], known[:3], strict=True):
        memory(emb, labels, **index)
    file = io.BytesIO()
    torch.save(memory.state_dict(), file)
    file.seek(0)
    resumed = build()
    resumed.load_state_dict(torch.load(file))
    for (emb, labels, _), index in zip(data[3:], known[3:], strict=True):
        assert torch.equal(resumed(emb, labels, **index), memory(emb, labels, **index))


def test_half_precision_is_kept_in_float32():
    emb, labels, index = next(batches(1, torch.bfloat16))
    memory = CrossBatchMemory(BSPMLLoss(table()), COLUMNS, 20)
    value = memory(emb, labels, sample_index=index)
    value.backward()
    assert memory.embedding_memory.dtype == value.dtype == torch.float32
    assert emb.grad.dtype == torch.bfloat16


def test_resetting_the_queue_forgets_everything():
    emb, labels, index = next(batches(1))
    memory = CrossBatchMemory(BSPMLLoss(table()), COLUMNS, 20)
    first = memory(emb, labels, sample_index=index)
    memory.reset_queue()
    assert (memory.index_memory == -1).all()
    assert torch.equal(memory(emb, labels, sample_index=index), first)


def test_losses_of_pml_work_as_in_the_parent():
    ours, theirs = (
        memory(pml_losses.ContrastiveLoss(), COLUMNS, 20)
        for memory in (CrossBatchMemory, pml_losses.CrossBatchMemory)
    )
    for emb, labels, _ in batches(3, torch.float32):
        assert torch.equal(ours(emb, labels), theirs(emb, labels))


def test_a_loss_without_references_is_refused():
    with pytest.raises(InputError, match="BSPMLLoss; got ArcFaceLoss"):
        CrossBatchMemory(pml_losses.ArcFaceLoss(3, COLUMNS), COLUMNS)
