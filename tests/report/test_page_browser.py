"""The page in a real Chromium, without network, as a person uses it."""

import csv
import io
import struct
import zlib
from pathlib import Path

import pytest

from bspml.files.cells import protected_cell
from bspml.report import page
from bspml.report.models import PageData
from bspml.report.page import render_page
from helpers import page_entries
from helpers.browsers import chromium_path
from helpers.page_entries import class_row

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip

# Each is a label somebody might have.  None may run, and each must come back from the CSV.
HOSTILE = [
    "</script><script>window.hacked = 1</script>",
    "</script ",
    "<!--<script ",
    "<img src=x onerror='window.hacked = 1'>",
    'a,b "c"\nd',
    "cr\r\nlf",
    "\u2028\u2029",
    "\udce9.png",
    "😀 \ud83d",
    "=1+1",
    "  -cmd",
    "'quoted",
    "007",
    "１２",
    "1e5",
    "true",
    "__proto__",
    "مرحبا \u202e",
    "  padded  ",
]


@pytest.fixture(scope="module")
def browser():
    path = chromium_path()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser, tmp_path):
    """Open a page from disk; any script error or attempt to leave the disk fails the test."""
    contexts, problems = [], []

    def open_page(data, **options):
        file = tmp_path / "report.html"
        file.write_bytes(render_page(data).encode("utf-8", "surrogatepass"))
        context = browser.new_context(viewport={"width": 1300, "height": 900}, **options)
        contexts.append(context)
        tab = context.new_page()
        tab.set_default_timeout(10_000)
        tab.on("pageerror", lambda error: problems.append(str(error)))
        tab.on("console", lambda m: "Security" in m.text and problems.append(m.text))
        tab.on(
            "request",
            lambda r: r.url.startswith(("file:", "data:", "blob:")) or problems.append(r.url),
        )
        tab.goto(file.as_uri())
        return tab

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []


def png(path: Path):
    def chunk(kind, content):
        return (
            struct.pack(">I", len(content)) + kind + content
            + struct.pack(">I", zlib.crc32(kind + content))
        )  # fmt: skip

    header = struct.pack(">IIBBBBB", 2, 2, 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"\0\0\xff" * 2)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    )


def suspect(index, label, suggested="", **changes):
    changes = {"name": "", "margin": None, "q": 0.2, **changes}
    return page_entries.suspect(index, label, suggested, **changes)


def animals():
    """Six suspects; margins and classes are in another order than suspicion."""
    rows = [
        (10, "cat", "dog", 0.1), (11, "dog", "cat", 0.5), (12, "cow", "ant", 0.3),
        (13, "ant", "cow", None), (14, "cat", "cow", 0.2), (15, "catfish", "", 0.4),
    ]  # fmt: skip
    names = ("cat", "dog", "cow", "ant", "catfish")
    return PageData(
        title="Animals",
        sentence="At least 10 % of the labels are wrong.",
        classes=[class_row(n, share=i / 10) for i, n in enumerate(names)],
        suspects=[suspect(i, own, other, margin=margin) for i, own, other, margin in rows],
    )


def shown(tab):
    """Sample indices of the cards, from top to bottom."""
    return tab.eval_on_selector_all(".card", "cards => cards.map(c => Number(c.dataset.index))")


CARD_IN_THE_MIDDLE = """[...document.querySelectorAll('.card')].some(card => {
    const box = card.getBoundingClientRect();
    return box.top < innerHeight / 2 && box.bottom > innerHeight / 2 - 20; })"""


def wait_for(tab, condition):
    """Until `condition` holds; playwright's own waiting needs eval, which the page forbids."""
    for _ in range(100):
        if tab.evaluate(condition):
            return
        tab.wait_for_timeout(50)
    pytest.fail(f"never true: {condition}")


def focused(tab):
    return tab.evaluate("Number(document.activeElement.dataset?.index)")


def opened_map(tab):
    """Where the map is in the window, once it is open."""
    tab.click("#map > summary")
    return in_view(tab, "#map-canvas")


def in_view(tab, selector):
    tab.locator(selector).evaluate("element => element.scrollIntoView()")
    return tab.locator(selector).bounding_box()


def saved(tab):
    """Rows of the CSV that the button downloads, bytes as bspml reads them."""
    with tab.expect_download() as download:
        tab.click("#save")
    assert download.value.suggested_filename == "decisions.csv"
    content = Path(download.value.path()).read_bytes()
    return content, list(csv.DictReader(io.StringIO(content.decode("utf-8", "surrogatepass"), "")))


def test_a_class_is_found_by_typing_and_by_clicking_and_the_list_sorts(visit):
    tab = visit(animals())
    assert tab.inner_text("h1") == "At least 10 % of the labels are wrong."
    assert shown(tab) == [10, 11, 12, 13, 14, 15]
    tab.fill("#filter", "ca")
    assert shown(tab) == [10, 11, 14, 15]
    tab.fill("#filter", "cat")  # a class of its own: not catfish
    assert shown(tab) == [10, 11, 14]
    assert tab.inner_text("#shown") == "3 of 6 suspects"
    tab.fill("#filter", "nothing like it")
    assert shown(tab) == []
    tab.click("#reset")
    assert len(shown(tab)) == 6
    tab.select_option("#sort", "margin")
    assert shown(tab) == [11, 15, 12, 14, 10, 13]
    tab.select_option("#sort", "class")
    assert shown(tab) == [13, 10, 14, 15, 12, 11]
    tab.click("#class-table tbody .link:has-text('cow')")
    assert shown(tab) == [13, 14, 12]
    assert focused(tab) == 13


