"""The main job in small: what a run leaves, that it resumes after kill -9, and what it refuses."""

import dataclasses
import json
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import bspml
from bspml import methods
from bspml.cli import main
from bspml.data.labels import decisions
from bspml.errors import CheckpointError, ConfigError, RunError
from bspml.experiment.config import load_config
from bspml.experiment.data import load_data
from bspml.experiment.run import experiment_of, run_experiment
from bspml.files import checkpoints
from bspml.files.run import UNTRAINED, RecordLog, RunFolder, read_json, read_weights
from bspml.trainers.progress import Silent
from helpers.comparisons import same
from helpers.forks import Command
from helpers.runs import copied

SMALL = [
    "data.subset=24",
    "training.epochs=4",
    "curriculum.warmup_epochs=1",
    "sampler.classes_per_batch=8",
    "evaluation.ks=[1, 2]",
    "training.checkpoint_every=2",
    "training.methods=[multi-similarity, bspml]",
]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "small"
    config = load_config(None, [*SMALL, "training.methods=[multi-similarity, bspml, clean-only]"])
    return run_experiment(config, RunFolder.create(path))


def test_a_run_leaves_records_weights_figures_checkpoints_and_a_summary(finished):
    folder = finished.folder
    records = RecordLog(folder.records).read()
    assert list(dict.fromkeys(r.method for r in records)) == [
        UNTRAINED,
        "multi-similarity",
        "bspml",
        "clean-only",
    ]
    table = read_weights(folder.weights)
    assert len(table) == 24 * 16
    assert table.is_noisy.sum() == round(0.3 * 24 * 16)
    assert (table.labels != table.true_labels).sum() == table.is_noisy.sum()
    for name in ("curves.png", "weights.png", "lowest_weights.png"):
        assert (folder.figures / name).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    page = (folder.path / "report.html").read_text()
    assert "data:image/png;base64," in page
    assert "U+00" in page
    summary = read_json(folder.summary)
    assert summary["true_noise_rate"] == pytest.approx(0.3, abs=1e-3)
    row = finished.results["bspml"]
    retrieval = {"Recall@1 %", "Recall@2 %", "NMI", "AMI", "MAP@R"}
    assert retrieval | {"MAW", "SDAW", "AUROC", "seconds"} <= row.keys()
    assert finished.results["multi-similarity"]["MAW"] == 1.0


def test_the_network_of_every_method_that_stays_takes_the_same_number_of_steps(finished):
    steps, thrown_away = {}, {}
    for record in RecordLog(finished.folder.records).read():
        steps[record.method] = record.steps
        if str(record.phase).startswith("half"):
            thrown_away[record.method] = record.steps
    assert steps.pop(UNTRAINED) == 0
    assert list(thrown_away) == ["bspml"]
    assert len({number - thrown_away.get(method, 0) for method, number in steps.items()}) == 1


def test_reference_run_trains_on_the_clean_samples_alone(finished):
    run = bspml.load(finished.folder.path, "clean-only")
    noisy = torch.from_numpy(read_weights(finished.folder.weights).is_noisy)
    assert torch.equal(run.sample_weights == 0, noisy)


def test_load_gives_the_network_behind_the_recorded_recall(finished):
    run = bspml.load(finished.folder.path)
    from bspml.experiment.embed import embed_named

    embeddings, labels, names, trained_on, *_ = embed_named(run, "test")
    assert not trained_on
    again = bspml.evaluate(embeddings, labels, ks=[1, 2], clustering=False)
    assert 100 * again.recall_at_k[1] == pytest.approx(finished.results["bspml"]["Recall@1 %"])
    assert not run.model.training
    assert len(names) == len(labels)
    assert run.finished


def start(path, *extra, **options):
    command = ["train", *SMALL, "-o", path, *extra]
    return Command(command, path.with_name("stderr"), **options)


