"""Small trainings by Lightning itself, against a loop in plain torch and against themselves."""

import copy
import doctest
import importlib.util
import logging
import re
import sys
import warnings

import pytest

pl = pytest.importorskip("lightning.pytorch")

import torch
from pytorch_metric_learning.losses import (
    CrossBatchMemory,
    MultiSimilarityLoss,
    ProxyAnchorLoss,
)
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import bspml
import bspml.trainers
from bspml.distributed import DistributedLossWrapper, synchronize_batch_norm
from bspml.errors import CheckpointError, InputError, MissingDependencyError
from bspml.integrations import lightning as integration
from bspml.integrations.lightning import CurriculumCallback
from helpers.draws import around_centres
from helpers.places import REPOSITORY

pytestmark = [
    pytest.mark.integrations,
    pytest.mark.filterwarnings("ignore"),  # Lightning's: few workers, no logger, ...
]
CROSS_FIT = {"warmup": "cross-fit", "warmup_rounds": 1}
TRUE = torch.arange(8).repeat_interleave(12)
POINTS = around_centres(TRUE, 6, spread=0.35)
LABELS = TRUE.clone()
LABELS[::5] = (LABELS[::5] + 1 + torch.arange(len(LABELS[::5])) % 7) % 8
QUIET = {
    "accelerator": "cpu",
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}


@pytest.fixture(autouse=True)
def quiet(caplog):
    for name in ("PML", "lightning.pytorch.utilities.rank_zero"):
        caplog.set_level(logging.ERROR, name)


class Module(pl.LightningModule):
    def __init__(self, loss, dropout=0.2):
        super().__init__()
        layers = nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Dropout(dropout), nn.Linear(16, 5)
        self.net, self.loss, self.batches, self.labels = nn.Sequential(*layers), loss, [], []

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, labels, index = batch.values() if isinstance(batch, dict) else batch
        self.batches.append((self.current_epoch, batch_idx, index.tolist()))
        self.labels.append(labels.tolist())
        return self.loss(self(x), labels)

    def validation_step(self, batch, batch_idx):
        assert self.loss.weights.batch_index is None
        self.log("seen", float(len(batch[0])))

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), 0.02)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 2)]

    def counts(self):
        """Batches of each epoch."""
        return [sum(e == epoch for e, *_ in self.batches) for epoch in range(self.current_epoch)]


class Fit:
    """One fit, and what it left behind."""

    def __init__(
        self,
        curriculum=CROSS_FIT,
        trainer=pl.Trainer,
        workers=0,
        dropout=0.2,
        classes_per_batch=4,
        **options,
    ):
        torch.manual_seed(1)
        self.weights = bspml.SampleWeights(LABELS)
        self.curriculum = bspml.SelfPacedCurriculum(self.weights, **curriculum)
        self.loader = DataLoader(
            bspml.IndexedDataset(TensorDataset(POINTS, LABELS)),
            batch_sampler=bspml.PKSampler(LABELS, classes_per_batch, 3),
            num_workers=workers,
        )
        self.module = Module(bspml.Weighted(MultiSimilarityLoss(), self.weights), dropout)
        self.callback = CurriculumCallback(self.loader, self.curriculum)
        more = options.pop("callbacks", [])
        self.trainer = trainer(
            callbacks=[self.callback, *more], **QUIET | {"max_epochs": 4} | options
        )

    def __call__(self, validate=False, **options):
        val = DataLoader(TensorDataset(POINTS), 48) if validate else None
        self.trainer.fit(self.module, self.loader, val, **options)
        return self

    def outcome(self):
        return {
            "module": self.module.state_dict(),
            "optimizer": self.trainer.optimizers[0].state_dict(),
            "curriculum": self.curriculum.state_dict(),
            "weights": self.weights.state_dict(),
        }


class Keep(pl.Callback):
    """Checkpoints as ModelCheckpoint could take them: after batches, validations and epochs."""

    def __init__(self, folder):
        self.folder, self.paths, self.validations = folder, [], 0

    def keep(self, trainer, when):
        path = self.folder / f"{len(self.paths)}.ckpt"
        trainer.save_checkpoint(path)
        self.paths.append((trainer.current_epoch, when, path))

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if batch_idx == 0 or trainer.is_last_batch:
            self.keep(trainer, "batch")

    def on_validation_end(self, trainer, module):
        if not trainer.sanity_checking:
            self.validations += 1
            self.keep(trainer, "validation")

    def on_train_epoch_end(self, trainer, module):
        self.keep(trainer, "epoch")


