"""A trainer on several ranks: the weights, networks and memories of one process, to 1e-8."""

import copy
import logging

import pytest
import torch
from pytorch_metric_learning import losses as pml_losses

import bspml
from bspml.data import indexed
from bspml.data.indexed import sample_index_getter
from bspml.distributed import computed_by_rows, pml_trainer, ranks
from bspml.errors import InputError
from bspml.networks import embed
from bspml.trainers.alternating import AlternatingTrainer
from bspml.trainers.step import StepTrainer
from helpers.draws import around_centres

EPOCHS = 2.5
# How near to one process.  Weights that are not 0 or 1 are solved for from single precision.
KINDS = {"auto": 1e-8, "pieces": 1e-8, "superloss": 1e-8, "paper": 1e-5}


class Keep:
    """The losses of all steps, and the state after one in the middle of a round."""

    def __init__(self):
        self.losses, self.saved = [], None

    def on_step(self, trainer, step, steps, loss):
        self.losses.append(loss)
        if trainer.steps == 8:
            self.saved = copy.deepcopy(trainer.state_dict())

    def on_round(self, trainer, record):
        pass


def make(kind):
    """20 samples a batch: 10 and 10 on two ranks; 7, 7 and 6 on three."""
    logging.getLogger("PML").setLevel(logging.ERROR)
    torch.manual_seed(0)
    true = torch.arange(10).repeat_interleave(10)
    inputs = around_centres(true, 8, spread=0.4, dtype=torch.float64)
    noisy = bspml.noise.symmetric(true, 0.3, seed=1)
    network = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Tanh(), torch.nn.Linear(16, 6)
    ).double()
    if kind == "half":
        inputs, network = inputs.float(), network.float()
    weights = bspml.SampleWeights(noisy.labels)
    curriculum, optimizers, miners = None, {}, {}
    loss = bspml.BSPMLLoss(weights, miner=bspml.BSPMLMiner(weights))
    if kind in ("auto", "pieces", "half"):
        curriculum = bspml.SelfPacedCurriculum(weights, warmup="cross-fit", warmup_rounds=1)
    elif kind == "paper":
        curriculum = bspml.SelfPacedCurriculum(weights, preset="paper", age=3.0)
        loss = bspml.CrossBatchMemory(bspml.BSPMLLoss(weights), 6, 50, miner=loss.miner)
        # So that all rows share its precision.
        loss.embedding_memory = loss.embedding_memory.double()
    else:
        loss = bspml.SuperLoss(pml_losses.ProxyNCALoss(10, 6).double(), tau="mean")
        optimizers = {"metric_loss_optimizer": torch.optim.SGD(loss.parameters(), 0.1)}
    sampler = bspml.PKSampler(noisy.labels, 4 if kind == "pieces" else 5, 4)
    trainer = StepTrainer(
        models={"trunk": network},
        optimizers={"trunk_optimizer": torch.optim.Adam(network.parameters(), 3e-3), **optimizers},
        batch_size=sampler.batch_size,
        loss_funcs={"metric_loss": loss},
        mining_funcs=miners,
        dataset=bspml.IndexedDataset(torch.utils.data.TensorDataset(inputs, noisy.labels)),
        data_device=torch.device("cpu"),
        sampler=sampler,
        data_and_label_getter=sample_index_getter(weights),
        dataloader_num_workers=0,
        micro_batches=2 if kind == "pieces" else 1,
        precision="bfloat16" if kind == "half" else "float32",
    )

    def embed_all():
        return computed_by_rows(100, lambda rows: embed(network, inputs[rows], 16).double(), 16)

    collected = {"embeddings": "collected"} if kind == "paper" else {}
    watch = Keep()
    return AlternatingTrainer(trainer, sampler, curriculum, embed_all, observer=watch, **collected)