def wait_for(condition, process, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        assert not process.has_ended(), process.wait()
        time.sleep(0.005)


def settled(folder):
    """What must not depend on interruptions: all of a run but its clock readings."""
    lines = []
    for record in RecordLog(folder.records).read():
        values = json.loads(record.to_line())
        values.pop("seconds")
        for key in ("seconds_statistics", "seconds_solve"):
            values["extra"].get("curriculum", {}).pop(key, None)
        lines.append(values)
    return lines


@pytest.mark.usefixtures("undrawn")
@pytest.mark.slow  # test_recipe goes on with a folder copied in the midst of a training
@pytest.mark.parametrize("method", ["multi-similarity", "bspml"])
def test_a_run_killed_without_warning_resumes_to_the_same_bits(tmp_path, method, finished):
    folder = RunFolder(tmp_path / "killed")
    process = start(folder.path)
    wait_for(folder.checkpoint(method).exists, process)
    process.send_signal(signal.SIGKILL)
    assert process.wait()[0] == -signal.SIGKILL
    assert not folder.finished
    assert main(["train", "--resume", str(folder.path), "--quiet"]) == 0
    whole = finished.folder
    assert settled(folder) == [line for line in settled(whole) if line["method"] != "clean-only"]
    for name in ("multi-similarity", "bspml"):
        one, two = (
            bspml.files.checkpoints.load(f.checkpoint(name))["trainer"] for f in (folder, whole)
        )
        for state in (one, two):
            state.pop("generators")  # numpy's and Python's belong to the process
        assert same(one, two)
    assert folder.weights.read_bytes() == whole.weights.read_bytes()


def test_ctrl_c_says_how_to_go_on_and_exits_130(tmp_path):
    folder = RunFolder(tmp_path / "stopped")
    process = start(folder.path, "training.epochs=100")  # far from its end when it is stopped
    wait_for(folder.checkpoint("multi-similarity").exists, process)
    process.send_signal(signal.SIGINT)
    code, err = process.wait()
    assert code == 130
    assert f"bspml train --resume {folder.path}" in err
    assert "Traceback" not in err


def test_a_full_disk_ends_with_one_sentence_and_nothing_half_written(tmp_path):
    path = tmp_path / "full"
    code, err = start(path, "--quiet", largest=200_000).wait()
    assert code == 2, err
    last = err.strip().splitlines()[-1]
    assert "checkpoint-multi-similarity.pt: cannot be written" in last
    assert not path.exists()  # nothing in it could be gone on with


def test_other_data_than_the_checkpoints_is_refused(finished, tmp_path):
    folder = copied(finished, tmp_path)
    config = load_config(folder.config)
    data = dataclasses.replace(load_data(config), fingerprint=32 * "0")
    with pytest.raises(CheckpointError, match="data set changed"):
        run_experiment(config, folder, resume=True, data=data)


@pytest.mark.parametrize("damage", [b"", b"not a checkpoint", None])
def test_a_damaged_checkpoint_is_named(finished, tmp_path, damage, capsys):
    path = copied(finished, tmp_path).path
    file = path / "checkpoint-bspml.pt"
    file.write_bytes(file.read_bytes()[:5000] if damage is None else damage)
    assert main(["train", "--resume", str(path), "--quiet"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "checkpoint-bspml.pt" in err


def test_an_existing_folder_is_not_written_into(finished):
    with pytest.raises(RunError, match=r"exists already.*--resume"):
        RunFolder.create(finished.folder.path)


def test_a_reference_without_known_truth_or_a_subset_too_large_is_refused(tmp_path):
    with pytest.raises(bspml.errors.DataError, match=r"`data\.subset` is 300.*256 classes"):
        run_experiment(load_config(None, ["data.subset=300"]), RunFolder.create(tmp_path / "a"))
    with pytest.raises(ConfigError, match=r"training\.methods.*at least 1"):
        load_config(None, ["training.methods=[]"])


def test_labels_of_a_file_are_trained_on(tmp_path):
    data = bspml.data.sets.glyphs.Glyphs("train")
    names = np.array(data.names)[data.labels.numpy()]
    given = names[data.labels.numpy() < 24].copy()
    given[:5] = given[-1]
    file = tmp_path / "labels.txt"
    file.write_text("\n".join(given))
    config = load_config(None, [*SMALL, "training.epochs=2", f"noise.labels_file={file}"])
    result = run_experiment(config, RunFolder.create(tmp_path / "run"), figures=False)
    assert read_weights(result.folder.weights).is_noisy.sum() == 5
    assert Path(result.folder.summary).is_file()


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("as_labels", [pytest.param(True, marks=pytest.mark.slow), False])
def test_decisions_are_trained_on(tmp_path, as_labels):
    """Right: weight 1 for good; wrong: weight 0, or 1 under the new label."""
    plain = load_config(None, [*SMALL, "training.epochs=3", "training.methods=[bspml]"])
    data = load_data(plain)
    noisy, clean = np.flatnonzero(data.is_noisy)[:3], np.flatnonzero(~data.is_noisy)[:2]
    verdicts = ["wrong", "wrong", "right", "wrong", "unsure"]
    new = [data.true_labels[noisy[0]], "", "", "", ""]
    file = tmp_path / "decisions.csv"
    lines = zip([*noisy, *clean], verdicts, new, strict=True)
    file.write_text("index,decision,new_label\n" + "".join(f"{i},{v},{n}\n" for i, v, n in lines))
    setting = f"noise.decisions_file={file}"
    if as_labels:
        corrected = decisions.apply_decisions(data.labels, decisions.read_decisions(file))
        setting = f"noise.labels_file={tmp_path / 'corrected.csv'}"
        decisions.write_corrected(tmp_path / "corrected.csv", corrected)
    config = load_config(None, [*SMALL, "training.epochs=3", "training.methods=[bspml]", setting])
    assert load_data(config).fingerprint != data.fingerprint
    result = run_experiment(config, RunFolder.create(tmp_path / "run"))
    table = read_weights(result.folder.weights)
    assert table.labels[noisy[0]] == data.true_labels[noisy[0]]
    assert table.is_noisy.sum() == data.is_noisy.sum() - 1
    assert table.weights[noisy].tolist() == [1.0, 0.0, 1.0]  # the last against the evidence
    assert table.weights[clean[0]] == 0.0
    assert [table.flags[i] for i in (*noisy, clean[0])] == [("decided",)] * 4
    suspects = read_json(result.folder.path / "suspects.json")["suspects"]
    assert not {s["index"] for s in suspects} & {*noisy.tolist(), int(clean[0])}


METHODS = [*methods.names(), "superloss:contrastive", "gr:proxy-anchor", "imae:multi-similarity"]
METHODS = [m for m in METHODS if ":" not in m or m in methods.names(wrapped=True)]


@pytest.mark.slow
def test_every_method_trains_from_its_name_and_resumes(tmp_path):
    settings = [
        *SMALL[:1],
        *SMALL[3:5],
        "training.epochs=1",
        "training.batches_per_epoch=4",
        "evaluation.clustering=false",
        "evaluation.every=9",
        f"training.methods={json.dumps([m for m in METHODS if m != 'bspml'])}",
    ]
    folder = RunFolder.create(tmp_path / "run")
    eta = "hyperparameters.rdml.eta=2"
    whole = run_experiment(load_config(None, [*settings, eta]), folder, figures=False)
    assert list(whole.results) == [UNTRAINED, *(m for m in METHODS if m != "bspml")]
    assert all(0 <= row["Recall@1 %"] <= 100 for row in whole.results.values())
    # Resumed from the end of a shorter run, proxies and memories and all, the bits are the same.
    short = RunFolder.create(tmp_path / "short")
    some = ["proxy-anchor", "prism", "superloss:contrastive", "bspml-paper"]
    settings[-1] = f"training.methods={json.dumps(some)}"
    settings[3] = "training.epochs=2"
    expected = run_experiment(
        load_config(None, settings), RunFolder.create(tmp_path / "two"), figures=False
    )
    settings[3] = "training.epochs=1"
    run_experiment(load_config(None, settings), short, figures=False)
    settings[3] = "training.epochs=2"
    found = run_experiment(load_config(None, settings), short, resume=True, figures=False)
    for method in some:
        a, b = (checkpoints.load(r.folder.checkpoint(method)) for r in (expected, found))
        assert same(a["trainer"]["network"], b["trainer"]["network"]), method
        assert same(a["trainer"]["loss_funcs"], b["trainer"]["loss_funcs"]), method


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["training.methods=[rdlm]"], "no method is called 'rdlm'.*did you mean.*rdml"),
        (["training.methods=[rdml]", "hyperparameters.rdml.eat=1"], "eat"),
        (["hyperparameters.rdml.eta=1"], "rdml is not among `training.methods`"),
        (["hyperparameters.bspml.alpha=1"], "the sections loss and curriculum say how bspml"),
        (["training.methods=[bspml, bspml]"], "must name each method once"),
        (
            ["training.methods=[rdml]", "loss.alpha=3"],
            r"`loss\.alpha` is 3\.0, .* leave it at 2\.0",
        ),
    ],
)
def test_a_method_that_cannot_be_is_refused_before_training(settings, said):
    def check():
        config = load_config(None, [*SMALL[:2], *SMALL[3:], *settings])  # no warm-up
        experiment_of(config, load_data(config)).check()

    with pytest.raises(ConfigError, match=said):
        check()