def same(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    keep = Keep(tmp_path_factory.mktemp("checkpoints"))
    return Fit(callbacks=[keep])(validate=True), keep


def test_a_fit_resumed_anywhere_is_one_that_was_not_stopped(whole):
    full, keep = whole
    counts = full.module.counts()
    assert min(counts[:2]) < min(counts[2:])  # halves, then both: Lightning has to count again
    assert keep.validations == 4
    tried = [(when, path) for epoch, when, path in keep.paths if epoch in (0, 1, 2)]
    for when, path in tried:
        resumed = Fit()
        torch.manual_seed(99)  # dropout goes on as the checkpoint has it
        resumed(validate=True, ckpt_path=path)
        assert same(resumed.outcome(), full.outcome()), (when, path)
        assert resumed.module.batches == full.module.batches[-len(resumed.module.batches) :]
    assert len(tried) == 12


def test_a_checkpoint_of_a_callback_that_comes_first_has_the_batch_it_ends(tmp_path):
    def fit(*callbacks, **at):
        one = Fit(max_epochs=3)
        one.trainer.callbacks[:0] = callbacks
        one.trainer.fit(one.module, one.loader, **at)
        return one

    keep = Keep(tmp_path)
    whole = fit(keep)
    paths = [path for _, when, path in keep.paths if when == "batch"]
    assert len(paths) == 6
    for path in paths:
        resumed = fit(ckpt_path=path)
        assert same(resumed.outcome(), whole.outcome()), path
        assert resumed.trainer.global_step == whole.trainer.global_step


@pytest.mark.parametrize("interval", [0.5, 2, 1.0])
def test_a_fit_with_validations_within_an_epoch_goes_on_from_its_last_one(tmp_path, interval):
    keep = Keep(tmp_path)
    full = Fit(callbacks=[keep], val_check_interval=interval)(validate=True)
    counts = full.module.counts()
    assert len(set(counts)) > 1  # an epoch of other length follows
    tried = 0
    for epoch, when, path in keep.paths:
        if when == "validation" and epoch in (0, 1, 2):
            resumed = Fit(val_check_interval=interval)(validate=True, ckpt_path=path)
            assert same(resumed.outcome(), full.outcome()), (epoch, path)
            assert resumed.trainer.global_step == full.trainer.global_step
            tried += 1
    assert tried >= 3


def test_a_loader_made_anew_each_epoch_goes_on_from_the_end_of_one(tmp_path):
    options = {"workers": 1, "reload_dataloaders_every_n_epochs": 1, "max_epochs": 3}
    keep = Keep(tmp_path)
    whole = Fit(callbacks=[keep], **options)()
    assert same(whole.outcome(), Fit(max_epochs=3)().outcome())
    ends = [path for epoch, when, path in keep.paths if when == "epoch" and epoch < 2]
    assert len(ends) == 2
    for path in ends:
        resumed = Fit(**options)(ckpt_path=path)  # which opens the loader twice
        assert resumed.module.batches == whole.module.batches[-len(resumed.module.batches) :]
        assert same(resumed.outcome(), whole.outcome())


@pytest.mark.parametrize(
    ("validations", "options"),
    [(3, {}), (1, {"val_check_interval": 2}), (1, {"check_val_every_n_epoch": 2}), (0, {})],
)
def test_a_validation_draws_nothing_from_the_training(tmp_path, validations, options):
    def fit(*callbacks, **at):
        one = Fit(callbacks=callbacks, max_epochs=3, **options)
        others = [DataLoader(TensorDataset(POINTS), 48) for _ in range(validations)]
        one.module.validation_step = draw
        one.trainer.fit(one.module, one.loader, others or None, **at)
        return one.outcome()

    def draw(batch, batch_idx, dataloader_idx=0):
        torch.rand(1)

    class AfterBatches(Keep):
        on_validation_end = on_train_epoch_end = pl.Callback.on_validation_end

        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            self.keep(trainer, "batch")

    keep = AfterBatches(tmp_path)
    whole = fit(keep)
    assert same(whole, Fit(max_epochs=3)().outcome())
    assert len(keep.paths) > 12
    for _, _, path in keep.paths[:-1]:
        assert same(fit(ckpt_path=path), whole), path


def test_a_validation_takes_back_nothing_that_hooks_of_a_batch_drew():
    def fit(*validated):
        one, drawn = Fit(max_epochs=2, val_check_interval=1), []
        one.module.on_train_batch_end = lambda *_: drawn.append(float(torch.rand(1)))
        one.trainer.fit(one.module, one.loader, *validated)
        assert "run" not in vars(one.trainer.fit_loop.epoch_loop.val_loop)
        return drawn, one.outcome()

    drawn, whole = fit()
    assert len(drawn) > 8
    validated = fit(DataLoader(TensorDataset(POINTS), 48))
    assert validated[0] == drawn
    assert same(validated[1], whole)


@pytest.mark.parametrize("first", [1, 2, 3])
def test_a_warm_up_over_two_fits_starts_the_network_anew_as_one_does(first):
    class Starts(pl.Callback):
        fresh = ()

        def on_train_epoch_start(self, trainer, module):
            self.fresh += (same(module.net.state_dict(), initial),)

    fit, starts = Fit(curriculum={"warmup": "cross-fit"}), Starts()
    initial = copy.deepcopy(fit.module.net.state_dict())
    for epochs in (first, 5 - first):
        trainer = pl.Trainer(callbacks=[fit.callback, starts], **QUIET, max_epochs=epochs)
        trainer.fit(fit.module, fit.loader)
    assert [record.reset_model for record in fit.callback.records] == [False, True] * 2 + [False]
    assert starts.fresh == (True, False, True, False, True)


def test_the_fit_is_a_loop_in_plain_torch():
    fit = Fit(dropout=0.0)()
    twin = Fit(dropout=0.0)
    net, loss, weights, curriculum = (
        twin.module.net,
        twin.module.loss,
        twin.weights,
        twin.curriculum,
    )
    optimizer = torch.optim.Adam(net.parameters(), 0.02)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    parts = net, optimizer, scheduler
    initial, wanted = copy.deepcopy([part.state_dict() for part in parts]), False
    for epoch in range(4):
        if wanted:
            for part, state in zip(parts, copy.deepcopy(initial), strict=True):
                part.load_state_dict(state)
        sampler = bspml.PKSampler(LABELS, 4, 3)
        sampler.set_rows(curriculum.training_mask())
        sampler.set_epoch(epoch)
        net.train()
        for rows in sampler:
            optimizer.zero_grad()
            loss(net(POINTS[rows]), LABELS[rows], sample_index=rows).backward()
            optimizer.step()
        scheduler.step()
        net.eval()
        record = curriculum.update(net(POINTS).detach())
        wanted = record.reset_model
    assert same(fit.module.net.state_dict(), net.state_dict())
    assert torch.equal(fit.weights.weights, weights.weights)
    assert fit.callback.record.maw == record.maw
    logged = fit.trainer.callback_metrics
    assert float(logged["maw"]) == pytest.approx(record.maw)
    assert float(logged["noise_rate"]) == pytest.approx(record.noise_rate)
    assert fit.module.training
    assert fit.weights.batch_index is None


@pytest.mark.parametrize(
    ("workers", "options"),
    [(1, {"reload_dataloaders_every_n_epochs": 1}), (0, {"num_sanity_val_steps": 0})],
)
def test_a_loader_opened_twice_gives_the_same_batches(whole, workers, options):
    again = Fit(workers=workers, **options)(validate=True)
    assert again.module.batches == whole[0].module.batches
    assert again.trainer.reload_dataloaders_every_n_epochs == len(options) * workers


def test_a_loader_opened_to_count_the_steps_is_opened_anew(whole, monkeypatch):
    made = Module.configure_optimizers

    def counting(module):
        assert module.trainer.estimated_stepping_batches == 4 * 9
        return made(module)

    monkeypatch.setattr(Module, "configure_optimizers", counting)
    again = Fit(workers=1)(validate=True)
    assert again.module.batches == whole[0].module.batches


def test_fewer_batches_an_epoch_and_accumulated_gradients(whole):
    limited = Fit(limit_train_batches=2, accumulate_grad_batches=2)(validate=True)
    assert limited.module.counts() == [2, 2, 2, 2]
    assert limited.trainer.global_step == 4
    assert limited.module.batches[:2] == whole[0].module.batches[:2]
    rows = [
        {row for e, _, batch in limited.module.batches if e == epoch for row in batch}
        for epoch in (2, 3)
    ]
    assert rows[0] != rows[1]  # the next epoch is another one


class Plain(Module):
    """A module written without a curriculum in mind, which changes its batches on the way."""

    def on_after_batch_transfer(self, batch, dataloader_idx):
        x, labels = batch
        return x, labels

    def training_step(self, batch, batch_idx):
        x, labels = batch
        self.batches.append((self.current_epoch, batch_idx, labels.tolist()))
        return self.loss(self(x), labels)

    def validation_step(self, batch, batch_idx):
        x, _ = batch
        self.log("seen", float(len(x)))


def plain_loader(**options):
    plain = {"dataset": TensorDataset(POINTS, LABELS), "batch_size": 16, "shuffle": True}
    return DataLoader(**plain | options)


def plain_fit(loader, module=None, callback=None, **options):
    torch.manual_seed(1)
    module = module or Plain(MultiSimilarityLoss())
    callback = callback or CurriculumCallback(loader, warmup="cross-fit")
    keep, path = options.pop("keep", []), options.pop("ckpt_path", None)
    trainer = pl.Trainer(callbacks=[callback, *keep], **QUIET | {"max_epochs": 8} | options)
    trainer.fit(module, loader, DataLoader(TensorDataset(POINTS, LABELS), 48), ckpt_path=path)
    return module, callback


def test_one_object_makes_the_weights_of_a_plain_loader():
    workers = {"num_workers": 1, "persistent_workers": True}
    for loader in (plain_loader(), plain_loader(**workers)):
        before = {**vars(loader)}
        module, callback = plain_fit(loader)
        assert vars(loader).keys() == before.keys()
        assert all(vars(loader)[name] is before[name] for name in before if name != "_iterator")
        assert all(len(labels) == 16 for *_, labels in module.batches)
        counts = {labels.count(c) for *_, labels in module.batches for c in set(labels)}
        assert counts == {4}
        explicit = by_hand(**workers if loader.num_workers else {})
        assert same(module.net.state_dict(), explicit.module.net.state_dict())
        assert torch.equal(callback.weights.weights, explicit.weights.weights)
        assert len(callback.records) == 8
        left_out = callback.weights.weights == 0
        assert (LABELS != TRUE)[left_out].float().mean() > 0.6


def by_hand(**options):
    """The same training with every part made by the caller."""
    torch.manual_seed(1)
    fit = Fit({"warmup": "cross-fit"}, max_epochs=8)
    torch.manual_seed(1)
    fit.module = Module(bspml.Weighted(MultiSimilarityLoss(), fit.weights))
    fit.loader = DataLoader(
        bspml.IndexedDataset(TensorDataset(POINTS, LABELS)),
        batch_sampler=bspml.PKSampler(LABELS, 4, 4, seed=1),
        **options,
    )
    fit.callback = CurriculumCallback(fit.loader, fit.curriculum)
    fit.trainer = pl.Trainer(callbacks=[fit.callback], **QUIET | {"max_epochs": 8})
    fit.trainer.fit(fit.module, fit.loader, DataLoader(TensorDataset(POINTS, LABELS), 48))
    return fit


@pytest.mark.parametrize("nothing", [{"max_epochs": 0}, {"limit_train_batches": 0}])
def test_a_fit_with_nothing_to_train_leaves_the_loader_as_it_was(nothing):
    loader = plain_loader()
    before = loader.batch_sampler
    plain_fit(loader, callback=CurriculumCallback(loader), **nothing)
    assert loader.batch_sampler is before


def test_a_plain_loader_overfits_a_batch_too():
    module, _ = plain_fit(plain_loader(), overfit_batches=1, max_epochs=2)
    assert [len(labels) for *_, labels in module.batches] == [16, 16]


def test_a_plain_fit_resumed_is_one_that_was_not_stopped(tmp_path):
    keep = Keep(tmp_path)
    whole, callback = plain_fit(plain_loader(), keep=[keep], max_epochs=4)
    for number in (0, 4, 5):
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "the checkpoint is of a training without")
            module, again = plain_fit(plain_loader(), max_epochs=4, ckpt_path=keep.paths[number][2])
        assert same(module.net.state_dict(), whole.net.state_dict()), number
        assert torch.equal(again.weights.weights, callback.weights.weights)