def test_the_names_of_samples_are_saved_and_must_be_those_of_the_page(visit, tmp_path):
    data = animals()
    named = [s.model_copy(update={"name": f"{s.label}/{s.index}.jpg"}) for s in data.suspects]
    tab = visit(data.model_copy(update={"suspects": tuple(named)}))
    tab.keyboard.press("j")
    tab.keyboard.press("w")
    _, rows = saved(tab)
    assert rows == [
        {"index": "10", "label": "cat", "decision": "wrong", "new_label": "", "name": "cat/10.jpg"}
    ]
    file = tmp_path / "other.csv"
    file.write_text("index,decision,name\n10,right,dog/1.jpg\n")
    tab.set_input_files("#file", file)
    wait_for(tab, "document.querySelector('#status').textContent.includes('not loaded')")
    assert "sample 10 is cat/10.jpg here, dog/1.jpg in the file" in tab.inner_text("#status")


def test_the_table_of_classes_sorts_by_each_column(visit):
    tab = visit(animals())

    def names():
        return tab.eval_on_selector_all(
            "#class-table tbody .link", "b => b.map(x => x.textContent)"
        )

    assert names() == ["catfish", "ant", "cow", "dog", "cat"]
    tab.click("thead button:text-is('Suspect')")
    assert names() == ["cat", "dog", "cow", "ant", "catfish"]
    assert tab.get_attribute("thead th[data-key=flagged]", "aria-sort") == "ascending"
    tab.click("thead button:text-is('Class')")
    assert names() == ["ant", "cat", "catfish", "cow", "dog"]
    tab.fill("#class-search", "FISH")
    assert names() == ["catfish"]


def test_everything_is_decided_by_keys_alone_and_saved(visit):
    tab = visit(animals())
    tab.keyboard.press("j")
    assert focused(tab) == 10
    tab.keyboard.press("w")  # and on to the next
    assert focused(tab) == 11
    for key in ("s", "r", "u"):
        tab.keyboard.press(key)
    assert focused(tab) == 14
    tab.keyboard.press("k")
    tab.keyboard.press("ArrowUp")
    assert focused(tab) == 12
    tab.keyboard.press("x")
    tab.keyboard.press("End")
    assert focused(tab) == 15
    tab.keyboard.press("s")  # it has no suggestion
    tab.keyboard.press("e")
    tab.keyboard.type("dog")
    tab.keyboard.press("Enter")
    assert focused(tab) == 15
    content, rows = saved(tab)
    assert content.startswith(b"index,label,decision,new_label\r\n")
    assert [tuple(row.values()) for row in rows] == [
        ("10", "cat", "wrong", ""),
        ("11", "dog", "wrong", "cat"),
        ("13", "ant", "unsure", ""),
        ("15", "catfish", "wrong", "dog"),
    ]
    tab.focus(".card[data-index='15']")
    tab.keyboard.press("z")
    assert [row["index"] for row in saved(tab)[1]] == ["10", "11", "13"]


def test_keys_leave_browser_shortcuts_and_typing_alone(visit):
    tab = visit(animals())
    tab.keyboard.press("j")
    tab.keyboard.press("Control+r+u")
    tab.wait_for_load_state()
    tab.focus("#filter")
    tab.keyboard.type("wru")
    assert tab.input_value("#filter") == "wru"
    tab.fill("#filter", "")
    assert tab.inner_text("#progress") == "none decided"
    tab.keyboard.press("Enter")
    tab.keyboard.press("?")
    tab.uncheck("#shortcuts")
    tab.keyboard.press("Escape")
    tab.focus(".card")
    tab.keyboard.press("w")
    assert tab.inner_text("#progress") == "none decided"


def test_decisions_by_click_show_toggle_and_filter(visit):
    tab = visit(animals())
    card = tab.locator(".card[data-index='11']")
    card.locator("button.right").click()
    assert card.locator("button.right").get_attribute("aria-pressed") == "true"
    assert card.get_attribute("aria-label") == "Sample 11, labelled dog, suggested cat, label right"
    card.locator("button.take").click()
    assert card.locator("button.right").get_attribute("aria-pressed") == "false"
    assert card.locator("button.wrong").get_attribute("aria-pressed") == "true"
    tab.locator(".card[data-index='12'] button.unsure").click()
    tab.select_option("#state", "wrong")
    assert shown(tab) == [11]
    tab.select_option("#state", "none")
    assert shown(tab) == [10, 13, 14, 15]
    tab.select_option("#state", "")
    tab.locator(".card[data-index='12'] button.unsure").click()
    assert [tuple(row.values()) for row in saved(tab)[1]] == [("11", "dog", "wrong", "cat")]


