"""The loop on a CUDA device: no step waits for it, and what it leaves loads without one."""

import logging

import pytest
import torch

import bspml
from bspml.data.indexed import sample_index_getter
from bspml.experiment.config import load_config
from bspml.experiment.run import run_experiment
from bspml.files import checkpoints
from bspml.files.run import RunFolder
from bspml.networks import SmallConvNet, embed
from bspml.trainers.alternating import AlternatingTrainer
from bspml.trainers.step import StepTrainer

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

LABELS = torch.arange(12).repeat_interleave(8)


def images():
    generator = torch.Generator().manual_seed(0)
    centres = torch.rand(12, 1, 24, 24, generator=generator)
    return centres[LABELS] + 0.3 * torch.rand(len(LABELS), 1, 24, 24, generator=generator)


def make_trainer(device, embeddings="fresh", observer=None, data=None, **options):
    logging.getLogger("PML").setLevel(logging.ERROR)
    torch.manual_seed(0)
    net = SmallConvNet(16).to(device)
    weights = bspml.SampleWeights(LABELS).to(device)
    sampler = bspml.PKSampler(LABELS, 4, 4, seed=0)
    data = images() if data is None else data
    trainer = StepTrainer(
        models={"trunk": net, "embedder": torch.nn.Identity()},
        optimizers={"trunk_optimizer": torch.optim.AdamW(net.parameters(), 1e-3)},
        batch_size=16,
        loss_funcs={"metric_loss": bspml.BSPMLLoss(weights, miner=bspml.BSPMLMiner(weights))},
        dataset=bspml.IndexedDataset(torch.utils.data.TensorDataset(data, LABELS)),
        data_device=torch.device(device),
        sampler=sampler,
        dataloader_num_workers=0,
        data_and_label_getter=sample_index_getter(weights),
        **options,
    )
    curriculum = bspml.SelfPacedCurriculum(weights, preset="paper", target_maw=0.75)
    return AlternatingTrainer(
        trainer,
        sampler,
        curriculum,
        lambda: embed(net, data, output_device=device),
        embeddings=embeddings,
        observer=observer,
    )


class Saver:
    """Keeps the losses, and writes a checkpoint after the third step."""

    def __init__(self, path=None):
        self.path, self.losses = path, []

    def on_step(self, trainer, step, steps, loss):
        self.losses.append(loss)
        if self.path is not None and trainer.steps == 3:
            checkpoints.save(self.path, trainer.state_dict())

    def on_round(self, trainer, record):
        pass


OPTIONS = {
    "plain": {},
    "collected": {"embeddings": "collected"},
    "half precision": {"precision": "bfloat16", "channels_last": True},
    "in parts": {"micro_batches": 2},
    "data on the device": {"data": "device"},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_no_step_waits_for_the_device(options):
    if options.get("data") == "device":
        options = {"data": images().cuda()}
    trainer = make_trainer("cuda", **options)
    inner, step, watched = trainer.trainer, trainer.trainer.forward_and_backward, []

    def forward_and_backward():
        if inner.iteration:  # the first step allocates and chooses kernels
            torch.cuda.set_sync_debug_mode("error")
            watched.append(inner.iteration)
        try:
            step()
        finally:
            torch.cuda.set_sync_debug_mode("default")

    inner.forward_and_backward = forward_and_backward
    trainer.train(4 / len(trainer.sampler))
    assert watched == [1, 2, 3]


@pytest.mark.parametrize("embeddings", ["fresh", "collected"])
def test_statistics_are_taken_on_the_device_and_come_out_as_on_the_cpu(embeddings):
    seen, records = [], {}
    for device in ("cpu", "cuda"):
        trainer = make_trainer(device, embeddings)
        judge = trainer.curriculum.update
        trainer.curriculum.update = lambda e, f=judge: (seen.append(e.device.type), f(e))[1]
        records[device] = trainer.train(1)[0]
    assert seen == ["cpu", "cuda"]
    assert records["cuda"].loss == pytest.approx(records["cpu"].loss, rel=0.03)
    assert records["cuda"].maw == pytest.approx(records["cpu"].maw, abs=0.03)


@pytest.mark.parametrize("options", [{"micro_batches": 1}, {"micro_batches": 2}])
def test_labels_are_not_overwritten_while_they_travel(options):
    """The device lags far behind the loader, which reuses its pinned memory."""
    trainer = make_trainer("cuda", **options)
    seen, inner = [], trainer.trainer
    weights, loss = trainer.curriculum.weights, inner.loss_funcs["metric_loss"]

    def late_loss(embeddings, labels, pairs):
        torch.cuda._sleep(2 * 10**7)
        seen.append((weights.batch_index.clone(), (labels + 0).to("cuda", non_blocking=True)))
        return loss(embeddings, labels, pairs)

    inner.loss_funcs["metric_loss"] = late_loss
    inner.trainable_attributes = lambda: [inner.models]
    inner.initialize_dataloader()
    inner.set_to_train()
    for _ in range(5):
        inner.forward_and_backward()
    assert len(seen) == 5
    for rows, labels in seen:
        assert torch.equal(LABELS[rows], labels.cpu())


def test_a_checkpoint_of_a_gpu_loads_on_the_cpu_and_goes_on(tmp_path):
    whole, rest = Saver(tmp_path / "c.pt"), Saver()
    make_trainer("cuda", "collected", whole).train(2)
    state = checkpoints.load(tmp_path / "c.pt")
    assert state["collected"].device.type == "cpu"
    assert state["position"]["loss_sum"] == pytest.approx(sum(whole.losses[1:4]), rel=1e-6)
    for device in ("cuda", "cpu"):
        trainer = make_trainer(device, "collected", rest)
        trainer.load_state_dict(state)
        trainer.train(2)
    resumed = rest.losses[: len(rest.losses) // 2]
    assert resumed[1:3] == pytest.approx(whole.losses[4:6], rel=0.03)


def test_the_main_job_keeps_its_embeddings_on_the_device(tmp_path, monkeypatch):
    import bspml.experiment.measuring as module

    seen, evaluate = [], module.evaluate
    monkeypatch.setattr(
        module, "evaluate", lambda e, *a, **k: (seen.append(e.device.type), evaluate(e, *a, **k))[1]
    )
    small = ["data.subset=24", "training.epochs=1", "sampler.classes_per_batch=8"]
    small += ["evaluation.ks=[1, 2]", "training.methods=[bspml]", "device=cuda"]
    run_experiment(load_config(None, small), RunFolder.create(tmp_path / "run"), figures=False)
    assert set(seen) == {"cuda"}
    assert bspml.load(tmp_path / "run").embed(torch.rand(3, 1, 24, 24)).device.type == "cpu"
