"""The page of a run, from what it left behind: finished, interrupted, without suspects, edited."""

import base64
import io
import json
import subprocess
import sys

import numpy as np
import pytest

from bspml.cli import main
from bspml.errors import RunError
from bspml.files.run import (
    EpochRecord,
    RecordLog,
    RunFolder,
    WeightsTable,
    write_json,
    write_weights,
)
from bspml.report.models import PageData, save_page
from bspml.report.page import render_page
from bspml.report.run_page import run_page, run_suspects, write_suspects
from bspml.report.samples import Samples


def table_of_four(flags=((),) * 4, names=None):
    weights = np.array([1.0, 0.0, 1.0, 0.25])
    return WeightsTable(np.array(list("aabb")), weights, flags, names=names)


@pytest.fixture
def run(tmp_path):
    folder = RunFolder.create(tmp_path / "run")
    folder.config.write_text("name: small\n")
    log = RecordLog(folder.records)
    for epoch in (0.5, 1.0):
        log.append(
            EpochRecord(
                "bspml", epoch, phase="weights", maw=0.75, sdaw=0.1, noise_rate=0.25,
                noise_rate_low=0.2, noise_rate_high=0.3, recall_at_k={1: 0.5}, detection_auroc=0.9,
                recall_at_1_low=0.4, recall_at_1_high=0.612,
            )
        )  # fmt: skip
    write_weights(folder.weights, table_of_four())
    return folder


def finish(folder):
    write_json(folder.summary, {"name": "small", "true_noise_rate": 0.25})


def test_a_runs_page_says_what_its_records_say(run):
    finish(run)
    data = run_page(run)
    assert data.sentence.startswith(
        "The best estimate of labels wrong at random is 25 % (95 % interval 20 to 30 %)"
    )
    assert ("Samples", "4") in data.facts
    assert ("Truly wrong", "25 %") in data.facts
    recall = "50.0 % (40.0–61.2), in brackets 95 % over the test classes"
    assert ("Recall@1, bspml", recall) in data.facts
    assert [(c.label, c.support, c.mean_weight, c.share_flagged) for c in data.classes] == [
        ("a", 2, 0.5, 0.5),
        ("b", 2, 0.625, 0.5),
    ]
    # Without the file of suspects: by weight, lowest first.
    assert [s.index for s in data.suspects] == [1, 3]
    page = render_page(data)
    assert "Lowest weight first" in page
    assert not any(word in page for word in ("Most suspicious first", "<dt>p</dt>", "<dt>margin"))


def test_the_page_is_of_the_method_whose_weights_it_shows(run):
    other = EpochRecord(
        "auto:contrastive", 1.0, phase="weights", maw=0.5, noise_rate=0.125, detection_auroc=0.6,
        false_alarm_rate=0.5,
    )  # fmt: skip
    RecordLog(run.records).append(other)  # trained last
    tables = {"bspml": "weights.csv", "auto:contrastive": "weights-auto+contrastive.csv"}
    write_json(run.summary, {"name": "small", "true_noise_rate": None, "weights": tables})
    data = run_page(run)
    assert " 25 % (95 % interval 20 to 30 %)" in data.sentence
    facts = dict(data.facts)
    assert facts["Weights of"] == "bspml"
    assert (facts["MAW"], facts["AUROC of the detection"]) == ("0.750", "0.900")
    assert "False alarms" not in facts


def test_a_rate_that_counts_confusions_is_not_called_one_of_random_errors(run):
    total = {"curriculum": {"noise_rate": 0.02, "total_rate": 0.25}}
    record = EpochRecord(
        "bspml", 2.0, noise_rate=0.25, noise_rate_low=0.0, noise_rate_high=0.3, extra=total
    )
    RecordLog(run.records).append(record)
    expected = "that 25 % of the labels are wrong (95 % interval 0 to 30 %), maybe none."
    assert run_page(run).sentence == f"The best estimate is {expected}"


def test_a_runs_page_says_how_many_right_labels_are_suspicious_where_that_is_known(run):
    assert "False alarms" not in dict(run_page(run).facts)
    RecordLog(run.records).append(
        EpochRecord("bspml", 1.5, phase="weights", maw=0.75, sdaw=0.1, false_alarm_rate=0.0321)
    )
    data = run_page(run)
    assert dict(data.facts)["False alarms"] == "3.2 % of the right labels are suspects"
    assert "3.2 % of the right labels are suspects" in render_page(data)