def test_hostile_labels_do_not_run_and_come_back_from_the_file(visit, tmp_path):
    count = len(HOSTILE)
    data = PageData(
        title=HOSTILE[0],
        sentence=HOSTILE[1],
        facts=[(text, text) for text in HOSTILE],
        classes=[class_row(text) for text in HOSTILE],
        suspects=[
            suspect(i, text, HOSTILE[(i + 1) % count], name=text, text=text, image=f"{i}:{text}")
            for i, text in enumerate(HOSTILE)
        ],
        duplicates=[
            {
                "a": 100 + i, "b": 200 + i, "label_a": text, "label_b": HOSTILE[0], "name_a": text,
                "text_b": text, "image_a": text,
            }
            for i, text in enumerate(HOSTILE)
        ],
        confusions=[{"label": t, "suggested": HOSTILE[0], "count": 1} for t in HOSTILE[1:]],
        photo_checks=[
            {"index": 300 + i, "label": text, "name": text, "problems": [text], "text": text}
            for i, text in enumerate(HOSTILE)
        ],
        map={
            "method": HOSTILE[0], "total": count, "index": range(count), "label": HOSTILE,
            "x": [float(i) for i in range(count)], "y": [0.0] * count, "name": HOSTILE,
            "suggested": HOSTILE[1:] + HOSTILE[:1],
        },
    )  # fmt: skip
    tab = visit(data)
    for panel in ("duplicates", "confusions", "photo-checks"):
        tab.click(f"#{panel} > summary")
    box = opened_map(tab)
    for i in range(10):
        tab.mouse.move(box["x"] + box["width"] * i / 10, box["y"] + box["height"] / 2)
    assert tab.title() == HOSTILE[0]
    tab.keyboard.press("j")
    for _ in HOSTILE:
        tab.keyboard.press("s")
    content, rows = saved(tab)
    assert tab.evaluate("window.hacked") is None
    # As bspml's own writer protects them, so that its readers give back the same labels.
    assert [row["label"] for row in rows] == [protected_cell(text) for text in HOSTILE]
    assert [row["new_label"] for row in rows] == [
        protected_cell(t) for t in HOSTILE[1:] + HOSTILE[:1]
    ]
    (tmp_path / "decisions.csv").write_bytes(content)
    fresh = visit(data)  # another profile: nothing is kept
    assert fresh.inner_text("#progress") == "none decided"
    fresh.set_input_files("#file", tmp_path / "decisions.csv")
    fresh.wait_for_selector(f"#status:has-text('{count} decisions loaded')")
    assert saved(fresh)[0] == content


def test_whole_numbers_are_saved_bare(visit):
    data = PageData(title="t", sentence="s", suspects=[suspect(0, "7", "-1")], integer_labels=True)
    tab = visit(data)
    tab.keyboard.press("j")
    tab.keyboard.press("s")
    assert saved(tab)[0].endswith(b"0,7,wrong,-1\r\n")


def test_decisions_know_the_photos_that_were_on_the_page(visit, tmp_path):
    keys = ["1234e5678", "ab" * 16, "", "cd" * 16]  # the first looks like a number
    cards = [suspect(i, "a", "b") | {"picture": key} for i, key in enumerate(keys[:3])]
    tab = visit(PageData(title="t", sentence="s", suspects=cards))
    file = tmp_path / "d.csv"
    # What the page does not know of photos, or of samples, is kept.
    head = "index,label,decision,new_label,name,picture\n"
    file.write_text(f"{head}1,a,right,,,{keys[1]}\n2,a,wrong,,,{keys[3]}\n9,a,right,,,{keys[3]}\n")
    tab.set_input_files("#file", file)
    tab.wait_for_selector("#status:has-text('2 decisions loaded')")
    tab.keyboard.press("j")
    tab.keyboard.press("w")
    rows = [(row["index"], row["picture"]) for row in saved(tab)[1]]
    assert rows == [("0", f"'{keys[0]}"), ("1", keys[1]), ("2", keys[3]), ("9", keys[3])]
    file.write_text(f"{head}1,a,wrong,,,{keys[3]}\n")
    tab.set_input_files("#file", file)
    tab.wait_for_selector("#status:has-text('sample 1 is another picture here')")


def test_a_loaded_file_keeps_what_is_not_on_the_page_and_names_what_does_not_fit(visit, tmp_path):
    tab = visit(animals())
    file = tmp_path / "earlier.csv"
    file.write_text(
        "\ufeffindex,label,decision,new_label\n10,cat,right,\n11,dog,wrong,dog\n12,cow,maybe,\n"
        '49,"cow ",unsure,\n13,ant,wrong,unicorn\n',
        encoding="utf-8",
    )
    tab.set_input_files("#file", file)
    tab.wait_for_selector("#status:has-text('1 decision loaded')")
    assert "1 about samples not on this page" in tab.inner_text("#status")
    assert "3 left out" in tab.inner_text("#status")
    assert [tuple(row.values()) for row in saved(tab)[1]] == [
        ("10", "cat", "right", ""),
        ("49", "cow ", "unsure", ""),
    ]
    file.write_text("label\ncat\n")
    tab.set_input_files("#file", file)
    tab.wait_for_selector("#status:has-text('expected the columns index, label, decision')")


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("11,horse,wrong,", "sample 11 is labelled dog here, horse in the file"),
        ("49,horse,wrong,cat", "there is no class horse here, which sample 49 has in the file"),
        ("50,cat,right,", "there is no sample 50 here"),
    ],
)
def test_decisions_about_other_data_are_refused_as_a_whole(visit, tmp_path, row, why):
    tab = visit(animals())  # five classes of ten samples
    file = tmp_path / "other.csv"
    file.write_text(f"index,label,decision,new_label\n10,cat,right,\n{row}\n")
    tab.set_input_files("#file", file)
    tab.wait_for_selector(f"#status:has-text('other.csv was not loaded: {why}; are these')")
    assert tab.inner_text("#progress") == "none decided"
    assert saved(tab)[1] == []
    assert tab.locator("#forget").is_hidden()


def test_samples_that_were_dropped_before_count_as_samples(visit, tmp_path):
    """The classes count those that take part: decisions on the last samples were refused."""
    places = {
        "method": "PCA", "total": 52, "index": [10], "x": [0.0], "y": [0.0], "label": ["cat"],
        "suggested": ["dog"], "name": [],
    }  # fmt: skip
    tab = visit(PageData(**animals().model_dump() | {"map": places}))  # 50 of 52 in the classes
    file = tmp_path / "last.csv"
    file.write_text("index,label,decision,new_label\n51,cat,right,\n")
    tab.set_input_files("#file", file)
    tab.wait_for_selector("#status:has-text('1 about samples not on this page kept')")
    assert [row["index"] for row in saved(tab)[1]] == ["51"]
    file.write_text("index,label,decision,new_label\n52,cat,right,\n")
    tab.set_input_files("#file", file)
    tab.wait_for_selector("#status:has-text('there is no sample 52 here')")