@pytest.mark.parametrize("by_epoch", [False, True])
def test_items_drawn_at_random_are_judged_after_a_checkpoint_as_without_it(tmp_path, by_epoch):
    class Augmented(Dataset):
        targets, epoch = LABELS, 0

        def __len__(self):
            return len(LABELS)

        def __getitem__(self, row):
            own = torch.Generator().manual_seed(999 * self.epoch + row) if by_epoch else None
            return POINTS[row] + 0.3 * torch.randn(POINTS.shape[1], generator=own), LABELS[row]

        def set_epoch(self, epoch):
            self.epoch = epoch

    def fit(keep=(), path=None):
        loader = plain_loader(dataset=Augmented())
        callback = CurriculumCallback(loader)
        return plain_fit(loader, None, callback, keep=keep, ckpt_path=path, max_epochs=3)

    keep = Keep(tmp_path)
    whole, callback = fit([keep])
    of_batches = [path for _, when, path in keep.paths if when == "batch"]
    for path in of_batches[:4]:  # after the first batch of an epoch and the last, of two
        module, again = fit(path=path)
        assert same(module.net.state_dict(), whole.net.state_dict()), path
        assert torch.equal(again.weights.weights, callback.weights.weights)


@pytest.mark.parametrize(("warmup", "said"), [("cross-fit", 1), ("features", 1), (None, 0)])
def test_a_checkpoint_of_the_plain_program_is_a_network_that_has_seen_the_labels(
    tmp_path, warmup, said
):
    keep, options = Keep(tmp_path), QUIET | {"max_epochs": 2}
    pl.Trainer(callbacks=[keep], **options).fit(Plain(MultiSimilarityLoss()), plain_loader())
    loader, path = plain_loader(), keep.paths[-1][2]
    fixed = bspml.trainers.FixedCurriculum(bspml.SampleWeights(LABELS)) if warmup is None else None
    callback = CurriculumCallback(loader, fixed, warmup=warmup)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        plain_fit(loader, callback=callback, max_epochs=3, ckpt_path=path)
    assert sum("has seen these labels" in str(w.message) for w in caught) == said