def test_two_sources_of_decisions_are_refused(tmp_path):
    made = decisions.apply_decisions(load_data(load_config(None, SMALL)).labels, [])
    decisions.write_corrected(tmp_path / "corrected.csv", made)
    settings = [f"noise.labels_file={tmp_path / 'corrected.csv'}", "noise.decisions_file=d.csv"]
    with pytest.raises(bspml.errors.DataError, match=r"corrected\.csv already holds decisions"):
        load_data(load_config(None, [*SMALL, *settings]))


def only_line(capsys):
    err = capsys.readouterr().err
    assert err.count("\n") == 1, err
    return err


def content(folder):
    return {p.name: p.read_bytes() for p in folder.path.iterdir() if p.is_file()}


def test_two_processes_do_not_train_the_same_run(finished, tmp_path, capsys):
    folder = copied(finished, tmp_path)
    half = folder.path / ".0123456789abcdef.tmp"
    half.touch()  # the other's file in the making
    with folder.locked():
        assert main(["train", "--resume", str(folder.path)]) == 2
    assert "another process is training this run" in only_line(capsys)
    assert half.exists()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("lr: 0.001", "lr: 0.5", "`optimizer.lr` is 0.5, but the run was trained with 0.001"),
        ("rate: 0.3", "rate: 0.2", "`noise.rate` is 0.2, but the run was trained with 0.3"),
        ("embedding_size: 128", "embedding_size: 64", "`network.embedding_size` is 64"),
    ],
)
def test_a_run_goes_on_only_under_its_own_configuration(finished, tmp_path, capsys, old, new, said):
    folder = copied(finished, tmp_path)
    text = folder.config.read_text()
    assert old in text
    folder.config.write_text(text.replace(old, new))
    before = content(folder)
    assert main(["train", "--resume", str(folder.path)]) == 2
    assert said in only_line(capsys)
    assert content(folder) == before
    with pytest.raises(ConfigError, match=said):
        bspml.load(folder.path)