def test_what_a_person_decided_is_counted_apart_and_names_are_shown(run):
    flags = [(), ("decided",), (), ("suspect",)]
    names = ["a/1.jpg", "a/2.jpg", "b/1.jpg", "b/2.jpg"]
    write_weights(run.weights, table_of_four(flags, names))
    data = run_page(run)
    facts = dict(data.facts)
    assert (facts["Suspects"], facts["Decided by a person"]) == ("1", "1")
    assert "about as many as are estimated to be wrong" in facts["What a suspect is"]
    assert [(s.index, s.name) for s in data.suspects] == [(3, "b/2.jpg")]
    assert [(c.label, c.share_flagged) for c in data.classes] == [("a", 0.0), ("b", 0.5)]
    samples = Samples(np.array(list("aabb")), np.array([1.0, 0.0, 1.0, 0.25]), names)
    write_suspects(run, run_suspects(samples))
    assert [s.name for s in run_page(run).suspects] == ["a/2.jpg", "b/2.jpg"]


def test_a_page_that_shows_the_first_suspects_alone_says_so(run):
    samples = Samples(np.array(list("aabb")), np.array([1.0, 0.0, 1.0, 0.25]))
    write_suspects(run, run_suspects(samples, limit=1))
    data = run_page(run)
    assert len(data.suspects) == 1
    assert dict(data.facts)["Suspects"] == "2, 1 of them shown"


def test_an_interrupted_run_has_a_page_too(run):
    run.weights.unlink()
    data = run_page(run)
    assert ("State", "not finished") in data.facts
    assert not data.suspects
    run.records.unlink()
    assert "not estimated" in run_page(run).sentence
    render_page(run_page(run))


def test_kept_suspects_carry_pictures_neighbours_and_suggestions(run):
    images = np.zeros((4, 5, 6), dtype=np.float32)
    images[1, 2, 3] = 1.0
    samples = Samples(
        np.array(["a", "a", "b", "b"]),
        np.array([1.0, 0.0, 1.0, 0.25]),
        p_values=np.array([0.01, 0.9, np.nan, 0.8]),
        suggested=["b", "b", "", "a"],
        margins=np.array([0.0, 0.2, np.nan, 0.1]),
        own=np.array([[1], [0], [3], [2]]),
        other=np.array([[2], [2], [-1], [-1]]),
    )
    write_suspects(run, run_suspects(samples, 0.5, images))
    data = run_page(run)
    first, second = data.suspects
    assert (first.index, first.suggested, first.margin, first.p) == (1, "b", 0.2, 0.9)
    assert [n.index for n in first.own + first.other] == [0, 2]
    assert second.other == ()
    # Three labels were judged; half of them, spread over 40 bins.
    assert sum(data.histogram.counts) == 3
    assert data.histogram.null_level == pytest.approx(0.5 * 3 / 40)
    from PIL import Image

    png = base64.b64decode(first.image.removeprefix("data:image/png;base64,"))
    pixels = np.asarray(Image.open(io.BytesIO(png)))
    assert pixels.shape == (5, 6)
    assert pixels[2, 3] == 255
    assert pixels.sum() == 255
    page = render_page(data)
    assert first.image in page
    assert "Most suspicious first" in page
    assert "Lowest weight first" not in page
    assert [f"<dt>{word}</dt>" in page for word in ("margin", "p", "q")] == [True, True, False]