@pytest.mark.parametrize(
    ("head", "row", "why"),
    [
        ("index,label,decision,new_label", "11,do,g,wrong,cat", "a line of 5 cells, 11,do,g,wrong"),
        ("index,label,decision,new_label", "11,dog,wrong", "a line of 3 cells, 11,dog,wrong, is"),
        ("index,index,decision,new_label", "11,12,right,", "there are two columns index"),
    ],
)
def test_a_file_that_the_command_refuses_is_not_loaded(visit, tmp_path, head, row, why):
    tab = visit(animals())
    file = tmp_path / "torn.csv"
    file.write_text(f"{head}\n10,cat,right,\n{row}\n")
    tab.set_input_files("#file", file)
    tab.wait_for_selector(f"#status:has-text('torn.csv was not loaded: {why}')")
    assert saved(tab)[1] == []


def test_lines_that_the_command_refuses_are_left_out_and_told(visit, tmp_path):
    tab = visit(animals())
    file = tmp_path / "odd.csv"
    rows = ["010,cat,right,", "11,dog,right,cat", "12,cow,unsure,cow", "03,cat,wrong,"]
    file.write_text("\n".join(["index,label,decision,new_label", *rows]) + "\n")
    tab.set_input_files("#file", file)
    tab.wait_for_selector("#status:has-text('1 decision loaded; 3 left out')")
    assert [row["index"] for row in saved(tab)[1]] == ["12"]


def test_a_new_label_is_a_class_as_the_command_takes_it(visit, tmp_path):
    """Less its spaces where it is no class and that is one; never a class by losing its own."""
    cards = [suspect(i, "a", label) for i, label in enumerate(("\xa0q", "b", "b"))]
    tab = visit(PageData(title="t", sentence="s", suspects=cards))
    file = tmp_path / "spaces.csv"
    file.write_text('index,decision,new_label\n0,wrong,"\tq "\n1,wrong,"\tb "\n2,wrong,b\n')
    tab.set_input_files("#file", file)
    tab.wait_for_selector("#status:has-text('2 decisions loaded; 1 left out')")
    assert [(row["index"], row["new_label"]) for row in saved(tab)[1]] == [("1", "b"), ("2", "b")]


@pytest.mark.parametrize("index", [10, 3])  # on the page; elsewhere
def test_two_lines_that_decide_differently_are_refused(visit, tmp_path, index):
    tab = visit(animals())
    file = tmp_path / "two.csv"
    line = f"{index},cat,wrong,cow\n"
    for more in (f"{index},cat,right,\n", f"{index},cat,wrong,ant\n"):
        file.write_text(f"index,label,decision,new_label\n11,dog,right,\n{line}{more}")
        tab.set_input_files("#file", file)
        why = f"two lines decide differently on sample {index}; keep one of them"
        tab.wait_for_selector(f"#status:has-text('{why}')")
        assert saved(tab)[1] == []
    file.write_text(f"index,label,decision,new_label\n{line}{line}")
    tab.set_input_files("#file", file)
    tab.wait_for_selector("#status:has-text('2 decisions loaded'), #status:has-text('; 2 about')")
    assert [row["index"] for row in saved(tab)[1]] == [str(index)]


def test_a_step_back_takes_nothing_away_that_a_file_decided(visit, tmp_path):
    tab = visit(animals())
    tab.keyboard.press("j")
    tab.keyboard.press("w")
    index = saved(tab)[1][0]["index"]
    file = tmp_path / "later.csv"
    file.write_text(f"index,decision\n{index},right\n")
    tab.set_input_files("#file", file)
    tab.wait_for_selector("#status:has-text('1 decision loaded')")
    assert tab.locator("#undo").is_disabled()
    tab.keyboard.press("z")
    assert [row["decision"] for row in saved(tab)[1]] == ["right"]


def test_decisions_about_samples_elsewhere_can_be_forgotten_for_good(visit, tmp_path):
    tab = visit(animals())
    file = tmp_path / "other.csv"
    file.write_text("index,label,decision,new_label\n10,cat,right,\n3,cow,wrong,\n4,ant,right,\n")
    tab.set_input_files("#file", file)
    tab.wait_for_selector("#status:has-text('2 about samples not on this page')")
    tab.reload()
    assert [row["index"] for row in saved(tab)[1]] == ["3", "4", "10"]
    button = tab.locator("#forget")
    assert button.inner_text() == "Forget 2 decisions about samples not on this page"
    button.click()
    assert button.is_hidden()
    assert [row["index"] for row in saved(tab)[1]] == ["10"]
    tab.reload()
    assert [row["index"] for row in saved(tab)[1]] == ["10"]


def test_a_file_of_index_and_decision_is_enough(visit, tmp_path):
    tab = visit(animals())
    file = tmp_path / "short.csv"
    file.write_text("note,Decision, INDEX \nx,Wrong, 10\ny,right,11\n")
    tab.set_input_files("#file", file)
    tab.wait_for_selector("#status:has-text('2 decisions loaded')")
    assert [tuple(row.values()) for row in saved(tab)[1]] == [
        ("10", "cat", "wrong", ""),
        ("11", "dog", "right", ""),
    ]
    file.write_text("index,label,new_label\n10,cat,dog\n")
    tab.set_input_files("#file", file)
    tab.wait_for_selector("#status:has-text('expected the columns')")


