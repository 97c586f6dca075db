"""Earlier decisions in data that grew, shrank, or were corrected since."""

import numpy as np
import pytest

from bspml.data.labels.carried import carry_over
from bspml.data.labels.decisions import apply_decisions, read_decisions, write_corrected
from bspml.errors import DataError

NAMES = ["a/0.jpg", "a/1.jpg", "a/2.jpg", "b/3.jpg", "b/4.jpg", "b/5.jpg"]
LABELS = np.array(list("aaabbb"))
EARLIER = (
    "index,label,decision,new_label,name\n"
    "7,a,right,,a/1.jpg\n"  # under another index by now
    "1,a,wrong,b,a/2.jpg\n"
    "2,b,wrong,,b/3.jpg\n"
    "3,b,unsure,,b/4.jpg\n"
    "4,c,right,,b/5.jpg\n"  # has another label since
    "5,a,right,,gone.jpg\n"
)


@pytest.fixture
def write(tmp_path):
    def write(text):
        (tmp_path / "d.csv").write_text(text)
        return tmp_path / "d.csv"

    return write


def test_decisions_find_their_samples_by_name_and_are_counted(write):
    carried = carry_over(write(EARLIER), LABELS, NAMES)
    assert carried.labels.tolist() == list("aabbbb")
    assert carried.decided.tolist() == ["", "right", "wrong", "wrong", "", ""]
    assert carried.is_dropped.tolist() == [False, False, False, True, False, False]
    assert carried.sentence == (
        "3 of 6 earlier decisions carried over (1 label kept as right, 1 relabelled, 1 dropped); "
        "1 name is not in these data; 1 label is not the one decided on; 1 was unsure."
    )


def test_a_label_that_was_corrected_by_hand_is_right_by_now(write):
    moved = np.array(list("aabbbb"))
    carried = carry_over(write(EARLIER), moved, NAMES)
    assert carried.labels.tolist() == moved.tolist()
    assert carried.decided[2] == "right"


def test_corrected_labels_hold_the_decisions_of_all_rounds(write, tmp_path):
    round_one = write(
        "index,decision,new_label,name\n0,right,,a/0.jpg\n1,right,,a/1.jpg\n2,wrong,b,a/2.jpg\n"
        "3,wrong,,b/3.jpg\n4,unsure,,b/4.jpg\n"
    )
    decided = apply_decisions(LABELS, read_decisions(round_one), names=NAMES)
    write_corrected(tmp_path / "labels-corrected.csv", decided)
    again = carry_over(tmp_path / "labels-corrected.csv", LABELS, NAMES)
    assert again.labels.tolist() == list("aabbbb")
    assert again.decided.tolist() == ["right", "right", "wrong", "wrong", "", ""]
    assert again.is_dropped.nonzero()[0].tolist() == [3]
    # As often as it is carried over, and into data that hold the new labels.
    grown = np.append(again.labels, ["a"])
    third = carry_over(tmp_path / "labels-corrected.csv", grown, [*NAMES, "a/6.jpg"])
    assert third.decided.tolist() == ["right", "right", "right", "wrong", "", "", ""]


def corrected_file(path, *rows, given=True):
    header = "index,label,weight,decision,name" + ",given_label" * given
    lines = [row if given else row.rpartition(",")[0] for row in rows]
    path.write_text("\n".join([header, *(f"{i},{row}" for i, row in enumerate(lines))]) + "\n")
    return path