def test_a_run_may_be_made_longer_and_measured_otherwise(finished, tmp_path):
    folder = copied(finished, tmp_path)
    text = folder.config.read_text()
    for old, new in (
        ("epochs: 4", "epochs: 5"), ("every: 1", "every: 9"), ("name: glyphs", "name: x")
    ):  # fmt: skip
        assert old in text
        text = text.replace(old, new, 1)
    folder.config.write_text(text.replace("name: x\n  root", "name: glyphs\n  root"))
    before = RecordLog(folder.records).read()
    config = load_config(folder.config)
    run_experiment(config, folder, resume=True, figures=False)
    after = RecordLog(folder.records).read()
    assert after[: len(before)] == before
    last = {record.method: record.epoch for record in after if record.method != UNTRAINED}
    assert all(epoch >= 5 for epoch in last.values())


def test_a_run_cannot_be_made_shorter_than_it_is(finished, tmp_path, capsys):
    folder = copied(finished, tmp_path)
    text = folder.config.read_text()
    assert "epochs: 4" in text
    folder.config.write_text(text.replace("epochs: 4", "epochs: 3", 1))
    before = content(folder)
    assert main(["train", "--resume", str(folder.path)]) == 2
    said = "`training.epochs` is 3, but multi-similarity was trained for that long already"
    assert said in only_line(capsys)
    assert content(folder) == before