def outcome(alternating, records):
    state = alternating.state_dict()
    held = [*state["network"]["models"]["trunk"].values()]
    held += state["loss_funcs"]["metric_loss"].values()
    flat = [value.double() for value in held if isinstance(value, torch.Tensor)]
    watch = alternating.observer
    return {
        "state": flat,
        "losses": torch.tensor(watch.losses, dtype=torch.float64),
        "rates": [None if r.curriculum is None else r.curriculum.noise_rate for r in records],
        "seen": alternating.sampler.coverage(),
    }


def trained(kind):
    alternating = make(kind)
    records = alternating.train(EPOCHS)
    return outcome(alternating, records) | {"saved": alternating.observer.saved}


def resumed(saved):
    alternating = make("auto")
    alternating.load_state_dict(copy.deepcopy(saved))  # optimisers go on in the tensors they take
    return outcome(alternating, alternating.train(EPOCHS))


def on_a_rank():
    # Every kind on parts of different sizes; on two ranks one is enough.
    kinds = (*KINDS, "half") if ranks() == 3 else ("auto",)
    found = {kind: trained(kind) for kind in kinds}
    found["resumed"] = resumed(found["auto"]["saved"])
    sampler = bspml.PKSampler([0, 0, 1, 1], 2, 1)
    try:
        sampler.share(0, 3)
    except InputError as err:
        found["refused"] = str(err)
    once = make("auto")
    try:
        AlternatingTrainer(once.trainer, once.sampler, once.curriculum, once.embed)
    except InputError as err:
        found["twice"] = str(err)
    return found


def assert_same(found, expected, losses=True, tolerance=1e-8):
    close = {"rtol": tolerance, "atol": tolerance}
    for theirs, ours in zip(found["state"], expected["state"], strict=True):
        torch.testing.assert_close(theirs, ours, **close)
    if losses:
        torch.testing.assert_close(found["losses"], expected["losses"], **close)
        assert found["rates"] == expected["rates"]
    assert found["seen"] == expected["seen"]


@pytest.mark.parametrize(
    ("size", "kind", "tolerance"),
    [
        (2, "auto", 1e-8),
        *(pytest.param(3, *kind, marks=pytest.mark.slow) for kind in KINDS.items()),
    ],
)
def test_training_ends_where_one_process_ends(everyone, size, kind, tolerance):
    alone = trained(kind)
    for found in everyone(__file__, size):
        assert_same(found[kind], alone, tolerance=tolerance)


@pytest.mark.slow
def test_in_bfloat16_the_first_steps_are_near_and_the_ranks_equal(everyone):
    alone = trained("half")
    results = [found["half"] for found in everyone(__file__, 3)]
    for found in results:
        torch.testing.assert_close(found["losses"][:3], alone["losses"][:3], rtol=0.05, atol=0)
        assert all(map(torch.equal, found["state"], results[0]["state"]))


@pytest.mark.slow
def test_a_checkpoint_of_three_ranks_goes_on_with_one_and_one_of_two_with_two(everyone):
    alone = trained("auto")
    assert_same(resumed(everyone(__file__, 3)[0]["auto"]["saved"]), alone, losses=False)
    for found in everyone(__file__, 2):
        assert_same(found["resumed"], alone, losses=False)


def test_a_batch_too_small_for_its_ranks_is_refused(everyone):
    for found in everyone(__file__, 2):
        assert "a batch has 2 rows, fewer than the 3 processes" in found["refused"]
        assert "a trainer serves one AlternatingTrainer" in found["twice"]


def test_the_rows_of_a_shared_step_are_taken_back_after_it():
    weights = bspml.SampleWeights([0, 0, 1])
    shared = pml_trainer._Gathering(indexed.sample_index_getter(weights))
    _, labels = shared((torch.zeros(2, 1), torch.tensor([0, 1]), torch.tensor([1, 2])))
    assert labels.tolist() == [0, 1]
    assert weights.batch_index.tolist() == [1, 2]
    indexed.clear_batch(shared)
    assert weights.batch_index is None