# The first holds all signs of ASCII and the spaces and digits of a few alphabets.
@pytest.mark.parametrize("top", [0x700, pytest.param(0x10000, marks=pytest.mark.slow)])
def test_the_page_protects_the_same_cells_as_bspml(visit, top):
    """Every code point below the top, alone, before and after a digit and a point."""
    script = (Path(page.__file__).parent / "csv.js").read_text("utf-8")
    tab = visit(animals())
    tab.goto("about:blank")  # the page itself lets no other script run
    forms = (
        *("{}", "{}5", "5{}", " {}5", ".{}", "5e{}", "na{}", "{}rue", "fal{}e", ".5{}", "5,{}"),
        *("5 {}", "5-{}", "5{}/2"),
    )
    found = tab.evaluate(
        """([script, forms, top]) => {
            const csv = (0, eval)(script + "; csv");
            return forms.map((form) => {
                const hits = [];
                for (let c = 0; c < top; c++) {
                    const text = form.replace("{}", () => String.fromCharCode(c));
                    if (csv.protect(text) !== text) hits.push(c);
                }
                return hits;
            });
        }""",
        [script, list(forms), top],
    )
    for form, hits in zip(forms, found, strict=True):
        texts = [form.replace("{}", chr(c)) for c in range(top)]
        assert hits == [c for c, text in enumerate(texts) if protected_cell(text) != text], form


def test_decisions_survive_closing_the_page_and_stay_with_their_suspects(visit):
    tab = visit(animals())
    tab.keyboard.press("j")
    tab.keyboard.press("s")
    tab.reload()
    assert tab.inner_text("#progress") == "1 decided: 1 wrong, 0 right, 0 unsure"
    assert tab.locator(".card[data-index='10'] .take").get_attribute("aria-pressed") == "true"
    other = PageData(title="Others", sentence="s", suspects=[suspect(10, "cat", "dog")])
    path = Path(tab.evaluate("decodeURIComponent(location.pathname)"))
    path.write_text(render_page(other), encoding="utf-8")
    tab.reload()
    assert tab.inner_text("#progress") == "none decided"


def test_pictures_come_from_beside_the_page_and_a_missing_one_says_so(visit, tmp_path):
    folder = tmp_path / "50% #1"
    folder.mkdir()
    png(folder / "a?b.png")
    inline = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
    data = PageData(
        title="t",
        sentence="s",
        suspects=[
            suspect(0, "cat", image="50% #1/a?b.png"),
            suspect(1, "cat", image=inline),
            suspect(2, "cat", image="gone.png"),
            suspect(3, "cat", image="http://example.invalid/x.png"),
        ],
    )
    tab = visit(data)
    tab.wait_for_selector(".card[data-index='2'] .none:has-text('image not found')")
    wide = "i => i.map(x => x.naturalWidth)"
    assert tab.eval_on_selector_all(".card img", wide) == [2, 1]
    assert tab.locator(".card[data-index='3'] img").count() == 0


def test_copies_under_different_labels_come_first_and_say_so(visit):
    def pair(a, b, label_a, label_b):
        return {
            "a": a, "b": b, "label_a": label_a, "label_b": label_b, "similarity": 0.99,
            "image_a": None, "image_b": None,
        }  # fmt: skip

    pairs = [pair(1, 2, "cat", "cat"), pair(3, 4, "cat", "dog")]
    tab = visit(PageData(title="t", sentence="s", duplicates=pairs))
    tab.click("#duplicates > summary")
    first, second = tab.locator("#pairs li").all_inner_texts()
    assert "#3 cat" in first
    assert "#4 dog" in first
    assert "different labels" in first
    assert "different labels" not in second


GIF = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"


def test_copies_are_decided_like_suspects_in_the_same_file(visit):
    copies = [
        {
            "a": 10, "b": 40, "label_a": "cat", "label_b": "dog", "similarity": 1.0,
            "name_a": "a.txt", "name_b": "b.txt", "text_a": "a purring thing", "text_b": "woof",
        },
        {"a": 41, "b": 42, "label_a": "cow", "label_b": "cow", "similarity": 0.97},
    ]  # fmt: skip
    tab = visit(animals().model_copy(update={"duplicates": PageData(
        title="t", sentence="s", duplicates=copies).duplicates}))  # fmt: skip
    tab.click("#duplicates > summary")
    first, second = tab.locator("#pairs li").all_inner_texts()
    for text in ("a.txt", "b.txt", "a purring thing", "woof", "the same", "different labels"):
        assert text in first
    assert "similarity 0.970" in second
    side = "#pairs .side[data-index='{}'] "
    tab.click(side.format(10) + "[data-take]")  # the copy's label
    assert tab.locator(".card[data-index='10'] .take").get_attribute("aria-pressed") == "true"
    tab.click(side.format(40) + ".right")
    tab.click(side.format(41) + ".wrong")
    tab.click(side.format(42) + "[data-other]")
    tab.fill("#choose-input", "ant")
    tab.keyboard.press("Enter")
    assert tab.inner_text(side.format(42) + ".outcome") == "is ant"
    assert tab.get_attribute(side.format(42) + ".wrong", "aria-pressed") == "false"  # not dropped
    assert tab.get_attribute(side.format(41) + ".wrong", "aria-pressed") == "true"
    rows = saved(tab)[1]
    assert [tuple(row.values())[:4] for row in rows] == [
        ("10", "cat", "wrong", "dog"), ("40", "dog", "right", ""), ("41", "cow", "wrong", ""),
        ("42", "cow", "wrong", "ant"),
    ]  # fmt: skip
    assert rows[1]["name"] == "b.txt"
    tab.click("#undo")
    assert tab.inner_text(side.format(42) + ".outcome") == ""
    tab.reload()
    tab.click("#duplicates > summary")
    assert tab.get_attribute(side.format(40) + ".right", "aria-pressed") == "true"