def test_the_audit_is_that_of_the_modules_embeddings():
    module, callback = Plain(MultiSimilarityLoss()), CurriculumCallback(plain_loader())
    module.eval()
    expected = bspml.audit(module(POINTS).detach(), LABELS).summary()
    assert callback.audit(module).summary() == expected
    assert callback.record is None

    class Asking(Plain):
        def on_after_batch_transfer(self, batch, dataloader_idx):
            return batch if self.trainer.max_epochs else None

    torch.manual_seed(1)
    module, callback = Asking(MultiSimilarityLoss()), CurriculumCallback(plain_loader())
    with pytest.raises(InputError, match=r"reads self\.trainer, and outside `fit` it has none"):
        callback.audit(module)
    options = QUIET | {"max_epochs": 1, "precision": "bf16-true"}
    pl.Trainer(callbacks=[callback], **options).fit(module, callback.loader.loader)
    found = module.eval()(POINTS.bfloat16()).detach().float()
    assert callback.audit(module).summary() == bspml.audit(found, LABELS).summary()


def test_a_module_in_half_precision_is_judged_by_its_own_embeddings_or_stops():
    module = Plain(MultiSimilarityLoss()).half().eval()
    weights = (callback := CurriculumCallback(plain_loader())).weights
    for judge in (
        lambda: callback.audit(module),
        lambda: plain_fit(callback.loader.loader, callback=callback, module=module, max_epochs=1),
    ):
        with pytest.raises(RuntimeError, match="dtype"):  # torch's own, of float32 inputs
            judge()
    assert (weights.weights == 1).all()
    callback = CurriculumCallback(plain_loader(), embed=lambda x: module(x.half()))
    found = module(POINTS.half()).detach().float()
    assert callback.audit(module).summary() == bspml.audit(found, LABELS).summary()


def test_networks_whose_embeddings_or_parameters_are_none_yet_are_one_sentence():
    module = Plain(MultiSimilarityLoss())
    module.net = nn.LazyLinear(5)
    for make, options, message in (
        (lambda x: torch.complex(x, x), {}, "real numbers; got torch.complex64"),
        (None, {"warmup": "cross-fit"}, "parameters without a size yet, such as net.weight"),
    ):
        callback = CurriculumCallback(plain_loader(), embed=make, **options)
        trainer = pl.Trainer(callbacks=[callback], **QUIET | {"max_epochs": 1})
        with pytest.raises(InputError, match=message):
            trainer.fit(module, callback.loader.loader)


