import base64
import dataclasses
import hashlib
import io
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

from bspml.cli import main
from bspml.errors import InputError, MissingDependencyError, RunError
from bspml.files.run import (
    EpochRecord,
    RecordLog,
    RunFolder,
    WeightsTable,
    write_json,
    write_weights,
)
from bspml.report.page import PageData, image_url, load_page, render_page, save_page
from bspml.report.run_page import run_page, write_suspects
from bspml.report.svg import class_bars_svg, curves_svg, histogram_svg

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '" onload="alert(1)',
    "line\u2028separator\u2029",
    "\udce9.png",
    "{{ 7 * 7 }}{% raw %}",
    "<!--<script ",
    "</script ",
    'a,b"c\nd',
    "=cmd|' /C calc'!A0",
    "$x$",
    "",
]


def suspect(index=0, label="cat", suggested="dog", **changes):
    entry = {
        "index": index, "name": f"{index}.png", "label": label, "suggested": suggested,
        "margin": 0.1, "p": 0.9, "q": 0.3, "weight": 0.0, "image": None, "text": None,
        "own": [], "other": [],
    }  # fmt: skip
    return {**entry, **changes}


def class_row(label="cat", **changes):
    entry = {
        "label": label, "support": 10, "mean_weight": 0.7, "share_flagged": 0.3,
        "looks_like_two": False, "looks_like": "",
    }  # fmt: skip
    return {**entry, **changes}