def test_a_page_of_copies_alone_saves_decisions(visit):
    pair = {"a": 1, "b": 2, "label_a": "cat", "label_b": "dog"}
    tab = visit(PageData(title="t", sentence="s", duplicates=[pair]))
    tab.click("#duplicates > summary")
    tab.click(".side[data-index='2'] .wrong")
    assert [tuple(row.values()) for row in saved(tab)[1]] == [("2", "dog", "wrong", "")]


def test_a_row_of_confused_classes_shows_its_suspects_alone(visit):
    confusions = [
        {"label": "cat", "suggested": "cow", "count": 12, "share": 0.12, "low": 0.05, "high": 0.2}
    ]
    tab = visit(PageData(**animals().model_dump() | {"confusions": confusions}))
    tab.click("#confusions > summary")
    row = tab.locator("#confusion-table tbody tr")
    assert row.inner_text().split("\t") == ["cat", "cow", "12", "12 %", "5.0 % to 20 %"]
    tab.click("#confusion-table .link")
    assert shown(tab) == [14]
    assert tab.input_value("#filter") == "cat → cow"
    assert tab.locator("#confusions svg").count() == 1
    tab.fill("#filter", "")
    assert len(shown(tab)) == 6


def test_bad_photos_are_listed_by_problem_and_can_be_dropped(visit):
    photos = [
        {
            "index": 3,
            "label": "cat",
            "name": "c.jpg",
            "image": GIF,
            "problems": ["dark", "blurred"],
        },
        {"index": 4, "label": "dog", "name": "d.jpg", "image": GIF, "problems": ["dark"]},
    ]
    tab = visit(PageData(title="t", sentence="s", photo_checks=photos))
    tab.click("#photo-checks > summary")
    options = tab.locator("#photo-problem option").all_inner_texts()
    assert options == ["all", "dark (2)", "blurred (1)"]
    tab.select_option("#photo-problem", "blurred")
    (only,) = tab.locator("#photos li").all_inner_texts()
    assert "c.jpg" in only
    tab.click("#photos .wrong")
    assert [tuple(row.values()) for row in saved(tab)[1]] == [("3", "cat", "wrong", "", "c.jpg")]


def test_the_map_names_a_point_and_leads_to_its_card(visit):
    places = {
        "method": "PCA", "total": 50_000, "index": [11, 99], "x": [0.0, 1.0], "y": [0.0, 1.0],
        "label": ["dog", "cow"], "suggested": ["cat", ""], "name": ["rex.png", ""],
    }  # fmt: skip
    tab = visit(PageData(**animals().model_dump() | {"map": places}))
    box = opened_map(tab)
    assert "2 of 50,000 samples are shown" in tab.inner_text("#map")
    # One unit both ways, centred: the points lie at the ends of a square's diagonal.
    half = box["height"] / 2 - 14
    at = {
        11: (box["x"] + box["width"] / 2 - half, box["y"] + box["height"] - 14),
        99: (box["x"] + box["width"] / 2 + half, box["y"] + 14),
    }
    tab.mouse.move(*at[11])
    wait_for(tab, "!document.querySelector('#map-tip').hidden")
    assert tab.inner_text("#map-tip").splitlines()[:3] == ["dog", "looks like cat", "rex.png"]
    tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert tab.locator("#map-tip").is_hidden()
    tab.mouse.click(*at[99])
    assert "#99 is no suspect" in tab.inner_text("#status")
    tab.fill("#filter", "ant")
    tab.fill("#filter", "")
    tab.select_option("#state", "wrong")  # the card is filtered out: the filter gives way
    box = in_view(tab, "#map-canvas")
    tab.mouse.click(box["x"] + box["width"] / 2 - half, box["y"] + box["height"] - 14)
    assert focused(tab) == 11