@pytest.mark.parametrize(("few", "said"), [(False, "rule='threshold'"), (True, "would count them")])
def test_a_loss_that_ignores_the_weights_is_refused_and_one_that_looks_them_up_is_not(few, said):
    def parts():
        weights = bspml.SampleWeights(LABELS)  # 0.5 for all, or 1 for too few to fill a batch
        weights.update((LABELS == 0).float() if few else torch.full((len(LABELS),), 0.5))
        loader = plain_loader()
        return loader, CurriculumCallback(loader, bspml.trainers.FixedCurriculum(weights))

    loader, callback = parts()
    with pytest.raises(InputError, match=said) as caught:
        plain_fit(loader, callback=callback, max_epochs=1)
    assert "bspml.Weighted(loss, curriculum.weights)" in str(caught.value)
    assert loader.batch_size == 16  # left as it was, also then
    loader, callback = parts()
    weighted = Plain(bspml.Weighted(MultiSimilarityLoss(), callback.weights))
    plain_fit(loader, weighted, callback, max_epochs=1)
    # Held elsewhere, and found because it is asked.
    loader, callback = parts()
    outside = bspml.Weighted(MultiSimilarityLoss(), callback.weights)
    plain_fit(loader, Plain(lambda *batch: outside(*batch)), callback, max_epochs=1)


def test_rows_of_items_that_say_them_and_the_same_without():
    loader = plain_loader()
    rows = [
        {"input_tensors": x, "labels": y, "idx": i}
        for i, (x, y) in enumerate(zip(POINTS, LABELS, strict=True))
    ]

    class Dicts(Plain):
        on_after_batch_transfer = pl.LightningModule.on_after_batch_transfer

        def training_step(self, batch, batch_idx):
            return super().training_step((batch["input_tensors"], batch["labels"]), batch_idx)

    expected, _ = plain_fit(loader, max_epochs=2)
    for keys in (("input_tensors", "labels", "idx"), ("input_tensors", "labels")):
        loader = DataLoader(rows, batch_size=16)
        callback = CurriculumCallback(loader, labels=LABELS, keys=keys, warmup="cross-fit")
        torch.manual_seed(1)
        module, _ = plain_fit(loader, Dicts(MultiSimilarityLoss()), callback, max_epochs=2)
        assert module.batches == expected.batches


def test_what_does_not_fit_a_plain_loader_is_one_sentence():
    data = TensorDataset(POINTS, LABELS)
    subset = torch.utils.data.SubsetRandomSampler(range(9))
    others = torch.utils.data.RandomSampler(range(40))

    class Photos(torch.utils.data.Dataset):
        def __len__(self):
            return len(LABELS)

        def __getitem__(self, row):
            return POINTS[row], LABELS[row]

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(())

    for make, message in (
        (lambda: DataLoader(Photos(), 16), r"Pass them: CurriculumCallback\(loader, labels=labels"),
        (lambda: DataLoader(data, 4), "`batch_size` must be at least 8.*got 4"),
        (lambda: DataLoader(data, 16, sampler=subset), "SubsetRandomSampler, which may leave rows"),
        (lambda: DataLoader(data, 16, sampler=others), "RandomSampler of 40 rows from .* of 96"),
        (lambda: DataLoader(data, batch_size=None), "makes batches, in order"),
        (lambda: DataLoader(Stream(), 16), "got DataLoader of Stream"),
        (lambda: POINTS, "got Tensor of NoneType"),
    ):
        with pytest.raises(InputError, match=message):
            CurriculumCallback(make())
    with pytest.raises(InputError, match="their labels must agree"):
        CurriculumCallback(plain_loader(), labels=LABELS.roll(1))
    with pytest.raises(InputError, match=r"Pass keys=\(input, label\)"):
        CurriculumCallback(plain_loader(), keys=(0,))
    with pytest.raises(InputError, match=r"`data` must be .* with a length; got list_iterator"):
        CurriculumCallback(plain_loader(), data=iter([1]))
    with pytest.raises(InputError, match="at least two classes, for a loss to compare; got 1"):
        CurriculumCallback(plain_loader(dataset=TensorDataset(POINTS, LABELS * 0)))
    pairs = CurriculumCallback(plain_loader(), embed=lambda x: (x, x))
    with pytest.raises(InputError, match=r"got tuple. Say which part .* embed=lambda"):
        pairs.audit(Plain(MultiSimilarityLoss()))
    own = bspml.SelfPacedCurriculum(bspml.SampleWeights(LABELS))
    with pytest.raises(InputError, match="`labels` is for a curriculum that is made here"):
        CurriculumCallback(plain_loader(), own, labels=LABELS)
    few = bspml.SelfPacedCurriculum(bspml.SampleWeights([0, 0, 1, 1, 1]))
    with pytest.raises(InputError, match="the curriculum has 5 weights, the data set 96"):
        CurriculumCallback(plain_loader(), few)
    loader = plain_loader()
    callback = CurriculumCallback(loader)
    trainer = pl.Trainer(callbacks=[callback], **QUIET | {"max_epochs": 1})
    with pytest.raises(InputError, match="Validate with a DataLoader of its own"):
        trainer.fit(Plain(MultiSimilarityLoss()), loader, [loader])
    assert loader.batch_size == 16


