import copy
import io
import tempfile

import pytest
import torch
from pytorch_metric_learning import losses as pml_losses
from pytorch_metric_learning.miners import (
    MultiSimilarityMiner,
    PairMarginMiner,
    TripletMarginMiner,
)
from pytorch_metric_learning.utils import distributed as pml_dist

from bspml.errors import InputError, SampleIndexError
from bspml.losses.bspml_loss import BSPMLLoss
from bspml.losses.cross_batch_memory import CrossBatchMemory, order_on_every_rank
from bspml.losses.miners.bspml_miner import BSPMLMiner
from bspml.losses.reducers import SuperLoss
from bspml.losses.weighted import Weighted
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
    expected = torch.zeros(()) if mining else negatives_only
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
        ({"enqueue_mask": ["yes"] * 8}, InputError, r"must be \(8,\) bools.*got a list of str"),
        ({"labels": torch.full((8,), torch.nan)}, InputError, "got .*nan.* at row 0"),
        ({"labels": ["a"] * 8}, InputError, r"`labels` must be class ids.*got a list of str"),
        ({"sample_index": ["a"] * 8}, InputError, "`sample_index` must be integers.*list of str"),
        ({"embeddings": torch.ones(8, 3)}, InputError, "the memory's 4 columns; got 3"),
        ({"embeddings": torch.ones(8, 4).double()}, InputError, r"float32 like those in .*float64"),
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


@pytest.mark.parametrize("sizes", [(0, 8), (4, 0), (4, -1)])
def test_a_memory_without_room_is_refused(sizes):
    with pytest.raises(InputError, match=r"`(embedding|memory)_size` must be a whole number"):
        CrossBatchMemory(BSPMLLoss(), *sizes)


def test_another_precision_is_welcome_once_the_queue_is_empty():
    emb, labels, _ = next(batches(1, torch.float32))
    memory = CrossBatchMemory(BSPMLLoss(), COLUMNS, 20)
    memory(emb, labels)
    memory.reset_queue()
    assert memory(emb.double(), labels).dtype == torch.float64


def test_a_class_of_one_sample_is_finite_in_the_memory():
    memory = CrossBatchMemory(BSPMLLoss(miner=BSPMLMiner()), COLUMNS, 6)
    for emb, _, _ in batches(3):
        rows = emb[:4].detach().requires_grad_()
        value, grad = step(memory, rows, torch.tensor([0, 0, 1, 2]))
        assert torch.isfinite(value)
        assert torch.isfinite(grad).all()


def test_the_kind_of_label_does_not_change_the_labels_queued():
    emb, _, index = next(batches(1))
    memory = CrossBatchMemory(BSPMLLoss(), COLUMNS, 20)
    far = torch.tensor([2**40, 2**40 + 1] * 4)
    memory(emb, far, sample_index=index)
    memory(emb, torch.arange(8, dtype=torch.int8), sample_index=index + 8)
    memory(emb, torch.arange(8.0), sample_index=index + 16)
    assert memory.label_memory.dtype == torch.int64
    assert torch.equal(memory.label_memory[4:8], far[4:])


# ------------------------------------------------------------------------------- two processes

HALF, STEPS, UNEVEN = 4, 6, 19  # 19 rows: parts of batches of 8 are overwritten


def union_batches():
    """Batches of two ranks in an order that is not that of the samples."""
    generator = torch.Generator().manual_seed(7)
    for _ in range(STEPS):
        index = torch.randperm(SAMPLES, generator=generator)[: 2 * HALF]
        rows = torch.randn(2 * HALF, 6, generator=generator, dtype=torch.float64)
        yield rows, index % 3, index


def train(run, rank=None):
    """A few steps of a linear network; returns each gradient, its weights and the queue."""
    weights = table(torch.rand(SAMPLES, generator=torch.Generator().manual_seed(8)))
    known = weights if run != "no table" else None
    memory = CrossBatchMemory(BSPMLLoss(known), COLUMNS, UNEVEN)
    loss = memory if rank is None else pml_dist.DistributedLossWrapper(memory)
    network = torch.nn.Linear(6, COLUMNS).double()
    torch.nn.init.normal_(network.weight, generator=torch.Generator().manual_seed(9))
    torch.nn.init.zeros_(network.bias)
    grads = []
    for rows, labels, index in union_batches():
        mask = torch.arange(2 * HALF) % 3 > 0 if run == "mask" else None
        if rank is not None:
            mine = slice(HALF * rank, HALF * (rank + 1))
            rows, labels, index = rows[mine], labels[mine], index[mine]
            mask = None if mask is None else mask[mine]
            index = torch.cat([index, pml_dist.all_gather(index)])
        weights.set_batch(index)
        network.zero_grad()
        if run == "own gather" and rank is not None:  # without the wrapper, in another layout
            emb = network(rows)
            emb = torch.cat([pml_dist.all_gather(emb.detach()), emb])
            labels = torch.cat([pml_dist.all_gather(labels), labels])
            (2 * memory(emb, labels, sample_index=index.roll(HALF))).backward()
        else:
            loss(network(rows), labels, enqueue_mask=mask).backward()
        grads.append(network.weight.grad.clone())
        if rank is not None:  # what DistributedDataParallel does
            torch.distributed.all_reduce(grads[-1])
            grads[-1] /= 2
        with torch.no_grad():
            network.weight -= 0.1 * grads[-1]
    return grads, network.weight.detach(), memory.state_dict()


RUNS = ["table", "no table", "mask", "own gather"]


def rank_of_two(rank, folder):
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2
    )
    torch.save([train(run, rank) for run in RUNS], f"{folder}/{rank}")
    torch.distributed.destroy_process_group()