def test_twenty_thousand_points_are_drawn_and_found_at_once(visit):
    n = 20_000
    places = {
        "method": "PCA", "total": 60_000, "index": range(n), "label": ["cat"] * n,
        "x": [float(i % 200) for i in range(n)], "y": [float(i // 200) for i in range(n)],
        "suggested": [""] * n,
    }  # fmt: skip
    tab = visit(PageData(**animals().model_dump() | {"map": places}))
    box = opened_map(tab)
    assert "20,000 of 60,000 samples are shown" in tab.inner_text("#map")
    tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    wait_for(tab, "!document.querySelector('#map-tip').hidden")
    assert tab.inner_text("#map-tip").splitlines()[0] == "cat"


def test_pictures_enlarge_by_click_and_by_key_and_escape_leads_back(visit, tmp_path):
    png(tmp_path / "cat.png")
    near = [{"index": 7, "label": "dog", "image": GIF}]
    cards = [
        suspect(0, "cat", "dog", image=GIF, name="cat.png", other=near),
        suspect(1, "cat", "dog"),
    ]
    tab = visit(PageData(title="t", sentence="s", suspects=cards, image_folder="."))
    picture = "document.querySelector('#large-picture')"
    tab.click(".card .zoom >> nth=0")
    assert tab.locator("#large").is_visible()
    wait_for(tab, f"{picture}.naturalWidth === 2")  # the file itself, not the small picture
    assert tab.inner_text("#large-caption") == "#0, labelled cat, cat.png"
    assert tab.inner_text("#large-count") == "1 of 2"
    tab.keyboard.press("ArrowRight")
    assert tab.inner_text("#large-caption") == "#7, labelled dog"
    tab.keyboard.press("w")  # decides nothing behind it
    tab.keyboard.press("Escape")
    assert tab.locator("#large").is_hidden()
    assert tab.inner_text("#progress") == "none decided"
    for key in ("v", "Enter"):
        tab.focus(".card[data-index='0']")
        tab.keyboard.press(key)
        assert tab.locator("#large").is_visible()
        tab.keyboard.press("Escape")
        assert focused(tab) == 0
    (tmp_path / "cat.png").unlink()
    tab.reload()
    tab.focus(".card .zoom")
    tab.keyboard.press("Enter")
    wait_for(tab, f"{picture}.naturalWidth === 1")  # the small one, where the file is gone


def test_n_goes_to_the_next_card_that_nobody_decided_on(visit):
    tab = visit(animals())
    tab.click(".card[data-index='11'] .right")
    tab.focus(".card[data-index='10']")
    tab.keyboard.press("n")
    assert focused(tab) == 12
    for index in (10, 12, 13, 14):
        tab.click(f".card[data-index='{index}'] .right")
    tab.focus(".card[data-index='12']")
    tab.keyboard.press("n")
    assert focused(tab) == 15
    assert tab.inner_text("#progress") == "5 decided: 0 wrong, 5 right, 0 unsure"


def chances():
    """Five suspects with chances, the audit flags the first, third and fourth."""
    rows = [(0.9, 0.0), (0.6, 1.0), (0.8, 0.0), (None, 0.0), (0.1, 1.0)]
    return PageData(
        title="Chances",
        sentence="s",
        suspects=[
            suspect(i, "cat", "dog", weight=weight, wrong_probability=chance)
            for i, (chance, weight) in enumerate(rows)
        ],
    )


def test_a_card_of_what_fits_no_class_says_so(visit):
    two = [suspect(0, "cat", "", fits_no_class=True), suspect(1, "cat", "")]
    tab = visit(PageData(title="Strangers", sentence="s", suspects=two))
    said = tab.eval_on_selector_all(".card dd.better", "all => all.map(dd => dd.innerText)")
    assert said == ["none: it fits no class", "–"]


def test_a_card_says_how_sure_its_suggestion_is_and_which_neighbours_are_suspects(visit):
    def near(index, label):
        return {"index": index, "name": f"n{index}", "label": label}

    # The second suspect is a neighbour of the first; the third has no suggestion, but a rival.
    cards = [
        suspect(0, "cat", "dog", wrong_probability=0.9996, suggestion_probability=0.29,
                own=[near(1, "cat"), near(7, "cat")], other=[near(8, "dog")]),
        suspect(1, "cat", "dog", wrong_probability=1.0, suggestion_probability=0.9),
        suspect(2, "cow", "", wrong_probability=0.4, suggestion_probability=0.3,
                other=[near(9, "ant")]),
    ]  # fmt: skip
    cards[1] |= {"name": "n1"}
    tab = visit(PageData(title="Sure", sentence="s", suspects=cards))
    said = tab.eval_on_selector_all(".card .chance", "all => all.map(p => p.firstChild.data)")
    assert [text.strip() for text in said] == [
        "over 99 % likely wrong, 29 % as suggested",
        "100 % likely wrong, 90 % as suggested",
        "40 % likely wrong",
    ]
    marked = "all => all.map(li => li.querySelector('.doubted') !== null)"
    assert tab.eval_on_selector_all(".card[data-index='0'] .near li", marked) == [
        True,
        False,
        False,
    ]
    assert "Fits next best: ant" in tab.inner_text(".card[data-index='2'] .nears")


def flagged_cards(tab):
    return tab.eval_on_selector_all(
        ".card[data-flagged=true]", "cards => cards.map(c => Number(c.dataset.index))"
    )


def test_a_person_chooses_the_flags_and_all_of_the_page_follows(visit):
    tab = visit(chances())
    assert flagged_cards(tab) == [0, 2, 3]
    assert tab.inner_text("#suspects-count") == "3 flagged of 5"
    summary = "3 labels flagged: about 1.7 expected to be wrong, about 0.3 right; 1 not known."
    assert tab.inner_text("#flag-summary") == summary
    assert ", flagged, not decided" in tab.get_attribute(".card[data-index='2']", "aria-label")
    tab.select_option("#flag-rule", "count")
    tab.fill("#flag-count", "2")
    assert flagged_cards(tab) == [0, 1]
    assert tab.inner_text("#flag-summary").startswith("2 labels flagged: about 1.5 expected to be")
    tab.select_option("#flag-rule", "precision")
    # Shares wrong of the first 1, 2, ...: 0.9, 0.75, 0.77, 0.575, 0.48; unknown counts as right.
    for percent, cards in ((95, []), (90, [0]), (76, [0, 1, 2]), (57, [0, 1, 2, 3])):
        tab.fill("#flag-precision", str(percent))
        assert flagged_cards(tab) == cards
        assert tab.inner_text("#suspects-count") == f"{len(cards)} flagged of 5"
    tab.select_option("#state", "unflagged")
    assert shown(tab) == [4]
    tab.select_option("#state", "")
    tab.click(".card[data-index='4'] .right")
    tab.click(".card[data-index='1'] .wrong")
    content, rows = saved(tab)
    assert content.startswith(b"index,label,decision,new_label,flagged\r\n")
    assert [(row["index"], row["flagged"]) for row in rows] == [("1", "yes"), ("4", "no")]
    tab.reload()
    assert flagged_cards(tab) == [0, 1, 2, 3]
    assert saved(tab)[0] == content


def test_without_chances_there_is_nothing_to_choose(visit):
    tab = visit(animals())
    assert tab.locator("#flags").count() == 0
    assert tab.inner_text("#suspects-count") == "6"


def test_on_a_phone_the_first_card_is_within_two_screens(visit):
    everything = animals().model_dump() | {
        "sentence": "Between 2.6 and 30 % of the labels are wrong: the best estimate of labels "
        "wrong at random is 7.3 % (95 % interval 2.6 to 9.7 %), and confusions come on top.",
        "facts": [(f"fact {i}", "long words " * 20) for i in range(8)],
        "histogram": {"counts": [9, 2], "null_level": 1.0},
        "confusions": [{"label": "cat", "suggested": "dog", "count": 1}],
        "duplicates": [{"a": 1, "b": 2, "label_a": "cat", "label_b": "dog"}],
        "photo_checks": [{"index": 3, "label": "cat", "problems": ["dark"]}],
        "map": {
            "method": "PCA", "total": 1, "index": [1], "x": [0.0], "y": [0.0], "label": ["cat"],
            "suggested": [""],
        },
        "suspects": chances().model_dump()["suspects"],
    }  # fmt: skip
    tab = visit(PageData(**everything), screen={"width": 390, "height": 844}, has_touch=True)
    tab.set_viewport_size({"width": 390, "height": 844})
    tab.reload()
    top = "document.querySelector('.card').getBoundingClientRect().top + scrollY"
    assert tab.evaluate(top) < 2 * 844 - 200  # enough of it to see what it is about
    for panel in tab.locator("details.panel > summary").all():
        panel.click()
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_ten_thousand_suspects_are_few_elements_at_a_time(visit):
    labels = [f"class {i:04d}" for i in range(2000)]
    near = [{"index": 20000 + i, "label": "x", "image": None, "text": "words"} for i in range(5)]
    data = PageData(
        title="Large",
        sentence="s",
        classes=[class_row(label) for label in labels],
        suspects=[
            suspect(i, labels[i % 2000], labels[(i + 1) % 2000], text=f"words of {i}", own=near)
            for i in range(10_000)
        ],
    )
    tab = visit(data)
    count = "document.querySelectorAll('*').length"
    assert tab.evaluate(count) < 5000
    assert tab.locator(".card").first.get_attribute("aria-setsize") == "10000"
    tab.keyboard.press("j")
    tab.keyboard.press("End")
    assert focused(tab) == 9999
    wait_for(tab, "document.activeElement.getBoundingClientRect().bottom <= innerHeight")
    assert tab.evaluate(count) < 5000
    tab.keyboard.press("w")
    for place in (0.7, 0.2, 0.5):
        tab.evaluate("p => scrollTo(0, p * document.body.scrollHeight)", place)
        wait_for(tab, CARD_IN_THE_MIDDLE)
        assert tab.locator(".card").count() < 25
        assert tab.evaluate(count) < 5000
    tab.fill("#filter", "class 1234")
    assert shown(tab)[:6] == [1233, 1234, 3233, 3234, 5233, 5234]
    assert tab.locator(".card").first.get_attribute("aria-setsize") == "10"
    assert [row["index"] for row in saved(tab)[1]] == ["9999"]


def test_cards_are_named_for_screen_readers_and_every_control_has_a_name(visit):
    tab = visit(animals())
    card = tab.locator(".card").first
    assert card.get_attribute("aria-label") == "Sample 10, labelled cat, suggested dog, not decided"
    unnamed = tab.evaluate(
        """[...document.querySelectorAll('button, input, select, img')].filter(e =>
        !e.textContent.trim() && !e.labels?.length && !e.getAttribute('aria-label') && !e.alt
        && !e.hidden).map(e => e.outerHTML)"""
    )
    assert unnamed == []


def contrast(one, other):
    def luminance(colour):
        parts = [c / 255 for c in colour]
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable_in_light_and_dark(visit, scheme):
    tab = visit(animals(), color_scheme=scheme)
    colour = """name => {
        const element = document.createElement('i');
        element.style.color = `var(--${name})`;
        document.body.append(element);
        const found = getComputedStyle(element).color.match(/[\\d.]+/g).slice(0, 3).map(Number);
        element.remove();
        return found; }"""
    found = {}
    for text in ("ink", "quiet", "accent", "wrong", "right", "unsure", "c1", "c2"):
        for ground in ("surface", "paper", "hover"):
            found[text, ground] = contrast(tab.evaluate(colour, text), tab.evaluate(colour, ground))
    for text in ("wrong", "right", "unsure"):
        found[text, "soft"] = contrast(
            tab.evaluate(colour, text), tab.evaluate(colour, f"{text}-soft")
        )
    found["button"] = contrast(tab.evaluate(colour, "on-accent"), tab.evaluate(colour, "accent"))
    found["sunken"] = contrast(tab.evaluate(colour, "quiet"), tab.evaluate(colour, "sunken"))
    assert {pair: ratio for pair, ratio in found.items() if ratio < 4.5} == {}


@pytest.mark.parametrize("width", [1300, 900, 400])
def test_nothing_is_wider_than_the_window(visit, width):
    long = suspect(0, "z" * 300, "w" * 300, name="v" * 300, text="u" * 3000)
    data = PageData(
        title="x" * 300, sentence="y" * 300, classes=[class_row("z" * 300)], suspects=[long]
    )
    tab = visit(data)
    tab.set_viewport_size({"width": width, "height": 800})
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