def test_dicts_a_function_and_other_data():
    class Dicts(torch.utils.data.Dataset):
        def __len__(self):
            return len(LABELS)

        def __getitem__(self, row):
            return {"image": POINTS[row] + 100, "label": LABELS[row], "row": row}

    fit, modes = Fit({}), []
    fit.loader = DataLoader(Dicts(), batch_sampler=bspml.PKSampler(LABELS, 4, 3))
    fit.callback = CurriculumCallback(
        fit.loader,
        fit.curriculum,
        embed=lambda x: (modes.append((fit.module.training, torch.is_grad_enabled())), x)[1],
        data=POINTS,
        keys=("image", "label", "row"),
    )
    fit.trainer = pl.Trainer(max_epochs=1, callbacks=[fit.callback], **QUIET)
    fit.module.net[1].eval()  # a frozen layer stays frozen
    fit.trainer.fit(fit.module, fit.loader)
    expected = bspml.SelfPacedCurriculum(bspml.SampleWeights(LABELS))
    expected.update(POINTS)
    expected.update(POINTS)
    assert torch.equal(fit.weights.weights, expected.weights.weights)
    assert set(modes) == {(False, False)}
    assert not fit.module.net[1].training
    assert fit.module.net[0].training


def test_repaired_labels_reach_the_loss():
    fit = Fit({})
    codes = fit.weights.codes.clone()
    codes[0] = (codes[0] + 3) % 8
    fit.weights.relabel(codes)
    batch = [POINTS[:2], LABELS[:2].clone(), torch.tensor([0, 1])]
    fit.callback.on_train_batch_start(fit.trainer, fit.module, batch, 0)
    assert batch[1].tolist() == codes[:2].tolist()
    assert LABELS[0] != codes[0]
    assert fit.weights.batch_index.tolist() == [0, 1]
    batch[1] = LABELS[:2].tolist()
    fit.callback.on_train_batch_start(fit.trainer, fit.module, batch, 0)
    assert batch[1] == codes[:2].tolist()
    batch[1] = tuple(LABELS[:2].tolist())
    with pytest.raises(InputError, match=r"must be a tensor or a list.* got tuple"):
        fit.callback.on_train_batch_start(fit.trainer, fit.module, batch, 0)
    fit.weights.clear_batch()
    fit()
    drawn = {
        (row, y)
        for (*_, rows), ys in zip(fit.module.batches, fit.module.labels, strict=True)
        for row, y in zip(rows, ys, strict=True)
    }
    assert (0, int(LABELS[0])) not in drawn


def test_a_memory_of_others_stands_where_the_checkpoint_was_taken(tmp_path):
    def remembering(**options):
        fit = Fit({}, **options)
        fit.module.loss = CrossBatchMemory(MultiSimilarityLoss(), 5, 20)
        return fit

    keep = Keep(tmp_path)
    full = remembering(callbacks=[keep])()
    resumed = remembering()
    path = next(path for epoch, when, path in keep.paths if (epoch, when) == (1, "batch"))
    resumed(ckpt_path=path)
    assert same(resumed.outcome(), full.outcome())
    places = [(m.queue_idx, m.has_been_filled) for m in (resumed.module.loss, full.module.loss)]
    assert places[0] == places[1]


def test_the_old_name_of_the_package():
    old = pytest.importorskip("pytorch_lightning")

    class Old(old.LightningModule):
        forward, training_step = Module.forward, Module.training_step
        configure_optimizers = Module.configure_optimizers

    fit = Fit({}, trainer=old.Trainer, max_epochs=1)
    module = Old()
    module.net, module.loss, module.batches, module.labels = (
        fit.module.net,
        fit.module.loss,
        [],
        [],
    )
    fit.trainer.fit(module, fit.loader)
    assert fit.callback.record.round == 2


class Both(nn.Module):
    """Pairs across the ranks, and proxies, which every rank computes in full."""

    def __init__(self, weights):
        super().__init__()
        self.weights = weights
        self.pairs = DistributedLossWrapper(bspml.Weighted(MultiSimilarityLoss(), weights))
        proxies = ProxyAnchorLoss(8, 5, margin=0.1, alpha=8)
        self.proxies = DistributedLossWrapper(bspml.Weighted(proxies, weights))

    def forward(self, embeddings, labels):
        return self.pairs(embeddings, labels) + self.proxies(embeddings, labels)


class Seen(pl.Callback):
    """What each rank holds after each epoch."""

    def __init__(self, folder, callback):
        self.folder, self.callback = folder, callback

    def on_train_epoch_end(self, trainer, module):
        sampler = self.callback.sampler.state_dict()
        held = {
            "module": module.state_dict(),
            "sampler": sampler,
            "part": len(module.batches[0][2]),
        }
        torch.save(held, self.folder / f"{trainer.global_rank}-{trainer.current_epoch}.pt")


def on_ranks(devices, folder=None, dropout=0.0, joint=True, keep=(), **options):
    """The module after a fit in double precision, 15 rows a batch: 8 and 7 on two ranks."""
    fit = Fit(
        devices=devices,
        strategy="ddp_fork" if devices > 1 else "auto",
        precision="64-true",
        use_distributed_sampler=False,
        max_epochs=3,
        dropout=dropout,
        classes_per_batch=5,
        callbacks=list(keep),
    )
    if folder is not None:
        fit.trainer.callbacks.append(Seen(folder, fit.callback))
    fit.module.loss = Both(fit.weights)
    if joint:
        fit.module.setup = lambda stage: synchronize_batch_norm(fit.module.net)
    # What the processes return is cast to what the module here is in.
    fit.module.double()
    fit.module.configure_optimizers = lambda: torch.optim.SGD(fit.module.parameters(), 0.05)
    return fit(**options).module.state_dict()