def test_every_rank_holds_the_queue_of_one_process_on_the_whole_batch():
    with tempfile.TemporaryDirectory() as folder:
        context = torch.multiprocessing.get_context("fork")
        ranks = [
            context.Process(target=rank_of_two, args=(rank, folder), daemon=True)
            for rank in range(2)
        ]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join(60)
            process.kill()  # only a hung one is still there
        assert [process.exitcode for process in ranks] == [0, 0]
        first, second = (torch.load(f"{folder}/{rank}") for rank in range(2))
    for run, here, there in zip(RUNS, first, second, strict=True):
        for buffer in ("embedding_memory", "label_memory", "index_memory"):
            assert torch.equal(here[2][buffer], there[2][buffer]), (run, buffer)
        assert torch.equal(here[1], there[1]), run
        if run == "own gather":
            continue  # sorted by sample: the same queue on both ranks, in an order of its own
        grads, weight, state = train(run)
        torch.testing.assert_close(here[0], grads)
        torch.testing.assert_close(here[1], weight)
        torch.testing.assert_close(here[2]["embedding_memory"], state["embedding_memory"])
        assert torch.equal(here[2]["index_memory"], state["index_memory"])


def test_the_order_among_ranks_does_not_depend_on_the_rank(monkeypatch):
    emb = torch.randn(6, 2, generator=torch.Generator().manual_seed(0))
    index = torch.tensor([5, 3, 3, 3, 9, 0])
    assert order_on_every_rank(emb, index).tolist() == list(range(6))  # alone: as they came
    monkeypatch.setattr("bspml.distributed.group._started", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 3)
    whole = torch.arange(6).view(3, 2)
    for rank in range(3):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        others = [block for block in range(3) if block != rank]
        rows = whole[[rank, *others]].flatten()  # what the wrapper hands over
        assert rows[order_on_every_rank(emb[rows], None)].tolist() == list(range(6))
        order = rows[order_on_every_rank(emb[rows], index[rows])]
        assert index[order].tolist() == [0, 3, 3, 3, 5, 9]
        assert torch.equal(emb[order[1:4]], emb[1:4][emb[1:4, 0].argsort()])
    assert order_on_every_rank(emb[:5], None).tolist() == list(range(5))
    assert order_on_every_rank(emb[:0], None).tolist() == []


def test_an_empty_batch_with_empty_lists_queues_nothing():
    loss = CrossBatchMemory(BSPMLLoss(SampleWeights([0, 1])), 4, memory_size=8)
    empty = torch.zeros(0, 4, requires_grad=True)
    value = loss(empty, torch.zeros(0).long(), sample_index=[], enqueue_mask=[])
    assert value.item() == 0
    assert loss.queue_idx == 0


@pytest.mark.parametrize("inside_out", [False, True])
@pytest.mark.parametrize("miner", [None, PairMarginMiner()])
def test_the_weights_of_superloss_are_those_of_the_queue_too(inside_out, miner):
    """As under Weighted: a queued sample of weight 0 is no pair's, and a named row is heard."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(12) // 3
    weights = SampleWeights(labels)

    def memory_of(loss):
        return CrossBatchMemory(loss, 4, 32, miner)

    plain = pml_losses.ContrastiveLoss
    ours = (
        SuperLoss(memory_of(plain()), sample_weights=weights)
        if inside_out
        else memory_of(SuperLoss(plain(), sample_weights=weights))
    )
    theirs = memory_of(Weighted(SuperLoss(plain()), weights))
    for seed in range(3):
        weights.update((torch.arange(12) % 4 != seed).float())
        embeddings = torch.randn(12, 4, generator=generator, dtype=torch.float64)
        values = [m(embeddings, labels, sample_index=range(12)) for m in (ours, theirs)]
        torch.testing.assert_close(values[0], values[1], rtol=1e-12, atol=1e-12)


def test_a_miner_with_weights_looks_the_queue_up_for_any_loss():
    labels = torch.arange(12) // 3
    weights = SampleWeights(labels)
    weights.update((torch.arange(12) % 4 > 0).float())
    embeddings = torch.randn(2, 12, 4, generator=torch.Generator().manual_seed(0))
    values = []
    for loss in (pml_losses.ContrastiveLoss(), Weighted(pml_losses.ContrastiveLoss(), weights)):
        memory = CrossBatchMemory(loss, 4, 32, BSPMLMiner(weights))
        values.append([memory(rows, labels, sample_index=range(12)) for rows in embeddings])
    assert values[0] == values[1]


@pytest.mark.parametrize("handed", ["given", "current"])
def test_labels_queued_as_repaired_follow_a_later_repair(handed):
    """Trainers hand the labels of the day; the queue outlives them."""
    given = torch.arange(12) // 3
    weights, plain = SampleWeights(given), pml_losses.ContrastiveLoss
    memory = CrossBatchMemory(Weighted(plain(), weights), 4, 36)
    generator = torch.Generator().manual_seed(0)
    sent, days = [], [torch.tensor([day, *[0] * 11]) for day in (1, 2, 0)]  # who it is said to be
    for day in days:
        current = given + day
        weights.relabel(current)
        embeddings = torch.randn(12, 4, generator=generator, dtype=torch.float64)
        value = memory(embeddings, given if handed == "given" else current, sample_index=range(12))
        sent.append(embeddings)
        fresh = CrossBatchMemory(Weighted(plain(), SampleWeights(current)), 4, 36)
        for rows in sent:  # the same under one label from the first day
            expected = fresh(rows, current, sample_index=range(12))
        torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-12)
    assert memory.label_memory.tolist() == given.tolist() * 3