@pytest.mark.parametrize(
    ("row", "decided", "label", "without"),
    [
        ("b,1.0,wrong,a/0.jpg,a", "wrong", "b", "unknown"),
        ("b,1.0,wrong,a/0.jpg,b", "changed", "a", "unknown"),  # to another class by hand, since
        ("b,1.0,wrong,a/0.jpg,c", "changed", "a", "unknown"),
        ("b,1.0,right,a/0.jpg,a", "wrong", "b", "changed"),  # in a later round confirmed
        ("a,1.0,right,a/0.jpg,b", "right", "a", "right"),  # and moved by hand, since
        ("a,1.0,wrong,a/0.jpg,a", "right", "a", "right"),  # relabelled, and back in a later round
        ("b,0.0,wrong,a/0.jpg,a", "dropped", "a", "changed"),  # relabelled, then that dropped too
        ("a,0.0,wrong,a/0.jpg,a", "dropped", "a", "dropped"),
        ("b,0.0,wrong,a/0.jpg,b", "changed", "a", "changed"),
        ("b,1.0,unsure,a/0.jpg,a", "unsure", "a", "unsure"),
    ],
)
@pytest.mark.parametrize("given", [True, False])
def test_a_row_of_all_rounds_is_about_the_label_that_was_given(
    tmp_path, row, decided, label, without, given
):
    path = corrected_file(tmp_path / "all.csv", row, "b,1.0,right,b/3.jpg,b", given=given)
    carried, said = carry_over(path, LABELS, NAMES), decided if given else without
    is_open = said in ("changed", "unknown", "unsure")
    expected = "" if is_open else said.replace("dropped", "wrong")
    assert carried.labels.tolist() == [label if not is_open else "a", *"aabbb"]
    assert carried.decided.tolist() == [expected, "", "", "right", "", ""]
    assert carried.is_dropped[0] == (said == "dropped")
    assert carried.given.tolist() == LABELS.tolist()
    words = {"changed": "1 label is not the one decided on", "unsure": "1 was unsure",
             "unknown": "1 label decided on is not in the file"}  # fmt: skip
    assert [word in carried.sentence for word in words.values()] == [said == w for w in words]


def test_whole_numbers_stay_numbers(write):
    text = "index,label,decision,new_label,name\n0,3,wrong,4,x\n1,4,right,,y\n"
    carried = carry_over(write(text), np.array([3, 4, 4]), ["x", "y", "z"])
    assert carried.labels.tolist() == [4, 4, 4]
    assert carried.labels.dtype.kind == "i"
    assert carried.decided.tolist() == ["wrong", "right", ""]


@pytest.mark.parametrize(
    ("text", "names", "message"),
    [
        ("index,decision,name\n0,right,zzz\n", NAMES, "no sample 'zzz' .* nor any other"),
        ("index,decision\n0,right\n", NAMES, "by name, and sample 0 of the file has none"),
        ("index,decision,name\n0,right,a\n", None, "these data have none"),
        ("index,decision,name\n0,right,a\n", ["a"] * 6, "two samples of these data share one"),
        (
            "index,decision,name\n0,right,a/0.jpg\n9,wrong,a/0.jpg\n",
            NAMES,
            "line 3: decides on 'a/0.jpg' otherwise than .*line 2",
        ),
    ],
)
def test_decisions_that_cannot_be_placed_are_refused(write, text, names, message):
    with pytest.raises(DataError, match=message):
        carry_over(write(text), LABELS, names)


def test_no_decisions_are_no_fault(write):
    carried = carry_over(write("index,decision,name\n"), LABELS, NAMES)
    assert carried.sentence.startswith("0 of 0 earlier decisions carried over")
    assert set(carried.decided) == {""}


def test_a_photo_that_took_the_name_of_a_decided_one_is_asked_about(write):
    there = [f"{row:032x}" for row in range(6)]
    text = (
        "index,label,decision,new_label,name,picture\n"
        f"0,a,wrong,b,a/0.jpg,{there[0]}\n1,a,right,,a/1.jpg,{there[5]}\n2,a,right,,a/2.jpg,\n"
    )
    carried = carry_over(write(text), LABELS, NAMES, lambda rows: [there[row] for row in rows])
    assert carried.decided.tolist() == ["wrong", "", "right", "", "", ""]
    assert carried.sentence == (
        "2 of 3 earlier decisions carried over (1 label kept as right, 1 relabelled, 0 dropped); "
        "1 picture is not what was decided on (only saved again, or turned? Delete the column "
        "`picture`)."
    )
    assert carried.pictures == (there[0], "", "", "", "", "")
    # Where the photos are not at hand, names count, and what is known of the photos is kept.
    assert carry_over(write(text), LABELS, NAMES).pictures[:2] == (there[0], there[5])