def assert_ranks_alike(folder):
    for epoch in range(3):
        first, second = (torch.load(folder / f"{rank}-{epoch}.pt") for rank in range(2))
        assert (first.pop("part"), second.pop("part")) == (8, 7)
        assert same(first, second), epoch


def test_two_processes_train_as_one(tmp_path):
    one, two = on_ranks(1), on_ranks(2, tmp_path)
    assert one.keys() == two.keys()
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=1e-10, atol=1e-10, msg=name)
    assert_ranks_alike(tmp_path)


def test_two_processes_resumed_are_two_that_were_not_stopped(tmp_path):
    keep = Keep(tmp_path)
    options = {"dropout": 0.2, "joint": False}
    whole = on_ranks(2, tmp_path, keep=[keep], **options)
    assert_ranks_alike(tmp_path)
    for number in (3, 5):  # inside the second epoch, and at its end, before the network starts anew
        torch.manual_seed(99)
        resumed = on_ranks(2, **options, ckpt_path=tmp_path / f"{number}.ckpt")
        assert same(resumed, whole), number


def test_the_ranks_share_and_lightning_must_not(monkeypatch):
    fit, shared = Fit({}), []
    monkeypatch.setattr(integration, "ranks", lambda: 2)
    with pytest.raises(InputError, match="use_distributed_sampler=False"):
        fit.callback.setup(fit.trainer, fit.module, "fit")
    fit = Fit({}, use_distributed_sampler=False)
    monkeypatch.setattr(fit.loader.batch_sampler, "share", lambda *ranks: shared.append(ranks))
    fit.callback.setup(fit.trainer, fit.module, "fit")
    fit.callback.setup(fit.trainer, fit.module, "validate")
    assert shared == [(0, 2)]


def test_batches_are_of_the_users_seed_which_the_ranks_share(monkeypatch):
    batches = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        callback = CurriculumCallback(plain_loader())
        batches.append(list(callback.sampler))
    assert batches[0] == batches[1] != batches[2]
    where = "bspml.integrations.training_loader.copy_of_main"
    monkeypatch.setattr(where, lambda own: own.fill_(1))  # as if the first rank's were 1
    callback.setup(pl.Trainer(**QUIET), None, "fit")
    callback.sampler.set_epoch(0)
    assert list(callback.sampler) == batches[0]


def test_wrong_use_is_one_sentence():
    fit = Fit({})
    with pytest.raises(InputError, match=r"comes first: CurriculumCallback\(loader, curriculum\)"):
        CurriculumCallback(fit.curriculum, fit.loader)
    with pytest.raises(InputError, match=r"`curriculum` must be .* None; got str"):
        CurriculumCallback(fit.loader, "auto")
    with pytest.raises(InputError, match="one row per sample; got 96, 96, 96 and 4"):
        CurriculumCallback(fit.loader, fit.curriculum, data=POINTS[:4])
    turned = TensorDataset(POINTS.flip(0), LABELS.flip(0))
    with pytest.raises(InputError, match="`data` has other labels than the weights"):
        CurriculumCallback(fit.loader, fit.curriculum, data=turned)
    for labels in (LABELS + 7, torch.arange(len(LABELS))):  # other names; and no label at all
        CurriculumCallback(fit.loader, fit.curriculum, data=TensorDataset(POINTS, labels))
    for batch in ([POINTS, LABELS], {"image": POINTS}, POINTS):
        with pytest.raises(InputError, match=r"the batch must have the data-set row at 2; got"):
            fit.callback.on_train_batch_start(fit.trainer, fit.module, batch, 0)
    two = CurriculumCallback(fit.loader, fit.curriculum, keys=("x", "y"))
    with pytest.raises(InputError, match=r"the data-set row at 2; got \['x', 'y'\]"):
        two.on_train_batch_start(fit.trainer, fit.module, {"x": POINTS, "y": LABELS}, 0)
    other = Fit({}, max_epochs=1)
    other.module.loss = bspml.Weighted(MultiSimilarityLoss(), bspml.SampleWeights(LABELS))
    with pytest.raises(InputError, match="another table"):
        other()
    with pytest.raises(InputError, match=r"one training loader; got a list of 2. Pass one by"):
        fit.trainer.fit(fit.module, [fit.loader, fit.loader])
    fit = Fit({})
    with pytest.raises(InputError, match="must draw from the `loader`"):
        fit.trainer.fit(fit.module, Fit({}).loader)
    assert fit.weights.batch_index is None


def test_a_checkpoint_of_other_batches_is_refused(whole):
    fit, state = Fit(), whole[0].callback.state_dict()
    state["sampler"]["drawn_from"]["seed"] = 7
    with pytest.raises(CheckpointError, match="seed"):
        fit.callback.load_state_dict(state)


