"""The figure of confused classes: counts in their cells, only classes that are confused."""

import pytest

from bspml.report.confusion_figure import MOST, confusion_matrix
from bspml.report.models import Confusion
from bspml.report.saving import inline_svg


def pair(label, suggested, count):
    return Confusion(label=label, suggested=suggested, count=count)


def test_each_count_stands_in_its_row_and_column():
    (axes,) = confusion_matrix([pair("b", "a", 7), pair("a", "c", 2)]).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b", "c"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["a", "b", "c"]
    assert {text.get_position(): text.get_text() for text in axes.texts} == {
        (0, 1): "7",
        (2, 0): "2",
    }
    cells = {cell.get_xy(): cell.get_alpha() for cell in axes.patches}
    assert cells == {(-0.5, 0.5): 1.0, (1.5, -0.5): pytest.approx(0.12 + 0.88 * 2 / 7)}


def test_of_many_classes_those_of_the_most_frequent_pairs_are_drawn():
    pairs = [pair(f"{i:03d}", f"{i + 500}", 900 - i) for i in range(200)]
    (axes,) = confusion_matrix(pairs).axes
    assert len(axes.get_yticklabels()) == MOST
    assert [text.get_text() for text in axes.texts] == [f"{900 - i}" for i in range(MOST // 2)]


def test_without_confusions_there_is_no_figure():
    assert confusion_matrix([]) is None


def test_hostile_names_stay_text():
    assert "&lt;b&gt; $x$" in inline_svg(confusion_matrix([pair("<b> $x$", "\udce9", 1)]))
