"""Decisions in words: what they changed, and classes that look like typing errors."""

import numpy as np
import pytest

from bspml.data.labels.decision_words import counts_of_decisions, note_on_new_classes
from bspml.data.labels.decisions import Decision, apply_decisions

BIRDS = ["sparrow", "sparrow", "robin", "robin", "wren", "wren"]


def decided(given, *said):
    """Labels after decisions (index, verdict, new label)."""
    made = [Decision(index, verdict, new, "", "d.csv") for index, verdict, new in said]
    return apply_decisions(np.array(given), made)


def test_decisions_are_counted_by_what_becomes_of_the_label():
    said = [(0, "right", ""), (1, "wrong", "wren"), (2, "wrong", ""), (3, "wrong", "wren")]
    assert counts_of_decisions(decided(BIRDS, *said)) == (
        "1 label kept as right, 2 relabelled, 1 dropped"
    )
    assert counts_of_decisions(decided(BIRDS, (5, "unsure", ""))).endswith("0 dropped, 1 unsure")


def test_classes_that_others_have_are_not_remarked_on():
    assert note_on_new_classes(np.array(BIRDS), decided(BIRDS, (0, "wrong", "robin"))) == ()
    # Of the last sample of a class: the class it leaves was given all the same.
    assert note_on_new_classes(np.array(["a", "b"]), decided(["a", "b"], (0, "wrong", "b"))) == ()
    assert note_on_new_classes(np.array(BIRDS), decided(BIRDS, (0, "right", ""))) == ()


def test_misspelt_classes_are_counted_and_named_with_the_nearest():
    found = decided(
        BIRDS, (0, "wrong", "robbin"), (1, "wrong", "robbin"), (2, "wrong", "SPAROW"),
        (3, "wrong", "ostrich"), (4, "wrong", "quail"), (5, "right", ""),
    )  # fmt: skip
    (note,) = note_on_new_classes(np.array(BIRDS), found)
    assert note.startswith(
        "5 samples get classes that no given label has: 'robbin' (2 samples; did you mean "
        "'robin'?), 'SPAROW' (did you mean 'sparrow'?), 'ostrich', ... (4 such classes). If "
    )
    assert "correct `new_label` in the decisions" in note


@pytest.mark.parametrize("given", [[10, 10, 21], ["10", "10", "21"]])
def test_numbers_that_look_alike_are_no_misspellings(given):
    (note,) = note_on_new_classes(np.array(given), decided(given, (0, "wrong", "11")))
    assert note.startswith("1 sample gets a class that no given label has: '11'. If")


def test_a_name_of_any_length_and_any_number_of_classes_stay_one_sentence():
    said = [(0, "wrong", "x" * 10_000)] + [(k, "wrong", f"new {k}") for k in range(1, 1001)]
    given = ["x" * 9_000] * 1001
    (note,) = note_on_new_classes(np.array(given), decided(given, *said))
    assert len(note) < 500
    assert "'" + "x" * 57 + "...' (did you mean '" + "x" * 57 + "...'?)" in note
    assert "... (1,001 such classes)" in note