def test_a_run_that_was_killed_may_end_sooner(tmp_path):
    folder = RunFolder.create(tmp_path / "run")
    settings = [*SMALL, "curriculum.warmup_epochs=2", "training.checkpoint_every=1"]
    config = load_config(None, [*settings, "training.methods=[bspml]", "training.epochs=40"])

    class Stopped(Silent):
        def step(self, method, step, steps, loss):
            if len(RecordLog(folder.records).read()) == 4:  # more than an epoch, yet in the warm-up
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_experiment(config, folder, narrator=Stopped())
    folder.config.write_text(folder.config.read_text().replace("epochs: 40", "epochs: 1", 1))
    run_experiment(load_config(folder.config), folder, resume=True, figures=False)
    last = RecordLog(folder.records).read()[-1]
    assert last.nmi is not None
    assert last.extra["curriculum"]["phase"].startswith("weights")


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.pop("trainer"),
        lambda s: s.pop("config"),
        lambda s: s.update(threads=0),
        lambda s: s.update(threads="4"),
        lambda s: s.update(records=-1),
        lambda s: s.update(records=0),
        lambda s: s.update(records=10**9),
        lambda s: s["trainer"]["position"].update(step=10**9),
        lambda s: s["trainer"].pop("network"),
    ],
)
def test_a_checkpoint_of_wrong_content_is_refused_and_nothing_changes(
    finished, tmp_path, capsys, change
):
    folder = copied(finished, tmp_path)
    file = folder.checkpoint("bspml")
    fingerprint = load_data(load_config(folder.config)).fingerprint
    state = checkpoints.load(file)
    change(state)
    checkpoints.save(file, state, fingerprint)
    before = content(folder)
    threads = torch.get_num_threads()
    assert main(["train", "--resume", str(folder.path)]) == 2
    only_line(capsys)
    assert content(folder) == before
    assert torch.get_num_threads() == threads


def test_a_checkpoint_under_another_methods_name_is_refused(finished, tmp_path, capsys):
    folder = copied(finished, tmp_path)
    folder.checkpoint("multi-similarity").replace(folder.checkpoint("bspml"))
    assert main(["train", "--resume", str(folder.path)]) == 2
    assert "is a checkpoint of 'multi-similarity', not of 'bspml'" in only_line(capsys)
    with pytest.raises(CheckpointError, match="not of 'bspml'"):
        bspml.load(folder.path)


def test_more_threads_than_cores_are_cut_and_said(finished, tmp_path, capsys):
    folder = copied(finished, tmp_path)
    fingerprint = load_data(load_config(folder.config)).fingerprint
    for method in ("multi-similarity", "bspml", "clean-only"):
        state = checkpoints.load(folder.checkpoint(method))
        checkpoints.save(folder.checkpoint(method), state | {"threads": 100_000}, fingerprint)
    threads = torch.get_num_threads()
    try:
        run_experiment(load_config(folder.config), folder, resume=True, figures=False)
        assert torch.get_num_threads() <= max(threads, os.cpu_count())
    finally:
        torch.set_num_threads(threads)