def test_without_lightning_the_message_has_the_line_that_installs_it(monkeypatch):
    for name in ("lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingDependencyError, match=re.escape("bspml[lightning]")):
        integration._callback()


def test_the_example_of_the_callback():
    assert doctest.testmod(integration, optionflags=doctest.ELLIPSIS).failed == 0


def test_the_script_of_the_documentation(capsys):
    path = REPOSITORY / "docs/examples/lightning_curriculum.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    example.main(classes=32, **QUIET | {"max_epochs": 5})
    assert re.search(r"estimated 0\.\d\d wrong; \d+ labels left out\n", capsys.readouterr().out)


def test_samples_are_embedded_as_a_validation_sees_them():
    """An offset that the loader or the module takes away is away when samples are embedded, too."""
    stages, points = [], (POINTS * 256).round() / 256  # so that an offset leaves no rounding

    def near(items):
        x, y = zip(*items, strict=True)
        return torch.stack(x) - 30, torch.stack(y)

    class Shifting(Plain):
        def on_before_batch_transfer(self, batch, dataloader_idx):
            return batch[0] - 5, batch[1]

        def on_after_batch_transfer(self, batch, dataloader_idx):
            stages.append((self.trainer.training, self.training))
            return batch[0] - 15, batch[1]

    def weights(offset, kind, **options):
        torch.manual_seed(1)
        loader = plain_loader(dataset=TensorDataset(points + offset, LABELS), **options)
        return plain_fit(loader, kind(MultiSimilarityLoss()), max_epochs=2)[1].weights.weights

    expected = weights(0, Plain)
    assert 0 < (expected == 0).sum() < 40
    for workers in (0, 1):
        assert torch.equal(weights(30, Plain, collate_fn=near, num_workers=workers), expected)
    assert torch.equal(weights(20, Shifting), expected)
    assert set(stages) == {(True, True), (False, False)}  # of steps, and of embeddings


def test_callbacks_that_a_fresh_network_breaks():
    from lightning.pytorch import callbacks as others

    def fit(other, **curriculum):
        loader, module = plain_loader(), Plain(MultiSimilarityLoss())
        module.backbone = module.net
        callback = CurriculumCallback(loader, **curriculum)
        plain_fit(loader, module, callback, keep=[other], max_epochs=1)

    swa = others.StochasticWeightAveraging(0.01, swa_epoch_start=1)
    for other in (swa, others.BackboneFinetuning()):
        with pytest.raises(InputError, match="goes on over networks that the warm-up throws away"):
            fit(other, warmup="cross-fit")
    stopping = others.EarlyStopping("seen")
    with pytest.warns(UserWarning, match="may choose an epoch of the warm-up"):
        fit(stopping, warmup="cross-fit")
    fit(swa)  # nothing is thrown away


@pytest.mark.parametrize("ours_first", [True, False])
def test_the_epoch_in_which_an_averaged_network_only_counts_is_no_round(ours_first):
    swa = pl.callbacks.StochasticWeightAveraging(0.01, swa_epoch_start=1)
    loader, module = plain_loader(), Plain(MultiSimilarityLoss())
    callback = CurriculumCallback(loader)
    both = [callback, swa] if ours_first else [swa, callback]
    trainer = pl.Trainer(callbacks=both, max_epochs=3, **QUIET)
    trainer.fit(module, loader)
    assert trainer.current_epoch == 4  # Lightning's own, for the batch normalisation
    assert len(callback.records) == 1 + 3
    assert callback.epoch == 3


def test_averages_of_the_network_leave_the_weights_alone():
    from lightning.pytorch.callbacks import EMAWeightAveraging

    class Listed(Plain):
        def training_step(self, batch, batch_idx):
            return self.loss[0](self(batch[0]), batch[1])

    def fit(module):
        callback = CurriculumCallback(plain_loader(), curriculum)
        plain_fit(
            *(callback.loader.loader, module, callback), keep=[EMAWeightAveraging()], max_epochs=2
        )
        return callback

    weights = bspml.SampleWeights(LABELS)
    curriculum = bspml.SelfPacedCurriculum(weights, rule="quadratic")
    loss = bspml.Weighted(MultiSimilarityLoss(), weights)
    with pytest.raises(InputError, match="EMAWeightAveraging would average the sample weights"):
        fit(Plain(loss))
    callback = fit(Listed([loss]))
    assert weights.maw() == callback.record.maw < 1
    assert weights.labels.tolist() == LABELS.tolist()


@pytest.mark.parametrize("wrap", [bspml.Weighted, None])
def test_a_validation_may_take_the_loss_whose_samples_all_weigh_1(wrap):
    class Validated(Module):
        def validation_step(self, batch, batch_idx):
            self.log("value", self.loss(self(batch[0]), batch[1]))
            self.log("plain", MultiSimilarityLoss()(self(batch[0]), batch[1]))

        test_step = validation_step

    weights = bspml.SampleWeights(LABELS)
    weighted = bspml.Weighted(MultiSimilarityLoss(), weights)
    memory = bspml.CrossBatchMemory(weighted, 5, memory_size=48)
    loader = DataLoader(
        bspml.IndexedDataset(TensorDataset(POINTS, LABELS)),
        batch_sampler=bspml.PKSampler(LABELS, 4, 3),
    )
    callback = CurriculumCallback(loader, bspml.SelfPacedCurriculum(weights))
    trainer = pl.Trainer(callbacks=[callback], max_epochs=2, **QUIET)
    module = Validated(weighted if wrap else memory)
    others = DataLoader(TensorDataset(POINTS[:40] + 0.1, TRUE[:40]), batch_size=40)
    trainer.fit(module, loader, others)
    assert trainer.callback_metrics["value"] == pytest.approx(trainer.callback_metrics["plain"])
    assert (weights.weights == 0).any()
    assert not weights.evaluating
    trainer.test(module, others, verbose=False)
    assert trainer.callback_metrics["value"] == pytest.approx(trainer.callback_metrics["plain"])
    if wrap is None:
        assert len(memory.index_memory.unique()) > 40
        assert int(memory.index_memory.max()) < len(LABELS)