class Parsed(HTMLParser):
    """Elements of a page, and the text of each script."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts, self.meta, self.text = [], {}, [], ""
        self._inside = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        if tag == "script":
            self._inside = attributes.get("id", "code")
            self.scripts[self._inside] = ""

    def handle_endtag(self, tag):
        if tag == "script":
            self._inside = None

    def handle_data(self, data):
        if self._inside:
            self.scripts[self._inside] += data
        else:
            self.text += data


def payload(data):
    return json.loads(Parsed(render_page(data)).scripts["data"])


def hostile_page():
    return PageData(
        HOSTILE[0],
        HOSTILE[1],
        facts=[(text, text) for text in HOSTILE],
        curves=[EpochRecord(HOSTILE[0], e, maw=0.5) for e in (1, 2)],
        classes=[class_row(text, looks_like=HOSTILE[1]) for text in HOSTILE],
        suspects=[
            suspect(i, text, HOSTILE[1], name=text, text=text, image=text)
            for i, text in enumerate(HOSTILE)
        ],
    )


def test_hostile_text_adds_no_element_and_reaches_the_page_unchanged():
    plain, hostile = (
        Parsed(render_page(data))
        for data in (
            dataclasses.replace(hostile_page(), title="t", sentence="s"),
            hostile_page(),
        )
    )
    assert [tag for tag, _ in hostile.tags] == [tag for tag, _ in plain.tags]
    assert len(hostile.scripts) == 2
    assert not [a for _, attributes in hostile.tags for a in attributes if a.startswith("on")]
    data = json.loads(hostile.scripts["data"])
    assert set(HOSTILE) <= set(data["labels"])
    assert [s["name"] for s in data["suspects"]] == HOSTILE
    assert HOSTILE[1] in hostile.text
    hostile.scripts["data"].encode("ascii")


def test_only_the_pages_own_script_may_run_and_nothing_is_fetched():
    text = render_page(hostile_page())
    parsed = Parsed(text)
    policy = next(a["content"] for t, a in parsed.tags if t == "meta" and "http-equiv" in a)
    digest = base64.b64encode(hashlib.sha256(parsed.scripts["code"].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert not [a for t, a in parsed.tags if t in ("link", "iframe", "object", "embed", "base")]
    assert not [a for t, a in parsed.tags if "src" in a]
    assert "://" not in re.sub(r'xmlns="http://www\.w3\.org/2000/svg"', "", text)


def test_numbers_json_does_not_know_become_unknown():
    data = payload(
        PageData("t", "s", suspects=[suspect(margin=float("nan"), p=None, q=np.float32(0.5))])
    )
    assert data["suspects"][0]["margin"] is None
    assert data["suspects"][0]["p"] is None
    assert data["suspects"][0]["q"] == 0.5


def test_a_picture_or_sample_that_repeats_is_stored_once():
    near = {"index": 7, "label": "cat", "image": "a/7.png", "text": None}
    data = payload(PageData("t", "s", suspects=[suspect(i, own=[near, near]) for i in range(50)]))
    assert data["images"] == ["a/7.png"]
    assert len(data["samples"]) == 51
    assert data["labels"] == ["cat", "dog"]


def test_a_page_belongs_to_its_suspects():
    one, same, other = (
        payload(PageData("t", sentence, suspects=[suspect(index)]))["key"]
        for sentence, index in (("a", 1), ("b", 1), ("a", 2))
    )
    assert one == same != other


@pytest.mark.parametrize(
    ("image", "url"),
    [
        ("a/b.png", "a/b.png"),
        ("../data/x y.png", "../data/x%20y.png"),
        ("50%#1?.png", "50%25%231%3F.png"),
        ("caf\udce9.png", "caf%E9.png"),
        ("日.png", "%E6%97%A5.png"),
        ('"><script>.png', "%22%3E%3Cscript%3E.png"),
        ("12:30.png", "12%3A30.png"),
        ("data:image/png;base64,iVBORw0KGgo=", "data:image/png;base64,iVBORw0KGgo="),
        ("", None),
        (None, None),
        ("javascript:alert(1)", None),
        ("JaVaScript:alert(1)", None),
        ("http://host/x.png", None),
        ("//host/x.png", None),
        ("\\\\host\\x.png", None),
        ("/etc/x.png", None),
        ("C:\\x.png", None),
        ("file:///x.png", None),
        ("data:text/html,<script>alert(1)</script>", None),
        ("data:image/svg+xml;base64,AAAA", None),
        ("data:image/png;base64,AA AA", None),
        ("a\0.png", None),
        ("\ud800.png", None),
    ],
)
def test_an_image_is_inside_the_page_or_beside_it(image, url):
    assert image_url(image) == url


@pytest.mark.skipif(os.name == "nt", reason="such names exist on POSIX only")
def test_a_leading_blank_or_control_character_hides_no_scheme():
    # Browsers skip them in front of a URL; encoded they are part of a relative name.
    assert image_url(" javascript:alert(1)").startswith("%20")
    assert image_url("\tjavascript:alert(1)").startswith("%09")


def test_a_saved_page_reads_back(tmp_path):
    data = dataclasses.replace(
        hostile_page(),
        histogram={"counts": [3, 1], "null_level": 1.0},
        duplicates=[
            {
                "a": 1, "b": 2, "label_a": "cat", "label_b": "dog", "similarity": 0.99,
                "image_a": "a.png", "image_b": None,
            }
        ],
        integer_labels=True,
    )  # fmt: skip
    again = load_page(save_page(data, tmp_path / "page.json"))
    assert render_page(again) == render_page(data)
    assert payload(again)["integers"] is True


@pytest.mark.parametrize("content", ["[]", '{"title": "t"}', '{"title":"","sentence":"","x":1}'])
def test_another_file_is_not_taken_for_a_page(tmp_path, content):
    (tmp_path / "page.json").write_text(content)
    with pytest.raises(RunError, match=r"page\.json: is not a saved page"):
        load_page(tmp_path / "page.json")


def test_without_jinja_the_message_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'bspml\[report\]'"):
        render_page(PageData("t", "s"))


def test_empty_parts_are_left_out():
    parsed = Parsed(render_page(PageData("t", "s")))
    ids = {a.get("id") for _, a in parsed.tags}
    assert not ids & {"classes", "duplicates", "gallery"}
    assert "No label looks suspicious" in parsed.text
    assert not [t for t, _ in parsed.tags if t == "svg"]


def test_the_page_is_the_same_bytes_each_time():
    data = dataclasses.replace(hostile_page(), histogram={"counts": [1, 2], "null_level": 0.5})
    assert render_page(data) == render_page(data)


# -- figures -----------------------------------------------------------------------------------


def test_figures_follow_the_pages_colours_and_share_no_ids():
    figures = [
        histogram_svg([9, 3, 1, 1], 1.0),
        class_bars_svg([class_row()]),
        *curves_svg([EpochRecord("bspml", e, maw=0.5, loss=1.0) for e in (1, 2)]),
    ]
    assert len(figures) == 4
    ids = [i for figure in figures for i in re.findall(r' id="([^"]+)"', figure)]
    assert len(ids) == len(set(ids))
    for figure in figures:
        assert "currentColor" in figure
        assert not re.search(r"#0[0-9]0[0-9]0[0-9]", figure)
        assert "<style" not in figure
        assert 'role="img"' in figure


def test_the_fitted_part_of_the_histogram_is_at_its_level():
    # One bar of ten labels and a level of five: the line lies halfway up the bar.
    figure = histogram_svg([10, 0], 5.0)
    paths = re.findall(r'<path d="([^"]*)"[^>]*style="([^"]*)"', figure)
    heights = {}
    for shape, style in paths:
        ys = [float(y) for y in re.findall(r"[ML] [\d.]+ ([\d.]+)", shape)]
        if style.startswith("fill: var(--c1)"):
            heights.setdefault("bar", (min(ys), max(ys)))
        elif "stroke: var(--c2)" in style and "stroke-width: 1.6" in style:
            heights.setdefault("line", ys[0])
    top, bottom = heights["bar"]
    assert heights["line"] == pytest.approx((top + bottom) / 2, abs=0.01)
    assert "about 5.0 labels in each bin are wrong at random" in figure


def test_a_bar_far_above_the_fitted_part_is_cut_and_says_its_number():
    assert ">1,000 →</text>" in histogram_svg([1000, 5], 5.0)
    assert "→" not in histogram_svg([40, 5], 5.0)
    assert "→" not in histogram_svg([1000, 5], 0.0)


def test_the_bars_are_the_most_suspicious_classes_and_their_names_stay_text():
    classes = [class_row(f"class {i}", share_flagged=i / 100) for i in range(60)]
    figure = class_bars_svg([*classes, class_row("<b>#010203 $x$", share_flagged=0.9)])
    names = re.findall(r"<text[^>]*>(class \d+|&lt;b&gt;[^<]*)</text>", figure)
    assert names == ["&lt;b&gt;#010203 $x$", *(f"class {i}" for i in range(59, 48, -1))]
    assert class_bars_svg([class_row(share_flagged=0.0)]) == ""


def test_what_was_measured_once_or_never_has_no_curve():
    assert curves_svg([]) == []
    assert curves_svg([EpochRecord("bspml", 1, maw=0.5)]) == []
    only = curves_svg([EpochRecord("bspml", e, noise_rate=0.25, maw=None) for e in (1, 2)])
    assert len(only) == 1
    assert "bspml ends at 0.25" in only[0]


# -- runs and the command ------------------------------------------------------------------------


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
            )
        )  # fmt: skip
    labels, weights = np.array(list("aabb")), np.array([1.0, 0.0, 1.0, 0.25])
    write_weights(folder.weights, WeightsTable(labels, weights, ((),) * 4))
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
    assert ("Recall@1, bspml", "50.0 %") in data.facts
    assert [
        (c["label"], c["support"], c["mean_weight"], c["share_flagged"]) for c in data.classes
    ] == [
        ("a", 2, 0.5, 0.5),
        ("b", 2, 0.625, 0.5),
    ]
    # Without the file of suspects: by weight, lowest first.
    assert [s["index"] for s in data.suspects] == [1, 3]
    render_page(data)


def test_a_runs_page_says_how_many_right_labels_are_suspicious_where_that_is_known(run):
    assert "False alarms" not in dict(run_page(run).facts)
    RecordLog(run.records).append(
        EpochRecord("bspml", 1.5, phase="weights", maw=0.75, sdaw=0.1, false_alarm_rate=0.0321)
    )
    data = run_page(run)
    assert dict(data.facts)["False alarms"] == "3.2 % of the right labels are suspicious"
    assert "3.2 % of the right labels are suspicious" in render_page(data)


def test_what_a_person_decided_is_counted_apart_and_names_are_shown(run):
    flags = [(), ("decided",), (), ("suspect",)]
    names = ["a/1.jpg", "a/2.jpg", "b/1.jpg", "b/2.jpg"]
    labels, weights = np.array(list("aabb")), np.array([1.0, 0.0, 1.0, 0.25])
    write_weights(run.weights, WeightsTable(labels, weights, flags, names=names))
    data = run_page(run)
    facts = dict(data.facts)
    assert (facts["Suspicious"], facts["Decided by a person"]) == ("1", "1")
    assert "about as many as are estimated to be wrong" in facts["What suspicious means"]
    assert [(s["index"], s["name"]) for s in data.suspects] == [(3, "b/2.jpg")]
    write_suspects(run, np.array(list("aabb")), np.array([1.0, 0.0, 1.0, 0.25]), names=names)
    assert [s["name"] for s in run_page(run).suspects] == ["a/2.jpg", "b/2.jpg"]


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
    write_suspects(
        run,
        np.array(["a", "a", "b", "b"]),
        np.array([1.0, 0.0, 1.0, 0.25]),
        p_values=np.array([0.01, 0.9, np.nan, 0.8]),
        noise_rate=0.5,
        suggested=["b", "b", "", "a"],
        margins=np.array([0.0, 0.2, np.nan, 0.1]),
        own=np.array([[1], [0], [3], [2]]),
        other=np.array([[2], [2], [-1], [-1]]),
        images=images,
    )
    data = run_page(run)
    first, second = data.suspects
    assert (first["index"], first["suggested"], first["margin"], first["p"]) == (1, "b", 0.2, 0.9)
    assert [n["index"] for n in first["own"] + first["other"]] == [0, 2]
    assert second["other"] == []
    # Three labels were judged; half of them, spread over 40 bins.
    assert sum(data.histogram["counts"]) == 3
    assert data.histogram["null_level"] == pytest.approx(0.5 * 3 / 40)
    from PIL import Image

    png = base64.b64decode(first["image"].removeprefix("data:image/png;base64,"))
    pixels = np.asarray(Image.open(io.BytesIO(png)))
    assert pixels.shape == (5, 6)
    assert pixels[2, 3] == 255
    assert pixels.sum() == 255
    assert first["image"] in render_page(data)


def test_columns_of_suspects_must_be_of_one_length(run):
    with pytest.raises(InputError, match=r"`suggested` must have one entry per weight, 2; got 1"):
        write_suspects(run, np.array(["a", "b"]), np.ones(2), suggested=["b"])


def test_the_command_writes_the_page_of_a_run_and_of_an_audit(run, tmp_path, capsys):
    finish(run)
    assert main(["report", str(run.path), "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert done["suspects"] == 2
    assert "wrong at random is 25 %" in (run.path / "report.html").read_text("utf-8")
    audit = tmp_path / "audit"
    audit.mkdir()
    save_page(PageData("t", "An audit."), audit / "page.json")
    assert main(["report", str(audit)]) == 0
    assert "An audit." in (audit / "report.html").read_text("utf-8")
    assert main(["report", str(tmp_path)]) == 2
    assert "page.json" in capsys.readouterr().err


def test_a_stray_page_does_not_replace_a_runs(run):
    finish(run)
    save_page(PageData("t", "An audit."), run.path / "page.json")
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
def test_an_edited_file_of_a_run_is_one_line(run, capsys, change, message):
    finish(run)
    kept = {"histogram": None, "suspects": [GOOD], "pictures": {}}
    write_json(run.path / "suspects.json", kept)
    assert main(["report", str(run.path)]) == 0
    write_json(run.path / "suspects.json", kept | change)
    with pytest.raises(RunError, match=rf"suspects\.json: .*{message}"):
        run_page(run)
    assert main(["report", str(run.path)]) == 2


@pytest.mark.parametrize("content", ["[]", "{}", '{"name": "x", "true_noise_rate": "x"}'])
def test_an_edited_summary_is_one_line(run, content):
    run.summary.write_text(content)
    with pytest.raises(RunError, match=r"summary\.json: is not a run's summary"):
        run_page(run)


@pytest.mark.parametrize(
    "change",
    [
        {"facts": 5}, {"facts": [["a"]]}, {"suspects": [1]}, {"classes": [{}]}, {"title": None},
        {"curves": [{"a": 1}]}, {"curves": 5}, {"duplicates": [{"a": 1}]}, {"integer_labels": "x"},
    ],
)  # fmt: skip
def test_an_edited_page_is_one_line(tmp_path, change):
    path = write_json(tmp_path / "page.json", {"title": "t", "sentence": "s"} | change)
    with pytest.raises(RunError, match=rf"page\.json: {next(iter(change))}"):
        load_page(path)


def test_the_command_does_not_import_torch(run):
    code = (
        "import sys; from bspml.cli import main; code = main(sys.argv[1:]); "
        "sys.exit(code or 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, "report", str(run.path)], check=False)
    assert done.returncode == 0