def test_a_damaged_record_is_noticed_before_training(finished, tmp_path, capsys):
    folder = copied(finished, tmp_path)
    lines = folder.records.read_bytes().split(b"\n")
    lines[1] = b'{"method": "bspml", "epoch": 1, "loss": "x"}'
    folder.records.write_bytes(b"\n".join(lines))
    before = content(folder)
    assert main(["train", "--resume", str(folder.path)]) == 2
    assert "line 2 is not an epoch record (`loss` must be a number" in only_line(capsys)
    assert content(folder) == before


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("sampler.classes_per_batch=100", "`sampler.classes_per_batch` is 100"),
        ("network.weights=x.pt", "x.pt: no such file"),
        ("evaluation.ks=[100000]", "`evaluation.ks` asks for the 100000 nearest"),
    ],
)
def test_a_mistake_is_the_only_line_and_makes_no_folder(tmp_path, capsys, setting, said):
    path = tmp_path / "run"
    assert main(["train", *SMALL[:2], *SMALL[3:], setting, "-o", str(path)]) == 2
    assert said in only_line(capsys)
    assert not path.exists()


def test_a_mistake_found_in_the_first_round_leaves_no_folder(tmp_path, capsys, monkeypatch):
    path = tmp_path / "run"
    monkeypatch.setattr(
        "bspml.experiment.engine.MethodRun.on_round",
        lambda *_: float(bspml.SampleWeights([]).maw()),
    )
    assert main(["train", *SMALL, "training.checkpoint_every=null", "-q", "-o", str(path)]) == 2
    only_line(capsys)
    assert not path.exists()


def test_a_run_killed_before_its_configuration_was_written_can_be_started_again(tmp_path):
    folder = RunFolder.create(tmp_path / "run")
    (folder.path / ".lock").touch()
    with pytest.raises(RunError, match="not a run folder"):
        RunFolder.open(folder.path)
    assert RunFolder.create(folder.path) == folder


def test_a_pretrained_small_conv_is_frozen_and_judged_before_the_first_step(finished, tmp_path):
    trained = bspml.load(finished.folder.path, "multi-similarity").model
    file = tmp_path / "net.pt"
    torch.save(trained.state_dict(), file)
    settings = [
        "data.subset=24", "training.epochs=1", "sampler.classes_per_batch=8",
        "evaluation.ks=[1]", "training.methods=[bspml]", "evaluation.clustering=false",
        f"network.weights={file}", "network.freeze=true", "curriculum.warmup=features",
    ]  # fmt: skip
    result = run_experiment(
        load_config(None, settings), RunFolder.create(tmp_path / "run"), figures=False
    )
    file.unlink()  # a run does not need it any more
    run = bspml.load(result.folder.path)
    changed = {
        name
        for name, value in run.model.state_dict().items()
        if not torch.equal(value, trained.state_dict()[name])
    }
    assert changed == {"head.weight", "head.bias"}
    first = next(record for record in run.records if record.epoch > 0)
    assert first.extra["curriculum"]["round"] == 2  # the first was before the first step
    run_experiment(run.config, result.folder, resume=True, figures=False)


@pytest.mark.slow
def test_very_high_noise_is_trained_through_and_judges_nobody(tmp_path):
    settings = [*SMALL, "noise.rate=0.95", "training.methods=[bspml]"]
    config = load_config(None, settings)
    with pytest.warns(UserWarning, match="do not tell the classes apart"):
        result = run_experiment(config, RunFolder.create(tmp_path / "run"), figures=False)
    judged = [r for r in RecordLog(result.folder.records).read() if r.maw is not None]
    assert judged
    for record in judged:
        assert record.extra["curriculum"]["status"] == "not judged"
        assert record.maw == 1