def test_the_command_writes_the_page_of_a_run_and_of_an_audit(run, tmp_path, capsys):
    finish(run)
    assert main(["report", str(run.path), "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert done["suspects"] == 2
    assert "wrong at random is 25 %" in (run.path / "report.html").read_text("utf-8")
    audit = tmp_path / "audit"
    audit.mkdir()
    save_page(PageData(title="t", sentence="An audit."), audit / "page.json")
    assert main(["report", str(audit)]) == 0
    assert "An audit." in (audit / "report.html").read_text("utf-8")
    assert main(["report", str(tmp_path)]) == 2
    assert "page.json" in capsys.readouterr().err


def test_a_stray_page_does_not_replace_a_runs(run):
    finish(run)
    save_page(PageData(title="t", sentence="An audit."), run.path / "page.json")
    assert main(["report", str(run.path)]) == 0
    assert "An audit." not in (run.path / "report.html").read_text("utf-8")


def test_somebodys_page_or_project_is_left_alone(run, tmp_path, capsys):
    project = tmp_path / "project"
    project.mkdir()
    (project / "config.yaml").write_text("site: mine\n")
    assert main(["report", str(project)]) == 2
    assert "holds no records of a run" in capsys.readouterr().err
    assert [path.name for path in project.iterdir()] == ["config.yaml"]
    (run.path / "report.html").write_text("my own page")
    assert main(["report", str(run.path)]) == 2
    assert (
        "report.html: exists already and is not a page that bspml made" in capsys.readouterr().err
    )
    assert (run.path / "report.html").read_text() == "my own page"


GOOD = {
    "index": 0, "label": "a", "image": None, "text": None, "name": "", "suggested": "b",
    "margin": 0.1, "p": 0.5, "q": None, "weight": 0.0, "own": [], "other": [],
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"suspects": 5}, "suspects"),
        ({"suspects": [{}]}, r"suspects\[0\].index"),
        ({"suspects": [GOOD, {**GOOD, "index": "x"}]}, r"suspects\[1\].index"),
        ({"suspects": [{**GOOD, "margin": "x"}]}, r"suspects\[0\].margin"),
        ({"suspects": [{**GOOD, "own": None}]}, r"suspects\[0\].own"),
        ({"suspects": [{**GOOD, "other": [{"index": 1}]}]}, r"suspects\[0\].other"),
        ({"histogram": 5}, "histogram"),
        ({"histogram": {"counts": [], "null_level": 1}}, "histogram.counts"),
        ({"histogram": {"counts": [1], "null_level": "x"}}, "histogram.null_level"),
        ({"pictures": []}, "pictures"),
    ],
)
@pytest.mark.usefixtures("undrawn")
def test_an_edited_file_of_a_run_is_one_line(run, capsys, change, message):
    finish(run)
    kept = {"histogram": None, "suspects": [GOOD], "pictures": {}}
    write_json(run.path / "suspects.json", kept)
    assert main(["report", str(run.path)]) == 0
    write_json(run.path / "suspects.json", kept | change)
    with pytest.raises(RunError, match=rf"suspects\.json: .*{message}"):
        run_page(run)
    assert main(["report", str(run.path)]) == 2


def test_a_cut_table_of_weights_is_no_run_of_fewer_samples(run):
    write_json(run.summary, {"name": "small", "true_noise_rate": 0.25, "samples": 4})
    assert dict(run_page(run).facts)["Samples"] == "4"
    *lines, _ = run.weights.read_bytes().splitlines(keepends=True)
    run.weights.write_bytes(b"".join(lines))
    with pytest.raises(RunError, match=r"weights\.csv: holds 3 samples, and the run has 4"):
        run_page(run)


@pytest.mark.parametrize("content", ["[]", "{}", '{"name": "x", "true_noise_rate": "x"}'])
def test_an_edited_summary_is_one_line(run, content):
    run.summary.write_text(content)
    with pytest.raises(RunError, match=r"summary\.json: is not a run's summary"):
        run_page(run)


def test_the_command_does_not_import_torch(run):
    code = (
        "import sys; from bspml.cli import main; code = main(sys.argv[1:]); "
        "sys.exit(code or 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, "report", str(run.path)], check=False)
    assert done.returncode == 0


def summed_up(run, last):
    """The summary says a last epoch; an older version's says none."""
    epochs = {} if last is None else {"bspml": {"last": {"epoch": last, "value": 0.5}}}
    write_json(run.summary, {"name": "small", "true_noise_rate": 0.25, "epochs": epochs})


@pytest.mark.parametrize(
    "cut", [lambda b: b"", lambda b: b[:-1], lambda b: b.replace(b"\n", b"\r"), lambda b: b[:-9]]
)
@pytest.mark.parametrize("last", [None, 1.0])
def test_a_finished_run_whose_records_were_cut_has_no_page_without_them(run, cut, last):
    summed_up(run, last)
    assert run_page(run).curves
    content = run.records.read_bytes()
    run.records.write_bytes(cut(content))
    if last is None and not cut(content):
        return  # of an older version, which did not say
    with pytest.raises(RunError, match=r"records\.jsonl: lacks records of the run"):
        run_page(run)
    run.summary.unlink()
    run_page(run)  # which a run that was killed may leave


def test_records_of_another_run_are_not_shown_as_those_of_the_summary(run):
    summed_up(run, 1.0)
    before = run_page(run)
    content = run.records.read_text()
    run.records.write_text(content.replace('{"1": 0.5}', '{"1": 0.4}'))
    with pytest.raises(RunError, match="or has others: the file was cut, edited or is of another"):
        run_page(run)
    run.records.write_text(content)
    assert run_page(run) == before
